//! A source and its receivers over links that lose packets, by a virtual clock.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;

use headwater_wire::pgm::{Body, Gsi, Kind, Options, Packet, PgmReport};
use proptest::prelude::*;

use super::*;
use crate::le_sbcc::{Chain, LeSbccConfig};
use crate::machine::{DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, Machine, Output};
use crate::rate::Rate;
use crate::rng::{Seed, Stream, unit};
use crate::time::{Duration, Instant};

mod hostile;
mod roll_call;
mod samples;

const DELAY: Duration = Duration::from_millis(20);
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
const SESSION: PgmSession =
    PgmSession { gsi: Gsi([1, 2, 3, 4, 5, 6]), source_port: 40_961, destination_port: 7_500, group: GROUP };
const PAYLOAD: u16 = 100;

fn host(number: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)), 3_055)
}

fn config(mode: Mode) -> SourceConfig {
    SourceConfig::new(SESSION, host(1).ip(), PAYLOAD).with_mode(mode).with_window_packets(1_024)
}

fn le_sbcc() -> SourceControl {
    let config = LeSbccConfig::new(200)
        .with_rtt(Duration::from_millis(50))
        .with_initial_rate(Rate::from_kilobits(400));
    SourceControl::LeSbcc(Box::new(Chain::new(config, Seed(5).stream("source", 0), Instant::ZERO)))
}

fn receiver_config() -> PgmReceiverConfig {
    let wait = Duration::from_millis(200);
    PgmReceiverConfig::new(7_500, GROUP)
        .with_window_packets(512)
        .with_payload_bytes(PAYLOAD)
        .with_back_off(Duration::from_millis(10))
        .with_waits(wait, wait)
}

#[derive(Debug, Default)]
struct Messages {
    all: Vec<Vec<u8>>,
    /// Behind how many messages so many packets were given up.
    lost: Vec<(usize, u64)>,
}

impl Deliver for Messages {
    fn message(&mut self, _now: Instant, message: &[u8]) {
        self.all.push(message.to_vec());
    }

    fn lost(&mut self, _now: Instant, packets: u64) {
        self.lost.push((self.all.len(), packets));
    }
}

