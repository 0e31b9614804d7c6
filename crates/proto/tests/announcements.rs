//! What a receiver makes of FDTs and packets that another sender, a bad one or a hostile one writes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;

use bench::{Bench, close, complete, fdt, file, packet, symbol};
use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, End, FileToSend, MemorySource, PlanConfig, PlanError,
    ReceiverEvent, RelativePath, SYMBOL_SIZE_MAX, SessionPlan,
};
use headwater_proto::{DATAGRAM_BYTES_MAX, Instant, Machine, Output, Rate, fixed};
use headwater_wire::extensions::Extensions;
use headwater_wire::fdt::{File, Headwater, Instance, OtiAttributes, Segment};
use headwater_wire::{Fti, PayloadId, alc};

fn whole_session(refused: usize) -> Option<ReceiverEvent> {
    Some(ReceiverEvent::SessionCompleted { refused })
}

#[test]
fn content_encoded_by_the_roots_default_is_refused_not_delivered_as_it_is() {
    let mut bench = Bench::new();
    let instance =
        Instance { content_encoding: Some("gzip".into()), ..complete(vec![file(1, "a", 10, 100)]) };
    bench.give(&fdt(0, &instance));
    bench.give(&symbol(1, 0, b"0123456789"));
    assert_eq!((bench.refusals(), bench.received().len()), (1, 0));
    assert_eq!(bench.events.last().cloned(), whole_session(1));
}

#[test]
fn folders_without_files_are_made_once_and_bad_names_refused() {
    let mut bench = Bench::new();
    let folders = ["a/empty%20one", "../up", "/b", "c/..", "a/empty%20one"].map(str::to_owned).to_vec();
    let described =
        |complete: bool, files| Instance { complete, folders: folders.clone(), ..self::complete(files) };
    bench.give(&fdt(0, &described(false, Vec::new())));
    bench.give(&fdt(1, &described(true, vec![file(1, "x", 3, 100)])));
    bench.give(&symbol(1, 0, b"abc"));
    let made: Vec<_> = bench.receiver.store().folders().iter().map(RelativePath::as_str).collect();
    assert_eq!(made, ["a/empty one", "a/empty one"]);
    assert_eq!((bench.refusals(), bench.events.last().cloned()), (3, whole_session(3)));
}

#[test]
fn an_unknown_code_is_refused_and_never_counts_as_received() {
    let mut bench = Bench::new();
    let mut strange = file(2, "b", 10, 100);
    strange.oti.encoding_id = Some(1);
    bench.give(&fdt(0, &Instance { complete: false, ..complete(vec![file(1, "a", 3, 100), strange]) }));
    bench.give(&symbol(1, 0, b"abc"));
    bench.give(&close());
    bench.wait(2_000);
    assert_eq!(bench.received(), [("a", b"abc".as_slice())]);
    assert_eq!((bench.refusals(), bench.events.last().cloned()), (1, whole_session(1)));
}

#[test]
fn a_file_whose_coding_never_comes_is_not_whole() {
    let mut bench = Bench::new();
    let mut bare = file(2, "b", 10, 100);
    bare.oti = OtiAttributes::default();
    bench.give(&fdt(0, &complete(vec![file(1, "a", 3, 100), bare])));
    bench.give(&symbol(1, 0, b"abc"));
    assert!(bench.holds, "EXT_FTI of the second file may still come");
    bench.give(&close());
    bench.wait(2_000);
    assert_eq!(bench.events.last(), Some(&ReceiverEvent::SessionClosed));
}

#[test]
fn packets_before_a_late_fdt_count_when_only_ext_fti_tells_the_coding() {
    let fti = Fti::NoCode { transfer_length: 20, symbol_size: 10, max_block: 64 };
    let mut bare = file(1, "a", 20, 10);
    bare.oti = OtiAttributes::default();
    let with_fti = |esi| {
        let extensions = Extensions { fti: Some(fti), ..Extensions::default() };
        packet(Some(1), 0, extensions, Some(PayloadId { sbn: 0, esi }), b"0123456789")
    };
    let packets = [with_fti(0), with_fti(1), fdt(0, &complete(vec![bare]))];
    for order in [[0, 1, 2], [0, 2, 1], [2, 0, 1]] {
        let mut bench = Bench::new();
        order.iter().for_each(|index| bench.give(&packets[*index]));
        assert_eq!(bench.received(), [("a", b"01234567890123456789".as_slice())], "{order:?}");
    }
}

#[test]
fn a_file_that_lacks_a_segment_is_refused_and_the_session_ends() {
    let mut bench = Bench::new();
    let segment = Segment { index: 0, count: 2, offset: 0, file: "big".into(), file_length: 20 };
    let mut first = file(1, "big.segment-00000", 10, 10);
    first.headwater = Headwater { segment: Some(segment), ..Headwater::default() };
    bench.give(&fdt(0, &complete(vec![first])));
    assert_eq!((bench.refusals(), bench.events.last().cloned()), (1, whole_session(1)));
    assert!(!bench.holds);
}

