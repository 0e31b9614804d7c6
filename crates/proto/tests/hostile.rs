//! Faults and attacks: what comes of each, that it is counted with its reason, and what it costs in memory.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "an allocator that counts calls that of the system")]

#[expect(dead_code, reason = "other tests ask for more")]
mod allocated;
mod bench;

use bench::{Bench, close, complete, fdt, file, packet, symbol};
use headwater_proto::delivery::{
    Drops, OBJECTS_MAX, PENDING_BYTES, ReceiverEvent, block_digest, file_digest,
};
use headwater_wire::extensions::{Extensions, FdtExtension};
use headwater_wire::fdt::{File, Headwater, Instance, OtiAttributes, Segment};
use headwater_wire::{Fti, PayloadId, alc};

const MIB: usize = 1 << 20;

fn open(files: Vec<File>) -> Instance {
    Instance { complete: false, ..complete(files) }
}

/// A file of one block of one symbol, with its digest.
fn promised(toi: u128, name: &str, content: &[u8]) -> File {
    let block = block_digest(content);
    let mut promised = file(toi, name, content.len() as u64, 100);
    promised.headwater.digest = Some(file_digest([&block]));
    promised.headwater.block_digests = vec![block[..16].try_into().unwrap()];
    promised
}

fn segment(toi: u128, index: u32, count: u32, offset: u64, bytes: u64, file_length: u64) -> File {
    let segment = Segment { index, count, offset, file: "big".into(), file_length };
    let headwater = Headwater { segment: Some(segment), ..Headwater::default() };
    File { headwater, ..file(toi, &format!("big.{index}"), bytes, 10) }
}

/// Gives an FDT that takes several packets.
fn give_long_fdt(bench: &mut Bench, instance_id: u32, instance: &Instance) {
    let xml = instance.to_xml();
    let fti = Fti::NoCode { transfer_length: xml.len() as u64, symbol_size: 60_000, max_block: 1 };
    let fdt = Some(FdtExtension { version: 2, instance_id });
    let extensions = Extensions { fdt, fti: Some(fti), ..Extensions::default() };
    for (sbn, payload) in xml.as_bytes().chunks(60_000).enumerate() {
        let id = PayloadId { sbn: u32::try_from(sbn).unwrap(), esi: 0 };
        bench.give(&packet(Some(0), 0, extensions, Some(id), payload));
    }
}

#[test]
fn headers_cut_off_or_too_long_are_malformed() {
    let fti = Fti::RaptorQ { transfer_length: 9, symbol_size: 9, blocks: 1, sub_blocks: 1, alignment: 1 };
    let extensions = Extensions { fti: Some(fti), ..Extensions::default() };
    let whole = packet(Some(1), 6, extensions, Some(PayloadId { sbn: 0, esi: 0 }), &[]);
    let mut bench = Bench::new();
    // Without its FEC payload ID, 4 bytes, it is a packet that has no symbol, which is well-formed.
    let cut = (0..whole.len()).filter(|length| *length != whole.len() - 4);
    cut.for_each(|length| bench.give(&whole[..length]));
    let malformed = whole.len() as u64 - 1;
    assert_eq!(bench.dropped(), Drops { malformed, ..Drops::default() });
    // A header length beyond the datagram, and one that ends inside the header.
    for words in [whole.len() / 4 + 1, 255, 0, 1, 2] {
        let mut datagram = whole.clone();
        datagram[2] = u8::try_from(words).unwrap();
        bench.give(&datagram);
    }
    // An extension of no length (it would never end), and one beyond the header.
    let extension = whole.windows(2).position(|pair| pair == [64, 4]).unwrap();
    for words in [0, 200] {
        let mut datagram = whole.clone();
        datagram[extension + 1] = words;
        bench.give(&datagram);
    }
    assert_eq!(bench.dropped(), Drops { malformed: malformed + 7, ..Drops::default() });
    assert!(bench.events.is_empty(), "none of them made a session");
}

