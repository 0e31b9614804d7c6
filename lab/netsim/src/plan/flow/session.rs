//! Sessions of Headwater's own protocols, with the product's machines in the simulator.

use headwater_proto::{Instant, Rate, Seed, Size, controls};

use super::FlowKind;
use super::udp::HEADER_BYTES_DEFAULT;
use crate::plan::control::{Control, LIMITS, Limits, Parameters, SHAPES, SimParameters};
use crate::plan::section::Section;

/// Keys of files, of both kinds of sessions.
pub(super) const FILE_KEYS: &[&str] =
    &["size", "fec", "symbol-bytes", "header-bytes", "decode", "content", "passes"];
/// Additional keys of `fixed`.
pub(super) const FIXED_KEYS: &[&str] = &["rate"];
/// Additional keys of `session`, without the keys of the congestion controls.
pub(super) const KEYS: &[&str] = &["control", "max-rate"];

/// Maximum content. Content other than zeros is held in memory, once at the sender and once at each receiver.
pub(super) const SIZE_MAX: u64 = 1 << 30;
/// Bytes of a packet's ALC header, with short congestion control information, 16-bit identifiers and a FEC
/// payload ID.
const ALC_HEADER_BYTES: u16 = 16;
/// Bytes of congestion control information within `ALC_HEADER_BYTES`.
const CCI_BYTES: u16 = 4;
/// Keys that only a session with content may have.
const CONTENT_KEYS: [&str; 4] = ["fec", "decode", "content", "passes"];

/// A session: a congestion control, with or without content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session {
    /// The congestion control.
    pub control: &'static Control,
    /// Parameters of the layers.
    pub parameters: Parameters,
    /// File that the session delivers; without a file, packets carry congestion control information only.
    pub file: Option<File>,
    /// Bytes of content in a packet.
    pub symbol_bytes: u16,
    /// IP and UDP headers of a packet in bytes.
    pub header_bytes: u32,
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
    let control = Control::of(controls::FIXED.name)?;
    let parameters = parameters(flow, packet.symbol_bytes, rate?, control);
    Some(FlowKind::Session(Session { file, ..packet_of(packet, control, parameters) }))
}

pub(super) fn read(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    flow.need::<String>("control")?;
    let control = Control::of(flow.word("control", &Control::names())?)?;
    let max_rate: Option<Rate> = flow.need("max-rate");
    let packet = packet(flow)?;
    let file = file(flow)?;
    let known = [control.keys, control.limits].concat();
    for key in [Control::all_keys(), LIMITS.to_vec()].concat().iter().filter(|key| !known.contains(key)) {
        if flow.node(key).is_some() {
            flow.problem_at(key, format!("'{key}' means nothing to {}", control.name));
        }
    }
    let parameters = parameters(flow, packet.symbol_bytes, max_rate?, control);
    // Only the control itself can check the parameters together.
    let ends = control
        .sender(&parameters, Instant::ZERO)
        .map(drop)
        .and_then(|()| control.receiver(&parameters, &Limits::default(), Seed(0)).map(drop));
    if let Err(reason) = ends {
        flow.problem(&flow.span, format!("{} cannot have these layers: {reason}", control.name));
        return None;
    }
    Some(FlowKind::Session(Session { file, ..packet_of(packet, control, parameters) }))
}

/// Sizes of a session's packets.
#[derive(Clone, Copy)]
struct Packet {
    symbol_bytes: u16,
    header_bytes: u32,
}

fn packet_of(packet: Packet, control: &'static Control, parameters: Parameters) -> Session {
    let Packet { symbol_bytes, header_bytes } = packet;
    Session { control, parameters, file: None, symbol_bytes, header_bytes }
}

fn packet(flow: &Section<'_>) -> Option<Packet> {
    let symbol_bytes = flow.within_or("symbol-bytes", &(64..=8_880), 1_408)?;
    let header_bytes = flow.within_or("header-bytes", &(0..=500), HEADER_BYTES_DEFAULT.into())?;
    Some(Packet {
        symbol_bytes: u16::try_from(symbol_bytes).ok()?,
        header_bytes: u32::try_from(header_bytes).ok()?,
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

fn parameters(flow: &Section<'_>, symbol_bytes: u16, max_rate: Rate, control: &Control) -> Parameters {
    let keys = control.keys;
    let has = |key: &'static str| keys.contains(&key) && flow.node(key).is_some();
    let count = |key| {
        let count = has(key).then(|| flow.within(key, &(1..=u64::from(u16::MAX)))).flatten();
        count.and_then(|count| u16::try_from(count).ok())
    };
    let shape = has("shape").then(|| flow.word("shape", &SHAPES.map(|(word, _)| word))).flatten();
    Parameters {
        packet_bytes: symbol_bytes + ALC_HEADER_BYTES - CCI_BYTES + control.cci_bytes,
        max_rate,
        base_rate: has("base-rate").then(|| flow.get("base-rate")).flatten(),
        ratio: has("ratio").then(|| flow.get("ratio")).flatten(),
        slot: has("slot").then(|| flow.get("slot")).flatten(),
        channels_per_slot: count("channels-per-slot"),
        quiescent_slots: count("quiescent-slots"),
        shape: SHAPES.iter().find(|(word, _)| shape == Some(*word)).map(|(_, shape)| *shape),
        constant_rate: has("constant-rate") && flow.or("constant-rate", false),
        sim: match control.has_reports {
            true => sim(flow, count),
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
