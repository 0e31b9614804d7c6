//! Sources with challenges, and receivers that return the words.

use headwater_wire::bcfs::WORD_BYTES;

use super::*;
use crate::control::ReceiverControl;

fn guarded() -> RainbowCarrierSenderConfig {
    config().with_challenges(Some([3; 32]))
}

fn worded() -> RainbowCarrierReceiverConfig {
    RainbowCarrierReceiverConfig::new(source(), source()).with_words()
}

fn forged(step: u32) -> SocketAddr {
    let [a, b, c, d] = step.wrapping_mul(2_654_435_761).to_be_bytes();
    SocketAddr::new([11 + a % 100, b, c, d].into(), 9)
}

#[test]
fn files_come_whole_over_more_minutes_than_a_word_is_valid() {
    let content = content(300_000);
    // Five minutes for 1172 symbols.
    let rate = Some(Rate::from_kilobits(9));
    let mut bed = Bed::new(
        sender(&[&content], guarded().with_max_rate(rate, 300), delivery::DeliverySenderConfig::new(7)),
        0.0,
    );
    bed.receiver_of(worded(), MemoryStore::new(1 << 24));
    bed.run(at(600_000));
    bed.assert_whole(0, &[&content]);
    assert!(bed.now > at(200_000), "{:?}", bed.now);
    let counters = bed.sender.control().counters();
    assert_eq!((counters.challenged, counters.unproven, counters.ignored), (1, 0, 0), "{counters:?}");
    assert!(counters.requests >= 1_172);
}

#[test]
fn lost_challenges_are_asked_for_again() {
    let content = content(60_000);
    let mut bed = Bed::new(sender(&[&content], guarded(), delivery::DeliverySenderConfig::new(7)), 0.2);
    bed.receiver_of(worded(), MemoryStore::new(1 << 24));
    bed.run(at(120_000));
    bed.assert_whole(0, &[&content]);
}

#[test]
fn a_source_without_challenges_serves_who_asks_for_words() {
    let content = content(60_000);
    let mut bed = Bed::new(sender(&[&content], config(), delivery::DeliverySenderConfig::new(7)), 0.0);
    bed.receiver_of(worded(), MemoryStore::new(1 << 24));
    bed.run(at(60_000));
    bed.assert_whole(0, &[&content]);
}

/// A source that is started again has another key: the receiver's word is wrong from then on.
#[test]
fn a_source_that_is_started_again_is_asked_with_its_own_word() {
    let content = content(400_000);
    let rate = Some(Rate::from_kilobits(1_000));
    let session = delivery::DeliverySenderConfig::new(7);
    let mut bed = Bed::new(sender(&[&content], guarded().with_max_rate(rate, 300), session), 0.0);
    bed.receiver_of(worded(), MemoryStore::new(1 << 24));
    bed.run(at(1_000));
    assert!(!bed.receivers[0].0.is_ended());
    let session = delivery::DeliverySenderConfig::new(7);
    bed.sender =
        sender(&[&content], config().with_challenges(Some([4; 32])).with_max_rate(rate, 300), session);
    bed.run(at(60_000));
    bed.assert_whole(0, &[&content]);
    // Requests in flight at the restart, each refused once.
    assert!((1..=60).contains(&bed.sender.control().counters().challenged));
}

/// 100 000 requests a second, each from an address of its own, some with words: a receiver that comes then
/// has its first packet within 2 s in each of 20 starts, and fewer bytes go to forged addresses than come
/// from them.
#[test]
fn a_new_receiver_is_served_beside_a_flood_from_forged_addresses() {
    let mut source = RainbowCarrierSender::new(guarded());
    let mut receivers: Vec<_> = (0..20)
        .map(|number| (host(number), RainbowCarrierReceiver::new(worded()), at(u64::from(number) * 20), None))
        .collect();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (mut from_forged, mut to_forged) = (0, 0);
    for step in 0..230_000_u32 {
        let now = at(0) + Duration::from_micros(10 * u64::from(step));
        for (address, receiver, start, served) in &mut receivers {
            if served.is_some() || now < *start {
                continue;
            }
            if now == *start {
                receiver.start(now);
            }
            if receiver.poll_timeout().is_some_and(|due| due <= now) {
                receiver.timeout(now);
            }
            while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
                give(&mut source, now, *address, &buffer[..transmit.bytes]);
            }
        }
        let payload = asking(1, &[u8::from(step % 2 == 0); 16]);
        from_forged += payload.len();
        give(&mut source, now, forged(step), &payload);
        while let Some(transmit) = source.poll_transmit(now, &mut buffer) {
            let Destination::Unicast(to) = transmit.destination else { panic!("unicast") };
            let receiver = receivers.iter_mut().find(|(address, ..)| *address == to);
            let Some((_, receiver, ..)) = receiver else {
                to_forged += transmit.bytes;
                continue;
            };
            let payload = &buffer[..transmit.bytes];
            let datagram = Datagram { source: super::source(), channel: None, ecn: Ecn::NotCapable, payload };
            ReceiverControl::envelope(receiver).unwrap().open(now, &datagram);
        }
        while source.departure(now).is_some() {
            let Destination::Unicast(to) = source.responder().unwrap().request().unwrap().destination else {
                panic!("unicast")
            };
            let served =
                receivers.iter_mut().find(|(address, ..)| *address == to).expect("no forged address");
            served.3.get_or_insert(now);
            source.departed(now, 1_000);
        }
    }
    for (address, _, start, served) in receivers {
        let wait = served.map(|served| served.since(start));
        assert!(wait.is_some_and(|wait| wait <= Duration::from_secs(2)), "{address}: {wait:?}");
    }
    assert!(to_forged < from_forged, "{to_forged} of {from_forged}");
    assert!(source.counters().challenged < 50_000);
}

fn give(source: &mut RainbowCarrierSender, now: Instant, from: SocketAddr, payload: &[u8]) {
    source.feedback(now, &Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload });
}

#[test]
fn a_challenge_is_for_the_address_that_asked() {
    let mut source = RainbowCarrierSender::new(guarded());
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    give(&mut source, at(0), host(1), &asking(1, &[0; 16]));
    let bytes = source.poll_transmit(at(0), &mut buffer).unwrap().bytes;
    let mut body = [0; 16];
    body[..WORD_BYTES].copy_from_slice(&buffer[bytes - WORD_BYTES..bytes]);
    give(&mut source, at(0), host(2), &asking(1, &body));
    assert_eq!(source.departure(at(0)), None);
    give(&mut source, at(0), host(1), &asking(1, &body));
    assert!(source.departure(at(0)).is_some());
    assert!(source.poll_transmit(at(0), &mut buffer).is_some(), "to the other");
    assert!(source.poll_transmit(at(0), &mut buffer).is_none());
}
