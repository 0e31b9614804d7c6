//! Congestion controls that a session describes in its FDT, so that receivers need no options.
//!
//! A sender's control gives a [`fdt::Control`]; a [`Receiver`] holds the base channel until the FDT is there, then runs
//! the control that it names. In the FDT (`hw:Congestion-Control`) rates are bit/s of UDP payload:
//!
//! | parameter | what | controls |
//! |---|---|---|
//! | `packet-bytes` | UDP payload of a full packet | `m2c`, `webrc` |
//! | `base-rate`, `max-rate` | of the base channel, of all channels | |
//! | `ratio-ppm` | P, in millionths | |
//! | `slot-ns` | TSD, in nanoseconds | |
//! | `channels-per-slot`, `quiescent-slots` | K, Q | |
//! | `constant`, `staggered` | 0 or 1 | |
//!
//! All are required. Without the attribute a session has one channel at a rate of its sender's choice.

mod receiver;
#[cfg(test)]
mod tests;

use headwater_wire::fdt;

pub use self::receiver::{Receiver, ReceiverConfig};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicConfigError, Shape};
use crate::machine::DATAGRAM_BYTES_MAX;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

const M2C: &str = "m2c";
const WEBRC: &str = "webrc";
const PACKET_BYTES: &str = "packet-bytes";
const BASE_RATE: &str = "base-rate";
const MAX_RATE: &str = "max-rate";
const RATIO: &str = "ratio-ppm";
const SLOT: &str = "slot-ns";
const PER_SLOT: &str = "channels-per-slot";
const QUIESCENT: &str = "quiescent-slots";
const CONSTANT: &str = "constant";
const STAGGERED: &str = "staggered";

/// The congestion control of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Description {
    /// One channel at any rate.
    Fixed,
    /// M2C over these channels.
    M2c(DynamicConfig),
    /// WEBRC over these channels, which have its shape.
    Webrc(DynamicConfig),
}

/// Why a description cannot be followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DescriptionError {
    /// A control that this version does not know.
    #[error(
        "the session uses congestion control '{0}', which is not known here: a newer headwater may know it"
    )]
    Unknown(String),
    /// A parameter is missing, or outside its range.
    #[error("the session's congestion control lacks a sound '{0}'")]
    Parameter(&'static str),
    /// The numbers do not fit together.
    #[error("the session's congestion control does not work out: {0}")]
    Channels(#[from] DynamicConfigError),
}

impl Description {
    /// Its name, as the FDT and the command line spell it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::M2c(_) => M2C,
            Self::Webrc(_) => WEBRC,
        }
    }

    /// What the FDT tells; nothing of a fixed rate.
    pub fn to_fdt(&self) -> Option<fdt::Control> {
        match self {
            Self::Fixed => None,
            Self::M2c(config) => Some(layers_to_fdt(M2C, config)),
            Self::Webrc(config) => Some(layers_to_fdt(WEBRC, config)),
        }
    }

    /// What an FDT tells.
    ///
    /// # Errors
    /// [`DescriptionError`] when it cannot be followed.
    pub fn from_fdt(control: Option<&fdt::Control>) -> Result<Self, DescriptionError> {
        let Some(control) = control else { return Ok(Self::Fixed) };
        match control.name() {
            M2C => layers_from_fdt(control, Shape::Geometric).map(Self::M2c),
            WEBRC => layers_from_fdt(control, Shape::Webrc).map(Self::Webrc),
            other => Err(DescriptionError::Unknown(other.to_owned())),
        }
    }
}

fn layers_to_fdt(name: &str, config: &DynamicConfig) -> fdt::Control {
    let mut control = fdt::Control::new(name).expect("names of controls are words");
    let parameters = [
        (PACKET_BYTES, config.packet_bytes().into()),
        (BASE_RATE, config.base_rate().as_bits()),
        (MAX_RATE, config.max_rate().as_bits()),
        (RATIO, millionths(config.ratio())),
        (SLOT, config.slot().as_nanos()),
        (PER_SLOT, config.channels_per_slot().into()),
        (QUIESCENT, config.quiescent_slots().into()),
        (CONSTANT, config.is_constant().into()),
        (STAGGERED, config.is_staggered().into()),
    ];
    for (name, value) in parameters {
        control.put(name, value).expect("nine parameters with names of their own");
    }
    control
}

fn layers_from_fdt(control: &fdt::Control, shape: Shape) -> Result<DynamicConfig, DescriptionError> {
    let rate = |name| {
        let bits = number(control, name, 1, u64::MAX)?;
        Rate::from_bits(bits).ok_or(DescriptionError::Parameter(name))
    };
    let small = |name, least| {
        let value = number(control, name, least, u16::MAX.into())?;
        u16::try_from(value).map_err(|_| DescriptionError::Parameter(name))
    };
    let ratio = f64::from(u32::try_from(number(control, RATIO, 1, 999_999)?).unwrap_or(0)) / 1e6;
    let packet_bytes = number(control, PACKET_BYTES, 1, DATAGRAM_BYTES_MAX as u64)?;
    let packet_bytes = u16::try_from(packet_bytes).map_err(|_| DescriptionError::Parameter(PACKET_BYTES))?;
    let config = DynamicConfig::new(packet_bytes, rate(MAX_RATE)?)
        .with_shape(shape)
        .with_base_rate(rate(BASE_RATE)?)
        .with_ratio(ratio)
        .with_slot(Duration::from_nanos(number(control, SLOT, 1, u64::MAX)?))
        .with_channels_per_slot(small(PER_SLOT, 1)?)
        .with_quiescent_slots(small(QUIESCENT, 0)?)
        .with_constant_rate(number(control, CONSTANT, 0, 1)? == 1)
        .with_stagger(number(control, STAGGERED, 0, 1)? == 1);
    DynamicChannels::new(config, Instant::ZERO)?;
    Ok(config)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; a ratio is below 1"
)]
fn millionths(ratio: f64) -> u64 {
    libm::round(ratio * 1e6) as u64
}

fn number(
    control: &fdt::Control,
    name: &'static str,
    least: u64,
    most: u64,
) -> Result<u64, DescriptionError> {
    let value = control.get(name).filter(|value| (least..=most).contains(value));
    value.ok_or(DescriptionError::Parameter(name))
}
