//! Socket of a session on request, and an optional group for replies.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use headwater_proto::control::Membership;
use headwater_proto::rainbow::{Overtaking, WindowConfig, carrier};
use headwater_proto::{ChannelId, Duration, InterfaceId, Seed};
use tracing::warn;

use super::listener::{ListenOptions, Listener};
use super::options::PullOptions;
use super::session::{ContentPort, ReceiveError};
use super::update::ReceiveStarted;
use crate::driver::Port;
use crate::net::{
    AsFd, BorrowedFd, Channels, Interface, LinkChange, MembershipError, ReceiverCounters, ReceiverOptions,
    ReceiverSocket, RecvBatch, Run, SendError, UnicastOptions, UnicastSocket,
};
use crate::system;
use crate::threads::stoppable;

/// Receive buffer in bytes: the packets of a window of the most labels that a busy machine may leave
/// waiting.
const BUFFER_BYTES: usize = 16 << 20;
/// Maximum time until a source or relay that was away is asked again.
const TIMEOUT_MOST: Duration = Duration::from_secs(3);

/// Socket that sends requests, and the socket of the reply group.
#[derive(Debug)]
pub(super) struct AskingPort {
    /// Address that requests are sent to.
    upstream: SocketAddr,
    unicast: UnicastSocket,
    group: Option<ReceiverSocket>,
    /// Whether the last turn read the group's socket first; the two sockets take turns.
    is_groups_turn: bool,
}

/// Opens the sockets. Nothing is requested yet.
///
/// # Errors
/// If an option is out of range, or no interface can receive from the group.
pub(super) fn open(options: ListenOptions, ask: &PullOptions) -> Result<Listener<AskingPort>, ReceiveError> {
    options.check()?;
    let (source, upstream) = (options.group, ask.upstream);
    let is_host = |address: SocketAddr| {
        address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
    };
    if !is_host(source) || !is_host(upstream) {
        return Err(ReceiveError::Nobody(source, upstream));
    }
    let any: SocketAddr = match upstream {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let asked = UnicastOptions { buffer_bytes: BUFFER_BYTES, ..UnicastOptions::default() };
    let unicast = UnicastSocket::open(any, &asked)?;
    // Connecting sends nothing: the kernel reports whether a route exists. A route may appear later, like
    // the relay or source.
    let way = UdpSocket::bind(any).and_then(|socket| socket.connect(upstream));
    if let Err(error) = way {
        warn!("requests cannot be sent to {upstream}: {error}; they are tried again and again");
    }
    let group = match &ask.group {
        None => None,
        Some((group, interface)) => {
            let interface = interface.as_deref().map(Interface::find).transpose()?;
            // Other hosts on that network could otherwise create replies without forging an address.
            let source = Some(upstream.ip());
            let asked = ReceiverOptions { interface, source, ..ReceiverOptions::default() };
            Some(ReceiverSocket::open(&Channels::new(*group, 1)?, &asked)?)
        }
    };
    let (poller, stop) = stoppable()?;
    let socket = AskingPort { upstream, unicast, group, is_groups_turn: false };
    Ok(Listener { options, socket, poller, stop })
}

impl ContentPort for AskingPort {
    type Control = carrier::RainbowCarrierReceiver;

    fn started(&self, options: &ListenOptions) -> ReceiveStarted {
        ReceiveStarted {
            group: options.group,
            via: Some(self.upstream),
            amt: None,
            source: Some(options.group.ip()),
            interface: None,
            receive_buffer: self.unicast.receive_buffer(),
        }
    }

    fn control(&self, options: &ListenOptions) -> carrier::RainbowCarrierReceiver {
        let window = WindowConfig::new()
            .with_labels_max(WindowConfig::LABELS_MAX)
            .with_overtaking(Overtaking::Longest)
            .with_timeout_most(TIMEOUT_MOST)
            .with_spread(Some(Seed(system::random_u64())));
        let config = carrier::RainbowCarrierReceiverConfig::new(options.group, self.upstream)
            .with_window(window)
            .with_words()
            .with_max_rate(options.max_rate)
            .with_channel(self.group.is_some().then_some(ChannelId::BASE));
        carrier::RainbowCarrierReceiver::new(config)
    }

    fn counters(&self) -> ReceiverCounters {
        let of_group = self.group.as_ref().map(ReceiverSocket::counters).unwrap_or_default();
        ReceiverCounters { kernel_drops: of_group.kernel_drops + self.unicast.kernel_drops(), ..of_group }
    }

    fn leave_all(&mut self) {
        if let Some(group) = &mut self.group {
            group.leave_all();
        }
    }
}

impl Port for AskingPort {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.unicast.as_fd()).chain(self.group.iter().flat_map(ReceiverSocket::fds))
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        let Some(group) = &mut self.group else { return self.unicast.recv(batch) };
        self.is_groups_turn = !self.is_groups_turn;
        let first = if self.is_groups_turn { group.recv(batch)? } else { self.unicast.recv(batch)? };
        if first > 0 {
            return Ok(first);
        }
        if self.is_groups_turn { self.unicast.recv(batch) } else { group.recv(batch) }
    }

    fn change(&mut self, membership: Membership) -> Result<(), MembershipError> {
        self.group.as_mut().map_or(Ok(()), |group| Port::change(group, membership))
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.group.as_ref()?.channels().address(channel)
    }

    fn local(&self, _interface: InterfaceId, _peer: SocketAddr) -> SocketAddr {
        self.unicast.local_addr()
    }

    fn send(&mut self, _egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        Ok(self.unicast.send(runs))
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        // Lost requests are sent again.
        self.group.as_mut().and_then(ReceiverSocket::inspect_link)
    }
}
