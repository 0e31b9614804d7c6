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
/// Lag added to all lags of a session, so that packets that left earlier than the first have one, too.
const SPARE: Duration = Duration::from_secs(1);
/// Longest time by which the time at a packet is behind the latest time: networks reorder, and packets of
/// slow channels wait for each other. An older packet is a replay, whatever lateness the packet tells.
const BEHIND: Duration = Duration::from_secs(1);

/// Lag of the sender behind the schedule.
#[derive(Clone, Copy, Debug)]
pub(in crate::m2c) struct SessionTime {
    /// Added to all lags; zero if packets tell no lateness.
    spare: Duration,
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
        let spare = if lateness > Duration::ZERO { SPARE } else { Duration::ZERO };
        let lag = lateness + spare;
        Self { spare, lag, last: now, latest: shifted(now) - lag }
    }

    /// Returns the session's time at `now`. After a silence, the next packet may set the time back.
    pub(in crate::m2c) fn at(&self, now: Instant) -> Instant {
        let passed = self.latest + now.since(self.last);
        self.latest.max(passed.min(shifted(now) - self.lag))
    }

    /// Returns the session's time at a recent instant of the driver's time, shifted, by the present lag.
    pub(in crate::m2c) fn of(&self, shifted: Instant) -> Instant {
        shifted - self.lag
    }

    /// Returns the driver's time at an instant of the session's time: the earliest at which
    /// [`SessionTime::at`] is as late, unless a packet comes before.
    pub(in crate::m2c) fn real(&self, at: Instant) -> Instant {
        unshifted(at + self.lag).max(self.last + at.since(self.latest))
    }

    /// Whether a packet with this lag is not far behind the packets before.
    pub(in crate::m2c) fn is_recent(&self, now: Instant, lag: Duration) -> bool {
        shifted(now) - lag + BEHIND >= self.latest
    }

    /// Returns the lag of a packet that tells `lateness`: of all lags that look so, the nearest to the last.
    pub(in crate::m2c) fn lag_of(&self, lateness: Duration) -> Duration {
        if lateness + self.spare == self.lag {
            return self.lag;
        }
        let known = self.lag.as_nanos();
        let ahead = ((lateness + self.spare).as_nanos() + CYCLE - known % CYCLE) % CYCLE;
        let back = CYCLE - ahead;
        Duration::from_nanos(if back < ahead && back <= known { known - back } else { known + ahead })
    }

    /// Records the lag of a plausible packet. Returns the session's time.
    pub(in crate::m2c) fn record(&mut self, now: Instant, lag: Duration) -> Instant {
        let most = self.latest + now.since(self.last) + STEP;
        self.latest = self.latest.max(most.min(shifted(now) - lag));
        (self.lag, self.last) = (lag, now);
        self.latest
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
        assert_eq!(SessionTime::new(at(0), before).lag_of(ms(10)), cycle + ms(10) + SPARE);
        let later = SessionTime { lag: cycle + ms(10) + SPARE, ..SessionTime::new(at(0), ms(10)) };
        assert_eq!(later.lag_of(before), before + SPARE, "packets change places");
        // The first packet was late by a little more than a cycle, the next one by a little less.
        assert_eq!(SessionTime::new(at(0), ms(3)).lag_of(before), ms(980));
    }

    #[test]
    fn a_punctual_packet_arrives_at_the_same_time_of_the_session() {
        let mut time = SessionTime::new(at(100), ms(1));
        let before = time.at(at(100));
        time.record(at(150), time.lag_of(ms(51)));
        assert_eq!(time.at(at(150)), before);
        assert_eq!(time.real(time.at(at(150))), at(150));
    }

    #[test]
    fn the_time_does_not_go_back_and_no_packet_moves_it_far_ahead() {
        let mut time = SessionTime::new(at(100), ms(3_000));
        let before = time.at(at(100));
        time.record(at(110), time.lag_of(ms(3_400)));
        assert_eq!(time.at(at(110)), before);
        time.record(at(120), time.lag_of(ms(0)));
        assert_eq!(time.at(at(120)), before + ms(10) + STEP);
        // A timer fires when the time has come.
        let until = before + ms(200);
        assert!(time.at(time.real(until)) >= until);
        time.record(at(130), time.lag_of(ms(3_000)));
        assert!(time.at(at(130)) <= before + ms(20) + STEP);
    }

    #[test]
    fn a_packet_that_is_long_gone_is_not_recent() {
        let time = SessionTime::new(at(20_000), ms(1));
        assert!(time.is_recent(at(20_010), time.lag_of(ms(500))));
        assert!(!time.is_recent(at(20_010), time.lag_of(ms(9_000))));
    }
}
