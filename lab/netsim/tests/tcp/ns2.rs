//! The profile `ns2005` against ns-2.35 itself, under independent loss.
//!
//! ns-2's numbers are the output of `lab/experiments/validation/ns2_tcp.tcl`.

use headwater_netsim::network::LossConfig;
use headwater_netsim::network::{LinkConfig, LossFilter};
use headwater_netsim::tcp::{AckPolicy, Config, Profile, Variant};
use headwater_proto::{Duration, Rate};

use super::bed::{Bed, assert_between, at};

const NS2: &str = include_str!("../../../experiments/validation/ns2_tcp.csv");
const WARM_UP_SECONDS: f64 = 20.0;
/// Of one scenario: each of the two runs has a standard deviation of some 3 %.
const DIFFERENCE_MAX: f64 = 0.12;
/// Of the mean over a variant's scenarios.
const MEAN_DIFFERENCE_MAX: f64 = 0.04;

fn simulated(variant: Variant, b: u32, p: f64, round_trip: Duration, seconds: f64) -> f64 {
    let acks = AckPolicy { every: b, ..AckPolicy::DELAYED };
    let sizes = Config { segment_bytes: 960, maximum_window: 1000, ..Profile::Ns2005.config() };
    let link = LinkConfig {
        loss: LossConfig::Bernoulli(p),
        loss_filter: LossFilter::Data,
        ..LinkConfig::new(Rate::from_kilobits(1_000_000), Duration::ZERO)
    };
    let mut bed = Bed::new(1, link, &Config { variant, acks, ..sizes }, &[round_trip]);
    bed.run.run_until(at(WARM_UP_SECONDS));
    let before = bed.counters(0).segments_sent;
    bed.run.run_until(at(WARM_UP_SECONDS + seconds));
    (bed.counters(0).segments_sent - before) as f64
}

#[test]
fn each_variant_sends_as_in_ns2() {
    for (agent, variant) in [("Reno", Variant::Reno), ("Newreno", Variant::NewReno), ("Sack1", Variant::Sack)]
    {
        let mut ratios = Vec::new();
        for row in NS2.lines().skip(1).filter(|row| row.split(',').next() == Some(agent)) {
            let numbers: Vec<f64> = row.split(',').skip(1).map(|number| number.parse().unwrap()).collect();
            let &[b, p, rtt_ms, seconds, segments] = numbers.as_slice() else { panic!("{row}") };
            let round_trip = headwater_netsim::chance::seconds(rtt_ms / 1_000.0);
            let ratio = simulated(variant, if b > 1.0 { 2 } else { 1 }, p, round_trip, seconds) / segments;
            let what = format!("{agent}, b = {b}, p = {p}, {rtt_ms} ms");
            println!("{what}: {ratio:.3} of ns-2's");
            assert_between(&what, "rate over ns-2's", ratio, 1.0 - DIFFERENCE_MAX, 1.0 + DIFFERENCE_MAX);
            ratios.push(ratio);
        }
        assert_eq!(ratios.len(), 12, "{agent}");
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        println!("{agent}: {mean:.3} of ns-2's on average");
        assert_between(agent, "mean", mean, 1.0 - MEAN_DIFFERENCE_MAX, 1.0 + MEAN_DIFFERENCE_MAX);
    }
}
