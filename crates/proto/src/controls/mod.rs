//! Table of the product's congestion controls.
//!
//! [`CONTROLS`] has one [`Control`] for each name that `headwater send --congestion-control` takes. The
//! command's help, the FDT attribute `hw:Congestion-Control`, `inspect`, plans and the testbed read the
//! table. To add a control, add its folder, a [`Control`] here, and a variant of the enum with which the
//! `headwater` crate starts senders.
//!
//! A [`Description`] is a control with the value of each [`Parameter`]: the facts that a receiver must know
//! and that the FDT carries (`docs/reference/wire/fdt.md`). All parameters of a control are required.
//! Parameters that each receiver chooses for itself stand apart, and no session describes them
//! ([`ReceiverOptions`]).

#[cfg(test)]
mod tests;

use headwater_wire::fdt;

use crate::control::{ReceiverControl, Rules, SenderControl};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicConfigError, DynamicSender, Shape};
use crate::machine::DATAGRAM_BYTES_MAX;
use crate::rate::Rate;
use crate::rng::Seed;
use crate::rtt::ProberConfig;
use crate::time::{Duration, Instant};
use crate::{flid, m2c, pgm, rainbow, sim, webrc};

/// All controls, in the order of the command's help.
pub const CONTROLS: &[Control] =
    &[M2C, WEBRC, FLID_DL, LE_SBCC, LE_SBCC_TFRC, LE_SBCC_SQRT, LE_SBCC_IIAD, RAINBOW, SIM, FIXED, DEDICATED];

/// The control of a sender that is given neither a control nor a rate.
pub const DEFAULT: Control = M2C;

/// M2C.
pub const M2C: Control = Control {
    name: "m2c",
    help: "Each receiver takes what its own path fairly carries beside TCP",
    network: Network::Groups,
    parameters: &dynamic_parameters(866_000, 5_000_000_000, 60, true),
    receiver_parameters: &[RECEIVER_MAX_RATE, RTT, RULES],
    constructors: Some(Constructors {
        channels: dynamic_channels,
        sender: dynamic_sender,
        receiver: m2c_receiver,
    }),
    ..COMMON
};

/// WEBRC.
pub const WEBRC: Control = Control {
    name: "webrc",
    help: "The same aim, by RFC 3738",
    network: Network::Groups,
    parameters: &dynamic_parameters(750_000, 10_000_000_000, 30, false),
    receiver_parameters: &[RECEIVER_MAX_RATE, RULES],
    constructors: Some(Constructors {
        channels: dynamic_channels,
        sender: dynamic_sender,
        receiver: webrc_receiver,
    }),
    ..COMMON
};

/// FLID-DL.
pub const FLID_DL: Control = Control {
    name: "flid-dl",
    help: "The same aim by steps that receivers take together (Byers et al. 2002)",
    network: Network::Groups,
    cci: CciForm::Flid,
    parameters: &[
        PACKET_BYTES,
        BASE_RATE,
        MAX_RATE,
        RATIO.defaulting(1_300_000),
        SLOT.defaulting(500_000_000),
        parameter("leave-ns", Unit::Nanoseconds, 1, u64::MAX, 8_000_000_000),
        parameter("deaf-slots", Unit::Number, 0, u16::MAX as u64, 9),
    ],
    receiver_parameters: &[RECEIVER_MAX_RATE],
    constructors: Some(Constructors {
        channels: flid_channels,
        sender: flid_sender,
        receiver: flid_receiver,
    }),
};

/// LE-SBCC.
pub const LE_SBCC: Control = Control {
    name: pgm::carrier::NAME,
    help: "One rate for all, that of a TCP to the worst receiver: the sender finds it from what receivers say they miss, over PGM",
    network: Network::GroupAndNaks,
    ..COMMON
};

/// LE-SBCC with the TFRC module, which only the sender knows of: the FDT says LE-SBCC.
pub const LE_SBCC_TFRC: Control =
    Control { name: "le-sbcc-tfrc", help: "The same, with a smoother rate", ..LE_SBCC };

