//! Comparison of multicast with an AMT relay by measurement, where multicast comes but comes badly: on a
//! wireless interface, or with heavy loss.
//!
//! The relay is tried beside multicast until a packet has come through the tunnel. Packets then come through
//! the tunnel for at most [`TRIAL`], and further if the tunnel brings [`FACTOR`] times as much. Either way
//! the path stays for a pause that doubles, so that a session does not alternate. A receiver on a wire
//! without heavy loss tries nothing: a relay sends a copy to each receiver.

use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::control::Reception;

/// Time of a measurement, and longest time if there are few packets.
const WINDOW: Duration = Duration::from_secs(4);
const WINDOW_MAX: Duration = Duration::from_secs(10);
/// Number of measurements in a row after which multicast is compared. The first is the start of a session.
const WINDOWS: u8 = 2;
/// Share of lost packets from which loss is heavy, and number of packets that a share needs. Congestion alone
/// costs a receiver of layers about 2 %.
const LOSS: f64 = 0.05;
const LOSS_PACKETS: u64 = 20;
/// Rate in bit/s from which multicast on a wireless interface is not compared: the highest basic rate of
/// IEEE 802.11a and 11g.
const WIRELESS_MAX: f64 = 24e6;
/// Time for the first packet through the tunnel.
const REACH: Duration = Duration::from_secs(6);
/// Time of a trial: a start of many rates, and measurements.
const TRIAL: Duration = Duration::from_secs(12);
/// Rate through the tunnel, in that of multicast, from which the tunnel is kept.
const FACTOR: f64 = 1.25;
/// Bounds of the time before the next comparison.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(1_800);

/// Counters of a machine, which begin at 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathCounters {
    /// UDP payload of the session's packets.
    pub(super) bytes: u64,
    pub(super) reception: Reception,
}

/// Comparison of multicast and a tunnel. Memory: constant.
#[derive(Debug)]
pub(super) struct PathComparison {
    is_wireless: bool,
    stage: Stage,
    window: Option<(Instant, PathCounters)>,
    /// Measurements in a row that multicast was bad in.
    bad: u8,
    /// Rate of multicast in bit/s, by the last measurement.
    multicast_rate: f64,
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Packets come by multicast; no comparison before this time.
    Multicast { not_before: Instant },
    /// Packets come by multicast, and the relay is tried until this time.
    Reaching { until: Instant },
    /// Packets come through the tunnel, perhaps only until this time.
    Trial { until: Instant },
    /// Packets come through the tunnel until this time.
    Kept { until: Instant },
}

/// Measurement of a path.
struct Measured {
    rate: f64,
    is_lossy: bool,
}

impl PathComparison {
    pub(super) fn new(is_wireless: bool) -> Self {
        let stage = Stage::Multicast { not_before: Instant::ZERO };
        Self { is_wireless, stage, window: None, bad: 0, multicast_rate: 0.0, pause: Duration::ZERO }
    }

    /// Measures multicast. Returns whether the relay is to be tried now, beside multicast.
    pub(super) fn compares(&mut self, counters: PathCounters, now: Instant) -> bool {
        let measured = self.measure(counters, now);
        match self.stage {
            Stage::Reaching { until } if now < until => return true,
            Stage::Reaching { .. } => self.stay(now),
            Stage::Multicast { not_before } => {
                let Some(Measured { rate, is_lossy }) = measured else { return false };
                let is_bad = rate > 0.0 && (is_lossy || (self.is_wireless && rate < WIRELESS_MAX));
                (self.bad, self.multicast_rate) = (if is_bad { self.bad.saturating_add(1) } else { 0 }, rate);
                if self.bad >= WINDOWS && now >= not_before {
                    self.stage = Stage::Reaching { until: now + REACH.into() };
                    return true;
                }
            }
            // The tunnel was left for another reason.
            Stage::Trial { .. } | Stage::Kept { .. } => self.stay(now),
        }
        false
    }

    /// Whether a comparison has led to the tunnel.
    pub(super) fn holds_tunnel(&self) -> bool {
        matches!(self.stage, Stage::Trial { .. } | Stage::Kept { .. })
    }

    /// Begins a trial: a packet came through the tunnel.
    pub(super) fn begin_trial(&mut self, now: Instant) {
        self.stage = Stage::Trial { until: now + TRIAL.into() };
        self.window = None;
    }

    /// Measures the tunnel. Returns whether multicast is to be taken again.
    pub(super) fn returns(&mut self, counters: PathCounters, now: Instant) -> bool {
        let measured = self.measure(counters, now);
        match self.stage {
            Stage::Trial { until } => {
                if measured.is_some_and(|measured| measured.rate >= FACTOR * self.multicast_rate) {
                    tracing::info!("the AMT relay brings more than multicast, which is left");
                    self.double_pause();
                    self.stage = Stage::Kept { until: now + self.pause.into() };
                } else if now >= until {
                    tracing::info!("the AMT relay brings no more than multicast");
                    self.stay(now);
                    return true;
                }
                false
            }
            Stage::Kept { until } if now >= until => {
                // The next comparison needs no pause, and doubles the present one.
                (self.stage, self.window) = (Stage::Multicast { not_before: now }, None);
                true
            }
            _ => false,
        }
    }

