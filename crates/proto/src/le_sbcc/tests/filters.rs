//! Each filter against its closed form.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::le_sbcc::{Intervals, RECEIVER_BYTES_MAX, Receivers, RoundTrip};

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1e-300)
}

#[test]
fn the_round_trip_time_is_a_mean_as_tcps() {
    let mut rtt = RoundTrip::new(ms(200), 0.125, Duration::from_secs(2));
    assert!(close(rtt.srtt(), 0.2) && close(rtt.sigma(), 0.1));
    // The deviation is from the mean before: |0.28 - 0.2| = 0.08.
    assert!(rtt.sample(ms(280)));
    assert!(close(rtt.srtt(), 0.21) && close(rtt.sigma(), 0.0975));
    assert!(close(rtt.spacing(), 0.405) && close(rtt.timeout(), 0.6));
    for _ in 0..200 {
        rtt.sample(ms(280));
    }
    assert!((rtt.srtt() - 0.28).abs() < 1e-9 && rtt.sigma() < 1e-6);
}

#[test]
fn of_samples_below_half_the_mean_every_tenth_counts() {
    let mut rtt = RoundTrip::new(ms(200), 0.125, Duration::from_secs(2));
    let counted = (0..10).filter(|_| rtt.sample(ms(50))).count();
    assert_eq!(counted, 1);
    assert!(close(rtt.srtt(), 0.2 - 0.125 * 0.15));
    assert!(rtt.sample(ms(100)), "above half of it");
}

#[test]
fn a_receiver_has_one_loss_event_each_round_trip() {
    let mut receivers = Receivers::new(100, &mut stream(1));
    let one = address(1);
    assert!(receivers.is_event(one, at(1_000), at(900), 0.2), "the first one is");
    receivers.event(one, at(1_000));
    assert!(!receivers.is_event(one, at(1_200), at(1_100), 0.2), "just within the spacing");
    assert!(receivers.is_event(one, at(1_201), at(1_100), 0.2));
    assert!(
        !receivers.is_event(one, at(9_000), at(999), 0.2),
        "sent before the last event: replayed, or late"
    );
    assert!(receivers.is_event(address(2), at(1_001), at(999), 0.2), "each has its own");
}

#[test]
fn a_single_receivers_events_all_pass() {
    let mut receivers = Receivers::new(100, &mut stream(1));
    for round in 0..500 {
        if round % 7 == 0 {
            receivers.fade();
        }
        assert!(close(receivers.event(address(1), at(round)), 1.0));
    }
}

#[test]
fn receivers_whose_events_faded_away_are_forgotten() {
    let mut receivers = Receivers::new(100_000, &mut stream(1));
    for number in 0..5_000 {
        receivers.event(address(number), at(1));
    }
    assert_eq!(receivers.len(), 5_000);
    // 0.9^44 < 0.01
    (0..44).for_each(|_| receivers.fade());
    for _ in 0..2_501 {
        receivers.event(address(7), at(2));
    }
    assert_eq!(receivers.len(), 1);
    assert_eq!(receivers.worst().map(|(worst, _)| worst), Some(address(7)));
    assert!(close(receivers.event(address(7), at(3)), 1.0), "the sum forgot them, too");
    assert!((receivers.count(address(7)) - 2_502.0).abs() < 0.02);
}

#[test]
fn all_may_be_forgotten() {
    let mut receivers = Receivers::new(10, &mut stream(1));
    receivers.event(address(1), at(1));
    (0..50).for_each(|_| receivers.fade());
    assert!(close(receivers.event(address(2), at(2)), 1.0));
    assert_eq!((receivers.len(), receivers.count(address(1))), (1, 0.0));
}

#[test]
fn counts_fade_for_a_year_without_end() {
    let mut receivers = Receivers::new(10, &mut stream(1));
    for round in 0..100_000_u32 {
        receivers.fade();
        receivers.event(address(1), at(round.into()));
        receivers.event(address(round % 2), at(round.into()));
    }
    // 1 / (1 - 0.9) each: twice that of address 1 and half of the other's.
    assert!((receivers.count(address(1)) - 15.0).abs() < 1.0, "{}", receivers.count(address(1)));
}

