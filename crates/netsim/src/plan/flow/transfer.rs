//! A file by whatever program moves it: on a testbed only, where there are such programs.

use headwater_proto::{Rate, Size};

use super::FlowKind;
use crate::plan::section::Section;

pub(super) const KEYS: &[&str] = &["by", "size", "max-rate"];

/// Who may move a file: controls of `headwater send`, other tools, and TCP to each receiver by itself.
const MOVERS: &[&str] = &[
    "m2c",
    "webrc",
    "flid-dl",
    "le-sbcc",
    "le-sbcc-tfrc",
    "rainbow",
    "sim",
    "fixed",
    "uftp",
    "udpcast",
    "norm",
    "tcp",
];

/// A file that a program of the machine moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which: a control of `headwater send`, or a tool.
    pub by: &'static str,
    /// Bytes of content.
    pub size: u64,
    /// Most that is sent, bit/s of UDP payload; of those that find no rate, the rate.
    pub max_rate: Rate,
}

pub(super) fn read(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    flow.need::<String>("by")?;
    let by = flow.word("by", MOVERS)?;
    let size: Option<Size> = flow.need("size");
    let max_rate = flow.need("max-rate");
    let Size(size) = size?;
    if size == 0 || size > super::session::SIZE_MAX {
        flow.problem_at("size", format!("content has 1 to {} bytes", super::session::SIZE_MAX));
        return None;
    }
    Some(FlowKind::Transfer(Transfer { by, size, max_rate: max_rate? }))
}
