//! Deadlines that move lazily: no event is ever cancelled.
//!
//! An agent's deadline moves with nearly every packet. While an event is pending at or before the deadline,
//! the engine schedules nothing; an event that fires too early checks the deadline again.

use headwater_proto::Instant;

/// Pending events that are remembered for an agent. A deadline may come nearer that often before the farthest
/// event is forgotten, which then fires in vain.
pub(crate) const PENDING_MAX: usize = 3;

const NONE: Instant = Instant::from_nanos(u64::MAX);

/// The instants of an agent's pending events, nearest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending([Instant; PENDING_MAX]);

impl Default for Pending {
    fn default() -> Self {
        Self([NONE; PENDING_MAX])
    }
}

impl Pending {
    /// Whether an event must be scheduled so that some event fires by `deadline`; if so, records the event.
    pub(crate) fn wants(&mut self, deadline: Instant) -> bool {
        if self.0[0] <= deadline {
            return false;
        }
        self.0.copy_within(..PENDING_MAX - 1, 1);
        self.0[0] = deadline;
        true
    }

    /// Records that an event fired at `at`. Returns whether the event was tracked.
    pub(crate) fn fired(&mut self, at: Instant) -> bool {
        if self.0[0] != at {
            return false;
        }
        self.0.copy_within(1.., 0);
        self.0[PENDING_MAX - 1] = NONE;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_later_deadline_waits_for_the_pending_event() {
        let mut pending = Pending::default();
        assert!(pending.wants(at(10)));
        assert!(!pending.wants(at(20)));
        assert!(pending.fired(at(10)));
        assert!(pending.wants(at(20)));
    }

    #[test]
    fn a_deadline_that_comes_and_goes_leaves_no_events_behind() {
        let mut pending = Pending::default();
        assert!(pending.wants(at(1_000)));
        for near in 1..1_000 {
            assert!(pending.wants(at(near)), "nearer than all");
            assert!(pending.fired(at(near)));
            assert!(!pending.wants(at(1_000)), "the far one is still there");
        }
    }

    #[test]
    fn the_farthest_is_forgotten_and_fires_in_vain() {
        let mut pending = Pending::default();
        for near in [40, 30, 20, 10] {
            assert!(pending.wants(at(near)));
        }
        for near in [10, 20, 30] {
            assert!(pending.fired(at(near)));
        }
        assert!(!pending.fired(at(40)));
    }
}
