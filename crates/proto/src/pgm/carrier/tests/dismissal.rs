//! A source with words and dismissal, a receiver without losses, and a forger of NAKs.

use std::collections::VecDeque;

use headwater_wire::pgm::{Options, PgmReport, PgmWord};

use super::*;
use crate::le_sbcc::Estimator;

const PACKET: usize = 1_444;
const WHOLE: usize = 10_000_000;
const DELAY: Duration = Duration::from_millis(5);
const STEP: Duration = Duration::from_millis(1);

struct Bed {
    sender: PgmCarrierSender,
    receiver: PgmCarrierReceiver,
    /// Datagrams on the way down and up, by arrival.
    down: VecDeque<(Instant, bool, Vec<u8>)>,
    up: VecDeque<(Instant, Vec<u8>)>,
    /// Word that the receiver was given.
    word: Option<PgmWord>,
    received: usize,
    last: u32,
    now: Instant,
}

impl Bed {
    fn new(dismisses: bool) -> Self {
        let config = LeSbccConfig::new(1_444)
            .with_doubling_at_start(true)
            .with_blind_doubling(None)
            .with_assumed_rtt(true)
            .with_estimator(Estimator::Sawtooth)
            .with_max_rate(Rate::from_kilobits(20_000))
            .with_dismissal(dismisses);
        let chain = Chain::new(config, Seed(1).stream("chain", 0), Instant::ZERO);
        let session = PgmSession { gsi: Gsi([7; 6]), source_port: 9, destination_port: 7_500, group: GROUP };
        let mut sender = PgmCarrierSender::new(session, SOURCE.ip(), 8_192, chain, Instant::ZERO);
        sender.set_admission_key([5; 32]);
        Self {
            sender,
            receiver: receiver(1),
            down: VecDeque::new(),
            up: VecDeque::new(),
            word: None,
            received: 0,
            last: 0,
            now: Instant::ZERO,
        }
    }

    fn hear(&mut self, from: SocketAddr, payload: &[u8]) {
        let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload };
        self.sender.feedback(self.now, &datagram);
    }

    /// A NAK for the last packet, by its session's numbers.
    fn nak(&self, word: Option<PgmWord>) -> Vec<u8> {
        let report = PgmReport { sequence: self.last, source: SOURCE.ip(), group: GROUP };
        let options = Options { word, ..Options::default() };
        let packet = Packet { options, ..Packet::new(7_500, 0x8009, Gsi([7; 6]), Body::Nak(report)) };
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes).unwrap();
        bytes
    }

    /// Runs for a millisecond; returns the unicast datagrams of the sender to other addresses.
    fn step(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.now += STEP;
        let now = self.now;
        while self.up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, payload) = self.up.pop_front().unwrap();
            self.hear(host(200), &payload);
        }
        while self.down.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, is_unicast, payload) = self.down.pop_front().unwrap();
            let datagram =
                Datagram { source: SOURCE, channel: None, ecn: Ecn::NotCapable, payload: &payload };
            if is_unicast {
                assert!(self.receiver.answered(now, &datagram));
                self.word = Packet::parse(&payload).unwrap().options.word;
                continue;
            }
            let datagram = Datagram { channel: Some(ChannelId::BASE), ..datagram };
            if let EnvelopeContent::Packet { packet, .. } = self.receiver.open(now, &datagram) {
                self.received += packet.len();
                let cci = WebrcCci { slot: 0, channel: 0, sequence: 0 }.short().expect("short");
                self.receiver.arrived(now, &arrival(SOURCE, &cci));
            }
        }
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        self.receiver.timeout(now);
        while let Some(transmit) = self.receiver.poll_transmit(now, &mut buffer) {
            self.up.push_back((now + DELAY, buffer[..transmit.bytes].to_vec()));
        }
        self.sender.timeout(now);
        let mut others = Vec::new();
        loop {
            if let Some(transmit) = self.sender.poll_transmit(now, &mut buffer) {
                let payload = buffer[..transmit.bytes].to_vec();
                match transmit.destination {
                    Destination::Unicast(to) if to == host(200) => {
                        self.down.push_back((now + DELAY, true, payload));
                    }
                    Destination::Unicast(to) => others.push((to, payload)),
                    Destination::Channel(_) => self.down.push_back((now + DELAY, false, payload)),
                }
                continue;
            }
            if self.sender.departure(now).is_none() {
                return others;
            }
            let mut datagram = vec![0x10; PACKET];
            self.last = self.sender.source().next_sequence();
            self.sender.seal(now, &mut datagram);
            self.sender.departed(now, PACKET);
            self.down.push_back((now + DELAY, false, datagram));
        }
    }
}

/// Seconds to 10 MB at 20 Mbit/s beside NAKs from some addresses without a word.
fn seconds(dismisses: bool, naks: u64, addresses: u64) -> f64 {
    let mut bed = Bed::new(dismisses);
    let (mut sent, mut ms) = (0, 0);
    while bed.received < WHOLE && ms < 60_000 {
        ms += 1;
        bed.step();
        while sent < ms * naks / 1_000 {
            sent += 1;
            let from = SocketAddr::new([10, 0, 7, u8::try_from(sent % addresses).unwrap()].into(), 4_000);
            let nak = bed.nak(None);
            bed.hear(from, &nak);
        }
    }
    bed.now.since(Instant::ZERO).as_secs_f64()
}

