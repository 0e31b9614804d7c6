//! Congestion control of a session.

use std::net::IpAddr;

use headwater_fec::Order;
use headwater_proto::auth::TREES_RATE;
use headwater_proto::control::{DemandRates, SenderControl};
use headwater_proto::controls::{self, Control, Description, DescriptionError, Network};
use headwater_proto::pgm::{PgmSession, carrier};
use headwater_proto::rainbow::carrier as on_request;
use headwater_proto::{Duration, Instant, Rate, fixed, sim};
use headwater_wire::pgm::Gsi;

use crate::pgm::LeSbccOptions;
use crate::send::{LATENESS_BYTES, SendOrder};
use crate::system;

/// Default rate of the base channel of [`LayerOptions`]: about ten full packets per second. A receiver learns
/// of a session within a second, and reaches 10 Mbit/s fifteen joins later.
pub const BASE_RATE_DEFAULT: Rate = Rate::from_kilobits(120);
/// Default rate of all channels of [`LayerOptions`] together if all of them are sent: 100 Mbit/s, which every
/// wired network carries. Also the rate up to which the first receiver that starts is given room.
pub const MAX_RATE_DEFAULT: Rate = Rate::from_kilobits(100_000);
/// Most that the default rate of a sender of files that sends only what receivers report may be.
pub const FAST_RATE_DEFAULT: Rate = Rate::from_kilobits(1_000_000);
/// Part of an interface's speed that is UDP payload: 1424 of the 1490 bytes of a packet on Ethernet.
const PAYLOAD_PERCENT: u64 = 95;

/// Default rate at the start of [`DedicatedOptions`]: any wired network carries the rate, and 2.5 Gbit/s are
/// four steps away.
pub const START_RATE_DEFAULT: Rate = Rate::from_kilobits(10_000);
/// Part of the start's rate below which no receiver takes a session of [`DedicatedOptions`].
const LEAST_OF_START: u64 = 10;

/// Default rate that a sender of [`LayerOptions`] with demand sends while no receiver reports: the first two
/// steps of a receiver's start.
pub const IDLE_RATE_DEFAULT: Rate = Rate::from_kilobits(1_200);

/// Default time for which a channel of [`LayerOptions`] is quiescent before its group is used again: RFC
/// 3738's. Routers forward a group for up to 260 s to a receiver that crashed.
pub const SILENCE_DEFAULT: Duration = Duration::from_secs(300);
/// Maximum number of groups of a session: limit of the congestion control information.
pub const GROUPS_MAX: u16 = 256;

/// PGM's port, the default of other implementations.
const PGM_PORT: u16 = 7_500;
/// NAKs count for packets of the last 4 s, twice the longest round trip (2 s), but for at least
/// [`NAK_PACKETS_MIN`] packets.
const NAK_SECONDS: u64 = 4;
const NAK_PACKETS_MIN: u64 = 4_096;

/// Fixed rate in bit/s from which a session begins with the source symbols: decoding 100 MB takes 0.4 s of a
/// processor, which is 5 % of the time that 100 MB take at this rate.
const SOURCE_FIRST_RATE: u64 = 100_000_000;

/// UDP payload of a packet with a symbol of the default size.
const PACKET_BYTES_USUAL: u16 = 1_424;

/// Congestion control of a session, with the options of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CongestionControl {
    /// Single channel at a constant rate, without regard to other traffic: for private networks.
    Fixed {
        /// Bits of UDP payload per second.
        rate: Rate,
    },
    /// Single channel at the highest rate that the slowest receiver's path carries, by receivers' reports to
    /// the roster, without regard to other traffic: for dedicated networks.
    Dedicated(DedicatedOptions),
    /// M2C: each receiver takes the fair rate of the receiver's path beside TCP.
    M2c(LayerOptions),
    /// WEBRC (RFC 3738): as M2C, by another rule.
    Webrc(LayerOptions),
    /// FLID-DL: synchronized steps of all receivers, fair to TCP with a round-trip time of about 0.4 s.
    FlidDl(LayerOptions),
    /// LE-SBCC: single rate that the sender derives from NAKs: the rate of a TCP flow to the worst receiver.
    /// PGM carries the packets.
    LeSbcc(LeSbccOptions),
    /// Rainbow: each receiver requests packets by unicast with a TCP-like window; relays merge equal
    /// requests. Needs no multicast.
    Rainbow(RainbowOptions),
    /// SIM: the sender adapts the rates of groups to receivers' reports, and each receiver joins the groups
    /// that fit the path; relays or routers help both.
    Sim(SimOptions),
}

