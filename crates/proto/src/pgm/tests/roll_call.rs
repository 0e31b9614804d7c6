//! The roll call before the first data.

use super::*;

fn called(receivers: usize, loss: Loss) -> Bed {
    let control =
        LeSbccConfig::new(200).with_doubling_at_start(true).with_assumed_rtt(true).with_blind_doubling(None);
    let chain = Chain::new(control, Seed(5).stream("source", 0), Instant::ZERO);
    let config = config(Mode::Pgm).with_roll_call(true).with_first_sequence(u32::MAX);
    let source = PgmSource::new(config, SourceControl::LeSbcc(Box::new(chain)), Instant::ZERO);
    Bed::new(source, receivers, loss)
}

fn indications(bed: &Bed) -> u64 {
    bed.source.chain().expect("it is under LE-SBCC").counters().indications
}

/// Receivers that never greet are heard all the same, before anything is lost, and what they answer is no
/// loss.
#[test]
fn each_receiver_asks_for_the_first_packet_before_it_is_sent() {
    for idle in [0, 10_000] {
        let mut bed = called(3, lossless());
        bed.run(Duration::from_millis(idle));
        assert_eq!(bed.upward, 0);
        let (began, first) = (bed.now, bed.source.rate().as_bits());
        let sent = messages(20);
        sent.iter().for_each(|message| assert!(bed.source.send(message)));
        bed.run(Duration::from_millis(190));
        assert_eq!((bed.source.counters().originals, bed.source.rate().as_bits()), (0, first));
        bed.run(Duration::from_millis(170));
        assert!(bed.source.counters().originals > 0, "{:?} after the first message", bed.now.since(began));
        assert_eq!(
            (bed.upward, bed.source.counters().asked),
            (3, 0),
            "each asked once, for what was not sent"
        );
        while bed.source.send(&[1; 100]) {}
        bed.run(Duration::from_secs(5));
        assert!(
            bed.source.rate().as_bits() >= 8 * first,
            "it was heard: {} bit/s",
            bed.source.rate().as_bits()
        );
        assert_eq!((indications(&bed), bed.source.counters().refused), (0, Refused::default()));
        for receiver in 0..3 {
            assert!(bed.messages(receiver).starts_with(&sent), "the first one, too");
            assert_eq!(bed.receivers[receiver].counters().lost, 0);
        }
    }
}

/// Whatever two packets in a row are lost, nobody begins behind the first message, but where they are the two
/// SPMs before the call.
#[test]
fn a_lost_call_costs_nobody_the_first_message() {
    for lost in 0..6 {
        let mut down = 0;
        let loss = move |_: &Packet<'_>, is_down: bool, _| {
            down += usize::from(is_down);
            is_down && (down == lost || down == lost + 1)
        };
        let mut bed = called(1, Box::new(loss));
        let sent = messages(20);
        bed.send_all(&sent, 20);
        // The first two that are lost together are a late start.
        let from = usize::from(lost == 1);
        assert!(bed.messages(0) == &sent[from..], "{lost}: {}", bed.messages(0).len());
    }
}

/// It heard nothing of the source before: the call alone would tell it to begin behind the first message.
#[test]
fn who_comes_in_a_pause_before_the_first_message_gets_it() {
    let mut bed = called(1, Box::new(|_, is_down, _| is_down));
    bed.run(Duration::from_secs(20));
    bed.loss = lossless();
    let sent = messages(3);
    bed.send_all(&sent, 5);
    assert_eq!((bed.messages(0), indications(&bed)), (&sent[..], 0));
    bed.run(Duration::from_secs(30));
    assert!(bed.source.counters().spms < 40, "{} of them", bed.source.counters().spms);
}

/// Its answers are late where it is far away: the packet is there by then, and is sent again, but was not
/// lost.
#[test]
fn a_late_answer_is_no_loss() {
    let mut bed = called(1, lossless());
    let sent = messages(20);
    bed.loss = Box::new(|packet, _, _| packet.body.kind() == Kind::Nak);
    bed.send_all(&sent[..1], 1);
    bed.give_source(host(2), &nak(u32::MAX, []));
    bed.give_source(host(3), &nak(u32::MAX, []));
    bed.loss = lossless();
    bed.send_all(&sent[1..], 20);
    assert_eq!((indications(&bed), bed.source.counters().repairs), (0, 1));
    assert!(bed.messages(0) == sent);
}

#[test]
fn many_answers_end_it() {
    let mut bed = called(1, lossless());
    let sent = messages(1);
    assert!(bed.source.send(&sent[0]));
    bed.run(Duration::from_millis(105));
    (0..63).for_each(|number| bed.give_source(host(number), &nak(u32::MAX, [])));
    bed.run(Duration::from_millis(1));
    assert_eq!(bed.source.counters().originals, 0);
    bed.give_source(host(63), &nak(u32::MAX, []));
    // The SPMs have to be paid for.
    bed.run(Duration::from_millis(100));
    assert_eq!(bed.source.counters().originals, 1);
}

/// Receivers were told of the first packet, and would wait for it.
#[test]
fn a_close_in_the_middle_sends_what_was_told_of() {
    let mut bed = called(1, lossless());
    let sent = messages(5);
    sent.iter().for_each(|message| assert!(bed.source.send(message)));
    bed.run(Duration::from_millis(150));
    bed.source.close();
    bed.run(Duration::from_secs(2));
    assert!(bed.messages(0) == &sent[..1]);
    assert_eq!(bed.events[0].last(), Some(&PgmReceiverEvent::Finished));
    assert_eq!(bed.receivers[0].counters().lost, 0);
}

/// OpenPGM's receivers give a packet up some 12 s after they missed it first: repairs of a long loss go
/// before new data.
#[test]
fn a_long_loss_is_repaired_sooner_than_new_data_goes_on() {
    let source =
        PgmSource::new(config(Mode::Pgm), SourceControl::Fixed(Rate::from_kilobits(100)), Instant::ZERO);
    let mut bed = Bed::new(source, 1, lossless());
    bed.send_all(&messages(1), 1);
    bed.loss = Box::new(|_, is_down, _| is_down);
    (0..400).for_each(|_| assert!(bed.source.send(&[1; 100])));
    // 100 packets a second.
    bed.run(Duration::from_secs(2));
    bed.loss = lossless();
    bed.run(Duration::from_millis(2_500));
    let counters = bed.receivers[0].counters();
    let new = counters.packets - counters.repaired;
    assert!(counters.missed > 180 && counters.repaired > 2 * new && new > 10, "{counters:?}");
}
