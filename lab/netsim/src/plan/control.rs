//! Congestion controls of sessions in plans: entries of the product's table by their names, and the
//! baselines.

use std::fmt;

use headwater_baselines::{rlc, rlm};
use headwater_proto::control::{DemandRates, ReceiverControl, Rules, SenderControl};
use headwater_proto::controls::{self, Control, Description, Parameter};
use headwater_proto::described::{DescribedReceiver, DescribedReceiverConfig};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender, Shape};
use headwater_proto::{Duration, Instant, Rate, Seed, fixed, flid, m2c, sim, webrc};

/// A congestion control: name and keys in plans, and constructors of both ends.
pub struct PlanControl {
    /// Name in plans and results.
    pub name: &'static str,
    /// Parameters of the control in the product's table; keys of a flow.
    parameters: &'static [Parameter],
    /// Further keys of a flow that describe layers, in addition to `max-rate`.
    own_keys: &'static [&'static str],
    /// Keys of a flow or a receiver that set [`Limits`].
    pub(crate) limits: &'static [&'static str],
    /// Bytes of the congestion control information.
    pub(crate) cci_bytes: u16,
    /// Whether receivers' reports are a flow of their own, which routers may merge.
    pub(crate) has_reports: bool,
    /// Whether the schedule of the layers depends on no receiver.
    pub(crate) is_layered: bool,
    sender: MakeSender,
    receiver: MakeReceiver,
    /// Description of the layers in a session's FDT, of a control whose sender can follow reports.
    description: Option<MakeDescription>,
}

/// An entry of the product's table, with the ends of a fixed rate.
const fn entry(control: &Control) -> PlanControl {
    PlanControl { name: control.name, parameters: control.parameters, ..BASELINE }
}

/// A baseline, with the ends of a fixed rate.
const BASELINE: PlanControl = PlanControl {
    name: "",
    parameters: &[],
    own_keys: &[],
    limits: &[],
    cci_bytes: 4,
    has_reports: false,
    is_layered: false,
    sender: fixed_sender,
    receiver: fixed_receiver,
    description: None,
};

/// Constructor of the sending end, whose first slot begins at an instant.
type MakeSender = fn(&Parameters, Instant) -> Result<ChosenSender, String>;
/// Constructor of the receiving end, with a seed of its own.
type MakeReceiver = fn(&Parameters, &Limits, Seed) -> Result<ChosenReceiver, String>;

/// Description of the layers.
type MakeDescription = fn(&Parameters) -> Result<Description, String>;

/// Rate of a sender that follows reports while nobody reports, and the room of a first start: the defaults of
/// `headwater send`.
const IDLE_RATE: Rate = Rate::from_kilobits(1_200);
const START_RATE: Rate = Rate::from_kilobits(100_000);
/// Maximum number of groups of a session of M2C or WEBRC.
pub(super) const GROUPS_MAX: u16 = 256;
/// Default time for which a channel rests, as in RFC 3738.
const SILENCE: Duration = Duration::from_secs(300);

/// Shapes of dynamic channels by their words in plans.
pub(super) const SHAPES: [(&str, Shape); 2] =
    [("geometric", Shape::Geometric), (controls::WEBRC.name, Shape::Webrc)];

/// Keys of all limits.
pub(crate) const LIMITS: &[&str] = &["cap", "rtt-hint", "rules", "cycle"];

