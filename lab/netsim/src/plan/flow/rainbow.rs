//! Rainbow: receivers that each run a window over BCFS.

use headwater_proto::bcfs::RECENT_MAX;
use headwater_proto::rainbow::{Overtaking, WindowConfig};

use super::FlowKind;
use crate::plan::section::Section;

pub(super) const KEYS: &[&str] =
    &["packets", "packet-bytes", "header-bytes", "reordering", "threshold", "labels", "keep", super::ROUTERS];

/// Bytes of IP's header alone: with BCFS's 20 a request has 40, as an acknowledgement.
const HEADER_BYTES_DEFAULT: u64 = 20;

/// A flow of numbered packets; any `packets` of these complete a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rainbow {
    /// Number of different packets that each receiver wants; unlimited if absent.
    pub packets: Option<u64>,
    /// Payload of a reply in bytes, BCFS's header included.
    pub packet_bytes: u16,
    /// Headers of a packet in bytes.
    pub header_bytes: u32,
    /// Number of replies that each router keeps for later requests.
    pub kept: usize,
    /// The receivers' windows.
    pub window: WindowConfig,
}

pub(super) fn read(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let packets = match flow.node("packets") {
        None => None,
        Some(_) => Some(flow.within("packets", &(1..=1 << 22))?),
    };
    let packet_bytes = flow.within_or("packet-bytes", &(64..=8_192), 492)?;
    let header_bytes = flow.within_or("header-bytes", &(0..=500), HEADER_BYTES_DEFAULT)?;
    let threshold = flow.within_or("threshold", &(1..=100), 1)?;
    let kept = flow.within_or("keep", &(0..=RECENT_MAX as u64), 0)?;
    let labels = flow.within_or("labels", &(1..=WindowConfig::LABELS_MAX.into()), 256)?;
    let overtaking = match flow.word_or("reordering", &["count", "time"])? {
        "time" => Overtaking::Longest,
        _ => Overtaking::Count(u8::try_from(threshold).ok()?),
    };
    let window = WindowConfig::new().with_overtaking(overtaking).with_labels_max(u16::try_from(labels).ok()?);
    Some(FlowKind::Rainbow(Rainbow {
        packets,
        packet_bytes: u16::try_from(packet_bytes).ok()?,
        header_bytes: u32::try_from(header_bytes).ok()?,
        kept: usize::try_from(kept).ok()?,
        window,
    }))
}
