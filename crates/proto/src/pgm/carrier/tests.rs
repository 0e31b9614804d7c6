//! Both ends by themselves: what is missing is told once, to the right one, in bounds.

mod dismissal;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::BTreeSet;

use headwater_wire::pgm::{Body, Gsi, Kind, Packet};
use headwater_wire::{Cci, cci::WebrcCci};

use super::*;
use crate::control::{
    Arrival, EnvelopeContent, Membership, ReceiverControl, ReceiverEnvelope, SenderControl, SenderEnvelope,
};
use crate::le_sbcc::{Chain, LeSbccConfig};
use crate::machine::{ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn};
use crate::pgm::PgmSession;
use crate::rate::Rate;
use crate::rng::Seed;
use crate::time::{Duration, Instant};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);
const BACK_OFF: Duration = Duration::from_millis(50);
/// Wait of the first NAKs for a word, beyond the longest back-off.
const WORD_WAIT: Duration = Duration::from_millis(100);
/// LCT's version and no more.
const CONTENT: [u8; 100] = [0x10; 100];

fn host(number: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 1, number)), 50_000)
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn sender() -> PgmCarrierSender {
    let config =
        LeSbccConfig::new(124).with_initial_rate(Rate::from_kilobits(400)).with_doubling_at_start(true);
    let config = config.with_max_rate(Rate::from_kilobits(1_000));
    let chain = Chain::new(config, Seed(1).stream("chain", 0), Instant::ZERO);
    let session = PgmSession { gsi: Gsi([7; 6]), source_port: 9, destination_port: 7_500, group: GROUP };
    PgmCarrierSender::new(session, SOURCE.ip(), 1_024, chain, Instant::ZERO)
}

fn receiver(seed: u64) -> PgmCarrierReceiver {
    let mut receiver =
        PgmCarrierReceiver::new(PgmCarrierReceiverConfig::new(GROUP, Seed(seed)).with_back_off(BACK_OFF));
    receiver.start(Instant::ZERO);
    assert_eq!(receiver.poll_membership(), Some(Membership::Join(ChannelId::BASE)));
    receiver
}

/// The next datagram of content, when it is due.
fn departs(sender: &mut PgmCarrierSender) -> (Instant, Vec<u8>) {
    loop {
        let now = sender.next_departure().expect("it sends on").min(sender.poll_timeout().expect("a chain"));
        sender.timeout(now);
        if sender.departure(now).is_some() {
            return (now, depart(sender, now));
        }
    }
}

fn depart(sender: &mut PgmCarrierSender, now: Instant) -> Vec<u8> {
    let mut datagram = vec![0xEE; sender.bytes()];
    datagram.extend(CONTENT);
    sender.seal(now, &mut datagram);
    sender.departed(now, datagram.len());
    datagram
}

fn give(receiver: &mut PgmCarrierReceiver, now: Instant, from: SocketAddr, datagram: &[u8]) {
    let head =
        Datagram { source: from, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload: datagram };
    match receiver.open(now, &head) {
        EnvelopeContent::Packet { source, packet } => {
            assert_eq!((source, packet), (from, &CONTENT[..]));
            let Ok(Packet { body: Body::Odata { sequence, .. }, .. }) = Packet::parse(datagram) else {
                panic!("nothing is sent again")
            };
            let cci = WebrcCci { slot: 0, channel: 0, sequence: sequence & 0xFFFF }.short().expect("short");
            receiver.arrived(now, &arrival(from, &cci));
        }
        EnvelopeContent::Signal => {}
        EnvelopeContent::Malformed => panic!("a packet of PGM's can be opened: {datagram:?}"),
    }
}

fn arrival(source: SocketAddr, cci: &Cci) -> Arrival<'_> {
    Arrival {
        source,
        channel: ChannelId::BASE,
        cci,
        ecn: Ecn::NotCapable,
        bytes: 124,
        lateness: Duration::ZERO,
    }
}

fn rate(sender: &PgmCarrierSender) -> Rate {
    sender.source().rate()
}

/// NAKs due until `end`, each with its time and the numbers it asks for.
fn naks(receiver: &mut PgmCarrierReceiver, end: Instant) -> Vec<(Instant, Vec<u8>, Vec<u32>)> {
    let mut naks = Vec::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    while let Some(now) = receiver.poll_timeout().filter(|now| *now <= end) {
        receiver.timeout(now);
        while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
            assert_eq!(transmit.destination, Destination::Unicast(SOURCE));
            let bytes = buffer[..transmit.bytes].to_vec();
            let packet = Packet::parse(&bytes).expect("what we send can be read");
            let Body::Nak(report) = packet.body else {
                assert_eq!(packet.body, Body::Spmr);
                continue;
            };
            assert_eq!((report.source, report.group), (SOURCE.ip(), GROUP));
            let list = packet.options.nak_list;
            let numbers = core::iter::once(report.sequence).chain(list.as_slice().iter().copied()).collect();
            naks.push((now, bytes, numbers));
        }
    }
    naks
}

