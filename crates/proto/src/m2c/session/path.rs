//! Measurements of the path, and the estimate shown to people.

use super::Session;
use crate::control::{PathStatus, RateLimit};
use crate::measure::{JoinLatency, OneWayDelay, RateMeter};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Initial round-trip time without any measurement, in seconds.
pub(super) const RTT_INITIAL: f64 = 0.1;

/// Measurements of the path.
#[derive(Clone, Debug)]
pub(in crate::m2c) struct Path {
    pub(super) meter: RateMeter,
    pub(in crate::m2c) delay: OneWayDelay,
    pub(super) joins: JoinLatency,
    /// Configured round-trip time without queueing, and the minimum measured with the sender's answers.
    hint: Option<f64>,
    pub(in crate::m2c) asked: Option<f64>,
}

impl Path {
    pub(super) fn new(
        averaged: f64,
        joins: JoinLatency,
        (hint, asked): (Option<f64>, Option<f64>),
        now: Instant,
    ) -> Self {
        Self { meter: RateMeter::new(now), delay: OneWayDelay::new(averaged), joins, hint, asked }
    }

    /// `RTTc`: the floor plus the recent mean queueing delay, as seen by a TCP flow.
    pub(super) fn rtt(&self) -> f64 {
        let told = [self.hint, self.asked].into_iter().flatten().reduce(f64::min);
        let floor = self.joins.floor(told.unwrap_or(RTT_INITIAL));
        told.map_or(floor, |told| told.min(floor)) + self.delay.queueing_mean()
    }
}

impl Session {
    /// Returns the reason other than the path for which no further level may be joined.
    fn rate_limit(&self, now: Instant) -> Option<RateLimit> {
        let next = self.levels.count() + 1;
        if next > self.levels.top {
            return Some(RateLimit::Sender);
        }
        let is_host = self.rate_max() < self.limits.rate_max;
        let limit = if is_host { RateLimit::Host } else { RateLimit::Receiver };
        (self.rate_of(next, now) > self.rate_max()).then_some(limit)
    }

    /// Returns the estimate of the path, with packets of `packet_bytes`.
    pub(in crate::m2c) fn path_status(&self, now: Instant, packet_bytes: u16) -> Option<PathStatus> {
        let revised = self.revised.as_ref()?;
        let (chance, found) = (revised.chance.part(), revised.bottleneck.estimate());
        Some(PathStatus {
            is_alone: self.own_rate().is_some(),
            bottleneck: found
                .map(|found| found.rate)
                .or(revised.carried)
                .and_then(|rate| Rate::of_packets(rate, packet_bytes)),
            others: found.map(|found| found.others(chance)),
            queue_depth: Some(revised.bottleneck.depth())
                .filter(|depth| depth.is_finite())
                .map(Duration::from_secs_f64),
            chance,
            chance_losses: revised.chance.count,
            levels_left: revised.overload.levels_left(),
            limit: self.rate_limit(now),
        })
    }
}