#[test]
fn two_senders_on_one_group_do_not_mix() {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &complete(vec![promised(1, "a", b"0123456789")])));
    bench.give_from("192.0.2.2:4000", &fdt(1, &complete(vec![promised(1, "b", b"other")])));
    bench.give_from("192.0.2.2:4000", &symbol(1, 0, b"WRONGWRONG"));
    bench.give(&symbol(1, 0, b"0123456789"));
    assert_eq!(bench.dropped(), Drops { foreign: 2, ..Drops::default() });
    assert_eq!(bench.received(), [("a", b"0123456789".as_slice())]);
}

/// The sender was started again as another session: what it sends is counted, and the receiver still waits.
#[test]
fn a_sender_that_comes_back_as_another_session_is_foreign() {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &complete(vec![promised(1, "a", b"0123456789")])));
    let mut restarted = symbol(1, 0, b"0123456789");
    let (mut header, payload) = alc::parse(&restarted).unwrap();
    let payload = payload.to_vec();
    header.tsi = 2;
    restarted = vec![0; header.buffer_len()];
    header.emit(&mut restarted).unwrap();
    restarted.extend(payload);
    (0..3).for_each(|_| bench.give(&restarted));
    assert_eq!(bench.dropped().foreign, 3);
    assert!(bench.received().is_empty() && bench.holds);
}

#[test]
fn a_sender_that_comes_back_with_the_same_content_is_the_same_session() {
    let mut bench = Bench::new();
    let halves = |instance| fdt(instance, &complete(vec![file(1, "a", 20, 10)]));
    bench.give(&halves(5));
    bench.give(&symbol(1, 0, b"0123456789"));
    bench.give(&close());
    // Started again: another instance of the FDT with the same entries, from the first symbol.
    bench.give(&halves(900_000));
    bench.give(&symbol(1, 0, b"0123456789"));
    bench.give(&symbol(1, 1, b"abcdefghij"));
    assert_eq!(bench.dropped(), Drops::default());
    assert_eq!(bench.received(), [("a", b"0123456789abcdefghij".as_slice())]);
}

/// Other bytes under the TOI of a file under way: the FDT contradicts itself, and no mixture is ever called
/// whole.
#[test]
fn a_toi_with_new_content_is_a_contradiction_and_never_a_mixture() {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &open(vec![promised(1, "a", b"0123456789")])));
    bench.give(&fdt(1, &open(vec![promised(1, "a", b"9876543210")])));
    assert_eq!(bench.receiver.stats().contradictions, 1);
    for _ in 0..100 {
        bench.give(&symbol(1, 0, b"9876543210"));
    }
    assert!(bench.events.iter().any(|event| matches!(event, ReceiverEvent::FileMismatch { .. })));
    assert!(bench.receiver.stats().blocks_discarded > 0 && bench.received().is_empty());
    assert!(bench.dropped().refused > 0, "what comes of it now is for nothing, and counted");
}

#[test]
fn an_entry_under_another_name_contradicts_one_that_awaits_its_coding() {
    let mut bench = Bench::new();
    let bare = |name| File { oti: OtiAttributes::default(), ..file(1, name, 10, 100) };
    bench.give(&fdt(0, &open(vec![bare("a")])));
    bench.give(&fdt(1, &open(vec![bare("b")])));
    assert_eq!(bench.receiver.stats().contradictions, 1);
    bench.give(&symbol(1, 0, b"0123456789"));
    // A later instance tells the coding; the symbol that came before counts.
    bench.give(&fdt(2, &complete(vec![file(1, "a", 10, 100)])));
    assert_eq!(bench.received(), [("a", b"0123456789".as_slice())]);
}

#[test]
fn objects_before_the_fdt_and_files_of_no_byte_and_one_byte_arrive() {
    let mut bench = Bench::new();
    bench.give(&symbol(2, 0, b"x"));
    bench.give(&fdt(0, &complete(vec![file(1, "none", 0, 10), file(2, "one", 1, 10)])));
    let mut received = bench.received();
    received.sort_unstable();
    assert_eq!(received, [("none", b"".as_slice()), ("one", b"x".as_slice())]);
    assert_eq!(bench.dropped(), Drops::default());
}

