//! Replies that nobody asked for.

use super::{asks, at};
use crate::rainbow::WindowConfig;
use crate::rainbow::window::{Mode, RainbowWindow};
use crate::time::Duration;

fn begun() -> RainbowWindow {
    let mut window = RainbowWindow::new(WindowConfig::new());
    window.start(at(0));
    assert_eq!(asks(&mut window), [(1, 1)]);
    window
}

#[test]
fn replies_that_were_not_asked_for_change_nothing() {
    let mut window = begun();
    for (label, level) in [(0, 1), (2, 1), (256, 65_535), (257, 1), (65_535, 65_535), (1, 0)] {
        assert!(!window.reply(at(1), label, level), "{label} at {level}");
        assert_eq!(asks(&mut window), []);
    }
    assert_eq!((window.size(), window.mode(), window.outstanding()), (1, Mode::SlowStart, 1));
    assert_eq!((window.counters().unasked, window.counters().answered), (6, 0));
}

#[test]
fn a_duplicate_counts_once() {
    let mut window = begun();
    assert!(window.reply(at(50), 1, 1));
    assert_eq!(asks(&mut window), [(1, 1), (2, 1)]);
    assert!(window.reply(at(100), 2, 1));
    let before = (window.size(), window.outstanding());
    asks(&mut window);
    // 1 was overtaken by 2 and waits anew, at level 2; 2 was answered.
    assert!(!window.reply(at(101), 2, 1));
    assert_eq!((window.size(), window.outstanding()), before);
}

#[test]
fn the_highest_level_is_the_last() {
    let mut window = begun();
    // A reply that claims the highest level answers like any other, and the next request begins at 1.
    assert!(window.reply(at(50), 1, u16::MAX));
    assert_eq!(asks(&mut window), [(1, 1), (2, 1)]);
    // Silence: levels rise, and stay at the highest.
    let mut level = 0;
    for _ in 0..70_000 {
        let due = window.poll_timeout().expect("always");
        window.timeout(due);
        level = asks(&mut window).iter().map(|(_, level)| *level).max().unwrap_or(level);
    }
    assert_eq!(level, u16::MAX);
}

/// On a group, replies to faster receivers come for requests that still wait for this receiver's rate.
#[test]
fn replies_to_other_receivers_neither_add_nor_answer_requests_that_wait() {
    let mut window = RainbowWindow::new(WindowConfig::new());
    window.set_spacing(Duration::from_secs(1));
    window.start(at(1_000));
    assert!(window.poll_ask(at(1_000)).is_some());
    assert!(window.reply(at(1_010), 1, 1));
    let (outstanding, due) = (window.outstanding(), window.poll_timeout());
    assert_eq!(due, Some(at(2_000)));
    for step in 1..500 {
        window.reply(at(1_010 + step), 1, 1);
        window.reply(at(1_010 + step), 2, 1);
    }
    assert_eq!((window.outstanding(), window.poll_timeout()), (outstanding, due));
    let asked = (0..5).filter_map(|second| window.poll_ask(at(2_000 + 1_000 * second))).count();
    assert_eq!(asked, outstanding, "each once");
}
