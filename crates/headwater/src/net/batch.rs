//! Many datagrams read in one call.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;

use headwater_proto::{ChannelId, Datagram, Ecn};
use quinn_udp::{BATCH_SIZE, RecvMeta};

use super::endpoint::Endpoint;

/// Largest message: a UDP payload, or a run of them that the kernel coalesced (GRO).
const MESSAGE_BYTES_MAX: usize = 65_535;

/// From one buffer to the next. At a multiple of a page all of them would compete for the same lines of a cache, of which
/// single datagrams fill the first few only.
const BUFFER_STRIDE: usize = MESSAGE_BYTES_MAX + 1 + 33 * 64;

/// Messages that are longer are runs, of which so many are read at a time: half a megabyte.
const RUN_BYTES_MIN: usize = 16 << 10;
const RUNS_MAX: usize = 8;

/// A reusable buffer that a socket fills with the datagrams that are waiting.
///
/// It holds at most 32 messages of 65 535 bytes (2 MB, of which only what is written to is backed by memory), each of
/// up to 64 datagrams.
#[derive(Debug)]
pub struct RecvBatch {
    buffer: Vec<u8>,
    messages: Vec<Message>,
    /// Leading buffers in use; dropped messages hold theirs until the next read.
    filled: usize,
    /// Buffers that a read may use: few where each is filled by a run, so that all stay in a processor's cache.
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
}

impl RecvBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; BATCH_SIZE * BUFFER_STRIDE],
            messages: Vec::with_capacity(BATCH_SIZE),
            filled: 0,
            usable: BATCH_SIZE,
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

    /// The datagrams, in the order in which each socket got them. `channel` is `None` for those sent to the socket's
    /// own address.
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.messages.iter().flat_map(|message| {
            (0..message.datagrams()).map(|i| Datagram {
                source: message.source,
                channel: message.channel,
                ecn: message.ecn,
                payload: self.payload(message, i),
            })
        })
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

    /// Reads what waits at `endpoint` into the free buffers. `accept` says of each message which channel it belongs to
    /// (`None` within: this end's own address), or drops it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn read(
        &mut self,
        endpoint: &Endpoint,
        mut accept: impl FnMut(&RecvMeta) -> Option<Option<ChannelId>>,
    ) -> io::Result<()> {
        let free = self.usable.saturating_sub(self.filled);
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut chunks = self.buffer.chunks_exact_mut(BUFFER_STRIDE).skip(self.filled);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
            IoSliceMut::new(chunks.next().map_or(&mut [], |chunk| &mut chunk[..MESSAGE_BYTES_MAX]))
        });
        let received = endpoint.receive(&mut buffers[..free], &mut metas[..free])?;
        for (i, meta) in metas[..received].iter().enumerate() {
            if let Some(channel) = accept(meta) {
                self.push(Message::new(self.filled + i, meta, channel));
            }
        }
        self.filled += received;
        let bytes: usize = metas[..received].iter().map(|meta| meta.len).sum();
        if received > 0 {
            self.usable = if bytes > received * RUN_BYTES_MIN { RUNS_MAX } else { BATCH_SIZE };
        }
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
    fn new(buffer_index: usize, meta: &RecvMeta, channel: Option<ChannelId>) -> Self {
        let bytes = meta.len.min(MESSAGE_BYTES_MAX);
        Self {
            buffer_index,
            bytes,
            stride: meta.stride.min(bytes),
            source: meta.addr,
            channel,
            ecn: Ecn::from_bits(meta.ecn.map_or(0, |ecn| ecn as u8)),
        }
    }

    /// An empty datagram is a datagram too.
    fn datagrams(&self) -> usize {
        datagrams(self.bytes, self.stride)
    }
}

/// How many datagrams a message of so many bytes carries.
pub(super) fn datagrams(bytes: usize, stride: usize) -> usize {
    if stride == 0 { 1 } else { bytes.div_ceil(stride).max(1) }
}
