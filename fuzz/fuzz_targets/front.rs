//! The verifying front in a storm of packets: genuine, lost, repeated, changed, cut, forged, of another key,
//! of the sender's next session. No panic; memory is bounded; each packet ends in one counter or waits; each
//! delivered packet was sent on its channel by the holder of the session's key, and is delivered once. Then
//! the sender's next packets: they are verified.
#![no_main]

#[path = "session/signed.rs"]
mod signed;

use std::collections::BTreeSet;

use headwater_proto::auth::{AuthVerdict, VerifyingConfig, VerifyingFront, WAITING_BYTES_MAX};
use headwater_proto::{ChannelId, DATAGRAM_BYTES_MAX, Duration, Instant, Seed};
use headwater_wire::auth::{Authentication, Tag, insert_manifest};
use headwater_wire::{Extensions, alc, lct};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

use self::signed::{CHANNELS, KEY, LAST, RecordedSignatures, STARTED, Sent, recordings};

/// Most packets of a sample of signatures.
const SAMPLE_MAX: usize = 200;
const CHANNEL_BYTES_MAX: usize = 20_000;

#[derive(Arbitrary, Debug)]
struct Storm<'a> {
    session: u8,
    /// Whether the sender's key is known; otherwise the first key is taken.
    knows_key: bool,
    takes_first_key: bool,
    takes_unsigned: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    /// The sender's next packets, 1 ms apart; each whose place in `lost` is a one does not arrive.
    Send {
        count: u8,
        lost: u8,
    },
    /// An earlier packet of the sender again, perhaps on the other channel.
    Again {
        back: u16,
        is_elsewhere: bool,
    },
    /// A packet of the sender, not before it leaves, with some bits changed.
    Change {
        back: u16,
        at: u16,
        bits: u8,
    },
    /// The beginning of a packet of the sender.
    Cut {
        back: u16,
        bytes: u8,
    },
    /// A manifest of made-up tags under a number that may come, with the pass of an earlier signature.
    Forge {
        back: u16,
        ahead: u8,
        tags: Vec<Tag>,
        signature: [u8; 8],
        is_elsewhere: bool,
    },
    /// Packets of another key.
    Strange {
        first: u16,
        count: u8,
    },
    /// The next packets of the sender's next session.
    Restart {
        count: u8,
    },
    Bytes(&'a [u8]),
    Sleep(u16),
    /// The front's next timeout.
    Timeout,
    Join(u8),
    Leave(u8),
}

struct Bench {
    front: VerifyingFront<RecordedSignatures>,
    now: Instant,
    session: &'static [Sent],
    is_on_request: bool,
    /// Packets sent of the session and of the sender's next session.
    sent: usize,
    restarted: usize,
    given: u64,
    delivered: BTreeSet<Sent>,
}

fuzz_target!(|storm: Storm<'_>| {
    let mut bench = Bench::new(&storm);
    for step in &storm.steps {
        bench.take(step);
    }
    bench.end();
});

impl Bench {
    fn new(storm: &Storm<'_>) -> Self {
        let (session, is_on_request) = recordings().honest(storm.session);
        let keys = if storm.knows_key { vec![KEY] } else { Vec::new() };
        let config = VerifyingConfig::new(keys, CHANNELS)
            .with_first_key(storm.takes_first_key || !storm.knows_key)
            .with_unsigned(storm.takes_unsigned)
            .with_request(is_on_request);
        let mut front = VerifyingFront::new(config, RecordedSignatures, Seed(1).stream("front", 0));
        front.join(ChannelId::BASE);
        let (now, delivered) = (Instant::ZERO, BTreeSet::new());
        Self { front, now, session, is_on_request, sent: 0, restarted: 0, given: 0, delivered }
    }

    fn take(&mut self, step: &Step<'_>) {
        match *step {
            Step::Send { count, lost } => self.send(count, lost),
            Step::Again { back, is_elsewhere } => {
                let Some(Sent { channel, bytes }) = self.earlier(back) else { return };
                self.give(if is_elsewhere { other(channel) } else { channel }, &bytes);
            }
            Step::Change { back, at, bits } => {
                let Some(Sent { channel, mut bytes }) = self.earlier(back) else { return };
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= bits;
                self.give(channel, &bytes);
            }
            Step::Cut { back, bytes: left } => {
                let Some(Sent { channel, bytes }) = self.earlier(back) else { return };
                self.give(channel, &bytes[..bytes.len().min(left.into())]);
            }
            Step::Forge { back, ahead, ref tags, signature, is_elsewhere } => {
                let Some(Sent { channel, bytes }) = self.earlier(back) else { return };
                let Some(forged) = forged(&bytes, ahead, tags, signature) else { return };
                self.give(if is_elsewhere { other(channel) } else { channel }, &forged);
            }
            Step::Strange { first, count } => {
                for sent in recordings().stranger.iter().skip(first.into()).take(count.into()) {
                    self.give(sent.channel, &sent.bytes);
                }
            }
            Step::Restart { count } => {
                for _ in 0..count.min(u8::MAX / 2) {
                    let later = &recordings().later;
                    let Some(sent) = later[..later.len() - LAST].get(self.restarted) else { return };
                    self.restarted += 1;
                    self.give(sent.channel, &sent.bytes);
                    self.now += Duration::from_millis(1);
                }
            }
            Step::Bytes(bytes) => self.give(ChannelId::BASE, bytes),
            Step::Sleep(millis) => self.sleep(Duration::from_millis(millis.into())),
            Step::Timeout => {
                let Some(due) = self.front.poll_timeout() else { return };
                self.sleep(due.max(self.now).since(self.now));
                assert!(self.front.poll_timeout().is_none_or(|next| next > self.now), "the timeout is over");
            }
            Step::Join(channel) => self.front.join(ChannelId((channel % 4).into())),
            Step::Leave(channel) => self.front.leave(ChannelId((channel % 4).into())),
        }
    }

