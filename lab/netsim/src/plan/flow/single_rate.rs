//! LE-SBCC over PGM: a source that derives its rate from its receivers' NAKs. With a single receiver the flow
//! is unicast.
//!
//! TFMCC and PGMCC, which LE-SBCC is compared with: packets of zeros without end.

use headwater_proto::controls::Control;
use headwater_proto::le_sbcc::{Epoch, Estimator, LeSbccConfig, Module, Samples, Stages};
use headwater_proto::pgm::{Mode, SourceConfig};
use headwater_proto::{Duration, Rate, controls};

use super::FlowKind;
use super::udp::HEADER_BYTES_DEFAULT;
use crate::plan::section::Section;

/// Entry of the table of controls that plans name.
pub(super) const CONTROL: Control = controls::LE_SBCC;

pub(super) const KEYS: &[&str] = &[
    "module",
    "li2le",
    "max-lprf",
    "atf",
    "epoch",
    "srtt-gain",
    "samples",
    "estimator",
    "rtt-max",
    "initial-rtt",
    "initial-rate",
    "doubling",
    "min-rate",
    "max-rate",
    "mode",
    "payload-bytes",
    "header-bytes",
    "window",
    "back-off",
    "repairs",
    "packets",
    super::AGGREGATE,
];

/// PGM's header and that of data.
const DATA_HEADER_BYTES: u16 = 24;
/// Packets that a receiver keeps if repairs are off.
const WINDOW_WITHOUT_REPAIRS: u32 = 64;

/// A PGM flow under LE-SBCC with endless messages of a packet each.
#[derive(Clone, Debug, PartialEq)]
pub struct LeSbcc {
    /// The chain.
    pub chain: LeSbccConfig,
    /// Whether there are path messages.
    pub mode: Mode,
    /// The application's bytes in a packet.
    pub payload_bytes: u16,
    /// IP and UDP headers of a packet in bytes.
    pub header_bytes: u32,
    /// Packets that both ends keep.
    pub window_packets: u32,
    /// Maximum wait before a NAK.
    pub back_off: Duration,
    /// Whether the source retransmits requested packets.
    pub repairs: bool,
    /// Number of packets, repairs included, after which the source stops.
    pub packets: Option<u64>,
}

impl LeSbcc {
    /// Packets that a receiver keeps.
    pub fn receiver_window(&self) -> u32 {
        if self.repairs { self.window_packets } else { self.window_packets.min(WINDOW_WITHOUT_REPAIRS) }
    }

    /// Bytes that the windows of the source and of `receivers` may take.
    pub fn window_bytes(&self, receivers: u64) -> u64 {
        let slots = |packets: u32| u64::from(packets.next_power_of_two());
        let slots = slots(self.receiver_window()).saturating_mul(receivers) + slots(self.window_packets);
        slots.saturating_mul(u64::from(self.payload_bytes))
    }
}

impl LeSbcc {
    /// Entry of the table of controls that has the chain's module.
    pub fn control(&self) -> Control {
        match self.chain.module() {
            Module::Aimd => CONTROL,
            Module::Tfrc => controls::LE_SBCC_TFRC,
            Module::Sqrt => controls::LE_SBCC_SQRT,
            Module::Iiad => controls::LE_SBCC_IIAD,
        }
    }
}

pub(super) fn read(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let payload_bytes = flow.within_or("payload-bytes", &(1..=8_192), 1_400)?;
    let payload_bytes = u16::try_from(payload_bytes).ok()?;
    let header_bytes = flow.within_or("header-bytes", &(0..=500), HEADER_BYTES_DEFAULT.into())?;
    let window = flow.within_or("window", &(16..=SourceConfig::WINDOW_PACKETS_MAX.into()), 4_096)?;
    let packets = match flow.node("packets") {
        None => None,
        Some(_) => Some(flow.within("packets", &(1..=u64::from(u32::MAX)))?),
    };
    let mode = match flow.word_or("mode", &["pgm", "lean"])? {
        "lean" => Mode::Lean,
        _ => Mode::Pgm,
    };
    let (back_off, repairs) = (flow.or("back-off", Duration::from_millis(50)), flow.or("repairs", true));
    Some(FlowKind::LeSbcc(LeSbcc {
        chain: chain(flow, payload_bytes)?,
        mode,
        payload_bytes,
        header_bytes: u32::try_from(header_bytes).ok()?,
        window_packets: u32::try_from(window).ok()?,
        back_off,
        repairs,
        packets,
    }))
}

