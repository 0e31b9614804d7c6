//! The receiving socket: joins and leaves channels, reads what arrives on them, and asks senders by unicast.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use headwater_proto::ChannelId;
use rustix::io::Errno;
use socket2::InterfaceIndexOrAddress;
use tracing::debug;

use super::batch::{IncomingMessage, RecvBatch};
use super::channels::Channels;
use super::endpoint::{BufferSize, Endpoint, OpenError};
use super::interface::Interface;
use super::link::{LinkChange, LinkState, LinkWatch};
use super::sender::Run;
use super::sys;

/// How a receiving socket is opened.
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Where to receive. Default: where the kernel's route to the group leads.
    pub interface: Option<Interface>,
    /// Receive from this address only (source-specific multicast, RFC 4607). Default: from anyone.
    pub source: Option<IpAddr>,
    /// Receive buffer in bytes. Default: 32 MiB, about a second of 150 Mbit/s in full datagrams, or 60 ms of
    /// 2.5 Gbit/s: as long as a busy machine may keep a receiver from running. It takes memory only while
    /// datagrams wait.
    pub receive_buffer_bytes: usize,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self { interface: None, source: None, receive_buffer_bytes: 32 << 20 }
    }
}

/// Why a channel could not be joined or left.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The session has no such channel.
    #[error("there is no channel {channel}: the session has {count}, counted from 0")]
    NoSuchChannel {
        /// The channel asked for.
        channel: u16,
        /// How many there are.
        count: u16,
    },
    /// Not even a fresh socket may join.
    #[error(
        "the kernel lets a socket join no group ({group}); raise net.ipv4.igmp_max_memberships or net.core.optmem_max"
    )]
    Exhausted {
        /// The group.
        group: IpAddr,
        /// What the kernel said.
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
        /// What the kernel said.
        source: io::Error,
    },
    /// The channel needs one more socket, and that could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What a receiving socket has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Datagrams handed over.
    pub datagrams: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Datagrams dropped because they were sent to none of the session's groups.
    pub foreign_group: u64,
    /// Datagrams dropped because they came from another source than the one wanted.
    pub foreign_source: u64,
    /// Messages that the kernel dropped, mostly because the receive buffer was full: datagrams, but a run
    /// that it had coalesced (GRO, up to 64 datagrams) counts as one.
    pub kernel_drops: u64,
}

/// Receives the channels that are joined. Under the name of one it may be several sockets: the kernel limits
/// the memberships of each, and a group is joined on exactly one, so that each datagram arrives once.
#[derive(Debug)]
pub struct ReceiverSocket {
    channels: Channels,
    options: ReceiverOptions,
    interface: Interface,
    link: LinkWatch,
    receive_buffer: BufferSize,
    /// At least one. Grows to what the most memberships held at once need and does not shrink.
    sockets: Vec<MemberSocket>,
    /// By channel.
    memberships: Vec<Option<Membership>>,
    /// Who sends the session, where that was not said but heard.
    expected: Option<IpAddr>,
    /// Socket to read first, so that none starves the others.
    next: usize,
    /// From where senders are asked, once one was.
    asking: Option<QuerySocket>,
    counters: ReceiverCounters,
}

/// How a channel is joined.
#[derive(Clone, Copy, Debug)]
struct Membership {
    /// Index in `sockets` of the one that has joined it.
    socket: usize,
    /// The only source.
    source: Option<IpAddr>,
}

/// A socket of its own, on a port that no one else shares: the groups' port would give an answer to any
/// receiver of this machine.
#[derive(Debug)]
struct QuerySocket {
    endpoint: Endpoint,
    /// Whom was asked last; what others send there is dropped.
    of: SocketAddr,
}

#[derive(Debug)]
struct MemberSocket {
    endpoint: Endpoint,
    /// It refused a membership for want of room and has left none since.
    full: bool,
}

