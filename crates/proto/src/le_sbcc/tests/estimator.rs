//! The round-trip time of a TCP connection, from samples of a full queue.

use super::*;
use crate::le_sbcc::{Chain, Estimator, Indication, LeSbccConfig, RoundTrip};
use crate::rng::unit;

fn estimator() -> RoundTrip {
    RoundTrip::new(ms(200), 0.125, Duration::from_secs(2)).with_estimator(Estimator::Sawtooth).assumed()
}

fn assert_mean(rtt: &RoundTrip, mean: f64) {
    assert!((rtt.srtt() - mean).abs() < 1e-9, "{} for {mean}", rtt.srtt());
}

/// The mean over a rise of the window from half to all of what fits, by numbers.
fn mean_of_rise(base: f64, full: f64) -> f64 {
    let steps = 100_000;
    let window = |step: i32| full * (0.5 + 0.5 * (f64::from(step) + 0.5) / f64::from(steps));
    (0..steps).map(|step| window(step).max(base)).sum::<f64>() / f64::from(steps)
}

#[test]
fn the_mean_is_that_of_a_tcp_which_fills_and_empties_the_queue() {
    for base in [1, 40, 50, 60, 80, 99, 100] {
        let mut rtt = estimator();
        // An answer includes a back-off.
        rtt.heard(ms(base + 50));
        assert!(rtt.sample(ms(100)));
        let mean = mean_of_rise(base as f64 / 1e3, 0.1);
        assert!((rtt.srtt() - mean).abs() < 1e-6, "{base}: {} for {mean}", rtt.srtt());
        assert!((rtt.spacing() - 0.1).abs() < 1e-9, "that of the full queue: {}", rtt.spacing());
    }
}

#[test]
fn back_off_is_no_round_trip() {
    let mut draw = stream(3);
    let (mut rtt, mut sum) = (estimator(), 0.0);
    rtt.heard(ms(4));
    for _ in 0..1_000 {
        rtt.sample(Duration::from_secs_f64(0.08 + 0.05 * unit(&mut draw)));
        sum += rtt.spacing();
    }
    assert!((0.08..0.083).contains(&(sum / 1e3)), "{}", sum / 1e3);
    // The queue is shorter, and longer again: 32 samples later at most.
    rtt.sample(ms(30));
    assert_mean(&rtt, 0.0225);
    (0..32).for_each(|_| _ = rtt.sample(ms(400)));
    assert_mean(&rtt, 0.3);
}

#[test]
fn a_forged_distance_changes_the_mean_by_a_quarter_at_most() {
    let mut rtt = estimator();
    (0..32).for_each(|_| _ = rtt.sample(ms(100)));
    assert_mean(&rtt, 0.1);
    rtt.heard(Duration::ZERO);
    rtt.measured(Duration::ZERO);
    rtt.sample(ms(100));
    assert_mean(&rtt, 0.075);
}

#[test]
fn the_farthest_that_measured_sets_the_guess() {
    let mut rtt = estimator();
    rtt.heard(ms(600));
    assert_mean(&rtt, 0.6);
    rtt.measured(ms(4));
    assert_mean(&rtt, 0.104);
    rtt.measured(ms(300));
    rtt.measured(ms(20));
    rtt.heard(ms(600));
    assert_mean(&rtt, 0.4);
}

/// The rate is that of a TCP connection to the worst receiver, however near the others are.
#[test]
fn samples_are_those_of_the_worst_receiver() {
    let config = LeSbccConfig::new(1_000).with_estimator(Estimator::Sawtooth).with_assumed_rtt(true);
    let mut chain = Chain::new(config, stream(1), Instant::ZERO);
    let mut now = at(1_000);
    for _ in 0..20 {
        for (receiver, round_trip) in [(1, 400), (1, 400), (2, 10)] {
            now += ms(700);
            let sent = now - ms(round_trip);
            chain.indication(now, &Indication { receiver: address(receiver), sent, noticed: Some(sent) });
        }
    }
    assert_eq!(chain.receivers().worst().unwrap().0, address(1));
    assert!((chain.round_trip().spacing() - 0.4).abs() < 1e-9, "{:?}", chain.round_trip());
}
