//! Where a session is asked for, packet by packet: sockets at addresses of this machine, and what drives a machine on them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_proto::Machine;

use super::error::SendError;
use super::link::LinkOptions;
use crate::clock::Clock;
use crate::driver::{Application, Hooks, UnicastPort, drive};
use crate::net::{OpenError, Poller, UnicastOptions, UnicastSocket};
use crate::stop::{StopHandle, stoppable};

/// UDP port at which sources are asked unless told otherwise.
pub const SOURCE_PORT: u16 = 7_288;

/// Time to live of what it sends, for the trace: the system's.
const TTL: u8 = 64;

/// Open sockets, and what drives a machine on them.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) port: UnicastPort,
    poller: Poller,
    pub(super) stop: StopHandle,
}

impl Desk {
    /// Opens a socket at each address; without any, at all of this machine: of both IP versions, where it has both.
    ///
    /// # Errors
    /// When an address is not ours, or its port is taken.
    pub(super) fn open(listen: &[SocketAddr], options: &LinkOptions) -> Result<Self, SendError> {
        let asked = UnicastOptions { dscp: options.dscp, ..UnicastOptions::default() };
        let open = |at: SocketAddr| UnicastSocket::open(at, &asked);
        let sockets = if listen.is_empty() {
            let first = open((Ipv4Addr::UNSPECIFIED, SOURCE_PORT).into())?;
            // A machine may do without.
            let second = open((Ipv6Addr::UNSPECIFIED, SOURCE_PORT).into());
            std::iter::once(first).chain(second.ok()).collect()
        } else {
            listen.iter().copied().map(open).collect::<Result<Vec<_>, OpenError>>()?
        };
        let (poller, stop) = stoppable()?;
        Ok(Self { port: UnicastPort::new(sockets, None), poller, stop })
    }

    /// Bytes of IP and UDP headers, at the most.
    pub(super) fn header_bytes(&self) -> u32 {
        if self.port.local_addrs().iter().any(SocketAddr::is_ipv6) { 48 } else { 28 }
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
