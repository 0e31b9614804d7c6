//! Port without sockets: for content by HTTP alone.

use std::io;
use std::net::SocketAddr;

use headwater_proto::control::Membership;
use headwater_proto::{ChannelId, InterfaceId, described};

use super::listener::{ListenOptions, Listener};
use super::session::{ContentPort, ReceiveError};
use super::update::ReceiveStarted;
use crate::driver::{Port, datagrams};
use crate::net::{
    BorrowedFd, BufferSize, LinkChange, MembershipError, ReceiverCounters, RecvBatch, Run, SendError,
};
use crate::threads::stoppable;

/// Port that receives nothing.
#[derive(Debug)]
pub(super) struct NoPort;

/// Opens a listener that hears nothing. The options must be the options of another path's listener.
///
/// # Errors
/// If the process has no file descriptor left.
pub(super) fn open(options: ListenOptions) -> Result<Listener<NoPort>, ReceiveError> {
    options.check()?;
    let (poller, stop) = stoppable()?;
    Ok(Listener { options, socket: NoPort, poller, stop })
}

impl ContentPort for NoPort {
    type Control = described::DescribedReceiver;

    fn started(&self, options: &ListenOptions) -> ReceiveStarted {
        let receive_buffer = BufferSize { asked_bytes: 0, granted_bytes: 0 };
        ReceiveStarted {
            group: options.group,
            via: None,
            amt: None,
            source: None,
            interface: None,
            receive_buffer,
        }
    }

    fn control(&self, options: &ListenOptions) -> described::DescribedReceiver {
        options.control()
    }

    fn counters(&self) -> ReceiverCounters {
        ReceiverCounters::default()
    }

    fn leave_all(&mut self) {}
}

impl Port for NoPort {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }

    fn receive(&mut self, _batch: &mut RecvBatch) -> io::Result<usize> {
        Ok(0)
    }

    fn change(&mut self, _membership: Membership) -> Result<(), MembershipError> {
        Ok(())
    }

    fn address(&self, _channel: ChannelId) -> Option<SocketAddr> {
        None
    }

    fn local(&self, _interface: InterfaceId, peer: SocketAddr) -> SocketAddr {
        peer
    }

    fn send(&mut self, _egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        Ok(datagrams(runs))
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        None
    }
}