impl ReceiverSocket {
    /// Opens the socket on the groups' port, which other receivers of this machine may share. Nothing is
    /// joined yet.
    ///
    /// # Errors
    /// When there is no such interface, the port is held by someone who does not share it, or the source's IP
    /// version is not the groups'.
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
            next: 0,
            asking: None,
            counters: ReceiverCounters::default(),
        })
    }

    /// Sends datagrams by unicast, and says how many the kernel did not take: a question that is lost is
    /// asked again.
    ///
    /// # Errors
    /// When the socket that this needs cannot be opened.
    pub fn send(&mut self, runs: &[Run<'_>]) -> Result<u64, OpenError> {
        let mut unsent = 0;
        for run in runs {
            let asking = match &mut self.asking {
                Some(asking) => asking,
                None => {
                    let endpoint = Endpoint::open(SocketAddr::new(any_address(&self.channels), 0), false)?;
                    self.asking.insert(QuerySocket { endpoint, of: run.destination })
                }
            };
            asking.of = run.destination;
            for datagram in run.contents.chunks(run.segment_bytes.max(1)) {
                let sent = asking.endpoint.socket.send_to(datagram, &run.destination.into());
                unsent += u64::from(sent.is_err());
            }
        }
        Ok(unsent)
    }

    /// Joins a channel; joining it twice changes nothing. Opens another socket when those there are can join
    /// no more.
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

    /// Leaves a channel; leaving one that is not joined changes nothing. What had arrived before may still be
    /// read.
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
            (_, Some(source)) => sys::leave_source(socket.as_fd(), self.interface.index, group, source),
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
            // It is left all the same: the interface is gone.
            let _refused = self.leave(channel);
        }
    }

    /// From here on channels other than the base are joined by this source (source-specific multicast), so
    /// that routers build and prune the way from there alone; `None` for any. What is joined stays as it is.
    /// No effect where a source was named.
    pub fn expect_source(&mut self, source: Option<IpAddr>) {
        self.expected = source;
    }

    /// Looks whether the interface is still there, and joins again what was joined on one that came back.
    /// Tells of a change. A list of the interfaces from the kernel: for once a second, not for each packet.
    pub fn inspect_link(&mut self) -> Option<LinkChange> {
        let inspection = self.link.inspect_link(&self.interface)?;
        let mut state = inspection.state;
        if let Some(renewed) = inspection.renewed
            && !self.join_again(renewed)
        {
            // It went away again: the next look will tell.
            state = LinkState::Gone;
        }
        self.link.on_state(&self.interface, state)
    }

    /// Whether a channel is joined.
    pub fn is_joined(&self, channel: ChannelId) -> bool {
        self.memberships.get(usize::from(channel.0)).is_some_and(Option::is_some)
    }

    /// Replaces what is in `batch` by the datagrams that are waiting, and says how many. Never blocks. On 0
    /// wait for readability; more may be waiting after any other result.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.clear();
        let first = self.next;
        for step in 0..self.sockets.len() {
            if batch.is_full() {
                break;
            }
            let index = (first + step) % self.sockets.len();
            self.next = (index + 1) % self.sockets.len();
            let (channels, source, counters) = (&self.channels, self.options.source, &mut self.counters);
            batch.read(&self.sockets[index].endpoint, |heard| {
                counters.admit(channels, source, heard).map(Some)
            })?;
        }
        if let Some(QuerySocket { endpoint, of }) = self.asking.as_ref().filter(|_| !batch.is_full()) {
            let counters = &mut self.counters;
            batch.read(endpoint, |heard| counters.admit_answer(*of, heard).then_some(None))?;
        }
        if self.sockets.len() > 1 || self.asking.is_some() {
            batch.sort();
        }
        Ok(batch.len())
    }

    /// What to wait on until there is something to read. Changes when channels are joined and when something
    /// is sent.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let asking = self.asking.iter().map(|asking| asking.endpoint.as_fd());
        self.sockets.iter().map(|socket| socket.endpoint.as_fd()).chain(asking)
    }

    /// The groups.
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// From where senders are asked, once one was; the port counts, the address is one of the interface.
    pub fn asks_from(&self) -> Option<SocketAddr> {
        let port = self.asking.as_ref()?.endpoint.socket.local_addr().ok()?.as_socket()?.port();
        let any = any_address(&self.channels);
        let own = self.interface.addresses.iter().find(|address| address.is_ipv4() == any.is_ipv4());
        Some(SocketAddr::new(own.copied().unwrap_or(any), port))
    }

    /// The interface it receives on.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The receive buffer of each of its sockets.
    pub const fn receive_buffer(&self) -> BufferSize {
        self.receive_buffer
    }

    /// What it has counted. Asks the kernel for its drops.
    pub fn counters(&self) -> ReceiverCounters {
        let drops = |socket: &MemberSocket| sys::messages_dropped(socket.endpoint.as_fd()).unwrap_or(0);
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

    /// The only source to join a channel by. On the base channel another session may come in the place of
    /// this one, so what was heard there binds the other channels only.
    fn source_of(&self, channel: ChannelId) -> Option<IpAddr> {
        let expected = self.expected.filter(|_| channel != ChannelId::BASE);
        self.options.source.or(expected)
    }

    fn join_on(&self, endpoint: &Endpoint, group: IpAddr, source: Option<IpAddr>) -> io::Result<()> {
        let (socket, index) = (&endpoint.socket, self.interface.index);
        match (group, source) {
            (_, Some(source)) => sys::join_source(socket.as_fd(), index, group, source),
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

    /// Moves all memberships to another interface; false when it takes one of them no more.
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
                // Counts as joined, so that the next look tries again.
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

fn any_address(channels: &Channels) -> IpAddr {
    if channels.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

impl ReceiverCounters {
    /// Counts what came where answers are expected, and says whether it is to be handed over.
    fn admit_answer(&mut self, of: SocketAddr, heard: &IncomingMessage) -> bool {
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

    /// Counts a message, and says which channel it belongs to or that it is to be dropped.
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
        Some(channel)
    }
}

/// Whether a socket can join no more: IPv4 says `ENOBUFS`, both say `ENOMEM` when `net.core.optmem_max` is
/// reached.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOBUFS | Errno::NOMEM))
}
