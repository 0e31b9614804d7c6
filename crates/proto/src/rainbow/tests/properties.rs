//! What holds whatever a network does.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{asks, at};
use crate::rainbow::window::{Mode, RainbowWindow};
use crate::rainbow::{Overtaking, WindowConfig};
use crate::rng;
use crate::time::{Duration, Instant};
use crate::{Seed, rainbow::window::Ask};

/// `threshold` 0 is by time.
fn config(threshold: u8, labels: u16) -> WindowConfig {
    let overtaking = if threshold == 0 { Overtaking::Longest } else { Overtaking::Count(threshold) };
    WindowConfig::new().with_overtaking(overtaking).with_labels_max(labels)
}

/// What a window asked for and was told, by label: the level of a request that was not answered.
#[derive(Default)]
struct Witness {
    open: BTreeMap<u16, u16>,
}

impl Witness {
    /// Checks what a call made the window ask for.
    fn asked(&mut self, window: &RainbowWindow, asks: &[(u16, u16)]) {
        for (label, level) in asks {
            assert!((1..=window.size()).contains(label), "{label} is outside of {}", window.size());
            let before = self.open.insert(*label, *level);
            assert!(
                before.is_none_or(|before| before < *level || *level == u16::MAX),
                "asked twice at {level}"
            );
        }
        let (outstanding, size) = (window.outstanding(), usize::from(window.size()));
        assert!(outstanding > 0, "nothing is under way: it is stuck");
        assert!(asks.is_empty() || outstanding <= size, "{outstanding} requests in a window of {size}");
        assert!(window.mode() == Mode::Recover || outstanding == size, "{outstanding} of {size} labels");
        assert!(window.poll_timeout().is_some());
    }

    /// A reply came, and a request waited for it, or not. One that a lower level answered is asked for at the
    /// same level again.
    fn replied(&mut self, label: u16, level: u16, was_waited_for: bool) {
        if was_waited_for || self.open.get(&label).is_some_and(|asked| *asked <= level) {
            self.open.remove(&label);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Replies to what waits, in any order, forged ones, and time that passes.
    #[test]
    fn requests_stay_within_the_window(
        steps in prop::collection::vec((0_u8..8, 0_u16..300, 0_u16..4, 0_u64..400), 1..400),
        threshold in 0_u8..4,
        labels in prop_oneof![Just(1_u16), Just(7), Just(256)],
    ) {
        let mut window = RainbowWindow::new(config(threshold, labels));
        let (mut witness, mut now) = (Witness::default(), at(0));
        window.start(now);
        let first = asks(&mut window);
        witness.asked(&window, &first);
        for (kind, label, level, ms) in steps {
            now += Duration::from_millis(ms / 8);
            match kind {
                0 => {
                    let was_waited_for = window.reply(now, label, level);
                    witness.replied(label, level, was_waited_for);
                }
                1 => window.timeout(now),
                2 => {
                    now = window.poll_timeout().expect("always").max(now);
                    window.timeout(now);
                }
                _ => {
                    let open: Vec<(u16, u16)> = witness.open.iter().map(|(a, b)| (*a, *b)).collect();
                    let Some((label, level)) = open.get(usize::from(label) % open.len().max(1)).copied() else { continue };
                    let was_waited_for = window.reply(now, label, level);
                    witness.replied(label, level, was_waited_for);
                }
            }
            let asked = asks(&mut window);
            witness.asked(&window, &asked);
        }
    }

    /// Over a path that loses and reorders, replies go on coming.
    #[test]
    fn nothing_stays_stuck(seed: u64, loss in 0.0..0.6_f64, jitter in 0_u64..80, threshold in 0_u8..4) {
        let mut draw = Seed(seed).stream("path", 0);
        let mut window = RainbowWindow::new(config(threshold, 64).with_spread(Some(Seed(seed))));
        let mut under_way: BTreeMap<(Instant, u64), Ask> = BTreeMap::new();
        let (mut now, mut count) = (at(0), 0);
        window.start(now);
        while now < at(120_000) {
            while let Some(ask) = window.poll_ask(now) {
                count += 1;
                if rng::unit(&mut draw) >= loss {
                    let extra = rng::unit(&mut draw) * f64::from(u32::try_from(jitter).expect("small"));
                    under_way.insert((now + Duration::from_secs_f64(0.05 + extra / 1e3), count), ask);
                }
            }
            let due = window.poll_timeout().expect("always");
            prop_assert!(due.since(now) <= WindowConfig::TIMEOUT_MAX, "it tries again");
            match under_way.first_key_value() {
                Some(((when, _), _)) if *when <= due => {
                    let ((when, _), ask) = under_way.pop_first().expect("there is one");
                    now = when.max(now);
                    window.reply(now, ask.label, ask.level);
                }
                _ => {
                    now = due.max(now);
                    window.timeout(now);
                }
            }
        }
        let counters = window.counters();
        // At more loss the timeout may double all the time.
        prop_assert!(loss > 0.2 || counters.answered >= 20, "{:?}", counters);
        if loss == 0.0 && jitter == 0 {
            prop_assert_eq!(counters.cuts, 0);
        }
    }
}

/// Without loss each label is asked for at level 1, and never twice before its reply.
#[test]
fn a_perfect_path_is_filled() {
    let mut window = RainbowWindow::new(WindowConfig::new().with_labels_max(40));
    let mut under_way = std::collections::VecDeque::new();
    let mut now = at(0);
    window.start(now);
    while now < at(5_000) {
        under_way.extend(
            core::iter::from_fn(|| window.poll_ask(now)).map(|ask| (now + Duration::from_millis(50), ask)),
        );
        let Some((when, ask)) = under_way.pop_front() else { break };
        now = when;
        assert_eq!(ask.level, 1);
        assert!(window.reply(now, ask.label, ask.level));
    }
    assert_eq!((window.size(), window.outstanding(), window.counters().cuts), (40, 40, 0));
}
