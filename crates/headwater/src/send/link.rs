//! Options and socket common to sending files, streams and messages.
//!
//! Sessions on request have sockets at addresses of this machine and a driver for these sockets.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use headwater_proto::Machine;

use super::error::SendError;
use crate::clock::Clock;
use crate::driver::TraceHook;
use crate::driver::{Application, DriverError, Hooks, UnicastPort, drive};
use crate::net::{
    Channels, Interface, OpenError, Poller, SenderOptions, SenderSocket, UnicastOptions, UnicastSocket,
};
use crate::threads::{StopHandle, stoppable};

/// Options of sending to groups, common to files, streams and messages.
#[derive(Debug)]
pub struct LinkOptions {
    /// Group and port of the base channel.
    pub group: SocketAddr,
    /// Interface to send on, by name or address. Default: the interface of the kernel's route to the group,
    /// but never a loopback interface.
    pub interface: Option<String>,
    /// Number of routers that a packet may pass, plus 1. Default: 1, so that no packet leaves the link.
    pub ttl: u8,
    /// Differentiated services code point, 0 to 63 (RFC 2474). Default: 0, best effort.
    pub dscp: u8,
    /// Whether receivers on this machine get the packets. Default: yes.
    pub loopback: bool,
    /// Whether the kernel may cut runs of datagrams (segmentation offload), if supported. Offload saves most
    /// of the cost, but sends each run as a single burst. Default: yes.
    pub offload: bool,
    /// Maximum time that the interface may be missing, down or unable to send before a session that has
    /// already sent packets fails. Packets due meanwhile are lost to all receivers. Default: 60 s.
    pub outage_max: Duration,
    /// Hook called for each datagram sent or received. Default: no hook.
    pub trace: Option<TraceHook>,
}

impl LinkOptions {
    /// Creates default options for a group.
    pub const fn new(group: SocketAddr) -> Self {
        Self {
            group,
            interface: None,
            ttl: 1,
            dscp: 0,
            loopback: true,
            offload: true,
            outage_max: Duration::from_secs(60),
            trace: None,
        }
    }
}

impl From<SocketAddr> for LinkOptions {
    fn from(group: SocketAddr) -> Self {
        Self::new(group)
    }
}

impl LinkOptions {
    /// Returns the interface to send on; `None` if no interface can send to the group.
    pub(super) fn interface(&self) -> Option<Interface> {
        match &self.interface {
            Some(wanted) => Interface::find(wanted).ok(),
            None => Interface::default_for(self.group.ip()).ok(),
        }
    }
}

/// Open socket, and the poller for driving a machine.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: SenderSocket,
    pub(crate) poller: Poller,
    pub(crate) stop: StopHandle,
}

impl Link {
    /// Opens a socket for `channels` channels, counting up from the group, that sends from `port`; with 0,
    /// from any free port.
    ///
    /// # Errors
    /// If an option is out of range, or no interface can send to the group.
    pub(crate) fn open(options: &LinkOptions, channels: u16, port: u16) -> Result<Self, SendError> {
        let channels = Channels::new(options.group, channels)?;
        let interface = options.interface.as_deref().map(Interface::find).transpose()?;
        let asked = SenderOptions {
            interface,
            port,
            ttl: options.ttl,
            dscp: options.dscp,
            loopback: options.loopback,
            outage_max: options.outage_max,
            ..SenderOptions::default()
        };
        let mut socket = SenderSocket::open(&channels, &asked)?;
        let (poller, stop) = stoppable()?;
        socket.set_segmentation(options.offload);
        socket.set_stop(stop.flag());
        Ok(Self { socket, poller, stop })
    }

    /// Returns the bytes of IP and UDP headers.
    pub(crate) fn header_bytes(&self) -> u32 {
        const UDP_BYTES: u32 = 8;
        UDP_BYTES + if self.socket.local_addr().is_ipv6() { 40 } else { 20 }
    }

    /// Drives `machine` until `application` ends the run. The options must be the options of
    /// [`open`](Self::open).
    ///
    /// # Errors
    /// If the network fails.
    pub(crate) fn drive<M: Machine>(
        &mut self,
        options: &mut LinkOptions,
        machine: &mut M,
        clock: Clock,
        application: &mut impl Application<M, SenderSocket>,
    ) -> Result<(), SendError> {
        let hooks = Hooks { trace: options.trace.as_mut(), loss: None, dscp: options.dscp, ttl: options.ttl };
        drive(machine, &mut self.socket, &mut self.poller, clock, hooks, application)
            .map_err(|source| failed(options, source))
    }

