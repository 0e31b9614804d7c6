//! Receiving socket: joins and leaves channels, reads arriving datagrams, and sends requests to senders by
//! unicast.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_proto::{ChannelId, Ecn};
use socket2::InterfaceIndexOrAddress;
use tracing::debug;

use super::batch::{IncomingMessage, RecvBatch};
use super::channels::Channels;
use super::descriptor::{AsFd, BorrowedFd};
use super::endpoint::{BufferSize, Endpoint, OpenError};
use super::interface::Interface;
use super::link::{LinkChange, LinkState, LinkWatch};
use super::query::QuerySocket;
use super::sender::Run;
use super::sys::{self, MembershipChange, is_exhausted};

/// Options of a receiving socket.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Interface to receive on. Default: the interface of the kernel's route to the group.
    pub interface: Option<Interface>,
    /// Receive from this address only (source-specific multicast, RFC 4607). Default: from any source.
    pub source: Option<IpAddr>,
    /// Receive buffer in bytes. Default: 32 MiB, about a second of 150 Mbit/s in full datagrams, or 60 ms of
    /// 2.5 Gbit/s: as long as a busy machine may keep a receiver from running. The buffer takes memory only
    /// while datagrams wait.
    pub receive_buffer_bytes: usize,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self { interface: None, source: None, receive_buffer_bytes: 32 << 20 }
    }
}

