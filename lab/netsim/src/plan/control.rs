//! The congestion controls that sessions of plans may have: entries of the product's table by their names,
//! and the baselines.

use std::fmt;

use headwater_baselines::{rlc, rlm};
use headwater_proto::control::{ReceiverControl, Rules, SenderControl};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender, Shape};
use headwater_proto::{Duration, Instant, Rate, Seed, controls, fixed, flid, m2c, sim, webrc};

/// A congestion control: how plans call it, what they may say of it, and what makes its ends.
pub struct Control {
    /// Its name in plans and results.
    pub name: &'static str,
    /// Keys of a flow that speak of its layers, beside `max-rate`.
    pub(crate) keys: &'static [&'static str],
    /// Keys of a flow or a receiver that speak of [`Limits`].
    pub(crate) limits: &'static [&'static str],
    /// Bytes of its congestion control information.
    pub(crate) cci_bytes: u16,
    /// Whether receivers' reports are a flow of their own, which routers may merge.
    pub(crate) has_reports: bool,
    sender: MakeSender,
    receiver: MakeReceiver,
}

/// What most controls have in common.
const COMMON: Control = Control {
    name: "",
    keys: &[],
    limits: &[],
    cci_bytes: 4,
    has_reports: false,
    sender: fixed_sender,
    receiver: fixed_receiver,
};

/// The sending end, whose first slot begins at an instant.
type MakeSender = fn(&Parameters, Instant) -> Result<ChosenSender, String>;
/// The receiving end, with chance of its own.
type MakeReceiver = fn(&Parameters, &Limits, Seed) -> Result<ChosenReceiver, String>;

/// Shapes of dynamic channels by their words in plans.
pub(super) const SHAPES: [(&str, Shape); 2] =
    [("geometric", Shape::Geometric), (controls::WEBRC.name, Shape::Webrc)];

/// Keys that speak of dynamic channels.
pub(super) const DYNAMIC_KEYS: &[&str] =
    &["base-rate", "ratio", "slot", "channels-per-slot", "quiescent-slots", "shape", "constant-rate"];
const WEBRC_KEYS: &[&str] = &["base-rate", "ratio", "slot", "quiescent-slots", "constant-rate"];
const FLID_KEYS: &[&str] = &["base-rate", "ratio", "slot"];
/// Keys that speak of SIM.
pub(super) const SIM_KEYS: &[&str] = &[
    "base-rate",
    "groups",
    "decrease",
    "step",
    "hold-off",
    "selection",
    "menu",
    "initial-rtt",
    "least-rtt",
    "aggregate",
];
/// It has no use for routers; a plan that compares it with SIM may name them.
const RLM_KEYS: &[&str] = &["base-rate", "groups", "aggregate"];
/// Keys of all limits.
pub(crate) const LIMITS: &[&str] = &["cap", "rtt-hint", "rules", "cycle"];

/// All of them.
pub(crate) const CONTROLS: &[Control] = &[
    Control { name: controls::FIXED.name, ..COMMON },
    Control {
        name: controls::M2C.name,
        keys: DYNAMIC_KEYS,
        limits: &["cap", "rtt-hint", "rules"],
        sender: dynamic_sender,
        receiver: m2c_receiver,
        ..COMMON
    },
    Control {
        name: controls::WEBRC.name,
        keys: WEBRC_KEYS,
        limits: &["cap", "rules"],
        sender: webrc_sender,
        receiver: webrc_receiver,
        ..COMMON
    },
    Control {
        name: controls::FLID_DL.name,
        keys: FLID_KEYS,
        limits: &["cap", "rules"],
        sender: flid_dl_sender,
        receiver: flid_dl_receiver,
        ..COMMON
    },
    Control {
        name: "flid-sl",
        keys: FLID_KEYS,
        limits: &["cap"],
        sender: flid_sl_sender,
        receiver: flid_sl_receiver,
        ..COMMON
    },
    Control { name: "rlm", keys: RLM_KEYS, sender: rlm_sender, receiver: rlm_receiver, ..COMMON },
    Control {
        name: controls::SIM.name,
        keys: SIM_KEYS,
        limits: &["cycle"],
        cci_bytes: 12,
        has_reports: true,
        sender: sim_sender,
        receiver: sim_receiver,
    },
    Control {
        name: "rlc",
        keys: &["base-rate", "slot"],
        limits: &["cap"],
        sender: rlc_sender,
        receiver: rlc_receiver,
        ..COMMON
    },
];

