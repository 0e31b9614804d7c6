//! Sessions of Headwater's own protocols, whose machines run in the simulator unchanged.

use headwater_proto::{Rate, Size};

use super::FlowKind;
use super::udp::HEADER_BYTES_DEFAULT;
use crate::plan::section::Section;

pub(super) const KEYS: &[&str] = &["rate", "size", "fec", "symbol-bytes", "header-bytes", "decode", "passes"];

/// Longest content: it is held in memory, once at the sender and once at each receiver.
const SIZE_MAX: u64 = 1 << 30;

/// File delivery at a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedSession {
    /// bit/s of UDP payload.
    pub rate: Rate,
    /// Bytes of content, made up from the seed.
    pub size: u64,
    /// The erasure code.
    pub code: Code,
    /// Bytes of content in a packet.
    pub symbol_bytes: u16,
    /// IP and UDP headers of a packet in bytes.
    pub header_bytes: u32,
    /// Whether receivers decode and hold the content. Otherwise each symbol is compared with the original as it comes, as
    /// many symbols as a block has make it whole, and thousands of receivers take little memory.
    pub decodes: bool,
    /// Passes after which the sender ends; it sends on until the end of the run without this.
    pub passes: Option<u64>,
}

/// An erasure code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// None: symbols in turns.
    None,
    /// Reed-Solomon.
    ReedSolomon,
    /// RaptorQ.
    RaptorQ,
}

pub(super) fn read(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let rate = flow.need("rate");
    let Size(size) = flow.need("size")?;
    if size == 0 || size > SIZE_MAX {
        flow.problem_at("size", format!("content has 1 to {SIZE_MAX} bytes; it is held in memory"));
    }
    let code = match flow.node("fec").and_then(|_| flow.word("fec", &["raptorq", "rs", "none"])) {
        Some("rs") => Code::ReedSolomon,
        Some("none") => Code::None,
        _ => Code::RaptorQ,
    };
    let number = |key, range, default: u64| match flow.node(key) {
        None => Some(default),
        Some(_) => flow.within(key, &range),
    };
    let symbol_bytes = number("symbol-bytes", 64..=8_880, 1_408)?;
    let header_bytes = number("header-bytes", 0..=500, HEADER_BYTES_DEFAULT.into())?;
    let passes = match flow.node("passes") {
        None => None,
        Some(_) => Some(flow.within("passes", &(1..=u64::from(u32::MAX)))?),
    };
    Some(FlowKind::Fixed(FixedSession {
        rate: rate?,
        size,
        code,
        symbol_bytes: u16::try_from(symbol_bytes).ok()?,
        header_bytes: u32::try_from(header_bytes).ok()?,
        decodes: flow.or("decode", false),
        passes,
    }))
}
