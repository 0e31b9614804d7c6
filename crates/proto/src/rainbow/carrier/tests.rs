//! Files by request, over a path that delays and loses.

mod admission;
mod challenges;
mod places;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_fec::{Order, Scheme};
use headwater_wire::alc;
use headwater_wire::bcfs::{Header, Kind, Label, Level};
use rand::Rng;

use super::*;
use crate::control::SenderControl;
use crate::delivery::{
    self, End, FileToSend, MemorySource, MemoryStore, PlanConfig, ReceiverEvent, RelativePath,
};
use crate::delivery::{SessionEvent, SessionPlan};
use crate::machine::{ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, Machine, Output};
use crate::rate::Rate;
use crate::rng::{self, Seed, Stream};
use crate::time::{Duration, Instant};

const SOURCE: &str = "10.0.0.1:7288";
const SYMBOL: u16 = 256;
/// One way.
const DELAY: Duration = Duration::from_millis(20);

type FileSender = delivery::DeliverySender<RainbowCarrierSender, MemorySource>;
type FileReceiver = delivery::DeliveryReceiver<RainbowCarrierReceiver, MemoryStore>;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn source() -> SocketAddr {
    SOURCE.parse().unwrap()
}

fn host(number: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 1, 1].into(), 1_000 + number)
}

fn sender(
    files: &[&[u8]],
    config: RainbowCarrierSenderConfig,
    session: delivery::DeliverySenderConfig,
) -> FileSender {
    sender_by(Scheme::RaptorQ, files, config, session)
}

fn sender_by(
    scheme: Scheme,
    files: &[&[u8]],
    config: RainbowCarrierSenderConfig,
    session: delivery::DeliverySenderConfig,
) -> FileSender {
    let plan = files.iter().enumerate().map(|(number, bytes)| FileToSend {
        path: RelativePath::new(&format!("file-{number}")).unwrap(),
        bytes: bytes.len() as u64,
        mode: None,
        modified: None,
    });
    let order = Order::Spread { rate: 10_000_000 };
    let config_of_plan = PlanConfig { scheme, symbol_size: SYMBOL, order };
    let plan = SessionPlan::new(plan.collect(), config_of_plan).unwrap();
    let source = MemorySource::new(&plan, files);
    let digests = source.digests();
    delivery::DeliverySender::new(session, &plan, &digests, RainbowCarrierSender::new(config), source)
        .unwrap()
}

fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Seed(bytes as u64).stream("content", 0).fill_bytes(&mut content);
    content
}

/// A source and receivers that ask it directly.
struct Bed {
    sender: FileSender,
    receivers: Vec<(FileReceiver, Vec<ReceiverEvent>)>,
    /// By when it comes: who gets it, or the source with `None`.
    under_way: BTreeMap<(Instant, u64), (Option<usize>, Vec<u8>)>,
    sent: u64,
    loss: f64,
    draw: Stream,
    now: Instant,
    /// Port of the first receiver, less 1000. Replies to earlier ports are lost.
    first_port: u16,
}

impl Bed {
    fn new(sender: FileSender, loss: f64) -> Self {
        let draw = Seed(5).stream("loss", 0);
        let (receivers, under_way) = (Vec::new(), BTreeMap::new());
        Self { sender, receivers, under_way, sent: 0, loss, draw, now: Instant::ZERO, first_port: 0 }
    }

    fn receiver(&mut self) -> usize {
        self.receiver_with(MemoryStore::new(1 << 24))
    }

    fn receiver_with(&mut self, store: MemoryStore) -> usize {
        let config =
            RainbowCarrierReceiverConfig::new(source(), source()).with_channel(Some(ChannelId::BASE));
        self.receiver_of(config, store)
    }

    fn receiver_of(&mut self, config: RainbowCarrierReceiverConfig, store: MemoryStore) -> usize {
        let control = RainbowCarrierReceiver::new(config);
        let machine = delivery::DeliveryReceiver::new(
            delivery::DeliveryReceiverConfig::default(),
            control,
            store,
            self.now,
        );
        self.receivers.push((machine, Vec::new()));
        self.drain(Some(self.receivers.len() - 1));
        self.receivers.len() - 1
    }

