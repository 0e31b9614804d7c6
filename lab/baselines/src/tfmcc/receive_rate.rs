//! Receive rate, over two to four round trips (RFC 4654, section 4.3).

use headwater_proto::time::{Duration, Instant};

/// Length of a window, in round trips.
const ROUND_TRIPS: f64 = 2.0;

/// Current window, and the previous window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveRate {
    /// Bytes of the previous window, and its duration in seconds.
    before: (f64, f64),
    began: Option<Instant>,
    bytes: f64,
}

impl ReceiveRate {
    /// Counts a packet. The first packet only starts the window, because its interval is unknown.
    pub fn record(&mut self, now: Instant, bytes: f64, rtt: f64) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let took = now.since(began).as_secs_f64();
        if took >= ROUND_TRIPS * rtt {
            // The window ends with the packet that completes the duration.
            self.before = (self.bytes + bytes, took);
            (self.began, self.bytes) = (Some(now), 0.0);
        } else {
            self.bytes += bytes;
        }
    }

    /// Returns bytes per second; `None` before the second packet.
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let took = now.since(self.began?).as_secs_f64() + self.before.1;
        let bytes = self.bytes + self.before.0;
        (bytes > 0.0 && took >= Duration::from_micros(1).as_secs_f64()).then(|| bytes / took)
    }
}