/// Options of a session whose sender finds one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedicatedOptions {
    start: Rate,
    max_rate: Option<Rate>,
}

impl Default for DedicatedOptions {
    fn default() -> Self {
        Self { start: START_RATE_DEFAULT, max_rate: None }
    }
}

impl DedicatedOptions {
    /// Creates options from [`START_RATE_DEFAULT`] up to the speed of the interface.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rate at the start, and while no receiver reports, in bit/s of UDP payload. No receiver takes the
    /// session below a tenth of this rate. Default: [`START_RATE_DEFAULT`].
    #[must_use]
    pub const fn with_start(mut self, rate: Rate) -> Self {
        self.start = rate;
        self
    }

    /// Maximum rate in bit/s of UDP payload. Default: 95 % of the speed of the interface, or
    /// [`FAST_RATE_DEFAULT`] if the speed is unknown.
    #[must_use]
    pub const fn with_max_rate(mut self, rate: Option<Rate>) -> Self {
        self.max_rate = rate;
        self
    }

    /// Returns the rate at the start, at most the maximum rate.
    pub const fn start(&self) -> Rate {
        let max = self.max_rate();
        if self.start.as_bits() < max.as_bits() { self.start } else { max }
    }

    const fn max_rate(&self) -> Rate {
        match self.max_rate {
            Some(rate) => rate,
            None => FAST_RATE_DEFAULT,
        }
    }

    fn sender(&self) -> fixed::FixedSender {
        let least = Rate::from_bits(self.start.as_bits() / LEAST_OF_START).unwrap_or(self.start);
        let config = fixed::RateSearchConfig { start: self.start, least, most: self.max_rate() };
        fixed::FixedSender::searching(config, Instant::ZERO)
    }
}

/// Options of a source that sends on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RainbowOptions {
    max_rate: Option<Rate>,
}

impl RainbowOptions {
    /// Creates options without a rate limit.
    pub const fn new() -> Self {
        Self { max_rate: None }
    }

    /// Maximum rate to all relays and receivers together, in bit/s of UDP payload. Default: the rate of the
    /// requests.
    #[must_use]
    pub const fn with_max_rate(mut self, rate: Option<Rate>) -> Self {
        self.max_rate = rate;
        self
    }

    /// Returns the maximum rate.
    pub const fn max_rate(&self) -> Option<Rate> {
        self.max_rate
    }
}

/// Default number of groups of [`SimOptions`]: addresses that differ in 3 bits.
pub const SIM_GROUPS_DEFAULT: u16 = 8;
/// Lower bound of SIM's maximum round-trip time, over three of which relays' queues average. On a shorter
/// path, as in a local network, a filling queue would multiply the round-trip time between two requests, and
/// requests would overtake the reports.
const SIM_RTT_LEAST: Duration = Duration::from_millis(40);
/// Maximum number of relays that report for many receivers.
pub const SIM_RELAYS_MAX: usize = 8;

/// Options of a session whose groups have rates by receivers' reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimOptions {
    groups: u16,
    initial_rate: Rate,
    max_rate: Rate,
    relays: [Option<IpAddr>; SIM_RELAYS_MAX],
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            groups: SIM_GROUPS_DEFAULT,
            initial_rate: BASE_RATE_DEFAULT,
            max_rate: MAX_RATE_DEFAULT,
            relays: [None; SIM_RELAYS_MAX],
        }
    }
}