/// All controls of sessions.
const CONTROLS: &[PlanControl] = &[
    entry(&controls::FIXED),
    PlanControl {
        own_keys: &["shape", "groups", "silence", "stamped"],
        limits: &["cap", "rtt-hint", "rules"],
        sender: dynamic_sender,
        receiver: m2c_receiver,
        description: Some(|parameters| Ok(Description::from(&dynamic(parameters)?))),
        is_layered: true,
        ..entry(&controls::M2C)
    },
    PlanControl {
        own_keys: &["groups", "silence"],
        limits: &["cap", "rules"],
        sender: webrc_sender,
        receiver: webrc_receiver,
        description: Some(|parameters| Ok(Description::from(&dynamic(&of_webrc(parameters))?))),
        is_layered: true,
        ..entry(&controls::WEBRC)
    },
    PlanControl {
        limits: &["cap", "rules"],
        sender: flid_dl_sender,
        receiver: flid_dl_receiver,
        is_layered: true,
        ..entry(&controls::FLID_DL)
    },
    PlanControl {
        name: "flid-sl",
        own_keys: &["base-rate", "ratio", "slot"],
        limits: &["cap"],
        sender: flid_sl_sender,
        receiver: flid_sl_receiver,
        ..BASELINE
    },
    // RLM has no use for routers; a plan that compares RLM with SIM may name them.
    PlanControl {
        name: "rlm",
        own_keys: &["base-rate", "groups", "aggregate"],
        sender: rlm_sender,
        receiver: rlm_receiver,
        ..BASELINE
    },
    PlanControl {
        own_keys: &["base-rate", "step", "hold-off", "menu", "initial-rtt", "least-rtt", "aggregate"],
        limits: &["cycle"],
        cci_bytes: 12,
        has_reports: true,
        sender: sim_sender,
        receiver: sim_receiver,
        ..entry(&controls::SIM)
    },
    PlanControl {
        name: "rlc",
        own_keys: &["base-rate", "slot"],
        limits: &["cap"],
        sender: rlc_sender,
        receiver: rlc_receiver,
        ..BASELINE
    },
];

/// Key of a parameter of the product's table in plans, without the unit; `None` where a plan sets the value
/// otherwise.
fn plan_key(parameter: &Parameter) -> Option<&'static str> {
    match parameter.name {
        "packet-bytes" | "max-rate" | "session" => None,
        "constant" => Some("constant-rate"),
        // A receiver's `leave` is the time at which the receiver leaves.
        "leave-ns" => Some("leave-latency"),
        name => Some(name.strip_suffix("-ppm").or_else(|| name.strip_suffix("-ns")).unwrap_or(name)),
    }
}

impl PartialEq for PlanControl {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for PlanControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlanControl").field(&self.name).finish()
    }
}

impl PlanControl {
    /// The control of this name.
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        CONTROLS.iter().find(|control| control.name == name)
    }

    pub(crate) fn names() -> Vec<&'static str> {
        CONTROLS.iter().map(|control| control.name).collect()
    }

    /// Keys of a flow that describe layers, in addition to `max-rate`.
    pub(crate) fn keys(&self) -> Vec<&'static str> {
        self.parameters.iter().filter_map(plan_key).chain(self.own_keys.iter().copied()).collect()
    }

    /// Keys of the layers of every control.
    pub(crate) fn all_keys() -> Vec<&'static str> {
        CONTROLS.iter().flat_map(Self::keys).collect()
    }

    /// Creates the sending end.
    ///
    /// # Errors
    /// A message about invalid parameters.
    pub fn sender(&self, parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
        let mut sender = (self.sender)(parameters, start)?;
        if parameters.stamped {
            sender.stamp_departures();
        }
        Ok(sender)
    }

    /// Creates the receiving end.
    ///
    /// # Errors
    /// A message about invalid parameters.
    pub fn receiver(
        &self,
        parameters: &Parameters,
        limits: &Limits,
        seed: Seed,
    ) -> Result<ChosenReceiver, String> {
        (self.receiver)(parameters, limits, seed)
    }

    /// Whether a session's FDT can describe the layers, so that the ends of sockets run.
    pub(crate) fn is_described(&self) -> bool {
        self.description.is_some()
    }

    /// Creates the sending end of sockets, which describes its layers. If it follows reports, the sender
    /// sends the levels that receivers hold.
    ///
    /// # Errors
    /// A message about invalid parameters.
    pub fn described_sender(
        &self,
        parameters: &Parameters,
        start: Instant,
        follows_reports: bool,
    ) -> Result<ChosenSender, String> {
        let describe = self.description.ok_or_else(|| format!("{} follows no reports", self.name))?;
        let mut sender = describe(parameters)?.sender(start).map_err(|error| error.to_string())?;
        if parameters.stamped {
            sender.stamp_departures();
        }
        if follows_reports {
            let [idle, start] =
                [IDLE_RATE, START_RATE].map(|rate| rate.packets_per_second(parameters.packet_bytes.into()));
            sender.follow_demand(DemandRates { idle, start });
        }
        Ok(sender)
    }
}

