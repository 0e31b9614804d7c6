//! Where a session is asked for, packet by packet: sockets at addresses of this machine, and what drives a
//! machine on them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_proto::Machine;

use super::error::SendError;
use super::link::LinkOptions;
use crate::clock::Clock;
use crate::driver::{Application, Hooks, UnicastPort, drive};
use crate::net::{Interface, OpenError, Poller, UnicastOptions, UnicastSocket};
use crate::stop::{StopHandle, stoppable};

/// UDP port at which sources are asked unless told otherwise.
pub const SOURCE_PORT: u16 = 7_288;

/// The MTU of paths of which nothing is known, and whose it is.
const MTU_USUAL: (u32, &str) = (1_500, "Ethernet, which counts where no interface's address is listened at");

/// Time to live of what it sends, for the trace: the system's.
const TTL: u8 = 64;

/// Open sockets, and what drives a machine on them.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) port: UnicastPort,
    /// Where it is asked.
    pub(super) listen: Vec<SocketAddr>,
    poller: Poller,
    pub(super) stop: StopHandle,
}

impl Desk {
    /// Opens a socket at each address; without any, at all of this machine: of both IP versions, where it has
    /// both. In a rehearsal no port is taken: sockets have any free one.
    ///
    /// # Errors
    /// When an address is not ours, or its port is taken.
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
                // Who asks by IPv6 would get what another program sends.
                Err(OpenError::Bind { address, source }) if source.kind() == ErrorKind::AddrInUse => {
                    return Err(OpenError::Bind { address, source }.into());
                }
                // A machine may do without.
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

    /// Bytes of IP and UDP headers, at the most.
    pub(super) fn header_bytes(&self) -> u32 {
        if self.port.local_addrs().iter().any(SocketAddr::is_ipv6) { 48 } else { 28 }
    }

    /// The least MTU of the interfaces whose addresses it listens at, and whose it is. What is sent is not
    /// cut on the way.
    pub(super) fn mtu(&self) -> (u32, String) {
        let of = |at: SocketAddr| {
            let interface = Interface::find(&at.ip().to_string()).ok();
            interface.and_then(|interface| Some((interface.mtu()?, interface.name)))
        };
        let usual = || (MTU_USUAL.0, MTU_USUAL.1.to_owned());
        let each = self.port.local_addrs().into_iter().map(|at| of(at).unwrap_or_else(usual));
        each.min().unwrap_or_else(usual)
    }

    /// Drives `machine` until `application` ends it.
    ///
    /// # Errors
    /// When its sockets fail.
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
