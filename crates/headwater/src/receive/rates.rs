//! Comparison of the rates of packets and of an HTTP server beside the packets.

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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO + headwater_proto::Duration::from_millis(milliseconds)
    }

    /// Seconds until packets suffice, of a server and of packets of so many symbols a second, from a second
    /// on. The driver takes a turn each `turn` milliseconds.
    fn seconds(turn: u64, served: u64, packets: impl Fn(u64) -> u64) -> Option<u64> {
        let mut comparison = RateComparison::new(at(0), 500, 700);
        let (mut by_packets, mut by_server) = (500, 700);
        let mut last = 0;
        for now in (0..60_000).step_by(usize::try_from(turn).unwrap()).skip(1) {
            by_packets += packets(now / 1_000) * (now - last) / 1_000;
            by_server += served * (now - last) / 1_000;
            last = now;
            if comparison.do_packets_suffice(at(now), by_packets, by_server) {
                return Some(now.div_ceil(1_000));
            }
        }
        None
    }

    #[test]
    fn a_second_with_half_of_the_servers_rate_suffices_whenever_the_driver_looks() {
        for turn in [10, 100, 400, 1_700, 5_000] {
            assert_eq!(seconds(turn, 200, |_| 0), None);
            assert_eq!(seconds(turn, 200, |_| 90), None, "less than half for ever");
            let soon = seconds(turn, 200, |_| 110).unwrap();
            assert!(soon <= 2 + turn / 500, "{soon} s with turns of {turn} ms");
        }
    }

    #[test]
    fn a_server_without_bytes_gives_way_to_any_packet_and_to_nothing_else() {
        assert_eq!(seconds(100, 0, |_| 0), None, "no path brings anything");
        assert_eq!(seconds(100, 0, |second| if second < 7 { 0 } else { 10 }), Some(7));
    }

    #[test]
    fn rates_are_those_of_the_last_second_alone() {
        // Packets that come back after 20 s do not have to make up for the time before.
        assert_eq!(seconds(100, 200, |second| if second < 20 { 0 } else { 110 }), Some(21));
    }
}
