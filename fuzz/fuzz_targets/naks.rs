//! A source of files under LE-SBCC with words and dismissal, and a receiver that misses packets, in a storm
//! of NAKs and SPMRs with right, wrong and no words: no panic, no answer longer than its question, no more
//! answers than questions, and the rate stays within its bounds.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use headwater_proto::control::{ReceiverControl, ReceiverEnvelope, SenderControl, SenderEnvelope};
use headwater_proto::le_sbcc::{Chain, LeSbccConfig};
use headwater_proto::pgm::PgmSession;
use headwater_proto::pgm::carrier::{PgmCarrierReceiver, PgmCarrierReceiverConfig, PgmCarrierSender};
use headwater_proto::{DATAGRAM_BYTES_MAX, Datagram, Destination, Duration, Ecn, Instant, Rate, Seed};
use headwater_wire::pgm::{Body, Gsi, Options, Packet, PgmReport, PgmWord};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 255, 72, 87));
const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 40_000);
const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 50_000);
const GSI: Gsi = Gsi([7; 6]);
const MAX_KILOBITS: u64 = 20_000;

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// Sends for so many milliseconds; each packet whose place in the byte is a one is lost.
    Send(u8, u8),
    Sleep(u16),
    /// A NAK or an SPMR of a host, with the word that the host was given last, another one, or none.
    Word {
        host: u8,
        is_nak: bool,
        word: Option<[u8; 8]>,
        knows: bool,
        back: u8,
    },
    Bytes {
        host: u8,
        bytes: &'a [u8],
    },
    /// To the receiver's own address, as if from the source.
    Tell {
        word: [u8; 8],
        is_dismissed: bool,
    },
}

struct Bench {
    sender: PgmCarrierSender,
    receiver: PgmCarrierReceiver,
    now: Instant,
    last: u32,
    words: Vec<Option<[u8; 8]>>,
    asked: u64,
    answered: u64,
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut bench = Bench::new();
    for step in steps {
        bench.take(step);
        // Of the control: a driver that sleeps makes the packets leave at less.
        let rate = bench.sender.source().chain().expect("LE-SBCC").rate();
        assert!(rate <= Rate::from_kilobits(MAX_KILOBITS) && rate >= Rate::from_kilobits(200), "{rate}");
        assert!(bench.answered <= bench.asked);
    }
});

impl Bench {
    fn new() -> Self {
        let config = LeSbccConfig::new(1_444)
            .with_doubling_at_start(true)
            .with_blind_doubling(None)
            .with_assumed_rtt(true)
            .with_max_rate(Rate::from_kilobits(MAX_KILOBITS))
            .with_dismissal(true);
        let chain = Chain::new(config, Seed(1).stream("chain", 0), Instant::ZERO);
        let session = PgmSession { gsi: GSI, source_port: 9, destination_port: 7_500, group: GROUP };
        let mut sender = PgmCarrierSender::new(session, SOURCE.ip(), 1_024, chain, Instant::ZERO);
        sender.set_admission_key([5; 32]);
        let mut receiver = PgmCarrierReceiver::new(PgmCarrierReceiverConfig::new(GROUP, Seed(2)));
        receiver.start(Instant::ZERO);
        let (now, words) = (Instant::ZERO, vec![None; 256]);
        Self { sender, receiver, now, last: 0, words, asked: 0, answered: 0 }
    }

    fn take(&mut self, step: Step<'_>) {
        match step {
            Step::Send(millis, lost) => {
                for _ in 0..millis {
                    self.now += Duration::from_millis(1);
                    self.send(lost);
                }
            }
            Step::Sleep(millis) => {
                self.now += Duration::from_millis(millis.into());
                self.send(0);
            }
            Step::Word { host, is_nak, word, knows, back } => {
                let given = self.words[usize::from(host)].filter(|_| knows);
                let word = given.or(word).map(|word| PgmWord { word, is_dismissed: false });
                let sequence = self.last.wrapping_sub(back.into());
                let report = PgmReport { sequence, source: SOURCE.ip(), group: GROUP };
                let body = if is_nak { Body::Nak(report) } else { Body::Spmr };
                let packet = Packet { options: Options { word, ..Options::default() }, ..up(body) };
                self.hear(address(host), &written(&packet));
            }
            Step::Bytes { host, bytes } => self.hear(address(host), bytes),
            Step::Tell { word, is_dismissed } => {
                let options = Options { word: Some(PgmWord { word, is_dismissed }), ..Options::default() };
                let packet = Packet { options, ..Packet::new(0x8009, 7_500, GSI, Body::Spmr) };
                self.tell(&written(&packet));
            }
        }
    }

    fn hear(&mut self, from: SocketAddr, payload: &[u8]) {
        self.asked += 1;
        let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload };
        self.sender.feedback(self.now, &datagram);
        self.drain(payload.len());
    }

    fn tell(&mut self, payload: &[u8]) {
        let datagram = Datagram { source: SOURCE, channel: None, ecn: Ecn::NotCapable, payload };
        self.receiver.answered(self.now, &datagram);
    }

    /// Sends what is due to receivers; `longest` bytes were heard last.
    fn drain(&mut self, longest: usize) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while let Some(transmit) = self.sender.poll_transmit(self.now, &mut buffer) {
            let Destination::Unicast(to) = transmit.destination else { continue };
            self.answered += 1;
            assert!(transmit.bytes <= longest, "an answer is no longer than its question");
            let payload = buffer[..transmit.bytes].to_vec();
            let word = Packet::parse(&payload).expect("a packet").options.word.expect("a word");
            match to {
                HERE => self.tell(&payload),
                SocketAddr::V4(to) => self.words[usize::from(to.ip().octets()[3])] = Some(word.word),
                SocketAddr::V6(_) => {}
            }
        }
    }

    fn send(&mut self, lost: u8) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        self.sender.timeout(self.now);
        for place in 0..64 {
            if self.sender.departure(self.now).is_none() {
                break;
            }
            let mut datagram = vec![0x10; 100];
            self.sender.seal(self.now, &mut datagram);
            self.sender.departed(self.now, 1_444);
            if let Ok(Packet { body: Body::Odata { sequence, .. }, .. }) = Packet::parse(&datagram) {
                self.last = sequence;
            }
            if lost >> (place % 8) & 1 == 0 {
                let channel = Some(headwater_proto::ChannelId::BASE);
                let payload = &datagram;
                let head = Datagram { source: SOURCE, channel, ecn: Ecn::NotCapable, payload };
                self.receiver.open(self.now, &head);
            }
        }
        self.receiver.timeout(self.now);
        while let Some(transmit) = self.receiver.poll_transmit(self.now, &mut buffer) {
            let payload = buffer[..transmit.bytes].to_vec();
            self.hear(HERE, &payload);
        }
    }
}

fn up(body: Body<'_>) -> Packet<'_> {
    Packet::new(7_500, 0x8009, GSI, body)
}

fn written(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes).expect("room");
    bytes
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, host)), 40_000)
}
