//! PGM flows without content: a source that always has more to send, and receivers that want no more than to
//! count.

use headwater_proto::pgm::{Deliver, Source, SourceEvent};
use headwater_proto::{Input, Instant, Machine, Output};

/// Number of messages kept ready; each fits in a packet.
const READY: u32 = 4;

/// A PGM source that never runs out of messages.
#[derive(Clone, Debug)]
pub struct GreedySource {
    source: Source,
    message: Vec<u8>,
    packets_max: Option<u64>,
}

impl GreedySource {
    /// Sends messages of `bytes` zeros through `source`; a message should fit in a packet.
    pub fn new(source: Source, bytes: u16) -> Self {
        let mut greedy = Self { source, message: vec![0; bytes.into()], packets_max: None };
        greedy.refill();
        greedy
    }

    /// Stops sending after `packets` packets of data, repairs included.
    #[must_use]
    pub fn with_packets_max(mut self, packets: u64) -> Self {
        self.packets_max = Some(packets);
        self
    }

    /// Whether the source has sent `packets_max` packets; always false without a bound.
    pub fn is_done(&self) -> bool {
        let counters = self.source.counters();
        self.packets_max.is_some_and(|most| counters.originals + counters.repairs >= most)
    }

    /// The source.
    pub const fn source(&self) -> &Source {
        &self.source
    }

    fn refill(&mut self) {
        while self.source.waiting() < READY && self.source.send(&self.message) {}
    }
}

impl Machine for GreedySource {
    type Event = SourceEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.source.handle(now, input);
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<SourceEvent>> {
        if self.is_done() {
            return None;
        }
        let output = self.source.poll_output(now, buffer);
        self.refill();
        output
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // NAKs are still listened to.
        if self.is_done() { None } else { self.source.poll_timeout() }
    }
}

/// Discards all messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forget;

impl Deliver for Forget {
    fn message(&mut self, _now: Instant, _message: &[u8]) {}
}
