//! How late the wire hands packets on.

use serde::Serialize;

/// A wire whose 99th percentile is later than this has measured the machine, and the run does not count.
pub const LATENESS_MAX: u64 = 1_000_000;
/// Counted by 10 us, up to 100 ms.
const BUCKET_NANOS: u64 = 10_000;
const BUCKETS: usize = 10_000;

/// A histogram of lateness in nanoseconds.
#[derive(Clone, Debug)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

/// What it comes to, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatenessReport {
    /// Packets handed on.
    pub packets: u64,
    /// Half of them were later than this.
    pub p50_ms: f64,
    /// One in a hundred was.
    pub p99_ms: f64,
    /// The latest.
    pub most_ms: f64,
    /// Whether [`LATENESS_MAX`] was kept.
    pub is_valid: bool,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, most: 0 }
    }
}

impl Lateness {
    pub(crate) fn count(&mut self, nanos: u64) {
        let bucket = usize::try_from(nanos / BUCKET_NANOS).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.total += 1;
        self.most = self.most.max(nanos);
    }

    /// Nanoseconds within which so many of a thousand were, to the next 10 us.
    pub fn within(&self, thousandths: u64) -> u64 {
        let wanted = (self.total * thousandths).div_ceil(1_000);
        let mut sum = 0;
        let bucket = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        if self.total == 0 { 0 } else { (bucket.unwrap_or(BUCKETS) as u64 + 1) * BUCKET_NANOS }
    }

    /// What it came to.
    pub fn report(&self) -> LatenessReport {
        let milliseconds = |nanos: u64| nanos as f64 / 1e6;
        let p99 = self.within(990);
        LatenessReport {
            packets: self.total,
            p50_ms: milliseconds(self.within(500)),
            p99_ms: milliseconds(p99),
            most_ms: milliseconds(self.most),
            is_valid: p99 <= LATENESS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_rounded_up() {
        let mut lateness = Lateness::default();
        assert!(lateness.report().is_valid, "nothing was late");
        for _ in 0..99 {
            lateness.count(55_000);
        }
        lateness.count(3_000_000);
        let report = lateness.report();
        assert_eq!((report.p50_ms, report.p99_ms, report.most_ms), (0.06, 0.06, 3.0));
        assert!(report.is_valid);
        lateness.count(3_000_000);
        assert!(!lateness.report().is_valid, "2 of 101 were later");
    }
}
