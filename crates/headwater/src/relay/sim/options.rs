//! What a relay of SIM is told.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use headwater_proto::sim::relay::Shape;

use crate::congestion_control::SIM_GROUPS_DEFAULT;
use crate::relay::options::relay_setters;
use crate::trace::TraceHook;

/// UDP port at which relays of SIM take reports, and from which they send, unless told otherwise.
pub const SIM_RELAY_PORT: u16 = 7_291;

/// A link below.
#[derive(Clone, Debug, PartialEq)]
pub struct SimLink {
    /// The interface, by name or address.
    pub interface: String,
    /// What it is given; where that is nothing, what comes is sent on at once, and nothing is marked.
    pub shape: Option<Shape>,
}

/// How a relay of SIM is run.
pub struct SimRelayOptions {
    pub(super) groups: Vec<SocketAddr>,
    pub(super) links: Vec<SimLink>,
    pub(super) upstream: Option<String>,
    pub(super) source: Option<IpAddr>,
    pub(super) groups_max: u16,
    pub(super) relays: Vec<IpAddr>,
    pub(super) port: u16,
    pub(super) ttl: u8,
    pub(super) dscp: u8,
    pub(super) trace: Option<TraceHook>,
}

impl SimRelayOptions {
    /// Forwards the sessions of these groups, each given by that of its bottom one, to these links.
    pub fn new(groups: Vec<SocketAddr>, links: Vec<SimLink>) -> Self {
        Self {
            groups,
            links,
            upstream: None,
            source: None,
            groups_max: SIM_GROUPS_DEFAULT,
            relays: Vec::new(),
            port: SIM_RELAY_PORT,
            ttl: 1,
            dscp: 0,
            trace: None,
        }
    }

    /// The interface that sessions come by, by name or address. Default: where the route to the groups leads.
    #[must_use]
    pub fn with_upstream(mut self, interface: Option<String>) -> Self {
        self.upstream = interface;
        self
    }

    /// Who sends the sessions: the sender, or the relay above. Default: whoever is heard first.
    #[must_use]
    pub const fn with_source(mut self, source: Option<IpAddr>) -> Self {
        self.source = source;
        self
    }

    /// Most groups of a session, 1 to [`headwater_proto::sim::GROUPS_MAX`]. Default: [`SIM_GROUPS_DEFAULT`].
    #[must_use]
    pub const fn with_groups_max(mut self, groups: u16) -> Self {
        self.groups_max = groups;
        self
    }

    /// Relays below: what they report speaks for many. Default: none, each report counts as one receiver.
    #[must_use]
    pub fn with_relays(mut self, relays: Vec<IpAddr>) -> Self {
        self.relays = relays;
        self
    }

    /// The port of [`SIM_RELAY_PORT`].
    #[must_use]
    pub const fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Routers that packets to the groups may pass, plus 1. Default: 1.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    relay_setters!();
}

impl fmt::Debug for SimRelayOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRelayOptions")
            .field("groups", &self.groups)
            .field("links", &self.links)
            .field("upstream", &self.upstream)
            .field("relays", &self.relays)
            .finish_non_exhaustive()
    }
}
