//! Same seed, same bytes on the wire, at the same nanoseconds, on every machine and in every build.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "the driver serves other tests too")]
mod pair;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{DeliverySenderConfig, End, PlanConfig};
use headwater_proto::{Instant, Rate, Seed};
use pair::{Link, Pair, content, sender};

fn trace(scheme: Scheme) -> String {
    let rate = Rate::from_kilobits(7_301);
    let contents = [content(1, 123_456), content(2, 1), content(3, 0), content(4, 40_000)];
    let plan = PlanConfig { scheme, symbol_size: 704, order: Order::Spread { rate: rate.as_bits() } };
    let config = DeliverySenderConfig::new(77).with_end(End::Passes(4)).with_ntp_at_zero(3_900_000_000);
    let links = [Link { loss: 0.1, ..Link::default() }, Link { loss: 0.97, ..Link::default() }];
    let mut pair = Pair::new(Seed(42), sender(&contents, plan, config, rate), &links);
    pair.run(Instant::from_nanos(60_000_000_000));
    assert!(pair.sender.is_finished());
    pair.trace()
}

#[test]
fn the_wire_is_the_same_everywhere() {
    let traces = [Scheme::NoCode, Scheme::ReedSolomon, Scheme::RaptorQ].map(trace);
    insta::assert_debug_snapshot!(traces);
}
