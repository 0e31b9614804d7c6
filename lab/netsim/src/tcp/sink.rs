//! The receiving end: acknowledges and counts arriving segments.

use headwater_proto::{Ecn, Instant};

use super::{Config, SackBlock, SackBlocks, Segment, SinkCounters, Transmit, Variant};

/// A TCP sink.
///
/// Remembers the blocks received out of order: at most half of [`Config::maximum_window`].
#[derive(Clone, Debug)]
pub struct Sink {
    config: Config,
    /// The segment expected next.
    next: u32,
    /// Blocks received beyond `next`, the most recently changed block first.
    blocks: Vec<SackBlock>,
    /// Unacknowledged segments in order, and the deadline of their acknowledgement.
    unacknowledged: u32,
    deadline: Option<Instant>,
    /// Segments left to acknowledge immediately.
    quick_left: u32,
    /// Acknowledgements, and answers to SYNs, to send now.
    acks_due: u32,
    syn_acks_due: u32,
    /// Congestion was experienced, and the sender has not signalled a window cut yet (RFC 3168, section
    /// 6.1.3).
    echo: bool,
    /// The segment that is not full, the last segment: number and missing bytes.
    short: Option<(u32, u16)>,
    counters: SinkCounters,
}

impl Sink {
    /// A sink of the connection that `config` describes, which must have passed [`Config::check`].
    pub fn new(config: Config) -> Self {
        Self {
            next: 0,
            blocks: Vec::new(),
            unacknowledged: 0,
            deadline: None,
            quick_left: config.acks.quick,
            acks_due: 0,
            syn_acks_due: 0,
            echo: false,
            short: None,
            counters: SinkCounters::default(),
            config,
        }
    }

    /// Handles a segment from the sender, and the ECN field of its packet.
    pub fn receive(&mut self, now: Instant, segment: &Segment, ecn: Ecn) {
        if segment.syn {
            self.syn_acks_due = self.syn_acks_due.saturating_add(1);
        }
        if segment.payload_bytes == 0 {
            return;
        }
        self.counters.segments_received += 1;
        self.note_congestion(segment, ecn);
        match segment.sequence {
            sequence if sequence < self.next => self.repeated(),
            sequence if sequence - self.next >= self.config.maximum_window => {
                self.counters.segments_beyond_window += 1;
                self.acknowledge_now();
            }
            sequence if sequence == self.next => self.in_order(now, segment),
            _ => self.out_of_order(segment),
        }
    }

    /// Handles a timeout: the instant of [`Sink::next_timeout`] has come.
    pub fn timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.acknowledge_now();
        }
    }

    /// Instant at which to call [`Sink::timeout`] if nothing arrives before; `None` for never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// The next segment to send now, or `None` when all are out.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let syn = self.syn_acks_due > 0;
        if syn {
            self.syn_acks_due -= 1;
        } else {
            self.acks_due = self.acks_due.checked_sub(1)?;
            self.counters.acks_sent += 1;
        }
        let segment = Segment {
            ack: self.next,
            sack: self.sack(),
            syn,
            acknowledges: true,
            echo: self.echo && !syn,
            ..Segment::default()
        };
        // Acknowledgements are not ECN-capable (RFC 3168, section 6.1.4).
        Some(Transmit { segment, ecn: Ecn::NotCapable })
    }

    /// Segments received in order.
    pub fn segments_in_order(&self) -> u32 {
        self.next
    }

    /// Configuration of the connection.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters of the sink.
    pub fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn note_congestion(&mut self, segment: &Segment, ecn: Ecn) {
        if !self.config.ecn {
            return;
        }
        if segment.cwr {
            self.echo = false;
        }
        if ecn == Ecn::CongestionExperienced {
            self.counters.segments_marked += 1;
            self.echo = true;
        }
    }

    /// The segment expected: delayed, unless a hole is open or was just filled (RFC 5681, section 4.2).
    fn in_order(&mut self, now: Instant, segment: &Segment) {
        let before = self.next;
        let holes = !self.blocks.is_empty();
        self.note_short(segment);
        self.next += 1;
        if let Some(at) = self.blocks.iter().position(|block| block.start == self.next) {
            self.next = self.blocks.remove(at).end;
        }
        self.count_in_order(before);
        self.unacknowledged += 1;
        let quick = self.quick_left > 0;
        self.quick_left = self.quick_left.saturating_sub(1);
        if holes || quick || self.unacknowledged >= self.config.acks.every {
            self.acknowledge_now();
        } else if self.deadline.is_none() {
            self.deadline = Some(now + self.config.acks.delay);
        }
    }

    fn out_of_order(&mut self, segment: &Segment) {
        let sequence = segment.sequence;
        if self.blocks.iter().any(|block| (block.start..block.end).contains(&sequence)) {
            self.repeated();
            return;
        }
        self.note_short(segment);
        let mut grown = SackBlock { start: sequence, end: sequence + 1 };
        self.blocks.retain(|block| {
            let touches = block.end == sequence || block.start == sequence + 1;
            if touches {
                grown = SackBlock { start: grown.start.min(block.start), end: grown.end.max(block.end) };
            }
            !touches
        });
        self.blocks.insert(0, grown);
        self.acknowledge_now();
    }

    fn repeated(&mut self) {
        self.counters.segments_duplicate += 1;
        self.acknowledge_now();
    }

    fn acknowledge_now(&mut self) {
        self.acks_due = self.acks_due.saturating_add(1);
        self.unacknowledged = 0;
        self.deadline = None;
    }

    fn sack(&self) -> SackBlocks {
        match self.config.variant {
            Variant::Sack => SackBlocks::first_of(&self.blocks),
            Variant::Reno | Variant::NewReno => SackBlocks::default(),
        }
    }

    fn note_short(&mut self, segment: &Segment) {
        let lacks = self.config.segment_bytes.saturating_sub(segment.payload_bytes);
        if lacks > 0 {
            self.short = Some((segment.sequence, lacks));
        }
    }

    fn count_in_order(&mut self, before: u32) {
        let full = u64::from(self.next - before) * u64::from(self.config.segment_bytes);
        let lacks = self
            .short
            .filter(|(sequence, _)| (before..self.next).contains(sequence))
            .map_or(0, |(_, lacks)| lacks);
        self.counters.payload_bytes_in_order += full - u64::from(lacks);
    }
}
