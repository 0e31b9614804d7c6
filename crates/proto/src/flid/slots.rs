//! The sender's slots, tracked on a receiver's clock.

use super::INDICES;
use crate::layering::clock::shifted;
use crate::time::{Duration, Instant};

/// Maximum age of a packet in slots, relative to the newest slot: no packet is delayed for longer than its
/// neighbours.
const LATE: u64 = 2;
/// Successive packets with an implausible slot after which the sender counts as restarted.
const STRANGE: u8 = 8;
/// Maximum lag of a receiver's clock against the sender's: one part in this number.
const DRIFT: u64 = 64;

/// Maps slot indices modulo 128 to slots, and rejects implausible indices.
///
/// Slots are counted from a cycle of indices before the first observed slot; the numbers have no meaning
/// outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    length: Duration,
    /// Start of slot 0, estimated from packets with the least delay: no packet belongs to a slot that has not
    /// begun.
    origin: Instant,
    newest: u64,
    strange: u8,
}

/// Result of looking up a packet's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Slot of the packet: later than the newest slot so far, equal, or slightly older.
    Slot(u64),
    /// No plausible slot at this time.
    Nonsense,
    /// Implausible slots in successive packets: another sender, or a restart of the sender.
    Restart,
}

impl Slots {
    /// Begins with a packet of this index.
    pub(super) fn new(now: Instant, length: Duration, index: u8) -> Self {
        let newest = INDICES + u64::from(index);
        Self { length, origin: shifted(now) - length.saturating_mul(newest), newest, strange: 0 }
    }

    /// The newest slot.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the slot of a packet. The clock bridges a stall of any length.
    pub(super) fn tell(&mut self, now: Instant, index: u8) -> Told {
        let by_clock = shifted(now).since(self.origin).as_nanos() / self.length.as_nanos();
        let least = by_clock.saturating_sub(INDICES / 2);
        let slot = least + (u64::from(index) + INDICES - least % INDICES) % INDICES;
        if slot > by_clock + 1 || slot + LATE < self.newest {
            self.strange += 1;
            if self.strange < STRANGE {
                return Told::Nonsense;
            }
            *self = Self::new(now, self.length, index);
            return Told::Restart;
        }
        self.strange = 0;
        Told::Slot(slot)
    }

    /// Advances to a later slot.
    pub(super) fn advance(&mut self, now: Instant, slot: u64) {
        self.newest = slot;
        let origin = shifted(now) - self.length.saturating_mul(slot);
        let slack = Duration::from_nanos(self.length.as_nanos() / DRIFT);
        self.origin = origin.min(self.origin + slack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_millis(500);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn follow(slots: &mut Slots, ms: u64, index: u8) -> Option<u64> {
        match slots.tell(at(ms), index) {
            Told::Slot(slot) => {
                if slot > slots.newest() {
                    slots.advance(at(ms), slot);
                }
                Some(slot)
            }
            _ => None,
        }
    }

    #[test]
    fn slots_are_followed_around_the_cycle() {
        let mut slots = Slots::new(at(400), LENGTH, 120);
        let first = slots.newest();
        for k in 1..400 {
            let index = u8::try_from((120 + k) % 128).unwrap();
            assert_eq!(follow(&mut slots, 500 * k, index), Some(first + k));
        }
    }

    #[test]
    fn a_stall_is_followed_by_the_clock() {
        for seconds in [3, 20, 40, 64, 65, 600] {
            let mut slots = Slots::new(at(0), LENGTH, 5);
            let first = slots.newest();
            let index = u8::try_from((5 + 2 * seconds) % 128).unwrap();
            assert_eq!(follow(&mut slots, 1_000 * seconds, index), Some(first + 2 * seconds));
        }
    }

    #[test]
    fn packets_that_waited_in_a_queue_are_no_nonsense() {
        let mut slots = Slots::new(at(0), LENGTH, 0);
        let first = slots.newest();
        // Slots 1 to 6 come 5 s late, all at once, and the seventh in time.
        for k in 1..=6 {
            assert_eq!(follow(&mut slots, 5_000 + k, u8::try_from(k).unwrap()), Some(first + k));
        }
        assert_eq!(follow(&mut slots, 5_010, 10), Some(first + 10));
        assert_eq!(follow(&mut slots, 5_020, 8), Some(first + 8), "a little late");
        assert_eq!(follow(&mut slots, 5_030, 7), None, "too late");
    }

    #[test]
    fn slow_and_fast_clocks_are_followed() {
        for percent in [99, 101] {
            let mut slots = Slots::new(at(0), LENGTH, 0);
            for k in 1..2_000_u64 {
                let index = u8::try_from(k % 128).unwrap();
                assert!(follow(&mut slots, 5 * percent * k, index).is_some(), "slot {k} at {percent} %");
            }
        }
    }

    #[test]
    fn a_lie_is_passed_over_and_a_restart_is_believed() {
        let mut slots = Slots::new(at(0), LENGTH, 40);
        for index in [45, 20, 100, 127, 0, 3, 60] {
            assert_eq!(slots.tell(at(10), index), Told::Nonsense);
        }
        assert_eq!(
            slots.tell(at(11), 40),
            Told::Slot(128 + 40),
            "one that makes sense begins the count anew"
        );
        for _ in 0..7 {
            assert_eq!(slots.tell(at(12), 0), Told::Nonsense);
        }
        assert_eq!(slots.tell(at(12), 0), Told::Restart);
        assert_eq!(slots.tell(at(520), 1), Told::Slot(128 + 1));
    }
}