impl PartialEq for Control {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&self.name).finish()
    }
}

impl Control {
    /// The control of this name.
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        CONTROLS.iter().find(|control| control.name == name)
    }

    pub(crate) fn names() -> Vec<&'static str> {
        CONTROLS.iter().map(|control| control.name).collect()
    }

    /// Every key of layers that some control has.
    pub(crate) fn all_keys() -> Vec<&'static str> {
        [DYNAMIC_KEYS, SIM_KEYS].concat()
    }

    /// The sending end.
    ///
    /// # Errors
    /// What is wrong with the parameters.
    pub fn sender(&self, parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
        (self.sender)(parameters, start)
    }

    /// The receiving end.
    ///
    /// # Errors
    /// What is wrong with the parameters.
    pub fn receiver(
        &self,
        parameters: &Parameters,
        limits: &Limits,
        seed: Seed,
    ) -> Result<ChosenReceiver, String> {
        (self.receiver)(parameters, limits, seed)
    }
}

/// The receiving end of some control.
pub type ChosenReceiver = Box<dyn ViewedControl>;

/// The sending end of some control.
pub type ChosenSender = Box<dyn SenderControl>;

/// What a plan says of the layers of a session; where it says nothing, the control's own defaults hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// UDP payload of a full packet in bytes.
    pub packet_bytes: u16,
    /// Of all channels together, in bit/s of UDP payload.
    pub max_rate: Rate,
    /// Of the base channel, in bit/s of UDP payload.
    pub base_rate: Option<Rate>,
    /// What a rate falls by in a slot.
    pub ratio: Option<f64>,
    /// Length of a slot.
    pub slot: Option<Duration>,
    /// Channels that begin in a slot.
    pub channels_per_slot: Option<u16>,
    /// Slots that a channel rests.
    pub quiescent_slots: Option<u16>,
    /// The shape of the rates.
    pub shape: Option<Shape>,
    /// Whether the newest wave fills up what is missing to the maximum rate.
    pub constant_rate: bool,
    /// Of SIM.
    pub sim: SimParameters,
}

/// What a plan says of SIM beside.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimParameters {
    /// Groups of the session.
    pub groups: Option<u16>,
    /// What is left of a congested rate.
    pub decrease: Option<f64>,
    /// What a rate grows by in a request, bit/s.
    pub step: Option<Rate>,
    /// Requests that a rate is left alone for after a decrease.
    pub hold_off: Option<u16>,
    /// Requests in a selection interval.
    pub selection: Option<u16>,
    /// Whether the menu may become active.
    pub menu: Option<bool>,
    /// The maximum round-trip time before the first report.
    pub initial_rtt: Option<Duration>,
    /// The least that the maximum round-trip time counts for.
    pub least_rtt: Option<Duration>,
    /// Whether routers merge what the sender hears.
    pub is_aggregated: bool,
}

/// What a receiver was told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Most that it takes, in bit/s of UDP payload.
    pub max_rate: Option<Rate>,
    /// The round-trip time to the sender without queueing.
    pub rtt_hint: Option<Duration>,
    /// Rules of M2C or WEBRC.
    pub rules: Option<Rules>,
    /// It goes and comes back each so much time.
    pub cycle: Option<Duration>,
}

/// What a receiving control shows at an instant; what it has not, or not yet, is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// Levels held above the base.
    pub level: u16,
    /// What it takes for its fair share, in packets per second.
    pub fair_rate: Option<f64>,
    /// Its congestion window in packets.
    pub window: Option<f64>,
    /// Its round-trip time in seconds.
    pub rtt: Option<f64>,
}

/// A receiving control that can be looked at.
pub trait ViewedControl: ReceiverControl {
    /// What it shows. Looking changes nothing.
    fn view(&self, now: Instant) -> View;
}

impl ViewedControl for fixed::Receiver {
    fn view(&self, _now: Instant) -> View {
        View::default()
    }
}

impl ViewedControl for m2c::Receiver {
    fn view(&self, now: Instant) -> View {
        // Its meter moves on when it is asked: a copy is asked.
        let Some(status) = self.clone().status(now) else { return View::default() };
        View {
            level: status.levels,
            fair_rate: Some(status.fair_rate),
            window: Some(status.fair_rate * status.rtt),
            rtt: Some(status.rtt),
        }
    }
}

