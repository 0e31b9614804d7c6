//! Many datagrams read in one call.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use headwater_proto::{ChannelId, Datagram, Ecn};

use super::endpoint::Endpoint;
use super::sys::{Incoming, MESSAGES_MAX};
use super::wall::Wall;

/// Largest message: a UDP payload, or a run of them that the kernel coalesced (GRO).
const MESSAGE_BYTES_MAX: usize = 65_535;

/// From one buffer to the next. At a multiple of a page all of them would compete for the same lines of a
/// cache, of which single datagrams fill the first few only.
const BUFFER_STRIDE: usize = MESSAGE_BYTES_MAX + 1 + 33 * 64;

/// Messages that are longer are runs, of which so many are read at a time: half a megabyte.
const RUN_BYTES_MIN: usize = 16 << 10;
const RUNS_MAX: usize = 8;

/// A reusable buffer that a socket fills with the datagrams that are waiting.
///
/// It holds at most 32 messages of 65 535 bytes (2 MB, of which only what is written to is backed by memory),
/// each of up to 64 datagrams.
#[derive(Debug)]
pub struct RecvBatch {
    buffer: Vec<u8>,
    incoming: Vec<Incoming>,
    messages: Vec<Message>,
    /// Leading buffers in use; dropped messages hold theirs until the next read.
    filled: usize,
    /// Buffers that a read may use: few where each is filled by a run, so that all stay in a processor's
    /// cache.
    usable: usize,
    datagrams: usize,
}

/// Datagrams from one source to one destination, all of `stride` bytes but the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
struct Message {
    buffer_index: usize,
    bytes: usize,
    stride: usize,
    source: SocketAddr,
    channel: Option<ChannelId>,
    ecn: Ecn,
    arrived: Instant,
}

/// A message as it came, before it is known what it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) bytes: usize,
    stride: usize,
    /// Who sent it.
    pub(super) source: SocketAddr,
    /// Where it was sent to.
    pub(super) destination: Option<IpAddr>,
    ecn: Ecn,
    arrived: Instant,
}

impl RecvBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; MESSAGES_MAX * BUFFER_STRIDE],
            incoming: (0..MESSAGES_MAX).map(|_| Incoming::new()).collect(),
            messages: Vec::with_capacity(MESSAGES_MAX),
            filled: 0,
            usable: MESSAGES_MAX,
            datagrams: 0,
        }
    }

    /// Number of datagrams in it.
    pub const fn len(&self) -> usize {
        self.datagrams
    }

    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.datagrams == 0
    }

    /// The datagrams, in the order in which each socket got them. `channel` is `None` for those sent to the
    /// socket's own address.
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.arrivals().map(|(_, datagram)| datagram)
    }

    /// The datagrams and when each came to this machine, by the kernel's clock: that they were read later
    /// makes no difference. Those of a run that the kernel coalesced came with its first.
    pub fn arrivals(&self) -> impl Iterator<Item = (Instant, Datagram<'_>)> {
        self.messages.iter().flat_map(|message| {
            (0..message.datagrams()).map(|i| {
                let datagram = Datagram {
                    source: message.source,
                    channel: message.channel,
                    ecn: message.ecn,
                    payload: self.payload(message, i),
                };
                (message.arrived, datagram)
            })
        })
    }

    /// Puts what several sockets have got in the order in which it came.
    pub(super) fn sort(&mut self) {
        self.messages.sort_unstable_by_key(|message| (message.arrived, message.buffer_index));
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.filled = 0;
        self.datagrams = 0;
    }

    /// Whether another read would find no buffer.
    pub(super) fn is_full(&self) -> bool {
        self.filled >= self.usable
    }

    /// Reads what waits at `endpoint` into the free buffers. `accept` says of each message which channel it
    /// belongs to (`None` within: this end's own address), or drops it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn read(
        &mut self,
        endpoint: &Endpoint,
        mut accept: impl FnMut(&Heard) -> Option<Option<ChannelId>>,
    ) -> io::Result<()> {
        let free = self.usable.saturating_sub(self.filled);
        let mut chunks = self.buffer.chunks_exact_mut(BUFFER_STRIDE).skip(self.filled);
        let mut buffers: [IoSliceMut<'_>; MESSAGES_MAX] = std::array::from_fn(|_| {
            IoSliceMut::new(chunks.next().map_or(&mut [], |chunk| &mut chunk[..MESSAGE_BYTES_MAX]))
        });
        let received = endpoint.receive(&mut buffers[..free], &mut self.incoming[..free])?;
        if received == 0 {
            return Ok(());
        }
        let wall = Wall::now();
        let mut bytes = 0;
        for i in 0..received {
            bytes += self.incoming[i].bytes;
            let Some(heard) = Heard::new(&self.incoming[i], wall) else { continue };
            if let Some(channel) = accept(&heard) {
                self.push(Message::new(self.filled + i, &heard, channel));
            }
        }
        self.filled += received;
        self.usable = if bytes > received * RUN_BYTES_MIN { RUNS_MAX } else { MESSAGES_MAX };
        Ok(())
    }

    fn push(&mut self, message: Message) {
        self.datagrams += message.datagrams();
        self.messages.push(message);
    }

    fn payload(&self, message: &Message, index: usize) -> &[u8] {
        let first = index * message.stride;
        let end = message.bytes.min(first + message.stride);
        let start = message.buffer_index * BUFFER_STRIDE;
        &self.buffer[start + first..start + end]
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Message {
    fn new(buffer_index: usize, heard: &Heard, channel: Option<ChannelId>) -> Self {
        Self {
            buffer_index,
            bytes: heard.bytes,
            stride: heard.stride,
            source: heard.source,
            channel,
            ecn: heard.ecn,
            arrived: heard.arrived,
        }
    }

    fn datagrams(&self) -> usize {
        datagrams(self.bytes, self.stride)
    }
}

impl Heard {
    fn new(incoming: &Incoming, wall: Wall) -> Option<Self> {
        let told = incoming.told();
        let bytes = incoming.bytes.min(MESSAGE_BYTES_MAX);
        Some(Self {
            bytes,
            stride: told.segment_bytes.unwrap_or(bytes).min(bytes),
            source: incoming.source()?,
            destination: told.destination,
            ecn: Ecn::from_bits(told.traffic_class),
            arrived: told.arrived.map_or(wall.monotonic, |since_1970| wall.monotonic(since_1970)),
        })
    }

    /// How many datagrams it carries.
    pub(super) fn datagrams(&self) -> u64 {
        datagrams(self.bytes, self.stride) as u64
    }
}

/// How many datagrams a message of so many bytes carries. An empty datagram is a datagram too.
fn datagrams(bytes: usize, stride: usize) -> usize {
    if stride == 0 { 1 } else { bytes.div_ceil(stride).max(1) }
}