/// LE-SBCC with the binomial module SQRT.
pub const LE_SBCC_SQRT: Control =
    Control { name: "le-sbcc-sqrt", help: "The same, with smaller steps down", ..LE_SBCC };

/// LE-SBCC with the binomial module IIAD.
pub const LE_SBCC_IIAD: Control =
    Control { name: "le-sbcc-iiad", help: "The same, with the smallest steps up and down", ..LE_SBCC };

/// Rainbow.
pub const RAINBOW: Control = Control {
    name: rainbow::carrier::NAME,
    help: "Receivers ask for packets, each by a TCP-like window of its own: by unicast, through relays (`headwater relay`) where there are some",
    network: Network::Requests,
    ..COMMON
};

/// SIM.
pub const SIM: Control = Control {
    name: "sim",
    help: "Groups move to the rates that receivers report; relays (`headwater relay --sim`) or routers mark and merge",
    network: Network::GroupsAndReports,
    parameters: &[
        PACKET_BYTES,
        parameter("groups", Unit::Number, 1, sim::GROUPS_MAX as u64, 8),
        parameter("session", Unit::Number, 0, 0x00FF_FFFF, 0),
        parameter("decrease-ppm", Unit::Millionths, 500_000, 990_000, 875_000),
        parameter("selection", Unit::Number, 2, u16::MAX as u64, 10),
    ],
    constructors: Some(Constructors { channels: sim_groups, sender: sim_sender, receiver: sim_receiver }),
    ..COMMON
};

/// One channel at the operator's rate. A session without the FDT attribute has this control.
pub const FIXED: Control = Control { name: "fixed", help: "The rate of --rate, whatever happens", ..COMMON };

/// One channel at the highest rate that receivers sustain; to receivers, a fixed rate.
pub const DEDICATED: Control = Control {
    name: "dedicated",
    help: "The highest rate that the slowest receiver's path carries, by receivers' reports; for dedicated networks, not fair to TCP",
    ..COMMON
};

const COMMON: Control = Control {
    name: "",
    help: "",
    network: Network::Group,
    cci: CciForm::Webrc,
    parameters: &[],
    receiver_parameters: &[],
    constructors: None,
};

/// One congestion control. Equality is that of the names.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    /// Name on the command line, in plans and in results.
    pub name: &'static str,
    /// Line of the command's help.
    pub help: &'static str,
    /// Service that the control needs from the network.
    pub network: Network,
    /// Layout of the congestion control information of its packets.
    pub cci: CciForm,
    /// Parameters in the FDT, in the order in which they are written.
    pub parameters: &'static [Parameter],
    /// Parameters that each receiver chooses, in the order of the command's options.
    pub receiver_parameters: &'static [Parameter],
    constructors: Option<Constructors>,
}

impl PartialEq for Control {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Control {
    /// The control of this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        CONTROLS.iter().find(|control| control.name == name)
    }

    /// The control that an FDT names.
    pub fn of_fdt(name: &str) -> Option<&'static Self> {
        CONTROLS.iter().find(|control| control.fdt_name() == Some(name))
    }

    /// Whether the groups carry waves, each of which is silent before its group is used again.
    pub fn has_waves(&self) -> bool {
        self.parameters.iter().any(|parameter| parameter.name == QUIESCENT_SLOTS)
    }

    /// Name in the FDT; `None` for a fixed rate, which the FDT does not mention.
    const fn fdt_name(&self) -> Option<&'static str> {
        match self.network {
            Network::Group => None,
            Network::GroupAndNaks => Some(LE_SBCC.name),
            _ => Some(self.name),
        }
    }
}

/// Service that a control needs from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// One multicast group.
    Group,
    /// One multicast group, and NAKs by unicast to the sender.
    GroupAndNaks,
    /// A multicast group for each channel.
    Groups,
    /// A multicast group for each channel, and reports by unicast towards the sender.
    GroupsAndReports,
    /// Unicast alone: requests to the sender, through relays or not.
    Requests,
}

