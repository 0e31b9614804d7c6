use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_millis(100);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn part(id: u16, offset: u32, payload: &[u8]) -> Part<'_> {
    Part { id, offset, length: None, is_over: false, payload }
}

fn buffer(assembler: &mut Assembler) -> Received {
    match assembler.poll() {
        Some(Delivery::Buffer(received)) => received,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_identifier_delivers_the_buffer_before() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &part(65_535, 4, b"efgh"));
    assembler.insert(at(0), &part(65_535, 0, b"abcd"));
    assembler.insert(at(0), &part(65_535, 12, b"mnop"));
    assert_eq!(assembler.poll(), None);
    assembler.insert(at(1), &part(0, 0, b"ABCD"));
    let received = buffer(&mut assembler);
    assert_eq!((received.id, &received.prefix[..]), (65_535, &b"abcdefgh"[..]));
    assert_eq!(received.pieces, [Piece { offset: 12, bytes: b"mnop".to_vec() }]);
    assert!(!received.is_whole());
    assert_eq!(assembler.poll(), None);
}

#[test]
fn a_whole_buffer_is_given_at_once_and_once() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &part(7, 4, b"efg"));
    assembler.insert(at(0), &Part { length: Some(7), ..part(7, 0, b"abcd") });
    let received = buffer(&mut assembler);
    assert!(received.is_whole());
    assert_eq!(received.prefix, b"abcdefg");
    assembler.insert(at(1), &Part { length: Some(7), is_over: true, ..part(7, 0, b"abcd") });
    assembler.insert(at(2), &part(8, 0, b"ABCD"));
    assert_eq!(assembler.poll(), None);
    assert_eq!((assembler.stats().duplicates, assembler.stats().whole), (1, 1));
}

#[test]
fn a_buffer_whose_time_is_over_is_given() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &part(7, 4, b"efgh"));
    assembler.insert(at(1), &Part { is_over: true, ..part(7, 0, b"abcd") });
    assert_eq!(buffer(&mut assembler).prefix, b"abcdefgh");
    assembler.insert(at(50), &part(7, 8, b"ijkl"));
    let piece = Piece { offset: 8, bytes: b"ijkl".to_vec() };
    assert_eq!(assembler.poll(), Some(Delivery::Late { id: 7, piece }));
}

#[test]
fn late_parts_count_for_a_while() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &part(7, 4, b"efgh"));
    assembler.insert(at(10), &part(8, 0, b"ABCD"));
    assert!(buffer(&mut assembler).prefix.is_empty());
    assembler.insert(at(100), &part(7, 0, b"abcd"));
    let piece = Piece { offset: 0, bytes: b"abcd".to_vec() };
    assert_eq!(assembler.poll(), Some(Delivery::Late { id: 7, piece }));
    assembler.insert(at(200), &part(7, 8, b"ijkl"));
    assembler.insert(at(200), &part(6, 0, b"xxxx"));
    assert_eq!(assembler.poll(), None);
    assert_eq!(assembler.stats().too_late, 2);
}

#[test]
fn whoever_wants_the_prefix_alone_gets_no_pieces() {
    let mut assembler = Assembler::new(1_000, GRACE).with_pieces(false);
    assembler.insert(at(0), &part(7, 0, b"abcd"));
    assembler.insert(at(0), &part(7, 9, b"jkl"));
    assembler.insert(at(1), &part(8, 5, b"x"));
    assembler.insert(at(1), &part(7, 4, b"efgh"));
    assert_eq!(buffer(&mut assembler), Received { id: 7, prefix: b"abcd".to_vec(), ..Received::default() });
    assert_eq!(assembler.poll(), None);
}

#[test]
fn a_forged_number_does_not_shut_out_what_follows() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &part(7, 0, b"abcd"));
    assembler.insert(at(0), &part(30_000, 0, b"evil"));
    for step in 0..100 {
        assembler.insert(at(1), &part(8 + step / 50, u32::from(step % 50) * 4, b"ABCD"));
    }
    assembler.finish(at(2));
    let ids: Vec<u16> = core::iter::from_fn(|| assembler.poll())
        .filter_map(|delivery| match delivery {
            Delivery::Buffer(received) => Some(received.id),
            Delivery::Late { .. } => None,
        })
        .collect();
    assert_eq!(ids, [7, 30_000, 8, 9]);
}

