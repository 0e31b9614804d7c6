//! A receiver and a source that hear each other without a router between.

use core::net::SocketAddr;
use std::collections::VecDeque;

use super::at;
use crate::Seed;
use crate::bcfs::ReplyTo;
use crate::machine::{ChannelId, Datagram, Ecn, Input, Machine, Output};
use crate::rainbow::{
    Basin, Numbers, RainbowReceiver, RainbowReceiverConfig, RainbowReceiverEvent, RainbowSource,
    SessionLabels, SourceConfig, Tally,
};
use crate::rng::Coin;
use crate::time::{Duration, Instant};

fn address(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 4_242).into()
}

/// Datagrams that a machine sends now, and whether it said that it was done.
fn sent<M: Machine>(machine: &mut M, now: Instant, told: &mut usize) -> Vec<Vec<u8>> {
    let (mut buffer, mut all) = ([0; 9_000], Vec::new());
    while let Some(output) = machine.poll_output(now, &mut buffer) {
        match output {
            Output::Transmit(transmit) => all.push(buffer[..transmit.bytes].to_vec()),
            Output::Event(_) => *told += 1,
            Output::Join(_) | Output::Leave(_) | Output::Router(_) => panic!("no channel was asked for"),
        }
    }
    all
}

fn input(source: SocketAddr, payload: &[u8]) -> Input<'_> {
    Input::Datagram(Datagram { source, channel: None, ecn: Ecn::NotCapable, payload })
}

struct Pair {
    receiver: RainbowReceiver<Tally>,
    source: RainbowSource<Numbers>,
    /// To the source or to the receiver, in the order of arrival.
    wire: VecDeque<(Instant, bool, Vec<u8>)>,
    now: Instant,
    completed: usize,
}

impl Pair {
    fn new(wanted: u64) -> Self {
        let labels = SessionLabels::new(7);
        let config = RainbowReceiverConfig::new(address(1), address(1), labels);
        Self {
            receiver: RainbowReceiver::new(config, Tally::new(Some(wanted))),
            source: RainbowSource::new(
                SourceConfig::new(labels).with_reply_to(ReplyTo::Peer),
                Numbers::new(472),
            ),
            wire: VecDeque::new(),
            now: at(0),
            completed: 0,
        }
    }

    fn put(&mut self, mut lose: impl FnMut() -> bool) {
        let arrives = self.now + Duration::from_millis(25);
        let requests = sent(&mut self.receiver, self.now, &mut self.completed);
        let replies = sent(&mut self.source, self.now, &mut 0);
        let all =
            requests.into_iter().map(|one| (true, one)).chain(replies.into_iter().map(|one| (false, one)));
        for (to_source, bytes) in all {
            if !lose() {
                self.wire.push_back((arrives, to_source, bytes));
            }
        }
    }

    fn run(&mut self, until: Instant, mut lose: impl FnMut() -> bool) {
        self.put(&mut lose);
        while self.completed == 0 {
            let arrival = self.wire.front().map(|(at, ..)| *at);
            let Some(next) =
                arrival.into_iter().chain(self.receiver.poll_timeout()).min().filter(|at| *at < until)
            else {
                return;
            };
            self.now = self.now.max(next);
            if arrival == Some(next)
                && let Some((_, to_source, bytes)) = self.wire.pop_front()
            {
                match to_source {
                    true => self.source.handle(self.now, input(address(2), &bytes)),
                    false => self.receiver.handle(self.now, input(address(1), &bytes)),
                }
            } else {
                self.receiver.handle(self.now, Input::Timeout);
            }
            self.put(&mut lose);
        }
    }
}

#[test]
fn a_transfer_is_complete_with_any_symbols() {
    let mut pair = Pair::new(500);
    pair.run(at(60_000), || false);
    assert_eq!((pair.completed, pair.receiver.basin().count()), (1, 500));
    assert_eq!(pair.source.counters().raised, 0);
    assert_eq!(pair.receiver.basin().duplicates(), 0);
    // Full: asks for nothing, and wakes for nothing.
    assert_eq!(pair.receiver.poll_timeout(), None);
    assert!(pair.receiver.basin().is_full());
}

#[test]
fn a_transfer_is_complete_over_a_path_that_loses() {
    let (coin, mut draw) = (Coin::new(0.1), Seed(3).stream("loss", 0));
    let mut pair = Pair::new(500);
    pair.run(at(600_000), || coin.toss(&mut draw));
    assert_eq!((pair.completed, pair.receiver.basin().count()), (1, 500));
    assert!(pair.source.counters().raised > 10, "lost ones are asked for by higher levels");
    let counters = pair.source.counters();
    assert_eq!(counters.symbols, counters.requests + counters.nulls, "a fresh symbol for each");
}

