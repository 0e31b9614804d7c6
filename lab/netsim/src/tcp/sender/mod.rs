//! The sending end.

mod choice;
mod rack;
mod recovery;

use headwater_proto::rng::Stream;
use headwater_proto::{Duration, Ecn, Instant};

use self::choice::Choice;
use self::rack::Rack;
use super::prr::Prr;
use super::rto::Rto;
use super::scoreboard::Scoreboard;
use super::window::Window;
use super::{Config, Data, Reduction, RttSampling, SackPipe, Segment, SenderCounters, Transmit, Variant};
use crate::chance::uniform_duration;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `start` has not been called.
    Idle,
    /// The SYN is out, or about to go out when `due`.
    Opening { due: bool },
    /// No loss is being recovered from.
    Open,
    /// Fast recovery, after three duplicate acknowledgements.
    Recovery,
    /// After a timeout, until all segments outstanding at the timeout are acknowledged.
    Loss,
    /// All data is acknowledged.
    Finished,
}

/// A TCP sender.
///
/// Remembers 16 bytes per outstanding segment, of which there are at most [`Config::maximum_window`].
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    stream: Stream,
    /// Total number of segments, and payload of the last segment.
    total: u32,
    last_payload: u16,
    phase: Phase,
    board: Scoreboard,
    window: Window,
    rto: Rto,
    /// Expiry of the retransmission timer.
    deadline: Option<Instant>,
    /// Instant at which transmissions delayed by `overhead` go out.
    gate: Option<Instant>,
    /// Segment being timed, and the instant of its transmission.
    timed: Option<(u32, Instant)>,
    dup_acks: u32,
    /// SND.MAX at the last loss event: `recover` of RFC 6582, RecoveryPoint of RFC 6675. `None` before the
    /// first.
    recover: Option<u32>,
    /// SND.MAX at the last window cut of any kind: a single reaction per window (RFC 3168, section 6.1.2).
    reduced_at: Option<u32>,
    /// Segment to retransmit at once, whatever the window.
    urgent: Option<u32>,
    /// Segments allowed by [`super::Reduction::Proportional`], in recovery.
    prr: Prr,
    /// With [`Config::rack`].
    rack: Rack,
    /// The estimated pipe of [`SackPipe::Estimate`], in recovery.
    estimate: u32,
    /// Whether this recovery has had a partial acknowledgement, or a rescue retransmission (RFC 6675,
    /// `NextSeg` 4).
    partial_seen: bool,
    rescued: bool,
    /// Whether the next new segment says that the window was cut (CWR).
    cwr_due: bool,
    counters: SenderCounters,
}

impl Sender {
    /// A sender of `data`. `stream` is drawn from only if [`Config::overhead`] is not zero. The configuration
    /// must have passed [`Config::check`].
    pub fn new(config: Config, data: Data, stream: Stream) -> Self {
        let (total, last_payload) = segments_of(data, config.segment_bytes);
        Self {
            stream,
            total,
            last_payload,
            phase: Phase::Idle,
            board: Scoreboard::default(),
            window: Window::new(&config),
            rto: Rto::new(&config),
            deadline: None,
            gate: None,
            timed: None,
            dup_acks: 0,
            recover: None,
            reduced_at: None,
            urgent: None,
            prr: Prr::default(),
            rack: Rack::default(),
            estimate: 0,
            partial_seen: false,
            rescued: false,
            cwr_due: false,
            counters: SenderCounters::default(),
            config,
        }
    }

    /// Opens the connection.
    pub fn start(&mut self, _now: Instant) {
        if self.phase == Phase::Idle {
            self.phase = if self.config.syn_exchange { Phase::Opening { due: true } } else { Phase::Open };
            self.finish_if_done();
        }
    }

    /// Handles a segment from the sink. An acknowledgement of a segment never sent is ignored (RFC 793,
    /// section 3.9).
    pub fn receive(&mut self, now: Instant, segment: &Segment) {
        if !segment.acknowledges || segment.ack > self.board.end() {
            return;
        }
        match self.phase {
            Phase::Idle | Phase::Finished => {}
            Phase::Opening { .. } if segment.syn => self.open(now),
            Phase::Opening { .. } => {}
            Phase::Open | Phase::Recovery | Phase::Loss if segment.syn => {}
            Phase::Open | Phase::Recovery | Phase::Loss => self.receive_ack(now, segment),
        }
    }

