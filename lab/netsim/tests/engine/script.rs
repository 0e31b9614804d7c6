//! Agents that send on a timetable and write down what they get.

use headwater_netsim::agent::{Agent, Arrival, Outbox};
use headwater_netsim::engine::{Body, Destination, Outgoing};
use headwater_netsim::network::{FlowId, GroupId};
use headwater_proto::{Duration, Ecn, Instant, InterfaceId, Rate};

pub fn micros(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

pub fn millis(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// 8 Mbit/s: a byte takes a microsecond.
pub fn byte_per_micro() -> Rate {
    Rate::from_kilobits(8_000)
}

/// Sends packets of given sizes at given instants.
pub struct Sends {
    pub flow: FlowId,
    pub to: Destination,
    pub ecn: Ecn,
    /// When and how many bytes, in order of time.
    pub packets: Vec<(Instant, u32)>,
}

impl Sends {
    pub fn new(flow: FlowId, to: Destination, packets: &[(u64, u32)]) -> Self {
        let packets = packets.iter().rev().map(|(at, bytes)| (micros(*at), *bytes)).collect();
        Self { flow, to, ecn: Ecn::NotCapable, packets }
    }
}

impl Agent for Sends {
    fn start(&mut self, _: &mut Outbox<'_>) {}

    fn receive(&mut self, _: Arrival<'_>, _: &mut Outbox<'_>) {}

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        while self.packets.last().is_some_and(|(at, _)| *at <= outbox.now()) {
            let (_, bytes) = self.packets.pop().unwrap();
            outbox.send(Outgoing {
                flow: self.flow,
                destination: self.to,
                wire_bytes: bytes,
                payload_bytes: bytes,
                ecn: self.ecn,
                body: Body::Filler,
            });
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.packets.last().map(|(at, _)| *at)
    }
}

/// Writes down what arrives.
#[derive(Default)]
pub struct Log {
    /// When, by its own clock, and the packet's number in its flow.
    pub arrivals: Vec<(Instant, u64)>,
    pub ecn: Vec<Ecn>,
    pub ingress: Vec<Option<InterfaceId>>,
    /// When to join and leave which group, in order of time.
    pub memberships: Vec<(Instant, GroupId, bool)>,
}

impl Log {
    pub fn member(group: GroupId, joins: &[(u64, bool)]) -> Self {
        let memberships = joins.iter().rev().map(|(at, join)| (micros(*at), group, *join)).collect();
        Self { memberships, ..Self::default() }
    }

    pub fn times(&self) -> Vec<u64> {
        self.arrivals.iter().map(|(at, _)| at.as_nanos()).collect()
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.arrivals.iter().map(|(_, number)| *number).collect()
    }
}

impl Agent for Log {
    fn start(&mut self, _: &mut Outbox<'_>) {}

    fn receive(&mut self, arrival: Arrival<'_>, outbox: &mut Outbox<'_>) {
        self.arrivals.push((outbox.now(), arrival.packet.sequence));
        self.ecn.push(arrival.ecn);
        self.ingress.push(arrival.ingress);
    }

    fn timeout(&mut self, outbox: &mut Outbox<'_>) {
        while self.memberships.last().is_some_and(|(at, ..)| *at <= outbox.now()) {
            let (_, group, join) = self.memberships.pop().unwrap();
            match join {
                true => outbox.join(group),
                false => outbox.leave(group),
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.memberships.last().map(|(at, ..)| *at)
    }
}
