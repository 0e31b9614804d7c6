//! Loss events of a receiver (RFC 4654, section 5).

use headwater_proto::measure::{Holes, LossIntervals};
use headwater_proto::time::{Duration, Instant};

/// More events than this of losses in a row tell no more: eight intervals count.
const EVENTS_MAX: f64 = 16.0;
/// Intervals that count.
const INTERVALS: u64 = 8;

/// What a packet finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Round-trip time in seconds.
    pub rtt: f64,
    /// Seconds from packet to packet.
    pub spacing: f64,
    /// Packets of the interval before the first loss event: at which the equation gives what is received now.
    pub first_interval: f64,
}

/// Holes, and the intervals between loss events.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    holes: Holes,
    intervals: LossIntervals,
    /// When the last event began.
    began: Option<Instant>,
    events: u64,
    lost: u64,
}

impl Losses {
    /// A packet arrived; whether it is the first with its number. A hole counts when three later packets are
    /// there, and as if lost then: that is equally late for all.
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
        // Lost one after the other, the last one now.
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

    /// The interval before the first event is `factor` times as long as [`Path::first_interval`] said: if it
    /// still counts, that is mended.
    pub fn rescale_first(&mut self, factor: f64) {
        if (1..=INTERVALS).contains(&self.events) {
            self.intervals.rescale_oldest(factor);
        }
    }

    /// Loss events per packet; `None` before the first.
    pub fn rate(&self) -> Option<f64> {
        self.intervals.rate()
    }

    /// Packets lost.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Loss events.
    pub const fn events(&self) -> u64 {
        self.events
    }
}