    fn drain(&mut self, who: Option<usize>) {
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        loop {
            let transmit = match who {
                None => match self.sender.poll_output(self.now, &mut room) {
                    Some(Output::Transmit(transmit)) => transmit,
                    Some(_) => continue,
                    None => return,
                },
                Some(index) => {
                    let (machine, events) = &mut self.receivers[index];
                    match machine.poll_output(self.now, &mut room) {
                        Some(Output::Transmit(transmit)) => transmit,
                        Some(Output::Event(event)) => {
                            events.push(event);
                            continue;
                        }
                        Some(Output::Join(_) | Output::Leave(_) | Output::Router(_)) => continue,
                        None => return,
                    }
                }
            };
            let to = match transmit.destination {
                Destination::Unicast(address) if address == source() => None,
                Destination::Unicast(address) => {
                    let Some(number) = address.port().checked_sub(1_000 + self.first_port) else { continue };
                    Some(usize::from(number))
                }
                Destination::Channel(_) => panic!("all is by unicast"),
            };
            self.sent += 1;
            if rng::unit(&mut self.draw) >= self.loss {
                let mut datagram = room[..transmit.bytes].to_vec();
                if to.is_none() {
                    let from = u16::try_from(who.unwrap()).unwrap();
                    datagram.extend(from.to_be_bytes());
                }
                self.under_way.insert((self.now + DELAY, self.sent), (to, datagram));
            }
        }
    }

    fn give(&mut self, who: Option<usize>, from: SocketAddr, payload: &[u8]) {
        let input = Input::Datagram(Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload });
        match who {
            None => self.sender.handle(self.now, input),
            Some(index) => {
                let receiver = &mut self.receivers[index].0;
                receiver.handle(self.now, input);
                assert_eq!(receiver.stats().accounted(), receiver.stats().packets);
            }
        }
        self.drain(who);
    }

    /// Runs until an instant, or until all receivers have ended.
    fn run(&mut self, end: Instant) {
        while !self.receivers.iter().all(|(receiver, _)| receiver.is_ended()) {
            let ends = (0..self.receivers.len()).map(Some).chain([None]);
            let due = ends
                .filter_map(|who| Some((self.poll_timeout(who)?.max(self.now), who)))
                .min_by_key(|(at, _)| *at);
            let arrives = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let next = arrives.into_iter().chain(due.map(|(at, _)| at)).min().unwrap();
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            if arrives == Some(next) {
                let (_, (who, payload)) = self.under_way.pop_first().unwrap();
                match who {
                    Some(_) => self.give(who, source(), &payload),
                    None => {
                        let (payload, from) = payload.split_last_chunk::<2>().unwrap();
                        self.give(None, host(self.first_port + u16::from_be_bytes(*from)), payload);
                    }
                }
            } else if let Some((_, who)) = due {
                match who {
                    None => self.sender.handle(self.now, Input::Timeout),
                    Some(index) => self.receivers[index].0.handle(self.now, Input::Timeout),
                }
                self.drain(who);
            }
        }
    }

    fn poll_timeout(&self, who: Option<usize>) -> Option<Instant> {
        match who {
            None => self.sender.poll_timeout(),
            Some(index) => self.receivers[index].0.poll_timeout(),
        }
    }

    fn assert_whole(&self, index: usize, files: &[&[u8]]) {
        let (machine, events) = &self.receivers[index];
        let held: Vec<_> = machine.store().finished().map(|(_, bytes)| bytes).collect();
        assert_eq!(held.len(), files.len(), "{events:?}");
        assert!(files.iter().all(|file| held.iter().any(|held| held == file)));
        assert!(matches!(events.last(), Some(ReceiverEvent::SessionCompleted { refused: 0 })));
    }
}

fn config() -> RainbowCarrierSenderConfig {
    RainbowCarrierSenderConfig::new([1, 2])
}

#[test]
fn whoever_asks_whenever_gets_all_and_nothing_twice() {
    for loss in [0.0, 0.05] {
        let (one, other) = (content(300_000), content(7_000));
        let files = [&one[..], &other, &[]];
        let mut bed = Bed::new(sender(&files, config(), delivery::DeliverySenderConfig::new(7)), loss);
        bed.receiver();
        bed.run(at(400));
        bed.receiver();
        bed.run(at(60_000));
        bed.receiver();
        bed.run(at(200_000));
        let symbols = 1_172 + 28;
        for index in 0..3 {
            bed.assert_whole(index, &files);
            let stats = bed.receivers[index].0.stats();
            assert_eq!(stats.duplicates, 0, "{loss}: {stats:?}");
            let again = if loss > 0.0 { 2 } else { 0 };
            assert!((3..=3 + again).contains(&stats.fdt_packets), "{loss}: {stats:?}");
            // What is under way when the last block is whole is too much, and what comes of the large block
            // while the other waits for one more: who gets half of what is sent has 28 symbols of it give or
            // take 4 when the large one is whole.
            assert!(stats.useful <= symbols + 6 && stats.surplus < 500, "{loss}: {stats:?}");
        }
        assert!(bed.sender.stats().packets < 3 * (symbols + 510) + bed.sent / 10);
    }
}

