//! Round-trip time at a receiver (RFC 4654, section 4.3).

use crate::stamp::{clock_us, since_us};
use headwater_proto::time::Instant;

/// Weight of the old mean at a measurement: for the CLR, which measures every round trip, and for other
/// receivers.
const KEPT_CLR: f64 = 0.9;
const KEPT: f64 = 0.5;
/// Weight of the old mean at a packet that shows only the one-way delay.
const KEPT_ONE_WAY: f64 = 0.95;
/// Limits of a round-trip time, in seconds.
const LEAST: f64 = 1e-4;
const MOST: f64 = 60.0;

/// Mean of the round-trip times from echoes, adjusted by changes of the one-way delay between echoes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    mean: Option<f64>,
    /// `D_r`: offset of the sender's clock plus the delay to the sender, in microseconds.
    back_us: u32,
}

impl RoundTrip {
    /// Returns the mean in seconds; `None` before the first measurement.
    pub const fn mean(&self) -> Option<f64> {
        self.mean
    }

    /// Processes an echo: a packet sent at `sent_us` of the sender's clock answers a report of `asked_us` of
    /// the receiver's clock, corrected for the time at the sender. Returns whether this is the first
    /// measurement.
    pub fn measure(&mut self, now: Instant, sent_us: u32, asked_us: u32, is_clr: bool) -> bool {
        let sample = seconds(since_us(now, asked_us));
        self.back_us = sent_us.wrapping_sub(asked_us);
        let kept = if is_clr { KEPT_CLR } else { KEPT };
        let is_first = self.mean.is_none();
        self.mean = Some(self.mean.map_or(sample, |mean| kept * mean + (1.0 - kept) * sample));
        is_first
    }

    /// Adjusts the mean for a packet without an echo, by the change of the one-way delay since the last echo.
    pub fn one_way(&mut self, now: Instant, sent_us: u32) {
        let sample = seconds(clock_us(now).wrapping_sub(sent_us).wrapping_add(self.back_us).cast_signed());
        if let Some(mean) = &mut self.mean {
            *mean = KEPT_ONE_WAY * *mean + (1.0 - KEPT_ONE_WAY) * sample;
        }
    }
}

fn seconds(micros: i32) -> f64 {
    // Negative only if the packet was forged, or a clock stepped.
    (f64::from(micros) / 1e6).clamp(LEAST, MOST)
}
