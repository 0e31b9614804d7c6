//! What both ends are told.

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
    /// The longest timeout: at least one packet leaves in this time.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(8);

    /// Packets of so many bytes of UDP payload, PGM's headers included: 128 to 8192.
    pub fn new(session: Session, packet_bytes: u16) -> Self {
        Self {
            session,
            packet_bytes: packet_bytes.clamp(128, 8_192),
            threshold: 4.0,
            timeout_margin: Duration::from_millis(200),
            switch_losses: true,
        }
    }

    /// Window in packets below which it grows by a packet with each acknowledgement, 1 at least. Default: 4,
    /// the draft's; the paper's is 6.
    #[must_use]
    pub fn with_threshold(mut self, packets: f64) -> Self {
        self.threshold = packets.max(1.0);
        self
    }

    /// Whether what a new acker lost before it was elected halves the window. Default: yes; without, a loss
    /// that elects never counts.
    #[must_use]
    pub const fn with_switch_losses(mut self, count: bool) -> Self {
        self.switch_losses = count;
        self
    }

    /// By how much the timeout is above the mean round-trip time at least, 10 ms or more. Default: 200 ms.
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
    /// A receiver of what is sent to a PGM port of a group; its reports come from `address`.
    pub fn new(destination_port: u16, group: IpAddr, address: IpAddr) -> Self {
        Self {
            destination_port,
            group,
            address,
            back_off: Duration::from_millis(50),
            loss_weight: 500.0 / 65_536.0,
        }
    }

    /// Weight of a packet, received or lost, in the loss rate: 10^-6 to 1. Default: 500/65536, the draft's.
    #[must_use]
    pub const fn with_loss_weight(mut self, weight: f64) -> Self {
        self.loss_weight = weight.clamp(1e-6, 1.0);
        self
    }

    /// Longest wait before a NAK is sent, drawn uniformly. Default: 50 ms.
    #[must_use]
    pub fn with_back_off(mut self, back_off: Duration) -> Self {
        self.back_off = back_off;
        self
    }
}