/// Creates the receiving end of sockets, which reads the layers from the session's FDT. With a seed, the
/// receiver reports the levels that it needs.
pub(crate) fn described_receiver(limits: &Limits, reports: Option<Seed>) -> ChosenReceiver {
    let config = DescribedReceiverConfig::new()
        .with_max_rate(limits.max_rate)
        .with_rtt_hint(limits.rtt_hint)
        .with_rules(limits.rules.unwrap_or_default())
        .with_reports(reports);
    Box::new(DescribedReceiver::new(config))
}

/// The receiving end of some control.
pub type ChosenReceiver = Box<dyn ViewedControl>;

/// The sending end of some control.
pub type ChosenSender = Box<dyn SenderControl>;

/// Parameters of the layers of a session in a plan; the control's own defaults where absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// UDP payload of a full packet in bytes.
    pub packet_bytes: u16,
    /// Rate of all channels together, in bit/s of UDP payload.
    pub max_rate: Rate,
    /// Rate of the base channel, in bit/s of UDP payload.
    pub base_rate: Option<Rate>,
    /// Factor by which a rate falls in a slot.
    pub ratio: Option<f64>,
    /// Length of a slot.
    pub slot: Option<Duration>,
    /// Channels that begin in a slot.
    pub channels_per_slot: Option<u16>,
    /// Slots for which a channel rests.
    pub quiescent_slots: Option<u16>,
    /// Number of groups that the channels of M2C or WEBRC are fitted to, if any.
    pub groups: Option<u16>,
    /// Time for which a channel rests at least, if the channels are fitted.
    pub silence: Option<Duration>,
    /// Shape of the rates.
    pub shape: Option<Shape>,
    /// Whether the newest wave fills the total up to the maximum rate.
    pub constant_rate: bool,
    /// Whether packets of M2C tell how late they leave, as on sockets.
    pub stamped: bool,
    /// Whether packets of all channels are staggered.
    pub staggered: Option<bool>,
    /// Time for which a network forwards after a leave, as FLID assumes.
    pub leave_latency: Option<Duration>,
    /// Slots for which a receiver of FLID ignores losses after a leave.
    pub deaf_slots: Option<u16>,
    /// Parameters of SIM.
    pub sim: SimParameters,
}

/// Further parameters of SIM in a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimParameters {
    /// Groups of the session.
    pub groups: Option<u16>,
    /// Factor by which a congested rate falls.
    pub decrease: Option<f64>,
    /// Growth of a rate in a request, in bit/s.
    pub step: Option<Rate>,
    /// Requests for which a rate stays unchanged after a decrease.
    pub hold_off: Option<u16>,
    /// Requests in a selection interval.
    pub selection: Option<u16>,
    /// Whether the menu may become active.
    pub menu: Option<bool>,
    /// Maximum round-trip time before the first report.
    pub initial_rtt: Option<Duration>,
    /// Lower bound of the maximum round-trip time.
    pub least_rtt: Option<Duration>,
    /// Whether routers merge the reports that reach the sender.
    pub is_aggregated: bool,
}

/// Limits given to a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Maximum rate, in bit/s of UDP payload.
    pub max_rate: Option<Rate>,
    /// Round-trip time to the sender without queueing.
    pub rtt_hint: Option<Duration>,
    /// Rules of M2C or WEBRC.
    pub rules: Option<Rules>,
    /// Length of each presence and absence of a receiver that leaves and comes back in turn.
    pub cycle: Option<Duration>,
}

/// Values of a receiving control at an instant; `None` for a value that the control lacks, or lacks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControlView {
    /// Subscribed levels above the base.
    pub level: u16,
    /// Fair share as estimated by the control, in packets per second.
    pub fair_rate: Option<f64>,
    /// Congestion window in packets.
    pub window: Option<f64>,
    /// Round-trip time in seconds.
    pub rtt: Option<f64>,
}

/// A receiving control with values to show.
pub trait ViewedControl: ReceiverControl {
    /// Returns the values at `now`, and changes nothing.
    fn view(&self, _now: Instant) -> ControlView {
        ControlView::default()
    }
}

impl ViewedControl for fixed::FixedReceiver {}