/// The source and the path would carry 10 Mbit/s, and the window grows without losses.
#[test]
fn a_receiver_asks_for_no_more_than_its_maximum_rate() {
    let file = content(300_000);
    for (kilobits, seconds) in [(500, 4.8..5.8), (2_000, 1.2..1.6)] {
        let mut bed = Bed::new(sender(&[&file], config(), delivery::DeliverySenderConfig::new(7)), 0.0);
        let max_rate = Some(Rate::from_kilobits(kilobits));
        let receiver =
            RainbowCarrierReceiverConfig::new(source(), source()).with_channel(Some(ChannelId::BASE));
        bed.receiver_of(receiver.with_max_rate(max_rate), MemoryStore::new(1 << 24));
        bed.run(at(60_000));
        bed.assert_whole(0, &[&file]);
        assert!(
            seconds.contains(&bed.now.since(Instant::ZERO).as_secs_f64()),
            "{kilobits} kbit/s: {:?}",
            bed.now
        );
    }
}

/// The FDT of 300 files takes some ten symbols: each is asked for once, by whoever comes.
#[test]
fn a_long_description_is_asked_for_symbol_by_symbol() {
    let contents: Vec<_> = (0..300).map(|bytes| content(1 + bytes)).collect();
    let files: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    for loss in [0.0, 0.1] {
        let mut bed = Bed::new(sender(&files, config(), delivery::DeliverySenderConfig::new(7)), loss);
        bed.receiver();
        bed.run(at(120_000));
        bed.receiver();
        bed.run(at(240_000));
        for index in 0..2 {
            bed.assert_whole(index, &files);
            let stats = bed.receivers[index].0.stats();
            assert!(stats.fdt_packets >= 10, "{stats:?}");
            assert!(loss > 0.0 || stats.fdt_packets == bed.receivers[0].0.stats().fdt_packets);
        }
        let each = bed.sender.stats().fdt_packets / 2;
        assert!(loss > 0.0 || each == bed.receivers[0].0.stats().fdt_packets, "{each}");
    }
}

/// Nothing but a description of some 40 symbols: what is lost of it is asked for again.
#[test]
fn files_without_content_come_although_packets_are_lost() {
    let files = vec![&[][..]; 3_000];
    let mut bed = Bed::new(sender(&files, config(), delivery::DeliverySenderConfig::new(7)), 0.1);
    bed.receiver();
    bed.run(at(60_000));
    assert!(matches!(bed.receivers[0].1.last(), Some(ReceiverEvent::SessionCompleted { refused: 0 })));
    let stats = bed.receivers[0].0.stats();
    assert!(stats.fdt_packets > 30, "{stats:?}");
}

/// On a network where replies come to all, another receiver that asks for more of the FDT than there is tells
/// nothing of what this one asked for.
#[test]
fn what_others_ask_of_the_description_does_not_end_it() {
    let contents: Vec<_> = (0..300).map(|bytes| content(1 + bytes)).collect();
    let files: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
    let mut bed = Bed::new(sender(&files, config(), delivery::DeliverySenderConfig::new(7)), 0.0);
    bed.receiver();
    let reply = reply_to(&mut bed.sender, DESCRIPTIONS + 100_000);
    for step in 1..48 {
        bed.run(at(step * 20));
        hear_on_group(&mut bed, &reply);
    }
    let is_announced = |event: &ReceiverEvent| matches!(event, ReceiverEvent::FileAnnounced { .. });
    assert!(bed.receivers[0].1.iter().any(is_announced), "the FDT is whole");
}

