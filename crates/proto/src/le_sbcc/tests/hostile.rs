//! Receivers that lie.

use super::*;
use crate::le_sbcc::{Chain, Indication, LeSbccConfig};
use crate::rate::Rate;

const SEGMENT: u16 = 1_000;

fn flood(config: LeSbccConfig, receivers: u32, fresh: bool) -> Chain {
    let mut chain = Chain::new(config, stream(3), Instant::ZERO);
    let mut number = 0;
    for step in 0..200_000_u32 {
        let now = Instant::ZERO + Duration::from_micros(u64::from(step) * 500);
        number = if fresh { number + 1 } else { step % receivers };
        // Now as if just sent, now as if sent ages ago.
        let sent = if step % 2 == 0 { now - Duration::from_micros(1) } else { Instant::ZERO };
        chain.indication(
            now,
            &Indication { receiver: address(number), sent, noticed: (step % 3 != 0).then_some(sent) },
        );
        if chain.poll_timeout() <= now {
            chain.timeout(now);
        }
    }
    chain
}

#[test]
fn no_flood_brings_the_rate_below_the_floor_or_grows_the_state() {
    let config =
        LeSbccConfig::new(SEGMENT).with_initial_rate(Rate::from_kilobits(100_000)).with_receivers_max(1_000);
    let floor = f64::from(SEGMENT) * 8.0 / config.floor_period().as_secs_f64();
    for (receivers, fresh) in [(1, false), (100, false), (0, true)] {
        let chain = flood(config, receivers, fresh);
        let bits = chain.rate().as_bits() as f64;
        assert!(bits >= floor, "{bits} below {floor}, with {receivers} receivers");
        assert!(chain.receivers().len() <= 1_001);
        assert!(chain.round_trip().srtt() <= 2.0 && chain.round_trip().sigma() <= 2.0);
    }
}

#[test]
fn an_operator_may_set_a_higher_floor() {
    let least = Rate::from_kilobits(500);
    let config =
        LeSbccConfig::new(SEGMENT).with_min_rate(least).with_initial_rate(Rate::from_kilobits(9_000));
    assert!(flood(config, 100, false).rate() >= least);
}

#[test]
fn one_liar_of_old_packets_reduces_the_rate_once() {
    let mut chain = Chain::new(LeSbccConfig::new(SEGMENT), stream(1), Instant::ZERO);
    for step in 0..10_000 {
        let now = at(1_000 + step);
        chain.indication(now, &Indication { receiver: address(1), sent: at(900), noticed: Some(at(900)) });
    }
    assert_eq!(chain.counters().reductions, 1, "a packet is lost once for each time it is sent");
    assert_eq!(chain.counters().indications, 10_000);
}

#[test]
fn receivers_beyond_the_bound_count_as_one() {
    let mut chain = Chain::new(LeSbccConfig::new(SEGMENT).with_receivers_max(1), stream(1), Instant::ZERO);
    for number in 0..1_000 {
        let now = at(1_000);
        chain.indication(
            now,
            &Indication { receiver: address(number), sent: at(900), noticed: Some(at(900)) },
        );
    }
    assert_eq!(chain.counters().events, 2);
}
