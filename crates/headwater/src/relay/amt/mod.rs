//! Relays of AMT (RFC 7450): receive groups natively on one interface, and send copies by unicast to the
//! gateways that have joined the groups. See [`headwater_proto::amt`] for the rules and the limits on
//! strangers.

mod port;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_proto::Seed;
use headwater_proto::amt::{ADDRESSES_MAX, NATIVE_PORTS_MAX, Relay, RelayConfig, RelayCounters};
use headwater_proto::bcfs::relay::EgressShape;
use headwater_proto::queue::ParameterError;

use self::port::AmtPorts;
use super::{RelayProgress, Watch};
use crate::driver::{DriverError, Hooks, TraceHook, drive};
use crate::net::{GroupsSocket, Interface, InterfaceError, OpenError, Poller, UnicastOptions, UnicastSocket};
use crate::session::Session;
use crate::system;
use crate::threads::{StopHandle, stoppable};

/// Default UDP port of relays of AMT.
pub const AMT_PORT: u16 = headwater_wire::amt::PORT;

/// Error that prevents a relay of AMT or ends the relay.
#[derive(Debug, thiserror::Error)]
pub enum AmtRelayError {
    /// Too few or too many ports.
    #[error("a relay of AMT forwards groups of 1 to {NATIVE_PORTS_MAX} UDP ports")]
    Ports,
    /// Too few or too many addresses.
    #[error("a relay of AMT listens at 1 to {ADDRESSES_MAX} addresses of this host, not at {0}")]
    Addresses(usize),
    /// The interface is missing.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A socket could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The parameters of the gateways' queue are invalid.
    #[error("the parameters of the gateways' queue are invalid")]
    Queue(#[from] ParameterError),
    /// A socket failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// Progress of a relay of AMT.
pub type AmtRelayProgress = RelayProgress<RelayCounters>;

/// Options of a relay of AMT.
#[derive(Debug)]
pub struct AmtRelayOptions {
    /// Interface that groups are received on, by name or address.
    pub interface: String,
    /// UDP ports of the groups that are forwarded: a report of a gateway names a group and no port.
    pub ports: Vec<u16>,
    /// Addresses to listen at, at most 64. An unspecified address stands for the addresses that this host has
    /// at the start: answers must leave by the address that was asked. Default: port [`AMT_PORT`] of all
    /// addresses.
    pub listen: Vec<SocketAddr>,
    /// Rate to each gateway in bit/s with headers, and the queue. Default: no limit.
    pub shape: Option<EgressShape>,
    /// Differentiated services code point of sent packets, 0 to 63. Default: 0.
    pub dscp: u8,
    /// Hook called for each datagram sent or received. Default: no hook.
    pub trace: Option<TraceHook>,
}

impl AmtRelayOptions {
    /// Creates options for a relay that forwards groups of these UDP ports.
    pub fn new(interface: impl Into<String>, ports: Vec<u16>) -> Self {
        Self {
            interface: interface.into(),
            ports,
            listen: vec![(Ipv4Addr::UNSPECIFIED, AMT_PORT).into(), (Ipv6Addr::UNSPECIFIED, AMT_PORT).into()],
            shape: None,
            dscp: 0,
            trace: None,
        }
    }
}

/// Relay of AMT with open sockets. Runs until the session is stopped, and reports progress each second.
#[derive(Debug)]
pub struct AmtRelaySession {
    options: AmtRelayOptions,
    relay: Relay,
    ports: AmtPorts,
    poller: Poller,
    stop: StopHandle,
}

impl AmtRelaySession {
    /// Opens the sockets. Nothing is joined yet.
    ///
    /// # Errors
    /// If the interface is missing, a port is taken, or an option is invalid.
    pub fn open(options: AmtRelayOptions) -> Result<Self, AmtRelayError> {
        if !(1..=NATIVE_PORTS_MAX).contains(&options.ports.len()) {
            return Err(AmtRelayError::Ports);
        }
        let interface = Interface::find(&options.interface)?;
        let listen = addresses(&options.listen)?;
        if !(1..=ADDRESSES_MAX).contains(&listen.len()) {
            return Err(AmtRelayError::Addresses(listen.len()));
        }
        let config =
            RelayConfig::new(options.ports.clone(), system::random_key(), Seed(system::random_u64()))
                .with_addresses(listen.iter().map(SocketAddr::ip).collect())
                .with_shape(options.shape)
                .on_loopback(interface.loopback);
        let unicast = UnicastOptions { dscp: options.dscp, fragments: true, ..UnicastOptions::default() };
        let sockets = listen.iter().map(|at| UnicastSocket::open(*at, &unicast));
        let tunnels = sockets.collect::<Result<Vec<_>, _>>()?;
        let groups = GroupsSocket::open(interface, &options.ports)?;
        let (poller, stop) = stoppable()?;
        let relay = Relay::new(config)?;
        Ok(Self { options, relay, ports: AmtPorts::new(tunnels, groups), poller, stop })
    }

    /// Returns the addresses that the relay listens at.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.ports.local_addrs()
    }
}

impl Session for AmtRelaySession {
    type Update = AmtRelayProgress;
    type Summary = AmtRelayProgress;
    type Error = AmtRelayError;

    fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    fn run(&mut self, observer: &mut dyn FnMut(AmtRelayProgress)) -> Result<AmtRelayProgress, AmtRelayError> {
        let hooks =
            Hooks { trace: self.options.trace.as_mut(), loss: None, dscp: self.options.dscp, ttl: 64 };
        let mut watch = Watch::new(self.stop.clone(), Relay::counters, observer);
        drive(&mut self.relay, &mut self.ports, &mut self.poller, watch.clock, hooks, &mut watch)?;
        Ok(watch.last)
    }

    fn is_progress(_update: &AmtRelayProgress) -> bool {
        true
    }
}

/// Returns the addresses to listen at, with an unspecified address replaced by the addresses of this host.
fn addresses(listen: &[SocketAddr]) -> Result<Vec<SocketAddr>, InterfaceError> {
    let mut addresses = Vec::new();
    for at in listen {
        if !at.ip().is_unspecified() {
            addresses.push(*at);
            continue;
        }
        let is_fit = |address: &IpAddr| {
            let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            address.is_ipv4() == at.is_ipv4() && !is_link_local
        };
        let own = Interface::list()?.into_iter().flat_map(|interface| interface.addresses);
        addresses.extend(own.filter(is_fit).map(|address| SocketAddr::new(address, at.port())));
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}
