//! Time of a session on a receiver's clock, by the lateness that packets tell.
//!
//! A sender whose machine is busy lets the schedule slip. In the session's time each packet arrives as if
//! the sender had been punctual: a sender that is away looks neither like a queue nor like an overload.

use headwater_wire::extensions::Lateness;

use crate::layering::clock::{shifted, unshifted};
use crate::time::{Duration, Instant};

/// Lateness that packets tell repeats after this time.
const CYCLE: u64 = (Lateness::MICROS_MAX as u64 + 1) * 1_000;
/// Time by which the lag of a sender may fall from packet to packet, or grow beyond the time between the
/// packets: packets of slow channels wait for each other, and networks reorder.
const SLACK: Duration = Duration::from_secs(1);

/// Lag of the sender behind the schedule.
#[derive(Clone, Copy, Debug)]
pub(in crate::m2c) struct SessionTime {
    /// Lag of the last packet.
    lag: Duration,
    /// Arrival of the last packet.
    last: Instant,
    /// Latest time of the session at a packet: packets of several channels that leave together may change
    /// places, and the time does not go back.
    latest: Instant,
}

impl SessionTime {
    /// Starts with a packet that arrives at `now` and left `lateness` after the scheduled time.
    pub(in crate::m2c) fn new(now: Instant, lateness: Duration) -> Self {
        Self { lag: lateness, last: now, latest: shifted(now) - lateness }
    }

    /// Returns the session's time at `now`.
    pub(in crate::m2c) fn at(&self, now: Instant) -> Instant {
        self.latest.max(shifted(now) - self.lag)
    }

    /// Returns the driver's time at an instant of the session's time.
    pub(in crate::m2c) fn real(&self, at: Instant) -> Instant {
        unshifted(at + self.lag)
    }

    /// Returns the lag of a packet that arrives at `now`; `None` if no sender makes such a step. A sender
    /// that is away is late by no more than the time away.
    pub(in crate::m2c) fn lag_of(&self, now: Instant, lateness: Duration) -> Option<Duration> {
        let (known, told) = (self.lag.as_nanos(), lateness.as_nanos() % CYCLE);
        let ahead = (told + CYCLE - known % CYCLE) % CYCLE;
        let (growth, fall) = (Duration::from_nanos(ahead), Duration::from_nanos(CYCLE - ahead));
        if growth <= now.since(self.last) + SLACK {
            Some(self.lag + growth)
        } else if fall <= SLACK && fall <= self.lag {
            Some(Duration::from_nanos(known - fall.as_nanos()))
        } else {
            None
        }
    }

    /// Records the lag of a plausible packet.
    pub(in crate::m2c) fn record(&mut self, now: Instant, lag: Duration) {
        (self.lag, self.last) = (lag, now);
        self.latest = self.latest.max(shifted(now) - lag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_lag_grows_by_the_time_away_at_most() {
        let time = SessionTime::new(at(0), ms(300));
        assert_eq!(time.lag_of(at(10), ms(310)), Some(ms(310)));
        assert_eq!(time.lag_of(at(5_000), ms(5_200)), Some(ms(5_200)));
        assert_eq!(time.lag_of(at(10), ms(1_400)), None);
        assert_eq!(time.lag_of(at(10), ms(0)), Some(ms(0)));
        assert_eq!(SessionTime::new(at(0), ms(3_000)).lag_of(at(10), ms(1_500)), None);
    }

    #[test]
    fn lateness_goes_round() {
        let cycle = Duration::from_nanos(CYCLE);
        let before = Duration::from_nanos(CYCLE - 20_000_000);
        let time = SessionTime::new(at(0), before);
        assert_eq!(time.lag_of(at(30), ms(10)), Some(cycle + ms(10)));
        let later = SessionTime::new(at(0), cycle + ms(10));
        assert_eq!(later.lag_of(at(1), before), Some(before), "packets change places");
    }

    #[test]
    fn a_punctual_packet_arrives_at_the_same_time_of_the_session() {
        let mut time = SessionTime::new(at(100), ms(0));
        let before = time.at(at(100));
        time.record(at(150), time.lag_of(at(150), ms(50)).unwrap());
        assert_eq!(time.at(at(150)), before);
        assert_eq!(time.real(time.at(at(150))), at(150));
    }
}