impl SimOptions {
    /// Creates options for [`SIM_GROUPS_DEFAULT`] groups, from [`BASE_RATE_DEFAULT`] up to
    /// [`MAX_RATE_DEFAULT`]; each report counts as one receiver.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of groups, clamped to 1 to [`sim::GROUPS_MAX`]. The number of different paths plus 1 suffices.
    #[must_use]
    pub fn with_groups(mut self, groups: u16) -> Self {
        self.groups = groups.clamp(1, sim::GROUPS_MAX);
        self
    }

    /// Initial rate of the bottom group, and of each further group, in bit/s of UDP payload.
    #[must_use]
    pub fn with_initial_rate(mut self, rate: Rate) -> Self {
        self.initial_rate = rate;
        self
    }

    /// Maximum rate of all groups together, in bit/s of UDP payload.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = rate;
        self
    }

    /// Relays next to the sender, which report for all receivers below: the first [`SIM_RELAYS_MAX`].
    /// Default: no relays, so that each report counts as one receiver.
    #[must_use]
    pub fn with_relays(mut self, relays: &[IpAddr]) -> Self {
        self.relays = std::array::from_fn(|place| relays.get(place).copied());
        self
    }

    fn config(&self, packet_bytes: u16) -> sim::SimConfig {
        let relays: Vec<_> = self.relays.iter().flatten().copied().collect();
        let trust = if relays.is_empty() { sim::Trust::Nobody } else { sim::Trust::Hosts(relays) };
        sim::SimConfig::new(self.groups, packet_bytes)
            .with_initial_rate(self.initial_rate)
            .with_max_rate(self.max_rate)
            .with_rtt_bounds(SIM_RTT_LEAST, sim::RTT_LONGEST)
            .with_trust(trust)
    }
}

/// Addresses and identifier of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Unicast address of the sender.
    pub(crate) sender: IpAddr,
    /// Group of the base channel.
    pub(crate) group: IpAddr,
    /// Transport session identifier.
    pub(crate) tsi: u32,
}

/// Options of a session of many rates: a base channel, and waves of decreasing rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerOptions {
    base_rate: Rate,
    max_rate: Option<Rate>,
    idle_rate: Option<Rate>,
    groups: Option<u16>,
    silence: Option<Duration>,
}

impl Default for LayerOptions {
    fn default() -> Self {
        Self {
            base_rate: BASE_RATE_DEFAULT,
            max_rate: None,
            idle_rate: Some(IDLE_RATE_DEFAULT),
            groups: None,
            silence: None,
        }
    }
}

impl LayerOptions {
    /// Creates options with [`BASE_RATE_DEFAULT`] and [`IDLE_RATE_DEFAULT`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Rate of the base channel, the minimum rate of a receiver, in bit/s of UDP payload.
    #[must_use]
    pub fn with_base_rate(mut self, rate: Rate) -> Self {
        self.base_rate = rate;
        self
    }

    /// Rate of all channels together, the maximum rate of the sender and of a receiver, in bit/s of UDP
    /// payload. Default: for files, 95 % of the speed of the interface, at most [`FAST_RATE_DEFAULT`]; if all
    /// levels are sent, and for buffers, [`MAX_RATE_DEFAULT`].
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// Sends only the levels that receivers report, and levels of this rate in total, in bit/s of UDP
    /// payload. A receiver on a network that carries no reports gets this rate. `None` sends all levels.
    /// Default: [`IDLE_RATE_DEFAULT`].
    #[must_use]
    pub fn with_idle_rate(mut self, rate: Option<Rate>) -> Self {
        self.idle_rate = rate;
        self
    }

    /// Fits the channels to at most this number of groups, if a number is given, by coarser levels and longer
    /// slots; of M2C and WEBRC. Default: as many groups as the levels need.
    #[must_use]
    pub fn with_groups(mut self, groups: Option<u16>) -> Self {
        self.groups = groups;
        self
    }

    /// Time for which a channel is quiescent at least before its group is used again; of M2C and WEBRC. Less
    /// than 260 s is for networks that forget the groups of a crashed receiver sooner, or where packets for
    /// such a receiver harm nobody. Default: [`SILENCE_DEFAULT`].
    #[must_use]
    pub fn with_silence(mut self, silence: Option<Duration>) -> Self {
        self.silence = silence;
        self
    }