    /// Returns a packet that the sender has sent, the latest for 0.
    fn earlier(&self, back: u16) -> Option<Sent> {
        self.session[..self.sent].iter().rev().nth(back.into()).cloned()
    }

    fn send(&mut self, count: u8, lost: u8) {
        for place in 0..count {
            let Some(sent) = self.session[..self.session.len() - LAST].get(self.sent) else { return };
            self.sent += 1;
            if lost >> (place % 8) & 1 == 0 {
                self.give(sent.channel, &sent.bytes);
            }
            self.now += Duration::from_millis(1);
        }
    }

    fn sleep(&mut self, time: Duration) {
        self.now += time;
        self.front.on_timeout(self.now);
        self.drain();
        self.check();
    }

    fn give(&mut self, channel: ChannelId, bytes: &[u8]) {
        self.given += 1;
        let verdict = self.front.on_packet(self.now, channel, bytes);
        // Released packets came before.
        self.drain();
        match verdict {
            AuthVerdict::Verified => self.delivered(channel, bytes),
            AuthVerdict::Unsigned => assert!(self.front.is_unsigned()),
            AuthVerdict::Waiting | AuthVerdict::Rejected(_) => {}
        }
        self.check();
    }

    fn drain(&mut self) {
        loop {
            let is_unsigned = self.front.is_unsigned();
            let Some(released) = self.front.poll_released() else { return };
            if !is_unsigned {
                let (channel, bytes) = (released.channel, released.bytes.to_vec());
                self.delivered(channel, &bytes);
            }
        }
    }

    /// Checks a packet that was delivered as verified.
    fn delivered(&mut self, channel: ChannelId, bytes: &[u8]) {
        let mut sent = Sent { channel, bytes: bytes.to_vec() };
        if self.is_on_request {
            sent.bytes[4..8].fill(0);
        }
        let key = *self.front.session().expect("a verified packet begins a session").0;
        assert!(recordings().has_sent(key, sent.clone()), "nobody sent {sent:?}");
        // A relay may repeat packets on request.
        assert!(self.is_on_request || self.delivered.insert(sent), "delivered twice");
    }

    fn check(&self) {
        assert_eq!(self.front.counters().ended() + self.front.waiting(), self.given);
        let sample_bytes_max = SAMPLE_MAX * (DATAGRAM_BYTES_MAX + 100);
        let bytes_max = WAITING_BYTES_MAX + sample_bytes_max + usize::from(CHANNELS) * CHANNEL_BYTES_MAX;
        assert!(self.front.memory_bytes() <= bytes_max, "{} bytes", self.front.memory_bytes());
        assert!(self.front.session().is_none() || !self.front.is_unsigned());
    }

    /// Whatever came before, the next packets of the session are verified, unless the front was to take any
    /// session and has taken another one.
    fn end(&mut self) {
        (0..CHANNELS).for_each(|channel| self.front.join(ChannelId(channel)));
        // Samples are judged, and a sender's restart is believed after a silence.
        self.sleep(Duration::from_secs(1));
        self.sleep(Duration::from_secs(6));
        assert_eq!(self.front.waiting(), 0);
        let session = match self.front.session() {
            _ if self.front.is_unsigned() => return,
            Some((&KEY, _, started)) if started == STARTED[1] => &recordings().later,
            Some((&KEY, ..)) | None => self.session,
            Some(_) => return,
        };
        let (last, before) = session[session.len() - LAST..].split_last().expect("packets");
        for sent in before {
            self.give(sent.channel, &sent.bytes);
            self.now += Duration::from_millis(5);
        }
        let verified = self.front.counters().verified;
        self.give(last.channel, &last.bytes);
        assert_eq!(self.front.counters().verified, verified + 1, "{:?}", self.front.counters());
    }
}

fn other(channel: ChannelId) -> ChannelId {
    ChannelId((channel.0 + 1) % CHANNELS)
}

/// Returns a manifest of the session with a signature that nobody made; `None` if the packet has none.
fn forged(genuine: &[u8], ahead: u8, tags: &[Tag], signature: [u8; 8]) -> Option<Vec<u8>> {
    let (auth, _) = Authentication::find(&lct::Packet::new_checked(genuine).ok()?).ok()??;
    let (header, _) = alc::parse(genuine).ok()?;
    let header = alc::Repr { toi: None, payload_id: None, extensions: Extensions::default(), ..header };
    let mut bytes = vec![0; 1_200];
    let length = header.emit(&mut bytes).ok()?;
    let length = insert_manifest(&mut bytes, length, tags.iter().copied()).unwrap_or(length);
    let mut of_copies = [0; 64];
    of_copies.as_chunks_mut::<8>().0.fill(signature);
    let number = auth.number.wrapping_add(ahead.into());
    let auth = Authentication { number, signature: of_copies, ..auth };
    let end = auth.insert(&mut bytes, length).ok()?.end;
    bytes.truncate(end);
    Some(bytes)
}
