//! Effects of acknowledgements and timeouts on the window, and the recovery of each variant.

use headwater_proto::{Duration, Instant};

use super::super::prr::Prr;
use super::super::{CutFrom, DUP_THRESH, Growth, RttSampling, SackPipe, Segment, Variant};
use super::rack::Rack;
use super::{Phase, Sender};

impl Sender {
    pub(super) fn receive_ack(&mut self, now: Instant, segment: &Segment) {
        let (delivered_before, una_before) = (self.board.delivered(), self.board.una());
        let newly_sacked = if self.heeds_sack() { self.board.sack(segment.sack) } else { 0 };
        if self.uses_scoreboard() {
            self.board.take_losses();
        }
        let echo = self.config.ecn && segment.echo;
        if echo {
            self.answer_echo(segment.ack);
        }
        if segment.ack > self.board.una() {
            self.acknowledge(now, segment.ack, echo);
        } else if segment.ack == self.board.una() && self.board.outstanding() > 0 {
            // With a scoreboard, only an acknowledgement that reports new segments is a duplicate (RFC 6675,
            // section 2); the echo of an unnecessary retransmission is not.
            if newly_sacked > 0 || !self.uses_scoreboard() {
                self.duplicate(now);
            }
        }
        let delivered = self.board.delivered() - delivered_before;
        if self.detects_by_time() && self.board.outstanding() > 0 {
            self.detect_losses(now, self.board.una() > una_before);
            self.schedule_probe(now);
        }
        if self.phase == Phase::Recovery && delivered > 0 {
            self.prr.acknowledged(delivered, self.board.pipe(), self.window.ssthresh());
        }
    }

    /// Without a scoreboard, received segments are retransmitted after a timeout (RFC 2018, section 8).
    fn heeds_sack(&self) -> bool {
        self.uses_scoreboard() || self.estimates_pipe() && self.phase != Phase::Loss
    }

    /// A cumulative acknowledgement of new data.
    fn acknowledge(&mut self, now: Instant, ack: u32, echo: bool) {
        let before = self.board.una();
        let Some((acked, first_sent)) = self.board.advance(ack) else { return };
        self.count_acked(before, ack);
        self.sample_acked(now, ack, first_sent);
        self.dup_acks = 0;
        self.urgent = self.urgent.filter(|sequence| *sequence >= ack);
        let covered = self.recover.is_none_or(|recover| ack >= recover);
        match self.phase {
            Phase::Recovery if covered || self.config.variant == Variant::Reno => {
                self.end_recovery(now, acked);
            }
            Phase::Recovery => self.partial(now, acked),
            _ => {
                if self.phase == Phase::Loss && covered {
                    self.phase = Phase::Open;
                }
                if self.estimates_pipe() {
                    self.board.forget_sacked();
                }
                if !echo {
                    self.grow(now, acked);
                }
                self.rearm(now);
            }
        }
        self.finish_if_done();
    }

    fn grow(&mut self, now: Instant, acked: u32) {
        let rtt = match self.config.growth {
            Growth::LinuxCubic => self.rto.least(),
            Growth::Reno | Growth::Cubic => self.rto.smoothed(),
        };
        let rtt = rtt.unwrap_or(Duration::ZERO);
        self.window.grow(now, rtt, acked);
    }

    /// A partial acknowledgement in fast recovery: more was lost in the same window.
    fn partial(&mut self, now: Instant, acked: u32) {
        let first = !core::mem::replace(&mut self.partial_seen, true);
        match self.config.variant {
            Variant::Reno | Variant::NewReno => {
                self.urgent = Some(self.board.una());
                self.board.take_lost(self.board.una());
                self.window.deflate(acked);
                // Only the first re-arms the timer: many losses end in a timeout rather than in as many round
                // trips (the Impatient variant of RFC 6582, section 4).
                if first {
                    self.rearm(now);
                }
            }
            Variant::Sack => {
                // Two segments have left: the lost segment and its replacement.
                self.estimate = self.estimate.saturating_sub(2);
                self.rearm(now);
            }
        }
    }

    fn end_recovery(&mut self, now: Instant, acked: u32) {
        self.phase = Phase::Open;
        self.window.end_inflation();
        self.urgent = None;
        if self.config.variant == Variant::NewReno && self.config.exit_to_flight {
            self.window.shrink_to_flight(self.board.outstanding());
        }
        if self.config.variant != Variant::Sack && self.config.exit_growth {
            self.grow(now, acked);
        }
        if self.estimates_pipe() {
            self.board.forget_sacked();
        }
        self.rearm(now);
    }