#[test]
fn an_fdt_that_grows_flaps_and_wraps_describes_every_file_once() {
    let mut bench = Bench::new();
    let files = |count: u128| (1..=count).map(|toi| file(toi, &format!("f{toi}"), 4, 10)).collect::<Vec<_>>();
    // The number of an instance has 20 bits.
    for (at, instance_id) in (0xF_FFF0..=0xF_FFFF).chain(0..40).enumerate() {
        bench.give(&fdt(instance_id, &open(files(1 + at as u128))));
        bench.give(&fdt(instance_id, &open(files(1))));
        bench.give(&fdt(7, &open(files(2))));
    }
    let announced = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::FileAnnounced { .. });
    assert_eq!(bench.events.iter().filter(announced).count(), 56);
    (1..=56).for_each(|toi| bench.give(&symbol(toi, 0, b"0123")));
    assert_eq!((bench.received().len(), bench.dropped()), (56, Drops::default()));
}

#[test]
fn symbols_out_of_range_are_bad_symbols() {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &complete(vec![file(1, "a", 20, 10)])));
    // Number K is no source symbol, and this code has no others; block 1 is not there.
    bench.give(&symbol(1, 2, b"0123456789"));
    bench.give(&symbol(1, u16::MAX.into(), b"0123456789"));
    let beyond = Some(PayloadId { sbn: 1, esi: 0 });
    bench.give(&packet(Some(1), 0, Extensions::default(), beyond, b"0123456789"));
    // Of another code than the object's.
    let other = Some(PayloadId { sbn: 0, esi: 0 });
    bench.give(&packet(Some(1), 6, Extensions::default(), other, b"0123456789"));
    for payload in [b"".as_slice(), b"012345678", b"01234567890"] {
        bench.give(&symbol(1, 0, payload));
    }
    assert_eq!(bench.dropped(), Drops { bad_symbol: 7, ..Drops::default() });
}

/// RaptorQ's symbol K is its first repair symbol; without padding it is no symbol at all.
#[test]
fn symbol_k_of_a_rateless_code_is_taken_whole_only() {
    let fti = Fti::RaptorQ { transfer_length: 15, symbol_size: 10, blocks: 1, sub_blocks: 1, alignment: 1 };
    let rateless = File { oti: OtiAttributes::from(&fti), ..file(1, "a", 15, 10) };
    let mut bench = Bench::new();
    bench.give(&fdt(0, &complete(vec![rateless])));
    let give = |bench: &mut Bench, esi, payload: &[u8]| {
        bench.give(&packet(Some(1), 6, Extensions::default(), Some(PayloadId { sbn: 0, esi }), payload));
    };
    give(&mut bench, 2, b"01234");
    assert_eq!(bench.dropped().bad_symbol, 1);
    give(&mut bench, 2, b"0123456789");
    assert_eq!((bench.receiver.stats().useful, bench.dropped().bad_symbol), (1, 1));
    give(&mut bench, (1 << 24) - 1_025, b"0123456789");
    assert_eq!(bench.receiver.stats().useful, 2, "the largest number is a symbol as any other");
}

