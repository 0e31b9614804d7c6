//! The stages in a row: when the rate falls, pauses and rises.

use super::*;
use crate::le_sbcc::{Chain, Epoch, Indication, LeSbccConfig, Module, Samples, Stage, Stages};
use crate::measure::throughput_with_timeout;
use crate::rate::Rate;

const SEGMENT: u16 = 560;

/// A chain whose round-trip time is 100 ms without deviation.
fn chain(config: LeSbccConfig) -> (Chain, Instant) {
    let mut chain = Chain::new(config.with_rtt(ms(100)), stream(1), Instant::ZERO);
    let mut now = Instant::ZERO;
    for _ in 0..500 {
        now += ms(1);
        chain.indication(now, &indication(9, now - ms(100)));
    }
    assert!((chain.round_trip().srtt() - 0.1).abs() < 1e-6 && chain.round_trip().sigma() < 1e-6);
    // Long enough for that to be past.
    while now < at(1_500) {
        now += ms(50);
        chain.idle();
        chain.timeout(now);
    }
    (chain, now)
}

fn indication(receiver: u32, sent: Instant) -> Indication {
    Indication { receiver: address(receiver), sent, noticed: Some(sent) }
}

fn config() -> LeSbccConfig {
    LeSbccConfig::new(SEGMENT).with_initial_rate(Rate::from_kilobits(8_000))
}

fn bits(chain: &Chain) -> f64 {
    chain.rate().as_bits() as f64
}

#[test]
fn a_reduction_halves_pauses_and_shuts_out_others_for_an_epoch() {
    for (epoch, shut) in [(Epoch::Code, 150), (Epoch::Text, 100)] {
        let (mut chain, now) = chain(config().with_epoch(epoch));
        let before = bits(&chain);
        assert_eq!(chain.indication(now, &indication(9, now - ms(100))), Stage::Reduction);
        assert!((bits(&chain) / before - 0.5).abs() < 1e-6);
        let silence = chain.silent_until().since(now).as_secs_f64();
        assert!((silence - 0.05).abs() < 1e-6, "half of SRTT + 4 sigma: {silence}");
        // The worst receiver's next one passes, if it is an event at all, but reduces nothing within the
        // epoch.
        let soon = now + ms(99);
        assert_eq!(chain.indication(soon, &indication(9, soon - ms(100))), Stage::Indication);
        let late = now + ms(shut) - ms(1);
        let stage = chain.indication(late, &indication(10, late - ms(100)));
        assert!(matches!(stage, Stage::Passed | Stage::Event), "{stage:?}");
        let after = now + ms(shut + 2);
        assert_eq!(chain.indication(after, &indication(9, after - ms(100))), Stage::Reduction, "{epoch:?}");
    }
}

#[test]
fn the_rate_rises_by_a_packet_each_round_trip_and_not_in_an_epoch() {
    let (mut chain, now) = chain(config());
    assert_eq!(chain.indication(now, &indication(9, now - ms(100))), Stage::Reduction);
    let halved = bits(&chain);
    let end = now + Duration::from_secs(10);
    while chain.poll_timeout() <= end {
        let due = chain.poll_timeout();
        chain.timeout(due);
        if due <= now + ms(149) {
            assert!((bits(&chain) - halved).abs() < 1.0, "raised within the epoch");
        }
    }
    let risen = (bits(&chain) - halved) / (8.0 * f64::from(SEGMENT) / 0.1);
    assert!((97.0..=99.5).contains(&risen), "{risen} packets each round trip more, after 98.5 of them");
}

#[test]
fn a_sample_begins_with_the_packet_behind_the_lost_one_or_with_the_lost_one() {
    for (samples, wanted) in [(Samples::Noticed, 0.2), (Samples::Sent, 0.3)] {
        let (mut chain, _) = chain(config().with_srtt_gain(1.0).with_samples(samples));
        chain.indication(at(1_300), &Indication { noticed: Some(at(1_100)), ..indication(1, at(1_000)) });
        assert!(
            (chain.round_trip().srtt() - wanted).abs() < 1e-9,
            "{samples:?}: {}",
            chain.round_trip().srtt()
        );
    }
}

#[test]
fn a_sender_that_has_nothing_to_send_does_not_save_up() {
    let (mut chain, mut now) = chain(config());
    let before = bits(&chain);
    for _ in 0..1_000 {
        now = now.max(chain.poll_timeout());
        chain.idle();
        chain.timeout(now);
    }
    assert!((bits(&chain) - before).abs() < 1.0);
}