    /// A duplicate acknowledgement.
    fn duplicate(&mut self, now: Instant) {
        self.dup_acks += 1;
        match self.phase {
            Phase::Open if self.repeats_barred() => {}
            Phase::Open => {
                let proven = self.uses_scoreboard() && self.board.first_is_lost();
                if self.dup_acks >= DUP_THRESH || proven {
                    self.begin_recovery(now);
                }
            }
            Phase::Recovery => {
                self.estimate = self.estimate.saturating_sub(1);
                if self.config.variant != Variant::Sack {
                    self.window.inflate(1);
                }
            }
            _ => {}
        }
    }

    /// Whether duplicate acknowledgements carry no information. Until the acknowledgement exceeds SND.MAX at
    /// the last loss event, duplicates may come from segments sent twice (RFC 6582, section 3.2, step 2).
    /// With a scoreboard this cannot happen, so an acknowledgement equal to that SND.MAX is enough (RFC 6675,
    /// section 5.1).
    pub(super) fn repeats_barred(&self) -> bool {
        let una = self.board.una();
        self.recover
            .is_some_and(|recover| if self.uses_scoreboard() { una < recover } else { una <= recover })
    }

    /// Fast retransmit.
    pub(super) fn begin_recovery(&mut self, now: Instant) {
        let first = self.board.una();
        self.counters.fast_retransmits += 1;
        self.estimate = self.board.outstanding().saturating_sub(self.dup_acks);
        // A mark and a loss in the same window are the same congestion event.
        if self.reduced_at.is_none_or(|reduced_at| first >= reduced_at) {
            self.reduce();
        }
        if self.config.variant != Variant::Sack {
            self.window.inflate(DUP_THRESH);
        }
        self.prr = Prr::begin(self.board.outstanding());
        self.phase = Phase::Recovery;
        self.recover = Some(self.board.end());
        self.partial_seen = false;
        self.rescued = false;
        self.board.begin_recovery();
        self.board.take_lost(first);
        self.urgent = Some(first);
        self.timed = None;
        self.arm(now);
    }

    /// An ECN echo: cuts the window unless that was done for the same window of data.
    fn answer_echo(&mut self, ack: u32) {
        let fresh = self.reduced_at.is_none_or(|reduced_at| ack > reduced_at);
        if fresh && self.phase == Phase::Open {
            self.counters.ecn_cuts += 1;
            self.reduce();
        }
    }

    fn reduce(&mut self) {
        self.window.cut(self.cut_from());
        self.reduced_at = Some(self.board.end());
        self.cwr_due = self.config.ecn;
    }

    /// Segments that a cut is taken from, where that is not the window.
    fn cut_from(&self) -> u32 {
        match self.config.cut_from {
            CutFrom::Pipe => self.pipe(),
            CutFrom::Window | CutFrom::FlightSize => self.board.outstanding(),
        }
    }

    /// The retransmission timer ran out: all outstanding is taken for lost.
    pub(super) fn data_timed_out(&mut self, now: Instant) {
        let again = self.rto.is_backed_off();
        self.counters.timeouts += 1;
        if !again {
            self.counters.first_timeouts += 1;
            self.counters.first_timeouts_sum = self.counters.first_timeouts_sum + self.rto.current();
        }
        self.window.restart(self.cut_from(), again);
        self.board.take_all_lost(self.config.sack_pipe == SackPipe::Scoreboard);
        self.phase = Phase::Loss;
        self.recover = Some(self.board.end());
        self.reduced_at = self.recover;
        self.rack = Rack::default();
        self.cwr_due = self.config.ecn;
        self.dup_acks = 0;
        self.urgent = None;
        self.timed = None;
        self.rto.back_off();
        self.arm(now);
    }

    /// RFC 6298, sections 5.2 and 5.3.
    fn rearm(&mut self, now: Instant) {
        self.deadline = None;
        if self.board.outstanding() > 0 {
            self.arm(now);
        }
    }

    fn sample_acked(&mut self, now: Instant, ack: u32, first_sent: Instant) {
        match self.config.rtt_sampling {
            RttSampling::EveryAck => self.sample_rtt(now.since(first_sent)),
            RttSampling::OneAtATime => {
                if let Some((sequence, sent_at)) = self.timed
                    && sequence < ack
                {
                    self.timed = None;
                    self.sample_rtt(now.since(sent_at));
                }
            }
        }
    }

    fn count_acked(&mut self, before: u32, ack: u32) {
        let full = u64::from(ack - before) * u64::from(self.config.segment_bytes);
        let short = if ack == self.total { self.config.segment_bytes - self.last_payload } else { 0 };
        self.counters.payload_bytes_acked += full - u64::from(short);
    }
}
