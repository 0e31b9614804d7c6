//! Relays: what a tree of them comes to, and what strangers can do to one.

mod bed;

use core::cell::RefCell;
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_wire::roster::{
    REPLY_BYTES, REPORT_BYTES_MAX, ReceiverState, Reply, Report, ReportKind, RosterHeader, is_roster,
};
use headwater_wire::sim::{Holding, SimReport};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use self::bed::{Bed, Node, shape};
use crate::control::ReceiverControl;
use crate::machine::{ChannelId, Datagram, Ecn, Input, InterfaceId, Machine, Output};
use crate::rng::Seed;
use crate::roster::{RosterConfig, RosterSender};
use crate::sim::relay::{MEMBERS_MAX, PORTS_MAX, Relay, RelayConfig, RelayCounters, below, channel};
use crate::time::{Duration, Instant};

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

const LINKS: [f64; 6] = [2e6, 4e6, 8e6, 2e6, 4e6, 8e6];

#[test]
fn each_receiver_gets_what_its_link_carries_and_only_relays_speak_upwards() {
    let mut bed = Bed::new();
    bed.run(at(40));
    let rates = bed.rates(Duration::from_secs(20));
    for (rate, link) in rates.iter().zip(LINKS) {
        assert!((0.85..=1.0).contains(&(rate / link)), "{rates:?}");
    }
    let held: Vec<_> = bed.ends.iter().map(|end| end.receiver.held()).collect();
    assert_eq!(held, [1, 2, 3, 1, 2, 3]);
    // Late in the run nothing is lost: queues mark, and only top groups.
    assert!(bed.ends.iter().all(|end| end.marked > 50));
    let tops = |relay: usize| {
        bed.relays[relay].as_ref().map(|relay| (0..3).map(|link| relay.top(link, 0)).collect())
    };
    assert_eq!(tops(1), Some(vec![1, 2, 3]));
    check_reports(&bed);
}

/// What crosses the hop above a router: one report of a group and request, of nobody's name.
fn check_reports(bed: &Bed) {
    let mut names = BTreeSet::new();
    for message in bed.unicast.iter().filter(|message| matches!(message.from, Node::Receiver(_))) {
        assert!(matches!(message.to, Node::Relay(1 | 2)));
        if let Ok(report) = SimReport::parse(&message.bytes) {
            names.insert(report.source.to_be_bytes());
        }
    }
    assert_eq!(names.len(), 6);
    let above = bed.unicast.iter().filter(|message| matches!(message.from, Node::Relay(_)));
    let mut seen = BTreeMap::new();
    let mut most = 0;
    for message in above {
        let is_named = |name: &[u8]| message.bytes.windows(4).any(|bytes| bytes == name);
        assert!(!names.iter().any(|name| is_named(name)), "a receiver is named: {message:?}");
        assert!(!is_named(&[10, 9, 77]), "a receiver's address");
        if let Ok(report) = SimReport::parse(&message.bytes) {
            *seen.entry((message.from, report.request, report.group.rank)).or_insert(0) += 1;
            most = most.max(report.reports);
        }
    }
    assert!(seen.len() > 500 && seen.values().all(|count| *count == 1));
    assert_eq!(most, 6, "they were merged, all in the bottom group at first");
}

#[test]
fn a_relay_that_vanishes_is_forgotten_and_the_others_receivers_go_on() {
    let mut bed = Bed::new();
    bed.run(at(30));
    bed.relays[2] = None;
    bed.run(at(40));
    let top = bed.relays[0].as_ref().unwrap();
    assert_eq!(
        (top.top(0, 0), top.top(1, 0)),
        (3, 1),
        "what is held below the one that is gone is sent no more"
    );
    let rates = bed.rates(Duration::from_secs(15));
    for (rate, link) in rates.iter().zip(LINKS).take(3) {
        assert!((0.8..=1.0).contains(&(rate / link)), "{rates:?}");
    }
}

