//! Departure times of each group's packets: evenly spaced at the group's own rate, which may change at any
//! instant.

use crate::rate::Rate;
use crate::time::{Duration, Instant};

const BIT_NANOS: u128 = 1_000_000_000;

/// Departures of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    packet_bits: u64,
    /// Departure time of packet 0; packet k leaves k packet times later.
    anchor: Instant,
    rate: Option<Rate>,
    /// Number of packets sent or given up since `anchor`.
    number: u64,
}

impl Lane {
    /// Creates the lane of a group without a rate.
    pub const fn new(packet_bits: u64) -> Self {
        Self { packet_bits, anchor: Instant::ZERO, rate: None, number: 0 }
    }

    /// Returns the sending rate.
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Changes the rate at `now`. The remaining wait for the next packet is rescaled to the new rate.
    pub fn set_rate(&mut self, now: Instant, rate: Option<Rate>) {
        if rate == self.rate {
            return;
        }
        self.anchor = match (self.due(), self.rate, rate) {
            (Some(due), Some(before), Some(rate)) if due > now => {
                let left = u128::from(due.since(now).as_nanos());
                let left = left * u128::from(before.as_bits()) / u128::from(rate.as_bits());
                now + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
            }
            (Some(due), ..) => due,
            (None, ..) => now,
        };
        (self.rate, self.number) = (rate, 0);
    }

    /// Returns the departure time of the next packet; `None` without a rate.
    pub fn due(&self) -> Option<Instant> {
        self.nth(0)
    }

    /// Returns the departure time of the `n`th packet from now.
    pub fn nth(&self, n: u64) -> Option<Instant> {
        let rate = u128::from(self.rate?.as_bits());
        let number = u128::from(self.number) + u128::from(n);
        // A packet that `before` does not count yet at t leaves at t or later.
        let nanos = number.saturating_mul(u128::from(self.packet_bits) * BIT_NANOS) / rate;
        Some(self.anchor + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns the number of future packets that leave before an instant.
    pub fn before(&self, at: Instant) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let elapsed = u128::from(at.since(self.anchor).as_nanos());
        // The number of k with floor(k * bits * 10^9 / rate) < elapsed.
        let unit = u128::from(self.packet_bits) * BIT_NANOS;
        let count = (elapsed * u128::from(rate.as_bits())).div_ceil(unit);
        u64::try_from(count).unwrap_or(u64::MAX).saturating_sub(self.number)
    }

    /// Counts the packet that was due as sent or given up.
    pub fn sent(&mut self) {
        self.number += 1;
    }

    /// Gives up all packets due before an instant.
    pub fn give_up(&mut self, before: Instant) {
        self.number += self.before(before);
    }
}

const NANOS: u64 = 100_000;

/// Returns the reading of a clock at `now`.
#[expect(clippy::cast_possible_truncation, reason = "modulo 2^32")]
pub(super) const fn clock(now: Instant) -> u32 {
    (now.as_nanos() / NANOS) as u32
}

/// Returns a duration in tenths of a millisecond.
pub(super) fn tenths(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() / NANOS).unwrap_or(u32::MAX)
}

/// Returns the duration of a number of tenths of a millisecond.
pub(super) fn duration(tenths: u32) -> Duration {
    Duration::from_nanos(u64::from(tenths) * NANOS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// What is counted leaves, whatever the rate was before.
        #[test]
        fn counts_and_departures_agree(
            rates in prop::collection::vec((1_000_u64..100_000_000, 0_u64..200_000_000), 1..6),
            window in 0_u64..500_000_000,
        ) {
            let mut lane = Lane::new(8_000);
            let mut now = Instant::ZERO;
            for (rate, wait) in rates {
                lane.set_rate(now, Rate::from_bits(rate));
                prop_assert!(lane.due().is_some_and(|due| due.since(now) <= Rate::from_bits(rate).unwrap().time_of(1_001)));
                now += Duration::from_nanos(wait);
                while lane.due().is_some_and(|due| due < now) {
                    lane.sent();
                }
                let to = now + Duration::from_nanos(window);
                let count = lane.before(to);
                prop_assert!(lane.nth(count).is_some_and(|at| at >= to));
                prop_assert!(count == 0 || lane.nth(count - 1).is_some_and(|at| at < to));
            }
        }
    }
}