    const fn max_rate(&self) -> Rate {
        match self.max_rate {
            Some(rate) => rate,
            None => MAX_RATE_DEFAULT,
        }
    }
}

/// [`controls::DEFAULT`], with default channels.
impl Default for CongestionControl {
    fn default() -> Self {
        Self::M2c(LayerOptions::default())
    }
}

impl From<LeSbccOptions> for CongestionControl {
    fn from(options: LeSbccOptions) -> Self {
        Self::LeSbcc(options)
    }
}

impl From<DedicatedOptions> for CongestionControl {
    fn from(options: DedicatedOptions) -> Self {
        Self::Dedicated(options)
    }
}

impl From<RainbowOptions> for CongestionControl {
    fn from(options: RainbowOptions) -> Self {
        Self::Rainbow(options)
    }
}

impl From<SimOptions> for CongestionControl {
    fn from(options: SimOptions) -> Self {
        Self::Sim(options)
    }
}

impl CongestionControl {
    /// Returns the control with these layers; `None` if `control` has no such layers.
    pub fn layered(control: &Control, layers: LayerOptions) -> Option<Self> {
        let all = [Self::M2c(layers), Self::Webrc(layers), Self::FlidDl(layers)];
        all.into_iter().find(|layered| layered.control() == control)
    }

    /// Sets the maximum rate to the payload that the interface's speed carries, if no rate is set and the
    /// sender sends what receivers report; of levels at most [`FAST_RATE_DEFAULT`].
    pub(crate) fn set_interface_speed(&mut self, speed: impl FnOnce() -> Option<Rate>) {
        let carried = |speed: Rate| Rate::from_bits(speed.as_bits() / 100 * PAYLOAD_PERCENT);
        let carried = || speed().and_then(carried).unwrap_or(FAST_RATE_DEFAULT);
        match self {
            Self::M2c(layers) | Self::Webrc(layers) | Self::FlidDl(layers)
                if layers.idle_rate.is_some() && layers.max_rate.is_none() =>
            {
                layers.max_rate = Some(carried().min(FAST_RATE_DEFAULT));
            }
            Self::Dedicated(options) if options.max_rate.is_none() => options.max_rate = Some(carried()),
            _ => {}
        }
    }

    /// Whether a session begins with the source symbols.
    pub(crate) const fn begins_with_source(&self) -> bool {
        matches!(self, Self::Fixed { rate } if rate.as_bits() >= SOURCE_FIRST_RATE)
    }

    /// Whether the rate follows the reports of receivers to the roster.
    pub const fn follows_roster(&self) -> bool {
        matches!(self, Self::Dedicated(_))
    }