/// Of one cycle each of the three would get a third by chance, and need some twenty cycles without a code.
#[test]
fn each_receiver_gets_every_symbol_of_a_cycle_once() {
    let file = content(200_000);
    for scheme in [Scheme::NoCode, Scheme::ReedSolomon] {
        let sender = sender_by(scheme, &[&file], config(), delivery::DeliverySenderConfig::new(7));
        let mut bed = Bed::new(sender, 0.0);
        for _ in 0..3 {
            bed.receiver();
        }
        bed.run(at(60_000));
        for index in 0..3 {
            bed.assert_whole(index, &[&file]);
            assert_eq!(bed.receivers[index].0.stats().duplicates, 0, "{scheme}");
        }
    }
}

/// A request that brings this.
fn asking(label: u32, body: &[u8]) -> Vec<u8> {
    let header = Header::new(Kind::Request, source(), Label(label), Level::ONE);
    let mut payload = vec![0; header.buffer_len()];
    header.emit(&mut payload).unwrap();
    payload.extend(body);
    payload
}

/// What the source answers to a request of another receiver's.
fn reply_to(sender: &mut FileSender, label: u32) -> Vec<u8> {
    let payload = asking(label, &[]);
    let datagram = Datagram { source: host(99), channel: None, ecn: Ecn::NotCapable, payload: &payload };
    sender.handle(at(0), Input::Datagram(datagram));
    let mut room = vec![0; DATAGRAM_BYTES_MAX];
    let Some(Output::Transmit(transmit)) = sender.poll_output(at(0), &mut room) else { panic!("no reply") };
    room[..transmit.bytes].to_vec()
}

fn hear_on_group(bed: &mut Bed, payload: &[u8]) {
    let channel = Some(ChannelId::BASE);
    let datagram = Datagram { source: source(), channel, ecn: Ecn::NotCapable, payload };
    bed.receivers[0].0.handle(bed.now, Input::Datagram(datagram));
    bed.drain(Some(0));
}

/// An earlier session had the same number, and others' content comes first.
#[test]
fn a_description_that_was_kept_is_not_taken_for_one_that_was_not_seen() {
    let (old, new) = (content(60_000), content(90_000));
    let mut first = Bed::new(sender(&[&old], config(), delivery::DeliverySenderConfig::new(7)), 0.0);
    first.receiver();
    first.run(at(90));
    let store = first.receivers.remove(0).0.into_store().interrupted();
    let session = delivery::DeliverySenderConfig::new(7).with_ntp_at_zero(60);
    let mut bed = Bed::new(sender(&[&new], config(), session), 0.0);
    bed.receiver_with(store);
    let reply = reply_to(&mut bed.sender, 1);
    hear_on_group(&mut bed, &reply);
    bed.run(at(60_000));
    assert!(matches!(bed.receivers[0].1.last(), Some(ReceiverEvent::SessionCompleted { refused: 0 })));
    let announced = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::FileAnnounced { bytes, .. } if *bytes == 90_000);
    assert_eq!(bed.receivers[0].1.iter().filter(announced).count(), 1);
}

#[test]
fn a_description_that_does_not_become_whole_is_asked_for_again() {
    let file = content(400_000);
    let mut bed = Bed::new(sender(&[&file], config(), delivery::DeliverySenderConfig::new(7)), 0.0);
    bed.receiver();
    bed.run(at(20) + Duration::from_micros(1));
    // The FDT comes with its last byte changed.
    let (key, (who, mut reply)) = bed.under_way.pop_first().unwrap();
    assert_eq!(who, Some(0));
    let last = reply.len() - 1;
    reply[last] ^= 0xFF;
    bed.under_way.insert(key, (who, reply));
    bed.run(at(60_000));
    bed.assert_whole(0, &[&file]);
}

