//! The binomial modules SQRT and IIAD (Bansal, Balakrishnan 2001).

use super::*;
use crate::le_sbcc::{Chain, Indication, LeSbccConfig, Module, Stage};
use crate::rate::Rate;
use crate::rng::unit;

const SEGMENT: u16 = 1_000;

/// A chain at 100 packets each round trip of 100 ms.
fn chain(config: LeSbccConfig) -> Chain {
    let rate = Rate::from_kilobits(8_000);
    let mut chain = Chain::new(config.with_rtt(ms(100)).with_initial_rate(rate), stream(1), Instant::ZERO);
    for millis in 0..500 {
        chain.indication(at(millis), &indication(at(millis)));
    }
    assert!((chain.round_trip().spacing() - 0.1).abs() < 1e-6);
    chain
}

fn indication(now: Instant) -> Indication {
    Indication { receiver: address(9), sent: now - ms(100), noticed: Some(now - ms(100)) }
}

fn window(chain: &Chain) -> f64 {
    chain.rate().as_bits() as f64 / 8.0 / f64::from(SEGMENT) * 0.1
}

#[test]
fn the_window_rises_and_falls_by_powers_of_itself() {
    for (module, up, down) in [
        (
            Module::Sqrt,
            (|w| 1.0 / libm::sqrt(w)) as fn(f64) -> f64,
            (|w| 2.0 / 3.0 * libm::sqrt(w)) as fn(f64) -> f64,
        ),
        (Module::Iiad, |w| 1.0 / w, |_| 2.0 / 3.0),
    ] {
        let mut chain = chain(LeSbccConfig::new(SEGMENT).with_module(module));
        let (mut now, mut before) = (at(2_000), 0.0);
        while chain.poll_timeout() <= now {
            before = window(&chain);
            chain.timeout(chain.poll_timeout());
        }
        assert!(
            (window(&chain) - before - up(before)).abs() < 1e-3,
            "{module:?}: {before} {}",
            window(&chain)
        );
        now = at(3_000);
        before = window(&chain);
        assert_eq!(chain.indication(now, &indication(now)), Stage::Reduction);
        assert!(
            (before - window(&chain) - down(before)).abs() < 1e-3,
            "{module:?}: {before} {}",
            window(&chain)
        );
        assert!(chain.silent_until() <= now, "no pause");
    }
}

#[test]
fn no_event_takes_more_than_half() {
    for module in [Module::Sqrt, Module::Iiad] {
        let config = LeSbccConfig::new(SEGMENT).with_module(module).with_rtt(ms(2_000));
        let mut chain = Chain::new(config, stream(1), Instant::ZERO);
        let before = chain.rate().as_bits() as f64;
        let now = at(3_000);
        let indication = Indication { receiver: address(1), sent: at(1_000), noticed: Some(at(1_000)) };
        assert_eq!(chain.indication(now, &indication), Stage::Reduction);
        assert!(chain.rate().as_bits() as f64 >= 0.5 * before - 1.0, "{module:?}");
    }
}

/// An overshoot of the start is up to twice the path's rate, of which a binomial step takes nearly nothing.
#[test]
fn the_first_loss_halves() {
    for module in [Module::Sqrt, Module::Iiad] {
        let config = LeSbccConfig::new(SEGMENT).with_module(module).with_doubling_at_start(true);
        let mut chain = Chain::new(config, stream(1), Instant::ZERO);
        while chain.poll_timeout() <= at(3_000) {
            chain.timeout(chain.poll_timeout());
        }
        let before = chain.rate().as_bits() as f64;
        let now = at(3_050);
        let indication = Indication { receiver: address(1), sent: at(3_049), noticed: Some(at(3_049)) };
        assert_eq!(chain.indication(now, &indication), Stage::Reduction);
        assert!((chain.rate().as_bits() as f64 / before - 0.5).abs() < 1e-3, "{module:?}");
    }
}

/// At random losses the window is TCP's, sqrt(3 / (2 p)), whatever the exponents.
#[test]
fn all_modules_send_as_much_at_the_same_losses() {
    let mean = |module: Module| {
        let mut chain = chain(LeSbccConfig::new(SEGMENT).with_module(module));
        let (mut draw, mut sum, mut rounds) = (stream(5), 0.0, 0.0);
        for round in 0..60_000_u64 {
            let now = at(2_000 + 100 * round);
            while chain.poll_timeout() <= now {
                chain.timeout(chain.poll_timeout());
            }
            if unit(&mut draw) < 0.001 * window(&chain) {
                chain.indication(now, &indication(now));
            }
            if round >= 10_000 {
                (sum, rounds) = (sum + window(&chain), rounds + 1.0);
            }
        }
        sum / rounds
    };
    let expected = libm::sqrt(1.5 / 0.001);
    for module in [Module::Sqrt, Module::Iiad] {
        let mean = mean(module);
        assert!((0.8..1.2).contains(&(mean / expected)), "{module:?}: {mean} for {expected}");
    }
}
