//! A sender, a relay, two relays below it, and three receivers at each: behind 2, 4 and 8 Mbit/s. Hops take 5
//! ms.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use crate::control::{Arrival, Membership, ReceiverControl, SenderControl};
use crate::delivery::sender::header::Header;
use crate::machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, InterfaceId, Machine, Output,
    RouterOutput,
};
use crate::queue::{PriorityConfig, QueueConfig};
use crate::rate::Rate;
use crate::rng::Seed;
use crate::sim::relay::{EgressShape, Relay, RelayConfig, UPSTREAM, below, channel};
use crate::sim::{SimConfig, SimReceiver, SimSender, Trust};
use crate::time::{Duration, Instant};

pub const PACKET_BYTES: u16 = 1_024;
const HOP: Duration = Duration::from_millis(5);
const RATES: [u64; 3] = [2_000_000, 4_000_000, 8_000_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Sender,
    Relay(usize),
    Receiver(usize),
}

impl Node {
    pub fn address(self) -> SocketAddr {
        let small = |number: usize| u8::try_from(number).unwrap();
        let host = match self {
            Self::Sender => [192, 0, 2, 1],
            Self::Relay(number) => [10, 7, small(number), 1],
            Self::Receiver(number) => [10, 9, 77, 100 + small(number)],
        };
        (host, 7_291).into()
    }
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub struct Message {
    pub from: Node,
    pub to: Node,
    pub channel: Option<ChannelId>,
    pub ecn: Ecn,
    pub bytes: Vec<u8>,
}

pub struct End {
    pub receiver: SimReceiver,
    pub held: BTreeSet<u16>,
    pub bytes: u64,
    pub marked: u64,
}

pub struct Bed {
    pub now: Instant,
    pub sender: Option<SimSender>,
    pub tsi: u32,
    pub relays: Vec<Option<Relay>>,
    joined: Vec<BTreeSet<ChannelId>>,
    pub ends: Vec<End>,
    on_the_way: BTreeMap<(Instant, u64), Message>,
    count: u64,
    /// What went by unicast.
    pub unicast: Vec<Message>,
}

pub fn shape(bits: u64) -> EgressShape {
    let queue = QueueConfig::Priority(PriorityConfig::new(50));
    EgressShape { rate: Rate::from_bits(bits).unwrap(), queue }
}

fn relay(number: usize) -> Relay {
    let links = match number {
        0 => vec![None; 2],
        _ => RATES.iter().map(|bits| Some(shape(*bits))).collect(),
    };
    let below: Vec<_> = [1, 2].map(|relay| Node::Relay(relay).address().ip()).into();
    let config = RelayConfig::new(1, 8, links, Seed(number as u64));
    Relay::new(if number == 0 { config.with_relays(below) } else { config }, Instant::ZERO).unwrap()
}

impl Bed {
    pub fn new() -> Self {
        let end = |number: u64| {
            let config = SimConfig::new(8, PACKET_BYTES).with_session(77).with_holdings(true);
            let mut receiver = SimReceiver::new(config, Seed(100 + number));
            receiver.start(Instant::ZERO);
            End { receiver, held: BTreeSet::new(), bytes: 0, marked: 0 }
        };
        let mut bed = Self {
            now: Instant::ZERO,
            sender: None,
            tsi: 77,
            relays: (0..3).map(|number| Some(relay(number))).collect(),
            joined: vec![BTreeSet::new(); 3],
            ends: (0..6).map(end).collect(),
            on_the_way: BTreeMap::new(),
            count: 0,
            unicast: Vec::new(),
        };
        bed.start_sender();
        bed
    }

    pub fn start_sender(&mut self) {
        let trust = Trust::Hosts(vec![Node::Relay(0).address().ip()]);
        let config = SimConfig::new(8, PACKET_BYTES).with_session(self.tsi).with_trust(trust);
        self.sender = Some(SimSender::new(config, self.now));
    }

