//! Datagrams read in one call, and the time when the kernel received the datagrams.
//!
//! Linux stamps arrivals by the wall clock, and machines count by the monotonic clock.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater_proto::{ChannelId, Datagram, Ecn};

use super::endpoint::Endpoint;
use super::sys::{Incoming, MESSAGES_MAX};

/// Largest message: a UDP payload, or a run of payloads that the kernel coalesced (GRO).
const MESSAGE_BYTES_MAX: usize = 65_535;

/// Distance between buffers. At a multiple of a page all buffers would compete for the same cache lines, as
/// single datagrams fill only the first few lines of a buffer.
const BUFFER_STRIDE: usize = MESSAGE_BYTES_MAX + 1 + 33 * 64;

/// Longer messages are runs; at most [`RUNS_MAX`] runs are read at a time: half a megabyte.
const RUN_BYTES_MIN: usize = 16 << 10;
const RUNS_MAX: usize = 8;

/// A reusable buffer that sockets fill with the datagrams that are waiting.
///
/// Memory: for each socket that is read at most 32 messages of 65 535 bytes (2 MB, of which only the written
/// pages are backed by memory), each of up to 64 datagrams.
#[derive(Debug)]
pub struct RecvBatch {
    /// Buffers of each socket; the first ones serve all sockets of an end that merges none.
    banks: Vec<Bank>,
    incoming: Vec<Incoming>,
    messages: Vec<Message>,
    /// Messages that arrived after messages that another socket may still hold.
    kept: Vec<Message>,
    /// Whether a socket was not read, because messages of the socket are kept.
    has_skipped: bool,
    datagrams: usize,
}

/// Buffers for the messages of one read.
#[derive(Debug)]
struct Bank {
    buffer: Vec<u8>,
    /// Leading buffers in use; dropped messages occupy their buffers until the next read.
    filled: usize,
    /// Buffers that a read may use: few while runs fill the buffers, so that all buffers stay in a
    /// processor's cache.
    usable: usize,
    /// Whether a read filled all buffers that the read could use: more messages may wait.
    has_filled: bool,
    /// Arrival of the last message read.
    last: Option<Instant>,
}

impl Bank {
    fn new() -> Self {
        let buffer = vec![0; MESSAGES_MAX * BUFFER_STRIDE];
        Self { buffer, filled: 0, usable: MESSAGES_MAX, has_filled: false, last: None }
    }

    fn clear(&mut self) {
        (self.filled, self.has_filled, self.last) = (0, false, None);
    }

    /// Reads messages into the free buffers. Returns the number of messages.
    fn fill(&mut self, endpoint: &Endpoint, incoming: &mut [Incoming]) -> io::Result<usize> {
        let free = self.usable.saturating_sub(self.filled);
        let mut chunks = self.buffer.chunks_exact_mut(BUFFER_STRIDE).skip(self.filled);
        let mut buffers: [IoSliceMut<'_>; MESSAGES_MAX] = std::array::from_fn(|_| {
            IoSliceMut::new(chunks.next().map_or(&mut [], |chunk| &mut chunk[..MESSAGE_BYTES_MAX]))
        });
        let received = endpoint.receive(&mut buffers[..free], &mut incoming[..free])?;
        self.has_filled |= received == free;
        if received > 0 {
            let bytes: usize = incoming[..received].iter().map(|incoming| incoming.bytes).sum();
            self.usable = if bytes > received * RUN_BYTES_MIN { RUNS_MAX } else { MESSAGES_MAX };
        }
        Ok(received)
    }
}

/// Datagrams from one source to one destination, all of `stride` bytes but the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// Bank, and buffer in the bank.
    bank: usize,
    buffer_index: usize,
    /// Start of the first payload in the buffer.
    offset: usize,
    bytes: usize,
    stride: usize,
    source: SocketAddr,
    channel: Option<ChannelId>,
    ecn: Ecn,
    arrived: Instant,
}

/// Datagram within a message of a tunnel, or a message by unicast without a channel.
#[derive(Clone, Debug)]
pub(super) struct TunneledDatagram {
    pub(super) source: SocketAddr,
    pub(super) channel: Option<ChannelId>,
    pub(super) ecn: Ecn,
    /// Place of the payload in the datagram of the tunnel.
    pub(super) payload: std::ops::Range<usize>,
}

/// A message as received, before its session and channel are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncomingMessage {
    pub(super) bytes: usize,
    stride: usize,
    /// Source address.
    pub(super) source: SocketAddr,
    /// Destination address.
    pub(super) destination: Option<IpAddr>,
    pub(super) ecn: Ecn,
    arrived: Instant,
}