/// What becomes of a packet on its way to (true) or from a receiver.
type Loss = Box<dyn FnMut(&Packet<'_>, bool, usize) -> bool>;

struct Bed {
    now: Instant,
    source: PgmSource,
    receivers: Vec<PgmReceiverMachine<Messages>>,
    events: Vec<Vec<PgmReceiverEvent>>,
    loss: Loss,
    under_way: BTreeMap<(Instant, u64), (Option<usize>, Vec<u8>)>,
    sent: u64,
    upward: u64,
}

impl Bed {
    fn new(source: PgmSource, receivers: usize, loss: Loss) -> Self {
        let receiver = |number| {
            let draw = Seed(number as u64).stream("receiver", 0);
            PgmReceiverMachine::new(receiver_config(), Messages::default(), draw)
        };
        let receivers: Vec<_> = (0..receivers).map(receiver).collect();
        Self {
            now: Instant::ZERO,
            source,
            events: vec![Vec::new(); receivers.len()],
            receivers,
            loss,
            under_way: BTreeMap::new(),
            sent: 0,
            upward: 0,
        }
    }

    fn put(&mut self, to: Option<usize>, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("what we send can be read");
        self.upward += u64::from(to.is_none());
        if !(self.loss)(&packet, to.is_some(), to.unwrap_or(0)) {
            self.sent += 1;
            self.under_way.insert((self.now + DELAY, self.sent), (to, bytes.to_vec()));
        }
    }

    fn drain(&mut self) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while let Some(output) = self.source.poll_output(self.now, &mut buffer) {
            if let Output::Transmit(transmit) = output {
                for receiver in 0..self.receivers.len() {
                    self.put(Some(receiver), &buffer[..transmit.bytes]);
                }
            }
        }
        for index in 0..self.receivers.len() {
            while let Some(output) = self.receivers[index].poll_output(self.now, &mut buffer) {
                match output {
                    Output::Transmit(transmit) => {
                        assert_eq!(transmit.destination, Destination::Unicast(host(1)));
                        // The source learns who it is from the place in the capture.
                        let bytes = buffer[..transmit.bytes].to_vec();
                        self.put(None, &bytes);
                    }
                    Output::Event(event) => self.events[index].push(event),
                    Output::Join(_) | Output::Leave(_) | Output::Router(_) => {}
                }
            }
        }
    }

    fn give_source(&mut self, from: SocketAddr, payload: &[u8]) {
        let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload };
        self.source.handle(self.now, Input::Datagram(datagram));
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.drain();
            let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
            let machines = self.receivers.iter().filter_map(Machine::poll_timeout);
            let next = machines.chain(self.source.poll_timeout()).chain(arrival).min();
            let Some(next) = next.map(|next| next.max(self.now)).filter(|next| *next <= end) else { break };
            self.now = next;
            self.source.handle(next, Input::Timeout);
            self.receivers.iter_mut().for_each(|receiver| receiver.handle(next, Input::Timeout));
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= next) {
                let (to, payload) = entry.remove();
                let Some(to) = to else {
                    self.give_source(host(2), &payload);
                    continue;
                };
                let (source, channel) = (host(1), Some(crate::ChannelId::BASE));
                let datagram = Datagram { source, channel, ecn: Ecn::NotCapable, payload: &payload };
                self.receivers[to].handle(next, Input::Datagram(datagram));
            }
        }
        self.now = end;
    }

    /// Sends `messages` and gives them `seconds`.
    fn send_all(&mut self, messages: &[Vec<u8>], seconds: u64) {
        for message in messages {
            let mut patience = 0;
            while !self.source.send(message) {
                self.run(Duration::from_millis(100));
                patience += 1;
                assert!(patience < 10_000, "no room for ever");
            }
        }
        self.run(Duration::from_secs(seconds));
    }

    fn messages(&self, receiver: usize) -> &[Vec<u8>] {
        &self.receivers[receiver].deliver().all
    }
}

/// Numbered, of lengths from 1 byte to many packets.
fn messages(count: usize) -> Vec<Vec<u8>> {
    (0..count).zip((0..251_u8).cycle()).map(|(number, byte)| vec![byte; 1 + number * 37 % 450]).collect()
}

fn lossless() -> Loss {
    Box::new(|_, _, _| false)
}

fn random(mut draw: Stream, share: f64) -> Loss {
    Box::new(move |_, _, _| unit(&mut draw) < share)
}

#[test]
fn all_messages_come_in_order_over_links_that_lose_a_tenth() {
    for (mode, control, first) in [
        (Mode::Pgm, SourceControl::Fixed(Rate::from_kilobits(400)), 0),
        (Mode::Pgm, le_sbcc(), u32::MAX - 300),
        (Mode::Lean, le_sbcc(), 1 << 31),
    ] {
        let source = PgmSource::new(config(mode).with_first_sequence(first), control, Instant::ZERO);
        let mut bed = Bed::new(source, 3, random(Seed(9).stream("loss", 0), 0.1));
        // The first packet must come, or a receiver begins with the next.
        let first = vec![vec![7; 9]];
        bed.loss = lossless();
        bed.send_all(&first, 1);
        bed.loss = random(Seed(9).stream("loss", 0), 0.1);
        let sent = messages(400);
        bed.send_all(&sent, 20);
        // In the lean mode nothing tells of a loss of the last packet but a next one.
        bed.loss = lossless();
        bed.send_all(&first, 20);
        for receiver in 0..3 {
            let expected: Vec<_> = first.iter().chain(&sent).chain(&first).cloned().collect();
            assert!(bed.messages(receiver) == expected, "{mode:?}: {:?}", bed.receivers[receiver].counters());
            assert_eq!(bed.receivers[receiver].counters().lost, 0);
            assert_eq!(bed.receivers[receiver].missing(), 0);
            assert!(bed.receivers[receiver].counters().repaired > 20);
        }
        assert!(bed.source.counters().ncfs > 0);
        assert_eq!(bed.source.counters().spms > 0, mode == Mode::Pgm);
    }
}