/// Layout of congestion control information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CciForm {
    /// Format of RFC 3738, which all controls but FLID use or ignore.
    Webrc,
    /// Format of FLID.
    Flid,
}

/// Unit of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bit/s of UDP payload.
    BitsPerSecond,
    /// Millionths of one.
    Millionths,
    /// Nanoseconds.
    Nanoseconds,
    /// A number without a unit; flags are 0 or 1.
    Number,
    /// Index of a word of [`Rules::NAMES`].
    Rules,
}

/// One parameter of a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name in the FDT; of a parameter of receivers, the command's option.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// Least value that a receiver accepts. Controls have closer bounds of their own.
    pub least: u64,
    /// Largest value that a receiver accepts.
    pub most: u64,
    /// Value of an end that is given no other.
    pub default: u64,
}

impl Parameter {
    const fn defaulting(self, default: u64) -> Self {
        Self { default, ..self }
    }
}

const fn parameter(name: &'static str, unit: Unit, least: u64, most: u64, default: u64) -> Parameter {
    Parameter { name, unit, least, most, default }
}

/// UDP payload of a full packet. Default: symbols of 1408 bytes.
const PACKET_BYTES: Parameter = parameter("packet-bytes", Unit::Bytes, 1, DATAGRAM_BYTES_MAX as u64, 1_424);
/// Rate of the base channel.
const BASE_RATE: Parameter = parameter("base-rate", Unit::BitsPerSecond, 1, u64::MAX, 120_000);
/// Rate of all channels together.
const MAX_RATE: Parameter = parameter("max-rate", Unit::BitsPerSecond, 1, u64::MAX, 100_000_000);
/// Rate of a level over that of its neighbour.
const RATIO: Parameter = parameter("ratio-ppm", Unit::Millionths, 1, 10_000_000, 0);
/// Q: slots of silence.
const QUIESCENT_SLOTS: &str = "quiescent-slots";
/// TSD.
const SLOT: Parameter = parameter("slot-ns", Unit::Nanoseconds, 1, u64::MAX, 0);

/// Cap on the rate of one receiver; the largest value is no cap.
pub const RECEIVER_MAX_RATE: Parameter = parameter("max-rate", Unit::BitsPerSecond, 1, u64::MAX, u64::MAX);
/// Round-trip time to the sender without queueing; 0 is measured.
pub const RTT: Parameter = parameter("rtt", Unit::Nanoseconds, 0, u64::MAX, 0);
/// Rules by which a receiver changes its rate.
pub const RULES: Parameter = parameter("rules", Unit::Rules, 0, Rules::NAMES.len() as u64 - 1, 0);

/// Most parameters of a control.
const PARAMETERS_MAX: usize = 9;

const fn dynamic_parameters(ratio: u64, slot: u64, quiescent: u64, is_constant: bool) -> [Parameter; 9] {
    [
        PACKET_BYTES,
        BASE_RATE,
        MAX_RATE,
        RATIO.defaulting(ratio),
        SLOT.defaulting(slot),
        parameter("channels-per-slot", Unit::Number, 1, u16::MAX as u64, 1),
        parameter(QUIESCENT_SLOTS, Unit::Number, 0, u16::MAX as u64, quiescent),
        parameter("constant", Unit::Number, 0, 1, is_constant as u64),
        parameter("staggered", Unit::Number, 0, 1, 1),
    ]
}

/// Constructors of a control whose ends need no more than its description.
#[derive(Clone, Copy, Debug)]
struct Constructors {
    channels: fn(&Description) -> Result<u16, DescriptionError>,
    sender: fn(&Description, Instant) -> Result<SenderEnd, DescriptionError>,
    receiver: fn(&Description, &ReceiverOptions) -> Result<ReceiverEnd, DescriptionError>,
}