#[test]
fn without_a_sender_all_fall_silent_and_another_session_is_taken() {
    let mut bed = Bed::new();
    bed.run(at(20));
    bed.sender = None;
    bed.run(at(45));
    let before = bed.unicast.len();
    bed.run(at(60));
    assert_eq!(bed.unicast.len(), before, "{:?}", bed.unicast.last());
    let groups = |bed: &Bed, relay: usize| bed.relays[relay].as_ref().unwrap().counters().groups;
    assert_eq!([0, 1, 2].map(|relay| groups(&bed, relay)), [1, 1, 1]);
    bed.tsi = 78;
    bed.start_sender();
    for end in &mut bed.ends {
        let config = crate::sim::SimConfig::new(8, bed::PACKET_BYTES).with_session(78).with_holdings(true);
        end.receiver = crate::sim::SimReceiver::new(config, Seed(9));
        end.held.clear();
        end.receiver.start(at(60));
    }
    bed.run(at(85));
    assert_eq!([0, 1, 2].map(|relay| groups(&bed, relay)), [3, 3, 3]);
}

/// Datagrams of a roster, as they went from node to node since an earlier number of messages.
fn of_roster(bed: &Bed, since: usize) -> Vec<(Node, Node, &[u8])> {
    let messages = bed.unicast[since..].iter().filter(|message| is_roster(&message.bytes));
    messages.map(|message| (message.from, message.to, &message.bytes[..])).collect()
}

#[test]
fn reports_to_a_roster_pass_two_relays_as_they_are_and_replies_come_back() {
    let mut bed = Bed::new();
    bed.run(at(5));
    let mut roster = RosterSender::new(RosterConfig::new(), [3; 32]);
    let (mut bytes, mut cookies) = ([0; REPORT_BYTES_MAX], BTreeMap::new());
    for (second, kind) in [(6, ReportKind::Hello), (7, ReportKind::Progress), (8, ReportKind::Done)] {
        for number in [0_usize, 4] {
            let since = bed.unicast.len();
            let (receiver, relay) = (100 + number as u64, Node::Relay(1 + number / 3));
            let cookie = cookies.get(&receiver).copied().unwrap_or(0);
            let header = RosterHeader { kind, receiver, cookie, sequence: 1 };
            let state = (kind != ReportKind::Hello).then(ReceiverState::default);
            let length = Report { header, state, name: Some("a-host") }.emit(&mut bytes);
            bed.unicast(Node::Receiver(number), relay.address(), bytes[..length].to_vec());
            bed.run(bed.now + Duration::from_millis(50));
            let report = &bytes[..length];
            let end = Node::Receiver(number);
            let up = [(end, relay), (relay, Node::Relay(0)), (Node::Relay(0), Node::Sender)];
            assert_eq!(of_roster(&bed, since), up.map(|(from, to)| (from, to, report)));
            let source = Node::Relay(0).address();
            let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: report };
            let is_counted = roster.on_datagram(bed.now, &datagram).is_some();
            assert_eq!(is_counted, cookie != 0, "a cookie of the relay's address: {number}, {kind:?}");
            let since = bed.unicast.len();
            let mut reply = [0; REPLY_BYTES];
            roster.poll_transmit(&mut reply).unwrap();
            bed.unicast(Node::Sender, source, reply.to_vec());
            bed.run(bed.now + Duration::from_millis(50));
            let down = [(Node::Sender, Node::Relay(0)), (Node::Relay(0), relay), (relay, end)];
            assert_eq!(of_roster(&bed, since), down.map(|(from, to)| (from, to, &reply[..])));
            let header = Reply::parse(&reply).unwrap().header;
            assert_eq!(header.receiver, receiver);
            cookies.insert(receiver, header.cookie);
        }
        bed.run(at(second));
    }
    assert_eq!(roster.rows().count(), 2);
    assert_eq!(bed.relays[0].as_ref().unwrap().counters().passed, 12);
}

