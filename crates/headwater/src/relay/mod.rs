//! Relays: requests of receivers go up toward the source, and replies come down to every requester, by
//! unicast UDP alone. Any number of relays form a tree, without support from the network between relays. See
//! [`headwater_proto::bcfs::relay`] for the rules and the limits on strangers.

mod amt;
mod sim;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use headwater_proto::bcfs::RouterConfig;
use headwater_proto::bcfs::relay::{MulticastLink, Relay, RelayConfig, RelayCounters};
use headwater_proto::queue::ParameterError;
use headwater_proto::{ChannelId, Machine, Seed};

use crate::clock::{Clock, elapsed};
use crate::driver::{Application, DriverError, Hooks, Port, TraceHook, UnicastPort, drive};
use crate::net::{Interface, OpenError, Poller, UnicastOptions, UnicastSocket};
use crate::session::Session;
use crate::system;
use crate::threads::StopHandle;

pub use amt::{AMT_PORT, AmtRelayError, AmtRelayOptions, AmtRelayProgress, AmtRelaySession};
pub use sim::{SIM_RELAY_PORT, SimLink, SimRelayError, SimRelayOptions, SimRelayProgress, SimRelaySession};

/// Time between reports.
const REPORT: headwater_proto::Duration = headwater_proto::Duration::from_secs(1);

/// Error that prevents a relay or ends a relay.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// No address to listen at.
    #[error("a relay needs an address to listen at")]
    NoAddress,
    /// The relay does not listen at an address of the group's IP version.
    #[error("the group {0} is of another IP version than every address that the relay listens at")]
    GroupFamily(SocketAddr),
    /// Two addresses of one IP version.
    #[error("{0} and {1} are of one IP version; a relay listens at one address of each, or at all")]
    ListenTwice(SocketAddr, SocketAddr),
    /// The network is of another IP version than the group.
    #[error("the network of {0} and the group {1} are not of one IP version")]
    NetworkFamily(IpAddr, SocketAddr),
    /// A socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The parameters of the links' queue are invalid.
    #[error("the parameters of the links' queue are invalid")]
    Queue(#[from] ParameterError),
    /// The process has no file descriptor left.
    #[error("cannot open an event descriptor")]
    Poller(#[source] std::io::Error),
    /// A socket failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Progress of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayProgress<C = RelayCounters> {
    /// Time since the start.
    pub elapsed: Duration,
    /// Counters of the relay's machine.
    pub counters: C,
    /// Datagrams that the kernel refused.
    pub unsent: u64,
}

/// Relay with open sockets. Runs until the session is stopped, and reports progress each second.
#[derive(Debug)]
pub struct RelaySession {
    options: RelayOptions,
    relay: Relay,
    port: UnicastPort,
    poller: Poller,
    stop: StopHandle,
}

impl RelaySession {
    /// Opens the sockets.
    ///
    /// # Errors
    /// If an address does not belong to this machine, a port is taken, or an option is invalid.
    pub fn open(options: RelayOptions) -> Result<Self, RelayError> {
        check(&options)?;
        let group = options.group.as_ref();
        let multicast = match group {
            Some(group) => Some((interface(&group.interface)?, group.ttl)),
            None => None,
        };
        let open = |at: &SocketAddr| {
            let is_groups = group.is_some_and(|group| group.group.is_ipv4() == at.is_ipv4());
            let multicast = multicast.clone().filter(|_| is_groups);
            let unicast = UnicastOptions { multicast, dscp: options.dscp, ..UnicastOptions::default() };
            UnicastSocket::open(*at, &unicast)
        };
        let sockets = options.listen.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let relay =
            Relay::new(options.config([system::random_u64(), system::random_u64()], system::random_u64()))?;
        let poller = Poller::new().map_err(RelayError::Poller)?;
        let port = UnicastPort::new(sockets, group.map(|group| group.group));
        let stop = StopHandle::new(poller.waker());
        Ok(Self { options, relay, port, poller, stop })
    }

    /// Returns the addresses that the relay listens at.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.port.local_addrs()
    }
}

impl Session for RelaySession {
    type Update = RelayProgress;
    type Summary = RelayProgress;
    type Error = RelayError;

    fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    fn run(&mut self, observer: &mut dyn FnMut(RelayProgress)) -> Result<RelayProgress, RelayError> {
        let hooks =
            Hooks { trace: self.options.trace.as_mut(), loss: None, dscp: self.options.dscp, ttl: 64 };
        let mut watch = Watch::new(self.stop.clone(), Relay::counters, observer);
        drive(&mut self.relay, &mut self.port, &mut self.poller, watch.clock, hooks, &mut watch)?;
        Ok(watch.last)
    }

    fn is_progress(_update: &RelayProgress) -> bool {
        true
    }
}

/// Sockets of a relay.
pub(crate) trait RelayPort<M>: Port {
    /// Adjusts the sockets to the machine's state. `is_report`: once a second.
    fn follow(&mut self, _machine: &mut M, _is_report: bool) {}
}

impl RelayPort<Relay> for UnicastPort {}