impl RecvBatch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self {
            banks: vec![Bank::new()],
            incoming: (0..MESSAGES_MAX).map(|_| Incoming::new()).collect(),
            messages: Vec::with_capacity(MESSAGES_MAX),
            kept: Vec::new(),
            has_skipped: false,
            datagrams: 0,
        }
    }

    /// Returns the number of datagrams in the batch.
    pub const fn len(&self) -> usize {
        self.datagrams
    }

    /// Whether the batch is empty.
    pub const fn is_empty(&self) -> bool {
        self.datagrams == 0
    }

    /// Returns the datagrams, in the order in which each socket received them. `channel` is `None` for
    /// datagrams sent to the socket's own address.
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.arrivals().map(|(_, datagram)| datagram)
    }

    /// Returns the datagrams with their time of arrival at this machine, by the kernel's clock: a late read
    /// makes no difference. All datagrams of a coalesced run have the arrival time of the first.
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

    /// Removes all messages.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.kept.clear();
        self.banks.iter_mut().for_each(Bank::clear);
        self.has_skipped = false;
        self.datagrams = 0;
    }

    /// Removes the messages of the last turn, but for those that are kept.
    pub(super) fn turn(&mut self) {
        self.messages.clear();
        self.has_skipped = false;
        self.datagrams = 0;
        for (index, bank) in self.banks.iter_mut().enumerate() {
            if self.kept.iter().all(|message| message.bank != index) {
                bank.clear();
            }
        }
    }

    /// Whether each read of the batch emptied its socket, and no message is kept.
    pub(crate) fn is_all(&self) -> bool {
        self.kept.is_empty() && !self.has_skipped && self.banks.iter().all(|bank| !bank.has_filled)
    }

    /// Orders the messages of several sockets by time of arrival, and keeps those that arrived after the
    /// last message read from a socket that may hold more.
    pub(super) fn merge(&mut self) {
        // A socket that was not read may hold more, too.
        let has_kept = |index| self.kept.iter().any(|message| message.bank == index);
        let open = self.banks.iter().enumerate().filter(|(index, bank)| bank.has_filled || has_kept(*index));
        let end = open.filter_map(|(_, bank)| bank.last).min();
        self.merge_all();
        if let Some(end) = end {
            let now = self.messages.partition_point(|message| message.arrived <= end);
            self.kept.extend(self.messages.drain(now..));
            self.datagrams = self.messages.iter().map(Message::datagrams).sum();
        }
    }

    /// Orders the messages of several sockets by time of arrival.
    pub(super) fn merge_all(&mut self) {
        self.messages.append(&mut self.kept);
        self.messages.sort_unstable_by_key(|message| {
            (message.arrived, message.bank, message.buffer_index, message.offset)
        });
        self.datagrams = self.messages.iter().map(Message::datagrams).sum();
    }

    /// Reads the waiting messages of an end's socket of this number into buffers of the socket's own, unless
    /// messages of the socket are kept.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read_apart(
        &mut self,
        socket: usize,
        endpoint: &Endpoint,
        accept: impl FnMut(&IncomingMessage) -> Option<Option<ChannelId>>,
    ) -> io::Result<()> {
        while self.banks.len() <= socket {
            self.banks.push(Bank::new());
        }
        if self.kept.iter().any(|message| message.bank == socket) {
            self.has_skipped = true;
            return Ok(());
        }
        self.read_into(socket, endpoint, accept)
    }

    /// Reads the waiting messages of `endpoint` into the free buffers. `accept` returns the channel of each
    /// message (`None` within: this end's own address), or drops the message.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read(
        &mut self,
        endpoint: &Endpoint,
        accept: impl FnMut(&IncomingMessage) -> Option<Option<ChannelId>>,
    ) -> io::Result<()> {
        self.read_into(0, endpoint, accept)
    }

    fn read_into(
        &mut self,
        bank: usize,
        endpoint: &Endpoint,
        mut accept: impl FnMut(&IncomingMessage) -> Option<Option<ChannelId>>,
    ) -> io::Result<()> {
        let received = self.banks[bank].fill(endpoint, &mut self.incoming)?;
        let wall = Wall::now();
        for i in 0..received {
            let Some(heard) = IncomingMessage::new(&self.incoming[i], wall) else { continue };
            self.banks[bank].last = self.banks[bank].last.max(Some(heard.arrived));
            if let Some(channel) = accept(&heard) {
                let buffer_index = self.banks[bank].filled + i;
                self.push(Message::new((bank, buffer_index), &heard, channel));
            }
        }
        self.banks[bank].filled += received;
        Ok(())
    }

    /// Reads the waiting messages of a tunnel's `endpoint`. `accept` returns the datagram within each
    /// datagram of the tunnel, with the range of its payload, or drops the datagram.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn read_tunnel(
        &mut self,
        endpoint: &Endpoint,
        mut accept: impl FnMut(&IncomingMessage, &[u8]) -> Option<TunneledDatagram>,
    ) -> io::Result<()> {
        let received = self.banks[0].fill(endpoint, &mut self.incoming)?;
        let wall = Wall::now();
        for i in 0..received {
            let Some(heard) = IncomingMessage::new(&self.incoming[i], wall) else { continue };
            let whole = Message::new((0, self.banks[0].filled + i), &heard, None);
            for index in 0..whole.datagrams() {
                let inner = accept(&heard, self.payload(&whole, index));
                let Some(TunneledDatagram { source, channel, ecn, payload }) = inner else { continue };
                let (offset, bytes) = (index * whole.stride + payload.start, payload.len());
                self.push(Message { offset, bytes, stride: bytes, source, channel, ecn, ..whole });
            }
        }
        self.banks[0].filled += received;
        Ok(())
    }

    fn push(&mut self, message: Message) {
        self.datagrams += message.datagrams();
        self.messages.push(message);
    }

    fn payload(&self, message: &Message, index: usize) -> &[u8] {
        let first = index * message.stride;
        let end = message.bytes.min(first + message.stride);
        let start = message.buffer_index * BUFFER_STRIDE + message.offset;
        &self.banks[message.bank].buffer[start + first..start + end]
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Message {
    fn new(
        (bank, buffer_index): (usize, usize),
        heard: &IncomingMessage,
        channel: Option<ChannelId>,
    ) -> Self {
        Self {
            bank,
            buffer_index,
            offset: 0,
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

impl IncomingMessage {
    fn new(incoming: &Incoming, wall: Wall) -> Option<Self> {
        let metadata = incoming.metadata();
        let bytes = incoming.bytes.min(MESSAGE_BYTES_MAX);
        Some(Self {
            bytes,
            stride: metadata.segment_bytes.unwrap_or(bytes).min(bytes),
            source: incoming.source()?,
            destination: metadata.destination,
            ecn: Ecn::from_bits(metadata.traffic_class),
            arrived: metadata.arrived.map_or(wall.monotonic, |since_1970| wall.monotonic(since_1970)),
        })
    }

    /// Returns the ECN field.
    pub(super) const fn ecn(&self) -> Ecn {
        self.ecn
    }

    /// Returns the number of datagrams in the message.
    pub(super) fn datagrams(&self) -> u64 {
        datagrams(self.bytes, self.stride) as u64
    }
}

/// Returns the number of datagrams in a message of so many bytes. An empty datagram is a datagram too.
fn datagrams(bytes: usize, stride: usize) -> usize {
    if stride == 0 { 1 } else { bytes.div_ceil(stride).max(1) }
}

/// Longest credible wait for a read, by the wall clock. A longer wait means that the clock was set meanwhile.
const AGE_MAX: Duration = Duration::from_secs(10);
/// The two clocks are read again if the reading took longer: the thread was interrupted in between.
const TOGETHER: Duration = Duration::from_micros(20);
const TRIES: usize = 3;

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wall {
    pub(super) monotonic: Instant,
    since_1970: Duration,
}

impl Wall {
    /// Reads both clocks.
    pub(super) fn now() -> Self {
        let read = || {
            let before = Instant::now();
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let monotonic = Instant::now();
            (monotonic - before, Self { monotonic, since_1970 })
        };
        let mut best = read();
        for _ in 1..TRIES {
            if best.0 <= TOGETHER {
                break;
            }
            best = read();
        }
        best.1
    }

    /// Converts a time of the wall clock to the monotonic clock; never later than now.
    pub(super) fn monotonic(&self, since_1970: Duration) -> Instant {
        let age = self.since_1970.saturating_sub(since_1970);
        if age > AGE_MAX { self.monotonic } else { self.monotonic.checked_sub(age).unwrap_or(self.monotonic) }
    }
}

#[cfg(test)]
mod wall_tests {
    use super::*;

    #[test]
    fn an_age_is_the_same_by_both_clocks_unless_one_was_set() {
        let wall = Wall::now();
        let at = |age: Duration| wall.monotonic(wall.since_1970 - age);
        assert_eq!(at(Duration::ZERO), wall.monotonic);
        assert_eq!(wall.monotonic - at(Duration::from_millis(250)), Duration::from_millis(250));
        assert_eq!(at(Duration::from_secs(3_600)), wall.monotonic, "set forwards");
        assert_eq!(wall.monotonic(wall.since_1970 + Duration::from_secs(1)), wall.monotonic, "set backwards");
    }
}