fn tell(bed: &mut Bed, relay: usize, link: usize, from: SocketAddr, groups: u8) {
    let payload = Holding { session: 77, groups }.emit();
    let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload: &payload };
    bed.give(relay, below(link), datagram);
}

#[test]
fn members_are_bounded_and_those_known_stay() {
    let mut bed = Bed::new();
    bed.run(at(5));
    let octet = |number: usize| u8::try_from(number & 255).unwrap();
    let address = |number: usize| SocketAddr::from(([10, 66, octet(number >> 8), octet(number)], 5));
    for number in 0..MEMBERS_MAX {
        tell(&mut bed, 1, 0, address(number), 1);
    }
    tell(&mut bed, 1, 0, ([10, 67, 0, 1], 5).into(), 8);
    let counters = bed.relays[1].as_ref().unwrap().counters();
    assert_eq!(counters.members, MEMBERS_MAX);
    assert_eq!(counters.crowded, 4, "three are receivers");
    assert_eq!(bed.relays[1].as_ref().unwrap().top(0, 0), 1);
    tell(&mut bed, 1, 0, address(7), 200);
    assert_eq!(bed.relays[1].as_ref().unwrap().top(0, 0), 8, "no more than there are");
    bed.run(at(13));
    assert_eq!(bed.relays[1].as_ref().unwrap().counters().members, 3);
    let held = bed.ends[0].receiver.held();
    assert_eq!(bed.relays[1].as_ref().unwrap().top(0, 0), held, "what the only one left there holds");
    assert!(held < 8);
}

#[test]
fn the_ports_of_one_host_leave_room_for_others() {
    let mut bed = Bed::new();
    bed.run(at(5));
    for port in 1..=2_000 {
        tell(&mut bed, 1, 0, ([10, 66, 0, 1], port).into(), 1);
    }
    let counters = bed.relays[1].as_ref().unwrap().counters();
    assert_eq!((counters.members, counters.crowded), (3 + PORTS_MAX, 2_000 - PORTS_MAX as u64));
    tell(&mut bed, 1, 0, ([10, 66, 0, 1], 1).into(), 4);
    assert_eq!(bed.relays[1].as_ref().unwrap().top(0, 0), 4, "who is known is heard still");
    tell(&mut bed, 1, 0, ([10, 66, 0, 2], 1).into(), 9);
    assert_eq!(bed.relays[1].as_ref().unwrap().top(0, 0), 8, "and another host, too");
    assert_eq!(bed.relays[1].as_ref().unwrap().counters().beyond, 1);
}

/// From two links in turn, so that each telling would raise one link and lower the other.
#[test]
fn who_tells_of_more_and_less_in_turn_brings_few_joins_and_tellings() {
    let mut bed = Bed::new();
    bed.run(at(5));
    let before = bed.unicast.len();
    for step in 0..1_000_u64 {
        bed.run(at(5) + Duration::from_millis(step));
        for (link, groups) in [(0, 8), (0, 0), (1, 5), (1, 0)] {
            tell(&mut bed, 1, link, ([10, 66, 0, 1], 5).into(), groups);
        }
    }
    let tellings = bed.unicast[before..].iter().filter(|message| {
        (message.from, message.to) == (Node::Relay(1), Node::Relay(0))
            && Holding::parse(&message.bytes).is_ok()
    });
    let tellings = tellings.count();
    assert!(
        (2..=14).contains(&tellings),
        "{tellings}: four rises and falls a second, each told once or twice"
    );
    bed.run(at(7));
    assert!(bed.relays[1].as_ref().unwrap().counters().groups <= 3, "what nobody holds is left");
}

