//! CUBIC's congestion avoidance as in Linux: the curve of RFC 9438 with windows in whole segments, a least
//! round-trip time ahead, beside a Reno whose growth never rises to a segment per round trip.
//!
//! The departures from RFC 9438 decide shares beside Reno: in a long queue the smoothed round-trip time is a
//! multiple of the least one, and so is the distance by which the RFC's target is ahead.

use headwater_proto::{Duration, Instant};

/// Share of the window left by a cut: 717 of 1024.
pub(super) const BETA: f64 = 717.0 / 1_024.0;
/// C, in segments per second cubed: 410 of 1024.
const C: f64 = 410.0 / 1_024.0;
/// Windows to acknowledge for a segment of Reno's estimate: 15 of 8, for alpha = 3 (1 - beta) / (1 + beta).
const ESTIMATE_WINDOWS: f64 = 15.0 / 8.0;
/// Acknowledged segments for a segment of growth: at most those before the first cut, and at least.
const COUNT_BEFORE_CUT_MAX: f64 = 20.0;
const COUNT_MIN: f64 = 2.0;

/// State in addition to the window. Windows are in segments.
#[derive(Clone, Debug, Default)]
pub(super) struct LinuxCubic {
    /// The window at the last cut; 0 before the first, and after a timeout.
    last_max: f64,
    /// Segments acknowledged since Reno's estimate last grew, and since the window last grew.
    acked_for_estimate: f64,
    acked_for_window: f64,
    stage: Option<Stage>,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    start: Instant,
    /// K, in seconds.
    until_origin: f64,
    origin: f64,
    /// The window that Reno would have.
    estimate: f64,
}

impl LinuxCubic {
    /// The window after `acked` more segments were acknowledged in congestion avoidance.
    pub(super) fn grow(&mut self, now: Instant, least_rtt: Duration, window: f64, acked: f64) -> f64 {
        self.acked_for_estimate += acked;
        if self.stage.is_none() {
            self.acked_for_estimate = acked;
            let origin = self.last_max.max(window);
            let until_origin = libm::cbrt((origin - window) / C);
            self.stage = Some(Stage { start: now, until_origin, origin, estimate: window });
        }
        let Some(stage) = &mut self.stage else { return window };
        let ahead = (now.since(stage.start) + least_rtt).as_secs_f64() - stage.until_origin;
        let distance = libm::floor(C * libm::fabs(ahead * ahead * ahead));
        let target = stage.origin + if ahead < 0.0 { -distance } else { distance };
        let mut count =
            if target > window { libm::floor(window / (target - window)) } else { 100.0 * window };
        if self.last_max == 0.0 {
            count = count.min(COUNT_BEFORE_CUT_MAX);
        }
        let step = libm::floor(window * ESTIMATE_WINDOWS);
        while self.acked_for_estimate > step {
            self.acked_for_estimate -= step;
            stage.estimate += 1.0;
        }
        if stage.estimate > window {
            count = count.min(libm::floor(window / (stage.estimate - window)));
        }
        self.add(window, count.max(COUNT_MIN), acked)
    }

    /// A segment more for each `count` acknowledged segments.
    fn add(&mut self, window: f64, count: f64, acked: f64) -> f64 {
        let mut grown = window;
        if self.acked_for_window >= count {
            self.acked_for_window = 0.0;
            grown += 1.0;
        }
        self.acked_for_window += acked;
        if self.acked_for_window >= count {
            let more = libm::floor(self.acked_for_window / count);
            self.acked_for_window -= more * count;
            grown += more;
        }
        grown
    }

    /// The window is cut from `window` segments; below the last maximum to a lower one (fast convergence).
    pub(super) fn cut(&mut self, window: f64) {
        self.last_max =
            if window < self.last_max { libm::floor(window * (1.0 + BETA) / 2.0) } else { window };
        self.stage = None;
        self.acked_for_window = 0.0;
    }

    /// Restarts after a timeout.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    /// The window after `seconds` of round trips of `rtt`, of which `least` is the least.
    fn after(cubic: &mut LinuxCubic, mut window: f64, seconds: f64, rtt: f64, least: Duration) -> f64 {
        let mut time = 0.0;
        while time < seconds {
            time += rtt / window;
            window = cubic.grow(Instant::ZERO + Duration::from_secs_f64(1.0 + time), least, window, 1.0);
        }
        window
    }

    #[test]
    fn the_window_is_back_at_its_maximum_after_k() {
        let mut cubic = LinuxCubic::default();
        cubic.cut(1_000.0);
        let k = libm::cbrt((1_000.0 - 700.0) / C);
        let window = after(&mut cubic, 700.0, k, 0.2, RTT);
        assert!((990.0..=1_000.0).contains(&window), "{window}");
    }

    /// On short round trips the window is that of a Reno that grows by 8 of 15 segments in a round trip, also
    /// above the last maximum.
    #[test]
    fn reno_s_estimate_grows_by_8_of_15_segments_without_end() {
        let mut cubic = LinuxCubic::default();
        cubic.cut(20.0);
        let window = after(&mut cubic, 14.0, 60.0 * 0.01, 0.01, RTT);
        // 60 round trips.
        assert!((44.0..=47.0).contains(&window), "{window}");
    }

    /// The curve is evaluated a least round-trip time ahead, so that a queue does not speed up growth.
    #[test]
    fn a_queue_does_not_bring_the_target_nearer() {
        let grown = |least| {
            let mut cubic = LinuxCubic::default();
            cubic.cut(300.0);
            after(&mut cubic, 210.0, 12.0, 1.0, least)
        };
        let (short, long) = (grown(RTT), grown(Duration::from_secs(1)));
        assert!(short + 20.0 < long, "{short} {long}");
    }

    #[test]
    fn a_window_grows_by_at_most_half_in_a_round_trip_and_by_a_twentieth_before_the_first_cut() {
        let mut cubic = LinuxCubic::default();
        assert!((after(&mut cubic, 100.0, 0.0999, 0.1, RTT) - 105.0).abs() <= 1.0);
        let mut cubic = LinuxCubic::default();
        cubic.cut(10_000.0);
        // A round trip in the helper is as short as the window is long: exp(1/2).
        assert!(after(&mut cubic, 100.0, 0.0999, 0.1, RTT) <= 166.0);
    }

    #[test]
    fn a_flow_that_is_cut_below_its_maximum_makes_room() {
        let mut cubic = LinuxCubic::default();
        cubic.cut(100.0);
        cubic.cut(80.0);
        assert!((cubic.last_max - 68.0).abs() < 1e-9);
        cubic.restart();
        assert!(cubic.last_max == 0.0);
    }
}
