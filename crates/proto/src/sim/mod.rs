//! SIM (Gorinsky, Ramakrishnan, Vin 2008): sender, receivers and routers share the congestion control of a
//! layered session, and group rates adapt to the receivers.
//!
//! Groups are cumulative: a receiver subscribed to group g is subscribed to all groups below g. The sender
//! requests feedback every two maximum round-trip times, by a request number in every packet. Each receiver
//! answers each request once; routers merge the answers from downstream.
//!
//! | module | purpose |
//! |---|---|
//! | [`SimSender`] | additive increase, multiplicative decrease of each cumulative rate; the menu of bounds |
//! | [`SimReceiver`] | joins if the top group yields to congestion elsewhere, leaves if congestion goes on |
//! | [`AggregationRouter`] | one report per group and request for all of downstream; no receiver identities |
//! | [`relay`] | router on a host: forwards groups through marking queues, by announced subscriptions |
//!
//! Marks are ECN's, set by routers as [`crate::queue::Priority`] does; a loss counts as a mark. Bytes:
//! [`headwater_wire::sim`]. Departures from the paper: `docs/errata/sim.md`.
//!
//! Feedback is trusted within bounds. A report counts as a single receiver unless the report comes from an
//! address that an operator configured as a router. Each address counts once per request and group. Echoes
//! must name packets that were sent, at most 4 s before the request; reported rates count up to the sent
//! rate. A rate changes by at most a single additive step or a single decrease per request, regardless of the
//! reports. Senders and routers remember [`CHILDREN_MAX`] writers, sessions have at most [`GROUPS_MAX`]
//! groups.

mod collector;
mod rates;
mod receiver;
pub mod relay;
mod router;
mod schedule;
mod selection;
mod sender;
#[cfg(test)]
mod tests;

use core::net::IpAddr;

use headwater_wire::lct;
use headwater_wire::sim::{DATA_BYTES, Data};

pub use collector::{CHILDREN_MAX, NETWORK_WRITERS_MAX, Refused};
pub use receiver::{SimReceiver, SimReceiverCounters};
pub use router::{AggregationRouter, RouterConfig, RouterCounters};
pub use sender::{SimSender, SimSenderCounters};

use crate::rate::Rate;
use crate::time::Duration;

/// Time without a later request after which any other request number is accepted: a restarted sender counts
/// requests from the start again.
const ANEW: Duration = Duration::from_secs(5);

/// Whether `request` is later than `than`, with numbers modulo 2^16.
const fn is_later(request: u16, than: u16) -> bool {
    request.wrapping_sub(than).cast_signed() > 0
}

/// Returns SIM's fields of a session's datagram: from the congestion control information of an LCT packet or,
/// if the datagram carries congestion control alone, from the start of the datagram.
fn data_of(datagram: &[u8]) -> Option<Data> {
    match lct::Packet::new_checked(datagram) {
        Ok(packet) => Data::parse(packet.cci()).ok(),
        Err(_) => Data::parse(datagram.get(..DATA_BYTES)?).ok(),
    }
}

/// Maximum number of groups of a session.
pub const GROUPS_MAX: u16 = 64;
/// Default upper bound of a session's maximum round-trip time.
pub const RTT_LONGEST: Duration = Duration::from_secs(2);
/// Additive increase of an uncongested rate per request, in packets per two round-trip times of the group's
/// receivers. Until feedback arrives, the sum of all increases behind a queue should not much exceed a single
/// decrease of all sessions behind the queue. With a whole packet, two sessions behind 2 Mbit/s reach 1.3
/// times the link rate and stay above the link rate for seconds.
pub(super) const STEP: f64 = 0.4;
/// Weight of the old value when the maximum round-trip time of the session or of a group is updated at a
/// request.
pub(super) const RTT_KEPT: f64 = 0.5;

/// Configuration of a session. Rates are bit/s of UDP payload.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    pub(super) session: u32,
    pub(super) groups: u16,
    pub(super) packet_bytes: u16,
    pub(super) decrease: f64,
    pub(super) step: Option<Rate>,
    pub(super) initial_rate: Rate,
    pub(super) max_rate: Option<Rate>,
    pub(super) rtt: Duration,
    pub(super) rtt_least: Duration,
    pub(super) rtt_cap: Duration,
    pub(super) hold_off: u16,
    pub(super) selection: u16,
    pub(super) menu: u16,
    pub(super) has_menu: bool,
    pub(super) trust: Trust,
    pub(super) tells_holdings: bool,
}

/// Parameters of a session that a receiver must know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// See [`SimConfig::with_session`].
    pub session: u32,
    /// See [`SimConfig::new`].
    pub groups: u16,
    /// See [`SimConfig::new`].
    pub packet_bytes: u16,
    /// See [`SimConfig::with_decrease`].
    pub decrease: f64,
    /// See [`SimConfig::with_selection`].
    pub selection: u16,
}

