//! Replies that a relay had kept, among those that come from the source.

use std::collections::BTreeSet;

use super::{asks, at};
use crate::rainbow::{Overtaking, RainbowWindow, WindowConfig};
use crate::time::{Duration, Instant};

/// Nineteen of twenty requests are answered by a relay beside the receiver, the others by the source, 60 ms
/// away; nothing is lost.
#[test]
fn what_goes_up_is_not_held_to_be_lost_when_most_is_answered_at_once() {
    let config = WindowConfig::new().with_labels_max(40).with_overtaking(Overtaking::Longest);
    let mut window = RainbowWindow::new(config);
    let (mut under_way, mut asked) = (BTreeSet::<(Instant, u32, u16, u16)>::new(), 0_u32);
    window.start(at(0));
    for ms in 0..10_000 {
        let now = at(ms);
        while under_way.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, _, label, level) = under_way.pop_first().unwrap();
            window.reply(now, label, level);
        }
        if window.poll_timeout().is_some_and(|due| due <= now) {
            window.timeout(now);
        }
        for (label, level) in asks(&mut window) {
            let way = Duration::from_millis(if asked.is_multiple_of(20) { 60 } else { 1 });
            under_way.insert((now + way, asked, label, level));
            asked += 1;
        }
    }
    let counters = window.counters();
    assert!(counters.answered > 50_000, "{counters:?}");
    assert_eq!((counters.overtaken, counters.late, counters.cuts), (0, 0, 0), "{counters:?}");
}

/// What a relay had got in place of something lost is a loss of who gets it, too: one in a round-trip time,
/// and none of what was asked for before a cut.
#[test]
fn a_loss_that_a_relay_tells_of_cuts_once_in_a_round_trip_time() {
    let mut window = RainbowWindow::new(WindowConfig::new().with_overtaking(Overtaking::Longest));
    window.start(at(0));
    let mut answer = |ms: u64, label: u16, is_loss: bool| {
        if is_loss {
            window.share_loss(at(ms), label);
        }
        assert!(window.reply(at(ms), label, 1), "{label} waited at {ms}");
        _ = asks(&mut window);
        (window.size(), window.counters().cuts)
    };
    assert_eq!(answer(100, 1, false), (2, 0));
    assert_eq!([answer(200, 1, false), answer(200, 2, false)], [(3, 0), (4, 0)]);
    assert_eq!(answer(300, 1, true), (2, 1));
    // Asked for before that, or less than a round-trip time after.
    assert_eq!(answer(301, 2, true), (2, 1));
    assert_eq!([answer(302, 3, true), answer(303, 4, true)], [(2, 1), (2, 1)]);
    assert_eq!(answer(390, 1, true), (2, 1));
    assert_eq!(answer(410, 2, true), (1, 2));
    window.share_loss(at(900), 0);
    window.share_loss(at(900), 40);
    window.share_loss(at(900), u16::MAX);
    assert_eq!(window.counters().cuts, 2, "nothing waits for those");
}