/// A driver that comes each 50 ms, sends up to `per_turn` packets, and is given messages of a packet each.
fn sends_by_turns(per_turn: u32, is_backlogged: bool) -> PgmSource {
    let rate = Rate::from_kilobits(400);
    let mut source = PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(rate), Instant::ZERO);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    for turn in 0..200_u64 {
        let now = Instant::ZERO + Duration::from_millis(50 * turn);
        source.handle(now, Input::Timeout);
        (0..per_turn).for_each(|_| assert!(source.send(&[7; 50])));
        source.set_backlogged(is_backlogged);
        while source.poll_output(now, &mut buffer).is_some() {}
    }
    source
}

#[test]
fn a_driver_is_late_only_with_messages_that_wait() {
    assert_eq!(sends_by_turns(1, false).overload(), None, "the application has no more");
    let overload = sends_by_turns(1, true).overload().expect("the application has more");
    assert!(overload.share < 0.75 && overload.ceiling.is_none(), "{overload:?}");
}

#[test]
fn a_lost_end_is_told_of_by_heartbeats() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(3), 1);
    bed.loss = Box::new(|packet, _, _| packet.body.kind() == Kind::Odata);
    bed.source.send(b"the end");
    bed.source.finish();
    bed.run(Duration::from_secs(1));
    assert_eq!(bed.messages(0).last().map(Vec::as_slice), Some(&b"the end"[..]));
    assert_eq!(bed.events[0].last(), Some(&PgmReceiverEvent::Finished));
    assert!(!bed.source.send(b"more"), "it is closed");
}

#[test]
fn a_late_receiver_begins_with_the_next_message_and_asks_for_nothing_before() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, Box::new(|_, down, _| down));
    bed.send_all(&messages(50), 0);
    bed.loss = lossless();
    let sent = messages(20);
    bed.send_all(&sent, 10);
    let got = bed.messages(0);
    assert!(got.len() >= 20 && got[got.len() - 20..] == sent);
    assert!(messages(50).ends_with(&got[..got.len() - 20]), "whole messages from where it came in");
    assert_eq!((bed.upward, bed.receivers[0].counters().lost), (0, 0));
}

/// A repair may be of long ago.
#[test]
fn a_late_receiver_does_not_begin_with_a_repair() {
    let source =
        PgmSource::new(config(Mode::Lean), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, Box::new(|_, down, _| down));
    bed.send_all(&messages(300), 20);
    bed.loss = lossless();
    bed.give_source(host(66), &nak(3, []));
    bed.run(Duration::from_secs(1));
    assert_eq!(bed.source.counters().repairs, 1);
    let sent = messages(5);
    bed.send_all(&sent, 5);
    assert_eq!(bed.messages(0), sent);
    assert_eq!((bed.upward, bed.receivers[0].counters().missed), (0, 0));
}

/// A sender that is interrupted says where it ended, and what was sent is still repaired.
#[test]
fn what_waits_is_dropped_by_a_close_and_what_was_sent_is_whole() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(1), 1);
    bed.loss = Box::new(|packet, _, _| packet.body.kind() == Kind::Odata);
    (0..100).for_each(|_| assert!(bed.source.send(&[9; 100])));
    bed.run(Duration::from_millis(100));
    let sent = 100 - bed.source.waiting() as usize;
    bed.source.close();
    assert_eq!(bed.source.waiting(), 0);
    assert!(!bed.source.send(b"more") && sent > 10);
    bed.run(Duration::from_secs(5));
    assert_eq!(bed.messages(0).len(), 1 + sent);
    assert_eq!(bed.events[0].last(), Some(&PgmReceiverEvent::Finished));
}

#[test]
fn an_end_after_a_pause_is_told_before_the_source_is_done() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(3), 90);
    bed.source.finish();
    bed.run(Duration::from_millis(100));
    assert_eq!(bed.events[0].last(), Some(&PgmReceiverEvent::Finished));
}