impl ViewedControl for webrc::Receiver {
    fn view(&self, _now: Instant) -> View {
        let Some(status) = self.status() else { return View::default() };
        let (fair_rate, rtt) = (status.target, status.rtt);
        // In start-up nothing bounds the target.
        let fair_rate = fair_rate.is_finite().then_some(fair_rate);
        View { level: status.waves, fair_rate, window: None, rtt: Some(rtt) }
    }
}

impl ViewedControl for flid::Receiver {
    fn view(&self, now: Instant) -> View {
        let Some(status) = self.clone().status(now) else { return View::default() };
        View { level: status.levels, ..View::default() }
    }
}

impl ViewedControl for rlc::Receiver {
    fn view(&self, _now: Instant) -> View {
        View { level: self.level(), ..View::default() }
    }
}

impl ViewedControl for rlm::Receiver {
    fn view(&self, _now: Instant) -> View {
        let level = u16::try_from(self.level().saturating_sub(1)).unwrap_or(u16::MAX);
        View { level, ..View::default() }
    }
}

impl ViewedControl for sim::Receiver {
    fn view(&self, _now: Instant) -> View {
        View { level: self.held().saturating_sub(1), ..View::default() }
    }
}

fn fixed_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    Ok(Box::new(fixed::Sender::new(parameters.max_rate, start)))
}

fn fixed_receiver(_: &Parameters, _: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    Ok(Box::new(fixed::Receiver::new()))
}

fn dynamic(parameters: &Parameters) -> DynamicConfig {
    let config = match parameters.shape {
        None | Some(Shape::Geometric) => DynamicConfig::fine(parameters.packet_bytes, parameters.max_rate),
        Some(shape) => DynamicConfig::new(parameters.packet_bytes, parameters.max_rate).with_shape(shape),
    };
    let config = parameters.base_rate.map_or(config, |rate| config.with_base_rate(rate));
    let config = parameters.ratio.map_or(config, |ratio| config.with_ratio(ratio));
    let config = parameters.slot.map_or(config, |slot| config.with_slot(slot));
    let config =
        parameters.channels_per_slot.map_or(config, |channels| config.with_channels_per_slot(channels));
    let config = parameters.quiescent_slots.map_or(config, |slots| config.with_quiescent_slots(slots));
    config.with_constant_rate(parameters.constant_rate)
}

fn dynamic_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    let channels = DynamicChannels::new(dynamic(parameters), start).map_err(|error| error.to_string())?;
    Ok(Box::new(DynamicSender::new(channels)))
}

fn m2c_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    let config = m2c::ReceiverConfig::new().with_rules(limits.rules.unwrap_or_default());
    let config = limits.max_rate.map_or(config, |rate| config.with_max_rate(rate));
    let config = limits.rtt_hint.map_or(config, |rtt| config.with_rtt_hint(rtt));
    let receiver = m2c::Receiver::new(dynamic(parameters), config).map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

fn of_webrc(parameters: &Parameters) -> Parameters {
    Parameters { shape: Some(Shape::Webrc), ..*parameters }
}

fn webrc_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    dynamic_sender(&of_webrc(parameters), start)
}

fn webrc_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    let config = webrc::ReceiverConfig::new().with_rules(limits.rules.unwrap_or_default());
    let config = limits.max_rate.map_or(config, |rate| config.with_max_rate(rate));
    let receiver =
        webrc::Receiver::new(dynamic(&of_webrc(parameters)), config).map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

fn flid(base: fn(u16, Rate) -> flid::Config, parameters: &Parameters) -> flid::Config {
    let config = base(parameters.packet_bytes, parameters.max_rate);
    let config = parameters.base_rate.map_or(config, |rate| config.with_base_rate(rate));
    let config = parameters.ratio.map_or(config, |ratio| config.with_ratio(ratio));
    parameters.slot.map_or(config, |slot| config.with_slot(slot))
}

fn flid_sender(config: &flid::Config, start: Instant) -> Result<ChosenSender, String> {
    let layers = flid::Layers::new(config, start).map_err(|error| error.to_string())?;
    Ok(Box::new(flid::Sender::new(layers)))
}

