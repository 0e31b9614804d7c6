//! The window by hand (Yano and McCanne 1999, Rainbow receiver).

use super::{asks, at};
use crate::rainbow::window::{Mode, RainbowWindow};
use crate::rainbow::{Overtaking, WindowConfig};
use crate::time::Duration;

/// A window that has begun at 0, and what it does with replies.
struct Bench(RainbowWindow);

impl Bench {
    fn new(config: WindowConfig) -> Self {
        let mut window = RainbowWindow::new(config);
        window.start(at(0));
        assert_eq!(asks(&mut window), [(1, 1)]);
        Self(window)
    }

    fn reply(&mut self, ms: u64, label: u16, level: u16) -> Vec<(u16, u16)> {
        assert!(self.0.reply(at(ms), label, level), "label {label} was waited for");
        asks(&mut self.0)
    }

    fn timeout(&mut self, ms: u64) -> Vec<(u16, u16)> {
        self.0.timeout(at(ms));
        asks(&mut self.0)
    }

    /// Slow start up to a window of four, of which 1, 3, 2, 4 wait in this order.
    fn of_four(config: WindowConfig) -> Self {
        let mut bench = Self::new(config);
        assert_eq!(bench.reply(100, 1, 1), [(1, 1), (2, 1)]);
        assert_eq!(bench.reply(200, 1, 1), [(1, 1), (3, 1)]);
        assert_eq!(bench.reply(201, 2, 1), [(2, 1), (4, 1)]);
        assert_eq!((bench.0.size(), bench.0.mode(), bench.0.outstanding()), (4, Mode::SlowStart, 4));
        bench
    }
}

#[test]
fn slow_start_loss_recovery_and_growth() {
    let mut bench = Bench::of_four(WindowConfig::new());
    // 2 is answered before 1 and 3, asked for earlier: one event. 1 and 2 are left of the window; 4 is still
    // under way, so that there is room for one request: the lowest, a level higher than what was lost.
    assert_eq!(bench.reply(301, 2, 1), [(1, 2)]);
    assert_eq!((bench.0.size(), bench.0.mode()), (2, Mode::Recover));
    assert_eq!((bench.0.counters().cuts, bench.0.counters().overtaken), (1, 2));
    // 4 is outside of the window, and not asked for again; its place is 2's.
    assert_eq!(bench.reply(302, 4, 1), [(2, 1)]);
    assert_eq!(bench.0.mode(), Mode::Avoid);
    // What was answered in recovery counts for no round.
    assert_eq!(bench.reply(401, 1, 2), [(1, 1)]);
    assert_eq!(bench.0.size(), 2, "2 was answered before the round began");
    // Both labels were answered since: the window grows. 3 was lost at level 1.
    assert_eq!(bench.reply(402, 2, 1), [(2, 1), (3, 2)]);
    assert_eq!(bench.0.size(), 3);
    // A round begins at every increase.
    assert_eq!(bench.reply(501, 1, 1), [(1, 1)]);
    assert_eq!(bench.reply(502, 2, 1), [(2, 1)]);
    assert_eq!(bench.0.size(), 3, "3 is under way still");
}

#[test]
fn a_timeout_restarts_from_a_window_of_one() {
    let mut bench = Bench::of_four(WindowConfig::new().with_overtaking(Overtaking::Count(3)));
    bench.reply(300, 1, 1);
    assert_eq!(bench.0.size(), 5, "still slow start");
    // 3 was asked for at 200, with a timeout of 100 + 4 * 50 or so.
    let due = bench.0.poll_timeout().expect("some wait");
    bench.0.timeout(due);
    assert_eq!(asks(&mut bench.0), [(1, 2)]);
    assert_eq!((bench.0.size(), bench.0.mode(), bench.0.counters().collapses), (1, Mode::SlowStart, 1));
    // Slow start ends at half of the window before: 2.
    assert_eq!(bench.reply(due.as_nanos() / 1_000_000 + 100, 1, 2), [(1, 1), (2, 2)]);
    assert_eq!((bench.0.size(), bench.0.mode()), (2, Mode::Avoid));
}

