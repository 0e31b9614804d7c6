//! Repair from a server of whole files: ranges that a receiver lists, and content that a server returns.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "other tests ask for more")]
mod bench;

use bench::{Bench, close, complete, fdt, file, symbol};
use headwater_proto::Instant;
use headwater_proto::delivery::{
    FileIndex, MissingRange, ReceiverEvent, RepairPosition, RepairServers, block_digest, file_digest,
};
use headwater_wire::Fti;
use headwater_wire::fdt::{File, Headwater, Instance, OtiAttributes};

const FILE: FileIndex = FileIndex(0);
const SYMBOL: usize = 100;

/// 30 symbols, the last of 50 bytes.
fn content() -> Vec<u8> {
    (0..2_950_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn described(content: &[u8], toi: u128) -> File {
    let digest = block_digest(content);
    let headwater = Headwater {
        digest: Some(file_digest([&digest])),
        block_digests: vec![digest[..16].try_into().unwrap()],
        ..Headwater::default()
    };
    let name = format!("file{toi}");
    File { headwater, ..file(toi, &name, content.len() as u64, u16::try_from(SYMBOL).unwrap()) }
}

fn bench(entry: File) -> Bench {
    let mut bench = Bench::new();
    bench.give(&fdt(1, &complete(vec![entry])));
    bench
}

fn give(bench: &mut Bench, content: &[u8], esis: impl IntoIterator<Item = u32>) {
    for esi in esis {
        let from = esi as usize * SYMBOL;
        let mut padded = content[from..content.len().min(from + SYMBOL)].to_vec();
        padded.resize(SYMBOL, 0);
        bench.give(&symbol(1, esi, &padded));
    }
}

fn missing(bench: &Bench) -> Vec<(u64, u64)> {
    let mut position = RepairPosition::default();
    let ranges = bench.receiver.missing_ranges(&mut position, 1_000, |_| true);
    assert_eq!(bench.receiver.missing_ranges(&mut position, 1_000, |_| true), []);
    ranges.iter().map(|MissingRange { start, bytes, .. }| (*start, *bytes)).collect()
}

fn repair(bench: &mut Bench, content: &[u8], ranges: &[(u64, u64)]) -> u64 {
    repair_by(bench, 0, content, ranges)
}

fn repair_by(bench: &mut Bench, server: u32, content: &[u8], ranges: &[(u64, u64)]) -> u64 {
    let now = Instant::from_nanos(bench.now);
    let bytes = |(start, bytes): (u64, u64)| {
        &content[usize::try_from(start).unwrap()..usize::try_from(start + bytes).unwrap()]
    };
    let put = |range: &(u64, u64)| bench.receiver.put_repaired(now, (server, FILE), range.0, bytes(*range));
    let needed = ranges.iter().map(put);
    let needed = needed.sum();
    bench.wait(1);
    needed
}

#[test]
fn missing_bytes_complete_a_file() {
    let content = content();
    let mut bench = bench(described(&content, 1));
    assert_eq!(missing(&bench), [(0, 2_950)]);
    assert_eq!(bench.receiver.missing_bytes(FILE), 2_950);
    give(&mut bench, &content, (0..30).filter(|esi| ![4, 5, 17, 29].contains(esi)));
    assert_eq!(missing(&bench), [(400, 200), (1_700, 100), (2_900, 50)]);
    assert_eq!(repair(&mut bench, &content, &[(400, 200)]), 2);
    let before = bench.receiver.stats();
    assert_eq!(missing(&bench), [(1_700, 100), (2_900, 50)]);
    assert_eq!(repair(&mut bench, &content, &[(1_700, 100), (2_900, 50)]), 2);
    assert_eq!(bench.received(), [("file1", content.as_slice())]);
    assert_eq!(missing(&bench), []);
    let stats = bench.receiver.stats();
    assert_eq!(stats.accounted(), stats.packets, "repair is in no counter of packets");
    assert_eq!((stats.useful, stats.packets), (before.useful, before.packets));
    let repaired = bench.receiver.repair_stats();
    assert_eq!((repaired.bytes, repaired.useful, repaired.unneeded), (350, 4, 0));
}

#[test]
fn short_gaps_are_fetched_while_they_are_a_sixteenth() {
    let content = content();
    let mut bench = bench(described(&content, 1));
    give(&mut bench, &content, [5, 20]);
    // The first gap follows 500 bytes, too few for 100; the second follows 1 900.
    assert_eq!(missing(&bench), [(0, 500), (600, 2_350)]);
    let ranges = missing(&bench);
    assert_eq!(repair(&mut bench, &content, &ranges), 28);
    assert_eq!(bench.receiver.repair_stats().unneeded, 1);
    assert_eq!(bench.received().len(), 1);
}

#[test]
fn wrong_content_is_dropped_and_symbols_of_multicast_stay() {
    let content = content();
    let mut bench = bench(described(&content, 1));
    give(&mut bench, &content, 2..30);
    // More often than the strikes after which a file is given up.
    for round in 1..=12 {
        assert_eq!(missing(&bench), [(0, 200)]);
        repair(&mut bench, &[0; 200], &[(0, 200)]);
        assert_eq!(bench.receiver.repair_stats().blocks_discarded, round);
        assert!(bench.events.contains(&ReceiverEvent::RepairMismatch { file: FILE, server: Some(0) }));
    }
    assert!(bench.received().is_empty());
    give(&mut bench, &content, 0..2);
    bench.wait(1);
    assert_eq!(bench.received(), [("file1", content.as_slice())]);
    assert!(!bench.events.contains(&ReceiverEvent::FileMismatch { file: FILE }));
}

#[test]
fn a_server_is_blamed_for_its_own_symbols_alone() {
    let content = content();
    let mut bench = bench(described(&content, 1));
    give(&mut bench, &content, 4..30);
    // Wrong bytes of a server that then breaks off, and right bytes of the next server.
    repair_by(&mut bench, 1, &[0; 400], &[(0, 200)]);
    repair_by(&mut bench, 2, &content, &[(200, 200)]);
    let mismatches = |bench: &Bench| {
        let of = |event: &ReceiverEvent| match event {
            ReceiverEvent::RepairMismatch { server, .. } => Some(*server),
            _ => None,
        };
        bench.events.iter().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(mismatches(&bench), [None]);
    assert_eq!(missing(&bench), [(0, 400)], "all symbols of servers are dropped");
    repair_by(&mut bench, 3, &[0; 400], &[(0, 400)]);
    assert_eq!(mismatches(&bench), [None, Some(3)]);
    repair_by(&mut bench, 2, &content, &[(0, 400)]);
    assert_eq!(bench.received(), [("file1", content.as_slice())]);
}

#[test]
fn content_of_no_symbol_is_dropped() {
    let content = content();
    let mut bench = bench(described(&content, 1));
    let now = Instant::ZERO;
    let receiver = &mut bench.receiver;
    for (file, start, bytes) in [(FILE, 50, 100), (FILE, 2_950, 100), (FILE, u64::MAX, 9), (FILE, 0, 99)] {
        assert_eq!(receiver.put_repaired(now, (0, file), start, &content[..bytes]), 0, "{start}");
    }
    assert_eq!(
        receiver.put_repaired(now, (0, FILE), 2_900, &[content[2_900..].to_vec(), vec![1; 200]].concat()),
        1
    );
    assert_eq!(receiver.put_repaired(now, (0, FILE), 2_900, &content[2_900..]), 0, "held");
    assert_eq!(receiver.files().next().unwrap().symbols_held, 1);
}

#[test]
fn a_block_without_a_digest_is_not_repaired() {
    let content = content();
    let mut entry = described(&content, 1);
    entry.headwater = Headwater::default();
    let mut bench = bench(entry);
    assert_eq!(missing(&bench), []);
    assert_eq!(repair(&mut bench, &content, &[(0, 2_950)]), 0);
    assert!(bench.received().is_empty());
}

#[test]
fn a_closed_session_ends_once_no_repair_is_awaited() {
    let content = content();
    let mut bench = bench(described(&content, 1));
    bench.receiver.await_repair(true);
    bench.give(&close());
    bench.wait(60_000);
    assert!(bench.receiver.is_closed(Instant::from_nanos(bench.now)) && !bench.receiver.is_ended());
    bench.receiver.await_repair(false);
    bench.wait(1);
    assert!(bench.receiver.is_ended());
    assert!(bench.events.contains(&ReceiverEvent::SessionClosed));
}

#[test]
fn a_coded_block_asks_for_as_many_symbols_as_it_lacks_close_together() {
    // One block of RaptorQ.
    let content: Vec<u8> = (0..3_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let fti =
        Fti::RaptorQ { transfer_length: 3_000, symbol_size: 100, blocks: 1, sub_blocks: 1, alignment: 1 };
    let mut bench = bench(File { oti: OtiAttributes::from(&fti), ..described(&content, 1) });
    let codepoint = 6;
    let give = |bench: &mut Bench, esi: u32, payload: &[u8]| {
        let id = Some(headwater_wire::PayloadId { sbn: 0, esi });
        bench.give(&bench::packet(Some(1), codepoint, Default::default(), id, payload));
    };
    for esi in (0..30_u32).filter(|esi| ![1, 9, 15, 16, 17].contains(esi)) {
        give(&mut bench, esi, &content[esi as usize * SYMBOL..][..SYMBOL]);
    }
    // Any two repair symbols: only their number counts here.
    for esi in [30, 31] {
        give(&mut bench, esi, &[0; SYMBOL]);
    }
    assert_eq!(missing(&bench), [(1_500, 300)]);
}

#[test]
fn servers_are_of_the_fdt_and_last_until_an_instance_names_others() {
    let content = content();
    let mut bench = Bench::new();
    let with = |base_urls: &[&str]| Instance {
        base_urls: base_urls.iter().map(ToString::to_string).collect(),
        repair_offset: Some(2),
        repair_random: Some(9),
        ..complete(vec![File {
            alternate_locations: vec!["other/name".to_owned()],
            etag: Some("\"tag\"".to_owned()),
            ..described(&content, 1)
        }])
    };
    bench.give(&fdt(1, &with(&["http://a/"])));
    bench.give(&fdt(2, &with(&[])));
    let servers = bench.receiver.repair_servers().unwrap().clone();
    let seconds = headwater_proto::Duration::from_secs;
    let expected = RepairServers {
        base_urls: vec!["http://a/".to_owned()],
        peer_urls: Vec::new(),
        has_etags: true,
        offset: seconds(2),
        random: seconds(9),
    };
    assert_eq!(servers, expected);
    let file = bench.receiver.repair_file(FILE).unwrap();
    assert_eq!(
        (file.name.as_str(), file.alternate, file.etag),
        ("file1", Some("other/name"), Some("\"tag\""))
    );
    bench.give(&fdt(3, &with(&["http://b/"])));
    assert_eq!(bench.receiver.repair_servers().unwrap().base_urls, ["http://b/"]);
    bench.give(&fdt(4, &Instance { peer_urls: vec!["http://c/".to_owned()], ..with(&[]) }));
    assert_eq!(bench.receiver.repair_servers().unwrap().peer_urls, ["http://c/"]);
}
