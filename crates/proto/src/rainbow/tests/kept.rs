//! Replies that a relay had kept, among those that come from the source.

use std::collections::BTreeSet;

use super::{asks, at};
use crate::rainbow::{Overtaking, Window, WindowConfig};
use crate::time::{Duration, Instant};

/// Nineteen of twenty requests are answered by a relay beside the receiver, the others by the source, 60 ms away; nothing is lost.
#[test]
fn what_goes_up_is_not_held_to_be_lost_when_most_is_answered_at_once() {
    let config = WindowConfig::new().with_labels_max(40).with_overtaking(Overtaking::Longest);
    let mut window = Window::new(config);
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
