//! Overload of a path by the subscribed levels: most of what the schedule sends does not arrive.
//!
//! A wave decays by 13 % in five seconds. A receiver that only waits for the decay meanwhile drops most
//! packets of everything that shares its bottleneck, so it leaves levels at once.

use crate::time::{Duration, Instant};

/// Minimum part of packets that arrives in a window without overload. AIMD and waves alone never lose more
/// for long.
const SOUND: f64 = 0.7;
/// Minimum number of packets due in a window.
const DUE: f64 = 24.0;
/// Bounds of the length of a window in seconds. Between the bounds, a window lasts a round-trip time.
const WINDOW: (f64, f64) = (0.1, 1.0);
/// Time for which arrivals are short before levels are left although few losses are known.
const SHORT: f64 = 1.0;
/// Time in order after which the next overload is judged as soon as the first.
const ORDER: f64 = 5.0;
/// First and longest pause after levels were left, in seconds. Until routers stop forwarding the left levels,
/// their packets displace packets of subscribed levels.
const PAUSE: (f64, f64) = (1.0, 4.0);

/// Detector of overload by the levels of a receiver: a window of arrivals, and the results of the last
/// windows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overload {
    since: Option<Instant>,
    last: Instant,
    /// Packets due by the schedule, arrived, lost.
    due: f64,
    came: f64,
    lost: f64,
    /// Whether the last window was lossy, and for how many seconds on end windows were short.
    lossy: bool,
    short: f64,
    /// End of the pause, next length of a pause in seconds, and end of the last lossy or short window.
    until: Instant,
    pause: f64,
    disordered: Instant,
    /// Levels left.
    count: u64,
}

impl Overload {
    /// Records a packet that revealed `lost` losses, at a level of `rate` packets per second. Returns the
    /// rate of arrival, if far below the subscribed rate.
    pub fn record(&mut self, now: Instant, lost: u64, rate: f64, rtt: f64) -> Option<f64> {
        let length = rtt.clamp(WINDOW.0, WINDOW.1);
        let gap = now.since(self.last).as_secs_f64();
        self.last = now;
        let Some(since) = self.since.filter(|_| now >= self.until && gap <= length.max(DUE / rate)) else {
            self.begin(now);
            (self.lossy, self.short) = (false, 0.0);
            return None;
        };
        self.due += gap * rate;
        self.came += 1.0;
        #[expect(clippy::cast_precision_loss, reason = "below 2^53 packets")]
        let losses = lost as f64;
        self.lost += losses;
        let time = now.since(since).as_secs_f64();
        if time < length || self.due < DUE {
            return None;
        }
        let came = self.came / time;
        let is_over = self.judge(now, time);
        self.begin(now);
        is_over.then_some(came)
    }

    /// Number of levels left by overload.
    pub fn levels_left(&self) -> u64 {
        self.count
    }

    /// Records that levels were left: the next overload is judged after a pause.
    pub fn relieve(&mut self, now: Instant, levels: u64) {
        self.count += levels;
        self.until = now + Duration::from_secs_f64(self.pause.max(PAUSE.0));
        self.pause = (2.0 * self.pause).clamp(2.0 * PAUSE.0, PAUSE.1);
        (self.lossy, self.short) = (false, 0.0);
    }

    fn judge(&mut self, now: Instant, time: f64) -> bool {
        let is_lossy = self.came < SOUND * (self.came + self.lost);
        let is_short = self.came < SOUND * self.due;
        self.short = if is_short { self.short + time } else { 0.0 };
        if is_lossy || is_short {
            self.disordered = now;
        } else if now.since(self.disordered).as_secs_f64() >= ORDER {
            self.pause = PAUSE.0;
        }
        let before = core::mem::replace(&mut self.lossy, is_lossy);
        (before && is_lossy && is_short) || self.short >= SHORT
    }

    fn begin(&mut self, now: Instant) {
        (self.since, self.due, self.came, self.lost) = (Some(now), 0.0, 0.0, 0.0);
    }
}
