//! A relay: requests of receivers go up, towards their source, and replies come down to all who asked, by
//! unicast UDP alone. Any number of relays form trees, and need nothing of the network between them. See
//! [`headwater_proto::bcfs::relay`] for what it does, and what strangers can do to it.

mod sim;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use headwater_proto::bcfs::RouterConfig;
use headwater_proto::bcfs::relay::{MulticastLink, Relay, RelayConfig, RelayCounters};
use headwater_proto::queue::ParameterError;
use headwater_proto::{ChannelId, Seed};

use crate::clock::{Clock, elapsed};
use crate::driver::TraceHook;
use crate::driver::{Application, DriverError, Hooks, UnicastPort, drive};
use crate::net::{Interface, OpenError, Poller, UnicastOptions, UnicastSocket};
use crate::system;
use crate::threads::StopHandle;

pub use sim::{SIM_RELAY_PORT, SimLink, SimRelayError, SimRelayOptions, SimRelayProgress, SimRelaySession};

/// Time between reports.
const REPORT: headwater_proto::Duration = headwater_proto::Duration::from_secs(1);

/// Why a relay does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// No address to listen at.
    #[error("a relay needs an address to listen at")]
    NoAddress,
    /// The group is of an IP version that it does not listen at.
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
    /// The queue of its links makes no sense.
    #[error("the queue of the links is wrong")]
    Queue(#[from] ParameterError),
    /// The system would not let it wait.
    #[error("the system has no file descriptor left")]
    Poller(#[source] std::io::Error),
    /// Its sockets failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// How far a relay is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayProgress {
    /// Since it started.
    pub elapsed: Duration,
    /// What it did.
    pub counters: RelayCounters,
    /// Datagrams that the system did not take.
    pub unsent: u64,
}

/// A relay with its sockets open.
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
    /// When an address is not ours or its port is taken, or an option makes no sense.
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

    /// Where it listens.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.port.local_addrs()
    }

    /// Stops it from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Relays until it is stopped, and tells each second how far it is.
    ///
    /// # Errors
    /// When its sockets failed.
    pub fn run(&mut self, observer: &mut dyn FnMut(RelayProgress)) -> Result<RelayProgress, RelayError> {
        let clock = Clock::start();
        let hooks =
            Hooks { trace: self.options.trace.as_mut(), loss: None, dscp: self.options.dscp, ttl: 64 };
        let mut watch = Watch {
            stop: self.stop.clone(),
            next: clock.now() + REPORT,
            last: RelayProgress::default(),
            observer,
        };
        drive(&mut self.relay, &mut self.port, &mut self.poller, clock, hooks, &mut watch)?;
        Ok(watch.last)
    }
}

struct Watch<'a> {
    stop: StopHandle,
    next: headwater_proto::Instant,
    last: RelayProgress,
    observer: &'a mut dyn FnMut(RelayProgress),
}

impl Application<Relay, UnicastPort> for Watch<'_> {
    fn event(&mut self, event: std::convert::Infallible) {
        match event {}
    }

    fn observe(
        &mut self,
        relay: &mut Relay,
        _port: &UnicastPort,
        unsent: u64,
        now: headwater_proto::Instant,
    ) -> Option<headwater_proto::Instant> {
        let is_stopped = self.stop.is_stopped();
        if is_stopped || now >= self.next {
            self.last = RelayProgress { elapsed: elapsed(now), counters: relay.counters(), unsent };
            self.next = now + REPORT;
        }
        if is_stopped {
            return None;
        }
        if self.last.elapsed == elapsed(now) {
            (self.observer)(self.last);
        }
        Some(self.next)
    }
}

/// That one address of an IP version is listened at, and a group's receivers can hear it.
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

/// UDP port that relays listen at unless told otherwise.
pub const RELAY_PORT: u16 = 7_289;

/// The options of all relays.
macro_rules! relay_setters {
    () => {
        /// Differentiated services code point of what it sends, 0 to 63. Default: 0.
        #[must_use]
        pub const fn with_dscp(mut self, dscp: u8) -> Self {
            self.dscp = dscp;
            self
        }

        /// Shows each packet sent and received.
        #[must_use]
        pub fn with_trace(mut self, trace: Option<TraceHook>) -> Self {
            self.trace = trace;
            self
        }
    };
}

pub(super) use relay_setters;

/// A link with many receivers, which get replies by multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayGroup {
    /// The group and its port.
    pub group: SocketAddr,
    /// Name or address of the interface that it is sent on.
    pub interface: String,
    /// An address of the link's network, of the group's IP version, and how many of its bits all addresses
    /// share.
    pub network: (IpAddr, u8),
    /// Time to live.
    pub ttl: u8,
}

/// How a relay is run.
pub struct RelayOptions {
    relay: RelayConfig,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) group: Option<RelayGroup>,
    pub(super) dscp: u8,
    pub(super) trace: Option<TraceHook>,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new(RelayConfig::new(RouterConfig::default(), Seed(0)))
    }
}

impl RelayOptions {
    /// A relay with this configuration, but for its chance, which is the system's, and its links with many
    /// receivers: see [`RelayOptions::with_group`].
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

    /// Addresses to listen at, at least one, and at most one of each IP version. A host of several addresses
    /// on one link should name the one that receivers use: they take replies from no other. Default: port
    /// [`RELAY_PORT`] of all addresses.
    #[must_use]
    pub fn with_listen(mut self, listen: Vec<SocketAddr>) -> Self {
        self.listen = listen;
        self
    }

    /// A link that is served by multicast. Default: none.
    #[must_use]
    pub fn with_group(mut self, group: Option<RelayGroup>) -> Self {
        self.group = group;
        self
    }

    relay_setters!();

    /// The machine's, with a key that nobody knows.
    pub(super) fn config(&self, hash_key: [u64; 2], seed: u64) -> RelayConfig {
        let link = |group: &RelayGroup| {
            let (network, prefix) = group.network;
            MulticastLink { network, prefix, channel: ChannelId::BASE }
        };
        let links = self.group.iter().map(link).collect();
        self.relay.clone().with_links(links).with_chance(hash_key, Seed(seed))
    }
}

impl fmt::Debug for RelayOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayOptions")
            .field("listen", &self.listen)
            .field("relay", &self.relay)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
