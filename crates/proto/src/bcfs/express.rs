//! EXPRESS channels over breadcrumbs (section 2.4): members leave breadcrumbs by nulls of level 1 and refresh
//! them, the source sends replies of level 0, which take none away. So a label is a group of one source,
//! without a join to wait for and without state that outlives its members.

use core::net::SocketAddr;
use std::collections::VecDeque;

use super::{Client, EXPIRY, Label, Level, Reply, ReplyTo, ReturnPath, Source};
use crate::machine::{ChannelId, Datagram, Input, Machine, Output, Transmit};
use crate::time::{Duration, Instant};

/// Neighbours that a publisher sends to, each a copy: the routers next to it, and members that have none.
pub const NEIGHBOURS_MAX: usize = 64;
/// Messages that wait at a publisher to be sent.
pub const WAITING_MAX: usize = 64;
/// Time between the nulls of a member: three within the life of a breadcrumb.
pub const JOIN_INTERVAL: Duration = Duration::from_nanos(EXPIRY.as_nanos() / 3);

/// Keeps a member's breadcrumb alive, and takes what comes by it.
#[derive(Debug)]
pub struct Membership {
    client: Client,
    label: Label,
    due: Instant,
}

impl Membership {
    /// A member of the channel `label` of `source`, by way of `upstream`, from `now` on.
    pub fn new(source: SocketAddr, upstream: SocketAddr, label: Label, now: Instant) -> Self {
        let mut client = Client::new(source, upstream);
        // The first binding always has room.
        let _first = client.bind(label, u32::MAX);
        Self { client, label, due: now }
    }

    /// Its end of the service, to bind more labels and to ask.
    pub const fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// What a datagram brings, on the channel or on another label that is bound.
    pub fn receive<'a>(&mut self, datagram: &Datagram<'a>) -> Option<Reply<'a>> {
        self.client.receive(datagram)
    }

    /// The null, when it is due.
    pub fn poll(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if now < self.due {
            return None;
        }
        self.due = now + JOIN_INTERVAL;
        Some(self.client.request(self.label, Level::ONE, None, buffer))
    }

    /// When the next null is due.
    pub const fn due(&self) -> Instant {
        self.due
    }
}

/// A member that hands each message to `sink`.
#[derive(Debug)]
pub struct Member<F> {
    membership: Membership,
    joins: Option<ChannelId>,
    sink: F,
}

impl<F: FnMut(&[u8])> Member<F> {
    /// A member; with `joins` it hears replies on that group, where routers reply to one.
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

/// The source of a channel: sends what is published to all neighbours whose nulls are fresh.
#[derive(Debug)]
pub struct Publisher {
    source: Source,
    label: Label,
    replies_to_group: bool,
    neighbours: Vec<(ReturnPath, Instant)>,
    waiting: VecDeque<Vec<u8>>,
    /// Buffers of messages that were sent, to be filled again.
    spare: Vec<Vec<u8>>,
    /// Neighbours that the first message has gone to.
    served: usize,
    refused: u64,
}

impl Publisher {
    /// The source `identity` of the channel `label`. With [`ReplyTo::Channel`] one copy of each message goes
    /// out, with [`ReplyTo::Peer`] one to each of at most [`NEIGHBOURS_MAX`] neighbours.
    pub fn new(identity: Option<SocketAddr>, reply_to: ReplyTo, label: Label) -> Self {
        let mut source = Source::new(identity, reply_to);
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

    /// Its end of the service, to bind more labels and to reply.
    pub const fn source_mut(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Takes a message to send; false where [`WAITING_MAX`] wait already, and it is dropped.
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

    /// Messages that were dropped because too many waited.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Notes who sent a null for the channel.
    pub fn joined(&mut self, now: Instant, path: ReturnPath) {
        self.neighbours.retain(|(_, heard)| now.since(*heard) < EXPIRY);
        if let Some((_, heard)) = self.neighbours.iter_mut().find(|(known, _)| *known == path) {
            *heard = now;
        } else if self.neighbours.len() < NEIGHBOURS_MAX {
            self.neighbours.push((path, now));
        }
    }

    /// The next message to a neighbour.
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
            let room = Source::body(&path, buffer);
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
