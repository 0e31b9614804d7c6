//! The rate at which bytes come, over two to four round trips (RFC 4654, section 4.3).

use headwater_proto::time::{Duration, Instant};

/// Round trips of a window.
const ROUND_TRIPS: f64 = 2.0;

/// A window that is being filled, and the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveRate {
    /// Bytes of the window before and how long it took in seconds.
    before: (f64, f64),
    began: Option<Instant>,
    bytes: f64,
}

impl ReceiveRate {
    /// A packet came. The first one begins: what it took to come is not known.
    pub fn record(&mut self, now: Instant, bytes: f64, rtt: f64) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let took = now.since(began).as_secs_f64();
        if took >= ROUND_TRIPS * rtt {
            // The window ends with the packet that shows it.
            self.before = (self.bytes + bytes, took);
            (self.began, self.bytes) = (Some(now), 0.0);
        } else {
            self.bytes += bytes;
        }
    }

    /// Bytes per second; `None` before the second packet.
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let took = now.since(self.began?).as_secs_f64() + self.before.1;
        let bytes = self.bytes + self.before.0;
        (bytes > 0.0 && took >= Duration::from_micros(1).as_secs_f64()).then(|| bytes / took)
    }
}
