//! Feedback of many receivers.

use super::{Group, group};
use crate::group::at;

/// Reports of others than the CLR, and rounds, between two instants.
fn reports_per_round(network: &mut Group, from_ms: u64, to_ms: u64) -> f64 {
    network.run_until(at(from_ms));
    let before = *network.sender.counters();
    network.run_until(at(to_ms));
    let after = network.sender.counters();
    (after.others - before.others) as f64 / (after.rounds - before.rounds) as f64
}

#[test]
fn hundreds_of_equal_receivers_send_a_handful_of_reports_each_round() {
    let mut network = group().with(300, 50, |packet| packet % 40 == 0);
    let mean = reports_per_round(&mut network, 5_000, 25_000);
    assert!((0.5..20.0).contains(&mean), "{mean} reports a round");
}

#[test]
fn the_maximum_round_trip_follows_the_receivers() {
    let mut network = group().with(5, 40, |packet| packet % 100 == 0);
    network.run_until(at(60_000));
    let short = network.sender.rtt_max();
    assert!((0.040..0.060).contains(&short), "{short} s");
    network.add(300, |packet| packet % 100 == 0);
    network.run_until(at(90_000));
    let long = network.sender.rtt_max();
    assert!((0.3..0.35).contains(&long), "{long} s");
}

#[test]
fn every_receiver_of_a_few_measures_its_round_trip() {
    let mut network = group().with(10, 50, |packet| packet % 100 == 0);
    network.run_until(at(120_000));
    let known = network.members.iter().filter(|member| member.receiver.rtt().is_some()).count();
    assert!(known >= 5, "{known} of 10");
    for member in &network.members {
        assert!(member.receiver.rtt().is_none_or(|rtt| (rtt / 0.05 - 1.0).abs() < 0.05));
    }
}