fn hear(sender: &mut PgmCarrierSender, now: Instant, from: SocketAddr, payload: &[u8]) -> Vec<Vec<u8>> {
    sender.feedback(now, &Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload });
    confirmations(sender, now)
}

fn confirmations(sender: &mut PgmCarrierSender, now: Instant) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut datagrams = Vec::new();
    while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
        assert_eq!(transmit.destination, Destination::Channel(ChannelId::BASE));
        let datagram = buffer[..transmit.bytes].to_vec();
        assert_eq!(Packet::parse(&datagram).expect("a packet").body.kind(), Kind::Ncf);
        datagrams.push(datagram);
    }
    datagrams
}

/// The packet inside is verified, PGM's header is not.
#[test]
fn a_number_that_differs_from_the_packets_own_is_not_counted() {
    let (mut sender, mut receiver) = (sender(), receiver(1));
    let (now, first) = departs(&mut sender);
    give(&mut receiver, now, SOURCE, &first);
    let (now, second) = departs(&mut sender);
    let packet = Packet::parse(&second).expect("a packet");
    let Body::Odata { sequence, trail, data } = packet.body else { panic!("a packet of content") };
    for forged in [sequence.wrapping_add(9), sequence.wrapping_sub(1)] {
        let packet = Packet { body: Body::Odata { sequence: forged, trail, data }, ..packet };
        let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
        let bytes = packet.emit(&mut datagram).expect("there is room");
        let payload = &datagram[..bytes];
        let channel = Some(ChannelId::BASE);
        let datagram = Datagram { source: SOURCE, channel, ecn: Ecn::NotCapable, payload };
        assert!(matches!(receiver.open(now, &datagram), EnvelopeContent::Packet { .. }));
        let cci = WebrcCci { slot: 0, channel: 0, sequence: sequence & 0xFFFF }.short().expect("short");
        receiver.arrived(now, &arrival(SOURCE, &cci));
        assert_eq!(receiver.missing(), 0, "number {forged}");
    }
    departs(&mut sender);
    let (now, fourth) = departs(&mut sender);
    give(&mut receiver, now, SOURCE, &fourth);
    assert_eq!(receiver.missing(), 2, "the second, whose numbers did not count, and the third");
}

#[test]
fn a_carried_packet_is_told_from_one_by_itself_by_its_first_bits() {
    assert_eq!(open(&CONTENT), Some(Opened::Bare(&CONTENT[..])));
    assert_eq!(open(&[]), Some(Opened::Bare(&[][..])));
    let (_, mut datagram) = departs(&mut sender());
    assert!(matches!(open(&datagram), Some(Opened::Carried(packet, content))
        if content == CONTENT && packet.source_port == 0x8009));
    datagram[40] ^= 1;
    assert_eq!(open(&datagram), None, "its checksum is wrong");
    assert_eq!(open(&[0x80; 12]), None);
}

#[test]
fn what_is_missing_is_told_once_until_it_is_confirmed() {
    let (mut sender, mut receiver, mut other) = (sender(), receiver(1), receiver(2));
    let mut last = Instant::ZERO;
    // The first NAKs wait for a word.
    for number in 0..120 {
        let (now, datagram) = departs(&mut sender);
        if ![90, 91, 92, 110].contains(&number) {
            give(&mut receiver, now, SOURCE, &datagram);
            give(&mut other, now, SOURCE, &datagram);
        }
        last = now;
    }
    let asked = naks(&mut receiver, last + BACK_OFF);
    assert_eq!(
        asked.iter().map(|(_, _, numbers)| numbers.as_slice()).collect::<Vec<_>>(),
        [&[90, 91, 92][..], &[110]]
    );
    assert_eq!((receiver.status(last).naks, receiver.reception().lost), (Some(2), 4));
    let now = last + BACK_OFF;
    let mut answers = hear(&mut sender, now, host(1), &asked[0].1);
    answers.extend(hear(&mut sender, now, host(1), &asked[1].1));
    assert_eq!(answers.len(), 2);
    // A copy of it says nothing new, and is not confirmed twice.
    assert!(hear(&mut sender, now, host(1), &asked[0].1).is_empty());
    let chain = sender.source().chain().expect("LE-SBCC finds the rate");
    assert_eq!((chain.counters().indications, chain.counters().reductions), (7, 1));
    assert_eq!(chain.receivers().worst().map(|(address, _)| address), Some(host(1).ip()));
    for answer in &answers {
        give(&mut receiver, now, SOURCE, answer);
        give(&mut other, now, SOURCE, answer);
    }
    assert_eq!((receiver.missing(), other.missing()), (0, 0), "what one asked for, others do not");
    assert!(naks(&mut other, at(60_000)).is_empty());
    assert_eq!(sender.source().counters().repairs, 0);
}