#[test]
fn three_later_replies_make_a_loss_where_tcp_says_so() {
    let mut bench = Bench::of_four(WindowConfig::new().with_overtaking(Overtaking::Count(3)));
    // 3, 2 and 4 before 1.
    assert_eq!(bench.reply(300, 3, 1), [(3, 1), (5, 1)]);
    assert_eq!(bench.reply(301, 2, 1), [(2, 1), (6, 1)]);
    assert_eq!(bench.0.counters().cuts, 0);
    let asked = bench.reply(302, 4, 1);
    assert_eq!((bench.0.counters().cuts, bench.0.size()), (1, 3));
    // 3, 5, 2, 6 are under way, of which 5 and 6 are outside: no room for 1.
    assert_eq!(asked, []);
    // Half a round-trip time later what is outside is no longer waited for.
    let due = bench.0.poll_timeout().expect("some wait");
    assert!(due > at(302) && due < at(402), "{due:?}");
    bench.0.timeout(due);
    assert_eq!(asks(&mut bench.0), [(1, 2)]);
    assert_eq!((bench.0.mode(), bench.0.outstanding()), (Mode::Avoid, 3));
}

#[test]
fn a_window_grows_by_what_was_asked_for_after_its_cut() {
    let mut bench = Bench::of_four(WindowConfig::new().with_overtaking(Overtaking::Count(3)));
    bench.reply(300, 3, 1);
    bench.reply(301, 2, 1);
    bench.reply(302, 4, 1);
    let due = bench.0.poll_timeout().expect("some wait");
    bench.0.timeout(due);
    assert_eq!(asks(&mut bench.0), [(1, 2)]);
    assert_eq!((bench.0.size(), bench.0.mode()), (3, Mode::Avoid));
    // 3 and 2 were asked for before the cut at 302.
    assert_eq!(bench.reply(400, 3, 1), [(3, 1)]);
    assert_eq!(bench.reply(401, 2, 1), [(2, 1)]);
    assert_eq!(bench.reply(455, 1, 2), [(1, 1)]);
    assert_eq!(bench.0.size(), 3, "a round-trip time after the cut");
    assert_eq!(bench.reply(500, 3, 1), [(3, 1)]);
    assert_eq!(bench.reply(501, 2, 1), [(2, 1), (4, 1)]);
    assert_eq!(bench.0.size(), 4);
}

#[test]
fn what_was_asked_for_before_a_cut_does_not_cut_again() {
    let mut bench = Bench::of_four(WindowConfig::new());
    bench.reply(301, 2, 1);
    bench.reply(302, 4, 1);
    assert_eq!((bench.0.size(), bench.0.mode()), (2, Mode::Avoid));
    // 1 (asked for at the cut) is overtaken by 2: a request after the cut, so another event.
    assert_eq!(bench.reply(401, 2, 1), [(1, 3)]);
    assert_eq!((bench.0.size(), bench.0.counters().cuts), (1, 2));
}

#[test]
fn silence_brings_the_window_to_one_and_doubles_the_timeout() {
    let mut bench = Bench::of_four(WindowConfig::new());
    // Every request is late: 1 and 3 from 200, then 2 and 4 from 201.
    let first = bench.0.poll_timeout().expect("some wait");
    assert_eq!(bench.timeout(first.as_nanos() / 1_000_000 + 2), [(1, 2)]);
    assert_eq!((bench.0.size(), bench.0.counters().collapses), (1, 1));
    let second = bench.0.poll_timeout().expect("some wait");
    bench.0.timeout(second);
    assert_eq!(asks(&mut bench.0), [(1, 3)]);
    assert_eq!((bench.0.size(), bench.0.mode()), (1, Mode::SlowStart));
    let third = bench.0.poll_timeout().expect("some wait");
    bench.0.timeout(third);
    assert_eq!(asks(&mut bench.0), [(1, 4)]);
    let fourth = bench.0.poll_timeout().expect("some wait");
    let (before, after) = (third.since(second).as_nanos(), fourth.since(third).as_nanos());
    assert!(after.abs_diff(2 * before) <= 2, "{before} ns, then {after} ns");
    // An answer: fast growth up to half of what the window was.
    bench.0.reply(third, 1, 4);
    assert_eq!(asks(&mut bench.0), [(1, 1), (2, 2)]);
    assert_eq!(bench.0.mode(), Mode::Avoid);
}