#[test]
fn path_messages_come_at_their_interval_as_soon_as_data_does() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(40)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(3), 90);
    let before = bed.source.counters().spms;
    (0..400).for_each(|_| assert!(bed.source.send(&[1; 100])));
    bed.run(Duration::from_secs(5));
    assert!(bed.source.waiting() > 0, "data all the time");
    assert!(bed.source.counters().spms >= before + 9, "two a second");
}

#[test]
fn a_confirmation_moves_the_window_as_data_does() {
    let source =
        PgmSource::new(config(Mode::Lean), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(2), 1);
    bed.loss = Box::new(|packet, _, _| match packet.body {
        Body::Odata { sequence, .. } | Body::Rdata { sequence, .. } => sequence == 3,
        _ => false,
    });
    bed.send_all(&messages(6)[2..], 0);
    bed.run(Duration::from_millis(300));
    assert_eq!(bed.receivers[0].missing(), 1);
    let body = Body::Ncf(PgmReport { sequence: 5, source: host(1).ip(), group: GROUP });
    let options = Options { join: Some(4), ..Options::default() };
    let mut bytes = [0; 128];
    let packet = Packet { options, ..Packet::new(40_961, 7_500, SESSION.gsi, body) };
    let length = packet.emit(&mut bytes).unwrap();
    let datagram =
        Datagram { source: host(1), channel: None, ecn: Ecn::NotCapable, payload: &bytes[..length] };
    bed.receivers[0].handle(bed.now, Input::Datagram(datagram));
    assert_eq!((bed.receivers[0].missing(), bed.receivers[0].counters().lost), (0, 1));
}

/// Who forges an SPM cannot aim the NAKs of all receivers at another host.
#[test]
fn naks_go_to_where_data_comes_from_whatever_address_is_told() {
    let draw = Seed(1).stream("receiver", 0);
    let mut receiver =
        PgmReceiverMachine::new(receiver_config().with_nak_port(3_056), Messages::default(), draw);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let other = host(66).ip();
    for body in [
        Body::Odata { sequence: 0, trail: 0, data: &[1; 90] },
        Body::Spm { sequence: 1, trail: 0, lead: 3, path: other },
    ] {
        let bytes = Packet::new(40_961, 7_500, SESSION.gsi, body).emit(&mut buffer).unwrap();
        let payload = &buffer[..bytes];
        let datagram = Datagram { source: host(1), channel: None, ecn: Ecn::NotCapable, payload };
        receiver.handle(Instant::ZERO, Input::Datagram(datagram));
    }
    let now = Instant::ZERO + Duration::from_secs(1);
    receiver.handle(now, Input::Timeout);
    let mut naks = 0;
    while let Some(output) = receiver.poll_output(now, &mut buffer) {
        let Output::Transmit(transmit) = output else { continue };
        let to = SocketAddr::new(host(1).ip(), 3_056);
        assert_eq!(transmit.destination, Destination::Unicast(to));
        let packet = Packet::parse(&buffer[..transmit.bytes]).unwrap();
        let Body::Nak(report) = packet.body else { panic!("{packet:?}") };
        assert_eq!(report.source, other, "it names what the SPM told");
        naks += 1;
    }
    assert_eq!(naks, 1);
}

#[test]
fn what_the_source_keeps_no_more_is_given_up_and_the_rest_goes_on() {
    let source = PgmSource::new(
        config(Mode::Pgm).with_window_packets(16),
        SourceControl::Fixed(Rate::from_kilobits(400)),
        Instant::ZERO,
    );
    let mut bed = Bed::new(source, 1, lossless());
    let sent: Vec<_> = (0..100_u8).map(|number| vec![number; 80]).collect();
    bed.send_all(&sent[..1], 1);
    // The second packet and its repairs are lost for good.
    bed.loss = Box::new(|packet, _, _| match packet.body {
        Body::Odata { sequence, .. } | Body::Rdata { sequence, .. } => sequence == 1,
        _ => false,
    });
    bed.send_all(&sent[1..], 5);
    let expected: Vec<_> = sent.iter().filter(|message| message[0] != 1).cloned().collect();
    assert!(bed.messages(0) == expected);
    assert_eq!(bed.receivers[0].counters().lost, 1);
    assert!(bed.events[0].contains(&PgmReceiverEvent::Lost { packets: 1 }));
    assert_eq!(bed.receivers[0].deliver().lost, [(1, 1)], "told between the messages around it");
}

