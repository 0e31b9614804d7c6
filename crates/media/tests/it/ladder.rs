//! Rungs that receivers of any rate and loss play.

use headwater_media::{Cut, CutError, Cutter, IndexError, PackError, Protection, ReceivedBuffer};
use proptest::prelude::*;

use crate::generator::{Encoder, fragment, pieces};

const PROTECTION: Protection = Protection { symbol_bytes: 128, percent: 10, first_block: 24 };

fn whole(bytes: &[u8]) -> ReceivedBuffer<'_> {
    ReceivedBuffer { length: Some(bytes.len()), prefix: bytes, pieces: Vec::new() }
}

/// A buffer without the packets of these numbers, and without the bytes beyond `end`.
fn without<'a>(bytes: &'a [u8], part: usize, lost: &dyn Fn(usize) -> bool, end: usize) -> ReceivedBuffer<'a> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (number, at) in (0..end.min(bytes.len())).step_by(part).enumerate() {
        let to = (at + part).min(bytes.len());
        match runs.last_mut() {
            _ if lost(number) => {}
            Some(run) if run.1 == at => run.1 = to,
            _ => runs.push((at, to)),
        }
    }
    let prefix = runs.first().filter(|run| run.0 == 0).map_or(0, |run| run.1);
    let pieces = runs.iter().filter(|run| run.0 > 0).map(|run| (run.0, &bytes[run.0..run.1])).collect();
    let length = (prefix > 0).then_some(bytes.len());
    ReceivedBuffer { length, prefix: &bytes[..prefix], pieces }
}

fn check(cut: &Cut, number: u32, sizes: &[usize], audio: usize) {
    let (rung, bytes) = cut.rung.as_ref().expect("a rung is whole");
    assert_eq!(bytes, &fragment(*rung, number, sizes[*rung]));
    assert!(cut.audio.is_empty() || cut.audio == fragment(sizes.len(), number, audio));
    let description = cut.description.as_ref().expect("described");
    assert_eq!((&*description.video_codec, description.rungs.len()), ("avc3.64001e", sizes.len()));
}

proptest! {
    #[test]
    fn any_prefix_yields_the_highest_whole_rung(
        sizes in prop::collection::vec(1..20_000_usize, 1..6),
        audio in 0..3_000_usize,
        is_protected in any::<bool>(),
        cut_at in 0.0..=1.0_f64,
    ) {
        let protection = if is_protected { PROTECTION } else { Protection::default() };
        let mut encoder = Encoder::new(sizes.len(), true, protection);
        let tracks: Vec<usize> = sizes.iter().copied().chain([audio]).collect();
        let packed = encoder.gop(&tracks);
        let end = (packed.bytes.len() as f64 * cut_at) as usize;
        let received = ReceivedBuffer { length: Some(packed.bytes.len()), prefix: &packed.bytes[..end], pieces: Vec::new() };
        let result = Cutter::default().cut(&received);
        // The lengths by which the buffer was built tell which rung is whole.
        let mut highest = None;
        for (rung, size) in sizes.iter().enumerate() {
            let track = fragment(rung, 0, *size);
            let is_whole = if is_protected {
                None
            } else {
                packed.bytes.windows(track.len()).position(|window| window == track).map(|at| at + track.len() <= end)
            };
            if is_whole == Some(true) { highest = Some(rung); }
        }
        match result {
            Ok(cut) if is_protected => {
                if cut.rung.is_some() { check(&cut, 0, &sizes, audio); }
                prop_assert!(end < packed.bytes.len() || cut.rung.unwrap().0 == sizes.len() - 1);
            }
            Ok(cut) => {
                prop_assert_eq!(cut.rung.as_ref().map(|rung| rung.0), highest);
                if cut.rung.is_some() { check(&cut, 0, &sizes, audio); }
            }
            Err(error) => prop_assert!(error == CutError::Lost && end < 60, "{error}"),
        }
    }

    #[test]
    fn lost_packets_within_the_protection_cost_nothing(
        sizes in prop::collection::vec(2_000..20_000_usize, 1..4),
        lost in prop::collection::btree_set(0..500_usize, 0..3),
    ) {
        let mut encoder = Encoder::new(sizes.len(), true, PROTECTION);
        let tracks: Vec<usize> = sizes.iter().copied().chain([500]).collect();
        let mut cutter = Cutter::default();
        let first = encoder.gop(&tracks);
        cutter.cut(&whole(&first.bytes)).unwrap();
        let packed = encoder.gop(&tracks);
        let received = without(&packed.bytes, 128, &|number| lost.contains(&number), usize::MAX);
        // Each block has at least three repair symbols, as 24 symbols are the least.
        match cutter.cut(&received) {
            Ok(cut) => {
                check(&cut, 1, &sizes, 500);
                prop_assert_eq!(cut.rung.unwrap().0, sizes.len() - 1);
                prop_assert_eq!(cut.audio.is_empty(), false);
            }
            // The first block of a large rung is longer than the constant number of symbols.
            Err(error) => prop_assert!(error == CutError::Lost && lost.contains(&0) && sizes[0] > 2_000, "{error}"),
        }
    }
}