#[test]
fn a_session_that_is_closed_tells_who_asks_and_ends() {
    let file = content(3_000_000);
    // At the low rate a whole window waits at the source.
    for config in [config(), config().with_max_rate(Some(Rate::from_kilobits(50)), 300)] {
        let mut bed = Bed::new(sender(&[&file], config, delivery::DeliverySenderConfig::new(7)), 0.0);
        bed.receiver();
        bed.run(at(2_000));
        let before = bed.sender.stats().packets;
        bed.sender.close();
        bed.drain(None);
        bed.run(at(2_300));
        let told = bed.sender.stats().packets - before;
        assert!(told > 0, "who waits is told");
        bed.run(at(20_000));
        let end = bed.sender.poll_timeout().unwrap();
        assert!(bed.now < at(4_000) && end <= at(6_500), "{:?}, {end:?}", bed.now);
        while !bed.sender.is_finished() {
            let _ = bed.sender.poll_output(end, &mut vec![0; DATAGRAM_BYTES_MAX]);
        }
        let all = bed.sender.stats().packets - before;
        assert!(all <= told + 256, "who was told asks no more: {all}");
        assert_eq!(bed.receivers[0].1.last(), Some(&ReceiverEvent::SessionClosed));
    }
    // Nobody asks: it ends all the same.
    let config_of_session = delivery::DeliverySenderConfig::new(7).with_end(End::At(at(5_000)));
    let mut alone = sender(&[&file], config(), config_of_session);
    let mut room = vec![0; DATAGRAM_BYTES_MAX];
    assert_eq!(alone.poll_timeout(), Some(at(5_000)));
    assert_eq!(alone.poll_output(at(5_000), &mut room), None);
    let end = alone.poll_timeout().unwrap();
    assert!(end <= at(9_000));
    assert!(matches!(alone.poll_output(end, &mut room), Some(Output::Event(_))));
    assert!(alone.is_finished() && alone.poll_timeout().is_none());
}

/// A corrupt or forged word, or one that a relay kept from before the source was started again: the session
/// goes on behind it.
#[test]
fn one_packet_that_closes_does_not_end_a_session_that_goes_on() {
    let file = content(3_000_000);
    let mut bed = Bed::new(sender(&[&file], config(), delivery::DeliverySenderConfig::new(7)), 0.0);
    bed.receiver();
    bed.run(at(1_000));
    let mut reply = reply_to(&mut bed.sender, 1);
    let lct = Header::new(Kind::Reply, source(), Label(1), Level::ONE).buffer_len();
    // The flag A of the LCT header (RFC 5651, 5.1).
    reply[lct + 1] |= 0x02;
    assert!(alc::parse(&reply[lct..]).unwrap().0.close_session);
    hear_on_group(&mut bed, &reply);
    bed.run(at(60_000));
    bed.assert_whole(0, &[&file]);
}

/// The source is started again, with another number: what comes of it answers nothing, until the old one has
/// been silent for five seconds.
#[test]
fn another_session_of_the_source_takes_over_after_a_silence() {
    let file = content(3_000_000);
    let mut bed = Bed::new(sender(&[&file], config(), delivery::DeliverySenderConfig::new(7)), 0.0);
    bed.receiver();
    bed.run(at(500));
    bed.sender = sender(&[&file], config(), delivery::DeliverySenderConfig::new(8));
    // What was under way has come.
    bed.run(at(530));
    let answered = bed.receivers[0].0.control().window().counters().answered;
    bed.run(at(30_000));
    let (receiver, events) = &bed.receivers[0];
    let superseded = SessionEvent::Superseded { tsi: 8, source: source() };
    assert_eq!(events.last(), Some(&superseded.into()));
    assert!(bed.now > at(5_500) && bed.now < at(15_000), "{:?}", bed.now);
    assert_eq!(receiver.control().window().counters().answered, answered);
}

/// Receivers keep what they have of the session before: the same symbols once more would bring them nothing.
/// They are known by the word that they bring back.
#[test]
fn a_source_that_is_started_again_sends_other_symbols() {
    let file = content(100_000);
    let symbols = |key, tsi, word: &[u8]| {
        let mut sender =
            sender(&[&file], RainbowCarrierSenderConfig::new(key), delivery::DeliverySenderConfig::new(tsi));
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        let sent = |label| {
            let payload = asking(label, word);
            let datagram =
                Datagram { source: host(1), channel: None, ecn: Ecn::NotCapable, payload: &payload };
            sender.handle(at(10 * u64::from(label)), Input::Datagram(datagram));
            let Some(Output::Transmit(transmit)) = sender.poll_output(at(10 * u64::from(label)), &mut room)
            else {
                panic!("no reply")
            };
            let (_, packet) = Header::parse(&room[..transmit.bytes]).unwrap();
            let (header, _) = alc::parse(packet).unwrap();
            let id = header.payload_id.unwrap();
            ((id.sbn, id.esi), <[u8; 4]>::try_from(header.cci.as_bytes()).unwrap())
        };
        let (sent, words): (std::collections::BTreeSet<_>, Vec<_>) = (1..=391).map(sent).unzip();
        (sent, words[0])
    };
    let (first, word) = symbols([1, 2], 7, &[]);
    assert_eq!(first.len(), 391, "a pass");
    let (again, _) = symbols([3, 4], 8, &[]);
    assert_eq!(first, again, "who has heard nothing gets what is decoded at the least cost");
    let (other, _) = symbols([3, 4], 8, &word);
    assert!(other.len() == 391 && first.is_disjoint(&other));
    let (same, _) = symbols([1, 2], 8, &word);
    assert_eq!(first, same, "the word is its own");
}