#[test]
fn segments_that_leave_holes_or_overlap_are_refused() {
    let cases = [
        // Both at the start; the second beyond the first; both ends inside the file.
        vec![segment(1, 0, 2, 0, 10, 20), segment(2, 1, 2, 0, 10, 20)],
        vec![segment(1, 0, 2, 0, 10, 30), segment(2, 1, 2, 20, 10, 30)],
        vec![segment(1, 0, 2, 10, 10, 20), segment(2, 1, 2, 0, 10, 20)],
        vec![segment(1, 0, 2, 0, 10, 30), segment(2, 1, 2, 10, 10, 30)],
        vec![segment(1, 1, 2, 5, 15, 20), segment(2, 0, 2, 0, 10, 20)],
        // Where no symbol of the file begins.
        vec![segment(1, 1, 2, 5, 15, 20), segment(2, 0, 2, 0, 5, 20)],
        // One segment, of less than the file.
        vec![segment(1, 0, 1, 0, 10, 20)],
    ];
    for (at, files) in cases.into_iter().enumerate() {
        let mut bench = Bench::new();
        bench.give(&fdt(0, &complete(files)));
        for toi in [1, 2] {
            bench.give(&symbol(toi, 0, b"0123456789"));
        }
        assert!(bench.refusals() > 0 && bench.received().is_empty(), "case {at}");
        assert!(matches!(bench.events.last(), Some(ReceiverEvent::SessionCompleted { .. })), "case {at}");
    }
    let mut bench = Bench::new();
    bench.give(&fdt(0, &complete(vec![segment(2, 1, 2, 10, 10, 20), segment(1, 0, 2, 0, 10, 20)])));
    bench.give(&symbol(2, 0, b"abcdefghij"));
    bench.give(&symbol(1, 0, b"0123456789"));
    assert_eq!(bench.received(), [("big", b"0123456789abcdefghij".as_slice())]);
}

/// A claim that is refused must not use up what honest files need.
#[test]
fn huge_claims_are_refused_at_no_cost_to_others() {
    let mut bench = Bench::new();
    let huge = |toi: u128| {
        let fti = Fti::NoCode { transfer_length: 1 << 47, symbol_size: u16::MAX, max_block: 2_000 };
        File { oti: OtiAttributes::from(&fti), ..file(toi, &format!("huge{toi}"), 1 << 47, 1) }
    };
    let mut files: Vec<File> = (10..40).map(huge).collect();
    files.push(segment(50, 0, 65_535, 0, 10, 1 << 40));
    files.push(file(1, "a", 10, 10));
    let bytes = allocated::peak(|| bench.give(&fdt(0, &complete(files))));
    bench.give(&symbol(1, 0, b"0123456789"));
    assert_eq!((bench.refusals(), bench.received().len()), (31, 1));
    assert!(bytes < 80 * MIB, "{bytes} bytes: one of the claims at a time, 48 bytes for each of its blocks");
}

#[test]
fn the_clock_may_stand_still_or_jump() {
    for step in [0, 3_600_000_000_000, u64::MAX / 4] {
        let mut bench = Bench::new();
        let give = |bench: &mut Bench, payload: &[u8]| {
            bench.now = bench.now.saturating_add(step).min(u64::MAX - 10_000_000_000);
            bench.give(payload);
        };
        give(&mut bench, &fdt(0, &open(vec![file(1, "a", 20, 10), file(2, "b", 9, 10)])));
        give(&mut bench, &symbol(1, 0, b"0123456789"));
        give(&mut bench, &symbol(1, 1, b"abcdefghij"));
        assert_eq!(bench.received().len(), 1, "{step}");
        bench.give(&close());
        bench.now = u64::MAX - 1_000_000;
        bench.wait(0);
        assert_eq!(bench.events.last(), Some(&ReceiverEvent::SessionClosed), "{step}");
    }
}

#[test]
fn two_sessions_in_one_process_share_nothing() {
    let (mut one, mut two) = (Bench::new(), Bench::new());
    one.give(&fdt(0, &complete(vec![promised(1, "a", b"one")])));
    two.give(&fdt(0, &complete(vec![promised(1, "a", b"two")])));
    one.give(&symbol(1, 0, b"one"));
    two.give(&symbol(1, 0, b"two"));
    assert_eq!(one.received(), [("a", b"one".as_slice())]);
    assert_eq!(two.received(), [("a", b"two".as_slice())]);
}

