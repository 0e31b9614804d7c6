//! Loss detection by time: RACK with tail loss probes (RFC 8985).
//!
//! A segment is lost if a segment sent later was delivered and a reordering window has passed, whether the
//! segment was sent for the first time or again. If nothing is reported for two round-trip times, a probe
//! asks for a report. Paths do not reorder unless a plan says so: the reordering window does not adapt.

use headwater_proto::{Duration, Instant};

use super::super::DUP_THRESH;
use super::{Phase, Sender};

/// Addition to the probe's timer if a single segment is outstanding, for the sink's delayed acknowledgement
/// (RFC 8985, section 7.2: `TLP.max_ack_delay`).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);

/// State of the detection.
#[derive(Clone, Debug, Default)]
pub(super) struct Rack {
    /// Transmission and number of the segment sent last among the delivered segments: `RACK.xmit_ts`,
    /// `RACK.end_seq`.
    newest: Option<(Instant, u32)>,
    /// Round-trip time of that segment: `RACK.rtt`.
    rtt: Duration,
    /// Expiry of the reordering window of segments that were overtaken.
    pub(super) deadline: Option<Instant>,
    /// Expiry of the probe's timer: PTO.
    pub(super) probe_at: Option<Instant>,
    /// Whether a probe is to be sent now.
    pub(super) is_probe_due: bool,
    /// SND.NXT at the last probe: no further probe before this is acknowledged (`TLP.end_seq`).
    probed: Option<u32>,
}

impl Sender {
    /// Earliest of the timers of this file.
    pub(super) fn next_rack_timeout(&self) -> Option<Instant> {
        self.rack.deadline.into_iter().chain(self.rack.probe_at).min()
    }

    /// Handles expiries of the timers of this file.
    pub(super) fn rack_timeout(&mut self, now: Instant) {
        if self.rack.deadline.is_some_and(|deadline| deadline <= now) {
            self.detect_losses(now, true);
            if self.phase == Phase::Recovery {
                self.prr.acknowledged(0, self.board.pipe(), self.window.ssthresh());
            }
        }
        if self.rack.probe_at.is_some_and(|probe_at| probe_at <= now) {
            self.rack.probe_at = None;
            if self.phase == Phase::Open && self.board.outstanding() > 0 {
                self.counters.probes += 1;
                self.rack.is_probe_due = true;
                self.rack.probed = Some(self.board.end());
                self.arm(now);
            }
        }
    }

    /// Takes segments for lost that were overtaken; begins recovery if necessary. `is_sampled` is set if the
    /// acknowledgement has measured the round-trip time already.
    pub(super) fn detect_losses(&mut self, now: Instant, is_sampled: bool) {
        let least = self.rto.least().unwrap_or(Duration::ZERO);
        for (sent, is_again) in self.board.take_delivered() {
            // The acknowledgement may be of an earlier transmission (section 6.2, step 2).
            let is_certain = !is_again || now.since(sent.0) >= least;
            if !is_again && !is_sampled {
                // As in Linux, selective acknowledgements measure, too: a queue grows during recovery.
                self.sample_rtt(now.since(sent.0));
            }
            if is_certain && self.rack.newest.is_none_or(|newest| newest < sent) {
                self.rack.newest = Some(sent);
                self.rack.rtt = now.since(sent.0);
            }
        }
        let Some(newest) = self.rack.newest else { return };
        let patience = self.rack.rtt + self.reordering_window(least);
        let (lost, remaining) = self.board.take_overtaken(newest, now, patience);
        self.rack.deadline = remaining.map(|remaining| now + remaining);
        if lost && self.phase == Phase::Open && !self.repeats_barred() {
            self.begin_recovery(now);
        }
    }

    /// `RACK_update_reo_wnd`: none in recovery, or once three segments were selectively acknowledged.
    fn reordering_window(&self, least: Duration) -> Duration {
        if self.phase != Phase::Open || self.board.sacked() >= DUP_THRESH {
            return Duration::ZERO;
        }
        let quarter = Duration::from_nanos(least.as_nanos() / 4);
        quarter.min(self.rto.smoothed().unwrap_or(quarter))
    }

    /// Starts the probe's timer (section 7.2), unless losses are suspected or the last probe is outstanding.
    pub(super) fn schedule_probe(&mut self, now: Instant) {
        self.rack.probe_at = None;
        let is_probed = self.rack.probed.is_some_and(|probed| self.board.una() < probed);
        let outstanding = self.board.outstanding();
        if self.phase != Phase::Open || outstanding == 0 || self.board.sacked() > 0 || is_probed {
            return;
        }
        let Some(srtt) = self.rto.smoothed() else { return };
        let delay = if outstanding == 1 { ACK_DELAY_MAX } else { Duration::ZERO };
        let at = now + srtt.saturating_mul(2) + delay;
        self.rack.probe_at = Some(at).filter(|at| self.deadline.is_none_or(|deadline| *at < deadline));
    }
}
