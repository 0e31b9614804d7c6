//! TFMCC and PGMCC, which LE-SBCC is compared with: packets of zeros without end.

use headwater_proto::{Duration, Rate};

use super::FlowKind;
use super::udp::HEADER_BYTES_DEFAULT;
use crate::plan::section::Section;

pub(super) const TFMCC_KEYS: &[&str] = &["packet-bytes", "header-bytes", "initial-rtt", "max-rate"];
pub(super) const PGMCC_KEYS: &[&str] =
    &["packet-bytes", "header-bytes", "back-off", "threshold", "loss-weight", "switch-losses"];

/// A flow of TFMCC or PGMCC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baseline {
    /// UDP payload of a packet in bytes.
    pub packet_bytes: u16,
    /// IP and UDP headers of a packet in bytes.
    pub header_bytes: u32,
    /// Congestion control with its parameters.
    pub control: BaselineControl,
}

/// Congestion control that finds the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BaselineControl {
    /// RFC 4654.
    Tfmcc {
        /// The maximum round-trip time to begin with.
        rtt: Duration,
        /// Maximum rate, in bit/s of UDP payload.
        max_rate: Option<Rate>,
    },
    /// The Internet-Draft.
    Pgmcc {
        /// Maximum wait before a NAK.
        back_off: Duration,
        /// Slow-start threshold in packets.
        threshold: f64,
        /// Weight of a packet in a receiver's loss rate.
        loss_weight: f64,
        /// Whether losses of a new acker before the switch halve the window.
        switch_losses: bool,
    },
}

impl BaselineControl {
    /// Name in plans and results.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tfmcc { .. } => "tfmcc",
            Self::Pgmcc { .. } => "pgmcc",
        }
    }
}

pub(super) fn read_tfmcc(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let rtt = flow.or("initial-rtt", Duration::from_millis(500));
    if rtt < Duration::from_millis(1) {
        flow.problem_at("initial-rtt", "'initial-rtt' must be at least 1ms");
    }
    read(flow, BaselineControl::Tfmcc { rtt, max_rate: flow.get("max-rate") })
}

pub(super) fn read_pgmcc(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let threshold = flow.or("threshold", 4.0);
    if !(1.0..=1_000_000.0).contains(&threshold) {
        flow.problem_at("threshold", "'threshold' must be from 1 to 1000000 packets");
    }
    let back_off = flow.or("back-off", Duration::from_millis(50));
    let loss_weight = flow.or("loss-weight", 500.0 / 65_536.0);
    if !(1e-6..=1.0).contains(&loss_weight) {
        flow.problem_at("loss-weight", "'loss-weight' must be from 0.000001 to 1");
    }
    let switch_losses = flow.or("switch-losses", true);
    read(flow, BaselineControl::Pgmcc { back_off, threshold, loss_weight, switch_losses })
}

fn read(flow: &Section<'_>, control: BaselineControl) -> Option<FlowKind> {
    let packet_bytes = flow.within_or("packet-bytes", &(128..=8_192), 1_424)?;
    let header_bytes = flow.within_or("header-bytes", &(0..=500), HEADER_BYTES_DEFAULT.into())?;
    Some(FlowKind::Baseline(Baseline {
        packet_bytes: u16::try_from(packet_bytes).ok()?,
        header_bytes: u32::try_from(header_bytes).ok()?,
        control,
    }))
}
