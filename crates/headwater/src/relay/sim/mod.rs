//! Relays of SIM: forward sessions' groups from one interface to other interfaces through marking queues, and
//! merge the reports from below. See [`headwater_proto::sim::relay`] for the rules and the limits on
//! strangers.

mod port;

use std::net::{IpAddr, SocketAddr};

use headwater_proto::Seed;
use headwater_proto::queue::ParameterError;
use headwater_proto::sim::relay::{EgressShape, LINKS_MAX, Relay, RelayConfig, RelayCounters, SESSIONS_MAX};

use self::port::Ports;
use crate::congestion_control::SIM_GROUPS_DEFAULT;
use crate::driver::{DriverError, Hooks, TraceHook, drive};
use crate::net::{ChannelsError, InterfaceError, OpenError, Poller};
use crate::relay::{RelayProgress, Watch};
use crate::session::Session;
use crate::system;
use crate::threads::{StopHandle, stoppable};

/// Error that prevents a relay of SIM or ends the relay.
#[derive(Debug, thiserror::Error)]
pub enum SimRelayError {
    /// Too few or too many groups or links.
    #[error("a relay of SIM forwards from 1 to {SESSIONS_MAX} groups to 1 to {LINKS_MAX} links")]
    Counts,
    /// Groups of both IP versions.
    #[error("the groups and the source are of different IP versions: run one relay for each version")]
    Family,
    /// A group is no multicast address, or its channels do not fit above it.
    #[error(transparent)]
    Channels(#[from] ChannelsError),
    /// An interface is missing or has no address.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The parameters of a link's queue are invalid.
    #[error("the parameters of the links' queue are invalid")]
    Queue(#[from] ParameterError),
    /// A socket failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Progress of a relay of SIM.
pub type SimRelayProgress = RelayProgress<RelayCounters>;

/// Relay of SIM with open sockets. Runs until the session is stopped, and reports progress each second.
#[derive(Debug)]
pub struct SimRelaySession {
    options: SimRelayOptions,
    relay: Relay,
    ports: Ports,
    poller: Poller,
    stop: StopHandle,
}

impl SimRelaySession {
    /// Opens the sockets. Nothing is joined yet.
    ///
    /// # Errors
    /// If an interface is missing, a port is taken, or an option is invalid.
    pub fn open(options: SimRelayOptions) -> Result<Self, SimRelayError> {
        let counts = (options.groups.len(), options.links.len());
        if !(1..=SESSIONS_MAX).contains(&counts.0) || !(1..=LINKS_MAX).contains(&counts.1) {
            return Err(SimRelayError::Counts);
        }
        if !port::is_one_family(&options.groups, options.source) {
            return Err(SimRelayError::Family);
        }
        let shapes = options.links.iter().map(|link| link.shape).collect();
        let config = RelayConfig::new(counts.0, options.groups_max, shapes, Seed(system::random_u64()))
            .with_pruning(true)
            .with_network_limit(true)
            .with_relays(options.relays.clone());
        let relay = Relay::new(config, headwater_proto::Instant::ZERO)?;
        let ports = Ports::open(&options)?;
        let (poller, stop) = stoppable()?;
        Ok(Self { options, relay, ports, poller, stop })
    }

    /// Returns the addresses at which the relay accepts reports, by link.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.ports.local_addrs()
    }
}

impl Session for SimRelaySession {
    type Update = SimRelayProgress;
    type Summary = SimRelayProgress;
    type Error = SimRelayError;

    fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    fn run(&mut self, observer: &mut dyn FnMut(SimRelayProgress)) -> Result<SimRelayProgress, SimRelayError> {
        let hooks = Hooks {
            trace: self.options.trace.as_mut(),
            loss: None,
            dscp: self.options.dscp,
            ttl: self.options.ttl,
        };
        let mut watch = Watch::new(self.stop.clone(), Relay::counters, observer);
        drive(&mut self.relay, &mut self.ports, &mut self.poller, watch.clock, hooks, &mut watch)?;
        Ok(watch.last)
    }

    fn is_progress(_update: &SimRelayProgress) -> bool {
        true
    }
}

/// Default UDP port of relays of SIM, for accepting reports and for sending.
pub const SIM_RELAY_PORT: u16 = 7_291;

/// Link below the relay.
#[derive(Clone, Debug, PartialEq)]
pub struct SimLink {
    /// Interface, by name or address.
    pub interface: String,
    /// Rate and queue of the link; `None`: packets are forwarded at once and never marked.
    pub shape: Option<EgressShape>,
}

/// Options of a relay of SIM.
#[derive(Debug)]
pub struct SimRelayOptions {
    /// Bottom groups of the sessions.
    pub groups: Vec<SocketAddr>,
    /// Links below.
    pub links: Vec<SimLink>,
    /// Interface toward the senders, by name or address. Default: the interface of the route to the groups.
    pub upstream: Option<String>,
    /// Source of the sessions: the sender, or the relay above. Default: the first source heard.
    pub source: Option<IpAddr>,
    /// Maximum groups of a session, 1 to [`headwater_proto::sim::GROUPS_MAX`]. Default:
    /// [`SIM_GROUPS_DEFAULT`].
    pub groups_max: u16,
    /// Relays below: a report of a relay stands for many receivers. Default: no relay, so that each report
    /// counts as one receiver.
    pub relays: Vec<IpAddr>,
    /// UDP port. Default: [`SIM_RELAY_PORT`].
    pub port: u16,
    /// Number of routers that packets to the groups may pass, plus 1. Default: 1.
    pub ttl: u8,
    /// Differentiated services code point of sent packets, 0 to 63. Default: 0.
    pub dscp: u8,
    /// Hook called for each datagram sent or received. Default: no hook.
    pub trace: Option<TraceHook>,
}

impl SimRelayOptions {
    /// Forwards sessions to links. A session is named by its bottom group.
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
}
