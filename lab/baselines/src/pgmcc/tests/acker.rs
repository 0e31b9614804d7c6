//! Who becomes the acker, and at what rate it lets the sender send.

use super::group;
use crate::group::at;
use crate::pgmcc::throughput;
use headwater_proto::measure::throughput as equation;

#[test]
fn the_models_throughput_falls_with_the_round_trip_and_with_loss() {
    assert_eq!(throughput(0.1, 0.0), throughput(0.1, 1e-9), "no loss is the least that 16 bits tell");
    // 1/(.1 * .1 * (1 + 9 * .01 * (1 + 32 * .0001)))
    assert!((throughput(0.1, 0.01) - 91.719).abs() < 0.01, "{}", throughput(0.1, 0.01));
    assert!((throughput(0.2, 0.01) * 2.0 - throughput(0.1, 0.01)).abs() < 1e-9);
}

#[test]
fn the_first_to_answer_is_the_acker_and_clocks_the_sender() {
    let mut network = group().with(1, 100, |_| false);
    network.run_until(at(5_000));
    assert_eq!(network.acker(), Some(0));
    let counters = *network.sender.counters();
    assert_eq!((counters.timeouts, counters.elections, counters.halvings), (0, 1, 0));
    // From 4 on one packet more each round trip of 0.1 s.
    let window = network.sender.window().packets();
    assert!((40.0..55.0).contains(&window), "{window}");
    assert!((network.sender.srtt().unwrap() - 0.1).abs() < 1e-3);
}

#[test]
fn losses_at_a_distance_give_the_rate_of_tcp() {
    for (rtt_ms, gap, loss) in
        [(100, 100, (|packet| packet % 100 == 0) as fn(u64) -> bool), (40, 400, |packet| packet % 400 == 0)]
    {
        let mut network = group().with(1, rtt_ms, loss);
        network.run_until(at(20_000));
        let before = network.packets();
        network.run_until(at(80_000));
        let rate = (network.packets() - before) as f64 / 60.0;
        let wanted = equation(rtt_ms as f64 / 1e3, 1.0 / gap as f64);
        // Losses that come like clockwork cost no timeouts, which the equation reckons with.
        assert!((0.9..1.35).contains(&(rate / wanted)), "{rate} packets/s, the equation has {wanted}");
        assert_eq!(network.sender.counters().timeouts, 0);
    }
}

#[test]
fn the_receiver_with_the_worst_path_becomes_the_acker() {
    let mut network = group().with(2, 50, |packet| packet % 200 == 0);
    network.add(50, |packet| packet % 40 == 7);
    network.add(200, |packet| packet % 40 == 9);
    network.run_until(at(60_000));
    assert_eq!(network.acker(), Some(3));
    let elections = network.sender.counters().elections;
    network.run_until(at(120_000));
    assert_eq!((network.acker(), network.sender.counters().elections), (Some(3), elections), "and stays it");
}

#[test]
fn a_slower_receiver_that_joins_becomes_the_acker() {
    let mut network = group().with(3, 50, |packet| packet % 400 == 0);
    network.run_until(at(30_000));
    let before = network.sender.window().packets();
    network.add(50, |packet| packet % 25 == 0);
    network.run_until(at(50_000));
    assert_eq!(network.acker(), Some(3));
    assert!(network.sender.window().packets() < before / 2.0);
}

#[test]
fn an_acker_that_goes_is_replaced_after_two_timeouts() {
    let mut network = group().with(1, 50, |packet| packet % 50 == 0);
    network.add(50, |packet| packet % 400 == 0);
    network.run_until(at(30_000));
    assert_eq!(network.acker(), Some(0));
    let elections = network.sender.counters().elections;
    network.members[0].is_cut = true;
    network.run_until(at(40_000));
    assert_eq!(network.acker(), Some(1));
    assert_eq!(network.sender.counters().elections, elections + 1);
    assert!(network.sender.window().packets() > 4.0);
}

#[test]
fn few_of_many_receivers_offer_themselves() {
    let mut network = group().with(500, 50, |_| false);
    network.run_until(at(2_000));
    let offered: u64 = network.members.iter().map(|member| u64::from(member.reports > 0)).sum();
    assert!((1..30).contains(&offered), "{offered} of 500");
}

#[test]
fn with_no_receivers_a_packet_leaves_each_eight_seconds() {
    let mut network = group();
    network.run_until(at(100_000));
    let before = network.packets();
    network.run_until(at(180_000));
    assert_eq!(network.packets() - before, 10);
    assert!(network.sender.acker().is_none());
}
