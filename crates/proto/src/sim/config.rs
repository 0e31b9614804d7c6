//! What both ends of a session know, and what its sender goes by.

use core::net::IpAddr;

use crate::rate::Rate;
use crate::time::Duration;

/// Most groups of a session.
pub const GROUPS_MAX: u16 = 64;
/// The most that a session's maximum round-trip time counts for, unless told otherwise.
pub const RTT_LONGEST: Duration = Duration::from_secs(2);
/// What a rate that is not congested grows by at a request, in packets per two round-trip times of those who
/// hold its group. What sessions behind one queue add until they hear of it should not be much more than one
/// decrease takes from all of them: of a whole packet, two sessions behind 2 Mbit/s come to 1.3 times the
/// link, and stay above it for seconds.
pub(super) const STEP: f64 = 0.4;
/// Maximum round-trip times, of the session and of a group, keep so much of themselves at a request.
pub(super) const RTT_KEPT: f64 = 0.5;

/// Configuration of a session. Rates are bit/s of UDP payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
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

/// What a receiver must know of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// See [`Config::with_session`].
    pub session: u32,
    /// See [`Config::new`].
    pub groups: u16,
    /// See [`Config::new`].
    pub packet_bytes: u16,
    /// See [`Config::with_decrease`].
    pub decrease: f64,
    /// See [`Config::with_selection`].
    pub selection: u16,
}

/// Whose reports may speak for many receivers; any other report counts as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Nobody's.
    #[default]
    Nobody,
    /// Those of these hosts: the aggregation routers next to whoever hears them.
    Hosts(Vec<IpAddr>),
    /// Everybody's, where an operator's network lets no report through that its routers have not merged.
    Everybody,
}

impl Trust {
    /// Whether a host's reports may speak for many.
    pub(super) fn holds(&self, host: IpAddr) -> bool {
        match self {
            Self::Nobody => false,
            Self::Hosts(hosts) => hosts.contains(&host.to_canonical()),
            Self::Everybody => true,
        }
    }
}

impl Config {
    /// A session of so many groups, 1 to [`GROUPS_MAX`], whose packets have so many bytes of UDP payload, 64
    /// to 8192.
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

    /// What feedback calls the session, 24 bits. Default: 0.
    #[must_use]
    pub fn with_session(mut self, session: u32) -> Self {
        self.session = session & 0x00FF_FFFF;
        self
    }

    /// What is left of a cumulative rate that is congested, 0.5 to 0.99. Default: 0.875.
    #[must_use]
    pub fn with_decrease(mut self, factor: f64) -> Self {
        self.decrease = factor.clamp(0.5, 0.99);
        self
    }

    /// What a cumulative rate that is not congested grows by per request. Default: 0.4 packets per two
    /// round-trip times of those who hold the group.
    #[must_use]
    pub fn with_step(mut self, step: Rate) -> Self {
        self.step = Some(step);
        self
    }

    /// Of the bottom group to begin with, and what a group begins with above the one below it. Default: 100
    /// kbit/s.
    #[must_use]
    pub fn with_initial_rate(mut self, rate: Rate) -> Self {
        self.initial_rate = rate;
        self
    }

    /// Most that is ever sent, on all groups together. Default: what receivers' reports allow.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Rate) -> Self {
        self.max_rate = Some(rate);
        self
    }

    /// The maximum round-trip time before the first report. Default: 100 ms.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Duration) -> Self {
        self.rtt = rtt;
        self
    }

    /// The least and the longest maximum round-trip time, whatever is reported: no report makes the session's
    /// clock stop or race. Default: 10 ms, 2 s.
    #[must_use]
    pub fn with_rtt_bounds(mut self, least: Duration, longest: Duration) -> Self {
        self.rtt_least = least.max(Duration::from_millis(1));
        self.rtt_cap = longest.max(self.rtt_least);
        self
    }

    /// Requests that a cumulative rate is left alone for after a decrease. Default: 2.
    #[must_use]
    pub fn with_hold_off(mut self, requests: u16) -> Self {
        self.hold_off = requests;
        self
    }

    /// Requests in a selection interval, at least 2. Default: 10, the paper's 20 maximum round-trip times.
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

    /// Whose reports may speak for many. Default: nobody's.
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Whether receivers tell whoever sends how many groups they hold, for relays, which see no joins.
    /// Default: no.
    #[must_use]
    pub fn with_holdings(mut self, tells_holdings: bool) -> Self {
        self.tells_holdings = tells_holdings;
        self
    }

    /// What receivers must know.
    pub const fn facts(&self) -> Facts {
        let Self { session, groups, packet_bytes, decrease, selection, .. } = *self;
        Facts { session, groups, packet_bytes, decrease, selection }
    }

    /// The configuration of a receiver.
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
