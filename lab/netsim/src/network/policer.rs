//! Token-bucket policer: traffic beyond a rate and a burst is dropped on arrival, without a queue.

use headwater_proto::queue::{DropReason, Limit, Occupancy, Offered, Verdict};
use headwater_proto::{Instant, Rate};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Parameters of a policer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicerConfig {
    /// Rate at which the bucket is filled, on the wire.
    pub rate: Rate,
    /// Capacity of the bucket in bytes on the wire. The bucket is full at the start.
    pub burst_bytes: u64,
    /// Room of the link's queue behind the policer.
    pub limit: Limit,
}

/// A token bucket. A packet passes if the bucket holds as many tokens as the packet has bytes; otherwise the
/// packet is dropped and takes no tokens.
#[derive(Clone, Debug)]
pub struct Policer {
    config: PolicerConfig,
    /// Tokens in bits, times [`NANOS_PER_SECOND`], so that no arrival rounds.
    tokens: u128,
    filled: Instant,
}

impl Policer {
    /// Creates a policer with a full bucket.
    pub fn new(config: PolicerConfig) -> Self {
        Self { config, tokens: scaled(config.burst_bytes), filled: Instant::ZERO }
    }

    /// Decides on the packet `offered` at `now`.
    pub fn admit(&mut self, now: Instant, occupancy: Occupancy, offered: Offered) -> Verdict {
        let fill = u128::from(now.since(self.filled).as_nanos()) * u128::from(self.config.rate.as_bits());
        self.tokens = (self.tokens + fill).min(scaled(self.config.burst_bytes));
        self.filled = now;
        let price = scaled(offered.bytes.into());
        if self.tokens < price || self.config.limit.refuses(occupancy, offered) {
            return Verdict::Drop(DropReason::Full);
        }
        self.tokens -= price;
        Verdict::Enqueue
    }
}

fn scaled(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * NANOS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use headwater_proto::Ecn;

    use super::*;

    const IDLE: Occupancy = Occupancy { packets: 0, bytes: 0, idle_since: Some(Instant::ZERO) };

    fn policer(kilobits: u64, burst_bytes: u64) -> Policer {
        let rate = Rate::from_kilobits(kilobits);
        Policer::new(PolicerConfig { rate, burst_bytes, limit: Limit::Packets(50) })
    }

    fn passes(policer: &mut Policer, nanos: u64, bytes: u32) -> bool {
        let offered = Offered { bytes, ecn: Ecn::Capable0, group: None };
        policer.admit(Instant::from_nanos(nanos), IDLE, offered) == Verdict::Enqueue
    }

    /// An overloaded policer passes the burst and rate times time, to the byte, whatever the spacing of
    /// arrivals.
    #[test]
    fn an_overloaded_policer_passes_rate_times_time_plus_burst() {
        // 8 Mbit/s are a byte in a microsecond: packets of 100 bytes less than 90 us apart empty the bucket
        // of 10 000 bytes within a second.
        for gap_nanos in [333, 7_919, 71_993, 89_983] {
            let mut policer = policer(8_000, 10_000);
            let arrivals = 3_000_000_000 / gap_nanos;
            let passed = (0..=arrivals).filter(|k| passes(&mut policer, k * gap_nanos, 100)).count() as u64;
            let tokens = 10_000 + arrivals * gap_nanos / 1_000;
            assert_eq!(passed, tokens / 100, "arrivals {gap_nanos} ns apart");
        }
    }

    #[test]
    fn a_packet_larger_than_the_tokens_is_dropped_and_takes_none() {
        let mut policer = policer(8_000, 1_500);
        assert!(passes(&mut policer, 0, 1_000));
        assert!(!passes(&mut policer, 499_999, 1_000));
        assert!(passes(&mut policer, 500_000, 1_000));
        assert!(!passes(&mut policer, 500_000, 1));
        // An hour fills no more than the burst.
        assert!(passes(&mut policer, 3_600_000_000_000, 1_500));
        assert!(!passes(&mut policer, 3_600_000_000_000, 1));
    }

    #[test]
    fn a_full_queue_behind_the_policer_takes_no_tokens() {
        let mut policer = policer(8_000, 1_500);
        let full = Occupancy { packets: 50, bytes: 0, idle_since: None };
        let offered = Offered { bytes: 1_500, ecn: Ecn::NotCapable, group: None };
        assert_eq!(policer.admit(Instant::ZERO, full, offered), Verdict::Drop(DropReason::Full));
        assert!(passes(&mut policer, 0, 1_500));
    }
}