/// One receiver of six lies as much as it can, from one address: it weighs as one.
#[test]
fn a_forger_on_a_link_counts_as_one() {
    let mut bed = Bed::new();
    bed.run(at(30));
    let from = ([10, 9, 77, 222], 6_000).into();
    let mut weight = 0;
    for step in 0..3_000_u64 {
        bed.run(at(30) + Duration::from_millis(5 * step));
        let heard = bed.unicast.iter().rev().find_map(|message| {
            let is_below = matches!(message.from, Node::Receiver(3));
            SimReport::parse(&message.bytes).ok().filter(|_| is_below)
        });
        let honest = heard.unwrap();
        let forged = SimReport { reports: 9_000, congested: 9_000, population: 9_000, min_rate: 0, ..honest };
        for rank in 0..8 {
            let group = headwater_wire::sim::Group { rank, ..forged.group };
            let payload = SimReport { group, ..forged }.emit();
            let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload: &payload };
            bed.give(2, below(0), datagram);
        }
        let up = bed.unicast.iter().rev().take(4).filter(|message| message.from == Node::Relay(0));
        let reports = up.filter_map(|message| SimReport::parse(&message.bytes).ok());
        weight = reports.map(|report| report.reports).fold(weight, u32::max);
    }
    assert!((2..=7).contains(&weight), "{weight}");
}

/// Eight groups of 500 kbit/s each for a link of 1 Mbit/s, and a member that announces all of them.
#[test]
fn a_link_whose_queue_drops_too_much_loses_top_groups() {
    let mut tops = Vec::new();
    for prunes in [true, false] {
        let config = RelayConfig::new(1, 8, vec![Some(shape(1_000_000))], Seed(1)).with_pruning(prunes);
        let mut relay = Relay::new(config, Instant::ZERO).unwrap();
        let mut buffer = [0; 9_000];
        let mut seen = Vec::new();
        for step in 0..30_000_u32 {
            let now = Instant::ZERO + Duration::from_millis(step.into());
            if step % 1_000 == 0 {
                let payload = Holding { session: 77, groups: 8 }.emit();
                let datagram = Datagram {
                    source: ([10, 0, 0, 2], 5).into(),
                    channel: None,
                    ecn: Ecn::NotCapable,
                    payload: &payload,
                };
                relay.handle(now, Input::Routed(below(0), datagram));
                seen.push(relay.top(0, 0));
            }
            // 8 packets of 1000 bytes each 16 ms.
            if step % 2 == 0 {
                let rank = u16::try_from(step / 2 % 8).unwrap();
                let mut payload = vec![0; 1_000];
                payload[..6].copy_from_slice(&[0x18, 0x80, 5, 0, 1, rank.to_be_bytes()[1]]);
                payload[16..20].copy_from_slice(&[0, 0, 0, 77]);
                let datagram = Datagram {
                    source: ([10, 0, 0, 1], 5).into(),
                    channel: Some(channel(0, rank)),
                    ecn: Ecn::Capable0,
                    payload: &payload,
                };
                relay.handle(now, Input::Routed(InterfaceId(0), datagram));
            }
            while relay.poll_output(now, &mut buffer).is_some() {}
        }
        assert_eq!(relay.counters().pruned > 0, prunes);
        tops.push(seen);
    }
    assert_eq!(tops[1].last(), Some(&8));
    // The first announcement precedes the session.
    assert_eq!(tops[0][1..3], [8; 2]);
    assert!(tops[0][5..].iter().all(|top| (1..=2).contains(top)), "what the link carries: {tops:?}");
}

/// What comes: by which interface and channel, its bytes, and how long after what came before.
type Arriving = (u32, Option<u16>, Vec<u8>, u64);

