//! The congestion window: growth and cuts. Fractional, so that congestion avoidance loses nothing to
//! rounding.

use headwater_proto::{Duration, Instant};

use super::cubic::{self, Cubic};
use super::linux_cubic::{self, LinuxCubic};
use super::{Config, CutFrom, Growth};

/// Smallest slow-start threshold after a cut, in segments (RFC 5681, equation 4).
const SSTHRESH_MIN: f64 = 2.0;

/// State of congestion avoidance.
#[derive(Clone, Debug)]
enum Avoidance {
    Reno,
    Cubic(Cubic),
    LinuxCubic(LinuxCubic),
}

impl Avoidance {
    /// Share of the window left by a cut.
    fn left(&self) -> f64 {
        match self {
            Self::Reno => 0.5,
            Self::Cubic(_) => cubic::BETA,
            Self::LinuxCubic(_) => linux_cubic::BETA,
        }
    }

    fn cut(&mut self, window: f64) {
        match self {
            Self::Reno => {}
            Self::Cubic(cubic) => cubic.cut(window),
            Self::LinuxCubic(cubic) => cubic.cut(window),
        }
    }

    fn restart(&mut self, window: f64) {
        match self {
            Self::Reno => {}
            Self::Cubic(cubic) => cubic.restart(window),
            Self::LinuxCubic(cubic) => cubic.restart(),
        }
    }
}

/// cwnd, ssthresh and the inflation of Reno's fast recovery, in segments.
#[derive(Clone, Debug)]
pub(super) struct Window {
    cwnd: f64,
    ssthresh: f64,
    inflation: f64,
    /// Segments acknowledged in congestion avoidance since the window last grew, with byte counting.
    acked: f64,
    avoidance: Avoidance,
    maximum: f64,
    byte_counting: bool,
    integer_cut: bool,
    cut_from: CutFrom,
}

impl Window {
    pub(super) fn new(config: &Config) -> Self {
        let maximum = f64::from(config.maximum_window);
        Self {
            cwnd: f64::from(config.initial_window).min(maximum),
            ssthresh: f64::INFINITY,
            inflation: 0.0,
            acked: 0.0,
            avoidance: match config.growth {
                Growth::Reno => Avoidance::Reno,
                Growth::Cubic => Avoidance::Cubic(Cubic::default()),
                Growth::LinuxCubic => Avoidance::LinuxCubic(LinuxCubic::default()),
            },
            maximum,
            byte_counting: config.byte_counting,
            integer_cut: config.integer_cut,
            cut_from: config.cut_from,
        }
    }

    /// Whole segments that may be outstanding: at least 1, at most the maximum window.
    #[expect(clippy::cast_possible_truncation, reason = "at most the maximum window, a u32")]
    #[expect(clippy::cast_sign_loss, reason = "at least 1")]
    pub(super) fn segments(&self) -> u32 {
        (self.cwnd + self.inflation).clamp(1.0, self.maximum) as u32
    }

    pub(super) fn cwnd(&self) -> f64 {
        self.cwnd
    }

    pub(super) fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// An acknowledgement of `acked` new segments outside fast recovery: slow start below ssthresh, else
    /// congestion avoidance. `rtt` is the smoothed round-trip time; for [`Growth::LinuxCubic`] the least.
    pub(super) fn grow(&mut self, now: Instant, rtt: Duration, acked: u32) {
        if self.byte_counting {
            let acked = f64::from(acked);
            let slow_start = acked.min((self.ssthresh - self.cwnd).ceil().max(0.0));
            self.cwnd += slow_start;
            self.avoid(now, rtt, acked - slow_start);
        } else if self.cwnd < self.ssthresh {
            self.cwnd += 1.0;
        } else {
            self.avoid(now, rtt, 1.0);
        }
        self.cwnd = self.cwnd.min(self.maximum);
    }

    /// Congestion avoidance.
    fn avoid(&mut self, now: Instant, rtt: Duration, acked: f64) {
        if acked <= 0.0 {
            return;
        }
        match &mut self.avoidance {
            Avoidance::Cubic(cubic) => self.cwnd = cubic.grow(now, rtt, self.cwnd, acked),
            Avoidance::LinuxCubic(cubic) => self.cwnd = cubic.grow(now, rtt, self.cwnd, acked),
            Avoidance::Reno if self.byte_counting => self.grow_by_segments(acked),
            Avoidance::Reno => self.cwnd += 1.0 / self.cwnd,
        }
    }

    /// RFC 3465, section 2, without its limit: in congestion avoidance, grows by a segment once a window is
    /// acknowledged. The window may therefore grow a second time in the round trip before a loss is noticed.
    fn grow_by_segments(&mut self, acked: f64) {
        self.acked += acked;
        if self.acked >= self.cwnd {
            self.acked -= self.cwnd;
            self.cwnd += 1.0;
        }
    }

    /// Window left by a cut of the current window, or of the `outstanding` segments if fewer. Segments that
    /// Limited Transmit sent beyond the window do not count (RFC 5681, section 3.2), nor, after a timeout,
    /// segments taken for lost.
    fn reduced(&self, outstanding: u32) -> f64 {
        let window = match self.cut_from {
            CutFrom::Window => self.cwnd,
            CutFrom::FlightSize | CutFrom::Pipe => self.cwnd.min(f64::from(outstanding)),
        };
        let part = self.avoidance.left();
        if self.integer_cut { (window.floor() * part).floor() } else { window * part }
    }