#[test]
fn an_fdt_of_too_many_files_is_bad_and_instances_of_ever_new_ones_are_bounded() {
    let mut bench = Bench::new();
    let files = |start: usize, count: usize| {
        let toi = |at: usize| u128::try_from(start + at + 1).unwrap();
        (0..count).map(|at| file(toi(at), &format!("f{}", toi(at)), 1, 10)).collect::<Vec<_>>()
    };
    give_long_fdt(&mut bench, 0, &open(files(0, OBJECTS_MAX + 1)));
    assert_eq!(bench.dropped(), Drops { bad_fdt: 1, ..Drops::default() });
    // Ten times as many files as there may be.
    let bytes = allocated::peak(|| {
        for instance in 0..40 {
            let files = files(instance * 4_096, 4_096);
            give_long_fdt(&mut bench, u32::try_from(instance).unwrap() + 1, &open(files));
            bench.events.truncate(2 * OBJECTS_MAX);
        }
    });
    let beyond = u64::try_from(40 * 4_096 - OBJECTS_MAX).unwrap();
    assert_eq!(bench.dropped(), Drops { bad_fdt: 1, ..Drops::default() });
    assert_eq!(bench.receiver.stats().entries_beyond, beyond);
    assert_eq!(bench.refusals(), 1, "told once");
    assert!(bytes < 48 * MIB, "{bytes} bytes");
}

/// Names as long as they may be, in ever new instances: no more is kept than one FDT could hold.
#[test]
fn long_names_in_many_instances_are_bounded() {
    let mut bench = Bench::new();
    let bytes = allocated::peak(|| {
        for instance in 0..40_u32 {
            let name = |at: u32| format!("n{}?{}", instance * 1_000 + at, "x".repeat(8_000));
            let bare = |at: u32| File {
                oti: OtiAttributes::default(),
                ..file((instance * 1_000 + at + 1).into(), &name(at), 1, 10)
            };
            give_long_fdt(&mut bench, instance, &open((0..400).map(bare).collect()));
            bench.events.clear();
        }
    });
    // The document, what is parsed of it, and what is kept.
    assert!(bytes < 40 * MIB, "{bytes} bytes");
    let kept = allocated::kept(|| drop(bench));
    assert!(kept < 20 * MIB, "{kept} bytes");
}

/// 100 000 datagrams of every kind: what is kept is packets of objects not described yet, in vectors that
/// double.
#[test]
fn a_flood_of_hostile_datagrams_stays_within_the_bound() {
    let mut bench = Bench::new();
    bench.give(&fdt(0, &open(vec![file(1, "a", 20, 10)])));
    let flood = |bench: &mut Bench, number: u32| match number % 4 {
        // Unknown objects: many with nothing, some with much.
        0 => bench.give(&symbol(u128::from(number) + 1_000, 0, b"")),
        1 => bench.give(&symbol(u128::from(number % 97) + 100, number % 60_000, &[0; 1_400])),
        // Pieces of ever new instances of the FDT, each as long as it may be.
        2 => {
            let fti = Fti::NoCode { transfer_length: 8 << 20, symbol_size: 1_400, max_block: 64 };
            let fdt = Some(FdtExtension { version: 2, instance_id: number });
            let extensions = Extensions { fdt, fti: Some(fti), ..Extensions::default() };
            bench.give(&packet(Some(0), 0, extensions, Some(PayloadId { sbn: 0, esi: 0 }), &[b' '; 1_400]));
        }
        _ => bench.give(&number.to_be_bytes().repeat(20)),
    };
    let bytes = allocated::peak(|| (0..100_000).for_each(|number| flood(&mut bench, number)));
    assert!(bytes < PENDING_BYTES * 5 / 4 + 4 * MIB, "{bytes} bytes");
    let Drops { unknown_object, malformed, .. } = bench.dropped();
    assert!(unknown_object > 10_000 && malformed > 20_000, "{:?}", bench.dropped());
    bench.give(&symbol(1, 0, b"0123456789"));
    bench.give(&symbol(1, 1, b"abcdefghij"));
    assert_eq!(bench.received().len(), 1, "the session goes on");
}

/// Packets that cost most beside their payload: each of an object of its own.
#[test]
fn packets_without_payload_are_counted_by_what_they_cost() {
    let mut bench = Bench::new();
    let bytes =
        allocated::peak(|| (0..100_000_u128).for_each(|number| bench.give(&symbol(number + 1, 0, b"x"))));
    assert!(bytes < PENDING_BYTES + MIB, "{bytes} bytes for packets of unknown objects");
    assert!(bench.dropped().unknown_object > 0);
}