#[test]
fn a_hole_costs_the_rungs_that_have_the_hole_alone() {
    let mut encoder = Encoder::new(3, false, Protection::default());
    let sizes = [1_000, 3_000, 9_000];
    let packed = encoder.gop(&sizes);
    let cut = |lost: usize| {
        Cutter::default().cut(&without(&packed.bytes, 100, &|number| number == lost, usize::MAX)).unwrap()
    };
    // Packet 20 lies in the second rung: the third is whole beyond the hole.
    assert_eq!(cut(20).rung.unwrap().0, 2);
    assert_eq!(cut(packed.bytes.len() / 100 - 2).rung.unwrap().0, 1);
}

#[test]
fn a_lost_header_is_repaired_by_the_buffer_before() {
    let sizes = [2_000, 9_000];
    let mut encoder = Encoder::new(2, true, PROTECTION);
    let (first, second) = (encoder.gop(&[2_000, 9_000, 300]), encoder.gop(&[2_000, 9_000, 300]));
    let received = without(&second.bytes, 128, &|number| number == 0, usize::MAX);
    let mut cutter = Cutter::default();
    assert_eq!(cutter.cut(&received), Err(CutError::Lost), "nothing is known yet");
    cutter.cut(&whole(&first.bytes)).unwrap();
    let cut = cutter.cut(&received).unwrap();
    check(&cut, 1, &sizes, 300);
    assert_eq!((cut.rung.unwrap().0, cut.repaired), (1, 1));
}

#[test]
fn buffers_of_others_are_errors() {
    let packed = Encoder::new(2, false, Protection::default()).gop(&[100, 100]);
    let cut = |bytes: &[u8]| Cutter::default().cut(&whole(bytes));
    assert_eq!(
        cut(b"GIF89a, and no video at all, but as long as a header"),
        Err(CutError::Index(IndexError::Magic))
    );
    for short in [&b""[..], b"line", b"HWV1", &packed.bytes[..30]] {
        assert_eq!(cut(short), Err(CutError::Index(IndexError::Magic)), "{short:?}");
    }
    let begun =
        |prefix: &[u8]| Cutter::default().cut(&ReceivedBuffer { prefix, ..ReceivedBuffer::default() });
    assert_eq!(begun(b"li"), Err(CutError::Index(IndexError::Magic)));
    assert_eq!((begun(b""), begun(&packed.bytes[..30])), (Err(CutError::Lost), Err(CutError::Lost)));
    let mut long = packed.bytes.clone();
    // The length of the last rung.
    long[44..48].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(matches!(cut(&long), Err(CutError::Lengths { claimed, .. }) if claimed > 4_000_000_000));
    let mut none = packed.bytes.clone();
    none[4] = 0;
    assert_eq!(cut(&none), Err(CutError::Index(IndexError::Tracks(0))));
    // A description that inflates without end is in the fuzz target's seeds and in the tests of `index`.
}

#[test]
fn an_encoder_without_audio_for_a_time_delays_the_video_by_one_gop_at_most() {
    let mut encoder = Encoder::new(1, true, Protection::default());
    encoder.write(0, &fragment(0, 0, 100));
    assert_eq!(encoder.packer.poll(|_| 0), Ok(None), "the audio may follow");
    encoder.write(0, &fragment(0, 1, 100));
    let packed = encoder.packer.poll(|_| 0).unwrap().expect("waits no longer");
    let cut = Cutter::default().cut(&whole(&packed.bytes)).unwrap();
    assert!(cut.audio.is_empty() && cut.rung.is_some() && cut.index.number == 0);
}

#[test]
fn a_rung_that_stalls_is_an_error_within_bounds() {
    let mut encoder = Encoder::new(2, false, Protection::default());
    let pushed = (0..20)
        .flat_map(|number| pieces(&fragment(0, number, 10)))
        .map(|piece| encoder.packer.push(0, piece));
    let results: Vec<_> = pushed.collect();
    assert_eq!(results.iter().position(Result::is_err), Some(8));
    assert_eq!(results[8], Err(PackError::Stalled { track: 1 }));
}