/// Sending end of a described control.
pub type SenderEnd = Box<dyn SenderControl + Send>;
/// Receiving end of a described control.
pub type ReceiverEnd = Box<dyn ReceiverControl + Send + Sync>;

/// Facts of a receiver that its session does not describe. A control ignores the facts that it has no use
/// for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverOptions {
    /// Cap on the rate of a session with more than one rate, in bit/s of UDP payload.
    pub max_rate: Option<Rate>,
    /// Round-trip time to the sender without queueing.
    pub rtt_hint: Option<Duration>,
    /// Rules by which the receiver changes its rate ([`RULES`]).
    pub rules: Rules,
    /// Measurement of that time by unicast.
    pub prober: Option<ProberConfig>,
    /// Seed of the names in reports. Default: 0.
    pub seed: Option<Seed>,
}

/// The congestion control of a session, with the values of its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Description {
    control: &'static Control,
    /// In the order of the control's parameters; 0 beyond them.
    values: [u64; PARAMETERS_MAX],
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
    /// The description of this control does not suffice to make an end.
    #[error("an end of congestion control '{0}' needs more than the session's description")]
    Incomplete(&'static str),
    /// The numbers do not fit together.
    #[error("the session's congestion control does not work out: {0}")]
    Channels(#[from] DynamicConfigError),
    /// The numbers do not fit together.
    #[error("the session's congestion control does not work out: {0}")]
    Layers(#[from] flid::FlidConfigError),
}

impl Description {
    /// A control with the default of each parameter.
    pub fn new(control: &'static Control) -> Self {
        let mut values = [0; PARAMETERS_MAX];
        for (value, parameter) in values.iter_mut().zip(control.parameters) {
            *value = parameter.default;
        }
        Self { control, values }
    }

    /// Sets the sizes and rates that layered controls have in common: bytes of UDP payload, bit/s of UDP
    /// payload.
    #[must_use]
    pub fn with_rates(mut self, packet_bytes: u16, base_rate: Rate, max_rate: Rate) -> Self {
        let common = [
            (PACKET_BYTES.name, packet_bytes.into()),
            (BASE_RATE.name, base_rate.as_bits()),
            (MAX_RATE.name, max_rate.as_bits()),
        ];
        for (value, parameter) in self.values.iter_mut().zip(self.control.parameters) {
            *value = common.iter().find(|(name, _)| *name == parameter.name).map_or(*value, |(_, new)| *new);
        }
        self
    }

    /// Fits the channels of M2C or WEBRC to at most `groups` groups ([`DynamicConfig::fit`]). Other controls
    /// stay as they are.
    ///
    /// # Errors
    /// [`DescriptionError::Channels`] with the least number of groups.
    pub fn with_groups(self, groups: u16, silence: Duration) -> Result<Self, DescriptionError> {
        if !self.control.has_waves() {
            return Ok(self);
        }
        Ok(Self::from(&self.dynamic()?.fit(groups, silence)?))
    }

    /// The control.
    pub const fn control(&self) -> &'static Control {
        self.control
    }

    /// Name of the control, as the command line spells it.
    pub const fn name(&self) -> &'static str {
        self.control.name
    }

    /// The FDT attribute; `None` for a fixed rate.
    pub fn to_fdt(&self) -> Option<fdt::ControlAttributes> {
        let mut control =
            fdt::ControlAttributes::new(self.control.fdt_name()?).expect("names of controls are words");
        for (parameter, value) in self.control.parameters.iter().zip(self.values) {
            control.put(parameter.name, value).expect("a few parameters with names of their own");
        }
        Some(control)
    }

    /// Reads the FDT attribute.
    ///
    /// # Errors
    /// [`DescriptionError`] when the description cannot be followed.
    pub fn from_fdt(control: Option<&fdt::ControlAttributes>) -> Result<Self, DescriptionError> {
        let Some(written) = control else { return Ok(Self::new(&FIXED)) };
        let unknown = || DescriptionError::Unknown(written.name().to_owned());
        let mut description = Self::new(Control::of_fdt(written.name()).ok_or_else(unknown)?);
        for (value, parameter) in description.values.iter_mut().zip(description.control.parameters) {
            let sound = |value: &u64| (parameter.least..=parameter.most).contains(value);
            let written = written.get(parameter.name).filter(sound);
            *value = written.ok_or(DescriptionError::Parameter(parameter.name))?;
        }
        // The control itself knows whether the numbers fit together.
        description.channels()?;
        Ok(description)
    }

    /// Number of channels of the session.
    ///
    /// # Errors
    /// [`DescriptionError`] when the numbers do not fit together.
    pub fn channels(&self) -> Result<u16, DescriptionError> {
        self.control.constructors.map_or(Ok(1), |ends| (ends.channels)(self))
    }

    /// The sending end, whose first slot begins at `start`.
    ///
    /// # Errors
    /// [`DescriptionError`] when the numbers do not fit together, or the sender needs more.
    pub fn sender(&self, start: Instant) -> Result<SenderEnd, DescriptionError> {
        (self.constructors()?.sender)(self, start)
    }

    /// The receiving end.
    ///
    /// # Errors
    /// [`DescriptionError`] when the numbers do not fit together, or the receiver needs more.
    pub fn receiver(&self, options: &ReceiverOptions) -> Result<ReceiverEnd, DescriptionError> {
        (self.constructors()?.receiver)(self, options)
    }

    fn constructors(&self) -> Result<Constructors, DescriptionError> {
        self.control.constructors.ok_or(DescriptionError::Incomplete(self.control.name))
    }

    /// Channels of M2C or WEBRC.
    fn dynamic(&self) -> Result<DynamicConfig, DescriptionError> {
        let [packet, base, max, ratio, slot, per_slot, quiescent, constant, staggered] = self.values;
        let shape = if *self.control == WEBRC { Shape::Webrc } else { Shape::Geometric };
        Ok(DynamicConfig::new(small(packet), rate(max, MAX_RATE)?)
            .with_shape(shape)
            .with_base_rate(rate(base, BASE_RATE)?)
            .with_ratio(share(ratio))
            .with_slot(Duration::from_nanos(slot))
            .with_channels_per_slot(small(per_slot))
            .with_quiescent_slots(small(quiescent))
            .with_constant_rate(constant == 1)
            .with_stagger(staggered == 1))
    }

    fn flid(&self) -> Result<flid::FlidConfig, DescriptionError> {
        let [packet, base, max, ratio, slot, leave, deaf, ..] = self.values;
        Ok(flid::FlidConfig::dynamic_layers(small(packet), rate(max, MAX_RATE)?)
            .with_base_rate(rate(base, BASE_RATE)?)
            .with_ratio(share(ratio))
            .with_slot(Duration::from_nanos(slot))
            .with_leave_latency(Duration::from_nanos(leave))
            .with_deaf_slots(small(deaf)))
    }

    fn sim(&self) -> sim::SimConfig {
        let [packet, groups, session, decrease, selection, ..] = self.values;
        sim::SimConfig::of(sim::Facts {
            session: u32::try_from(session).unwrap_or(u32::MAX),
            groups: small(groups),
            packet_bytes: small(packet),
            decrease: share(decrease),
            selection: small(selection),
        })
    }
}