#[test]
fn replies_of_others_and_bytes_at_random_do_nothing() {
    let file = content(50_000);
    let mut bed = Bed::new(sender(&[&file], config(), delivery::DeliverySenderConfig::new(7)), 0.0);
    bed.receiver();
    bed.run(at(60));
    let (_, (_, reply)) = bed.under_way.last_key_value().unwrap();
    let reply = reply.clone();
    let before = bed.receivers[0].0.stats();
    bed.give(Some(0), "10.0.0.9:7288".parse().unwrap(), &reply);
    let mut draw = Seed(3).stream("garbage", 0);
    for (label, bytes) in (1_u32..).zip(0..300) {
        let mut garbage = vec![0; bytes];
        draw.fill_bytes(&mut garbage);
        bed.give(Some(0), source(), &garbage);
        bed.give(None, source(), &garbage);
        // A reply that BCFS lets through, with nothing of the session's.
        let mut forged = vec![0; DATAGRAM_BYTES_MAX];
        let header = Header::new(Kind::Reply, source(), Label(1 + label % 3), Level(u16::MAX));
        let start = header.emit(&mut forged).unwrap();
        forged[start..start + bytes].copy_from_slice(&garbage);
        bed.give(Some(0), source(), &forged[..start + bytes]);
    }
    let after = bed.receivers[0].0.stats();
    assert_eq!((after.useful, after.fdt_packets), (before.useful, before.fdt_packets));
    assert_eq!(after.dropped.malformed, 601);
    bed.run(at(60_000));
    bed.assert_whole(0, &[&file]);
}

#[test]
fn symbols_of_the_description_are_named_by_labels() {
    let file = content(10_000);
    let mut machine = sender(&[&file], config(), delivery::DeliverySenderConfig::new(7));
    let mut room = vec![0; DATAGRAM_BYTES_MAX];
    for (label, is_description) in [
        (DESCRIPTIONS, true),
        (DESCRIPTIONS + 1, true),
        (DESCRIPTIONS + 1_000, false),
        (u32::MAX, false),
        (7, false),
        (0, false),
    ] {
        let header = Header::new(Kind::Request, source(), Label(label), Level(3));
        let mut payload = vec![0; header.buffer_len()];
        header.emit(&mut payload).unwrap();
        let datagram = Datagram { source: host(1), channel: None, ecn: Ecn::NotCapable, payload: &payload };
        machine.handle(at(0), Input::Datagram(datagram));
        let Some(Output::Transmit(transmit)) = machine.poll_output(at(0), &mut room) else {
            panic!("{label}")
        };
        let (reply, body) = Header::parse(&room[..transmit.bytes]).unwrap();
        assert_eq!((reply.kind, reply.label, reply.level), (Kind::Reply, Label(label), Level(3)));
        let (packet, _) = alc::parse(body).unwrap();
        assert_eq!(packet.toi == Some(0), is_description, "{label:#x}");
    }
}

#[test]
fn a_session_that_is_sent_unasked_is_refused() {
    use crate::control::{DescribedControl, ReceiverControl};
    let mut receiver = RainbowCarrierReceiver::new(RainbowCarrierReceiverConfig::new(source(), source()));
    assert!(receiver.on_description(at(0), None).is_err());
    assert!(
        receiver
            .on_description(
                at(0),
                crate::described::Description::new(&crate::controls::LE_SBCC).to_fdt().as_ref()
            )
            .is_err()
    );
    assert!(
        receiver
            .on_description(
                at(0),
                crate::described::Description::new(&crate::controls::RAINBOW).to_fdt().as_ref()
            )
            .is_ok()
    );
    let mut unasked =
        crate::described::DescribedReceiver::new(crate::described::DescribedReceiverConfig::new());
    unasked.start(at(0));
    assert!(
        unasked
            .describe(at(0), crate::described::Description::new(&crate::controls::RAINBOW).to_fdt().as_ref())
            .is_err()
    );
}
