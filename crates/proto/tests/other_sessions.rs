//! What a receiver makes of other sessions on its group, and of a sender that is started again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;

use bench::{Bench, close, complete, fdt, file, symbol};
use headwater_proto::delivery::{DeliveryReceiverConfig, OTHERS_MAX, ReceiverEvent, SILENCE, SessionEvent};
use headwater_wire::fdt::Headwater;

const ELSEWHERE: &str = "192.0.2.99:4000";

/// The receiver has one of the two symbols of its file.
fn under_way() -> Bench {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &complete(vec![file(1, "a", 10, 5)])));
    bench.give(&symbol(1, 0, b"01234"));
    bench
}

fn told(bench: &Bench, is_told: impl Fn(&ReceiverEvent) -> bool) -> usize {
    bench.events.iter().filter(|event| is_told(event)).count()
}

fn others(bench: &Bench) -> usize {
    told(bench, |event| matches!(event, ReceiverEvent::Session(SessionEvent::Other { .. })))
}

fn superseded(bench: &Bench) -> usize {
    told(bench, |event| matches!(event, ReceiverEvent::Session(SessionEvent::Superseded { .. })))
}

fn silence_ms() -> u64 {
    SILENCE.as_nanos() / 1_000_000
}

#[test]
fn another_session_is_told_of_once_and_does_not_disturb() {
    let mut bench = under_way();
    for _ in 0..50 {
        bench.give_from(ELSEWHERE, &symbol(1, 1, b"wrong"));
        bench.wait(silence_ms() / 2);
        bench.give(&symbol(1, 0, b"01234"));
    }
    assert_eq!((others(&bench), superseded(&bench)), (1, 0));
    bench.give(&symbol(1, 1, b"56789"));
    assert_eq!(bench.received(), [("a", b"0123456789".as_slice())]);
}

#[test]
fn a_silent_session_makes_way_for_another_one() {
    let mut bench = under_way();
    bench.give_from(ELSEWHERE, &symbol(1, 1, b"56789"));
    bench.wait(silence_ms() - 100);
    bench.give_from(ELSEWHERE, &symbol(1, 1, b"56789"));
    assert!(!bench.receiver.is_ended() && bench.holds, "it has not been silent for long enough");
    bench.wait(200);
    assert!(!bench.receiver.is_ended(), "silence alone ends nothing");
    bench.give_from(ELSEWHERE, &symbol(1, 1, b"56789"));
    assert!(bench.receiver.is_ended() && !bench.holds);
    assert_eq!(
        bench.events.last(),
        Some(&ReceiverEvent::Session(SessionEvent::Superseded {
            tsi: 1,
            source: ELSEWHERE.parse().unwrap()
        }))
    );
    assert!(bench.received().is_empty(), "nothing of the other session was taken");
}

#[test]
fn what_is_whole_makes_way_for_nobody() {
    let mut bench = under_way();
    bench.give(&symbol(1, 1, b"56789"));
    bench.wait(2 * silence_ms());
    bench.give_from(ELSEWHERE, &symbol(1, 1, b"56789"));
    assert_eq!(superseded(&bench), 0);
    assert!(matches!(bench.events.last(), Some(ReceiverEvent::SessionCompleted { refused: 0 })));
}

#[test]
fn before_a_session_is_found_there_is_none_to_replace() {
    let mut bench = Bench::new();
    bench.wait(2 * silence_ms());
    bench.give_from(ELSEWHERE, &close());
    assert_eq!((others(&bench), superseded(&bench)), (0, 0));
    assert_eq!(told(&bench, |event| matches!(event, ReceiverEvent::Session(SessionEvent::Found { .. }))), 1);
}

#[test]
fn only_the_first_others_are_told_of() {
    let mut bench = under_way();
    for host in 0..=255 {
        bench.give_from(&format!("198.51.100.{host}:4000"), &close());
    }
    assert_eq!((others(&bench), bench.dropped().foreign), (OTHERS_MAX, 256));
}

/// Our own sender numbers instances by the time of day; others begin with 0 each time. The new description is
/// not even read, so that only the digest stands between two contents.
#[test]
fn a_restart_that_uses_an_instance_again_for_other_content_never_makes_a_wrong_file() {
    let mut bench = Bench::new();
    let described = |digest| {
        let mut file = file(1, "a", 10, 5);
        file.headwater = Headwater { block_digests: vec![digest], ..Headwater::default() };
        fdt(0, &complete(vec![file]))
    };
    bench.give(&described([7; 16]));
    bench.give(&symbol(1, 0, b"old.."));
    bench.give(&described([8; 16]));
    for _ in 0..100 {
        for esi in 0..2 {
            bench.give(&symbol(1, esi, b"new.."));
        }
    }
    assert_eq!(told(&bench, |event| matches!(event, ReceiverEvent::FileMismatch { .. })), 1);
    assert_eq!((bench.received().len(), bench.refusals()), (0, 0));
    assert!(bench.receiver.is_ended(), "it does not go on for ever");
}

#[test]
fn a_session_that_is_not_wanted_again_makes_way_for_the_next_one() {
    let mut bench = Bench::with(DeliveryReceiverConfig::default().with_except(Some(1)));
    let began = bench.receiver.quiet_since();
    bench.give(&fdt(0, &complete(vec![file(1, "a", 5, 5)])));
    bench.give(&symbol(1, 0, b"01234"));
    assert!(bench.receiver.quiet_since() > began, "a session that goes on is no silence");
    assert!(bench.events.is_empty() && !bench.receiver.is_ended(), "{:?}", bench.events);
    assert_eq!(bench.dropped().foreign, 2);
}

/// A sender that was killed and started again with the same TSI, as `headwater send --tsi` does.
#[test]
fn a_sender_that_was_started_again_with_other_content_replaces_its_session() {
    let restarted = "192.0.2.1:5000";
    let of = |digest, names: &[&str]| {
        let entry = |(toi, name): (usize, &&str)| {
            let mut file = file(toi as u128 + 1, name, 10, 5);
            file.headwater = Headwater { digest: Some([digest; 32]), ..Headwater::default() };
            file
        };
        complete(names.iter().enumerate().map(entry).collect())
    };
    // The same files; another content; a file less.
    let restarts = [(7, &["a", "b"][..], 0), (8, &["a", "b"], 1), (7, &["a"], 1)];
    // Once the first sender is silent, the FDT of the restart arrives again, or a later FDT.
    let cases = restarts.into_iter().flat_map(|restart| [(restart, 1), (restart, 2)]);
    for ((digest, names, replaced), instance) in cases {
        let mut bench = Bench::new();
        bench.give(&fdt(0, &of(7, &["a", "b"])));
        bench.give(&symbol(1, 0, b"old.."));
        bench.wait(silence_ms() - 100);
        bench.give_from(restarted, &fdt(1, &of(digest, names)));
        assert_eq!(superseded(&bench), 0, "the first sender may still send");
        bench.wait(200);
        bench.give_from(restarted, &symbol(1, 0, b"new.."));
        bench.give_from(restarted, &fdt(instance, &of(digest, names)));
        assert_eq!(superseded(&bench), replaced, "{digest} {names:?} {instance}");
        assert_eq!(bench.receiver.is_ended(), replaced > 0);
        if replaced > 0 {
            let (tsi, source) = (1, restarted.parse().unwrap());
            let event = ReceiverEvent::Session(SessionEvent::Superseded { tsi, source });
            assert_eq!(bench.events.last(), Some(&event));
        }
    }
}