fn flid_receiver(config: flid::Config, limits: &Limits) -> Result<ChosenReceiver, String> {
    let own = flid::ReceiverConfig::new();
    let own = limits.max_rate.map_or(own, |rate| own.with_max_rate(rate));
    let receiver = flid::Receiver::new(config, own).map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

fn flid_dl_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    flid_sender(&flid(flid::Config::dynamic_layers, parameters), start)
}

fn flid_dl_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    flid_receiver(flid(flid::Config::dynamic_layers, parameters), limits)
}

fn flid_sl_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    flid_sender(&flid(flid::Config::static_layers, parameters), start)
}

fn flid_sl_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    flid_receiver(flid(flid::Config::static_layers, parameters), limits)
}

/// Without a base rate, RLC's is ten packets a second, as FLID's.
fn rlc(parameters: &Parameters) -> rlc::Config {
    let ten_packets = Rate::from_bits(80 * u64::from(parameters.packet_bytes));
    let base = parameters.base_rate.or(ten_packets).unwrap_or(parameters.max_rate);
    let config = rlc::Config::new(parameters.packet_bytes, base, parameters.max_rate);
    parameters.slot.map_or(config, |spacing| config.with_spacing(spacing))
}

fn rlc_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    let layers = rlc::Layers::new(&rlc(parameters), start).map_err(|error| error.to_string())?;
    Ok(Box::new(rlc::Sender::new(layers)))
}

fn rlc_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    let own = rlc::ReceiverConfig::new();
    let own = limits.max_rate.map_or(own, |rate| own.with_max_rate(rate));
    let receiver = rlc::Receiver::new(rlc(parameters), own).map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

/// Groups of a session of SIM where a plan does not say.
const SIM_GROUPS: u16 = 5;

fn sim(parameters: &Parameters) -> sim::Config {
    let own = parameters.sim;
    let mut config = sim::Config::new(own.groups.unwrap_or(SIM_GROUPS), parameters.packet_bytes)
        .with_max_rate(parameters.max_rate)
        .with_menu(own.menu.unwrap_or(true));
    if let Some(rate) = parameters.base_rate {
        config = config.with_initial_rate(rate);
    }
    if let Some(factor) = own.decrease {
        config = config.with_decrease(factor);
    }
    if let Some(step) = own.step {
        config = config.with_step(step);
    }
    if let Some(requests) = own.hold_off {
        config = config.with_hold_off(requests);
    }
    if let Some(requests) = own.selection {
        config = config.with_selection(requests);
    }
    if let Some(rtt) = own.initial_rtt {
        config = config.with_rtt(rtt);
    }
    if let Some(rtt) = own.least_rtt {
        config = config.with_rtt_bounds(rtt, sim::RTT_LONGEST);
    }
    config.with_trust(if own.is_aggregated { sim::Trust::Everybody } else { sim::Trust::Nobody })
}

/// A base layer, and others of equal rates above it.
fn rlm(parameters: &Parameters) -> Result<rlm::Config, String> {
    let layers = u64::from(parameters.sim.groups.unwrap_or(SIM_GROUPS));
    let most = parameters.max_rate.as_bits();
    let base = parameters.base_rate.map_or(most / layers, Rate::as_bits);
    let above = most.saturating_sub(base) / (layers - 1).max(1);
    let rates = (0..layers).map(|layer| Rate::from_bits(if layer == 0 { base } else { above }));
    let rates: Option<Vec<Rate>> = rates.collect();
    let config = rates.and_then(|rates| rlm::Config::new(rates, parameters.packet_bytes));
    config.ok_or_else(|| "'base-rate' must be below 'max-rate'".to_owned())
}

fn rlm_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    Ok(Box::new(rlm::Sender::new(rlm(parameters)?, start)))
}

fn rlm_receiver(parameters: &Parameters, _: &Limits, seed: Seed) -> Result<ChosenReceiver, String> {
    Ok(Box::new(rlm::Receiver::new(&rlm(parameters)?, seed)))
}

fn sim_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    Ok(Box::new(sim::Sender::new(sim(parameters), start)))
}

fn sim_receiver(parameters: &Parameters, _: &Limits, seed: Seed) -> Result<ChosenReceiver, String> {
    Ok(Box::new(sim::Receiver::new(sim(parameters), seed)))
}