#[test]
fn what_is_not_the_sessions_is_not_heard() {
    let mut pair = Pair::new(500);
    pair.run(at(500), || false);
    let before = (*pair.receiver.counters(), *pair.source.counters());
    // Another session's source and receiver, and noise.
    let other = SessionLabels::new(8);
    let mut stranger =
        RainbowReceiver::new(RainbowReceiverConfig::new(address(1), address(1), other), Tally::new(None));
    let ask = sent(&mut stranger, pair.now, &mut 0).remove(0);
    let mut alien = RainbowSource::new(SourceConfig::new(other), Numbers::new(472));
    alien.handle(pair.now, input(address(2), &ask));
    let reply = sent(&mut alien, pair.now, &mut 0).remove(0);
    for bytes in [ask.as_slice(), &reply, b"noise", &[0; 600]] {
        pair.source.handle(pair.now, input(address(9), bytes));
        pair.receiver.handle(pair.now, input(address(1), bytes));
    }
    assert_eq!((*pair.receiver.counters(), *pair.source.counters()), before);
    // A reply in the source's name from elsewhere.
    let mut twin = RainbowSource::new(SourceConfig::new(SessionLabels::new(7)), Numbers::new(472));
    let own =
        pair.wire.iter().find(|(_, to_source, _)| *to_source).expect("requests are under way").2.clone();
    twin.handle(pair.now, input(address(2), &own));
    let forged = sent(&mut twin, pair.now, &mut 0).remove(0);
    pair.receiver.handle(pair.now, input(address(9), &forged));
    assert_eq!(*pair.receiver.counters(), before.0);
}

#[test]
fn a_flood_of_requests_is_answered_up_to_a_bound() {
    let mut pair = Pair::new(500);
    let request = sent(&mut pair.receiver, pair.now, &mut 0).remove(0);
    for _ in 0..10_000 {
        pair.source.handle(pair.now, input(address(2), &request));
    }
    assert_eq!(sent(&mut pair.source, pair.now, &mut 0).len(), SourceConfig::PENDING_MAX);
    assert_eq!(pair.source.counters().forgotten, 10_000 - SourceConfig::PENDING_MAX as u64);
}

/// All that a receiver says now: joins, leaves, requests and events.
fn said(receiver: &mut RainbowReceiver<Tally>, now: Instant) -> Vec<&'static str> {
    let mut buffer = [0; 9_000];
    core::iter::from_fn(|| receiver.poll_output(now, &mut buffer))
        .map(|output| match output {
            Output::Join(ChannelId(3)) => "join",
            Output::Leave(ChannelId(3)) => "leave",
            Output::Transmit(_) => "request",
            Output::Event(RainbowReceiverEvent::Completed) => "completed",
            other => panic!("{other:?}"),
        })
        .collect()
}

fn on_a_channel(wanted: u64) -> RainbowReceiver<Tally> {
    let config =
        RainbowReceiverConfig::new(address(1), address(1), SessionLabels::new(7)).with_channel(ChannelId(3));
    RainbowReceiver::new(config, Tally::new(Some(wanted)))
}

#[test]
fn a_receiver_that_is_full_leaves_its_channel() {
    let mut receiver = on_a_channel(1);
    assert_eq!(said(&mut receiver, at(0)), ["join", "request"]);
    let mut source = Pair::new(1).source;
    let ask = sent(&mut Pair::new(1).receiver, at(0), &mut 0).remove(0);
    source.handle(at(10), input(address(2), &ask));
    let reply = sent(&mut source, at(10), &mut 0).remove(0);
    receiver.handle(at(20), input(address(1), &reply));
    assert!(receiver.poll_timeout().is_some_and(|due| due <= at(20)));
    assert_eq!(said(&mut receiver, at(20)), ["leave", "completed"]);
    assert_eq!(receiver.poll_timeout(), None);
}

#[test]
fn what_is_full_from_the_beginning_is_told_without_a_request() {
    let mut receiver = on_a_channel(0);
    assert_eq!(said(&mut receiver, at(0)), ["completed"]);
    assert_eq!((receiver.poll_timeout(), receiver.counters().requests), (None, 0));
}

#[test]
fn being_full_is_told_once() {
    let mut pair = Pair::new(3);
    pair.run(at(10_000), || false);
    let mut buffer = [0; 9_000];
    assert_eq!(pair.completed, 1);
    assert_eq!(pair.receiver.poll_output(pair.now, &mut buffer), None::<Output<RainbowReceiverEvent>>);
}
