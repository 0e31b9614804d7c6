//! Loss detection on a single channel: a hole counts as a loss once three later packets have arrived.

use crate::time::{Duration, Instant};

/// Shortest time over which the mean rate of a channel is taken.
const MEASURED_MIN: Duration = Duration::from_secs(1);
/// Number of later packets of the channel that make a hole a loss (RFC 5348, section 5.1, as TCP).
const LATER: u8 = 3;
/// Maximum number of open holes; further holes count as losses at once.
const OPEN_MAX: usize = 16;

/// Number of consecutive numbers behind the highest that count as a restart of the sequence.
const ANEW: u8 = 8;

/// Holes in the 16-bit sequence numbers of a single channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holes {
    highest: Option<u16>,
    open: [Hole; OPEN_MAX],
    count: usize,
    /// Last of a run of consecutive numbers behind the highest, and length of the run.
    behind: (u16, u8),
}

#[derive(Clone, Copy, Debug, Default)]
struct Hole {
    sequence: u16,
    later: u8,
}

/// Result of a packet's arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Whether the packet is not a duplicate.
    pub is_new: bool,
    /// Number of packets now known to be lost.
    pub lost: u64,
    /// Number of the last of these packets, if any, unless the sequence has restarted.
    pub last_lost: Option<u16>,
    /// Whether the sequence has restarted: the sender was restarted, or an earlier packet was forged.
    pub is_anew: bool,
}

impl Holes {
    /// Records a packet with this number.
    pub fn record(&mut self, sequence: u16) -> Found {
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            return Found { is_new: true, ..Found::default() };
        };
        let ahead = sequence.wrapping_sub(highest);
        if ahead == 0 || ahead >= 1 << 15 {
            return self.record_behind(sequence);
        }
        self.behind = (0, 0);
        self.highest = Some(sequence);
        let (mut lost, mut last_lost) = self.age();
        for missing in 1..ahead {
            if self.count == OPEN_MAX {
                // This many holes are not reordering.
                lost += u64::from(ahead - missing) + self.close();
                last_lost = Some(sequence.wrapping_sub(1));
                break;
            }
            self.open[self.count] = Hole { sequence: highest.wrapping_add(missing), later: 1 };
            self.count += 1;
        }
        Found { is_new: true, lost, last_lost, is_anew: false }
    }

    /// Records a packet that came earlier, and waited: a number behind the highest says nothing of a restart.
    pub fn record_late(&mut self, sequence: u16) -> Found {
        match self.highest.map(|highest| sequence.wrapping_sub(highest)) {
            Some(ahead) if ahead == 0 || ahead >= 1 << 15 => {
                Found { is_new: self.fill(sequence), ..Found::default() }
            }
            _ => self.record(sequence),
        }
    }

    fn record_behind(&mut self, sequence: u16) -> Found {
        if self.fill(sequence) {
            return Found { is_new: true, ..Found::default() };
        }
        let (newest, run) = self.behind;
        self.behind = (sequence, if sequence == newest.wrapping_add(1) { run + 1 } else { 1 });
        if self.behind.1 < ANEW {
            return Found::default();
        }
        let lost = self.close();
        *self = Self { highest: Some(sequence), ..Self::default() };
        Found { is_new: true, lost, last_lost: None, is_anew: true }
    }

    /// Closes the hole of a late packet.
    fn fill(&mut self, sequence: u16) -> bool {
        let Some(index) = self.open[..self.count].iter().position(|hole| hole.sequence == sequence) else {
            return false;
        };
        self.open.copy_within(index + 1..self.count, index);
        self.count -= 1;
        true
    }

    /// Counts a later packet for every hole. Returns the number of holes that are now losses, and the
    /// sequence number of the last.
    fn age(&mut self) -> (u64, Option<u16>) {
        for hole in &mut self.open[..self.count] {
            hole.later += 1;
        }
        // Older holes come first, and have at least as many later packets.
        let lost = self.open[..self.count].iter().take_while(|hole| hole.later >= LATER).count();
        let last_lost = lost.checked_sub(1).map(|last| self.open[last].sequence);
        self.open.copy_within(lost..self.count, 0);
        self.count -= lost;
        (lost as u64, last_lost)
    }

    /// Returns the oldest missing number that may still arrive.
    pub fn oldest(&self) -> Option<u16> {
        self.open[..self.count].first().map(|hole| hole.sequence)
    }

    /// Closes the channel: returns the missing packets, now all lost.
    pub fn close(&mut self) -> u64 {
        core::mem::take(&mut self.count) as u64
    }
}

/// Counts received and lost packets of a single channel. Handles reordering and wrapping numbers. Of packets
/// lost in a row, the count is modulo 2^16.
#[derive(Clone, Debug, Default)]
pub struct SequenceTracker {
    /// Highest number, and time of its arrival.
    highest: Option<(u16, Instant)>,
    /// Time of the first arrival since the last pause, and packets expected since.
    began: (Instant, u64),
    received: u64,
    expected: u64,
}

impl SequenceTracker {
    /// Records the arrival of a packet with this number.
    pub fn record(&mut self, now: Instant, sequence: u16) {
        self.received += 1;
        let Some((highest, last)) = self.highest else {
            self.expected += 1;
            self.began = (now, 1);
            self.highest = Some((sequence, now));
            return;
        };
        let ahead = sequence.wrapping_sub(highest);
        if ahead < 1 << 15 || self.has_missed_many(now, last) {
            self.expected += u64::from(ahead);
            self.began.1 += u64::from(ahead);
            self.highest = Some((sequence, now));
        }
    }

