//! Sender and receivers in virtual time, with delays and losses but no queues, for tests. Each receiver has
//! its own clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;

use headwater_proto::machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, Machine, Output,
};
use headwater_proto::time::{Duration, Instant};

const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

pub fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

/// Source address of the `number`th receiver's datagrams.
pub fn address(number: usize) -> ([u8; 4], u16) {
    let [.., high, low] = number.to_be_bytes();
    ([10, 0, high, low], 5_000)
}

/// Destination of a datagram: a receiver, or the sender with the number of the sending receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Receiver(usize),
    Sender(usize),
}

/// Datagram in flight, ordered by arrival time and order of sending.
type UnderWay = Reverse<(Instant, u64, To, Vec<u8>)>;

/// Loss pattern of a receiver: whether the packet with this number, from 1, is lost.
pub type Loss = fn(u64) -> bool;

pub struct Member<R> {
    pub receiver: R,
    one_way: Duration,
    loss: Loss,
    pub is_cut: bool,
    ahead: Duration,
    pub reports: u64,
}

pub struct Network<S, R> {
    pub sender: S,
    pub members: Vec<Member<R>>,
    now: Instant,
    wire: BinaryHeap<UnderWay>,
    count: u64,
    packets: u64,
}

impl<S, R> Network<S, R>
where
    S: Machine<Event: Debug>,
    R: Machine<Event: Debug>,
{
    pub fn new(sender: S) -> Self {
        let wire = BinaryHeap::new();
        Self { sender, members: Vec::new(), now: Instant::ZERO, wire, count: 0, packets: 0 }
    }

    /// Adds a receiver with a round-trip time.
    pub fn join(&mut self, receiver: R, rtt_ms: u64, loss: Loss) {
        let ahead = Duration::from_secs(17 * self.members.len() as u64);
        let one_way = Duration::from_micros(500 * rtt_ms);
        self.members.push(Member { receiver, one_way, loss, is_cut: false, ahead, reports: 0 });
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the number of packets sent.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    pub fn run_until(&mut self, end: Instant) {
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            while let Some(Reverse((_, _, to, payload))) = self.arrival() {
                self.deliver(to, &payload);
            }
            self.sender.handle(self.now, Input::Timeout);
            self.drain_sender();
            for number in 0..self.members.len() {
                let local = self.local(number);
                if self.members[number].receiver.poll_timeout().is_some_and(|at| at <= local) {
                    self.members[number].receiver.handle(local, Input::Timeout);
                }
                self.drain_receiver(number);
            }
        }
        self.now = end;
    }

    fn next(&self) -> Option<Instant> {
        let timers =
            self.members.iter().filter_map(|member| Some(member.receiver.poll_timeout()? - member.ahead));
        let arrival = self.wire.peek().map(|Reverse((at, ..))| *at);
        timers.chain(arrival).chain(self.sender.poll_timeout()).min()
    }

    fn arrival(&mut self) -> Option<UnderWay> {
        let is_there = self.wire.peek().is_some_and(|Reverse((at, ..))| *at <= self.now);
        if is_there { self.wire.pop() } else { None }
    }

    fn local(&self, number: usize) -> Instant {
        self.now + self.members[number].ahead
    }

    fn deliver(&mut self, to: To, payload: &[u8]) {
        let datagram = |source, channel| Datagram { source, channel, ecn: Ecn::NotCapable, payload };
        match to {
            To::Sender(from) => {
                let source = address(from).into();
                self.sender.handle(self.now, Input::Datagram(datagram(source, None)));
                self.drain_sender();
            }
            To::Receiver(number) => {
                let local = self.local(number);
                let data = datagram(SENDER.into(), Some(ChannelId::BASE));
                self.members[number].receiver.handle(local, Input::Datagram(data));
                self.drain_receiver(number);
            }
        }
    }

    fn drain_sender(&mut self) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while let Some(output) = self.sender.poll_output(self.now, &mut buffer) {
            let Output::Transmit(transmit) = output else { panic!("{output:?}") };
            self.packets += 1;
            for number in 0..self.members.len() {
                let member = &self.members[number];
                if !member.is_cut && !(member.loss)(self.packets) {
                    let at = self.now + member.one_way;
                    self.send(at, To::Receiver(number), &buffer[..transmit.bytes]);
                }
            }
        }
    }

    fn drain_receiver(&mut self, number: usize) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let local = self.local(number);
        while let Some(output) = self.members[number].receiver.poll_output(local, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            assert_eq!(transmit.destination, Destination::Unicast(SENDER.into()));
            self.members[number].reports += 1;
            let at = self.now + self.members[number].one_way;
            self.send(at, To::Sender(number), &buffer[..transmit.bytes]);
        }
    }

    fn send(&mut self, at: Instant, to: To, payload: &[u8]) {
        self.count += 1;
        self.wire.push(Reverse((at, self.count, to, payload.to_vec())));
    }
}