/// As by Karn's algorithm: the reply to the request after a timeout leaves the timeout doubled; the reply to
/// a later request ends the backoff.
#[test]
fn the_timeout_stays_doubled_until_a_later_request_is_answered() {
    let mut bench = Bench::new(WindowConfig::new());
    bench.reply(100, 1, 1);
    let patience = |window: &RainbowWindow, asked: u64| {
        window.poll_timeout().expect("some wait").since(at(asked)).as_nanos() / 1_000_000
    };
    let before = patience(&bench.0, 100);
    let due = bench.0.poll_timeout().expect("some wait").as_nanos() / 1_000_000 + 1;
    assert_eq!(bench.timeout(due), [(1, 2)]);
    assert_eq!(bench.reply(due + 100, 1, 2), [(1, 1), (2, 2)]);
    assert!(patience(&bench.0, due + 100) > before, "doubled still");
    bench.reply(due + 200, 1, 1);
    bench.reply(due + 200, 2, 2);
    assert!(patience(&bench.0, due + 200) <= before);
}

/// A window below 8 delays a request at random, by less than half the time between two requests; a larger
/// window does not.
#[test]
fn requests_of_small_windows_are_spread() {
    let window = |seed| RainbowWindow::new(WindowConfig::new().with_spread(Some(crate::Seed(seed))));
    let delay = |seed| {
        let mut window = window(seed);
        window.start(at(0));
        window.poll_ask(at(0)).expect("nothing is measured yet");
        window.reply(at(100), 1, 1);
        window.poll_timeout().expect("the next request").since(at(100))
    };
    let delays: std::collections::BTreeSet<_> = (0..40).map(|seed| delay(seed).as_nanos()).collect();
    assert!(delays.len() == 40 && delays.last() < Some(&50_000_000), "{delays:?}");
    assert!(delays.first() < Some(&12_500_000) && delays.last() > Some(&37_500_000), "{delays:?}");

    let mut window = window(1);
    window.start(at(0));
    for round in 0..10_u64 {
        let now = at(100 * round);
        let asks = Vec::from_iter(core::iter::from_fn(|| window.poll_ask(now)));
        if window.size() > 16 {
            assert_eq!(asks.len(), window.outstanding(), "all leave at once");
        }
        let late = core::iter::from_fn(|| window.poll_ask(now + Duration::from_millis(99)));
        for ask in asks.into_iter().chain(Vec::from_iter(late)) {
            window.reply(now + Duration::from_millis(100), ask.label, ask.level);
        }
    }
    assert!(window.size() > 16);
}

#[test]
fn a_reply_of_a_lower_level_answers_but_clears_nothing() {
    let mut bench = Bench::of_four(WindowConfig::new());
    bench.reply(301, 2, 1);
    // 1 was asked for again at level 2, and its first reply is only late: breadcrumbs of level 2 are still
    // there.
    let before = bench.0.counters().overtaken;
    bench.0.reply(at(310), 1, 1);
    assert_eq!(bench.0.counters().overtaken, before, "it answers an old request: nothing was overtaken");
    assert!(asks(&mut bench.0).iter().all(|ask| *ask != (1, 1)), "level 1 would be held up by them");
}

#[test]
fn a_late_reply_saves_the_higher_level() {
    let mut bench = Bench::of_four(WindowConfig::new());
    bench.reply(301, 2, 1);
    bench.reply(302, 4, 1);
    // 3 was given up outside of the window, and comes after all: its breadcrumbs are gone.
    assert!(!bench.0.reply(at(303), 3, 1));
    assert_eq!(bench.reply(401, 1, 2), [(1, 1)]);
    assert_eq!(bench.reply(402, 2, 1), [(2, 1), (3, 1)]);
}

#[test]
fn by_time_an_overtaken_request_waits_as_long_as_the_longest_reply_took() {
    let mut bench = Bench::of_four(WindowConfig::new().with_overtaking(Overtaking::Longest));
    // 1 and 3 were asked for at 200, before 2. Replies took 100 ms, one of them 101.
    assert_eq!(bench.reply(301, 2, 1), [(2, 1), (5, 1)]);
    assert_eq!(bench.0.counters().cuts, 0);
    let due = bench.0.poll_timeout().expect("some wait");
    assert!(due > at(310) && due < at(312), "{due:?}");
    // 3 comes in time after all; 1 does not.
    assert_eq!(bench.reply(305, 3, 1), [(3, 1), (6, 1)]);
    // That reply took 105 ms, which is the longest now.
    assert_eq!(bench.timeout(314), []);
    assert_eq!(bench.0.counters().cuts, 0);
    assert_eq!(bench.timeout(316), []);
    assert_eq!((bench.0.counters().cuts, bench.0.counters().overtaken, bench.0.counters().late), (1, 1, 0));
}