impl ViewedControl for m2c::Receiver {
    fn view(&self, now: Instant) -> ControlView {
        // Reading the meter changes the meter, so a copy is read.
        let Some(status) = self.clone().status(now) else { return ControlView::default() };
        ControlView {
            level: status.levels,
            fair_rate: Some(status.fair_rate),
            window: Some(status.fair_rate * status.rtt),
            rtt: Some(status.rtt),
        }
    }
}

impl ViewedControl for DescribedReceiver {
    fn view(&self, now: Instant) -> ControlView {
        ControlView { level: self.need(now).map_or(0, |need| need.level), ..ControlView::default() }
    }
}

impl ViewedControl for webrc::WebrcReceiver {
    fn view(&self, _now: Instant) -> ControlView {
        let Some(status) = self.status() else { return ControlView::default() };
        let (fair_rate, rtt) = (status.target, status.rtt);
        // In start-up nothing bounds the target.
        let fair_rate = fair_rate.is_finite().then_some(fair_rate);
        ControlView { level: status.waves, fair_rate, window: None, rtt: Some(rtt) }
    }
}

impl ViewedControl for flid::FlidReceiver {
    fn view(&self, now: Instant) -> ControlView {
        let Some(status) = self.clone().status(now) else { return ControlView::default() };
        ControlView { level: status.levels, ..ControlView::default() }
    }
}

impl ViewedControl for rlc::RlcReceiver {
    fn view(&self, _now: Instant) -> ControlView {
        ControlView { level: self.level(), ..ControlView::default() }
    }
}

impl ViewedControl for rlm::RlmReceiver {
    fn view(&self, _now: Instant) -> ControlView {
        let level = u16::try_from(self.level().saturating_sub(1)).unwrap_or(u16::MAX);
        ControlView { level, ..ControlView::default() }
    }
}

impl ViewedControl for sim::SimReceiver {
    fn view(&self, _now: Instant) -> ControlView {
        ControlView { level: self.held().saturating_sub(1), ..ControlView::default() }
    }
}

fn fixed_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    Ok(Box::new(fixed::FixedSender::new(parameters.max_rate, start)))
}

fn fixed_receiver(_: &Parameters, _: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    Ok(Box::new(fixed::FixedReceiver::new()))
}

fn dynamic(parameters: &Parameters) -> Result<DynamicConfig, String> {
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
    let config = parameters.staggered.map_or(config, |staggered| config.with_stagger(staggered));
    let config = config.with_constant_rate(parameters.constant_rate);
    if parameters.groups.is_none() && parameters.silence.is_none() {
        return Ok(config);
    }
    let groups = parameters.groups.unwrap_or(GROUPS_MAX);
    config.fit(groups, parameters.silence.unwrap_or(SILENCE)).map_err(|error| error.to_string())
}

fn dynamic_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    let channels = DynamicChannels::new(dynamic(parameters)?, start).map_err(|error| error.to_string())?;
    Ok(Box::new(DynamicSender::new(channels)))
}

fn m2c_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    let config = m2c::ReceiverConfig::new().with_rules(limits.rules.unwrap_or_default());
    let config = limits.max_rate.map_or(config, |rate| config.with_max_rate(rate));
    let config = limits.rtt_hint.map_or(config, |rtt| config.with_rtt_hint(rtt));
    let receiver = m2c::Receiver::new(dynamic(parameters)?, config).map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

fn of_webrc(parameters: &Parameters) -> Parameters {
    Parameters { shape: Some(Shape::Webrc), ..*parameters }
}

fn webrc_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    dynamic_sender(&of_webrc(parameters), start)
}

fn webrc_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    let config = webrc::WebrcReceiverConfig::new().with_rules(limits.rules.unwrap_or_default());
    let config = limits.max_rate.map_or(config, |rate| config.with_max_rate(rate));
    let receiver = webrc::WebrcReceiver::new(dynamic(&of_webrc(parameters))?, config)
        .map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

fn flid(base: fn(u16, Rate) -> flid::FlidConfig, parameters: &Parameters) -> flid::FlidConfig {
    let config = base(parameters.packet_bytes, parameters.max_rate);
    let config = parameters.base_rate.map_or(config, |rate| config.with_base_rate(rate));
    let config = parameters.ratio.map_or(config, |ratio| config.with_ratio(ratio));
    let config = parameters.slot.map_or(config, |slot| config.with_slot(slot));
    let config = parameters.leave_latency.map_or(config, |latency| config.with_leave_latency(latency));
    parameters.deaf_slots.map_or(config, |slots| config.with_deaf_slots(slots))
}