#[test]
fn each_stage_can_be_left_out() {
    let burst = |stages: Stages| {
        let (mut chain, now) = chain(config().with_stages(stages));
        let base = *chain.counters();
        // 8 receivers lose the same packet, twice.
        for receiver in (20..28).chain(20..28) {
            chain.indication(now, &indication(receiver, now - ms(100)));
        }
        let counters = *chain.counters();
        (counters.events - base.events, counters.passed - base.passed, counters.reductions - base.reductions)
    };
    let (events, passed, reductions) = burst(Stages::ALL);
    assert_eq!((events, reductions), (8, 1));
    assert!(passed < 8);
    let (events, ..) = burst(Stages { li2le: false, ..Stages::ALL });
    assert_eq!(events, 16);
    let (events, passed, reductions) = burst(Stages { max_lprf: false, ..Stages::ALL });
    assert_eq!((events, passed, reductions), (8, 8, 1));
    let (_, passed, reductions) = burst(Stages { max_lprf: false, atf: false, ..Stages::ALL });
    assert_eq!((passed, reductions), (8, 8));
}

#[test]
fn tfrc_sends_what_the_equation_says() {
    let (mut chain, mut now) = chain(config().with_module(Module::Tfrc));
    for _ in 0..200 {
        (0..100).for_each(|_| chain.sent());
        now += ms(200);
        while chain.poll_timeout() <= now {
            chain.timeout(now);
        }
        assert_eq!(chain.indication(now, &indication(9, now - ms(100))), Stage::Reduction);
        assert!(chain.silent_until() <= now, "no pause");
    }
    let loss = chain.loss_event_rate().unwrap();
    assert!((loss - 0.01).abs() < 1e-4, "{loss}");
    let expected = 8.0 * 560.0 * throughput_with_timeout(0.1, 0.1, loss);
    assert!((bits(&chain) / expected - 1.0).abs() < 0.01, "{} {expected}", bits(&chain));
    // A round trip without events may raise it, when the open interval is long.
    (0..5_000).for_each(|_| chain.sent());
    chain.timeout(chain.poll_timeout());
    assert!(bits(&chain) > 1.5 * expected);
}

#[test]
fn tfrc_doubles_until_the_first_event_and_then_halves() {
    let config = LeSbccConfig::new(SEGMENT).with_rtt(ms(100)).with_module(Module::Tfrc);
    let mut chain = Chain::new(config, stream(1), Instant::ZERO);
    let mut now = Instant::ZERO;
    for doubling in 1..=4 {
        now = chain.poll_timeout();
        chain.timeout(now);
        let expected = 10.0 * 8.0 * 560.0 * f64::from(1 << doubling);
        assert!((bits(&chain) - expected).abs() < 2.0);
    }
    let before = bits(&chain);
    // A sample that changes neither mean nor, much, deviation.
    assert_eq!(chain.indication(now, &indication(1, now - ms(100))), Stage::Reduction);
    assert!((bits(&chain) / before - 0.5).abs() < 0.02, "{}", bits(&chain) / before);
    for _ in 0..200 {
        now = chain.poll_timeout();
        chain.timeout(now);
    }
    let mut quiet = Chain::new(config, stream(1), Instant::ZERO);
    (0..50).for_each(|_| quiet.timeout(quiet.poll_timeout()));
    assert!(bits(&quiet) <= 8.0 * 560.0 * 1_000.0 + 1.0, "a packet each ms at most before the first loss");
}

#[test]
fn aimd_may_start_as_tcp_does() {
    let config =
        LeSbccConfig::new(SEGMENT).with_rtt(ms(100)).with_doubling_at_start(true).with_assumed_rtt(true);
    let most = Rate::from_kilobits(1_000);
    let mut chain = Chain::new(config.with_max_rate(most), stream(1), Instant::ZERO);
    let mut now = Instant::ZERO;
    for doubling in 1..=4 {
        now = chain.poll_timeout();
        chain.timeout(now);
        assert!((bits(&chain) - 10.0 * 8.0 * 560.0 * f64::from(1 << doubling)).abs() < 2.0);
    }
    for _ in 0..3 {
        now = chain.poll_timeout();
        chain.timeout(now);
    }
    assert_eq!(chain.rate(), most);
    assert_eq!(chain.indication(now, &indication(1, now - ms(40))), Stage::Reduction);
    let round_trip = (chain.round_trip().srtt(), chain.round_trip().sigma());
    assert!((round_trip.0 - 0.04).abs() < 1e-6 && (round_trip.1 - 0.03).abs() < 1e-6, "{round_trip:?}");
    let halved = bits(&chain);
    while chain.poll_timeout() <= now + ms(500) {
        chain.timeout(chain.poll_timeout());
    }
    assert!(bits(&chain) > halved && bits(&chain) < 1.9 * halved, "{} after {halved}", bits(&chain));
}