    pub fn run(&mut self, until: Instant) {
        self.drain();
        while let Some(next) = self.next().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            while let Some(entry) = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let message = entry.remove();
                self.deliver(&message);
            }
            if let Some(sender) = &mut self.sender {
                sender.timeout(self.now);
            }
            for relay in self.relays.iter_mut().flatten() {
                relay.handle(self.now, Input::Timeout);
            }
            for end in &mut self.ends {
                end.receiver.timeout(self.now);
            }
            self.drain();
        }
        self.now = until;
    }

    fn next(&self) -> Option<Instant> {
        let sender = self.sender.iter().flat_map(|sender| [sender.next_departure(), sender.poll_timeout()]);
        let relays = self.relays.iter().flatten().map(Machine::poll_timeout);
        let ends = self.ends.iter().map(|end| end.receiver.poll_timeout());
        let way = self.on_the_way.keys().next().map(|key| key.0);
        sender.chain(relays).chain(ends).chain([way]).flatten().min()
    }

    fn deliver(&mut self, message: &Message) {
        let Message { from, to, channel, ecn, ref bytes } = *message;
        let source = from.address();
        let datagram = Datagram { source, channel, ecn, payload: bytes };
        match to {
            Node::Sender => {
                if let Some(sender) = &mut self.sender {
                    sender.feedback(self.now, &datagram);
                }
            }
            Node::Relay(number) => {
                let ingress = match (channel, from) {
                    (Some(_), _) => UPSTREAM,
                    (None, Node::Sender | Node::Relay(0)) => UPSTREAM,
                    (None, Node::Relay(child)) => below(child - 1),
                    (None, Node::Receiver(child)) => below(child % 3),
                };
                self.give(number, ingress, datagram);
            }
            Node::Receiver(number) => {
                let end = &mut self.ends[number];
                // Replies to reports of a roster are for the test.
                let Some(rank) = channel else { return };
                if end.held.contains(&rank.0) {
                    end.bytes += bytes.len() as u64;
                    end.marked += u64::from(ecn == Ecn::CongestionExperienced);
                    let packet = headwater_wire::alc::parse(bytes).unwrap().0;
                    let arrival = Arrival {
                        source,
                        channel: rank,
                        cci: &packet.cci,
                        ecn,
                        bytes: bytes.len(),
                        lateness: Duration::ZERO,
                    };
                    end.receiver.arrived(self.now, &arrival);
                }
            }
        }
    }

    /// A datagram for a relay, from wherever.
    pub fn give(&mut self, relay: usize, ingress: InterfaceId, datagram: Datagram<'_>) {
        if let Some(relay) = &mut self.relays[relay] {
            relay.handle(self.now, Input::Routed(ingress, datagram));
        }
    }

    fn drain(&mut self) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        self.drain_sender(&mut buffer);
        (0..self.relays.len()).for_each(|number| self.drain_relay(number, &mut buffer));
        (0..self.ends.len()).for_each(|number| self.drain_end(number, &mut buffer));
    }

    fn drain_sender(&mut self, buffer: &mut [u8]) {
        let now = self.now;
        while let Some(sender) = &mut self.sender
            && let Some(departure) = sender.departure(now)
        {
            Header::new(self.tsi, Some(1), 0, &departure).emit(buffer);
            sender.departed(now, PACKET_BYTES.into());
            let bytes = buffer[..PACKET_BYTES.into()].to_vec();
            let channel = channel(0, departure.channel.0);
            if self.joined[0].contains(&channel) {
                let (from, to) = (Node::Sender, Node::Relay(0));
                self.send(Message { from, to, channel: Some(channel), ecn: departure.ecn, bytes });
            }
        }
    }

    fn drain_relay(&mut self, number: usize, buffer: &mut [u8]) {
        let (now, from) = (self.now, Node::Relay(number));
        while let Some(relay) = &mut self.relays[number]
            && let Some(output) = relay.poll_output(now, buffer)
        {
            match output {
                Output::Join(channel) => assert!(self.joined[number].insert(channel)),
                Output::Leave(channel) => assert!(self.joined[number].remove(&channel)),
                Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                    let bytes = buffer[..transmit.bytes].to_vec();
                    let ecn = transmit.ecn;
                    let link = (egress.0 as usize).checked_sub(1);
                    match (transmit.destination, link) {
                        (Destination::Unicast(to), _) => self.unicast(from, to, bytes),
                        (Destination::Channel(channel), Some(link)) if number == 0 => {
                            if self.joined[link + 1].contains(&channel) {
                                let to = Node::Relay(link + 1);
                                self.send(Message { from, to, channel: Some(channel), ecn, bytes });
                            }
                        }
                        (Destination::Channel(channel), Some(link)) => {
                            let to = Node::Receiver(3 * (number - 1) + link);
                            self.send(Message { from, to, channel: Some(channel), ecn, bytes });
                        }
                        other => panic!("{other:?}"),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn drain_end(&mut self, number: usize, buffer: &mut [u8]) {
        let now = self.now;
        while let Some(membership) = self.ends[number].receiver.poll_membership() {
            match membership {
                Membership::Join(ChannelId(rank)) => self.ends[number].held.insert(rank),
                Membership::Leave(ChannelId(rank)) => self.ends[number].held.remove(&rank),
            };
        }
        while let Some(transmit) = self.ends[number].receiver.poll_transmit(now, buffer) {
            let Destination::Unicast(to) = transmit.destination else { panic!("{transmit:?}") };
            self.unicast(Node::Receiver(number), to, buffer[..transmit.bytes].to_vec());
        }
    }

    pub fn unicast(&mut self, from: Node, to: SocketAddr, bytes: Vec<u8>) {
        let nodes = (0..3).map(Node::Relay).chain((0..6).map(Node::Receiver)).chain([Node::Sender]);
        let to = nodes.into_iter().find(|node| node.address() == to).unwrap();
        let message = Message { from, to, channel: None, ecn: Ecn::NotCapable, bytes };
        self.unicast.push(message.clone());
        self.send(message);
    }

    fn send(&mut self, message: Message) {
        self.count += 1;
        self.on_the_way.insert((self.now + HOP, self.count), message);
    }

    /// Bit/s that each receiver got over a time from now on.
    pub fn rates(&mut self, time: Duration) -> Vec<f64> {
        let before: Vec<u64> = self.ends.iter().map(|end| end.bytes).collect();
        self.run(self.now + time);
        let bits = |(end, before): (&End, u64)| 8.0 * (end.bytes - before) as f64 / time.as_secs_f64();
        self.ends.iter().zip(before).map(bits).collect()
    }
}
