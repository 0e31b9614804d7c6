//! A receiver's round-trip time (RFC 4654, section 4.3).

use crate::stamp::{clock_us, since_us};
use headwater_proto::time::Instant;

/// What is kept of the mean at a measurement: of the CLR, which measures each round trip, and of others.
const KEPT_CLR: f64 = 0.9;
const KEPT: f64 = 0.5;
/// What is kept at a packet that tells the one-way delay alone.
const KEPT_ONE_WAY: f64 = 0.95;
/// No round trip is taken for shorter, or longer, in seconds.
const LEAST: f64 = 1e-4;
const MOST: f64 = 60.0;

/// By echoes, and by how one-way delays change between them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    mean: Option<f64>,
    /// `D_r`: by how much the sender's clock is ahead of ours, and the way back. Microseconds.
    back_us: u32,
}

impl RoundTrip {
    /// In seconds; `None` before the first measurement.
    pub const fn mean(&self) -> Option<f64> {
        self.mean
    }

    /// A packet sent at `sent_us` of the sender's clock answers what left here at `asked_us` of ours, what it
    /// was held included. Whether it is the first such one.
    pub fn measure(&mut self, now: Instant, sent_us: u32, asked_us: u32, is_clr: bool) -> bool {
        let sample = seconds(since_us(now, asked_us));
        self.back_us = sent_us.wrapping_sub(asked_us);
        let kept = if is_clr { KEPT_CLR } else { KEPT };
        let is_first = self.mean.is_none();
        self.mean = Some(self.mean.map_or(sample, |mean| kept * mean + (1.0 - kept) * sample));
        is_first
    }

    /// Any other packet: the way here may take longer than when it was measured.
    pub fn one_way(&mut self, now: Instant, sent_us: u32) {
        let sample = seconds(clock_us(now).wrapping_sub(sent_us).wrapping_add(self.back_us).cast_signed());
        if let Some(mean) = &mut self.mean {
            *mean = KEPT_ONE_WAY * *mean + (1.0 - KEPT_ONE_WAY) * sample;
        }
    }
}

fn seconds(micros: i32) -> f64 {
    // What is negative was forged, or a clock stepped.
    (f64::from(micros) / 1e6).clamp(LEAST, MOST)
}