#[test]
fn a_packet_asked_for_in_vain_is_given_up_after_the_retries() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    let draw = Seed(1).stream("receiver", 0);
    bed.receivers[0] =
        PgmReceiverMachine::new(receiver_config().with_retries(2, 2), Messages::default(), draw);
    bed.send_all(&messages(1), 1);
    bed.loss = Box::new(|packet, _, _| match packet.body {
        Body::Odata { sequence, .. } => sequence == 1,
        Body::Nak(_) => true,
        _ => false,
    });
    bed.upward = 0;
    bed.send_all(&[vec![1; 50], vec![2; 50]], 5);
    assert_eq!((bed.messages(0).len(), bed.receivers[0].counters().lost), (2, 1));
    assert_eq!(bed.upward, 3, "asked once, and twice again");
}

fn nak(sequence: u32, list: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut options = Options::default();
    list.into_iter().for_each(|number| _ = options.nak_list.push(number));
    let body = Body::Nak(PgmReport { sequence, source: host(1).ip(), group: GROUP });
    let packet = Packet { options, ..Packet::new(7_500, 40_961, SESSION.gsi, body) };
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes).expect("there is room");
    bytes
}

#[test]
fn forged_naks_change_nothing_when_absurd_and_little_when_plausible() {
    let source = PgmSource::new(config(Mode::Lean), le_sbcc(), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(100), 10);
    let (rate, trail) = (bed.source.rate(), 0_u32);
    let last = u32::try_from(bed.source.counters().originals).unwrap() - 1;
    for sequence in [last + 1, last + 1_000, trail.wrapping_sub(1), 1 << 31, u32::MAX] {
        bed.give_source(host(66), &nak(sequence, [last + 7, last + 8]));
    }
    let mut other = nak(3, []);
    other[9] ^= 1;
    bed.give_source(host(66), &other);
    bed.give_source(host(66), &[0; 40]);
    bed.drain();
    let counters = *bed.source.counters();
    assert_eq!((counters.repairs, counters.ncfs, counters.asked, bed.source.rate()), (0, 0, 0, rate));
    assert_eq!((counters.refused.future, counters.refused.past), (12, 3));
    assert_eq!(
        (counters.refused.foreign, counters.refused.malformed.total()),
        (0, 2),
        "of a wrong checksum, and none at all"
    );
    // All of the window, again and again from many addresses, for a second.
    for step in 0..1_000_u32 {
        let first = step * 13 % last;
        bed.give_source(host((step % 200) as u8), &nak(first, (first..last).take(62)));
        bed.run(Duration::from_millis(1));
        assert!(bed.source.rate().as_bits() >= 200 * 8);
    }
    let sent = bed.source.counters().repairs;
    let bound = 400_000 / 8 / 100 + 10;
    assert!(sent <= bound, "{sent} repairs in a second, within the rate: {bound}");
    bed.run(Duration::from_secs(30));
    let sent = messages(20);
    bed.send_all(&sent, 60);
    assert!(bed.messages(0).ends_with(&sent), "new data still comes through");
}

/// NCFs are paid out of the rate, and go first: without a bound, small NAKs would take all of it.
#[test]
fn naks_in_any_number_leave_a_share_to_new_data() {
    let source =
        PgmSource::new(config(Mode::Lean), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(400), 30);
    let before = bed.source.counters().originals;
    (0..500).for_each(|_| assert!(bed.source.send(&[1; 100])));
    for step in 0..20_000_u32 {
        bed.give_source(host(66), &nak(step % 400, []));
        if step % 4 == 3 {
            bed.run(Duration::from_millis(1));
        }
    }
    let originals = bed.source.counters().originals - before;
    assert!(originals >= 200, "{originals} packets in five seconds");
}