    /// Handles a timeout: the instant of [`Sender::next_timeout`] has come.
    pub fn timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            match self.phase {
                Phase::Opening { .. } => self.syn_timed_out(now),
                Phase::Open | Phase::Recovery | Phase::Loss => self.data_timed_out(now),
                Phase::Idle | Phase::Finished => self.deadline = None,
            }
        }
        self.rack_timeout(now);
    }

    /// Instant at which to call [`Sender::timeout`] if nothing arrives before; `None` for never.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.gate).chain(self.next_rack_timeout()).min()
    }

    /// The next segment to send now, or `None` when all are out.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let Some(choice) = self.choose() else {
            self.gate = None;
            return None;
        };
        if self.config.overhead > Duration::ZERO {
            let opens = match self.gate {
                Some(opens) => opens,
                None => *self.gate.insert(now + uniform_duration(&mut self.stream, self.config.overhead)),
            };
            if opens > now {
                return None;
            }
        }
        Some(match choice {
            Choice::Syn => self.send_syn(now),
            Choice::New => self.send_new(now),
            Choice::Again(sequence) => self.send_again(now, sequence),
            Choice::Rescue(sequence) => {
                self.rescued = true;
                self.send_again(now, sequence)
            }
        })
    }

    /// Whether all is acknowledged.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// The congestion window in segments.
    pub fn cwnd(&self) -> f64 {
        self.window.cwnd()
    }

    /// The slow-start threshold in segments, infinite before the first cut.
    pub fn ssthresh(&self) -> f64 {
        self.window.ssthresh()
    }

    /// Segments sent and not acknowledged cumulatively.
    pub fn outstanding(&self) -> u32 {
        self.board.outstanding()
    }

    /// Segments thought to be in the network.
    pub fn pipe(&self) -> u32 {
        if self.phase == Phase::Recovery && self.estimates_pipe() { self.estimate } else { self.board.pipe() }
    }

    /// Counters of the sender.
    pub fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Configuration of the connection.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The SYN was answered.
    fn open(&mut self, now: Instant) {
        self.phase = Phase::Open;
        self.deadline = None;
        if let Some((_, sent_at)) = self.timed.take() {
            self.sample_rtt(now.since(sent_at));
        } else {
            self.rto.restart_after_lost_syn();
            self.window.start_from_one();
        }
        self.finish_if_done();
    }

    fn syn_timed_out(&mut self, now: Instant) {
        self.counters.timeouts += 1;
        self.rto.back_off();
        self.timed = None;
        self.deadline = Some(now + self.rto.current());
        self.phase = Phase::Opening { due: true };
    }

    fn send_syn(&mut self, now: Instant) -> Transmit {
        if self.deadline.is_none() {
            self.timed = Some((0, now));
            self.arm(now);
        }
        self.phase = Phase::Opening { due: false };
        Transmit { segment: Segment { syn: true, ..Segment::default() }, ecn: Ecn::NotCapable }
    }

    fn send_new(&mut self, now: Instant) -> Transmit {
        let sequence = self.board.end();
        self.board.send_new(now);
        self.estimate += 1;
        if self.config.rtt_sampling == RttSampling::OneAtATime && self.timed.is_none() {
            self.timed = Some((sequence, now));
        }
        let cwr = core::mem::take(&mut self.cwr_due);
        // Retransmissions are not ECN-capable (RFC 3168, section 6.1.5).
        let ecn = if self.config.ecn { Ecn::Capable0 } else { Ecn::NotCapable };
        Transmit { segment: Segment { cwr, ..self.data(now, sequence) }, ecn }
    }

    fn send_again(&mut self, now: Instant, sequence: u32) -> Transmit {
        if self.urgent.take().is_none() {
            self.estimate += 1;
        }
        self.board.resend(sequence, now);
        if self.detects_by_time() && sequence == self.board.una() {
            // A retransmission that was lost is detected within a round trip; the timer must not come first.
            self.arm(now);
        }
        self.timed = None;
        self.counters.segments_retransmitted += 1;
        Transmit { segment: self.data(now, sequence), ecn: Ecn::NotCapable }
    }

    /// A data segment that goes out now: counted, and guarded by the timer (RFC 6298, section 5.1).
    fn data(&mut self, now: Instant, sequence: u32) -> Segment {
        let payload_bytes = self.payload_bytes(sequence);
        self.prr.sent();
        self.counters.segments_sent += 1;
        self.counters.payload_bytes_sent += u64::from(payload_bytes);
        if self.deadline.is_none() {
            self.arm(now);
        }
        if self.detects_by_time() {
            self.rack.is_probe_due = false;
            self.schedule_probe(now);
        }
        Segment { sequence, payload_bytes, ..Segment::default() }
    }

    fn payload_bytes(&self, sequence: u32) -> u16 {
        if sequence + 1 == self.total { self.last_payload } else { self.config.segment_bytes }
    }

    fn arm(&mut self, now: Instant) {
        self.deadline = Some(now + self.rto.current());
    }

    fn sample_rtt(&mut self, rtt: Duration) {
        self.rto.sample(rtt);
        self.counters.rtt_samples += 1;
        self.counters.rtt_sum = self.counters.rtt_sum + rtt;
    }

    fn finish_if_done(&mut self) {
        if self.phase == Phase::Open && self.board.una() == self.total {
            self.phase = Phase::Finished;
            self.deadline = None;
            self.rack = Rack::default();
        }
    }

    fn uses_scoreboard(&self) -> bool {
        self.config.variant == Variant::Sack && self.config.sack_pipe == SackPipe::Scoreboard
    }

    fn detects_by_time(&self) -> bool {
        self.config.rack && self.uses_scoreboard()
    }

    fn reduces_in_proportion(&self) -> bool {
        self.uses_scoreboard() && self.config.reduction == Reduction::Proportional
    }

    fn estimates_pipe(&self) -> bool {
        self.config.variant == Variant::Sack && self.config.sack_pipe == SackPipe::Estimate
    }
}

/// Segments that `data` takes, and the payload of the last. Numbers are 32 bits: a greedy source ends after
/// 2^32 - 1 segments, which at 1000 bytes is an hour at 9.5 Gbit/s.
fn segments_of(data: Data, segment_bytes: u16) -> (u32, u16) {
    let full = u64::from(segment_bytes);
    match data {
        Data::Greedy => (u32::MAX, segment_bytes),
        Data::Segments(count) => (count, segment_bytes),
        Data::Bytes(bytes) => {
            let count = bytes.div_ceil(full);
            let last = bytes - count.saturating_sub(1) * full;
            (u32::try_from(count).unwrap_or(u32::MAX), u16::try_from(last).unwrap_or(segment_bytes))
        }
    }
}