#[test]
fn a_nak_that_nobody_confirms_is_sent_four_times() {
    let mut receiver = receiver(1);
    let mut sender = sender();
    for number in 0..3 {
        let (now, datagram) = departs(&mut sender);
        if number != 1 {
            give(&mut receiver, now, SOURCE, &datagram);
        }
    }
    let asked = naks(&mut receiver, at(600_000));
    assert_eq!((asked.len(), receiver.missing()), (4, 0));
}

#[test]
fn a_packet_that_comes_late_and_one_that_leaves_is_asked_for_by_nobody() {
    let mut sender = sender();
    let sent: Vec<_> = (0..5).map(|_| departs(&mut sender)).collect();
    let mut receiver = receiver(1);
    let now = sent[4].0;
    [0, 2, 1].iter().for_each(|index| give(&mut receiver, now, SOURCE, &sent[*index].1));
    assert_eq!(receiver.missing(), 0, "it was behind");
    give(&mut receiver, now, SOURCE, &sent[4].1);
    assert_eq!(receiver.missing(), 1);
    receiver.stop(now);
    assert_eq!((receiver.missing(), receiver.poll_timeout()), (0, None));
    // What the socket's buffer still has says nothing either.
    for number in 5..9 {
        let (now, datagram) = departs(&mut sender);
        if number % 2 == 0 {
            give(&mut receiver, now, SOURCE, &datagram);
        }
    }
    assert_eq!((receiver.missing(), receiver.poll_timeout()), (0, None));
    // It comes back: what was sent meanwhile is not missing.
    receiver.start(now);
    (0..20).for_each(|_| _ = departs(&mut sender));
    let (now, datagram) = departs(&mut sender);
    give(&mut receiver, now, SOURCE, &datagram);
    assert_eq!(receiver.missing(), 0);
}

/// A packet of the sender's session, of any number.
fn forged(sequence: u32) -> Vec<u8> {
    let body = Body::Odata { sequence, trail: 0, data: &CONTENT };
    let packet = Packet::new(0x8009, 7_500, Gsi([7; 6]), body);
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes).expect("there is room");
    bytes
}

/// Whichever back-off is the shorter, and where numbers wrap.
#[test]
fn of_too_many_missing_ones_the_latest_numbers_are_asked_for() {
    for (seed, first) in (1..9).flat_map(|seed| [(seed, 0), (seed, u32::MAX - 300), (seed, u32::MAX - 900)]) {
        let mut receiver = receiver(seed);
        for number in [0, 601, 1_202] {
            give(&mut receiver, Instant::ZERO, SOURCE, &forged(first.wrapping_add(number)));
        }
        let asked: BTreeSet<_> = naks(&mut receiver, Instant::ZERO + BACK_OFF + WORD_WAIT)
            .into_iter()
            .flat_map(|(_, _, numbers)| numbers)
            .map(|number| number.wrapping_sub(first))
            .collect();
        assert_eq!(asked, (177..601).chain(602..1_202).collect(), "{seed} from {first}");
        assert_eq!(asked.len(), MISSING_MAX);
    }
}

#[test]
fn a_receiver_keeps_a_bounded_number_and_a_forged_jump_does_not_silence_it() {
    let mut sender = sender();
    let mut receiver = receiver(1);
    let (now, datagram) = departs(&mut sender);
    give(&mut receiver, now, SOURCE, &datagram);
    for sequence in [5_000, 5_010, 9_000, 1 << 30, (1 << 31) - 2] {
        give(&mut receiver, now, SOURCE, &forged(sequence));
        assert!(receiver.missing() <= MISSING_MAX);
    }
    assert_eq!(receiver.missing(), MISSING_MAX);
    for number in 0..200 {
        let (now, datagram) = departs(&mut sender);
        if number != 150 {
            give(&mut receiver, now, SOURCE, &datagram);
        }
    }
    let asked = naks(&mut receiver, at(600_000));
    assert_eq!(asked[0].2, [151], "the count began anew");
}