/// Makes of chance, in turn, a packet of a session's data, somebody's telling, and a report. Says from whom.
fn shaped(index: usize, (_, channel_number, payload, _): &mut Arriving) -> SocketAddr {
    payload.resize([60, 8, 40][index % 3], 0);
    let (rank, host) = (payload[6] % 10, payload[7] % 3);
    let (request, stamp) = (u8::try_from(index / 12).unwrap(), u8::try_from(index / 3).unwrap());
    match index % 3 {
        0 => {
            // LCT with 12 bytes of control information.
            payload[..6].copy_from_slice(&[0x18, 0x80, 5, 0, 1, rank]);
            if host > 0 {
                payload[6..12].copy_from_slice(&[0, request, 0, 0, stamp, 0]);
            }
            payload[16..20].copy_from_slice(&[0, 0, 0, 77]);
            *channel_number = channel_number.map(|number| channel(usize::from(number % 3), rank.into()).0);
        }
        1 => payload.copy_from_slice(&Holding { session: 77, groups: rank * 28 }.emit()),
        _ => {
            payload[0] = 1;
            payload[8..12].copy_from_slice(&[0, 0, 77, rank]);
            // Counts that are in order, mostly.
            payload[12..24].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, host % 2, 0, 0, 0, 9]);
            payload[28] |= 0xF0;
            if host > 0 {
                payload[2..4].copy_from_slice(&[0, request]);
                payload[32..40].copy_from_slice(&[0, 0, stamp, 0, 0, 0, 0, 0]);
            }
        }
    }
    ([10, 0, 0, host], 5).into()
}

/// Gives a relay all that, and says what it counted. It holds the bottom groups always, and no others than
/// sessions may have.
fn survive(messages: Vec<Arriving>) -> Result<RelayCounters, TestCaseError> {
    let config = RelayConfig::new(2, 8, vec![Some(shape(1_000_000)), None], Seed(1));
    let mut relay = Relay::new(config, Instant::ZERO).unwrap();
    let (mut now, mut joined, mut buffer) = (Instant::ZERO, BTreeSet::new(), [0; 9_000]);
    let mut most = 0;
    for (index, mut message) in messages.into_iter().enumerate() {
        let source = shaped(index, &mut message);
        let (ingress, channel_number, payload, wait) = message;
        now += Duration::from_nanos(wait);
        let channel_number = channel_number.map(ChannelId);
        let datagram = Datagram { source, channel: channel_number, ecn: Ecn::Capable0, payload: &payload };
        relay.handle(now, Input::Routed(InterfaceId(ingress), datagram));
        while let Some(output) = relay.poll_output(now, &mut buffer) {
            match output {
                Output::Join(channel) => prop_assert!(joined.insert(channel)),
                Output::Leave(channel) => prop_assert!(joined.remove(&channel)),
                _ => {}
            }
        }
        let is_whole = joined.contains(&channel(0, 0)) && joined.contains(&channel(1, 0));
        prop_assert!(is_whole && joined.len() <= 16);
        most = most.max(relay.counters().groups);
    }
    Ok(RelayCounters { groups: most, ..relay.counters() })
}

/// Whatever comes by whatever interface. That it gets past the door is asserted, too.
#[test]
fn anything_is_survived() {
    let bytes = prop::collection::vec(any::<u8>(), 0..60);
    let waits = prop_oneof![9 => 0_u64..10_000_000, 1 => 0_u64..4_000_000_000];
    let arriving = (0_u32..4, prop::option::weighted(0.4, 0_u16..1_100), bytes, waits);
    let all = RefCell::new(Vec::new());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(arriving, 0..80), |messages| {
        all.borrow_mut().push(survive(messages)?);
        Ok(())
    });
    outcome.unwrap();
    let often = |of: fn(&RelayCounters) -> bool| all.borrow().iter().filter(|counters| of(counters)).count();
    let reached = [
        often(|counters| counters.packets > 0),
        often(|counters| counters.groups == 8),
        often(|counters| counters.egress.sent > 0),
        often(|counters| counters.reports > 0),
    ];
    // Reports must fit the request that holds, which takes some luck.
    let least = [20, 20, 10, 1];
    assert!(reached.iter().zip(least).all(|(count, least)| *count >= least), "{reached:?} of 600");
}
