//! What a sender is told.

use headwater_proto::rate::Rate;
use headwater_proto::time::Duration;

/// The rate never falls below one packet in this time (RFC 4654, section 3.3: `t_mbi`).
pub const FLOOR_PERIOD: Duration = Duration::from_secs(8);

/// Configuration of a [`super::Sender`].
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    pub(super) packet_bytes: u16,
    pub(super) rtt: Duration,
    pub(super) rtt_cap: Duration,
    pub(super) max_rate: Option<Rate>,
}

impl SenderConfig {
    /// Packets of so many bytes of UDP payload, 64 to 8192.
    pub fn new(packet_bytes: u16) -> Self {
        Self {
            packet_bytes: packet_bytes.clamp(64, 8_192),
            rtt: Duration::from_millis(500),
            rtt_cap: Duration::from_secs(2),
            max_rate: None,
        }
    }

    /// `R_max` to begin with, 1 ms at least; larger than any receiver's round-trip time. Default: 500 ms, the
    /// RFC's least.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt.max(Duration::from_millis(1));
        self
    }

    /// Longest round-trip time that counts in full; what is longer counts as this. It bounds what a receiver
    /// that holds reports back does to all. 1 ms at least. Default: 2 s.
    #[must_use]
    pub fn with_rtt_cap(mut self, rtt: Duration) -> Self {
        self.rtt_cap = rtt.max(Duration::from_millis(1));
        self
    }

    /// Most that is ever sent. Default: what the receivers' reports allow.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }
}