#[test]
fn a_forger_of_naks_delays_a_session_by_little() {
    let clean = seconds(true, 0, 1);
    assert!(clean < 12.0, "{clean}");
    for (naks, addresses) in [(1, 1), (10, 1), (100, 1), (1, 250), (10, 250), (100, 250)] {
        let seconds = seconds(true, naks, addresses);
        assert!(seconds <= 25.0, "{seconds} s beside {naks} NAKs/s from {addresses} addresses");
    }
    assert!(seconds(false, 10, 1) > 50.0, "by the paper's rule");
}

/// A receiver with a word reports the loss of every packet.
#[test]
fn a_receiver_that_holds_the_rate_at_the_floor_is_dismissed_and_told() {
    let mut bed = Bed::new(true);
    let slow = host(66);
    let spmr = {
        let options = Options { word: Some(PgmWord::default()), ..Options::default() };
        let packet = Packet { options, ..Packet::new(7_500, 0x8009, Gsi([7; 6]), Body::Spmr) };
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes).unwrap();
        bytes
    };
    bed.step();
    bed.hear(slow, &spmr);
    let answers = bed.step();
    let word = |answers: &[(SocketAddr, Vec<u8>)]| {
        assert_eq!((answers.len(), answers[0].0), (1, slow));
        Packet::parse(&answers[0].1).unwrap().options.word.unwrap()
    };
    assert_eq!(answers[0].1.len(), spmr.len(), "no longer than the question");
    let given = word(&answers);
    assert!(!given.is_dismissed && given.word != [0; 8]);
    let mut told = None;
    for ms in 0..30_000 {
        let answers = bed.step();
        if ms % 100 == 0 {
            let nak = bed.nak(Some(given));
            bed.hear(slow, &nak);
        }
        if !answers.is_empty() {
            told.get_or_insert((ms, word(&answers)));
        }
        if ms == 9_000 {
            assert!(told.is_none() && rate(&bed.sender) < Rate::from_kilobits(500));
            assert!(rate(&bed.sender) >= Rate::from_kilobits(200), "the floor");
        }
    }
    let (ms, told) = told.expect("told");
    assert!((10_000..20_000).contains(&ms), "{ms}");
    assert_eq!(told, PgmWord { is_dismissed: true, ..given });
    assert!(rate(&bed.sender) > Rate::from_kilobits(15_000), "{}", rate(&bed.sender));
    assert!(bed.received > WHOLE);
}

/// The source learns a receiver's distance by the second SPMR, which follows the answer to the first.
#[test]
fn a_source_begins_as_fast_as_its_receivers_are_near() {
    let mut bed = Bed::new(true);
    let round_trip = |bed: &Bed| bed.sender.source().chain().expect("LE-SBCC").round_trip().srtt();
    // At most a gap of packets, and two back-offs and round trips.
    (0..400).for_each(|_| drop(bed.step()));
    assert!((0.11..=0.113).contains(&round_trip(&bed)), "10 ms and the time for a NAK: {}", round_trip(&bed));
    // From 58 kbit/s: eight doublings of 0.22 s.
    (0..2_000).for_each(|_| drop(bed.step()));
    assert!(rate(&bed.sender) >= Rate::from_kilobits(10_000), "{}", rate(&bed.sender));
}

#[test]
fn a_dismissed_receiver_leaves_the_group_for_five_minutes() {
    let mut bed = Bed::new(true);
    (0..500).for_each(|_| drop(bed.step()));
    let PgmWord { word, .. } = bed.word.expect("the source has answered");
    let tell = |bed: &mut Bed, word| {
        let options = Options { word: Some(PgmWord { word, is_dismissed: true }), ..Options::default() };
        let packet = Packet { options, ..Packet::new(0x8009, 7_500, Gsi([7; 6]), Body::Spmr) };
        let mut payload = vec![0; packet.buffer_len()];
        packet.emit(&mut payload).unwrap();
        let datagram = Datagram { source: SOURCE, channel: None, ecn: Ecn::NotCapable, payload: &payload };
        assert!(bed.receiver.answered(bed.now, &datagram));
        bed.receiver.poll_membership()
    };
    assert_eq!(tell(&mut bed, [1; 8]), None, "forged without the receiver's word");
    assert_eq!(tell(&mut bed, word), Some(Membership::Leave(ChannelId::BASE)));
    let back = bed.receiver.poll_timeout().expect("it comes back");
    assert_eq!(back.since(bed.now), Duration::from_secs(300));
    assert_eq!(bed.receiver.status(bed.now).dismissed, Some(Duration::from_secs(300)), "users are told");
    bed.receiver.timeout(back);
    assert_eq!(bed.receiver.status(back).dismissed, None);
    assert_eq!(bed.receiver.poll_membership(), Some(Membership::Join(ChannelId::BASE)));
}
