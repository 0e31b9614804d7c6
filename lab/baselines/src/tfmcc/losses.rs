//! Loss events of a receiver (RFC 4654, section 5).

use headwater_proto::measure::{Holes, LossIntervals};
use headwater_proto::time::{Duration, Instant};

/// Maximum number of events in a run of losses; more events would not change the eight intervals.
const EVENTS_MAX: f64 = 16.0;
/// Number of intervals in the mean.
const INTERVALS: u64 = 8;

/// State of the path at a packet's arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Round-trip time in seconds.
    pub rtt: f64,
    /// Seconds between packets.
    pub spacing: f64,
    /// Length of the interval before the first loss event, in packets: the length at which the equation gives
    /// the current receive rate.
    pub first_interval: f64,
}

/// Holes, and the intervals between loss events.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    holes: Holes,
    intervals: LossIntervals,
    /// Start of the last event.
    began: Option<Instant>,
    events: u64,
    lost: u64,
}

impl Losses {
    /// Processes a packet; returns whether it is not a duplicate. A hole counts as a loss once three later
    /// packets have arrived, and as lost at that time: the delay is equal for all holes.
    pub fn arrived(&mut self, now: Instant, sequence: u16, path: &Path) -> bool {
        let found = self.holes.record(sequence);
        if found.lost > 0 {
            self.lose(now, found.lost, path);
        }
        self.intervals.advance(u64::from(found.is_new));
        found.is_new
    }

    fn lose(&mut self, now: Instant, lost: u64, path: &Path) {
        self.lost += lost;
        let per_event = libm::floor(path.rtt / path.spacing) + 1.0;
        #[expect(clippy::cast_precision_loss, reason = "below 2^16")]
        let mut left = (lost as f64).min(per_event * EVENTS_MAX);
        // The losses follow each other at the packet spacing, the last loss now.
        let mut at = now - Duration::from_secs_f64((left - 1.0) * path.spacing);
        while left > 0.0 {
            let mut since = self.began.map(|began| at.since(began).as_secs_f64());
            if since.is_none_or(|since| since > path.rtt) {
                self.begin(at, path);
                since = None;
            }
            let rest = path.rtt - since.unwrap_or(0.0);
            let within = (libm::floor(rest / path.spacing) + 1.0).min(left);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 2^16")]
            self.intervals.advance(within as u64);
            at += Duration::from_secs_f64(within * path.spacing);
            left -= within;
        }
    }

    fn begin(&mut self, at: Instant, path: &Path) {
        match self.events {
            0 => self.intervals.reset(path.first_interval),
            _ => self.intervals.event(),
        }
        self.events += 1;
        self.began = Some(at);
    }

    /// Multiplies the interval before the first event by `factor`, if that interval still counts, after a
    /// correction of [`Path::first_interval`].
    pub fn rescale_first(&mut self, factor: f64) {
        if (1..=INTERVALS).contains(&self.events) {
            self.intervals.rescale_oldest(factor);
        }
    }

    /// Returns loss events per packet; `None` before the first event.
    pub fn rate(&self) -> Option<f64> {
        self.intervals.rate()
    }

    /// Returns the number of packets lost.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of loss events.
    pub const fn events(&self) -> u64 {
        self.events
    }
}