/// Reasons why a channel could not be joined or left.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The session has no such channel.
    #[error("there is no channel {channel}: the session has {count}, counted from 0")]
    NoSuchChannel {
        /// The requested channel.
        channel: u16,
        /// Number of channels of the session.
        count: u16,
    },
    /// Even a new socket cannot join.
    #[error(
        "the kernel lets a socket join no group ({group}); raise net.ipv4.igmp_max_memberships or net.core.optmem_max"
    )]
    Exhausted {
        /// The group.
        group: IpAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot {attempt} group {group} on {interface}; is the interface still up?")]
    Refused {
        /// `join` or `leave`.
        attempt: &'static str,
        /// The group.
        group: IpAddr,
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The channel needs one more socket, which could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Counters of a receiving socket since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Datagrams delivered to the caller.
    pub datagrams: u64,
    /// Payload bytes of the datagrams.
    pub bytes: u64,
    /// Delivered datagrams that a router marked with congestion experienced (RFC 3168).
    pub marked: u64,
    /// Datagrams dropped because their destination is no group of the session.
    pub foreign_group: u64,
    /// Datagrams dropped because their source is not the requested source.
    pub foreign_source: u64,
    /// Messages dropped by the kernel, mostly because the receive buffer was full. A message is a datagram; a
    /// run that the kernel coalesced (GRO, up to 64 datagrams) counts once.
    pub kernel_drops: u64,
}

/// Reads in a row in which no datagram of ours comes, until later datagrams of ours wait no longer.
const READS_MAX: usize = 8;

/// Receives the joined channels. A `ReceiverSocket` may hold several kernel sockets, as the kernel limits the
/// memberships of each. A group is joined on exactly one socket, so that each datagram arrives once.
#[derive(Debug)]
pub struct ReceiverSocket {
    channels: Channels,
    options: ReceiverOptions,
    interface: Interface,
    link: LinkWatch,
    receive_buffer: BufferSize,
    /// At least one socket. Grows to the most memberships ever held at the same time, and does not shrink.
    sockets: Vec<MemberSocket>,
    /// By channel.
    memberships: Vec<Option<Membership>>,
    /// Source of the session as heard, where no source was given.
    expected: Option<IpAddr>,
    asking: QuerySocket,
    counters: ReceiverCounters,
    /// Payload bytes of delivered datagrams by channel.
    channel_bytes: Vec<u64>,
}

/// Membership of a joined channel.
#[derive(Clone, Copy, Debug)]
struct Membership {
    /// Index in `sockets` of the socket that has joined the channel.
    socket: usize,
    /// The only source.
    source: Option<IpAddr>,
}

#[derive(Debug)]
struct MemberSocket {
    endpoint: Endpoint,
    /// The socket has refused a membership for want of room, and has left no channel since.
    full: bool,
}

impl ReceiverSocket {
    /// Opens the socket on the groups' port, which other receivers of this machine may share. No channel is
    /// joined yet.
    ///
    /// # Errors
    /// When there is no such interface, another process holds the port without sharing, or the source's IP
    /// version differs from the groups'.
    pub fn open(channels: &Channels, options: &ReceiverOptions) -> Result<Self, OpenError> {
        let group = channels.base().ip();
        if let Some(from) = options.source.filter(|from| from.is_ipv4() != group.is_ipv4()) {
            return Err(OpenError::SourceFamily { from, group });
        }
        let interface = match &options.interface {
            Some(interface) => interface.clone(),
            None => Interface::default_for(group)?,
        };
        let (socket, receive_buffer) = MemberSocket::open(channels, options)?;
        debug!(
            %group, port = channels.port(), channels = channels.count(), interface = %interface,
            source = ?options.source, ?receive_buffer, "opened a receiving socket"
        );
        Ok(Self {
            channels: *channels,
            options: options.clone(),
            interface,
            link: LinkWatch::new(None),
            receive_buffer,
            sockets: vec![socket],
            memberships: vec![None; usize::from(channels.count())],
            expected: None,
            asking: QuerySocket::new(any_address(channels)),
            counters: ReceiverCounters::default(),
            channel_bytes: vec![0; usize::from(channels.count())],
        })
    }

    /// Sends datagrams by unicast. Returns the number of datagrams that the kernel refused: the machine
    /// repeats a lost request.
    ///
    /// # Errors
    /// When the socket for requests cannot be opened.
    pub fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, OpenError> {
        self.asking.send(runs)
    }

    /// Joins a channel; joining a joined channel changes nothing. Opens another socket when no existing
    /// socket can join more groups.
    ///
    /// # Errors
    /// [`MembershipError`]. The channel is then not joined.
    pub fn join(&mut self, channel: ChannelId) -> Result<(), MembershipError> {
        let group = self.group(channel)?;
        if self.memberships[usize::from(channel.0)].is_some() {
            return Ok(());
        }
        let source = self.source_of(channel);
        for index in 0..self.sockets.len() {
            if self.sockets[index].full {
                continue;
            }
            match self.join_on(&self.sockets[index].endpoint, group, source) {
                Ok(()) => {
                    self.memberships[usize::from(channel.0)] = Some(Membership { socket: index, source });
                    return Ok(());
                }
                Err(error) if is_exhausted(&error) => self.sockets[index].full = true,
                Err(source) => return Err(self.refused("join", group, source)),
            }
        }
        self.join_on_another(channel, group, source)
    }

    /// Leaves a channel; leaving a channel that is not joined changes nothing. Datagrams that arrived before
    /// may still be read.
    ///
    /// # Errors
    /// [`MembershipError`]. The channel then counts as left: its interface is gone.
    pub fn leave(&mut self, channel: ChannelId) -> Result<(), MembershipError> {
        let group = self.group(channel)?;
        let Some(Membership { socket, source }) = self.memberships[usize::from(channel.0)].take() else {
            return Ok(());
        };
        self.sockets[socket].full = false;
        let socket = &self.sockets[socket].endpoint.socket;
        let result = match (group, source) {
            (_, Some(source)) => {
                sys::change_source(socket, &self.interface, (group, source), MembershipChange::Leave)
            }
            (IpAddr::V4(group), None) => {
                socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(self.interface.index))
            }
            (IpAddr::V6(group), None) => socket.leave_multicast_v6(&group, self.interface.index),
        };
        result.map_err(|source| self.refused("leave", group, source))
    }

    /// Leaves all channels.
    pub fn leave_all(&mut self) {
        for channel in (0..self.channels.count()).map(ChannelId) {
            // The channel counts as left despite the error: the interface is gone.
            let _refused = self.leave(channel);
        }
    }

    /// Sets the source by which channels other than the base are joined from now on (source-specific
    /// multicast), so that routers build and prune the path from that source alone; `None` for any. Existing
    /// memberships stay unchanged. No effect if the options name a source.
    pub fn expect_source(&mut self, source: Option<IpAddr>) {
        self.expected = source;
    }

    /// Checks whether the interface still exists, and repeats all joins on an interface that came back.
    /// Returns a change of state. Lists the interfaces from the kernel: call once a second, not for each
    /// packet.
    pub fn inspect_link(&mut self) -> Option<LinkChange> {
        let inspection = self.link.inspect_link(&self.interface)?;
        let mut state = inspection.state;
        if let Some(renewed) = inspection.renewed
            && !self.join_again(renewed)
        {
            // The interface went away again: the next inspection reports the loss.
            state = LinkState::Gone;
        }
        self.link.on_state(&self.interface, state)
    }

    /// Whether a channel is joined.
    pub fn is_joined(&self, channel: ChannelId) -> bool {
        self.memberships.get(usize::from(channel.0)).is_some_and(Option::is_some)
    }

    /// Replaces the contents of `batch` by waiting datagrams, in the order of arrival. The batch keeps later
    /// datagrams, and serves this socket alone. Returns the number of datagrams. Never blocks.
    /// On 0 wait for readability; more datagrams may be waiting after any other result.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        for _ in 0..READS_MAX {
            batch.turn();
            self.read(batch)?;
            batch.merge();
            if !batch.is_empty() || batch.is_all() {
                return Ok(batch.len());
            }
        }
        // A flood of datagrams of others must not hold ours.
        batch.merge_all();
        Ok(batch.len())
    }

    /// The same, for a batch that other sockets fill, too: keeps no datagrams for the next call, and only the
    /// datagrams of one reading are in the order of arrival.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn recv_all(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        self.read(batch)?;
        batch.merge_all();
        Ok(batch.len())
    }

    /// Reads from each socket whose messages have been handed on.
    fn read(&mut self, batch: &mut RecvBatch) -> io::Result<()> {
        let (channels, source) = (&self.channels, self.options.source);
        let (counters, channel_bytes) = (&mut self.counters, &mut self.channel_bytes);
        for (index, socket) in self.sockets.iter().enumerate() {
            batch.read_apart(index, &socket.endpoint, |heard| {
                let channel = counters.admit(channels, source, heard)?;
                channel_bytes[usize::from(channel.0)] += heard.bytes as u64;
                Some(Some(channel))
            })?;
        }
        self.asking.read(batch, self.sockets.len(), &mut self.counters)
    }

    /// Returns the descriptors to wait on for readability. The set changes after a join and after a send.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|socket| socket.endpoint.as_fd()).chain(self.asking.fd())
    }

    /// Returns the groups.
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Returns the local address of requests, after the first request. The port is the socket's; the address
    /// is an address of the interface.
    pub fn asks_from(&self) -> Option<SocketAddr> {
        let port = self.asking.port()?;
        let any = any_address(&self.channels);
        let own = self.interface.addresses.iter().find(|address| address.is_ipv4() == any.is_ipv4());
        Some(SocketAddr::new(own.copied().unwrap_or(any), port))
    }

    /// Returns the interface of the socket.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the size of the receive buffer of each kernel socket.
    pub const fn receive_buffer(&self) -> BufferSize {
        self.receive_buffer
    }

    /// Returns the payload bytes of delivered datagrams, by channel.
    pub fn channel_bytes(&self) -> &[u64] {
        &self.channel_bytes
    }

    /// Returns the counters. Reads the drops from the kernel.
    pub fn counters(&self) -> ReceiverCounters {
        let drops = |socket: &MemberSocket| socket.endpoint.messages_dropped();
        ReceiverCounters {
            kernel_drops: self.sockets.iter().map(|socket| u64::from(drops(socket))).sum(),
            ..self.counters
        }
    }

    fn group(&self, channel: ChannelId) -> Result<IpAddr, MembershipError> {
        let address = self.channels.address(channel);
        address
            .map(|address| address.ip())
            .ok_or(MembershipError::NoSuchChannel { channel: channel.0, count: self.channels.count() })
    }

    /// Returns the only source to join a channel by. On the base channel another session may replace this
    /// session, so a heard source binds the other channels only.
    fn source_of(&self, channel: ChannelId) -> Option<IpAddr> {
        let expected = self.expected.filter(|_| channel != ChannelId::BASE);
        self.options.source.or(expected)
    }

    fn join_on(&self, endpoint: &Endpoint, group: IpAddr, source: Option<IpAddr>) -> io::Result<()> {
        let (socket, index) = (&endpoint.socket, self.interface.index);
        match (group, source) {
            (_, Some(source)) => {
                sys::change_source(socket, &self.interface, (group, source), MembershipChange::Join)
            }
            (IpAddr::V4(group), None) => {
                socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
            }
            (IpAddr::V6(group), None) => socket.join_multicast_v6(&group, index),
        }
    }

    fn join_on_another(
        &mut self,
        channel: ChannelId,
        group: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<(), MembershipError> {
        let (socket, _) = MemberSocket::open(&self.channels, &self.options)?;
        match self.join_on(&socket.endpoint, group, source) {
            Ok(()) => {}
            Err(source) if is_exhausted(&source) => {
                return Err(MembershipError::Exhausted { group, source });
            }
            Err(source) => return Err(self.refused("join", group, source)),
        }
        self.memberships[usize::from(channel.0)] = Some(Membership { socket: self.sockets.len(), source });
        self.sockets.push(socket);
        debug!(%group, sockets = self.sockets.len(), "opened another socket: those there were can join no more groups");
        Ok(())
    }

    /// Moves all memberships to another interface. Returns false if the interface refuses a membership.
    fn join_again(&mut self, interface: Interface) -> bool {
        let channels = 0..self.channels.count();
        let joined: Vec<_> = channels.map(ChannelId).filter(|channel| self.is_joined(*channel)).collect();
        for channel in &joined {
            // Fails where the kernel has dropped the membership with its interface.
            let _dropped = self.leave(*channel);
        }
        self.interface = interface;
        let mut all = true;
        for channel in joined {
            if let Err(error) = self.join(channel) {
                debug!(%error, "cannot join again");
                // Counts as joined, so that the next inspection tries again.
                let source = self.source_of(channel);
                self.memberships[usize::from(channel.0)] = Some(Membership { socket: 0, source });
                all = false;
            }
        }
        all
    }

    fn refused(&self, attempt: &'static str, group: IpAddr, source: io::Error) -> MembershipError {
        MembershipError::Refused { attempt, group, interface: self.interface.name.clone(), source }
    }
}

