//! Packet rate over a short window.

use crate::time::{Duration, Instant};

const BUCKETS: usize = 10;
const BUCKET: Duration = Duration::from_millis(50);

/// Packets per second over the last half second: WEBRC's epoch.
#[derive(Clone, Copy, Debug)]
pub struct RateMeter {
    buckets: [u32; BUCKETS],
    /// Bucket being filled, counted from the driver's zero.
    current: u64,
    start: Instant,
}

impl RateMeter {
    /// Creates a meter without packets.
    pub fn new(start: Instant) -> Self {
        Self { buckets: [0; BUCKETS], current: bucket(start), start }
    }

    /// Counts received packets.
    pub fn record(&mut self, now: Instant, packets: u32) {
        self.turn(now);
        let slot = index(self.current);
        self.buckets[slot] = self.buckets[slot].saturating_add(packets);
    }

    /// Returns packets per second; within the first window, over the time since the start.
    pub fn rate(&mut self, now: Instant) -> f64 {
        self.turn(now);
        let packets: u64 = self.buckets.iter().copied().map(u64::from).sum();
        let since =
            Instant::from_nanos((self.current + 1).saturating_sub(BUCKETS as u64) * BUCKET.as_nanos());
        let seconds = now.since(since.max(self.start)).as_secs_f64().max(BUCKET.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "half a second of packets")]
        let rate = packets as f64 / seconds;
        rate
    }

    fn turn(&mut self, now: Instant) {
        let target = bucket(now);
        let steps = target.saturating_sub(self.current).min(BUCKETS as u64);
        for step in 1..=steps {
            self.buckets[index(self.current + step)] = 0;
        }
        if steps == BUCKETS as u64 {
            self.buckets = [0; BUCKETS];
        }
        self.current = self.current.max(target);
    }
}

fn bucket(at: Instant) -> u64 {
    at.as_nanos() / BUCKET.as_nanos()
}

fn index(bucket: u64) -> usize {
    usize::try_from(bucket % BUCKETS as u64).expect("below ten")
}

/// Counts of received and lost packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) came: u64,
    pub(crate) lost: u64,
}

impl Tally {
    /// Records a packet that revealed `lost` losses.
    pub(crate) fn add(&mut self, lost: u64) {
        self.came += 1;
        self.lost += lost;
    }

    /// Returns the share of packets that arrived since `before`.
    pub(crate) fn part_since(self, before: Self) -> f64 {
        let (came, lost) = (self.came - before.came, self.lost - before.lost);
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 packets")]
        let (came, lost) = (came as f64, lost as f64);
        if came > 0.0 { came / (came + lost) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_steady_stream_has_its_rate() {
        let mut meter = RateMeter::new(at(3));
        for ms in (3..10_000).step_by(4) {
            meter.record(at(ms), 1);
            let rate = meter.rate(at(ms));
            assert!(ms < 600 || (240.0..=260.0).contains(&rate), "{rate} at {ms} ms");
        }
        assert_eq!(meter.rate(at(20_000)), 0.0, "silence is heard");
    }
}