    /// Whether the silence until `now` is as long as 2^14 packets at the mean rate. A number that seems to be
    /// more than 2^15 behind is then ahead: late packets arrive among others.
    fn has_missed_many(&self, now: Instant, last: Instant) -> bool {
        let (began, expected) = self.began;
        let measured = last.since(began).max(MEASURED_MIN).as_nanos();
        u128::from(now.since(last).as_nanos()) * u128::from(expected) >= u128::from(measured) << 14
    }

    /// Pauses the count after the channel is left: packets sent meanwhile are not lost.
    pub fn pause(&mut self) {
        self.highest = None;
    }

    /// Returns the number of packets received, duplicates included.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of packets expected and not received. Each duplicate hides a loss.
    pub fn lost(&self) -> u64 {
        self.expected.saturating_sub(self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lost(sequences: &[u16]) -> Vec<u64> {
        let mut holes = Holes::default();
        sequences.iter().map(|sequence| holes.record(*sequence).lost).collect()
    }

    #[test]
    fn a_hole_is_a_loss_after_three_later_packets() {
        assert_eq!(lost(&[65_534, 0, 1, 2, 3]), [0, 0, 0, 1, 0]);
        assert_eq!(lost(&[10, 13, 14, 15]), [0, 0, 0, 2]);
    }

    #[test]
    fn packets_that_waited_are_no_restart() {
        let mut holes = Holes::default();
        for sequence in [89, 90, 91, 92, 93, 94] {
            holes.record(sequence);
        }
        for sequence in 77..89 {
            assert_eq!(holes.record_late(sequence), Found::default());
        }
        for sequence in 95..99 {
            assert_eq!(holes.record(sequence), Found { is_new: true, ..Found::default() });
        }
        holes.record(100);
        assert!(holes.record_late(99).is_new, "the packet fills the hole");
    }

    #[test]
    fn what_is_lost_is_named() {
        let mut holes = Holes::default();
        let named: Vec<Option<u16>> = [65_533, 0, 1, 2, 5, 6, 7, 1_000]
            .iter()
            .map(|sequence| holes.record(*sequence).last_lost)
            .collect();
        assert_eq!(named, [None, None, None, Some(65_535), None, None, Some(4), Some(999)]);
    }

    #[test]
    fn simple_reordering_is_no_loss() {
        assert_eq!(lost(&[1, 3, 4, 2, 5, 6, 7]), [0; 7]);
    }

    #[test]
    fn a_duplicate_is_not_new() {
        let mut holes = Holes::default();
        assert!(holes.record(5).is_new && holes.record(7).is_new && holes.record(6).is_new);
        assert!(!holes.record(6).is_new && !holes.record(7).is_new);
    }

    #[test]
    fn a_long_gap_is_counted_at_once() {
        assert_eq!(lost(&[0, 1_001])[1], 1_000);
    }

    #[test]
    fn numbers_that_begin_anew_are_followed() {
        let mut holes = Holes::default();
        holes.record(10);
        // One lie, after which all is behind.
        assert_eq!(holes.record(30_000).lost, 29_989);
        let found: Vec<Found> = (11..21).map(|sequence| holes.record(sequence)).collect();
        assert!(found.iter().all(|found| found.lost == 0));
        assert_eq!(found.iter().position(|found| found.is_anew), Some(7));
        assert_eq!(holes.record(24).lost + holes.record(25).lost + holes.record(26).lost, 3);
    }

    #[test]
    fn copies_that_come_late_are_no_beginning() {
        let mut holes = Holes::default();
        for sequence in 0..200 {
            assert_eq!(holes.record(100 + sequence), Found { is_new: true, ..Found::default() });
            assert_eq!(holes.record(50 + sequence), Found::default());
        }
    }

    proptest! {
        /// Whatever comes in order is received or lost, each once.
        #[test]
        fn nothing_is_counted_twice(steps in prop::collection::vec(1_u16..40, 1..200), first: u16) {
            let mut holes = Holes::default();
            let mut sequence = first;
            let mut found = holes.record(sequence).lost;
            for step in &steps {
                sequence = sequence.wrapping_add(*step);
                found += holes.record(sequence).lost;
            }
            found += holes.close();
            let missing: u64 = steps.iter().map(|step| u64::from(*step) - 1).sum();
            prop_assert_eq!(found, missing);
        }
    }

    /// Records the numbers `from..to` at 10 000 packets a second, modulo 2^16.
    fn record(tracker: &mut SequenceTracker, numbers: core::ops::Range<u64>) {
        for number in numbers {
            let sequence = u16::try_from(number % (1 << 16)).unwrap();
            tracker.record(Instant::from_nanos(number * 100_000), sequence);
        }
    }

    #[test]
    fn a_silence_of_up_to_a_cycle_is_counted() {
        for lost in [10, 32_767, 32_768, 40_000, 65_534] {
            for before in [20_000, 200_000] {
                let mut tracker = SequenceTracker::default();
                record(&mut tracker, 0..before);
                record(&mut tracker, before + lost..before + lost + 100_000);
                assert_eq!(tracker.lost(), lost, "after {before}");
            }
        }
    }

    #[test]
    fn late_packets_and_a_pause_of_the_sender_are_no_loss() {
        let mut tracker = SequenceTracker::default();
        record(&mut tracker, 0..50_000);
        record(&mut tracker, 50_064..50_128);
        // The late packets arrive within 10 ms.
        for sequence in 50_000..50_064 {
            tracker.record(Instant::from_nanos(50_128 * 100_000 + 10_000_000), sequence);
        }
        for number in 0..100_u16 {
            tracker.record(Instant::from_nanos(60_000_000_000), 50_128 + number);
        }
        assert_eq!(tracker.lost(), 0);
    }
}
