//! Sessions of Headwater's own protocols, with the product's machines in the simulator.
//!
//! A file transfer by an external program, on a testbed only.

use headwater_proto::auth::{LISTED_RATE, signed_bytes};
use headwater_proto::controls::{CONTROLS, Control, Network};
use headwater_proto::{Instant, Rate, Seed, Size, controls};

use super::FlowKind;
use super::udp::HEADER_BYTES_DEFAULT;
use crate::plan::control::{GROUPS_MAX, LIMITS, Limits, Parameters, PlanControl, SHAPES, SimParameters};
use crate::plan::section::Section;

/// Keys of files, of both kinds of sessions.
pub(super) const FILE_KEYS: &[&str] =
    &["size", "fec", "symbol-bytes", "header-bytes", "decode", "content", "passes", "signing"];
/// Additional keys of `fixed`.
pub(super) const FIXED_KEYS: &[&str] = &["rate"];
/// Additional keys of `session`, without the keys of the congestion controls.
pub(super) const KEYS: &[&str] = &["control", "max-rate", "reports"];

/// Maximum content. Content other than zeros is held in memory, once at the sender and once at each receiver.
pub(super) const SIZE_MAX: u64 = 1 << 30;
/// Bytes of a packet's ALC header, with short congestion control information, 16-bit identifiers and a FEC
/// payload ID.
const ALC_HEADER_BYTES: u16 = 16;
/// Bytes of congestion control information within `ALC_HEADER_BYTES`.
const CCI_BYTES: u16 = 4;
/// Keys that only a session with content may have.
const CONTENT_KEYS: [&str; 5] = ["fec", "decode", "content", "passes", "signing"];
/// Symbols of packets without and with authentication, the longest that fit an MTU of 1500 bytes as
/// multiples of 64.
const SYMBOL_BYTES: [u64; 2] = [1_408, 1_344];

/// A session: a congestion control, with or without content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session {
    /// The congestion control.
    pub control: &'static PlanControl,
    /// Parameters of the layers.
    pub parameters: Parameters,
    /// File that the session delivers; without a file, packets carry congestion control information only.
    pub file: Option<File>,
    /// Bytes of content in a packet.
    pub symbol_bytes: u16,
    /// IP and UDP headers of a packet in bytes.
    pub header_bytes: u32,
    /// Whether the packets of the file are signed or listed, and verified.
    pub is_signed: bool,
    /// Reports of receivers: with them, the sender sends the levels held and keeps a roster. `None` for the
    /// ends of papers, which know the layers and send no reports.
    pub reports: Option<bool>,
}

/// A file that a session delivers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct File {
    /// Bytes of content.
    pub size: u64,
    /// The erasure code.
    pub code: Code,
    /// Content of the file.
    pub content: Content,
    /// Whether receivers decode and hold the content. Otherwise each symbol is compared with the original on
    /// arrival, and a block counts as complete with as many symbols as the block has source symbols.
    /// Thousands of receivers then need little memory.
    pub decodes: bool,
    /// Number of passes after which the sender stops; unlimited if absent.
    pub passes: Option<u64>,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Random bytes made from the seed, held in memory.
    Random,
    /// Zeros. The codes are linear, so repair symbols are zeros too, and neither content nor encoding is
    /// needed.
    Zeros,
}

/// An erasure code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// No code: symbols in turns.
    None,
    /// Reed-Solomon.
    ReedSolomon,
    /// RaptorQ.
    RaptorQ,
    /// LDPC-Staircase.
    LdpcStaircase,
    /// LDPC-Triangle.
    LdpcTriangle,
}

impl Code {
    /// Name in plans.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, code)| *code == self).map_or("raptorq", |(name, _)| name)
    }

    /// All codes, each with its name in plans.
    const ALL: [(&str, Self); 5] = [
        ("raptorq", Self::RaptorQ),
        ("rs", Self::ReedSolomon),
        ("ldpc-staircase", Self::LdpcStaircase),
        ("ldpc-triangle", Self::LdpcTriangle),
        ("none", Self::None),
    ];
}

