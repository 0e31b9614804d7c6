//! Messages of one turn of the driver, on their way from the machine to the application.

use headwater_proto::Instant;
use headwater_proto::pgm::zmq::Unpacker;
use headwater_proto::pgm::{ByteStream, Deliver};

use super::options::Framing;
use super::update::PgmReceiveUpdate;

/// Holds what came since it was last emptied: at most the window and what was read in one turn, and 8 bytes
/// for each message. Of ZeroMQ's empty messages, 2 bytes each, that is four times as much again.
#[derive(Debug)]
pub(super) struct Sink {
    unpacking: Unpacking,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    pub(super) messages: u64,
    pub(super) message_bytes: u64,
}

/// What comes of packets.
#[derive(Debug)]
enum Unpacking {
    /// What PGM made of them.
    Messages,
    Zmq(Unpacker),
    Bytes(ByteStream),
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    /// A message of so many bytes.
    Message(u32),
    /// So many packets, or more.
    Lost(u32),
}

impl Sink {
    pub(super) fn new(framing: Framing, message_bytes_max: u32) -> Self {
        Self {
            unpacking: match framing {
                Framing::Messages => Unpacking::Messages,
                Framing::Zmq => Unpacking::Zmq(Unpacker::new(message_bytes_max)),
                Framing::Bytes => Unpacking::Bytes(ByteStream::default()),
            },
            bytes: Vec::new(),
            entries: Vec::new(),
            messages: 0,
            message_bytes: 0,
        }
    }

    /// What the framing could make no sense of.
    pub(super) fn broken(&self) -> u64 {
        match &self.unpacking {
            Unpacking::Zmq(unpacker) => unpacker.broken(),
            Unpacking::Messages | Unpacking::Bytes(_) => 0,
        }
    }

    /// Whether nothing more can come: it is a stream of bytes, and some of them are lost for good.
    pub(super) const fn has_broken_off(&self) -> bool {
        matches!(&self.unpacking, Unpacking::Bytes(stream) if stream.is_broken())
    }

    /// Gives all to the application, in order.
    pub(super) fn empty(&mut self, observer: &mut dyn FnMut(PgmReceiveUpdate<'_>)) {
        if self.entries.is_empty() {
            return;
        }
        let mut rest = &self.bytes[..];
        for entry in self.entries.drain(..) {
            match entry {
                Entry::Message(bytes) => {
                    let (message, behind) = rest.split_at(bytes as usize);
                    rest = behind;
                    observer(PgmReceiveUpdate::Message(message));
                }
                Entry::Lost(packets) => observer(PgmReceiveUpdate::Lost { packets: packets.into() }),
            }
        }
        self.bytes.clear();
        observer(PgmReceiveUpdate::Settled);
    }
}

impl Deliver for Sink {
    fn message(&mut self, _now: Instant, message: &[u8]) {
        let Self { unpacking, bytes, entries, messages, message_bytes } = self;
        let mut keep = |message: &[u8]| {
            // None is longer than `message_bytes_max`, or a packet.
            let Ok(length) = u32::try_from(message.len()) else { return };
            bytes.extend_from_slice(message);
            entries.push(Entry::Message(length));
            *messages += 1;
            *message_bytes += message.len() as u64;
        };
        match unpacking {
            Unpacking::Messages => keep(message),
            Unpacking::Zmq(unpacker) => unpacker.packet(message, keep),
            Unpacking::Bytes(stream) => stream.packet(message, keep),
        }
    }

    fn lost(&mut self, _now: Instant, packets: u64) {
        match &mut self.unpacking {
            Unpacking::Messages => {}
            Unpacking::Zmq(unpacker) => unpacker.lost(),
            Unpacking::Bytes(stream) => stream.lost(),
        }
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        match self.entries.last_mut() {
            Some(Entry::Lost(before)) => *before = before.saturating_add(packets),
            _ => self.entries.push(Entry::Lost(packets)),
        }
    }
}
