//! What every congestion control must do, whatever its rates: one suite, run over all of them.

mod conformance;

use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender, Shape};
use headwater_proto::le_sbcc::{Chain, Config};
use headwater_proto::pgm::{Session, carrier};
use headwater_proto::{Instant, Rate, Seed, fixed, flid, m2c, sim, webrc};
use headwater_wire::pgm::Gsi;

use conformance::{SENDER, check_receiver, check_sender};

#[test]
fn dynamic_channels() {
    for shape in [Shape::Geometric, Shape::Webrc] {
        check_sender(|| {
            let config = DynamicConfig::new(1_440, Rate::from_kilobits(3_000)).with_shape(shape);
            DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).expect("sound numbers"))
        });
    }
}

#[test]
fn m2c() {
    let layers =
        DynamicConfig::new(1_440, Rate::from_kilobits(3_000)).with_base_rate(Rate::from_kilobits(48));
    let sender = DynamicSender::new(DynamicChannels::new(layers, Instant::ZERO).expect("sound numbers"));
    let config = m2c::ReceiverConfig::new();
    check_receiver(sender, m2c::Receiver::new(layers, config).expect("sound numbers"));
}

#[test]
fn webrc() {
    let layers = DynamicConfig::new(1_440, Rate::from_kilobits(3_000)).with_shape(Shape::Webrc);
    let sender = DynamicSender::new(DynamicChannels::new(layers, Instant::ZERO).expect("sound numbers"));
    let config = webrc::ReceiverConfig::new();
    check_receiver(sender, webrc::Receiver::new(layers, config).expect("sound numbers"));
}

#[test]
fn fixed() {
    let sender = || fixed::Sender::new(Rate::from_kilobits(3_000), Instant::ZERO);
    check_sender(sender);
    check_receiver(sender(), fixed::Receiver::new());
}

#[test]
fn le_sbcc() {
    let rate = Rate::from_kilobits(3_000);
    let group = [239, 255, 72, 87].into();
    let sender = || {
        let config = Config::new(1_440).with_initial_rate(rate).with_max_rate(rate);
        let chain = Chain::new(config, Seed(1).stream("chain", 0), Instant::ZERO);
        let session = Session { gsi: Gsi::default(), source_port: 40_000, destination_port: 7_500, group };
        carrier::Sender::new(session, SENDER.0.into(), 1_024, chain, Instant::ZERO)
    };
    check_sender(sender);
    check_receiver(sender(), carrier::Receiver::new(carrier::ReceiverConfig::new(group, Seed(2))));
}

#[test]
fn flid() {
    let rate = Rate::from_kilobits(3_000);
    for config in [flid::Config::static_layers(1_440, rate), flid::Config::dynamic_layers(1_440, rate)] {
        let sender = || flid::Sender::new(flid::Layers::new(&config, Instant::ZERO).expect("sound numbers"));
        check_sender(sender);
        let receiver = flid::Receiver::new(config, flid::ReceiverConfig::new());
        check_receiver(sender(), receiver.expect("sound numbers"));
    }
}

#[test]
fn sim() {
    let config = sim::Config::new(5, 1_440);
    let sender = || sim::Sender::new(config.clone(), Instant::ZERO);
    check_sender(sender);
    check_receiver(sender(), sim::Receiver::new(config.clone(), Seed(1)));
}