    /// Stays with multicast for a pause.
    fn stay(&mut self, now: Instant) {
        self.double_pause();
        self.stage = Stage::Multicast { not_before: now + self.pause.into() };
        (self.window, self.bad) = (None, 0);
    }

    fn double_pause(&mut self) {
        self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
    }

    /// Ends a measurement that is due, and begins the next.
    fn measure(&mut self, counters: PathCounters, now: Instant) -> Option<Measured> {
        let window = self.window.filter(|(_, before)| before.bytes <= counters.bytes);
        let Some((began, before)) = window else {
            // A machine's first packet begins the first measurement.
            self.window = (counters.bytes > 0).then_some((now, counters));
            return None;
        };
        let time = Duration::from(now.since(began));
        let lost = counters.reception.lost.saturating_sub(before.reception.lost);
        let sent = counters.reception.packets.saturating_sub(before.reception.packets) + lost;
        if time < WINDOW || (sent < LOSS_PACKETS && time < WINDOW_MAX) {
            return None;
        }
        self.window = Some((now, counters));
        #[expect(clippy::cast_precision_loss, reason = "bytes and packets of seconds")]
        let (bits, lost, packets) = ((counters.bytes - before.bytes) as f64 * 8.0, lost as f64, sent as f64);
        let is_lossy = sent >= LOSS_PACKETS && lost >= LOSS * packets;
        Some(Measured { rate: bits / time.as_secs_f64(), is_lossy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + headwater_proto::Duration::from_secs(seconds)
    }

    /// Counters after `seconds` at a rate in Mbit/s, with a share of loss in percent.
    fn counters(seconds: u64, megabits: u64, percent: u64) -> PathCounters {
        let packets = 1_000 * seconds;
        let reception = Reception { packets, lost: packets * percent / (100 - percent), marked: 0 };
        PathCounters { bytes: 1 + seconds * megabits * 125_000, reception }
    }

    /// Second in which a comparison begins, within a minute.
    fn begins(comparison: &mut PathComparison, megabits: u64, percent: u64) -> Option<u64> {
        (0..60).find(|seconds| comparison.compares(counters(*seconds, megabits, percent), at(*seconds)))
    }

    #[test]
    fn multicast_is_compared_on_radios_and_with_heavy_loss_alone() {
        let begins =
            |is_wireless, megabits, percent| begins(&mut PathComparison::new(is_wireless), megabits, percent);
        assert_eq!(begins(false, 1, 2), None);
        assert_eq!(begins(false, 1, 10), Some(8));
        assert_eq!(begins(true, 5, 0), Some(8));
        assert_eq!(begins(true, 40, 0), None);
        assert_eq!(begins(true, 0, 0), None, "nothing comes");
    }

    #[test]
    fn a_tunnel_that_brings_more_is_kept_and_compared_again_after_a_pause_that_doubles() {
        let mut comparison = PathComparison::new(true);
        assert_eq!(begins(&mut comparison, 1, 0), Some(8));
        comparison.begin_trial(at(9));
        let left = |comparison: &mut PathComparison, began: u64, end: u64| {
            (0..end).find(|seconds| comparison.returns(counters(*seconds, 10, 0), at(began + seconds)))
        };
        // Kept after the first measurement.
        assert_eq!(left(&mut comparison, 9, 1_000), Some(64));
        assert!(!comparison.holds_tunnel());
        let again = (0..60).find(|seconds| comparison.compares(counters(*seconds, 1, 0), at(100 + seconds)));
        assert_eq!(again, Some(4), "as bad as before");
        comparison.begin_trial(at(110));
        assert_eq!(left(&mut comparison, 110, 1_000), Some(124));
    }

    #[test]
    fn a_tunnel_that_brings_no_more_or_nothing_is_left_for_a_pause() {
        let mut comparison = PathComparison::new(true);
        assert_eq!(begins(&mut comparison, 8, 0), Some(8));
        comparison.begin_trial(at(9));
        let left = (0..60).find(|seconds| comparison.returns(counters(*seconds, 9, 0), at(9 + seconds)));
        assert_eq!(left, Some(12));
        let again = |comparison: &mut PathComparison, from: u64| {
            (0..500).find(|seconds| comparison.compares(counters(*seconds, 8, 0), at(from + seconds)))
        };
        assert_eq!(again(&mut comparison, 21), Some(60));
        // The relay does not answer.
        let until =
            (0..60).find(|seconds| !comparison.compares(counters(60 + *seconds, 8, 0), at(81 + seconds)));
        assert_eq!(until, Some(6));
        assert_eq!(again(&mut comparison, 87), Some(120));
        // The tunnel falls silent: another path has led back to multicast.
        comparison.begin_trial(at(210));
        assert!(!comparison.compares(counters(0, 8, 0), at(215)) && !comparison.holds_tunnel());
    }
}
