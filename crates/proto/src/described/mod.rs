//! Congestion controls that a session describes in its FDT, so that receivers need no options.
//!
//! A sender's control gives a [`fdt::Control`]; a [`Receiver`] holds the base channel until the FDT is there,
//! then runs the control that it names. In the FDT (`hw:Congestion-Control`) rates are bit/s of UDP payload:
//!
//! | parameter | what | controls |
//! |---|---|---|
//! | `packet-bytes` | UDP payload of a full packet | `m2c`, `webrc`, `flid-dl`, `sim` |
//! | `base-rate`, `max-rate` | of the base channel, of all channels | `m2c`, `webrc`, `flid-dl` |
//! | `ratio-ppm` | what a level is to the next one, in millionths | `m2c`, `webrc`, `flid-dl` |
//! | `slot-ns` | TSD, in nanoseconds | `m2c`, `webrc`, `flid-dl` |
//! | `channels-per-slot`, `quiescent-slots` | K, Q | `m2c`, `webrc` |
//! | `constant`, `staggered` | 0 or 1 | |
//! | `leave-ns`, `deaf-slots` | leave latency; slots without a decision after a leave | `flid-dl` |
//! | `groups`, `session`, `decrease-ppm`, `selection` | n_g; what feedback calls it; what is left of a congested rate; requests in a selection interval | `sim` |
//!
//! Those of a control are all required. `sim` has no rates: they follow reports. `le-sbcc` has no parameters:
//! its sender alone knows the rate, and that the session comes in PGM's packets is told by each of them; nor
//! has `rainbow`: its receivers ask for each packet, and have to know that before. Without the attribute a
//! session has one channel at a rate of its sender's choice.

mod receiver;
#[cfg(test)]
mod tests;

use headwater_wire::fdt;

pub use self::receiver::{Receiver, ReceiverConfig};
use crate::flid;
use crate::layering::{DynamicChannels, DynamicConfig, DynamicConfigError, Shape};
use crate::machine::DATAGRAM_BYTES_MAX;
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use crate::{pgm, rainbow, sim};

const M2C: &str = "m2c";
const WEBRC: &str = "webrc";
const FLID_DL: &str = "flid-dl";
const LE_SBCC: &str = pgm::carrier::NAME;
const RAINBOW: &str = rainbow::carrier::NAME;
const SIM: &str = "sim";
const GROUPS: &str = "groups";
const SESSION: &str = "session";
const DECREASE: &str = "decrease-ppm";
const SELECTION: &str = "selection";
const LEAVE: &str = "leave-ns";
const DEAF: &str = "deaf-slots";
const PACKET_BYTES: &str = "packet-bytes";
const BASE_RATE: &str = "base-rate";
const MAX_RATE: &str = "max-rate";
const RATIO: &str = "ratio-ppm";
const SLOT: &str = "slot-ns";
const PER_SLOT: &str = "channels-per-slot";
const QUIESCENT: &str = "quiescent-slots";
/// The controls have bounds of their own.
const RATIO_MILLIONTHS_MAX: u32 = 10_000_000;
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
    /// FLID-DL over these layers, which are dynamic.
    FlidDl(flid::Config),
    /// One channel at LE-SBCC's rate, carried by PGM.
    LeSbcc,
    /// Packets on request, carried by BCFS: [`crate::rainbow::carrier`].
    Rainbow,
    /// SIM's groups.
    Sim(sim::Facts),
}

/// Why a description cannot be followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DescriptionError {
    /// A control that this version does not know.
    #[error(
        "the session uses congestion control '{0}', which is not known here: a newer headwater may know it"
    )]
    Unknown(String),
    /// A session of packets that are to be asked for was heard without asking.
    #[error("the session's packets are sent to those who ask: receive it by its source's address")]
    OnRequest,
    /// A parameter is missing, or outside its range.
    #[error("the session's congestion control lacks a sound '{0}'")]
    Parameter(&'static str),
    /// The numbers do not fit together.
    #[error("the session's congestion control does not work out: {0}")]
    Channels(#[from] DynamicConfigError),
    /// The numbers do not fit together.
    #[error("the session's congestion control does not work out: {0}")]
    Layers(#[from] flid::ConfigError),
}

impl Description {
    /// Its name, as the FDT and the command line spell it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::M2c(_) => M2C,
            Self::Webrc(_) => WEBRC,
            Self::FlidDl(_) => FLID_DL,
            Self::LeSbcc => LE_SBCC,
            Self::Rainbow => RAINBOW,
            Self::Sim(_) => SIM,
        }
    }

    /// What the FDT tells; nothing of a fixed rate.
    pub fn to_fdt(&self) -> Option<fdt::Control> {
        match self {
            Self::Fixed => None,
            Self::M2c(config) => Some(layers_to_fdt(M2C, config)),
            Self::Webrc(config) => Some(layers_to_fdt(WEBRC, config)),
            Self::FlidDl(config) => Some(flid_to_fdt(config)),
            Self::LeSbcc => Some(told(LE_SBCC, &[])),
            Self::Rainbow => Some(told(RAINBOW, &[])),
            Self::Sim(facts) => Some(sim_to_fdt(facts)),
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
            FLID_DL => flid_from_fdt(control).map(Self::FlidDl),
            LE_SBCC => Ok(Self::LeSbcc),
            RAINBOW => Ok(Self::Rainbow),
            SIM => sim_from_fdt(control).map(Self::Sim),
            other => Err(DescriptionError::Unknown(other.to_owned())),
        }
    }
}

