//! A receiver of buffers in a storm of datagrams: it never panics and never gives more than came; and what it
//! gives is the beginning of what was sent, as long as nobody forged the sender's address.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use headwater_proto::stream::{
    Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig, SenderEvent, Submission,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Duration, Ecn, Input, Instant, Machine, Output, Rate, fixed,
};
use headwater_wire::extensions::{Extensions, Seq};
use headwater_wire::{Cci, Fti, PayloadId, alc};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const TSI: u32 = 7;
const PART_BYTES: u16 = 64;
/// Longest buffer taken.
const BYTES_MAX: usize = 4 << 10;
/// Bytes of the honest buffers; the last one is longer than is taken.
const LENGTHS: [usize; 4] = [1, 700, 3_000, BYTES_MAX + 100];
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4000);
const STRANGER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66)), 4000);

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// Consecutive datagrams of the honest session.
    Honest { first: u8, count: u8 },
    /// One of them with a byte changed, or cut off.
    Changed { index: u8, at: u16, by: u8, bytes: u16 },
    /// Bytes, or one of the honest datagrams, from another host.
    Foreign { index: u8, bytes: Option<&'a [u8]> },
    /// Bytes.
    Raw { bytes: &'a [u8] },
    /// A part of a buffer.
    Part { toi: u8, buffer: u16, offset: u32, length: Option<u64>, is_over: bool, payload: &'a [u8] },
    /// Time passes.
    Pass { nanos: u64 },
}

fn content(buffer: usize) -> Arc<[u8]> {
    let byte = |at: usize| u8::try_from((at * 7 + at / 50 + buffer * 31) % 251).expect("below 251");
    (0..LENGTHS[buffer]).map(byte).collect()
}

/// Every datagram of a session of [`LENGTHS`].
fn honest() -> &'static [Vec<u8>] {
    static DATAGRAMS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    DATAGRAMS.get_or_init(|| {
        let control = fixed::FixedSender::new(Rate::from_kilobits(100), Instant::ZERO);
        let mut sender = Sender::new(SenderConfig::new(TSI, PART_BYTES), control).expect("a small FDT");
        let mut contents = (0..LENGTHS.len()).map(content);
        let (mut datagrams, mut buffer) = (Vec::new(), vec![0; DATAGRAM_BYTES_MAX]);
        loop {
            while sender.wants() {
                let Some(bytes) = contents.next() else {
                    sender.end();
                    break;
                };
                let submission = Submission { bytes, time: Duration::from_millis(400) };
                sender.submit(submission).expect("the sender wants one");
            }
            let Some(now) = sender.poll_timeout() else { return datagrams };
            match sender.poll_output(now, &mut buffer) {
                Some(Output::Transmit(transmit)) => datagrams.push(buffer[..transmit.bytes].to_vec()),
                Some(Output::Event(SenderEvent::Finished)) => return datagrams,
                Some(_) => {}
                None => sender.handle(now, Input::Timeout),
            }
        }
    })
}

struct Bench {
    receiver: Receiver<fixed::FixedReceiver>,
    now: u64,
    /// Bytes of datagrams that were given.
    came: usize,
    /// Bytes of buffers and pieces that came out.
    gave: usize,
    is_misled: bool,
}

fuzz_target!(|steps: Vec<Step<'_>>| {
    let config = ReceiverConfig::default().with_source(Some(SENDER.ip())).with_buffer_bytes_max(BYTES_MAX);
    let receiver = Receiver::new(config.with_pieces(true), fixed::FixedReceiver::new(), Instant::ZERO);
    let mut bench = Bench { receiver, now: 0, came: 0, gave: 0, is_misled: false };
    for step in &steps {
        bench.take(step);
    }
    bench.receiver.close(Instant::from_nanos(bench.now));
    bench.drain();
});

impl Bench {
    fn take(&mut self, step: &Step<'_>) {
        let pick = |index: u8| honest()[usize::from(index) % honest().len()].clone();
        match step {
            Step::Honest { first, count } => {
                for index in 0..*count {
                    self.give(SENDER, &pick(first.wrapping_add(index)));
                }
            }
            Step::Changed { index, at, by, bytes } => {
                let mut datagram = pick(*index);
                let at = usize::from(*at) % datagram.len();
                datagram[at] ^= by;
                datagram.truncate(usize::from(*bytes));
                self.forge(&datagram);
            }
            Step::Foreign { index, bytes } => {
                let datagram = bytes.map_or_else(|| pick(*index), <[u8]>::to_vec);
                self.give(STRANGER, &datagram);
            }
            Step::Raw { bytes } => self.forge(bytes),
            Step::Part { .. } => {
                if let Some(datagram) = part(step) {
                    self.forge(&datagram);
                }
            }
            Step::Pass { nanos } => {
                self.now = self.now.saturating_add(*nanos);
                self.receiver.handle(Instant::from_nanos(self.now), Input::Timeout);
                self.drain();
            }
        }
    }

    fn forge(&mut self, payload: &[u8]) {
        self.is_misled = true;
        self.give(SENDER, payload);
    }

    fn give(&mut self, source: SocketAddr, payload: &[u8]) {
        self.came += payload.len();
        let datagram = Datagram { source, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload };
        self.receiver.handle(Instant::from_nanos(self.now), Input::Datagram(datagram));
        self.drain();
    }

    fn drain(&mut self) {
        let now = Instant::from_nanos(self.now);
        while let Some(output) = self.receiver.poll_output(now, &mut []) {
            match output {
                Output::Event(ReceiverEvent::Buffer(received)) => {
                    assert!(received.prefix.len() <= BYTES_MAX && received.pieces.len() <= self.came);
                    self.gave += received.prefix.len();
                    self.check(received.id, 0, &received.prefix);
                    for piece in &received.pieces {
                        self.gave += piece.bytes.len();
                        self.check(received.id, piece.offset, &piece.bytes);
                    }
                }
                Output::Event(ReceiverEvent::Late { id, piece }) => {
                    self.gave += piece.bytes.len();
                    self.check(id, piece.offset, &piece.bytes);
                }
                Output::Event(_) | Output::Join(_) | Output::Leave(_) | Output::Router(_) => {}
                Output::Transmit(_) => panic!("a receiver of a fixed rate sends nothing"),
            }
        }
        assert!(self.gave <= self.came, "{} bytes of {} that came", self.gave, self.came);
    }

    fn check(&self, id: u16, offset: usize, bytes: &[u8]) {
        if self.is_misled {
            return;
        }
        let content = content(usize::from(id));
        assert_eq!(content.get(offset..offset + bytes.len()), Some(bytes), "of buffer {id} from {offset}");
    }
}

/// A datagram with a part of a buffer; `None` where its numbers have no place on the wire.
fn part(step: &Step<'_>) -> Option<Vec<u8>> {
    let Step::Part { toi, buffer, offset, length, is_over, payload } = step else { return None };
    let fti = length.map(|transfer_length| Fti::NoCode { transfer_length, symbol_size: 64, max_block: 64 });
    let seq = Some(Seq { buffer: *buffer, offset: *offset });
    let header = alc::Repr {
        tsi: TSI.into(),
        toi: Some((*toi).into()),
        close_session: false,
        close_object: *is_over,
        psi: 0,
        codepoint: 0,
        cci: Cci::ZERO,
        extensions: Extensions { seq, fti, ..Extensions::default() },
        payload_id: Some(PayloadId { sbn: 0, esi: 0 }),
    };
    let mut bytes = vec![0; header.buffer_len()];
    header.emit(&mut bytes).ok()?;
    bytes.extend_from_slice(payload);
    Some(bytes)
}