pub(super) fn read_fixed(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let rate = flow.need("rate");
    flow.need::<Size>("size")?;
    let packet = packet(flow)?;
    let file = file(flow)?;
    let control = PlanControl::of(controls::FIXED.name)?;
    let parameters = parameters(flow, packet, rate?, control);
    Some(FlowKind::Session(Session { file, ..packet_of(packet, control, parameters) }))
}

pub(super) fn read(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    flow.need::<String>("control")?;
    let control = PlanControl::of(flow.word("control", &PlanControl::names())?)?;
    let max_rate: Option<Rate> = flow.need("max-rate");
    let packet = packet(flow)?;
    let file = file(flow)?;
    let known = [&control.keys(), control.limits].concat();
    for key in [PlanControl::all_keys(), LIMITS.to_vec()].concat().iter().filter(|key| !known.contains(key)) {
        if flow.node(key).is_some() {
            flow.problem_at(key, format!("'{key}' means nothing to {}", control.name));
        }
    }
    let reports = flow.node("reports").and_then(|_| flow.get("reports"));
    if reports.is_some() && (file.is_none() || !control.is_described()) {
        flow.problem_at("reports", "'reports' is for sessions of m2c and webrc that carry a file");
    }
    let parameters = parameters(flow, packet, max_rate?, control);
    // Only the control itself can check the parameters together.
    let ends = control
        .sender(&parameters, Instant::ZERO)
        .map(drop)
        .and_then(|()| control.receiver(&parameters, &Limits::default(), Seed(0)).map(drop));
    if let Err(reason) = ends {
        flow.problem(&flow.span, format!("{} cannot have these layers: {reason}", control.name));
        return None;
    }
    Some(FlowKind::Session(Session { file, reports, ..packet_of(packet, control, parameters) }))
}

/// Sizes of a session's packets.
#[derive(Clone, Copy)]
struct Packet {
    symbol_bytes: u16,
    header_bytes: u32,
    is_signed: bool,
}

fn packet_of(packet: Packet, control: &'static PlanControl, parameters: Parameters) -> Session {
    let Packet { symbol_bytes, header_bytes, is_signed } = packet;
    Session { control, parameters, file: None, symbol_bytes, header_bytes, is_signed, reports: None }
}

fn packet(flow: &Section<'_>) -> Option<Packet> {
    let is_signed = flow.or("signing", false);
    let symbol_default = SYMBOL_BYTES[usize::from(is_signed)];
    let symbol_bytes = flow.within_or("symbol-bytes", &(64..=8_880), symbol_default)?;
    let header_bytes = flow.within_or("header-bytes", &(0..=500), HEADER_BYTES_DEFAULT.into())?;
    Some(Packet {
        symbol_bytes: u16::try_from(symbol_bytes).ok()?,
        header_bytes: u32::try_from(header_bytes).ok()?,
        is_signed,
    })
}

/// Reads the file, if present; `None` after a reported problem.
fn file(flow: &Section<'_>) -> Option<Option<File>> {
    if flow.node("size").is_none() {
        for key in CONTENT_KEYS {
            if flow.node(key).is_some() {
                flow.problem_at(key, format!("'{key}' is for sessions that carry a file: give it a 'size'"));
            }
        }
        return Some(None);
    }
    let Size(size) = flow.get("size")?;
    if size == 0 || size > SIZE_MAX {
        flow.problem_at("size", format!("content has 1 to {SIZE_MAX} bytes"));
    }
    let named = flow.node("fec").and_then(|_| flow.word("fec", &Code::ALL.map(|(name, _)| name)));
    let code =
        Code::ALL.iter().find(|(name, _)| named == Some(*name)).map_or(Code::RaptorQ, |(_, code)| *code);
    let content = match flow.node("content").and_then(|_| flow.word("content", &["random", "zeros"])) {
        Some("zeros") => Content::Zeros,
        _ => Content::Random,
    };
    let passes = match flow.node("passes") {
        None => None,
        Some(_) => Some(flow.within("passes", &(1..=u64::from(u32::MAX)))?),
    };
    Some(Some(File { size, code, content, decodes: flow.or("decode", false), passes }))
}