fn chain(flow: &Section<'_>, payload_bytes: u16) -> Option<LeSbccConfig> {
    // The source paces UDP payload.
    let config = LeSbccConfig::new(payload_bytes + DATA_HEADER_BYTES);
    let stages = Stages {
        li2le: flow.or("li2le", true),
        max_lprf: flow.or("max-lprf", true),
        atf: flow.or("atf", true),
    };
    let module = match flow.word_or("module", &["aimd", "tfrc", "sqrt", "iiad"])? {
        "tfrc" => Module::Tfrc,
        "sqrt" => Module::Sqrt,
        "iiad" => Module::Iiad,
        _ => Module::Aimd,
    };
    let epoch = match flow.word_or("epoch", &["code", "text"])? {
        "text" => Epoch::Text,
        _ => Epoch::Code,
    };
    let samples = match flow.word_or("samples", &["noticed", "sent"])? {
        "sent" => Samples::Sent,
        _ => Samples::Noticed,
    };
    let estimator = match flow.word_or("estimator", &["published", "sawtooth"])? {
        "sawtooth" => Estimator::Sawtooth,
        _ => Estimator::Published,
    };
    let gain = flow.or("srtt-gain", 0.125);
    if !(0.001..=1.0).contains(&gain) {
        flow.problem_at("srtt-gain", "'srtt-gain' must be from 0.001 to 1");
    }
    let rtt = flow.or("initial-rtt", Duration::from_millis(200));
    if rtt < Duration::from_millis(1) {
        flow.problem_at("initial-rtt", "'initial-rtt' must be at least 1ms");
    }
    let rtt_max = flow.or("rtt-max", Duration::from_secs(2));
    if rtt_max < rtt {
        flow.problem_at("rtt-max", "'rtt-max' is below 'initial-rtt'");
    }
    let (least, most): (Option<Rate>, Option<Rate>) = (flow.get("min-rate"), flow.get("max-rate"));
    if least.zip(most).is_some_and(|(least, most)| least > most) {
        flow.problem_at("min-rate", "'min-rate' is above 'max-rate'");
    }
    let config = config.with_stages(stages).with_module(module).with_epoch(epoch);
    let config = config.with_samples(samples).with_rtt_max(rtt_max).with_estimator(estimator);
    // As on sockets.
    let config = config.with_assumed_rtt(estimator == Estimator::Sawtooth);
    let config = config.with_srtt_gain(gain).with_rtt(rtt).with_doubling_at_start(flow.or("doubling", false));
    let config = flow.get("initial-rate").map_or(config, |rate| config.with_initial_rate(rate));
    let config = least.map_or(config, |rate| config.with_min_rate(rate));
    Some(most.map_or(config, |rate| config.with_max_rate(rate)))
}

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
    read_baseline(flow, BaselineControl::Tfmcc { rtt, max_rate: flow.get("max-rate") })
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
    read_baseline(flow, BaselineControl::Pgmcc { back_off, threshold, loss_weight, switch_losses })
}

fn read_baseline(flow: &Section<'_>, control: BaselineControl) -> Option<FlowKind> {
    let packet_bytes = flow.within_or("packet-bytes", &(128..=8_192), 1_424)?;
    let header_bytes = flow.within_or("header-bytes", &(0..=500), HEADER_BYTES_DEFAULT.into())?;
    Some(FlowKind::Baseline(Baseline {
        packet_bytes: u16::try_from(packet_bytes).ok()?,
        header_bytes: u32::try_from(header_bytes).ok()?,
        control,
    }))
}
