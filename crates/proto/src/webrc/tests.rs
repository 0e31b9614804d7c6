//! The receiver against its sender over a path that is one drop-tail queue.

use super::*;
use crate::control::ReceiverControl;
use crate::layering::path::{BYTES, Run, at, measure};
use crate::layering::{DynamicConfig, Shape};
use crate::rate::Rate;

/// The RFC's own numbers, from one packet a second to a maximum in kbit/s.
fn layers(max: u64) -> DynamicConfig {
    DynamicConfig::new(BYTES, Rate::from_kilobits(max)).with_shape(Shape::Webrc)
}

fn run(max: u64, config: ReceiverConfig, rate: u64) -> Run<Receiver> {
    Run::new(layers(max), Receiver::new(layers(max), config).unwrap(), rate, 4, 5)
}

#[test]
fn a_receiver_alone_uses_its_link() {
    for (link, max) in [(1_000, 4_000), (4_000, 16_000)] {
        let mut run = run(max, ReceiverConfig::new(), link);
        run.start();
        let (rate, loss) = measure(&mut run, 100, 500);
        assert!(rate > 0.6 * link as f64, "{rate:.0} of {link} kbit/s, loss {loss:.3}");
        assert!(loss < 0.15, "loss {loss:.3} at {link} kbit/s");
    }
}

#[test]
fn a_cap_is_kept() {
    let config = ReceiverConfig::new().with_max_rate(Rate::from_kilobits(500));
    let mut run = run(4_000, config, 4_000);
    run.start();
    let (rate, loss) = measure(&mut run, 60, 260);
    assert!((300.0..=500.0).contains(&rate), "{rate:.0} kbit/s");
    assert_eq!(loss, 0.0);
}

#[test]
fn a_receiver_may_come_at_any_time_and_go() {
    let mut run = run(4_000, ReceiverConfig::new(), 1_000);
    run.until(at(123_456));
    run.start();
    let (rate, _) = measure(&mut run, 180, 280);
    assert!(rate > 500.0, "{rate:.0} kbit/s");
    run.receiver.stop(run.now);
    run.path.apply(run.now, &mut run.receiver);
    assert_eq!(run.held(), 0, "all is left");
}
