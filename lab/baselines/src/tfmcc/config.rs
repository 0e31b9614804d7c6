//! Configuration of a sender.

use headwater_proto::rate::Rate;
use headwater_proto::time::Duration;

/// Interval of packets at the minimum rate (RFC 4654, section 3.3: `t_mbi`).
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
    /// Creates a configuration with packets of `packet_bytes` bytes of UDP payload, clamped to 64 to 8192.
    pub fn new(packet_bytes: u16) -> Self {
        Self {
            packet_bytes: packet_bytes.clamp(64, 8_192),
            rtt: Duration::from_millis(500),
            rtt_cap: Duration::from_secs(2),
            max_rate: None,
        }
    }

    /// Sets the initial `R_max`, at least 1 ms; must exceed every receiver's round-trip time. Default: 500
    /// ms, the RFC's minimum.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt.max(Duration::from_millis(1));
        self
    }

    /// Sets the maximum round-trip time that counts, at least 1 ms; longer times count as this maximum. The
    /// cap bounds the effect on the group of a receiver that delays its reports. Default: 2 s.
    #[must_use]
    pub fn with_rtt_cap(mut self, rtt: Duration) -> Self {
        self.rtt_cap = rtt.max(Duration::from_millis(1));
        self
    }

    /// Sets the maximum rate. Default: limited by the receivers' reports only.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }
}