/// Application of a relay's machine: reports progress each second until the relay is stopped.
struct Watch<'a, M, C> {
    stop: StopHandle,
    clock: Clock,
    next: headwater_proto::Instant,
    is_report: bool,
    counters: fn(&M) -> C,
    last: RelayProgress<C>,
    observer: &'a mut dyn FnMut(RelayProgress<C>),
}

impl<'a, M, C: Default> Watch<'a, M, C> {
    fn new(stop: StopHandle, counters: fn(&M) -> C, observer: &'a mut dyn FnMut(RelayProgress<C>)) -> Self {
        let clock = Clock::start();
        let (next, last) = (clock.now() + REPORT, RelayProgress::default());
        Self { stop, clock, next, is_report: false, counters, last, observer }
    }
}

impl<M, C, P> Application<M, P> for Watch<'_, M, C>
where
    M: Machine<Event = Infallible>,
    C: Copy,
    P: RelayPort<M>,
{
    fn steer(&mut self, machine: &mut M, port: &mut P, now: headwater_proto::Instant) {
        self.is_report = now >= self.next;
        port.follow(machine, self.is_report);
    }

    fn event(&mut self, event: Infallible) {
        match event {}
    }

    fn observe(
        &mut self,
        machine: &mut M,
        _port: &P,
        unsent: u64,
        now: headwater_proto::Instant,
    ) -> Option<headwater_proto::Instant> {
        let is_stopped = self.stop.is_stopped();
        if is_stopped || self.is_report {
            self.last = RelayProgress { elapsed: elapsed(now), counters: (self.counters)(machine), unsent };
            self.next = now + REPORT;
        }
        if is_stopped {
            return None;
        }
        if self.is_report {
            (self.observer)(self.last);
        }
        Some(self.next)
    }
}

/// Checks that the relay listens at one address of each IP version, and at an address of the group's version.
fn check(options: &RelayOptions) -> Result<(), RelayError> {
    let (ipv4, ipv6): (Vec<SocketAddr>, Vec<_>) = options.listen.iter().partition(|at| at.is_ipv4());
    if ipv4.is_empty() && ipv6.is_empty() {
        return Err(RelayError::NoAddress);
    }
    if let ([one, other, ..], _) | (_, [one, other, ..]) = (&ipv4[..], &ipv6[..]) {
        return Err(RelayError::ListenTwice(*one, *other));
    }
    let Some(RelayGroup { group, network: (network, _), .. }) = &options.group else { return Ok(()) };
    if !options.listen.iter().any(|at| at.is_ipv4() == group.is_ipv4()) {
        return Err(RelayError::GroupFamily(*group));
    }
    if network.is_ipv4() != group.is_ipv4() {
        return Err(RelayError::NetworkFamily(*network, *group));
    }
    Ok(())
}

fn interface(wanted: &str) -> Result<Interface, OpenError> {
    Ok(Interface::find(wanted)?)
}

/// Default UDP port of relays.
pub const RELAY_PORT: u16 = 7_289;

/// Link with many receivers, which get replies by multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayGroup {
    /// Group and port.
    pub group: SocketAddr,
    /// Name or address of the interface to send on.
    pub interface: String,
    /// Address of the link's network, of the group's IP version, and the length of the prefix in bits.
    pub network: (IpAddr, u8),
    /// Time to live.
    pub ttl: u8,
}

/// Options of a relay.
#[derive(Debug)]
pub struct RelayOptions {
    /// Configuration of the machine. The system's random numbers replace the seed; `group` replaces the links
    /// with many receivers.
    pub relay: RelayConfig,
    /// Addresses to listen at: at least one address, and at most one of each IP version. A host with several
    /// addresses on a link should name the address that receivers use, because receivers accept replies from
    /// no other address. Default: port [`RELAY_PORT`] of all addresses.
    pub listen: Vec<SocketAddr>,
    /// Link that is served by multicast. Default: no link.
    pub group: Option<RelayGroup>,
    /// Differentiated services code point of sent packets, 0 to 63. Default: 0.
    pub dscp: u8,
    /// Hook called for each datagram sent or received. Default: no hook.
    pub trace: Option<TraceHook>,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new(RelayConfig::new(RouterConfig::default(), Seed(0)))
    }
}

impl RelayOptions {
    /// Creates options for a relay with this configuration.
    pub fn new(relay: RelayConfig) -> Self {
        Self {
            relay,
            listen: vec![
                (Ipv4Addr::UNSPECIFIED, RELAY_PORT).into(),
                (Ipv6Addr::UNSPECIFIED, RELAY_PORT).into(),
            ],
            group: None,
            dscp: 0,
            trace: None,
        }
    }

    /// Returns the machine's configuration, with secret keys.
    pub(super) fn config(&self, hash_key: [u64; 2], seed: u64) -> RelayConfig {
        let link = |group: &RelayGroup| {
            let (network, prefix) = group.network;
            MulticastLink { network, prefix, channel: ChannelId::BASE }
        };
        let links = self.group.iter().map(link).collect();
        let relay = self.relay.clone().with_links(links).with_chance(hash_key, Seed(seed));
        relay.with_challenges(Some(system::random_key()))
    }
}
