//! Queueing delay by departure time, for packets that left near a lost packet.

use crate::time::{Duration, Instant};

/// Length of a slot, and number of slots: five seconds, within which a slow channel reveals losses.
const SLOT: Duration = Duration::from_millis(10);
const SLOTS: u32 = 512;

/// Longest queueing delay of each slot of departures. 4 KiB.
#[derive(Clone, Debug)]
pub struct Waits(Vec<Slot>);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of the slot, modulo 2^32, from 1 on.
    number: u32,
    /// Seconds.
    wait: f32,
}

impl Default for Waits {
    fn default() -> Self {
        Self(vec![Slot::default(); SLOTS as usize])
    }
}

impl Waits {
    /// Records a packet that left at `left` and waited `wait` seconds.
    pub fn record(&mut self, left: Instant, wait: f64) {
        let number = number_of(left);
        let slot = &mut self.0[index_of(number)];
        #[expect(clippy::cast_possible_truncation, reason = "a delay in seconds")]
        let wait = wait as f32;
        if slot.number < number {
            *slot = Slot { number, wait };
        } else if slot.number == number {
            slot.wait = slot.wait.max(wait);
        }
    }

    /// W: returns the longest delay of packets that left at most `within` seconds before or after `left`.
    pub fn longest(&self, left: Instant, within: f64) -> Option<f64> {
        let within = Duration::from_secs_f64(within);
        let (first, last) = (number_of(left - within), number_of(left + within));
        let last = last.min(first.saturating_add(SLOTS - 1));
        let slots = (first..=last).map(|number| (number, self.0[index_of(number)]));
        let known = slots.filter(|(number, slot)| slot.number == *number).map(|(_, slot)| slot.wait);
        known.reduce(f32::max).map(f64::from)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
fn number_of(left: Instant) -> u32 {
    ((left.as_nanos() / SLOT.as_nanos()) as u32).max(1)
}

fn index_of(number: u32) -> usize {
    (number % SLOTS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn only_near_departures_count() {
        let mut waits = Waits::default();
        for (ms, wait) in [(1_000, 0.01), (1_050, 0.05), (1_200, 0.02)] {
            waits.record(at(ms), wait);
        }
        assert_eq!(waits.longest(at(1_010), 0.02), Some(f64::from(0.01_f32)));
        assert_eq!(waits.longest(at(1_100), 0.06), Some(f64::from(0.05_f32)));
        assert_eq!(waits.longest(at(1_150), 0.02), None);
        assert_eq!(waits.longest(at(1_150), 100.0), Some(f64::from(0.05_f32)));
    }

    #[test]
    fn a_late_packet_does_not_replace_a_later_slot() {
        let mut waits = Waits::default();
        waits.record(at(6_120), 0.03);
        waits.record(at(1_000), 0.5);
        assert_eq!(waits.longest(at(6_120), 0.0), Some(f64::from(0.03_f32)));
    }
}
