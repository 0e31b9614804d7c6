//! The retransmission timeout (RFC 6298), in the integer arithmetic of Jacobson 1988, appendix A.

use headwater_proto::Duration;

use super::Config;

/// Doublings after which back-off stops: 64 times, as in BSD.
const BACKOFF_MAX: u32 = 6;
/// Timeout after a retransmitted SYN (RFC 6298, section 5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);

/// Smoothed round-trip time, deviation, and the resulting timeout.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    tick: u64,
    minimum: Duration,
    maximum: Duration,
    variance_minimum: Duration,
    initial: Duration,
    /// 8 * SRTT and 4 * RTTVAR in ticks; `None` before the first sample.
    smoothed: Option<(u64, u64)>,
    least: Option<Duration>,
    backoff: u32,
}

impl Rto {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            tick: config.tick.as_nanos(),
            minimum: config.rto_minimum,
            maximum: config.rto_maximum,
            variance_minimum: config.rto_variance_minimum,
            initial: config.rto_initial,
            smoothed: None,
            least: None,
            backoff: 0,
        }
    }

    /// Takes a measured round-trip time, which also ends the back-off.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        let ticks = ((rtt.as_nanos() + self.tick / 2) / self.tick).max(1);
        self.smoothed = Some(match self.smoothed {
            None => (ticks * 8, ticks * 2),
            Some((srtt_8, rttvar_4)) => {
                let deviation = ticks.abs_diff(srtt_8 / 8);
                // Never zero, so that RTO is a tick above SRTT at least: max(G, 4 * RTTVAR).
                ((srtt_8 + ticks - srtt_8 / 8).max(1), (rttvar_4 + deviation - rttvar_4 / 4).max(1))
            }
        });
        self.backoff = 0;
    }

    /// The timeout to arm now, back-off included.
    pub(super) fn current(&self) -> Duration {
        let factor = 1_u64 << self.backoff;
        self.base().saturating_mul(factor).min(self.maximum)
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(|(srtt_8, _)| Duration::from_nanos(srtt_8 * self.tick / 8))
    }

    /// The least round-trip time measured so far; `None` before the first sample.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least
    }

    fn base(&self) -> Duration {
        let Some((srtt_8, rttvar_4)) = self.smoothed else { return self.initial };
        let variance = Duration::from_nanos(rttvar_4 * self.tick).max(self.variance_minimum);
        let exact = Duration::from_nanos(srtt_8 * self.tick / 8) + variance;
        let in_ticks = Duration::from_nanos(exact.as_nanos() / self.tick * self.tick);
        in_ticks.max(self.minimum)
    }

    /// Doubles the timeout after an expiry.
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Whether the timeout ran out since the last sample.
    pub(super) fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// The connection opens after a lost SYN. No sample exists, so the timeout starts again, cautiously.
    pub(super) fn restart_after_lost_syn(&mut self) {
        self.initial = self.initial.max(AFTER_LOST_SYN);
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Profile;

    fn millis(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    #[test]
    fn follows_rfc_6298_by_hand() {
        let mut rto = Rto::new(&Config { rto_minimum: millis(0), ..Profile::Rfc.config() });
        assert_eq!(rto.current(), Duration::from_secs(1));
        // SRTT = R, RTTVAR = R/2: RTO = R + 4 * R/2.
        rto.sample(millis(100));
        assert_eq!(rto.current(), millis(300));
        // RTTVAR = 3/4 * 50 + 1/4 * |100 - 180| = 57.5; SRTT = 7/8 * 100 + 1/8 * 180 = 110; RTO = 110 + 230.
        rto.sample(millis(180));
        assert_eq!(rto.smoothed(), Some(millis(110)));
        assert_eq!(rto.current(), millis(340));
    }

    #[test]
    fn backs_off_to_the_maximum_and_comes_back_with_a_sample() {
        let mut rto = Rto::new(&Profile::Ns2005.config());
        rto.sample(millis(50));
        let base = rto.current();
        assert_eq!(base, millis(200));
        for doublings in 1..=6 {
            rto.back_off();
            assert_eq!(rto.current(), base.saturating_mul(1 << doublings));
        }
        rto.back_off();
        assert_eq!(rto.current(), base.saturating_mul(64));
        rto.sample(millis(50));
        assert_eq!(rto.current(), base);
    }

    #[test]
    fn coarse_ticks_keep_the_timeout_above_two() {
        let mut rto = Rto::new(&Profile::Ns1999.config());
        for _ in 0..100 {
            rto.sample(millis(50));
            assert!(rto.current() >= millis(200) && rto.current() <= millis(300), "{}", rto.current());
        }
    }

    #[test]
    fn linux_keeps_the_variance_term_at_200_ms() {
        let mut rto = Rto::new(&Profile::Linux.config());
        for _ in 0..100 {
            rto.sample(millis(70));
        }
        assert_eq!(rto.current().as_millis(), 270);
    }
}
