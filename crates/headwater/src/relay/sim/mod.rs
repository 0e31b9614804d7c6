//! A relay of SIM: forwards sessions' groups from one interface to others through queues that mark, and
//! merges the reports of those below. See [`headwater_proto::sim::relay`] for what it does, and what
//! strangers can do to it.

mod port;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::time::Duration;

use headwater_proto::queue::ParameterError;
use headwater_proto::sim::relay::{LINKS_MAX, Relay, RelayConfig, RelayCounters, SESSIONS_MAX, Shape};
use headwater_proto::{Input, Machine, Seed};

use self::port::Ports;
use crate::clock::{Clock, elapsed};
use crate::congestion_control::SIM_GROUPS_DEFAULT;
use crate::driver::DriverError;
use crate::driver::TraceHook;
use crate::net::{ChannelsError, InterfaceError, MembershipError, OpenError, Poller, RecvBatch};
use crate::relay::relay_setters;
use crate::system;
use crate::threads::{StopHandle, stoppable};

/// Time between reports to the observer, and looks at the interfaces.
const REPORT: headwater_proto::Duration = headwater_proto::Duration::from_secs(1);
/// Least time between two turns that send, so that those of high rates send some at once.
const QUANTUM: headwater_proto::Duration = headwater_proto::Duration::from_micros(200);

/// Why a relay of SIM does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum SimRelayError {
    /// Nothing to forward, or nowhere to.
    #[error("a relay of SIM forwards from 1 to {SESSIONS_MAX} groups to 1 to {LINKS_MAX} links")]
    Counts,
    /// Groups of both IP versions.
    #[error("the groups, and who sends them, are of one IP version: run one relay for each")]
    Family,
    /// What is given as a group is none.
    #[error(transparent)]
    Channels(#[from] ChannelsError),
    /// There is no such interface, or it has no address.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The queue of a link makes no sense.
    #[error("the queue of the links is wrong")]
    Queue(#[from] ParameterError),
    /// Its sockets failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl From<MembershipError> for SimRelayError {
    fn from(error: MembershipError) -> Self {
        Self::Driver(error.into())
    }
}

/// How far a relay is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimRelayProgress {
    /// Since it started.
    pub elapsed: Duration,
    /// What it did.
    pub counters: RelayCounters,
    /// Datagrams that the system did not take.
    pub unsent: u64,
}

/// A relay of SIM with its sockets open.
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
    /// When there is no such interface, a port is taken, or an option makes no sense.
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
            .with_relays(options.relays.clone());
        let relay = Relay::new(config, headwater_proto::Instant::ZERO)?;
        let ports = Ports::open(&options)?;
        let (poller, stop) = stoppable()?;
        Ok(Self { options, relay, ports, poller, stop })
    }

    /// Where it takes reports, by link.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.ports.local_addrs()
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Relays until it is stopped, and tells each second how far it is.
    ///
    /// # Errors
    /// When its sockets failed.
    pub fn run(
        &mut self,
        observer: &mut dyn FnMut(SimRelayProgress),
    ) -> Result<SimRelayProgress, SimRelayError> {
        let Self { options, relay, ports, poller, stop } = self;
        // The poller, which asks for exact timers, may have been made on another thread.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
            .map_err(|errno| DriverError::Read(errno.into()))?;
        let clock = Clock::start();
        let mut batch = RecvBatch::new();
        let mut now = clock.now();
        let mut next = now + REPORT;
        loop {
            let woken = clock.now();
            ports
                .receive(relay, &mut batch, (clock, &mut now), &mut options.trace)
                .map_err(DriverError::Read)?;
            now = now.max(woken);
            relay.handle(now, Input::Timeout);
            let has_sent = ports.drain(relay, now, &mut options.trace)?;
            let progress = || SimRelayProgress {
                elapsed: elapsed(now),
                counters: relay.counters(),
                unsent: ports.unsent,
            };
            if stop.is_stopped() {
                return Ok(progress());
            }
            if next <= now {
                next = now + REPORT;
                observer(progress());
                ports.inspect_links(relay);
            }
            let due = relay.poll_timeout().map_or(next, |due| due.min(next));
            let deadline = if has_sent || due <= now { due.max(now + QUANTUM) } else { due };
            poller.wait(ports.fds(), clock.to_std(deadline)).map_err(DriverError::Read)?;
        }
    }
}

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
