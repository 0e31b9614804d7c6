//! The start, in which the rate doubles before anything is known: how fast, and what a loss says of it that
//! is told late.
//!
//! Who only hears of losses cannot tell silence from success. A receiver that never sent anything may need
//! seconds until its first NAK is out: its host asks for the way to the source (ARP, neighbour discovery),
//! and the answer has to pass the queue that is full by then. So the rate doubles no faster than a receiver
//! that was heard can answer, slowly or not at all while none was, and a loss counts for the rate at which
//! its packet was sent, however late it is told.

use super::config::Config;
use super::round_trip::RoundTrip;
use crate::time::{Duration, Instant};

/// Longest answer that tells how far away a receiver is. A longer one is of a receiver that heard a later
/// packet first, or greets again.
const ANSWER_MAX: Duration = Duration::from_millis(600);
/// Rates remembered, 16 bytes each: 50 doublings in steps of a fifth, which is more than there are.
const RATES_MAX: usize = 256;
/// How late a loss of the start may be told: hosts ask three times for the way, a second apart, and begin
/// anew once or twice.
const MEMORY: Duration = Duration::from_secs(10);

/// Rates of the start. Nothing is kept where the rate does not double.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    /// Bytes per second, and since when; each higher than the one before.
    rates: Vec<(Instant, f64)>,
    /// Since when the rate was one at which, by what was told so far, packets were lost. It ended the start.
    end: Option<Instant>,
    /// A receiver was heard.
    is_heard: bool,
}

impl Start {
    /// The rate is `rate` from `now` on.
    pub(super) fn rate(&mut self, now: Instant, rate: f64) {
        let is_higher = self.rates.last().is_none_or(|(_, last)| rate > *last);
        if self.end.is_none() && is_higher && self.rates.len() < RATES_MAX {
            self.rates.push((now, rate));
        }
    }

    /// A receiver answered the first packet after so long: what that tells of the round trip, if anything.
    pub(super) fn heard(&mut self, answer: Duration) -> Option<Duration> {
        let is_first = !core::mem::replace(&mut self.is_heard, true);
        (is_first || answer <= ANSWER_MAX).then(|| answer.min(ANSWER_MAX))
    }

    /// By how much the rate may grow each SRTT + 2 sigma: up to 2.
    pub(super) fn growth(&self, config: &Config, rtt: &RoundTrip) -> f64 {
        match config.blind_doubling {
            _ if self.is_heard => 2.0,
            Some(least) => libm::exp2((rtt.spacing() / least.as_secs_f64()).min(1.0)),
            None => 1.0,
        }
    }

    /// A packet sent at `sent` was lost: the rate of that time, unless a loss at this rate or a lower one was
    /// told before.
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