fn parameters(flow: &Section<'_>, packet: Packet, max_rate: Rate, control: &PlanControl) -> Parameters {
    let keys = control.keys();
    let has = |key: &'static str| keys.contains(&key) && flow.node(key).is_some();
    let within = |key, most| {
        let count = has(key).then(|| flow.within(key, &(1..=most))).flatten();
        count.and_then(|count| u16::try_from(count).ok())
    };
    let count = |key| within(key, u16::MAX.into());
    // Channels of M2C and WEBRC, whose number of groups has no closer bound.
    let is_fitted = keys.contains(&"silence");
    let is_mostly_listed = control.is_layered && max_rate >= LISTED_RATE;
    let signed = if packet.is_signed && !is_mostly_listed { signed_bytes(false) } else { 0 };
    let signed = u16::try_from(signed).unwrap_or(u16::MAX);
    let shape = has("shape").then(|| flow.word("shape", &SHAPES.map(|(word, _)| word))).flatten();
    Parameters {
        packet_bytes: packet.symbol_bytes + ALC_HEADER_BYTES - CCI_BYTES + control.cci_bytes + signed,
        max_rate,
        base_rate: has("base-rate").then(|| flow.get("base-rate")).flatten(),
        ratio: has("ratio").then(|| flow.get("ratio")).flatten(),
        slot: has("slot").then(|| flow.get("slot")).flatten(),
        channels_per_slot: count("channels-per-slot"),
        quiescent_slots: count("quiescent-slots"),
        shape: SHAPES.iter().find(|(word, _)| shape == Some(*word)).map(|(_, shape)| *shape),
        groups: if is_fitted { within("groups", u64::from(GROUPS_MAX)) } else { None },
        silence: has("silence").then(|| flow.get("silence")).flatten(),
        constant_rate: has("constant-rate") && flow.or("constant-rate", false),
        stamped: has("stamped") && flow.or("stamped", false),
        staggered: has("staggered").then(|| flow.get("staggered")).flatten(),
        leave_latency: has("leave-latency").then(|| flow.get("leave-latency")).flatten(),
        deaf_slots: count("deaf-slots"),
        sim: match control.has_reports {
            true => sim(flow, count),
            false if is_fitted => SimParameters::default(),
            false => SimParameters { groups: groups(flow, &count), ..SimParameters::default() },
        },
    }
}

/// Number of groups, at most 8.
fn groups(flow: &Section<'_>, count: &impl Fn(&'static str) -> Option<u16>) -> Option<u16> {
    let groups = count("groups");
    if groups.is_some_and(|groups| groups > 8) {
        flow.problem_at("groups", "a session has at most 8 groups, by the last 3 bits of their addresses");
    }
    groups
}

fn sim(flow: &Section<'_>, count: impl Fn(&'static str) -> Option<u16>) -> SimParameters {
    let decrease: Option<f64> = flow.get("decrease");
    if decrease.is_some_and(|factor| !(0.5..=0.99).contains(&factor)) {
        flow.problem_at("decrease", "'decrease' is what is left of a rate, from 0.5 to 0.99");
    }
    SimParameters {
        groups: groups(flow, &count),
        decrease,
        step: flow.get("step"),
        hold_off: flow
            .node("hold-off")
            .and_then(|_| flow.within("hold-off", &(0..=1_000)))
            .and_then(|n| u16::try_from(n).ok()),
        selection: count("selection"),
        menu: flow.get("menu"),
        initial_rtt: flow.get("initial-rtt"),
        least_rtt: flow.get("least-rtt"),
        is_aggregated: flow.node("aggregate").is_some(),
    }
}