/// Who asks, for what and how often: repairs, NCFs and all else are paid out of one rate.
#[test]
fn naks_make_a_source_send_no_faster() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(200), 30);
    (0..300).for_each(|_| assert!(bed.source.send(&[1; 100])));
    let (mut sent, mut asked) = (0, 0);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    for step in 0..40_000_u32 {
        let first = step * 7 % 130;
        let flood = nak(first, (first..130).chain(0..first).take(62));
        asked += flood.len();
        bed.give_source(host((step % 250) as u8), &flood);
        if step % 8 == 7 {
            bed.now += Duration::from_millis(1);
            bed.source.handle(bed.now, Input::Timeout);
            while let Some(output) = bed.source.poll_output(bed.now, &mut buffer) {
                if let Output::Transmit(transmit) = output {
                    sent += transmit.bytes;
                }
            }
        }
    }
    // Five seconds at 50 kB/s, and what a late driver may make up for.
    assert!((150_000..=260_000).contains(&sent), "{sent} bytes for {asked} of NAKs");
}

/// A NAK that the network doubles, or that comes from many ports of a host, counts once.
#[test]
fn doubled_naks_count_once() {
    let source = PgmSource::new(config(Mode::Lean), le_sbcc(), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(100), 10);
    for port in 0..200 {
        bed.give_source(SocketAddr::new(host(66).ip(), 1_000 + port), &nak(50, [51, 52, 51]));
    }
    let chain = bed.source.chain().expect("it is under LE-SBCC");
    assert_eq!((chain.counters().events, chain.counters().reductions), (1, 1), "{:?}", chain.counters());
    assert_eq!(chain.receivers().len(), 1);
    bed.run(Duration::from_secs(5));
    assert_eq!(bed.source.counters().repairs, 3, "each packet once");
}

/// Who asks again for a repair that is under way says nothing new; who asks when it should be there has lost
/// it.
#[test]
fn a_repair_under_way_is_not_lost_again() {
    let source = PgmSource::new(config(Mode::Lean), le_sbcc(), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(100), 10);
    let events = |bed: &Bed| bed.source.chain().expect("it is under LE-SBCC").counters().events;
    // Nothing was sent behind it, so that it is no sample of the round trip.
    let last = u32::try_from(bed.source.counters().originals).expect("some") - 1;
    bed.give_source(host(66), &nak(last, []));
    // Sent again behind the pause of 75 ms, and SRTT + 2 sigma are 100.
    bed.run(Duration::from_millis(110));
    assert_eq!((bed.source.counters().repairs, events(&bed)), (1, 1));
    bed.give_source(host(66), &nak(last, []));
    assert_eq!(events(&bed), 1);
    bed.run(Duration::from_millis(200));
    bed.give_source(host(66), &nak(last, []));
    assert_eq!(events(&bed), 2);
}

