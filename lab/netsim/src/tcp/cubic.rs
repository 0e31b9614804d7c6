//! CUBIC's congestion avoidance (RFC 9438): the window follows a cubic function of the time since the last
//! cut, independent of the round-trip time. If a Reno with the same decrease would be faster, the window
//! follows that Reno.

use headwater_proto::{Duration, Instant};

/// `beta_cubic`: share of the window left by a cut (section 4.6).
pub(super) const BETA: f64 = 0.7;
/// C, in segments per second cubed (section 5.1).
const C: f64 = 0.4;
/// `alpha_cubic` while below the window at the last cut (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// A window grows by at most half in a round trip (section 4.2).
const TARGET_MAX: f64 = 1.5;

/// State of CUBIC in addition to the window. Windows are in segments.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// `W_max` at the last cut; `None` before the first, and after a timeout (section 4.8).
    plateau: Option<f64>,
    /// `cwnd_prior`: the window just before the last cut.
    prior: f64,
    /// The congestion avoidance stage under way.
    stage: Option<Stage>,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    start: Instant,
    /// K, in seconds.
    until_plateau: f64,
    /// `W_max`.
    plateau: f64,
    /// `W_est`.
    estimate: f64,
}

impl Cubic {
    /// The window after `acked` more segments were acknowledged in congestion avoidance.
    pub(super) fn grow(&mut self, now: Instant, rtt: Duration, window: f64, acked: f64) -> f64 {
        let plateau = self.plateau;
        let stage = self.stage.get_or_insert_with(|| Stage::begin(now, window, plateau));
        let alpha = if stage.estimate < self.prior { ALPHA } else { 1.0 };
        stage.estimate += alpha * acked / window;
        let elapsed = now.since(stage.start);
        if stage.curve(elapsed) < stage.estimate {
            return window.max(stage.estimate);
        }
        let target = stage.curve(elapsed + rtt).clamp(window, TARGET_MAX * window);
        window + (target - window) / window * acked
    }

    /// The window is cut from `window` segments. Below the last plateau another flow wants room: the next
    /// plateau is lower (section 4.7).
    pub(super) fn cut(&mut self, window: f64) {
        let below = self.plateau.is_some_and(|plateau| window < plateau);
        self.plateau = Some(if below { window * (1.0 + BETA) / 2.0 } else { window });
        self.prior = window;
        self.stage = None;
    }

    /// Restarts after a timeout: the next stage begins at its own plateau.
    pub(super) fn restart(&mut self, window: f64) {
        *self = Self { prior: window, ..Self::default() };
    }
}

impl Stage {
    fn begin(start: Instant, window: f64, plateau: Option<f64>) -> Self {
        let plateau = plateau.unwrap_or(window).max(window);
        Self { start, until_plateau: libm::cbrt((plateau - window) / C), plateau, estimate: window }
    }

    /// `W_cubic(t)`, equation 1.
    fn curve(&self, elapsed: Duration) -> f64 {
        let time = elapsed.as_secs_f64() - self.until_plateau;
        C * time * time * time + self.plateau
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::Window;
    use super::super::{Config, Growth, Profile};
    use super::*;

    /// A window whose segments are acknowledged one by one, a window in a round trip.
    struct Flow {
        window: Window,
        rtt: f64,
        seconds: f64,
    }

    impl Flow {
        fn new(rtt: f64, initial_window: u32) -> Self {
            let config = Config {
                growth: Growth::Cubic,
                initial_window,
                maximum_window: 1 << 20,
                integer_cut: false,
                ..Profile::Linux.config()
            };
            Self { window: Window::new(&config), rtt, seconds: 1.0 }
        }

        fn acknowledge(&mut self) {
            self.seconds += self.rtt / self.window.cwnd();
            let now = Instant::ZERO + Duration::from_secs_f64(self.seconds);
            self.window.grow(now, Duration::from_secs_f64(self.rtt), 1);
        }

        fn run(&mut self, seconds: f64) {
            let until = self.seconds + seconds;
            while self.seconds < until {
                self.acknowledge();
            }
        }

        /// The mean window by time when one of `interval` segments is lost.
        fn mean(&mut self, interval: u32, cycles: u32) -> f64 {
            let (mut area, mut time) = (0.0, 0.0);
            for cycle in 0..cycles {
                self.window.cut(u32::MAX);
                for _ in 0..interval {
                    let (began, window) = (self.seconds, self.window.cwnd());
                    self.acknowledge();
                    if cycle >= cycles / 2 {
                        area += window * (self.seconds - began);
                        time += self.seconds - began;
                    }
                }
            }
            area / time
        }
    }

    fn assert_near(found: f64, expected: f64, part: f64) {
        assert!((found / expected - 1.0).abs() < part, "{found} where {expected} is expected");
    }

    #[test]
    fn a_cut_is_made_up_for_after_k_and_grows_beyond_as_a_cube() {
        let mut flow = Flow::new(0.2, 100);
        flow.window.cut(u32::MAX);
        assert_near(flow.window.cwnd(), 70.0, 1e-9);
        let k = libm::cbrt(30.0 / C);
        // The curve is followed a round trip late, and met where it ends.
        flow.run(k);
        assert_near(flow.window.cwnd(), 100.0, 0.01);
        flow.run(k);
        assert_near(flow.window.cwnd(), 130.0, 0.03);
    }

    /// Section 5.1, equation 6: `AVG_W_cubic`, where the curve is above Reno's.
    #[test]
    fn the_mean_window_is_the_closed_form() {
        let interval = 10_000;
        let mean = Flow::new(0.1, 200).mean(interval, 40);
        let ideal = libm::pow(C * (3.0 + BETA) / (4.0 * (1.0 - BETA)), 0.25)
            * libm::pow(0.1 * f64::from(interval), 0.75);
        assert_near(mean, ideal, 0.05);
    }

    /// Section 4.3: on a short way the window is Reno's, whatever C is: sqrt(3 / 2p).
    #[test]
    fn a_short_way_is_renos() {
        let mean = Flow::new(0.01, 30).mean(1_000, 100);
        assert_near(mean, libm::sqrt(1.5 * 1_000.0), 0.1);
    }

    #[test]
    fn a_flow_that_is_cut_below_its_plateau_makes_room() {
        let mut cubic = Cubic::default();
        cubic.cut(100.0);
        assert_eq!(cubic.plateau, Some(100.0));
        cubic.cut(80.0);
        assert_eq!(cubic.plateau, Some(68.0));
        cubic.cut(90.0);
        assert_eq!(cubic.plateau, Some(90.0));
    }

    #[test]
    fn after_a_timeout_growth_begins_at_once() {
        let mut flow = Flow::new(0.1, 100);
        flow.window.restart(100, false);
        assert_near(flow.window.ssthresh(), 70.0, 1e-9);
        while flow.window.cwnd() < 70.0 {
            flow.acknowledge();
        }
        flow.run(5.0);
        // K = 0: C 5^3 above where the stage began.
        assert_near(flow.window.cwnd(), 70.0 + C * 125.0, 0.05);
    }
}
