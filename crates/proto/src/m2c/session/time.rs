//! Time of a session on a receiver's clock, by the lateness that packets tell.
//!
//! A sender whose machine is busy lets the schedule slip. In the session's time each packet arrives as if
//! the sender had been punctual: a sender that is away looks neither like a queue nor like an overload.

use headwater_wire::extensions::Lateness;

use crate::layering::clock::{shifted, unshifted};
use crate::time::{Duration, Instant};

/// Lateness that packets tell repeats after this time.
const CYCLE: u64 = Lateness::CYCLE as u64 * 1_000;
/// Time by which the session's time may advance at a packet beyond the time since the packet before: a late
/// sender catches up for [`crate::pacing::BURST`], and packets of slow channels wait for each other.
const STEP: Duration = Duration::from_millis(50);

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
        let passed = self.latest + now.since(self.last);
        self.latest.max(passed.min(shifted(now) - self.lag))
    }

    /// Returns the driver's time at an instant of the session's time.
    pub(in crate::m2c) fn real(&self, at: Instant) -> Instant {
        unshifted(at + self.lag)
    }

    /// Returns the lag of a packet that tells `lateness`: of all lags that look so, the nearest to the last.
    pub(in crate::m2c) fn lag_of(&self, lateness: Duration) -> Duration {
        let known = self.lag.as_nanos();
        let ahead = (lateness.as_nanos() + CYCLE - known % CYCLE) % CYCLE;
        let back = CYCLE - ahead;
        Duration::from_nanos(if back < ahead && back <= known { known - back } else { known + ahead })
    }

    /// Records the lag of a plausible packet.
    pub(in crate::m2c) fn record(&mut self, now: Instant, lag: Duration) {
        let most = self.latest + now.since(self.last) + STEP;
        self.latest = self.latest.max(most.min(shifted(now) - lag));
        (self.lag, self.last) = (lag, now);
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
    fn lateness_goes_round() {
        let cycle = Duration::from_nanos(CYCLE);
        let before = Duration::from_nanos(CYCLE - 20_000_000);
        assert_eq!(SessionTime::new(at(0), before).lag_of(ms(10)), cycle + ms(10));
        let later = SessionTime::new(at(0), cycle + ms(10));
        assert_eq!(later.lag_of(before), before, "packets change places");
        assert_eq!(SessionTime::new(at(0), ms(0)).lag_of(before), before, "nothing is early");
    }

    #[test]
    fn a_punctual_packet_arrives_at_the_same_time_of_the_session() {
        let mut time = SessionTime::new(at(100), ms(0));
        let before = time.at(at(100));
        time.record(at(150), time.lag_of(ms(50)));
        assert_eq!(time.at(at(150)), before);
        assert_eq!(time.real(time.at(at(150))), at(150));
    }

    #[test]
    fn the_time_does_not_go_back_and_no_packet_moves_it_far_ahead() {
        let mut time = SessionTime::new(at(100), ms(3_000));
        let before = time.at(at(100));
        time.record(at(110), ms(3_400));
        assert_eq!(time.at(at(110)), before);
        time.record(at(120), ms(0));
        assert_eq!(time.at(at(120)), before + ms(10) + STEP);
        time.record(at(130), ms(3_000));
        assert!(time.at(at(130)) <= before + ms(20) + STEP);
    }
}