#[test]
fn a_promise_that_is_never_kept_ends_as_a_mismatch() {
    let mut bench = Bench::new();
    let mut wrong = file(1, "a", 10, 100);
    wrong.headwater = Headwater { block_digests: vec![[7; 16]], ..Headwater::default() };
    bench.give(&fdt(0, &complete(vec![wrong])));
    for _ in 0..100 {
        bench.give(&symbol(1, 0, b"0123456789"));
    }
    let mismatches =
        bench.events.iter().filter(|event| matches!(event, ReceiverEvent::FileMismatch { .. })).count();
    assert_eq!((mismatches, bench.received().len()), (1, 0));
    assert!(matches!(bench.events.last(), Some(ReceiverEvent::SessionCompleted { .. })));
}

#[test]
fn a_wrong_root_is_found_where_every_block_is_right() {
    let mut bench = Bench::new();
    let mut wrong = file(1, "a", 10, 100);
    wrong.headwater = Headwater { digest: Some([7; 32]), ..Headwater::default() };
    bench.give(&fdt(0, &complete(vec![wrong])));
    bench.give(&symbol(1, 0, b"0123456789"));
    assert!(bench.events.iter().any(|event| matches!(event, ReceiverEvent::FileMismatch { .. })));
    assert!(bench.received().is_empty());
}

#[test]
fn a_toi_may_not_become_another_file() {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &Instance { complete: false, ..complete(vec![file(1, "a", 10, 5)]) }));
    bench.give(&fdt(1, &Instance { complete: false, ..complete(vec![file(1, "b", 10, 5)]) }));
    let mut other = file(1, "a", 10, 5);
    other.headwater.digest = Some([1; 32]);
    bench.give(&fdt(2, &Instance { complete: false, ..complete(vec![other]) }));
    bench.give(&fdt(3, &Instance { complete: false, ..complete(vec![file(1, "a", 11, 5)]) }));
    assert_eq!(bench.receiver.stats().contradictions, 3);
    bench.give(&symbol(1, 0, b"01234"));
    bench.give(&symbol(1, 1, b"56789"));
    assert_eq!(bench.received(), [("a", b"0123456789".as_slice())]);
}

#[test]
fn a_symbol_of_the_wrong_length_never_reaches_its_neighbours() {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &complete(vec![file(1, "a", 28, 10)])));
    bench.give(&symbol(1, 1, b"abcdefghij"));
    bench.give(&symbol(1, 2, b"ABCDEFGH"));
    for payload in [b"0123456789WRONGWRONGWRONGWRO".as_slice(), b"01234567", b"0", b""] {
        bench.give(&symbol(1, 0, payload));
    }
    bench.give(&symbol(1, 3, b"0123456789"));
    assert_eq!(bench.dropped().bad_symbol, 5);
    bench.give(&symbol(1, 0, b"0123456789"));
    assert_eq!(bench.received(), [("a", b"0123456789abcdefghijABCDEFGH".as_slice())]);
}

#[test]
fn more_symbols_than_a_receiver_can_keep_account_of_are_refused() {
    let mut bench = Bench::new();
    let huge = |toi| {
        let fti = Fti::NoCode { transfer_length: 1 << 30, symbol_size: 1, max_block: 65_536 };
        File { oti: OtiAttributes::from(&fti), ..file(toi, &format!("f{toi}"), 1 << 30, 1) }
    };
    bench.give(&fdt(0, &complete(vec![huge(1), huge(2)])));
    assert_eq!(bench.refusals(), 2, "the first by the store of this test, the second by its symbols");
}

#[test]
fn a_symbol_longer_than_a_datagram_is_refused_when_planned() {
    let file = FileToSend { path: RelativePath::new("a").unwrap(), bytes: 1, mode: None, modified: None };
    for symbol_size in [0, SYMBOL_SIZE_MAX + 1, u16::MAX] {
        let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size, order: Order::Window };
        assert_eq!(
            SessionPlan::new(vec![file.clone()], config).unwrap_err(),
            PlanError::SymbolSize(symbol_size)
        );
    }
}

/// A long FDT is nearly always in the middle of a round when the session ends; the last round is whole all
/// the same.
#[test]
fn the_last_round_of_the_fdt_is_whole() {
    let file = |index| FileToSend {
        path: RelativePath::new(&format!("f{index}")).unwrap(),
        bytes: 1_000,
        mode: None,
        modified: None,
    };
    let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: 500, order: Order::Window };
    let plan = SessionPlan::new((0..300).map(file).collect(), config).unwrap();
    // Different digests do not compress.
    let contents: Vec<Vec<u8>> = (0..300_u32).map(|index| index.to_be_bytes().repeat(250)).collect();
    let source = MemorySource::new(&plan, &contents.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let digests = source.digests();
    let config = DeliverySenderConfig::new(1).with_end(End::Passes(2));
    let control = fixed::FixedSender::new(Rate::from_kilobits(4_000), Instant::ZERO);
    let mut sender = DeliverySender::new(config, &plan, &digests, control, source).unwrap();

    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (mut all, mut last_round) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    while let Some(now) = sender.poll_timeout() {
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            let (header, _) = alc::parse(&buffer[..transmit.bytes]).unwrap();
            match (header.toi, header.payload_id) {
                (Some(0), Some(id)) => {
                    all.insert(id);
                    last_round.insert(id);
                }
                (Some(_), _) => last_round.clear(),
                _ => {}
            }
        }
    }
    assert!(all.len() > 20, "the FDT must be long for this test to tell anything");
    assert_eq!(all, last_round);
}