fn flid_sender(config: &flid::FlidConfig, start: Instant) -> Result<ChosenSender, String> {
    let layers = flid::Layers::new(config, start).map_err(|error| error.to_string())?;
    Ok(Box::new(flid::FlidSender::new(layers)))
}

fn flid_receiver(config: flid::FlidConfig, limits: &Limits) -> Result<ChosenReceiver, String> {
    let own = flid::FlidReceiverConfig::new();
    let own = limits.max_rate.map_or(own, |rate| own.with_max_rate(rate));
    let receiver = flid::FlidReceiver::new(config, own).map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

fn flid_dl_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    flid_sender(&flid(flid::FlidConfig::dynamic_layers, parameters), start)
}

fn flid_dl_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    flid_receiver(flid(flid::FlidConfig::dynamic_layers, parameters), limits)
}

fn flid_sl_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    flid_sender(&flid(flid::FlidConfig::static_layers, parameters), start)
}

fn flid_sl_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    flid_receiver(flid(flid::FlidConfig::static_layers, parameters), limits)
}

/// Configuration of RLC; the default base rate is ten packets per second, as in FLID.
fn rlc(parameters: &Parameters) -> rlc::RlcConfig {
    let ten_packets = Rate::from_bits(80 * u64::from(parameters.packet_bytes));
    let base = parameters.base_rate.or(ten_packets).unwrap_or(parameters.max_rate);
    let config = rlc::RlcConfig::new(parameters.packet_bytes, base, parameters.max_rate);
    parameters.slot.map_or(config, |spacing| config.with_spacing(spacing))
}

fn rlc_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    let layers = rlc::Layers::new(&rlc(parameters), start).map_err(|error| error.to_string())?;
    Ok(Box::new(rlc::RlcSender::new(layers)))
}

fn rlc_receiver(parameters: &Parameters, limits: &Limits, _: Seed) -> Result<ChosenReceiver, String> {
    let own = rlc::RlcReceiverConfig::new();
    let own = limits.max_rate.map_or(own, |rate| own.with_max_rate(rate));
    let receiver = rlc::RlcReceiver::new(rlc(parameters), own).map_err(|error| error.to_string())?;
    Ok(Box::new(receiver))
}

/// Default number of groups of a session of SIM.
const SIM_GROUPS: u16 = 5;

fn sim(parameters: &Parameters) -> sim::SimConfig {
    let own = parameters.sim;
    let mut config = sim::SimConfig::new(own.groups.unwrap_or(SIM_GROUPS), parameters.packet_bytes)
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

/// Configuration of RLM: a base layer, and further layers of equal rates.
fn rlm(parameters: &Parameters) -> Result<rlm::RlmConfig, String> {
    let layers = u64::from(parameters.sim.groups.unwrap_or(SIM_GROUPS));
    let most = parameters.max_rate.as_bits();
    let base = parameters.base_rate.map_or(most / layers, Rate::as_bits);
    let above = most.saturating_sub(base) / (layers - 1).max(1);
    let rates = (0..layers).map(|layer| Rate::from_bits(if layer == 0 { base } else { above }));
    let rates: Option<Vec<Rate>> = rates.collect();
    let config = rates.and_then(|rates| rlm::RlmConfig::new(rates, parameters.packet_bytes));
    config.ok_or_else(|| "'base-rate' must be below 'max-rate'".to_owned())
}

fn rlm_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    Ok(Box::new(rlm::RlmSender::new(rlm(parameters)?, start)))
}

fn rlm_receiver(parameters: &Parameters, _: &Limits, seed: Seed) -> Result<ChosenReceiver, String> {
    Ok(Box::new(rlm::RlmReceiver::new(&rlm(parameters)?, seed)))
}

fn sim_sender(parameters: &Parameters, start: Instant) -> Result<ChosenSender, String> {
    Ok(Box::new(sim::SimSender::new(sim(parameters), start)))
}

fn sim_receiver(parameters: &Parameters, _: &Limits, seed: Seed) -> Result<ChosenReceiver, String> {
    Ok(Box::new(sim::SimReceiver::new(sim(parameters), seed)))
}
