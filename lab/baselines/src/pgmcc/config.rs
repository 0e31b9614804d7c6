//! Configurations of sender and receiver.

use core::net::IpAddr;

use headwater_proto::pgm::Session;
use headwater_proto::time::Duration;

/// Configuration of a [`super::Sender`].
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    pub(super) session: Session,
    pub(super) packet_bytes: u16,
    pub(super) threshold: f64,
    pub(super) timeout_margin: Duration,
    pub(super) switch_losses: bool,
}

impl SenderConfig {
    /// Maximum timeout: at least one packet departs in this time.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(8);

    /// Creates a configuration with packets of `packet_bytes` bytes of UDP payload, PGM's headers included,
    /// clamped to 128 to 8192.
    pub fn new(session: Session, packet_bytes: u16) -> Self {
        Self {
            session,
            packet_bytes: packet_bytes.clamp(128, 8_192),
            threshold: 4.0,
            timeout_margin: Duration::from_millis(200),
            switch_losses: true,
        }
    }

    /// Sets the window in packets below which the window grows by a packet with each acknowledgement, at
    /// least 1. Default: 4, as in the draft; the paper has 6.
    #[must_use]
    pub fn with_threshold(mut self, packets: f64) -> Self {
        self.threshold = packets.max(1.0);
        self
    }

    /// Sets whether a new acker's losses before its election halve the window. Default: yes. Otherwise, a
    /// loss that causes an election never counts.
    #[must_use]
    pub const fn with_switch_losses(mut self, count: bool) -> Self {
        self.switch_losses = count;
        self
    }

    /// Sets the minimum margin of the timeout above the mean round-trip time, at least 10 ms. Default: 200
    /// ms.
    #[must_use]
    pub fn with_timeout_margin(mut self, margin: Duration) -> Self {
        self.timeout_margin = margin.max(Duration::from_millis(10));
        self
    }
}

/// Configuration of a [`super::Receiver`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    pub(super) destination_port: u16,
    pub(super) group: IpAddr,
    pub(super) address: IpAddr,
    pub(super) back_off: Duration,
    pub(super) loss_weight: f64,
}

impl ReceiverConfig {
    /// Creates the configuration of a receiver of a PGM port and group; reports carry `address`.
    pub fn new(destination_port: u16, group: IpAddr, address: IpAddr) -> Self {
        Self {
            destination_port,
            group,
            address,
            back_off: Duration::from_millis(50),
            loss_weight: 500.0 / 65_536.0,
        }
    }

    /// Sets the weight of a packet, received or lost, in the loss rate: 10^-6 to 1. Default: 500/65536, as in
    /// the draft.
    #[must_use]
    pub const fn with_loss_weight(mut self, weight: f64) -> Self {
        self.loss_weight = weight.clamp(1e-6, 1.0);
        self
    }

    /// Sets the maximum delay of a NAK; the delay is uniformly random. Default: 50 ms.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }
}
