//! PGMCC (Rizzo, *pgmcc: a TCP-friendly single-rate multicast congestion control scheme*, 2000;
//! Internet-Draft 03, 2004): a TCP-like window, clocked by the acknowledgements of a single receiver, the
//! acker.
//!
//! | module | subject |
//! |---|---|
//! | [`PgmccSender`] | elects the acker by reports in NAKs and acknowledgements; sends by the window |
//! | [`PgmccWindow`] | window W and tokens T, updated by acknowledgements, holes and timeouts |
//! | [`PgmccReceiver`] | loss rate; sends acknowledgements while the acker, otherwise NAKs for losses |
//!
//! Baseline for comparison with LE-SBCC. Packets are PGM's (ODATA, NAK, ACK, with PGMCC's options:
//! [`headwater_wire::pgm`]) and carry zeros; there are no repairs. Departures from the draft:
//! `lab/baselines/errata.md`.
//!
//! Reports are trusted within bounds. Acknowledgements count once for each sent packet, from the acker alone.
//! An acker that claims a bad path, or keeps silent, lowers the rate to one packet in
//! [`PgmccSenderConfig::TIMEOUT_MAX`], and no further. An acker that acknowledges packets it did not receive
//! raises the rate until the NAKs of another receiver show a worse path. A report counts for its source
//! address. The sender remembers 64 packets and the acker; a receiver remembers 32 packets.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod window;

use core::net::IpAddr;

use headwater_proto::pgm::PgmSession;
use headwater_proto::time::Duration;

pub use receiver::{PgmccReceiver, PgmccReceiverCounters};
pub use sender::{PgmccSender, PgmccSenderCounters};
pub use window::PgmccWindow;

/// Another receiver becomes the acker if its throughput is below this fraction of the acker's. A higher
/// fraction would cause random switches between ackers.
const CLEARLY_LESS: f64 = 0.75;
/// Minimum nonzero loss rate of a report: the field has 16 bits.
const LOSS_MIN: f64 = 1.0 / 65_536.0;

/// Returns T, the throughput at a round-trip time in seconds and a loss rate, up to a constant factor.
pub fn throughput(rtt: f64, loss: f64) -> f64 {
    let loss = loss.max(LOSS_MIN);
    1.0 / (rtt * libm::sqrt(loss) * (1.0 + 9.0 * loss * (1.0 + 32.0 * loss * loss)))
}

/// Last report of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acker {
    /// Source address of the reports.
    pub address: IpAddr,
    /// Time from a packet to its report, in seconds.
    pub rtt: f64,
    /// Reported loss rate.
    pub loss: f64,
}

impl Acker {
    /// Whether this receiver should replace `acker`.
    pub fn is_worse_than(&self, acker: &Self) -> bool {
        throughput(self.rtt, self.loss) < CLEARLY_LESS * throughput(acker.rtt, acker.loss)
    }
}

/// Configuration of a [`PgmccSender`].
#[derive(Clone, Copy, Debug)]
pub struct PgmccSenderConfig {
    pub(super) session: PgmSession,
    pub(super) packet_bytes: u16,
    pub(super) threshold: f64,
    pub(super) timeout_margin: Duration,
    pub(super) switch_losses: bool,
}

impl PgmccSenderConfig {
    /// Maximum timeout: at least one packet departs in this time.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(8);

    /// Creates a configuration with packets of `packet_bytes` bytes of UDP payload, PGM's headers included,
    /// clamped to 128 to 8192.
    pub fn new(session: PgmSession, packet_bytes: u16) -> Self {
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
}

/// Configuration of a [`PgmccReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct PgmccReceiverConfig {
    pub(super) destination_port: u16,
    pub(super) group: IpAddr,
    pub(super) address: IpAddr,
    pub(super) back_off: Duration,
    pub(super) loss_weight: f64,
}

impl PgmccReceiverConfig {
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
