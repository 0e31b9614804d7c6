//! Messages of one turn of the driver, on their way from the machine to the application.

use headwater_proto::Instant;
use headwater_proto::pgm::Deliver;
use headwater_proto::pgm::zmq::Unpacker;

use super::options::Framing;
use super::update::PgmReceiveUpdate;

/// Holds what came since it was last emptied: at most the window and what was read in one turn, and 8 bytes for each message. Of ZeroMQ's empty
/// messages, 2 bytes each, that is four times as much again.
#[derive(Debug)]
pub(super) struct Sink {
    /// Of ZeroMQ's packets.
    unpacker: Option<Unpacker>,
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    pub(super) messages: u64,
    pub(super) message_bytes: u64,
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
            unpacker: (framing == Framing::Zmq).then(|| Unpacker::new(message_bytes_max)),
            bytes: Vec::new(),
            entries: Vec::new(),
            messages: 0,
            message_bytes: 0,
        }
    }

    /// What the framing could make no sense of.
    pub(super) fn broken(&self) -> u64 {
        self.unpacker.as_ref().map_or(0, Unpacker::broken)
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
        let Self { unpacker, bytes, entries, messages, message_bytes } = self;
        let mut keep = |message: &[u8]| {
            // None is longer than `message_bytes_max`, or a packet.
            let Ok(length) = u32::try_from(message.len()) else { return };
            bytes.extend_from_slice(message);
            entries.push(Entry::Message(length));
            *messages += 1;
            *message_bytes += message.len() as u64;
        };
        match unpacker {
            None => keep(message),
            Some(unpacker) => unpacker.packet(message, keep),
        }
    }

    fn lost(&mut self, _now: Instant, packets: u64) {
        if let Some(unpacker) = &mut self.unpacker {
            unpacker.lost();
        }
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        match self.entries.last_mut() {
            Some(Entry::Lost(before)) => *before = before.saturating_add(packets),
            _ => self.entries.push(Entry::Lost(packets)),
        }
    }
}
