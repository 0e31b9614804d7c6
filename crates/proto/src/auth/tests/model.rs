//! Operations model: a receiver among losses, reorderings, copies, changed packets and joins.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Send(u8),
    Lose(u8),
    /// The packet before last again, or another earlier one.
    Again(u8),
    Change {
        back: u8,
        at: u16,
        bits: u8,
    },
    Random(Vec<u8>),
    Millis(u8),
    Leave,
    Join,
    Shed,
    List(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u8..40).prop_map(Step::Send),
        4 => (1_u8..40).prop_map(Step::Lose),
        2 => any::<u8>().prop_map(Step::Again),
        4 => (any::<u8>(), any::<u16>(), 1_u8..).prop_map(|(back, at, bits)| Step::Change { back, at, bits }),
        1 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Step::Random),
        2 => any::<u8>().prop_map(Step::Millis),
        1 => Just(Step::Leave),
        1 => Just(Step::Join),
        1 => Just(Step::Shed),
        1 => any::<bool>().prop_map(Step::List),
    ]
}

/// Passes a packet, and checks that verified packets are genuine and come once.
fn give(
    front: &mut VerifyingFront<StandIn>,
    now: Instant,
    bytes: &[u8],
    sent: &BTreeSet<Vec<u8>>,
    had: &mut BTreeSet<Vec<u8>>,
) -> u64 {
    if front.on_packet(now, BASE, bytes) == AuthVerdict::Verified {
        assert!(sent.contains(bytes) && had.insert(bytes.to_vec()));
    }
    while let Some(released) = front.poll_released() {
        assert!(sent.contains(released.bytes) && had.insert(released.bytes.to_vec()));
    }
    assert!(front.memory_bytes() <= WAITING_BYTES_MAX + SAMPLE_BYTES + 20_000);
    1
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn verified_packets_are_genuine_and_come_once(steps in prop::collection::vec(step(), 1..80)) {
        let (mut source, mut front) = (source(), front());
        source.symbol_bytes = 40;
        let (mut now, mut given) = (Instant::ZERO, 0);
        let (mut list, mut sent, mut had) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for step in steps {
            let back = |back: u8, list: &[Vec<u8>]| list.iter().rev().nth(back.into()).cloned();
            match step {
                Step::Send(count) => for _ in 0..count {
                    let datagram = source.send();
                    sent.insert(datagram.clone());
                    given += give(&mut front, now, &datagram, &sent, &mut had);
                    list.push(datagram);
                    now += Duration::from_millis(1);
                },
                Step::Lose(count) => for _ in 0..count {
                    let datagram = source.send();
                    sent.insert(datagram.clone());
                    list.push(datagram);
                },
                Step::Again(place) => if let Some(datagram) = back(place, &list) {
                    given += give(&mut front, now, &datagram, &sent, &mut had);
                },
                Step::Change { back: place, at, bits } => if let Some(mut datagram) = back(place, &list) {
                    let at = usize::from(at) % datagram.len();
                    datagram[at] ^= bits;
                    given += give(&mut front, now, &datagram, &sent, &mut had);
                },
                Step::Random(bytes) => given += give(&mut front, now, &bytes, &sent, &mut had),
                Step::Millis(millis) => now += Duration::from_millis(millis.into()),
                Step::Leave => front.leave(BASE),
                Step::Join => front.join(BASE),
                Step::Shed => { source.end.shed(BASE); }
                Step::List(is_listed) => source.end.set_group(BASE, if is_listed { GROUP } else { 0 }).unwrap(),
            }
        }
        front.on_timeout(now + Duration::from_secs(10));
        prop_assert_eq!(front.counters().ended(), given);
        // Whatever came before, the sender's next packets are verified.
        for _ in 0..80 {
            let datagram = source.send();
            sent.insert(datagram.clone());
            give(&mut front, now, &datagram, &sent, &mut had);
            now += Duration::from_millis(11);
        }
        let last = source.send();
        prop_assert_eq!(front.on_packet(now, BASE, &last), AuthVerdict::Verified);
    }
}