    /// Waits until another thread wakes the poller.
    ///
    /// # Errors
    /// If waiting fails.
    pub(crate) fn wait(&mut self, options: &LinkOptions) -> Result<(), SendError> {
        let waited = self.poller.wait([], None);
        waited.map(|_| ()).map_err(|source| failed(options, DriverError::Read(source)))
    }
}

const fn failed(options: &LinkOptions, source: DriverError) -> SendError {
    SendError::Network { group: options.group.ip(), source }
}

/// Default UDP port for requests to sources.
pub const SOURCE_PORT: u16 = 7_288;

/// MTU of an unknown path, and the name shown as the interface.
pub(super) const MTU_USUAL: (u32, &str) =
    (1_500, "Ethernet, which counts where no interface's address is listened at");

/// Time to live of sent packets, for the trace: the system's default.
const TTL: u8 = 64;

/// Open sockets, and the poller for driving a machine.
#[derive(Debug)]
pub(super) struct PullEndpoint {
    pub(super) port: UnicastPort,
    /// Addresses at which requests are accepted.
    pub(super) listen: Vec<SocketAddr>,
    poller: Poller,
    pub(super) stop: StopHandle,
}

impl PullEndpoint {
    /// Opens a socket at each address. Without addresses, the sockets listen at all addresses of this
    /// machine, for both IP versions if available. A rehearsal takes no request port: sockets bind to any
    /// free port.
    ///
    /// # Errors
    /// If an address does not belong to this machine, or the port is taken.
    pub(super) fn open(
        listen: &[SocketAddr],
        options: &LinkOptions,
        is_rehearsal: bool,
    ) -> Result<Self, SendError> {
        let asked = UnicastOptions { dscp: options.dscp, ..UnicastOptions::default() };
        let port = |at: SocketAddr| if is_rehearsal { 0 } else { at.port() };
        let open = |at: SocketAddr| UnicastSocket::open((at.ip(), port(at)).into(), &asked);
        let sockets: Vec<_> = if listen.is_empty() {
            let first = open((Ipv4Addr::UNSPECIFIED, SOURCE_PORT).into())?;
            let second = match open((Ipv6Addr::UNSPECIFIED, SOURCE_PORT).into()) {
                // Requests by IPv6 would otherwise reach another program.
                Err(OpenError::Bind { address, source }) if source.kind() == ErrorKind::AddrInUse => {
                    return Err(OpenError::Bind { address, source }.into());
                }
                // A machine may lack IPv6.
                second => second.ok(),
            };
            std::iter::once(first).chain(second).collect()
        } else {
            listen.iter().copied().map(open).collect::<Result<Vec<_>, OpenError>>()?
        };
        let (poller, stop) = stoppable()?;
        let port = UnicastPort::new(sockets, None);
        let mut bound = port.local_addrs();
        if is_rehearsal {
            let wanted = listen.iter().map(SocketAddr::port).chain(std::iter::repeat(SOURCE_PORT));
            bound.iter_mut().zip(wanted).for_each(|(at, wanted)| at.set_port(wanted));
        }
        Ok(Self { port, listen: bound, poller, stop })
    }

    /// Returns the maximum bytes of IP and UDP headers.
    pub(super) fn header_bytes(&self) -> u32 {
        if self.port.local_addrs().iter().any(SocketAddr::is_ipv6) { 48 } else { 28 }
    }

    /// Returns the least MTU of the interfaces with listening addresses, and the name of that interface.
    /// Sent packets are not fragmented on the path.
    pub(super) fn mtu(&self) -> (u32, String) {
        let of = |at: SocketAddr| {
            let interface = Interface::find(&at.ip().to_string()).ok();
            interface.and_then(|interface| Some((interface.mtu()?, interface.name)))
        };
        let usual = || (MTU_USUAL.0, MTU_USUAL.1.to_owned());
        let each = self.port.local_addrs().into_iter().map(|at| of(at).unwrap_or_else(usual));
        each.min().unwrap_or_else(usual)
    }

    /// Drives `machine` until `application` ends the run.
    ///
    /// # Errors
    /// If the sockets fail.
    pub(super) fn drive<M: Machine>(
        &mut self,
        options: &mut LinkOptions,
        machine: &mut M,
        clock: Clock,
        application: &mut impl Application<M, UnicastPort>,
    ) -> Result<(), SendError> {
        let hooks = Hooks { trace: options.trace.as_mut(), loss: None, dscp: options.dscp, ttl: TTL };
        drive(machine, &mut self.port, &mut self.poller, clock, hooks, application)
            .map_err(|source| SendError::Asked { source })
    }
}