fn given(assembler: &mut Assembler) -> Vec<(u16, usize)> {
    let buffers = core::iter::from_fn(|| assembler.poll()).filter_map(|delivery| match delivery {
        Delivery::Buffer(received) => Some((received.id, received.prefix.len())),
        Delivery::Late { .. } => None,
    });
    buffers.collect()
}

/// Channels differ in delay, and a short buffer is repeated within its time.
#[test]
fn packets_of_a_whole_buffer_do_not_bring_it_back() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &Part { length: Some(4), ..part(7, 0, b"abcd") });
    assembler.insert(at(1), &part(8, 0, b"ABCD"));
    for _ in 0..40 {
        assembler.insert(at(1), &Part { length: Some(4), ..part(7, 0, b"abcd") });
    }
    assembler.insert(at(2), &part(8, 4, b"EFGH"));
    assembler.finish(at(3));
    assert_eq!(given(&mut assembler), [(7, 4), (8, 8)]);
}

/// A sender that began again counts from 0; at the least rate a buffer has few packets.
#[test]
fn numbers_that_go_back_are_followed_however_few_packets_come() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &part(500, 0, b"abcd"));
    for step in 0..40 {
        assembler.insert(at(u64::from(step)), &part(step / 5, u32::from(step % 5) * 4, b"ABCD"));
    }
    assembler.finish(at(100));
    let given = given(&mut assembler);
    assert_eq!(given[0], (500, 4));
    assert_eq!(&given[given.len() - 4..], [(4, 20), (5, 20), (6, 20), (7, 20)]);
}

#[test]
fn whoever_comes_after_its_time_collects_what_is_sent_again() {
    let mut assembler = Assembler::new(1_000, GRACE);
    let again = |part| Part { is_over: true, ..part };
    assembler.insert(at(0), &again(part(7, 4, b"efgh")));
    assert_eq!(assembler.poll(), None);
    assembler.insert(at(1), &again(Part { length: Some(8), ..part(7, 0, b"abcd") }));
    assert!(buffer(&mut assembler).is_whole());
}

#[test]
fn nothing_grows_without_bound() {
    let mut assembler = Assembler::new(1_000, GRACE);
    assembler.insert(at(0), &part(1, u32::MAX, b"abcd"));
    assembler.insert(at(0), &part(1, 998, b"abcd"));
    assert_eq!(assembler.stats().too_long, 2);
    for id in 0..10_000_u16 {
        assembler.insert(at(0), &part(id, 0, b"abcd"));
    }
    assert!(assembler.ready.len() <= READY_MAX);
    assert_eq!(assembler.stats().lost, 10_000 - 1 - READY_MAX as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, what is given is within the bounds, and its pieces are in order and apart.
    #[test]
    fn anything_is_survived(
        packets in prop::collection::vec(
            ((any::<bool>(), 0..6_u16, 0..300_u32), (0..40_usize, prop::option::of(0..400_u64), any::<bool>())),
            0..200,
        ),
    ) {
        let mut assembler = Assembler::new(256, GRACE);
        for (step, ((is_far, id, offset), (bytes, length, is_over))) in packets.into_iter().enumerate() {
            let id = if is_far { id.wrapping_mul(11_000) } else { id };
            let payload = vec![1; bytes];
            assembler.insert(at(step as u64), &Part { id, offset, length, is_over, payload: &payload });
            while let Some(delivery) = assembler.poll() {
                let Delivery::Buffer(received) = delivery else { continue };
                prop_assert!(received.prefix.iter().all(|byte| *byte == 1));
                let mut end = received.prefix.len();
                for piece in &received.pieces {
                    prop_assert!(piece.offset > end && !piece.bytes.is_empty());
                    end = piece.offset + piece.bytes.len();
                }
                prop_assert!(end <= 256);
            }
        }
    }
}
