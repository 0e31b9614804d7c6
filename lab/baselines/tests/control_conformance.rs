//! Baselines of several rates pass the suite of all congestion controls.

#[path = "../../../crates/proto/tests/conformance/mod.rs"]
mod conformance;

use headwater_baselines::{rlc, rlm};
use headwater_proto::{Instant, Rate, Seed};

use conformance::{check_receiver, check_sender};

#[test]
fn rlc() {
    let layers = rlc::RlcConfig::new(1_440, Rate::from_kilobits(96), Rate::from_kilobits(3_072));
    let sender = || rlc::RlcSender::new(rlc::Layers::new(&layers, Instant::ZERO).expect("sound numbers"));
    check_sender(sender);
    check_receiver(
        sender(),
        rlc::RlcReceiver::new(layers, rlc::RlcReceiverConfig::new()).expect("sound numbers"),
    );
}

#[test]
fn rlm() {
    let config = rlm::RlmConfig::new(vec![Rate::from_kilobits(500); 4], 1_440).expect("four layers");
    let sender = || rlm::RlmSender::new(config.clone(), Instant::ZERO);
    check_sender(sender);
    check_receiver(sender(), rlm::RlmReceiver::new(&config, Seed(1)));
}