/// Every receiver's NAKs, and those of liars: the rate stays above the floor, the sender's data goes on,
/// confirmations are few.
#[test]
fn no_flood_of_naks_stops_the_data_or_takes_it_below_the_floor() {
    let mut sender = sender();
    let mut sent = 0_u32;
    let mut answers = 0;
    let floor = Rate::from_bits(124 * 8).expect("a rate");
    for number in 0..1_000 {
        let (now, _) = departs(&mut sender);
        sent += 1;
        for liar in 0..50_u32 {
            let from = host((liar % 200) as u8);
            let nak = nak(sent.wrapping_sub(1 + liar % sent), (0..62).map(|step| sent.wrapping_sub(step)));
            answers += hear(&mut sender, now, from, &nak).len();
        }
        assert!(rate(&sender) >= floor, "{number}");
    }
    assert!(answers <= 8 * 1_000, "{answers}");
    let (begun, ended) = (departs(&mut sender).0, departs(&mut sender).0);
    assert!(ended.since(begun) <= LeSbccConfig::new(124).floor_period().saturating_mul(2));
    // Nobody lies any more: it recovers.
    let before = rate(&sender);
    (0..300).for_each(|_| _ = departs(&mut sender));
    assert!(rate(&sender).as_bits() > 2 * before.as_bits());
}

fn nak(sequence: u32, list: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let report = headwater_wire::pgm::PgmReport { sequence, source: SOURCE.ip(), group: GROUP };
    let mut packet = Packet::new(7_500, 0x8009, Gsi([7; 6]), Body::Nak(report));
    list.into_iter().for_each(|number| _ = packet.options.nak_list.push(number));
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes).expect("there is room");
    bytes
}

#[test]
fn a_rate_that_is_not_used_does_not_rise() {
    let mut busy = sender();
    while departs(&mut busy).0 < at(5_000) {}
    let mut idle = sender();
    while let Some(now) = idle.poll_timeout().filter(|now| *now < at(5_000)) {
        idle.timeout(now);
    }
    assert_eq!(rate(&busy), Rate::from_kilobits(1_000), "doubled up to the most");
    assert_eq!(rate(&idle), Rate::from_kilobits(400));
}

#[test]
fn a_source_is_greeted_thrice_and_then_its_rate_doubles() {
    let config = LeSbccConfig::new(124).with_doubling_at_start(true).with_blind_doubling(None);
    let chain = Chain::new(config, Seed(1).stream("chain", 0), Instant::ZERO);
    let session = PgmSession { gsi: Gsi([7; 6]), source_port: 9, destination_port: 7_500, group: GROUP };
    let mut sender = PgmCarrierSender::new(session, SOURCE.ip(), 1_024, chain, Instant::ZERO);
    let mut receiver = receiver(1);
    let (first, packet) = departs(&mut sender);
    give(&mut receiver, first, SOURCE, &packet);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut greetings = Vec::new();
    while let Some(now) = receiver.poll_timeout() {
        let transmit = receiver.poll_transmit(now, &mut buffer).expect("it is due");
        assert_eq!(transmit.destination, Destination::Unicast(SOURCE));
        greetings.push((now, buffer[..transmit.bytes].to_vec()));
        assert!(greetings.len() < 10);
    }
    let times: Vec<_> = greetings.iter().map(|(at, _)| at.since(first)).collect();
    assert!(times.len() == 3 && times[0] <= BACK_OFF && times[2] <= BACK_OFF + Duration::from_secs(2));
    let begin = rate(&sender);
    while departs(&mut sender).0 < at(5_000) {}
    assert_eq!(rate(&sender), begin, "nobody was heard");
    assert!(hear(&mut sender, at(5_000), host(1), &greetings[0].1).is_empty(), "lean sources send no SPM");
    while departs(&mut sender).0 < at(6_500) {}
    assert!(rate(&sender) > begin);
}

#[test]
fn made_up_sources_get_a_greeting_a_second() {
    let mut receiver = receiver(1);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut greeted = 0;
    for ms in 0..10_000_u16 {
        let [high, low] = ms.to_be_bytes();
        let (gsi, now) = (Gsi([high, low, 0, 0, 0, 0]), at(ms.into()));
        let body = Body::Odata { sequence: 0, trail: 0, data: &CONTENT };
        let bytes = Packet::new(0x8009, 7_500, gsi, body).emit(&mut buffer).expect("short");
        give(&mut receiver, now, SOURCE, &buffer[..bytes]);
        while receiver.poll_transmit(now, &mut buffer).is_some() {
            greeted += 1;
        }
    }
    assert!(greeted <= 10, "{greeted} in 10 s");
}
