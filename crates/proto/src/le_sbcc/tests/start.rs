//! The start: no faster than receivers can answer, and a loss that is told late counts for what was sent
//! then.

use super::*;
use crate::le_sbcc::{Chain, Indication, LeSbccConfig, Module, Stage};
use crate::rate::Rate;
use crate::rng::unit;

const SEGMENT: u16 = 1_000;
/// A packet in 200 ms.
const FIRST: f64 = 40_000.0;

fn config(module: Module) -> LeSbccConfig {
    LeSbccConfig::new(SEGMENT).with_module(module).with_doubling_at_start(true).with_assumed_rtt(true)
}

fn chain(config: LeSbccConfig) -> Chain {
    Chain::new(config, stream(1), Instant::ZERO)
}

fn run(chain: &mut Chain, end: Instant) {
    while chain.poll_timeout() <= end {
        chain.timeout(chain.poll_timeout());
    }
}

#[track_caller]
fn assert_doublings(chain: &Chain, expected: f64) {
    let doublings = libm::log2(chain.rate().as_bits() as f64 / FIRST);
    assert!((doublings - expected).abs() < 1e-3, "{doublings}");
}

fn missed(receiver: u32, sent: u64, noticed: Option<u64>) -> Indication {
    Indication { receiver: address(receiver), sent: at(sent), noticed: noticed.map(at) }
}

#[test]
fn the_rate_doubles_as_fast_as_the_slowest_heard_can_answer() {
    for module in [Module::Aimd, Module::Tfrc] {
        // Nobody is heard: not at all, or slowly.
        let mut silent = chain(config(module).with_blind_doubling(None));
        run(&mut silent, at(10_000));
        assert_doublings(&silent, 0.0);
        let mut blind = chain(config(module).with_blind_doubling(Some(ms(2_000))));
        run(&mut blind, at(7_000));
        // Each 0.4 s by a fifth.
        assert_doublings(&blind, 3.4);
        // Heard after 10 s, so that nobody knows how far away it is: each 1.2 s, first after 0.4. A near one:
        // each SRTT + 2 sigma of those assumed.
        silent.heard(ms(10_000));
        run(&mut silent, at(13_900));
        assert_doublings(&silent, 3.0);
        for (answer, expected) in [(ms(20), 6.0), (ms(300), 4.0)] {
            let mut near = chain(config(module).with_blind_doubling(None));
            near.heard(answer);
            // It greets again, and others come: they are as far away as they were.
            near.heard(ms(1_100));
            run(&mut near, at(2_500));
            assert_doublings(&near, expected);
        }
    }
}

#[test]
fn a_loss_told_late_counts_for_the_rate_of_its_time() {
    for module in [Module::Aimd, Module::Tfrc] {
        let mut chain = chain(config(module));
        // 40 kbit/s, 80 from 0.4 s on, 160 from 0.8 s on, ..., 2560 from 2.4 s on.
        run(&mut chain, at(2_500));
        assert_doublings(&chain, 6.0);
        let rate = |chain: &Chain| chain.rate().as_bits() as f64 / FIRST;
        assert_eq!(chain.indication(at(2_500), &missed(1, 2_050, None)), Stage::Reduction);
        assert!((rate(&chain) - 16.0).abs() < 0.5, "half of 32: {}", rate(&chain));
        // Another one was hit before, and says so only now: whatever the filters make of it.
        chain.indication(at(2_600), &missed(2, 900, None));
        assert!((rate(&chain) - 2.0).abs() < 0.1, "half of 4: {}", rate(&chain));
        // It says so again, and what was sent faster was lost, too: known.
        for sent in [900, 901, 1_190, 1_500, 2_400] {
            chain.indication(at(2_601), &missed(2, sent, None));
            chain.indication(at(2_602), &missed(3, sent, None));
        }
        assert!((rate(&chain) - 2.0).abs() < 0.1, "{}", rate(&chain));
        // The very first packet, a quarter of a minute later: past.
        chain.indication(at(15_000), &missed(4, 0, None));
        assert!(rate(&chain) > 0.9, "{}", rate(&chain));
    }
}

#[test]
fn a_chain_without_a_start_of_its_own_halves_what_it_has() {
    let mut chain = Chain::new(LeSbccConfig::new(SEGMENT), stream(1), Instant::ZERO);
    run(&mut chain, at(10_000));
    let before = chain.rate().as_bits() as f64;
    chain.indication(at(10_000), &missed(1, 100, None));
    assert!((chain.rate().as_bits() as f64 / before - 0.5).abs() < 1e-6);
}

#[test]
fn what_a_receiver_says_before_it_knows_the_way_is_no_round_trip() {
    let mut chain = chain(config(Module::Aimd));
    chain.indication(at(3_000), &missed(1, 980, Some(1_000)));
    assert_eq!((chain.counters().samples, chain.round_trip().srtt()), (0, 0.2), "2 s of asking for the way");
    chain.indication(at(3_001), &missed(1, 2_880, Some(2_901)));
    assert!((chain.round_trip().srtt() - 0.1).abs() < 1e-9, "no round trip is longer than this");
    chain.indication(at(3_600), &missed(1, 3_100, Some(3_200)));
    assert!(chain.round_trip().srtt() > 0.13, "by now it knows the way: {:?}", chain.round_trip());
    chain.indication(at(3_601), &missed(2, 3_000, Some(3_101)));
    assert!(chain.round_trip().srtt() < 0.14, "another one may not");
}

/// Of holes that come close together only the first one's NAK is an event. Were the others' taken where they
/// are short, the mean would fall.
#[test]
fn losses_in_bursts_do_not_bring_the_round_trip_down() {
    let mut chain = chain(config(Module::Aimd));
    let mut draw = stream(2);
    // 20 ms there and back, 0 to 50 of back-off.
    let mut sample = || Duration::from_secs_f64(0.02 + 0.05 * unit(&mut draw));
    let (bursts, mut sum) = (400, 0.0);
    for burst in 0..2 * bursts {
        let noticed = at(1_000 * (burst + 1));
        let sent = noticed - ms(1);
        let event = noticed + sample();
        chain.indication(event, &Indication { receiver: address(1), sent, noticed: Some(noticed) });
        for _ in 0..9 {
            let (sent, noticed) = (event - ms(1), event);
            let now = noticed + sample();
            chain.indication(now, &Indication { receiver: address(1), sent, noticed: Some(noticed) });
        }
        if burst >= bursts {
            sum += chain.round_trip().srtt();
        }
    }
    let mean = sum / bursts as f64;
    assert!((mean - 0.045).abs() < 0.003, "{mean}");
}

/// One forged NAK for the first packet brings the rate down to half of what that one went at: the operator's
/// least rate holds all the same.
#[test]
fn one_nak_of_the_first_packet_leaves_the_least_rate() {
    let least = Rate::from_kilobits(500);
    for module in [Module::Aimd, Module::Tfrc] {
        for least in [None, Some(least)] {
            let config = match least {
                None => config(module),
                Some(least) => config(module).with_min_rate(least),
            };
            let mut chain = chain(config);
            run(&mut chain, at(4_500));
            let before = chain.rate();
            chain.indication(at(4_500), &missed(66, 0, None));
            assert!(chain.rate() >= least.unwrap_or(Rate::from_kilobits(18)), "{:?}", chain.rate());
            assert!(chain.rate().as_bits() < before.as_bits() / 4, "as docs/reference/wire/pgm.md says");
        }
    }
}