#[test]
fn a_receiver_takes_less_than_100_bytes() {
    const { assert!(RECEIVER_BYTES_MAX < 100) };
    let mut receivers = Receivers::new(1_000_000, &mut stream(1));
    for number in 0..1_000_000 {
        receivers.event(address(number), at(1));
        if [20, 10_000, 50_000, 1_000_000].contains(&(number + 1)) {
            let all = receivers.len() * RECEIVER_BYTES_MAX + 1_000;
            assert!(receivers.bytes() <= all, "{} bytes of {} receivers", receivers.bytes(), receivers.len());
        }
    }
    assert_eq!(receivers.len(), 1_000_000);
}

/// The pseudo-code of Thapliyal et al., line by line.
#[derive(Default)]
struct Model {
    counts: std::collections::BTreeMap<u32, f64>,
    most: f64,
}

impl Model {
    fn event(&mut self, receiver: u32) -> f64 {
        *self.counts.entry(receiver).or_default() += 1.0;
        let most = self.counts.values().copied().fold(0.0, f64::max);
        self.most = most;
        most / self.counts.values().sum::<f64>()
    }

    fn fade(&mut self) {
        self.counts.values_mut().for_each(|count| *count *= 0.9);
    }
}

/// s_hat_i of the TFRC module, term by term; `values` are those from i on, the newest first.
fn s_hat(values: &[f64]) -> f64 {
    let weight = |k: usize| if k < 8 { 1.0 } else { libm::pow(0.95, (k - 7) as f64) };
    let sum: f64 = values.iter().enumerate().map(|(k, value)| weight(k) * value).sum();
    sum / (0..values.len()).map(weight).sum::<f64>()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn shares_are_those_of_counting_all_anew(steps in vec(0..40_u32, 1..1_500)) {
        let mut receivers = Receivers::new(1_000, &mut stream(1));
        let mut model = Model::default();
        for (time, step) in (1..).zip(steps) {
            // Up to 30 a receiver, above it counts fade; too seldom for any to be forgotten.
            if step >= 39 {
                receivers.fade();
                model.fade();
                model.counts.retain(|_, count| *count >= 0.01);
            } else {
                let step = step % 30;
                let (share, expected) = (receivers.event(address(step), at(time)), model.event(step));
                // Those not swept yet count at most 0.01 each.
                prop_assert!((share - expected).abs() < 0.02, "{} {}", share, expected);
                prop_assert!((receivers.count(address(step)) - model.counts[&step]).abs() < 0.02);
            }
        }
        prop_assert!(receivers.len() <= 30);
    }

    #[test]
    fn the_table_finds_whom_it_holds(steps in vec((0..600_u32, any::<bool>()), 1..2_000)) {
        let mut receivers = Receivers::new(400, &mut stream(2));
        for (time, (step, fade)) in (1..).zip(steps) {
            if fade {
                (0..8).for_each(|_| receivers.fade());
            }
            let known = receivers.count(address(step));
            let len = receivers.len();
            receivers.event(address(step), at(time));
            prop_assert!(receivers.len() <= 401);
            if len < 400 {
                prop_assert!(receivers.count(address(step)) >= known + 0.99);
                prop_assert!(!receivers.is_event(address(step), at(time), at(time), 0.0));
            }
        }
    }

    #[test]
    fn running_sums_give_the_weighted_means(intervals in vec(1..500_u32, 1..60), open in 0..700_u32) {
        let mut running = Intervals::default();
        let mut all: Vec<f64> = Vec::new();
        for interval in &intervals {
            (0..*interval).for_each(|_| running.sent());
            running.event();
            all.insert(0, f64::from(*interval));
        }
        (0..open).for_each(|_| running.sent());
        let closed = s_hat(&all);
        all.insert(0, f64::from(open));
        prop_assert!(close(running.mean().unwrap(), closed));
        prop_assert!(close(running.mean_with_open(), s_hat(&all)));
        prop_assert!(close(running.rate().unwrap(), 1.0 / closed.max(s_hat(&all))));
    }
}