    /// Returns the entry in the table of controls.
    pub const fn control(&self) -> &'static Control {
        match self {
            Self::Fixed { .. } => &controls::FIXED,
            Self::Dedicated(_) => &controls::DEDICATED,
            Self::M2c(_) => &controls::M2C,
            Self::Webrc(_) => &controls::WEBRC,
            Self::FlidDl(_) => &controls::FLID_DL,
            Self::LeSbcc(options) => options.control(),
            Self::Rainbow(_) => &controls::RAINBOW,
            Self::Sim(_) => &controls::SIM,
        }
    }

    /// Returns the name on the command line.
    pub const fn name(&self) -> &'static str {
        self.control().name
    }

    /// Whether each receiver has a rate of its own.
    pub const fn is_multi_rate(&self) -> bool {
        !matches!(self.control().network, Network::Group | Network::GroupAndNaks)
    }

    /// Whether the sender sends layers by a schedule that depends on no receiver.
    pub(crate) const fn is_layered(&self) -> bool {
        matches!(self, Self::M2c(_) | Self::Webrc(_) | Self::FlidDl(_))
    }

    /// Whether packets that leave together share a signature: the sender cannot plan ahead, and the rate may
    /// be high.
    pub(crate) fn has_trees(&self) -> bool {
        matches!(self, Self::Sim(_) | Self::Rainbow(_)) && self.rate_max() >= TREES_RATE
    }

    /// Whether packets are sent on request instead of to groups.
    pub const fn is_on_request(&self) -> bool {
        matches!(self.control().network, Network::Requests)
    }

    /// Returns the maximum bytes that the control adds to a packet: an envelope, or congestion control
    /// information beyond four bytes.
    pub fn added_bytes(&self) -> u16 {
        match self {
            Self::LeSbcc(_) => u16::try_from(carrier::PgmCarrierSender::envelope_bytes()).unwrap_or(u16::MAX),
            Self::Rainbow(_) => {
                u16::try_from(on_request::RainbowCarrierSender::envelope_bytes_max()).unwrap_or(u16::MAX)
            }
            Self::Sim(_) => 8,
            _ if self.is_stamped() => LATENESS_BYTES,
            _ => 0,
        }
    }

    /// Whether packets of files tell how late they leave: receivers of M2C alone measure delays. Live content
    /// skips what is late instead of a schedule that slips.
    pub(crate) fn is_stamped(&self) -> bool {
        matches!(self, Self::M2c(_))
    }

    /// Returns the number of channels of a session.
    ///
    /// # Errors
    /// If the rates make no channels.
    pub fn channels(&self) -> Result<u16, DescriptionError> {
        // Rates are in bits: the length of packets decides only whether the base channel sends enough
        // packets.
        self.channels_of(PACKET_BYTES_USUAL)
    }

    /// Returns the number of channels for packets of this length, which may not suit the base rate.
    pub(crate) fn channels_of(&self, packet_bytes: u16) -> Result<u16, DescriptionError> {
        self.description(packet_bytes)?.channels()
    }

    /// Returns the maximum rate to a receiver; `None` if only requests limit the rate.
    pub const fn rate_cap(&self) -> Option<Rate> {
        match self {
            Self::Rainbow(options) => options.max_rate,
            _ => Some(self.rate_max()),
        }
    }

    /// Returns the maximum rate to a receiver; [`MAX_RATE_DEFAULT`] if only requests limit the rate.
    pub const fn rate_max(&self) -> Rate {
        match self {
            Self::Fixed { rate } => *rate,
            Self::Dedicated(options) => options.max_rate(),
            Self::M2c(layers) | Self::Webrc(layers) | Self::FlidDl(layers) => layers.max_rate(),
            Self::LeSbcc(options) => options.max_rate(),
            Self::Rainbow(options) => match options.max_rate {
                Some(rate) => rate,
                None => MAX_RATE_DEFAULT,
            },
            Self::Sim(options) => options.max_rate,
        }
    }

    /// Returns the rate of the base channel; `None` if the sender or the receivers find the rate.
    pub const fn rate_base(&self) -> Option<Rate> {
        match self {
            Self::Fixed { rate } => Some(*rate),
            Self::Dedicated(options) => Some(options.start()),
            Self::M2c(layers) | Self::Webrc(layers) | Self::FlidDl(layers) => Some(layers.base_rate),
            Self::LeSbcc(_) | Self::Rainbow(_) => None,
            Self::Sim(options) => Some(options.initial_rate),
        }
    }

    /// Returns the description for receivers, for full packets of this many bytes of UDP payload.
    ///
    /// # Errors
    /// If the channels need more groups than the options allow.
    pub(crate) fn description(&self, packet_bytes: u16) -> Result<Description, DescriptionError> {
        Ok(match self {
            Self::Sim(options) => Description::from(&options.config(packet_bytes).facts()),
            Self::M2c(layers) | Self::Webrc(layers) | Self::FlidDl(layers) => {
                let control = Description::new(self.control());
                let control = control.with_rates(packet_bytes, layers.base_rate, layers.max_rate());
                if layers.groups.is_none() && layers.silence.is_none() {
                    return Ok(control);
                }
                let silence = layers.silence.unwrap_or(SILENCE_DEFAULT);
                // Groups are chosen before the length of packets is known, and must not depend on the length.
                let usual = control.with_rates(PACKET_BYTES_USUAL, layers.base_rate, layers.max_rate());
                let fit = usual.with_groups(layers.groups.unwrap_or(GROUPS_MAX), silence)?;
                fit.with_rates(packet_bytes, layers.base_rate, layers.max_rate())
            }
            _ => Description::new(self.control()),
        })
    }

    /// Creates the sending control of a single rate without feedback of its own; `None` for any other.
    pub(crate) fn single_rate(&self) -> Option<fixed::FixedSender> {
        match self {
            Self::Fixed { rate } => Some(fixed::FixedSender::new(*rate, Instant::ZERO)),
            Self::Dedicated(options) => Some(options.sender()),
            _ => None,
        }
    }

    /// Creates the sending control, whose schedule begins at the driver's zero.
    ///
    /// # Errors
    /// If the rates make no channels for packets of this length.
    pub(crate) fn sender(
        &self,
        packet_bytes: u16,
        path: Path,
    ) -> Result<Box<dyn SenderControl + Send>, DescriptionError> {
        let mut control: Box<dyn SenderControl + Send> = match self {
            Self::Fixed { rate } => Box::new(fixed::FixedSender::new(*rate, Instant::ZERO)),
            Self::Dedicated(options) => Box::new(options.sender()),
            Self::M2c(layers) | Self::Webrc(layers) | Self::FlidDl(layers) => {
                let mut sender = self.description(packet_bytes)?.sender(Instant::ZERO)?;
                if let Some(idle) = layers.idle_rate {
                    let [idle, start] =
                        [idle, MAX_RATE_DEFAULT].map(|rate| rate.packets_per_second(packet_bytes.into()));
                    sender.follow_demand(DemandRates { idle, start });
                }
                sender
            }
            Self::LeSbcc(options) => Box::new(carried(options, packet_bytes, path)),
            Self::Rainbow(options) => {
                let key = [system::random_u64(), system::random_u64()];
                let config = on_request::RainbowCarrierSenderConfig::new(key)
                    .with_max_rate(options.max_rate, packet_bytes)
                    .with_challenges(Some(system::random_key()));
                Box::new(on_request::RainbowCarrierSender::new(config))
            }
            Self::Sim(options) => {
                let config = options.config(packet_bytes).with_session(path.tsi);
                let described = Description::from(&config.facts()).to_fdt();
                Box::new(sim::SimSender::new(config, Instant::ZERO).with_description(described))
            }
        };
        control.set_admission_key(system::random_key());
        Ok(control)
    }

    /// Returns the requested order of sending, or else the order that suits the rate. Windows are for
    /// receivers of a single channel at a rate that is known.
    pub(crate) fn order(&self, wanted: Option<SendOrder>) -> Order {
        let rate = self.rate_max().as_bits();
        match wanted {
            Some(SendOrder::Spread) => Order::Spread { rate },
            Some(SendOrder::Window) => Order::Window,
            None if self.is_multi_rate() || self.follows_roster() => Order::Spread { rate },
            None => Order::for_rate(rate),
        }
    }
}

fn carried(options: &LeSbccOptions, packet_bytes: u16, path: Path) -> carrier::PgmCarrierSender {
    let chain = options.chain_of_files(packet_bytes, Instant::ZERO);
    let [port @ .., a, b, c, d, e, f] = system::random_u64().to_ne_bytes();
    let session = PgmSession {
        gsi: Gsi([a, b, c, d, e, f]),
        source_port: u16::from_ne_bytes(port),
        destination_port: PGM_PORT,
        group: path.group,
    };
    let packets = nak_packets(options.max_rate(), packet_bytes);
    carrier::PgmCarrierSender::new(session, path.sender, packets, chain, Instant::ZERO)
}

/// Returns the number of packets for which NAKs count.
fn nak_packets(most: Rate, packet_bytes: u16) -> u32 {
    let in_a_second = most.as_bits() / (8 * u64::from(packet_bytes.max(1)));
    let packets = in_a_second.saturating_mul(NAK_SECONDS).max(NAK_PACKETS_MIN);
    u32::try_from(packets).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
