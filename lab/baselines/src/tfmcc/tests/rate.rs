//! The rate that TFMCC finds, against the equation; silence and leaving.

use super::{Group, PACKET, group};
use crate::group::{Network, at};
use crate::tfmcc::{TfmccSender, TfmccSenderConfig};
use headwater_proto::measure::throughput;
use headwater_proto::rate::Rate;
use headwater_proto::time::Instant;

const NONE: fn(u64) -> bool = |_| false;

#[test]
fn losses_at_a_distance_give_the_equations_rate() {
    for (rtt_ms, gap, loss) in
        [(100, 100, (|packet| packet % 100 == 0) as fn(u64) -> bool), (40, 400, |packet| packet % 400 == 0)]
    {
        let mut network = group().with(1, rtt_ms, loss);
        network.run_until(at(60_000));
        let wanted = throughput(rtt_ms as f64 / 1e3, 1.0 / gap as f64);
        let rate = network.rate();
        assert!((rate / wanted - 1.0).abs() < 0.05, "{rate} packets/s, not {wanted}");
        let receiver = &network.members[0].receiver;
        assert!((receiver.rtt().unwrap() * 1e3 / rtt_ms as f64 - 1.0).abs() < 0.02, "{:?}", receiver.rtt());
        assert!((receiver.loss_event_rate().unwrap() * gap as f64 - 1.0).abs() < 0.05);
    }
}

#[test]
fn slow_start_doubles_until_the_first_loss() {
    // Two packets a second at first; the first report comes within the round of three seconds.
    let mut network = group().with(1, 100, |packet| packet >= 2_000 && packet % 100 == 0);
    network.run_until(at(6_000));
    assert!(network.sender.is_starting() && network.rate() > 8.0, "{}", network.rate());
    network.run_until(at(40_000));
    assert!(!network.sender.is_starting());
    assert!(network.rate() < 200.0, "{}", network.rate());
}

#[test]
fn the_receiver_with_the_worst_path_sets_the_rate() {
    // More loss at the second, a longer way to the third.
    let mut network = group().with(1, 50, |packet| packet % 200 == 0);
    network.add(50, |packet| packet % 100 == 0);
    network.add(150, |packet| packet % 100 == 50);
    network.run_until(at(120_000));
    assert_eq!(network.clr(), Some(2));
    assert!(network.members[2].receiver.is_clr() && !network.members[1].receiver.is_clr());
    let wanted = throughput(0.15, 0.01);
    assert!((network.rate() / wanted - 1.0).abs() < 0.1, "{} for {wanted}", network.rate());
}

#[test]
fn a_slower_receiver_that_joins_becomes_the_clr_within_rounds() {
    let mut network = group().with(3, 50, |packet| packet % 400 == 0);
    network.run_until(at(60_000));
    let before = network.rate();
    network.add(50, |packet| packet % 40 == 0);
    network.run_until(at(75_000));
    assert_eq!(network.clr(), Some(3));
    let wanted = throughput(0.05, 1.0 / 40.0);
    assert!(network.rate() < 1.3 * wanted, "{} of {before} for {wanted}", network.rate());
}

#[test]
fn when_the_clr_leaves_the_rate_waits_a_round_and_rises() {
    let mut network = group().with(1, 50, |packet| packet % 400 == 0);
    network.add(50, |packet| packet % 40 == 0);
    network.run_until(at(60_000));
    assert_eq!(network.clr(), Some(1));
    let before = network.rate();
    network.members[1].receiver.leave();
    network.run_until(at(60_200));
    assert!(network.rate() <= before * 1.01, "{} after {before}: within the round", network.rate());
    network.run_until(at(90_000));
    assert_eq!(network.clr(), Some(0));
    assert!(network.rate() > 2.0 * before, "{} after {before}", network.rate());
    let reports = network.members[1].reports;
    network.run_until(at(100_000));
    assert_eq!(network.members[1].reports, reports, "who left is silent");
}

#[test]
fn a_silent_clr_halves_the_rate_once_and_is_gone_after_ten_round_trips() {
    let mut network = group().with(1, 100, |packet| packet % 100 == 0);
    network.run_until(at(60_000));
    let before = network.rate();
    network.members[0].is_cut = true;
    network.run_until(at(60_350));
    assert!(network.rate() > 0.95 * before);
    network.run_until(at(60_650));
    assert!((network.rate() / before - 0.5).abs() < 0.05, "{} of {before}", network.rate());
    assert!(network.clr().is_some());
    network.run_until(at(61_200));
    assert!(network.clr().is_none());
    // Nobody reports: down to one packet in 8 s, and no lower.
    network.run_until(at(1_000_000));
    assert_eq!(network.sender.rate().as_bits(), 1_000);
    network.members[0].is_cut = false;
    network.run_until(at(1_200_000));
    assert!(network.rate() > 0.5 * before, "{} of {before}: it comes back", network.rate());
}

/// At most so many packets a second, which a lossless path carries.
fn at_most(packets_per_second: u64) -> Group {
    let most = Rate::from_bits(8 * u64::from(PACKET) * packets_per_second).unwrap();
    Network::new(TfmccSender::new(TfmccSenderConfig::new(PACKET).with_max_rate(most), Instant::ZERO))
}

#[test]
fn halvings_do_not_put_off_that_a_silent_clr_is_gone() {
    let mut network = at_most(10).with(1, 30, NONE);
    network.run_until(at(60_000));
    assert!(network.rate() > 9.9 && network.clr().is_some());
    let halvings = network.sender.counters().halvings;
    network.members[0].is_cut = true;
    network.run_until(at(60_500));
    assert_eq!(network.sender.counters().halvings, halvings + 1);
    network.run_until(at(61_000));
    assert!(network.clr().is_none(), "after 7.5 packets' time");
    assert_eq!(network.sender.counters().halvings, halvings + 1);
}

#[test]
fn at_a_slow_rate_a_lost_packet_is_no_silence() {
    let mut network = at_most(2).with(1, 20, |packet| packet > 100 && packet % 20 == 0);
    network.run_until(at(50_000));
    let (clr, halvings) = (*network.sender.clr().unwrap(), network.sender.counters().halvings);
    network.run_until(at(150_000));
    let now = network.sender.clr().unwrap();
    assert_eq!((now.id, now.since, network.sender.counters().halvings), (clr.id, clr.since, halvings));
    assert!(network.rate() > 1.9, "{}", network.rate());
}

#[test]
fn without_receivers_the_rate_falls_to_its_floor() {
    let mut network = group();
    network.run_until(at(1_000_000));
    assert_eq!(network.sender.rate().as_bits(), 1_000);
}

#[test]
fn without_loss_the_rate_goes_on_rising() {
    let mut network = group().with(2, 20, NONE);
    network.run_until(at(4_000));
    assert!(network.rate() > 1_000.0, "{}", network.rate());
}