/// Of all that missed a packet, the first has it repaired; the others' NAKs, a back-off later, are losses
/// none the less.
#[test]
fn a_loss_that_another_receiver_had_repaired_counts() {
    let source = PgmSource::new(config(Mode::Lean), le_sbcc(), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    let events = |bed: &Bed| bed.source.chain().expect("it is under LE-SBCC").counters().events;
    bed.send_all(&messages(100), 10);
    // Nothing was sent behind it, so that it is no sample of the round trip.
    let last = u32::try_from(bed.source.counters().originals).expect("some") - 1;
    [66, 67].into_iter().for_each(|number| bed.give_source(host(number), &nak(last, [])));
    bed.run(Duration::from_secs(5));
    bed.send_all(&messages(10), 5);
    assert_eq!((events(&bed), bed.source.counters().repairs), (2, 1));
    let last = u32::try_from(bed.source.counters().originals).expect("some") - 1;
    bed.give_source(host(66), &nak(last, []));
    for _ in 0..200 {
        if bed.source.counters().repairs < 2 {
            bed.run(Duration::from_millis(1));
        }
    }
    assert_eq!((events(&bed), bed.source.counters().repairs), (3, 2));
    for (number, expected) in [(67, 4), (66, 4), (67, 4)] {
        bed.give_source(host(number), &nak(last, []));
        assert_eq!(events(&bed), expected, "host {number}");
    }
}

/// At the start, in which a loss counts for the rate of its time.
#[test]
fn who_asks_again_for_a_repair_under_way_leaves_the_rate_alone() {
    let control = LeSbccConfig::new(200)
        .with_rtt(Duration::from_millis(50))
        .with_doubling_at_start(true)
        .with_max_rate(Rate::from_kilobits(800));
    let chain = Chain::new(control, Seed(5).stream("source", 0), Instant::ZERO);
    let source = PgmSource::new(config(Mode::Lean), SourceControl::LeSbcc(Box::new(chain)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    let mut bytes = [0; 64];
    let spmr = Packet::new(7_500, 40_961, SESSION.gsi, Body::Spmr);
    let length = spmr.emit(&mut bytes).expect("there is room");
    while bed.source.send(&[1; 100]) {}
    bed.run(Duration::from_millis(1));
    bed.give_source(host(66), &bytes[..length]);
    bed.run(Duration::from_millis(1_400));
    let last = u32::try_from(bed.source.counters().originals).expect("some") - 1;
    bed.give_source(host(66), &nak(last, []));
    for _ in 0..200 {
        if bed.source.counters().repairs == 0 {
            bed.run(Duration::from_millis(1));
        }
    }
    let rate = bed.source.rate();
    assert!(rate > Rate::from_kilobits(150), "{rate:?}");
    bed.give_source(host(66), &nak(last, []));
    assert_eq!((bed.source.rate(), bed.source.counters().repairs), (rate, 1));
}

/// A source that has nothing to send yet says that it is there, and receivers answer that: once data comes,
/// it is known that they are.
#[test]
fn a_greeting_before_the_first_data_counts_and_one_of_three_is_enough() {
    for lost in [0, 2] {
        let control = LeSbccConfig::new(200)
            .with_doubling_at_start(true)
            .with_assumed_rtt(true)
            .with_blind_doubling(None);
        let chain = Chain::new(control, Seed(5).stream("source", 0), Instant::ZERO);
        let source = PgmSource::new(config(Mode::Pgm), SourceControl::LeSbcc(Box::new(chain)), Instant::ZERO);
        let mut greetings = 0;
        let loss = move |_: &Packet<'_>, is_down: bool, _| {
            greetings += u32::from(!is_down);
            !is_down && greetings <= lost
        };
        let mut bed = Bed::new(source, 1, Box::new(loss));
        let greeting = receiver_config().with_path_request(true);
        bed.receivers[0] =
            PgmReceiverMachine::new(greeting, Messages::default(), Seed(0).stream("receiver", 0));
        bed.run(Duration::from_secs(10));
        assert_eq!((bed.upward, bed.source.counters().originals), (3, 0));
        let first = bed.source.rate().as_bits();
        while bed.source.send(&[1; 100]) {}
        bed.run(Duration::from_secs(5));
        let rate = bed.source.rate().as_bits();
        assert!(rate >= 8 * first, "{lost} lost: {rate} bit/s after {first}");
    }
}

#[test]
fn repairs_do_not_starve_new_data() {
    let source =
        PgmSource::new(config(Mode::Lean), SourceControl::Fixed(Rate::from_kilobits(400)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(50), 10);
    let before = bed.source.counters().originals;
    let sent: Vec<_> = (0..200).map(|_| vec![1; 100]).collect();
    sent.iter().for_each(|message| assert!(bed.source.send(message)));
    for _ in 0..20 {
        bed.give_source(host(66), &nak(0, 1..60));
        bed.run(Duration::from_millis(50));
    }
    let originals = bed.source.counters().originals - before;
    assert!(bed.source.counters().repairs > 100, "it is at work");
    assert!(originals >= bed.source.counters().repairs / 3 - 2, "{originals}");
}