/// Hosts whose reports may speak for many receivers; any other report counts as a single receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// No host.
    #[default]
    Nobody,
    /// The listed hosts: the aggregation routers adjacent to the end that receives the reports.
    Hosts(Vec<IpAddr>),
    /// Any host, for an operator's network that forwards only reports merged by its routers.
    Everybody,
}

impl Trust {
    /// Whether a host's reports may speak for many receivers.
    pub(super) fn holds(&self, host: IpAddr) -> bool {
        match self {
            Self::Nobody => false,
            Self::Hosts(hosts) => hosts.contains(&host.to_canonical()),
            Self::Everybody => true,
        }
    }
}

impl SimConfig {
    /// Creates the configuration of a session with `groups` groups, 1 to [`GROUPS_MAX`], and packets of
    /// `packet_bytes` bytes of UDP payload, 64 to 8192.
    pub fn new(groups: u16, packet_bytes: u16) -> Self {
        Self {
            session: 0,
            groups: groups.clamp(1, GROUPS_MAX),
            packet_bytes: packet_bytes.clamp(64, 8_192),
            decrease: 0.875,
            step: None,
            initial_rate: Rate::from_kilobits(100),
            max_rate: None,
            rtt: Duration::from_millis(100),
            rtt_least: Duration::from_millis(10),
            rtt_cap: RTT_LONGEST,
            hold_off: 2,
            selection: 10,
            menu: 25,
            has_menu: true,
            trust: Trust::Nobody,
            tells_holdings: false,
        }
    }

    /// Sets the session's number in feedback packets, 24 bits. Default: 0.
    #[must_use]
    pub fn with_session(mut self, session: u32) -> Self {
        self.session = session & 0x00FF_FFFF;
        self
    }

    /// Sets the factor of a multiplicative decrease of a congested cumulative rate, 0.5 to 0.99. Default:
    /// 0.875.
    #[must_use]
    pub fn with_decrease(mut self, factor: f64) -> Self {
        self.decrease = factor.clamp(0.5, 0.99);
        self
    }

    /// Sets the additive increase of an uncongested cumulative rate per request. Default: 0.4 packets per two
    /// round-trip times of the group's receivers.
    #[must_use]
    pub fn with_step(mut self, step: Rate) -> Self {
        self.step = Some(step);
        self
    }

    /// Sets the initial rate of the bottom group, which is also the initial rate of each further group on top
    /// of the group below. Default: 100 kbit/s.
    #[must_use]
    pub fn with_initial_rate(mut self, rate: Rate) -> Self {
        self.initial_rate = rate;
        self
    }

    /// Sets the maximum total rate of all groups. Default: no limit except by receivers' reports.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// Sets the maximum round-trip time before the first report. Default: 100 ms.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt;
        self
    }

    /// Sets the bounds of the maximum round-trip time. The bounds hold against any report, so that no report
    /// stops the session's clock or makes the clock race. Default: 10 ms, 2 s.
    #[must_use]
    pub fn with_rtt_bounds(mut self, least: Duration, longest: Duration) -> Self {
        self.rtt_least = least.max(Duration::from_millis(1));
        self.rtt_cap = longest.max(self.rtt_least);
        self
    }

    /// Sets the number of requests after a decrease during which a cumulative rate stays unchanged. Default:
    /// 2.
    #[must_use]
    pub fn with_hold_off(mut self, requests: u16) -> Self {
        self.hold_off = requests;
        self
    }

    /// Sets the number of requests in a selection interval, at least 2. Default: 10, the paper's 20 maximum
    /// round-trip times.
    #[must_use]
    pub fn with_selection(mut self, requests: u16) -> Self {
        self.selection = requests.max(2);
        self
    }

    /// Whether the menu may become active. Default: yes.
    #[must_use]
    pub fn with_menu(mut self, has_menu: bool) -> Self {
        self.has_menu = has_menu;
        self
    }

    /// Sets the hosts whose reports may speak for many receivers. Default: [`Trust::Nobody`].
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Whether receivers announce the number of subscribed groups to the upstream end. Relays need the
    /// announcements because relays see no joins. Default: no.
    #[must_use]
    pub fn with_holdings(mut self, tells_holdings: bool) -> Self {
        self.tells_holdings = tells_holdings;
        self
    }

    /// Returns the parameters that receivers must know.
    pub const fn facts(&self) -> Facts {
        let Self { session, groups, packet_bytes, decrease, selection, .. } = *self;
        Facts { session, groups, packet_bytes, decrease, selection }
    }

    /// Returns the configuration of a receiver.
    pub fn of(facts: Facts) -> Self {
        Self::new(facts.groups, facts.packet_bytes)
            .with_session(facts.session)
            .with_decrease(facts.decrease)
            .with_selection(facts.selection)
    }

    /// Number of groups.
    pub const fn groups(&self) -> u16 {
        self.groups
    }

    /// Bits of UDP payload in a packet.
    pub(super) fn packet_bits(&self) -> f64 {
        8.0 * f64::from(self.packet_bytes)
    }
}
