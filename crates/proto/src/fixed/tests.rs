use headwater_wire::cci::WebrcCci;

use super::*;
use crate::control::{Arrival, Membership, ReceiverControl, SenderControl};
use crate::machine::{ChannelId, Ecn};
use crate::rate::Rate;
use crate::time::Instant;

#[test]
fn the_sender_keeps_its_rate() {
    let mut sender = FixedSender::new(Rate::from_kilobits(8_000), Instant::ZERO);
    let end = Instant::from_nanos(1_000_000_000);
    let mut packets = 0;
    while let Some(at) = sender.next_departure().filter(|at| *at < end) {
        assert!(sender.departure(at).is_some());
        sender.departed(at, 1_000);
        packets += 1;
    }
    assert_eq!(packets, 1_000);
}

#[test]
fn a_departure_is_due_no_sooner_than_said() {
    let mut sender = FixedSender::new(Rate::from_kilobits(8_000), Instant::ZERO);
    sender.departed(Instant::ZERO, 1_000);
    assert!(sender.departure(Instant::from_nanos(999_999)).is_none());
    assert!(sender.departure(Instant::from_nanos(1_000_000)).is_some());
}

fn arrival(cci: &Cci) -> Arrival<'_> {
    let source = ([192, 0, 2, 1], 4_242).into();
    Arrival {
        source,
        channel: ChannelId::BASE,
        cci,
        ecn: Ecn::NotCapable,
        bytes: 1,
        lateness: Duration::ZERO,
    }
}

#[test]
fn the_receiver_counts_holes() {
    let mut receiver = FixedReceiver::new();
    receiver.start(Instant::ZERO);
    assert_eq!(receiver.poll_membership(), Some(Membership::Join(ChannelId::BASE)));
    for sequence in [65_534, 65_535, 2, 1, 5] {
        let cci = WebrcCci { slot: 0, channel: 0, sequence }.short().unwrap();
        receiver.arrived(Instant::ZERO, &arrival(&cci));
    }
    let reception = receiver.reception();
    assert_eq!((reception.packets, reception.lost), (5, 3), "0, 3 and 4 are missing");
}

#[test]
fn time_away_is_no_loss() {
    let mut receiver = FixedReceiver::new();
    let arrive = |receiver: &mut FixedReceiver, sequence| {
        let cci = WebrcCci { slot: 0, channel: 0, sequence }.short().unwrap();
        receiver.arrived(Instant::ZERO, &arrival(&cci));
    };
    receiver.start(Instant::ZERO);
    arrive(&mut receiver, 10);
    receiver.stop(Instant::ZERO);
    receiver.start(Instant::ZERO);
    arrive(&mut receiver, 1_000);
    arrive(&mut receiver, 1_001);
    assert_eq!(receiver.reception().lost, 0);
}
