//! Small signed sessions as our own sender's signing end writes them, recorded once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::OnceLock;

use headwater_proto::ChannelId;
use headwater_proto::auth::{
    GROUP, PLANNED, PublicKey, SIGNATURE_BYTES, Signer, SigningConfig, SigningEnd, Slot, StandIn, Verifier,
};
use headwater_wire::{Cci, Extensions, PayloadId, alc};

/// Key of the honest sender.
pub const KEY: PublicKey = [9; 32];
/// Channels of each session.
pub const CHANNELS: u16 = 2;
/// Packets of a session that no storm sends: the sender's next packets after the storm.
pub const LAST: usize = 120;
/// Start of the honest sender's session, and of the sender's next session.
pub const STARTED: [u32; 2] = [0xE000_0000, 0xE000_0001];

const STRANGER_KEY: PublicKey = [8; 32];
const TSI: u64 = 7;
const ROUNDS: usize = 600;
const SYMBOL_BYTES: usize = 40;
const BUFFER_BYTES: usize = 2_000;

/// Packet of a session and its channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    pub channel: ChannelId,
    pub bytes: Vec<u8>,
}

/// Recorded sessions.
pub struct Recordings {
    /// Sessions of manifests, of signatures alone, and on request.
    honest: [Vec<Sent>; 3],
    /// The honest sender's next session, of manifests.
    pub later: Vec<Sent>,
    /// Session of another key.
    pub stranger: Vec<Sent>,
    /// Each packet of each recording, with the key of its sender; the CCI of packets on request is zero.
    sent: BTreeSet<(PublicKey, Sent)>,
    /// Each message that was signed.
    signed: BTreeSet<(PublicKey, Vec<u8>)>,
}

impl Recordings {
    /// Returns a session of the honest sender, and whether its packets are sent on request.
    pub fn honest(&self, choice: u8) -> (&[Sent], bool) {
        let choice = usize::from(choice) % self.honest.len();
        (&self.honest[choice], choice == 2)
    }

    /// Whether the holder of `key` has sent the packet.
    pub fn has_sent(&self, key: PublicKey, sent: Sent) -> bool {
        self.sent.contains(&(key, sent))
    }
}

/// Returns the recordings.
pub fn recordings() -> &'static Recordings {
    static RECORDINGS: OnceLock<Recordings> = OnceLock::new();
    RECORDINGS.get_or_init(|| {
        let signed = RefCell::default();
        let record = |key, started, group, is_on_request| {
            Recorder::new(RecordingSigner { key, signed: &signed }, started, group, is_on_request).record()
        };
        let [started, later] = STARTED;
        let honest = [
            record(KEY, started, GROUP, false),
            record(KEY, started, 0, false),
            record(KEY, started, 0, true),
        ];
        let (later, stranger) = (record(KEY, later, GROUP, false), record(STRANGER_KEY, later, GROUP, false));
        let of_key =
            |key, session: &[Sent]| session.iter().map(|sent| (key, sent.clone())).collect::<Vec<_>>();
        let sent = honest.iter().chain([&later]).flat_map(|session| of_key(KEY, session));
        let sent = sent.chain(of_key(STRANGER_KEY, &stranger)).collect();
        Recordings { honest, later, stranger, sent, signed: signed.take() }
    })
}

/// Check of signatures that accepts recorded signatures alone, so that no input can be a forgery that
/// succeeds.
#[derive(Debug)]
pub struct RecordedSignatures;

impl Verifier for RecordedSignatures {
    fn verify(&self, key: &PublicKey, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        recordings().signed.contains(&(*key, message.to_vec()))
            && StandIn(*key).verify(key, message, signature)
    }
}

#[derive(Debug)]
struct RecordingSigner<'a> {
    key: PublicKey,
    signed: &'a RefCell<BTreeSet<(PublicKey, Vec<u8>)>>,
}

impl Signer for RecordingSigner<'_> {
    fn public_key(&self) -> PublicKey {
        self.key
    }

    fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.signed.borrow_mut().insert((self.key, message.to_vec()));
        StandIn(self.key).sign(message)
    }
}

/// Signing end of a session that is recorded. Symbols hold the session's start, so that no packet is of two
/// sessions.
struct Recorder<'a> {
    end: SigningEnd<RecordingSigner<'a>>,
    started: u32,
    group: usize,
    is_on_request: bool,
    symbols: u32,
    sent: Vec<Sent>,
}

impl<'a> Recorder<'a> {
    fn new(signer: RecordingSigner<'a>, started: u32, group: usize, is_on_request: bool) -> Self {
        let config = SigningConfig::new(TSI, started, CHANNELS, [3; 32]).with_request(is_on_request);
        let end = SigningEnd::new(config, signer);
        Self { end, started, group, is_on_request, symbols: 0, sent: Vec::new() }
    }

    /// Each channel sends a packet in each round. Now and then a packet carries the key, is shed, or is a
    /// leaf of a tree; for 50 rounds no manifest lists packets.
    fn record(mut self) -> Vec<Sent> {
        for round in 0..ROUNDS {
            for channel in (0..CHANNELS).map(ChannelId) {
                let group = if (200..250).contains(&round) { 0 } else { self.group };
                self.end.set_group(channel, group).expect("a channel");
                let slots = if group > 0 { PLANNED } else { 1 };
                if round % 40 == 7 && group == 0 {
                    (0..8).for_each(|_| self.plan(channel));
                    self.end.sign_tree(channel).expect("room");
                }
                while self.end.planned(channel) < slots {
                    self.plan(channel);
                }
                if round % 20 == 0 {
                    self.send_key(channel);
                }
                if round % 97 == 96 {
                    self.end.shed(channel);
                }
                self.send(channel);
            }
        }
        self.sent
    }

    fn header(&self, is_packet: bool) -> alc::Repr {
        let id = PayloadId { sbn: self.symbols >> 16, esi: self.symbols & 0xFFFF };
        let cci = if self.is_on_request { 0 } else { self.symbols };
        alc::Repr {
            tsi: TSI,
            toi: is_packet.then_some(1),
            close_session: false,
            close_object: false,
            psi: 0,
            codepoint: 0,
            cci: Cci::new(&cci.to_be_bytes()).expect("four bytes"),
            extensions: Extensions::default(),
            payload_id: is_packet.then_some(id),
        }
    }

    fn packet(&mut self, is_packet: bool) -> Vec<u8> {
        self.symbols += 1;
        let mut bytes = vec![0; BUFFER_BYTES];
        let header = self.header(is_packet).emit(&mut bytes).expect("room");
        bytes[header..header + 4].copy_from_slice(&self.started.to_be_bytes());
        bytes.truncate(header + if is_packet { SYMBOL_BYTES } else { 0 });
        bytes
    }

    fn plan(&mut self, channel: ChannelId) {
        let packet = self.packet(self.end.next_slot(channel) == Slot::Packet);
        self.end.plan(channel, &packet).expect("room in the plan");
    }

    fn send(&mut self, channel: ChannelId) {
        let mut bytes = vec![0; BUFFER_BYTES];
        if let Some(length) = self.end.send(channel, &mut bytes).expect("room") {
            bytes.truncate(length);
            self.sent.push(Sent { channel, bytes });
        }
    }

    fn send_key(&mut self, channel: ChannelId) {
        let mut bytes = self.packet(true);
        let length = bytes.len();
        bytes.resize(BUFFER_BYTES, 0);
        let length = self.end.insert_key(&mut bytes, length).expect("room");
        let length = self.end.sign(channel, &mut bytes, length).expect("room");
        bytes.truncate(length);
        self.sent.push(Sent { channel, bytes });
    }
}