impl MemberSocket {
    fn open(channels: &Channels, options: &ReceiverOptions) -> Result<(Self, BufferSize), OpenError> {
        let endpoint = Endpoint::open(SocketAddr::new(any_address(channels), channels.port()), true)?;
        let buffer = endpoint.set_receive_buffer(options.receive_buffer_bytes)?;
        Ok((Self { endpoint, full: false }, buffer))
    }
}

pub(super) fn any_address(channels: &Channels) -> IpAddr {
    if channels.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

impl ReceiverCounters {
    /// Counts a message on the request socket. Returns whether to deliver the message.
    pub(super) fn admit_answer(&mut self, of: SocketAddr, heard: &IncomingMessage) -> bool {
        let count = heard.datagrams();
        let is_theirs = (heard.source.ip(), heard.source.port()) == (of.ip(), of.port());
        if is_theirs {
            self.datagrams += count;
            self.bytes += heard.bytes as u64;
        } else {
            self.foreign_source += count;
        }
        is_theirs
    }

    /// Counts a message. Returns the channel of the message, or `None` if the message is to be dropped.
    fn admit(
        &mut self,
        channels: &Channels,
        source: Option<IpAddr>,
        heard: &IncomingMessage,
    ) -> Option<ChannelId> {
        let count = heard.datagrams();
        let Some(channel) = heard.destination.and_then(|group| channels.channel_of(group)) else {
            self.foreign_group += count;
            return None;
        };
        if source.is_some_and(|source| source != heard.source.ip()) {
            self.foreign_source += count;
            return None;
        }
        self.datagrams += count;
        self.bytes += heard.bytes as u64;
        self.marked += if heard.ecn == Ecn::CongestionExperienced { count } else { 0 };
        Some(channel)
    }
}
