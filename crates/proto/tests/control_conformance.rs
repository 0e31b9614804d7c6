//! What every congestion control must do, whatever its rates: one suite, run over all of them.

mod conformance;

use headwater_proto::controls::{self, Description, DescriptionError, ReceiverOptions};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender, Shape};
use headwater_proto::le_sbcc::{Chain, LeSbccConfig};
use headwater_proto::pgm::{PgmSession, carrier};
use headwater_proto::{Instant, Rate, Seed, fixed, flid};
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

/// Entries of the table whose ends need only their description. The other entries have tests of their own,
/// except Rainbow, which sends on request alone.
#[test]
fn entries_of_the_table() {
    let (base, max) = (Rate::from_kilobits(48), Rate::from_kilobits(3_000));
    let mut incomplete = Vec::new();
    for control in controls::CONTROLS {
        let description = Description::new(control).with_rates(1_440, base, max);
        let sender = || description.sender(Instant::ZERO);
        if let Err(DescriptionError::Incomplete(name)) = sender() {
            incomplete.push(name);
            continue;
        }
        check_sender(|| sender().expect("sound numbers"));
        let receiver = description.receiver(&ReceiverOptions::default());
        check_receiver(sender().expect("sound numbers"), receiver.expect("sound numbers"));
    }
    assert_eq!(
        incomplete,
        ["le-sbcc", "le-sbcc-tfrc", "le-sbcc-sqrt", "le-sbcc-iiad", "rainbow", "fixed", "dedicated"]
    );
}

#[test]
fn fixed() {
    let sender = || fixed::FixedSender::new(Rate::from_kilobits(3_000), Instant::ZERO);
    check_sender(sender);
    check_receiver(sender(), fixed::FixedReceiver::new());
    let rate = Rate::from_kilobits(3_000);
    let config = fixed::RateSearchConfig { start: rate, least: rate, most: rate };
    check_sender(|| fixed::FixedSender::searching(config, Instant::ZERO));
}

#[test]
fn le_sbcc() {
    let rate = Rate::from_kilobits(3_000);
    let group = [239, 255, 72, 87].into();
    let sender = || {
        let config = LeSbccConfig::new(1_440).with_initial_rate(rate).with_max_rate(rate);
        let chain = Chain::new(config, Seed(1).stream("chain", 0), Instant::ZERO);
        let session = PgmSession { gsi: Gsi::default(), source_port: 40_000, destination_port: 7_500, group };
        carrier::PgmCarrierSender::new(session, SENDER.0.into(), 1_024, chain, Instant::ZERO)
    };
    check_sender(sender);
    check_receiver(
        sender(),
        carrier::PgmCarrierReceiver::new(carrier::PgmCarrierReceiverConfig::new(group, Seed(2))),
    );
}

#[test]
fn flid() {
    let rate = Rate::from_kilobits(3_000);
    for config in
        [flid::FlidConfig::static_layers(1_440, rate), flid::FlidConfig::dynamic_layers(1_440, rate)]
    {
        let sender =
            || flid::FlidSender::new(flid::Layers::new(&config, Instant::ZERO).expect("sound numbers"));
        check_sender(sender);
        let receiver = flid::FlidReceiver::new(config, flid::FlidReceiverConfig::new());
        check_receiver(sender(), receiver.expect("sound numbers"));
    }
}