pub(super) const TRANSFER_KEYS: &[&str] = &["by", "size", "max-rate"];

/// Programs that may move a file: the controls of `headwater send`, TCP to each receiver by itself, other
/// tools.
pub const MOVERS: &[&str] = &movers();

/// Other tools among [`MOVERS`].
pub const TOOLS: &[&str] = &["uftp", "udpcast", "norm", "openpgm"];
const TCP: &str = "tcp";

/// Whether a mover serves each receiver by itself.
pub fn is_by_unicast(mover: &str) -> bool {
    Control::of(mover).map_or(mover == TCP, |control| control.network == Network::Requests)
}

const fn movers() -> [&'static str; CONTROLS.len() + 1 + TOOLS.len()] {
    let mut movers = [TCP; CONTROLS.len() + 1 + TOOLS.len()];
    let mut index = 0;
    while index < CONTROLS.len() {
        movers[index] = CONTROLS[index].name;
        index += 1;
    }
    let mut tool = 0;
    while tool < TOOLS.len() {
        movers[CONTROLS.len() + 1 + tool] = TOOLS[tool];
        tool += 1;
    }
    movers
}

/// A file that a program of the machine moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Program: a control of `headwater send`, or a tool.
    pub by: &'static str,
    /// Bytes of content.
    pub size: u64,
    /// Maximum rate in bit/s of UDP payload; for `fixed` and `openpgm`, the rate. TCP, udpcast and NORM
    /// ignore the value.
    pub max_rate: Rate,
}

pub(super) fn read_transfer(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    flow.need::<String>("by")?;
    let by = flow.word("by", MOVERS)?;
    let size: Option<Size> = flow.need("size");
    let max_rate = flow.need("max-rate");
    let Size(size) = size?;
    if size == 0 || size > SIZE_MAX {
        flow.problem_at("size", format!("content has 1 to {} bytes", SIZE_MAX));
        return None;
    }
    Some(FlowKind::Transfer(Transfer { by, size, max_rate: max_rate? }))
}

#[cfg(test)]
mod tests {
    use crate::plan::Plan;
    use crate::plan::flow::FlowKind;

    fn plan(flow: &str) -> Result<Plan, crate::plan::PlanError> {
        let text = format!(
            "name = \"x\"\nduration = \"1s\"\n\
             topology = {{ kind = \"dumbbell\", bottleneck = {{ rate = \"1M\", delay = \"1ms\" }}, access = {{ rate = \"1M\", delay = \"1ms\" }} }}\n\
             flow.main = {{ kind = \"transfer\", from = \"source-1\", receivers = [\"sink-1\"], {flow} }}\n"
        );
        Plan::parse("x.toml", &text)
    }

    #[test]
    fn a_transfer_is_read_and_only_a_testbed_runs_it() {
        let read = plan("by = \"uftp\", size = \"2MB\", max-rate = \"4M\"").unwrap();
        let scenario = read.scenario(&read.cell(0), 1).unwrap();
        let FlowKind::Transfer(transfer) = scenario.flows[0].kind else { panic!("a transfer") };
        assert_eq!((transfer.by, transfer.size, transfer.max_rate.as_bits()), ("uftp", 2_000_000, 4_000_000));
        let refused = read.run(&read.cell(0), 1, &mut ()).unwrap_err().to_string();
        assert!(refused.contains("headwater-lab testbed run"), "{refused}");
    }

    #[test]
    fn what_nobody_moves_is_refused() {
        assert!(
            plan("by = \"pigeon\", size = \"2MB\", max-rate = \"4M\"")
                .unwrap_err()
                .to_string()
                .contains("pigeon")
        );
        assert!(plan("by = \"uftp\", size = \"0B\", max-rate = \"4M\"").is_err());
        assert!(plan("by = \"uftp\", size = \"2MB\"").unwrap_err().to_string().contains("max-rate"));
    }
}