    /// Halves the window, or reduces the window to CUBIC's share, after three duplicate acknowledgements or
    /// an ECN echo. Never below a segment.
    pub(super) fn cut(&mut self, outstanding: u32) {
        let reduced = self.reduced(outstanding);
        self.avoidance.cut(self.cwnd);
        self.ssthresh = reduced.max(SSTHRESH_MIN);
        self.cwnd = reduced.max(1.0);
        self.acked = 0.0;
    }

    /// Restarts from a single segment after a retransmission timeout. `again` is set if the timer had expired
    /// for the same segment before: RFC 5681 then keeps ssthresh, older senders cut ssthresh once more.
    pub(super) fn restart(&mut self, outstanding: u32, again: bool) {
        if !(again && self.cut_from != CutFrom::Window) {
            self.ssthresh = self.reduced(outstanding).max(SSTHRESH_MIN);
        }
        self.avoidance.restart(self.cwnd);
        self.cwnd = 1.0;
        self.acked = 0.0;
        self.inflation = 0.0;
    }

    /// Segments known to have left the network let as many more out (RFC 5681, section 3.2, steps 3 and 4).
    pub(super) fn inflate(&mut self, segments: u32) {
        self.inflation += f64::from(segments);
    }

    /// A partial acknowledgement of `acked` segments deflates by as many, and adds a segment back (RFC 6582,
    /// section 3.2, step 3).
    pub(super) fn deflate(&mut self, acked: u32) {
        self.inflation -= f64::from(acked.saturating_sub(1));
    }

    /// Fast recovery is over.
    pub(super) fn end_inflation(&mut self) {
        self.inflation = 0.0;
    }

    /// Fast recovery is over with few segments outstanding: do not burst to fill the window (RFC 6582,
    /// section 3.2, step 3, option 1).
    pub(super) fn shrink_to_flight(&mut self, outstanding: u32) {
        self.cwnd = self.cwnd.min(f64::from(outstanding.max(1)) + 1.0);
    }

    /// The connection opens after a lost SYN: starts from a single segment (RFC 5681, section 3.1).
    pub(super) fn start_from_one(&mut self) {
        self.cwnd = 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Profile;

    fn at(cwnd: f64, config: &Config) -> Window {
        Window { cwnd, ssthresh: SSTHRESH_MIN, ..Window::new(config) }
    }

    #[test]
    fn a_round_of_congestion_avoidance_adds_one_segment() {
        let config = Profile::Rfc.config();
        let mut window = at(100.0, &config);
        for _ in 0..100 {
            window.grow(Instant::ZERO, Duration::ZERO, 1);
        }
        assert!((window.cwnd() - 101.0).abs() < 0.01, "{}", window.cwnd());
    }

    #[test]
    fn byte_counting_grows_by_what_is_acknowledged_and_turns_at_ssthresh() {
        let config = Config { byte_counting: true, ..Profile::Rfc.config() };
        let mut window = Window { ssthresh: 12.0, ..Window::new(&config) };
        window.cwnd = 10.0;
        window.grow(Instant::ZERO, Duration::ZERO, 3);
        assert!((window.cwnd() - 12.0).abs() < 1e-12, "two for slow start, one counts: {}", window.cwnd());
        window.grow(Instant::ZERO, Duration::ZERO, 10);
        assert!((window.cwnd() - 12.0).abs() < 1e-12, "11 of 12: {}", window.cwnd());
        window.grow(Instant::ZERO, Duration::ZERO, 2);
        assert!((window.cwnd() - 13.0).abs() < 1e-12, "13 of 12: {}", window.cwnd());
        window.grow(Instant::ZERO, Duration::ZERO, 12);
        assert!((window.cwnd() - 14.0).abs() < 1e-12, "1 left and 12 more of 13: {}", window.cwnd());
    }

    #[test]
    fn cuts_go_to_an_integer_or_not() {
        let mut fractional =
            at(7.6, &Config { integer_cut: false, cut_from: CutFrom::Window, ..Profile::Rfc.config() });
        fractional.cut(100);
        assert!((fractional.cwnd() - 3.8).abs() < 1e-12);
        let mut integer = at(7.6, &Profile::Ns1999.config());
        integer.cut(100);
        assert!((integer.cwnd() - 3.0).abs() < 1e-12);
    }

    #[test]
    fn limited_transmit_does_not_count_for_the_cut() {
        let mut window = at(8.0, &Profile::Rfc.config());
        window.cut(10);
        assert!((window.cwnd() - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_second_timeout_keeps_ssthresh_where_the_rfc_says_so() {
        let mut rfc = at(8.0, &Profile::Rfc.config());
        rfc.restart(8, false);
        rfc.restart(8, true);
        assert!((rfc.ssthresh() - 4.0).abs() < 1e-12);
        let mut old = at(8.0, &Profile::Ns2005.config());
        old.restart(8, false);
        old.restart(8, true);
        assert!((old.ssthresh() - 2.0).abs() < 1e-12);
    }
}
