//! Comparison of the rates of packets and of a server that is a path of its own.

use std::time::Duration;

use headwater_proto::Instant;

/// Interval at which the rates are compared.
const COMPARISON_TIME: Duration = Duration::from_secs(1);

/// Needed symbols of packets and of the server at the last comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateComparison {
    since: Instant,
    packets: u64,
    served: u64,
}

impl RateComparison {
    /// Begins at `now` with the counters of needed symbols.
    pub(super) const fn new(now: Instant, packets: u64, served: u64) -> Self {
        Self { since: now, packets, served }
    }

    /// Whether packets have brought at least half as many needed symbols as the server since the last
    /// comparison. At most once in [`COMPARISON_TIME`].
    pub(super) fn do_packets_suffice(&mut self, now: Instant, packets: u64, served: u64) -> bool {
        if now < self.since + COMPARISON_TIME.into() {
            return false;
        }
        let before = core::mem::replace(self, Self::new(now, packets, served));
        let (by_packets, by_server) = (packets - before.packets, served - before.served);
        by_packets > 0 && 2 * by_packets >= by_server
    }
}
