//! The start, with doubling of the rate before any feedback: speed of the doubling, and effect of a loss that
//! is reported late.
//!
//! Feedback about losses alone does not distinguish silence from success. A receiver that never sent a packet
//! may need seconds until the first NAK is out: the receiver's host must resolve the path to the source (ARP,
//! neighbour discovery), and the answer passes the queue, which is full by then. So the rate doubles no
//! faster than a heard receiver can answer. While no receiver has been heard, the rate doubles slowly or not
//! at all. A loss counts for the rate at which the lost packet was sent, however late the report.

use super::config::Config;
use super::round_trip::RoundTrip;
use crate::time::{Duration, Instant};

/// Maximum answer time that gives the distance of a receiver. A longer answer comes from a receiver that
/// heard a later packet first, or sends a repeated SPMR.
const ANSWER_MAX: Duration = Duration::from_millis(600);
/// Maximum number of rates remembered, 16 bytes each: 50 doublings in steps of a fifth, more than possible.
const RATES_MAX: usize = 256;
/// Maximum delay of the report of a loss at the start: hosts try three times to resolve the path, a second
/// apart, and start again once or twice.
const MEMORY: Duration = Duration::from_secs(10);

/// Rates of the start. Nothing is stored while the rate does not double.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    /// Rates in bytes per second, with the time since which each rate holds; each rate is higher than the
    /// previous rate.
    rates: Vec<(Instant, f64)>,
    /// Time since which the rate was at a level with known losses. Setting this time ends the start.
    end: Option<Instant>,
    /// Whether a receiver was heard.
    is_heard: bool,
}

impl Start {
    /// Records that the rate is `rate` from `now` on.
    pub(super) fn rate(&mut self, now: Instant, rate: f64) {
        let is_higher = self.rates.last().is_none_or(|(_, last)| rate > *last);
        if self.end.is_none() && is_higher && self.rates.len() < RATES_MAX {
            self.rates.push((now, rate));
        }
    }

    /// Records a receiver's answer to the first packet. Returns the answer time that applies to the
    /// round-trip time, if any.
    pub(super) fn heard(&mut self, answer: Duration) -> Option<Duration> {
        let is_first = !core::mem::replace(&mut self.is_heard, true);
        (is_first || answer <= ANSWER_MAX).then(|| answer.min(ANSWER_MAX))
    }

    /// Returns the growth factor of the rate per SRTT + 2 sigma: up to 2.
    pub(super) fn growth(&self, config: &Config, rtt: &RoundTrip) -> f64 {
        match config.blind_doubling {
            _ if self.is_heard => 2.0,
            Some(least) => libm::exp2((rtt.spacing() / least.as_secs_f64()).min(1.0)),
            None => 1.0,
        }
    }

    /// Handles a loss of a packet sent at `sent`. Returns the rate at `sent`, unless a loss at the same or a
    /// lower rate was already reported.
    pub(super) fn lost(&mut self, now: Instant, sent: Instant) -> Option<f64> {
        if now.since(sent) > MEMORY || self.end.is_some_and(|end| sent >= end) {
            return None;
        }
        let place = self.rates.partition_point(|(since, _)| *since <= sent).checked_sub(1)?;
        let (since, rate) = self.rates[place];
        self.rates.truncate(place);
        self.end = Some(since);
        Some(rate)
    }
}