/// Of M2C or, in RFC 3738's shape, WEBRC.
impl From<&DynamicConfig> for Description {
    fn from(config: &DynamicConfig) -> Self {
        let control = if config.shape() == Shape::Webrc { &WEBRC } else { &M2C };
        let values = [
            config.packet_bytes().into(),
            config.base_rate().as_bits(),
            config.max_rate().as_bits(),
            millionths(config.ratio()),
            config.slot().as_nanos(),
            config.channels_per_slot().into(),
            config.quiescent_slots().into(),
            config.is_constant().into(),
            config.is_staggered().into(),
        ];
        Self { control, values }
    }
}

/// Of SIM.
impl From<&sim::Facts> for Description {
    fn from(facts: &sim::Facts) -> Self {
        let (packet, groups, session) =
            (facts.packet_bytes.into(), facts.groups.into(), facts.session.into());
        let values =
            [packet, groups, session, millionths(facts.decrease), facts.selection.into(), 0, 0, 0, 0];
        Self { control: &SIM, values }
    }
}

fn dynamic_channels(description: &Description) -> Result<u16, DescriptionError> {
    Ok(DynamicChannels::new(description.dynamic()?, Instant::ZERO)?.dynamic_channels() + 1)
}

fn dynamic_sender(description: &Description, start: Instant) -> Result<SenderEnd, DescriptionError> {
    let channels = DynamicChannels::new(description.dynamic()?, start)?;
    Ok(Box::new(DynamicSender::new(channels).with_description(description.to_fdt())))
}

