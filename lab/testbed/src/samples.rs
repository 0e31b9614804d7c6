//! Counters over time, as reported by programs.

use std::time::Duration;

/// Values of a counter at some times since the start of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(Vec<(Duration, u64)>);

impl Samples {
    /// Adds a reading. A reading older than the last is moved to the last reading's time.
    pub fn push(&mut self, at: Duration, value: u64) {
        let at = self.0.last().map_or(at, |(last, _)| at.max(*last));
        self.0.push((at, value));
    }

    /// The value at a time, between readings by the straight line, 0 before the first.
    pub fn at(&self, time: Duration) -> f64 {
        let next = self.0.partition_point(|(at, _)| *at <= time);
        let Some((before, low)) = next.checked_sub(1).map(|index| self.0[index]) else { return 0.0 };
        let Some((after, high)) = self.0.get(next).copied() else { return low as f64 };
        let part = (time - before).as_secs_f64() / (after - before).as_secs_f64();
        low as f64 + part * (high.saturating_sub(low)) as f64
    }

    /// Increase per second between two times, times eight: bit/s of a counter of bytes.
    pub fn bits_per_second(&self, from: Duration, to: Duration) -> f64 {
        let seconds = to.saturating_sub(from).as_secs_f64();
        if seconds > 0.0 { 8.0 * (self.at(to) - self.at(from)) / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_time_asked_for() {
        let mut samples = Samples::default();
        let at = Duration::from_secs;
        for (second, bytes) in [(1, 0), (2, 1_000), (4, 5_000)] {
            samples.push(at(second), bytes);
        }
        assert_eq!(samples.at(at(0)), 0.0);
        assert_eq!(samples.at(at(3)), 3_000.0);
        // Nothing came after the last reading.
        assert_eq!(samples.bits_per_second(at(2), at(6)), 8_000.0);
        assert_eq!(samples.bits_per_second(at(3), at(3)), 0.0);
        // A reading out of order does not turn time back.
        samples.push(at(3), 6_000);
        assert_eq!(samples.at(at(4)), 6_000.0);
    }
}
