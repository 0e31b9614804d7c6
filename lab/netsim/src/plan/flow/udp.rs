//! Traffic without congestion control: constant rate, and constant rate in bursts.

use headwater_proto::{Duration, Rate};

use super::FlowKind;
use crate::plan::section::Section;

pub(super) const CBR_KEYS: &[&str] = &["rate", "payload-bytes", "header-bytes", "noise"];
pub(super) const ON_OFF_KEYS: &[&str] = &["on", "off", "distribution", "shape"];

/// IPv4 and UDP.
pub(super) const HEADER_BYTES_DEFAULT: u32 = 28;

/// Packets at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cbr {
    /// bit/s on the wire, headers included.
    pub rate: Rate,
    /// Payload of a packet in bytes.
    pub payload_bytes: u32,
    /// Headers of a packet in bytes.
    pub header_bytes: u32,
    /// Whether each gap is stretched or shortened at random by up to half.
    pub noise: bool,
}

/// Packets at a constant rate in bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnOff {
    /// Traffic within a burst.
    pub cbr: Cbr,
    /// Mean length of a burst.
    pub on: Duration,
    /// Mean length of a pause.
    pub off: Duration,
    /// Distribution of the lengths of bursts and pauses.
    pub period: Period,
}

/// Distribution of the lengths of bursts and pauses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Period {
    /// Exponentially.
    Exponential,
    /// By Pareto's law with this shape, above 1.
    Pareto(f64),
}

pub(super) fn read_cbr(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    cbr(flow).map(FlowKind::Cbr)
}

pub(super) fn read_on_off(_plan: &Section<'_>, flow: &Section<'_>) -> Option<FlowKind> {
    let cbr = cbr(flow);
    let (on, off): (Duration, Duration) = (flow.need("on")?, flow.need("off")?);
    if on == Duration::ZERO || off == Duration::ZERO {
        flow.problem(&flow.span, "the mean lengths 'on' and 'off' must be longer than 0");
    }
    let period =
        match flow.node("distribution").and_then(|_| flow.word("distribution", &["exponential", "pareto"])) {
            Some("pareto") => {
                let shape: f64 = flow.need("shape")?;
                if shape <= 1.0 {
                    flow.problem_at("shape", "a Pareto distribution has a mean only for a shape above 1");
                }
                Period::Pareto(shape)
            }
            _ => Period::Exponential,
        };
    Some(FlowKind::OnOff(OnOff { cbr: cbr?, on, off, period }))
}

fn cbr(flow: &Section<'_>) -> Option<Cbr> {
    let bytes = |key, range, default: u32| match flow.node(key) {
        None => Some(default),
        Some(_) => flow.within(key, &range).and_then(|bytes| u32::try_from(bytes).ok()),
    };
    let rate = flow.need("rate")?;
    Some(Cbr {
        rate,
        payload_bytes: bytes("payload-bytes", 1..=65_000, 1_000)?,
        header_bytes: bytes("header-bytes", 0..=500, HEADER_BYTES_DEFAULT)?,
        noise: flow.or("noise", false),
    })
}