fn m2c_receiver(
    description: &Description,
    options: &ReceiverOptions,
) -> Result<ReceiverEnd, DescriptionError> {
    let config = m2c::ReceiverConfig::new().with_rules(options.rules);
    let config = options.max_rate.map_or(config, |rate| config.with_max_rate(rate));
    let config = options.rtt_hint.map_or(config, |rtt| config.with_rtt_hint(rtt));
    let config = options.prober.map_or(config, |prober| config.with_prober(prober));
    Ok(Box::new(m2c::Receiver::new(description.dynamic()?, config)?))
}

fn webrc_receiver(
    description: &Description,
    options: &ReceiverOptions,
) -> Result<ReceiverEnd, DescriptionError> {
    let config = webrc::WebrcReceiverConfig::new().with_rules(options.rules);
    let config = options.max_rate.map_or(config, |rate| config.with_max_rate(rate));
    Ok(Box::new(webrc::WebrcReceiver::new(description.dynamic()?, config)?))
}

fn flid_channels(description: &Description) -> Result<u16, DescriptionError> {
    Ok(flid::Layers::new(&description.flid()?, Instant::ZERO)?.channels())
}

fn flid_sender(description: &Description, start: Instant) -> Result<SenderEnd, DescriptionError> {
    let layers = flid::Layers::new(&description.flid()?, start)?;
    Ok(Box::new(flid::FlidSender::new(layers).with_description(description.to_fdt())))
}

fn flid_receiver(
    description: &Description,
    options: &ReceiverOptions,
) -> Result<ReceiverEnd, DescriptionError> {
    let config = flid::FlidReceiverConfig::new();
    let config = options.max_rate.map_or(config, |rate| config.with_max_rate(rate));
    Ok(Box::new(flid::FlidReceiver::new(description.flid()?, config)?))
}

#[expect(clippy::unnecessary_wraps, reason = "as the other controls' channels")]
fn sim_groups(description: &Description) -> Result<u16, DescriptionError> {
    Ok(description.sim().groups())
}

#[expect(clippy::unnecessary_wraps, reason = "as the other controls' senders")]
fn sim_sender(description: &Description, start: Instant) -> Result<SenderEnd, DescriptionError> {
    Ok(Box::new(sim::SimSender::new(description.sim(), start).with_description(description.to_fdt())))
}

#[expect(clippy::unnecessary_wraps, reason = "as the other controls' receivers")]
fn sim_receiver(
    description: &Description,
    options: &ReceiverOptions,
) -> Result<ReceiverEnd, DescriptionError> {
    let config = description.sim().with_holdings(true);
    Ok(Box::new(sim::SimReceiver::new(config, options.seed.unwrap_or(Seed(0)))))
}

/// Value of a parameter below 2^16; the bounds of the parameter are checked before.
fn small(value: u64) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn rate(bits: u64, parameter: Parameter) -> Result<Rate, DescriptionError> {
    Rate::from_bits(bits).ok_or(DescriptionError::Parameter(parameter.name))
}

/// Number of so many millionths.
fn share(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, which is meant")]
fn millionths(ratio: f64) -> u64 {
    libm::round(ratio * 1e6) as u64
}
