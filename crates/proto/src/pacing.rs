//! Pacing: when the next packet may leave, without losing a fraction of a nanosecond.

use crate::rate::Rate;
use crate::time::{Duration, Instant};

const BIT_NANOS_PER_SEC: u128 = 8_000_000_000;

/// A schedule of departures at a rate.
///
/// Packet k leaves when the bytes of packets 0..k have had their time. A driver that comes late catches up, but by at
/// most `burst`: time lost beyond it is given up, so that a pause is never followed by a flood.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: Rate,
    burst: Duration,
    next: Instant,
    /// What `next` leaves out, in units of 1 ns / `rate`: below `rate`.
    remainder: u64,
}

impl Pacer {
    /// A schedule whose first packet is due at `start`.
    pub fn new(rate: Rate, burst: Duration, start: Instant) -> Self {
        Self { rate, burst, next: start, remainder: 0 }
    }

    /// When the next packet is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The rate kept.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the rate at `now`: what is left of the wait for the next packet passes at the new rate, too, so that a
    /// sender that was slow is not held by its past.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        if now < self.next {
            let left = u128::from(self.next.since(now).as_nanos());
            let left = left * u128::from(self.rate.as_bits()) / u128::from(rate.as_bits());
            self.next = now + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        }
        self.rate = rate;
        self.remainder = 0;
    }

    /// Whether a packet is due at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Records that a packet of `bytes` leaves at `now` in the place that was due.
    pub fn sent(&mut self, now: Instant, bytes: usize) {
        let earliest = now - self.burst;
        if self.next < earliest {
            self.next = earliest;
            self.remainder = 0;
        }
        let rate = u128::from(self.rate.as_bits());
        let work = bytes as u128 * BIT_NANOS_PER_SEC + u128::from(self.remainder);
        self.next += Duration::from_nanos(u64::try_from(work / rate).unwrap_or(u64::MAX));
        self.remainder = u64::try_from(work % rate).expect("a remainder is below the rate, a u64");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(rate: u64) -> Pacer {
        Pacer::new(Rate::from_bits(rate).unwrap(), Duration::from_millis(10), Instant::ZERO)
    }

    #[test]
    fn no_fraction_is_lost() {
        // 3 Mbit/s and 1000-byte packets: 2.666.. ms each. 3 000 of them take 8 s to the nanosecond.
        let mut pacer = pacer(3_000_000);
        for _ in 0..3_000 {
            let now = pacer.next();
            pacer.sent(now, 1_000);
        }
        assert_eq!(pacer.next(), Instant::from_nanos(8_000_000_000));
    }

    #[test]
    fn a_late_driver_catches_up_by_no_more_than_the_burst() {
        let mut pacer = pacer(8_000_000); // 1000 bytes each ms
        let now = Instant::ZERO + Duration::from_secs(5);
        let mut sent = 0;
        while pacer.is_due(now) {
            pacer.sent(now, 1_000);
            sent += 1;
        }
        assert_eq!(sent, 11, "10 ms of burst and the packet that is due now");
    }

    #[test]
    fn a_new_rate_holds_for_the_wait_under_way() {
        let mut pacer = pacer(8_000); // 1000 bytes each second
        pacer.sent(Instant::ZERO, 1_000);
        let half = Instant::ZERO + Duration::from_millis(500);
        pacer.set_rate(half, Rate::from_bits(8_000_000).unwrap());
        assert_eq!(pacer.next(), half + Duration::from_micros(500), "half a packet at 1000 times the rate");
        pacer.set_rate(half, Rate::from_bits(8_000).unwrap());
        assert_eq!(pacer.next(), Instant::ZERO + Duration::from_secs(1));
        let late = Instant::ZERO + Duration::from_secs(3);
        pacer.set_rate(late, Rate::from_bits(8).unwrap());
        assert!(pacer.is_due(late), "what was due stays due");
    }

    #[test]
    fn a_driver_that_is_a_little_late_loses_nothing() {
        let mut pacer = pacer(8_000_000);
        for step in 0..1_000_u64 {
            let now = Instant::from_nanos(step * 3_700_000); // comes each 3.7 ms
            while pacer.is_due(now) {
                pacer.sent(now, 1_000);
            }
        }
        let elapsed_ms = 999 * 37 / 10;
        assert_eq!(pacer.next().as_nanos() / 1_000_000, elapsed_ms + 1);
    }
}
