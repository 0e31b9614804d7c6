//! EXPRESS channels over breadcrumbs (section 2.4): members leave breadcrumbs by periodic nulls of level 1,
//! and the source sends replies of level 0, which remove no breadcrumbs. A label is thus a multicast group
//! with a single source, without join latency and without state that outlives its members.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_proto::bcfs::{BcfsSource, Client, EXPIRY, Label, Level, Reply, ReplyTo, ReturnPath};
use headwater_proto::{ChannelId, Datagram, Duration, Input, Instant, Machine, Output, Transmit};

/// Maximum number of neighbours of a publisher: the adjacent routers, and members without a router. Each gets
/// a copy of every message.
pub const NEIGHBOURS_MAX: usize = 64;
/// Maximum number of messages queued at a publisher.
pub const WAITING_MAX: usize = 64;
/// Interval between the nulls of a member: three per lifetime of a breadcrumb.
pub const JOIN_INTERVAL: Duration = Duration::from_nanos(EXPIRY.as_nanos() / 3);

/// Membership in a channel: refreshes the member's breadcrumb, and receives messages.
#[derive(Debug)]
pub struct Membership {
    client: Client,
    label: Label,
    due: Instant,
}

impl Membership {
    /// Creates a membership in the channel `label` of `source`, by way of `upstream`, from `now` on.
    pub fn new(source: SocketAddr, upstream: SocketAddr, label: Label, now: Instant) -> Self {
        let mut client = Client::new(source, upstream);
        // The first binding always has room.
        let _first = client.bind(label, u32::MAX);
        Self { client, label, due: now }
    }

    /// Returns the BCFS client, for further bindings and requests.
    pub const fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Returns the reply in a datagram, on the channel or on another bound label.
    pub fn receive<'a>(&mut self, datagram: &Datagram<'a>) -> Option<Reply<'a>> {
        self.client.receive(datagram)
    }

    /// Returns the null, if due.
    pub fn poll(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if now < self.due {
            return None;
        }
        self.due = now + JOIN_INTERVAL;
        Some(self.client.request(self.label, Level::ONE, None, buffer))
    }

    /// Returns the time of the next null.
    pub const fn due(&self) -> Instant {
        self.due
    }
}

/// Member that passes each message to `sink`.
#[derive(Debug)]
pub struct Member<F> {
    membership: Membership,
    joins: Option<ChannelId>,
    sink: F,
}

impl<F: FnMut(&[u8])> Member<F> {
    /// Creates a member. With `joins`, the member joins that group to receive replies of routers that reply
    /// by multicast.
    pub const fn new(membership: Membership, joins: Option<ChannelId>, sink: F) -> Self {
        Self { membership, joins, sink }
    }
}

impl<F: FnMut(&[u8])> Machine for Member<F> {
    type Event = core::convert::Infallible;

    fn handle(&mut self, _now: Instant, input: Input<'_>) {
        let Input::Datagram(datagram) = input else { return };
        if let Some(reply) = self.membership.receive(&datagram) {
            (self.sink)(reply.body);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>> {
        if let Some(channel) = self.joins.take() {
            return Some(Output::Join(channel));
        }
        self.membership.poll(now, buffer).map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.membership.due())
    }
}

/// Source of a channel: sends published messages to all neighbours with a recent null.
#[derive(Debug)]
pub struct Publisher {
    source: BcfsSource,
    label: Label,
    replies_to_group: bool,
    neighbours: Vec<(ReturnPath, Instant)>,
    waiting: VecDeque<Vec<u8>>,
    /// Buffers of sent messages, for reuse.
    spare: Vec<Vec<u8>>,
    /// Number of neighbours that the first message was sent to.
    served: usize,
    refused: u64,
}

impl Publisher {
    /// Creates the source `identity` of the channel `label`. With [`ReplyTo::Channel`] the publisher sends a
    /// single copy of each message, with [`ReplyTo::Peer`] a copy to each of at most [`NEIGHBOURS_MAX`]
    /// neighbours.
    pub fn new(identity: Option<SocketAddr>, reply_to: ReplyTo, label: Label) -> Self {
        let mut source = BcfsSource::new(identity, reply_to);
        let _first = source.bind(label, u32::MAX);
        Self {
            source,
            label,
            replies_to_group: matches!(reply_to, ReplyTo::Channel(_)),
            neighbours: Vec::new(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
            served: 0,
            refused: 0,
        }
    }

    /// Returns the BCFS source, for further bindings and replies.
    pub const fn source_mut(&mut self) -> &mut BcfsSource {
        &mut self.source
    }

    /// Queues a message. Returns false if [`WAITING_MAX`] messages are queued; the message is then dropped.
    pub fn publish(&mut self, message: &[u8]) -> bool {
        if self.waiting.len() == WAITING_MAX {
            self.refused += 1;
            return false;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(message);
        self.waiting.push_back(buffer);
        true
    }

    /// Returns the number of messages dropped because the queue was full.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Records the sender of a null for the channel.
    pub fn joined(&mut self, now: Instant, path: ReturnPath) {
        self.neighbours.retain(|(_, heard)| now.since(*heard) < EXPIRY);
        if let Some((_, heard)) = self.neighbours.iter_mut().find(|(known, _)| *known == path) {
            *heard = now;
        } else if self.neighbours.len() < NEIGHBOURS_MAX {
            self.neighbours.push((path, now));
        }
    }

    /// Returns the next copy of a message to a neighbour.
    pub fn poll(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let copies = if self.replies_to_group { 1 } else { NEIGHBOURS_MAX };
        loop {
            let message = self.waiting.front()?;
            let live = |(_, heard): &&(ReturnPath, Instant)| now.since(*heard) < EXPIRY;
            let next = self.neighbours.iter().filter(live).take(copies).nth(self.served);
            let Some((path, _)) = next.copied() else {
                self.served = 0;
                self.spare.extend(self.waiting.pop_front());
                continue;
            };
            self.served += 1;
            let room = BcfsSource::body(&path, buffer);
            let bytes = message.len().min(room.len());
            room[..bytes].copy_from_slice(&message[..bytes]);
            return Some(self.source.reply(now, &path, self.label, Level::ZERO, bytes, buffer));
        }
    }
}

impl Machine for Publisher {
    type Event = core::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        let Input::Datagram(datagram) = input else { return };
        if let Some(asked) = self.source.receive(now, &datagram) {
            self.joined(now, asked.path);
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>> {
        self.poll(now, buffer).map(Output::Transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
