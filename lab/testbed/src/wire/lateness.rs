//! Lateness of the wire's forwarding.

use serde::Serialize;

/// Maximum valid 99th percentile in nanoseconds. A later wire has measured the machine, and the run does not
/// count.
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

/// Summary of lateness, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatenessReport {
    /// Packets handed on.
    pub packets: u64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
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

    /// Lateness in nanoseconds not exceeded by `thousandths` of a thousand packets, rounded up to 10 us.
    pub fn within(&self, thousandths: u64) -> u64 {
        let wanted = (self.total * thousandths).div_ceil(1_000);
        let mut sum = 0;
        let bucket = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        if self.total == 0 { 0 } else { (bucket.unwrap_or(BUCKETS) as u64 + 1) * BUCKET_NANOS }
    }

    /// Summarises the histogram.
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
