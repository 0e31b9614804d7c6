//! The suite that every congestion control passes, whatever its rates.

use headwater_proto::control::{Arrival, Departure, Membership, ReceiverControl, SenderControl};
use headwater_proto::{ChannelId, Duration, Instant};

const HORIZON: Instant = Instant::from_nanos(30_000_000_000);
const PACKET_BYTES: usize = 1_440;
pub const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

/// The departures of a sender that is driven `late` behind each due time.
fn departures(sender: &mut impl SenderControl, late: Duration) -> Vec<(Instant, Departure)> {
    let mut departures = Vec::new();
    let mut now = Instant::ZERO;
    loop {
        let next = sender.next_departure().into_iter().chain(sender.poll_timeout()).min();
        let Some(next) = next.filter(|next| *next < HORIZON) else { return departures };
        now = now.max(next) + late;
        sender.timeout(now);
        while let Some(departure) = sender.departure(now) {
            assert!(sender.next_departure().is_some_and(|at| at <= now), "what departs was due");
            assert_eq!(sender.departure(now), Some(departure), "asking does not use the departure up");
            departures.push((now, departure));
            if let Some(envelope) = sender.envelope() {
                envelope.seal(now, &mut [0; PACKET_BYTES]);
            }
            sender.departed(now, PACKET_BYTES);
        }
        assert!(sender.next_departure().is_none_or(|at| at > now), "nothing due is held back");
    }
}

/// Checks a sender, made anew for each question.
pub fn check_sender<C: SenderControl>(mut make: impl FnMut() -> C) {
    let first = departures(&mut make(), Duration::ZERO);
    assert!(!first.is_empty(), "a sender that is let sends");
    assert_eq!(first, departures(&mut make(), Duration::ZERO), "same inputs, same departures");
    let control = make();
    for (_, departure) in &first {
        assert!(departure.channel.0 < control.channels());
        assert!(departure.level < control.levels());
    }
    assert_eq!(
        control.layering().is_some(),
        control.levels() > 1,
        "several levels can be asked what they send"
    );
    if let Some(layering) = control.layering() {
        assert_eq!(layering.levels(), control.levels());
        let (from, to) =
            (Instant::ZERO, layering.next_boundary(Instant::ZERO).unwrap_or(HORIZON).min(HORIZON));
        for level in 0..layering.levels() {
            let sent = |(_, departure): &&(_, Departure)| {
                departure.level == level && (from..to).contains(&departure.at)
            };
            let counted = layering.packets(level, from, to);
            assert_eq!(first.iter().filter(sent).count() as u64, counted, "level {level} sends what it says");
        }
    }
    assert!(
        first.iter().any(|(_, departure)| departure.channel == ChannelId::BASE),
        "the base is never silent"
    );

    // A driver that comes 2 ms late each time sends as much, to within what is due in that time.
    let late = departures(&mut make(), Duration::from_millis(2));
    let difference = first.len().abs_diff(late.len());
    assert!(difference * 100 <= first.len(), "{} packets on time, {} late", first.len(), late.len());

    // A machine that slept for a year wakes up at once, and makes up for next to nothing.
    let (mut slept, now) = (make(), Instant::ZERO + Duration::from_secs(31_536_000));
    slept.timeout(now);
    let mut packets = 0;
    while slept.departure(now).is_some() {
        slept.departed(now, PACKET_BYTES);
        packets += 1;
    }
    assert!(packets < 100, "{packets} packets at once");
}

/// Checks a receiver that hears a sender.
pub fn check_receiver<S: SenderControl, R: ReceiverControl>(mut sender: S, mut receiver: R) {
    let mut held = vec![false; usize::from(sender.channels())];
    let mut apply = |receiver: &mut R| {
        while let Some(membership) = receiver.poll_membership() {
            let (channel, joined) = match membership {
                Membership::Join(channel) => (channel, true),
                Membership::Leave(channel) => (channel, false),
            };
            let held = &mut held[usize::from(channel.0)];
            assert_ne!(*held, joined, "joins what is not held, leaves what is");
            *held = joined;
        }
        held.clone()
    };
    receiver.start(Instant::ZERO);
    assert!(apply(&mut receiver)[0], "the base channel comes first");
    for (now, departure) in departures(&mut sender, Duration::ZERO) {
        receiver.timeout(now);
        if apply(&mut receiver)[usize::from(departure.channel.0)] {
            let arrival = Arrival {
                source: SENDER.into(),
                channel: departure.channel,
                cci: &departure.cci,
                ecn: departure.ecn,
                bytes: PACKET_BYTES,
                lateness: Duration::ZERO,
            };
            receiver.arrived(now, &arrival);
        }
        apply(&mut receiver);
    }
    let reception = receiver.reception();
    assert!(reception.packets > 0);
    assert_eq!(reception.lost, 0, "nothing was lost");

    receiver.stop(HORIZON);
    assert!(apply(&mut receiver).iter().all(|held| !held), "stop gives everything up");
    receiver.start(HORIZON);
    assert!(apply(&mut receiver)[0], "and it can begin again");
    receiver.stop(HORIZON);
    receiver.start(HORIZON);
    receiver.stop(HORIZON);
    assert!(apply(&mut receiver).iter().all(|held| !held), "wishes that were not taken cancel out");
}