fn layers_to_fdt(name: &str, config: &DynamicConfig) -> fdt::Control {
    told(
        name,
        &[
            (PACKET_BYTES, config.packet_bytes().into()),
            (BASE_RATE, config.base_rate().as_bits()),
            (MAX_RATE, config.max_rate().as_bits()),
            (RATIO, millionths(config.ratio())),
            (SLOT, config.slot().as_nanos()),
            (PER_SLOT, config.channels_per_slot().into()),
            (QUIESCENT, config.quiescent_slots().into()),
            (CONSTANT, config.is_constant().into()),
            (STAGGERED, config.is_staggered().into()),
        ],
    )
}

fn flid_to_fdt(config: &flid::Config) -> fdt::Control {
    told(
        FLID_DL,
        &[
            (PACKET_BYTES, config.packet_bytes().into()),
            (BASE_RATE, config.base_rate().as_bits()),
            (MAX_RATE, config.max_rate().as_bits()),
            (RATIO, millionths(config.ratio())),
            (SLOT, config.slot().as_nanos()),
            (LEAVE, config.leave_latency().as_nanos()),
            (DEAF, config.deaf_slots().into()),
        ],
    )
}

fn sim_to_fdt(facts: &sim::Facts) -> fdt::Control {
    told(
        SIM,
        &[
            (PACKET_BYTES, facts.packet_bytes.into()),
            (GROUPS, facts.groups.into()),
            (SESSION, facts.session.into()),
            (DECREASE, millionths(facts.decrease)),
            (SELECTION, facts.selection.into()),
        ],
    )
}

fn told(name: &str, parameters: &[(&str, u64)]) -> fdt::Control {
    let mut control = fdt::Control::new(name).expect("names of controls are words");
    for (name, value) in parameters {
        control.put(name, *value).expect("a few parameters with names of their own");
    }
    control
}

fn layers_from_fdt(control: &fdt::Control, shape: Shape) -> Result<DynamicConfig, DescriptionError> {
    let config = DynamicConfig::new(packet_bytes(control)?, rate(control, MAX_RATE)?)
        .with_shape(shape)
        .with_base_rate(rate(control, BASE_RATE)?)
        .with_ratio(ratio(control)?)
        .with_slot(time(control, SLOT)?)
        .with_channels_per_slot(small(control, PER_SLOT, 1)?)
        .with_quiescent_slots(small(control, QUIESCENT, 0)?)
        .with_constant_rate(number(control, CONSTANT, 0, 1)? == 1)
        .with_stagger(number(control, STAGGERED, 0, 1)? == 1);
    DynamicChannels::new(config, Instant::ZERO)?;
    Ok(config)
}

fn flid_from_fdt(control: &fdt::Control) -> Result<flid::Config, DescriptionError> {
    let config = flid::Config::dynamic_layers(packet_bytes(control)?, rate(control, MAX_RATE)?)
        .with_base_rate(rate(control, BASE_RATE)?)
        .with_ratio(ratio(control)?)
        .with_slot(time(control, SLOT)?)
        .with_leave_latency(time(control, LEAVE)?)
        .with_deaf_slots(small(control, DEAF, 0)?);
    flid::Layers::new(&config, Instant::ZERO)?;
    Ok(config)
}

fn sim_from_fdt(control: &fdt::Control) -> Result<sim::Facts, DescriptionError> {
    let decrease = number(control, DECREASE, 500_000, 990_000)?;
    let session = number(control, SESSION, 0, 0x00FF_FFFF)?;
    let groups = number(control, GROUPS, 1, sim::GROUPS_MAX.into())?;
    Ok(sim::Facts {
        session: u32::try_from(session).map_err(|_| DescriptionError::Parameter(SESSION))?,
        groups: u16::try_from(groups).map_err(|_| DescriptionError::Parameter(GROUPS))?,
        packet_bytes: packet_bytes(control)?,
        decrease: decrease as f64 / 1e6,
        selection: small(control, SELECTION, 2)?,
    })
}

fn packet_bytes(control: &fdt::Control) -> Result<u16, DescriptionError> {
    let bytes = number(control, PACKET_BYTES, 1, DATAGRAM_BYTES_MAX as u64)?;
    u16::try_from(bytes).map_err(|_| DescriptionError::Parameter(PACKET_BYTES))
}

fn rate(control: &fdt::Control, name: &'static str) -> Result<Rate, DescriptionError> {
    Rate::from_bits(number(control, name, 1, u64::MAX)?).ok_or(DescriptionError::Parameter(name))
}

fn ratio(control: &fdt::Control) -> Result<f64, DescriptionError> {
    let millionths = number(control, RATIO, 1, RATIO_MILLIONTHS_MAX.into())?;
    let millionths = u32::try_from(millionths).map_err(|_| DescriptionError::Parameter(RATIO))?;
    Ok(f64::from(millionths) / 1e6)
}

fn time(control: &fdt::Control, name: &'static str) -> Result<Duration, DescriptionError> {
    number(control, name, 1, u64::MAX).map(Duration::from_nanos)
}

fn small(control: &fdt::Control, name: &'static str, least: u64) -> Result<u16, DescriptionError> {
    let value = number(control, name, least, u16::MAX.into())?;
    u16::try_from(value).map_err(|_| DescriptionError::Parameter(name))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, which is meant")]
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
