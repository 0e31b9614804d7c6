//! Symbols that arrive scattered over their blocks, as in a session of several levels: source symbols are
//! kept in slots until their block is decoded.

use std::fs;
use std::os::unix::fs::FileExt;

use headwater_fec::{LdpcParameters, Parameters, Partition, Scheme, codec};
use headwater_proto::delivery::block_digest;

use super::compact_tests::{synced_bytes, wait_for_sync};
use super::tests::{FILE, OBJECT, Session, T, open, report};
use super::write_log::{SYNC_TIME, UNSYNCED_BYTES_MIN};
use super::*;

/// Symbols of each of two blocks.
const K: u32 = 100;
/// Bytes of the file: the last symbol of the second block is 5 bytes long.
const BYTES: usize = (2 * K as usize - 1) * T as usize + 5;
/// Distance of symbols that arrive one after the other; no divisor of [`K`].
const STRIDE: u32 = 37;

fn content() -> Vec<u8> {
    (0..BYTES).map(|at| u8::try_from((at * 7 + at / 64) % 251).unwrap()).collect()
}

fn block(sbn: u32) -> Vec<u8> {
    let block = (K * u32::from(T)) as usize;
    content().chunks(block).nth(sbn as usize).unwrap().to_vec()
}

/// Announces the file; the blocks held of it.
fn announced(folder: &Path, codecs: Parameters) -> (Session, Vec<HeldBlock>) {
    let mut session = open(folder);
    let path = RelativePath::new("file").unwrap();
    let spec = FileSpec { digest: Some([1; 32]), ..FileSpec::new(path, BYTES as u64) };
    session.store.create_file(FILE, &spec).unwrap();
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition: Partition::with_blocks(BYTES as u64, T, 2).unwrap(),
        codec: codec(codecs).unwrap(),
        identity: Some([7; 32]),
    };
    let held = session.store.create_object(OBJECT, &object);
    (session, held)
}

fn open_store(folder: &Path) -> (Session, Vec<HeldBlock>) {
    announced(folder, Parameters::raptorq(T))
}

/// Receives these symbols in their order, repair symbols to slots from `slot` on, and writes a few at a time.
fn receive(session: &mut Session, sbn: u32, esis: impl IntoIterator<Item = u32>, mut slot: u32) {
    let mut padded = block(sbn);
    padded.resize((K * u32::from(T)) as usize, 0);
    let encoder = codec(Parameters::raptorq(T)).unwrap().encoder(K, &padded).unwrap();
    let mut symbol = [0; T as usize];
    for (count, esi) in (1..).zip(esis) {
        if esi < K {
            symbol.copy_from_slice(&padded[esi as usize * usize::from(T)..][..T.into()]);
            session.store.write_source(OBJECT, sbn, esi, &symbol).unwrap();
        } else {
            encoder.symbol(esi, &mut symbol).unwrap();
            session.store.write_repair(OBJECT, sbn, StoredRepair { esi, slot }, &symbol).unwrap();
            slot += 1;
        }
        if count % 7 == 0 {
            session.store.write_all();
        }
    }
    session.store.write_all();
    session.store.writer.wait();
}

/// Source symbols in the order of a hierarchy, so many from `first` on.
fn strided(first: u32, count: u32) -> impl Iterator<Item = u32> {
    (first..first + count).map(|number| number * STRIDE % K)
}

fn missing(received: &[u32]) -> Vec<u32> {
    (0..K).filter(|esi| !received.contains(esi)).collect()
}

fn finish(session: &mut Session, sbn: u32, received: &[u32], repairs: u32) -> StoreReport {
    session.store.finish_block(BlockJob { object: OBJECT, sbn, missing: missing(received), repairs });
    report(session)
}

fn done(sbn: u32) -> StoreReport {
    StoreReport::BlockDone { object: OBJECT, sbn, digest: block_digest(&block(sbn)) }
}

fn slots(session: &Session, sbn: u32) -> u32 {
    session.store.object(OBJECT).slots(sbn).unwrap()
}

/// Numbers in the slots of a block of 60 source and 42 repair symbols.
fn slot_numbers(session: &Session, sbn: u32) -> Vec<u32> {
    let place = session.store.object(OBJECT);
    session.store.places.read_slot_numbers(&place, &place.block(sbn), K + 2).unwrap()
}

/// ESIs of the source symbols that are held of a block.
fn held_source(held: &[HeldBlock], sbn: u32) -> Vec<u32> {
    let source = held.iter().find(|held| held.sbn == sbn).map_or(&[][..], |held| &held.source);
    let holds = |esi: &u32| source.get((esi / 64) as usize).is_some_and(|word| word >> (esi % 64) & 1 == 1);
    (0..K).filter(holds).collect()
}

fn sorted(esis: impl IntoIterator<Item = u32>) -> Vec<u32> {
    esis.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn scattered_symbols_wait_in_slots_and_the_block_is_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    for sbn in [0, 1] {
        // Without the last symbol, and with it, which is the short one of the second block.
        let received: Vec<u32> = strided(0, 60).filter(|esi| (sbn == 1) || *esi != K - 1).collect();
        let repairs = K - u32::try_from(received.len()).unwrap() + 2;
        let mixed = received.iter().copied().zip(K..).flat_map(|(source, repair)| [source, repair]);
        receive(&mut session, sbn, mixed.filter(|esi| *esi < K + repairs), 0);
        assert_eq!(slots(&session, sbn), K + 2, "all of them");
        assert_eq!(finish(&mut session, sbn, &received, repairs), done(sbn));
        session.store.judge_block(OBJECT, sbn, BlockVerdict::Right).unwrap();
    }
    session.store.finish_file(FILE);
    assert_eq!(report(&mut session), StoreReport::FileDone(FILE));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), content());
}

#[test]
fn runs_out_of_order_go_to_their_places_and_the_rest_is_written_once_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    for sbn in [0, 1] {
        let runs = [4, 2, 0, 1, 3, 6, 5, 13, 11, 12, 9, 10, 8, 7];
        receive(&mut session, sbn, runs, 0);
        assert_eq!(slots(&session, sbn), 0);
        // With the short last symbol of the second block.
        let is_kept = |esi: &u32| *esi == K - 1 || (*esi >= 20 && !esi.is_multiple_of(3));
        let scattered: Vec<u32> = strided(0, K).filter(is_kept).collect();
        let received = sorted(runs.into_iter().chain(scattered.iter().copied()));
        let repairs = u32::try_from(missing(&received).len()).unwrap() + 2;
        receive(&mut session, sbn, scattered.into_iter().chain(K..K + repairs), 0);
        let in_slots = K - 14 + 2;
        assert_eq!(slots(&session, sbn), in_slots);
        assert_eq!(finish(&mut session, sbn, &received, repairs), done(sbn));
        session.store.judge_block(OBJECT, sbn, BlockVerdict::Right).unwrap();
    }
    session.store.finish_file(FILE);
    assert_eq!(report(&mut session), StoreReport::FileDone(FILE));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), content());
}

#[test]
fn a_block_of_scattered_source_symbols_alone_needs_no_decoder() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    // A part at its place, and the rest in slots.
    receive(&mut session, 1, 0..10, 0);
    assert_eq!(slots(&session, 1), 0);
    receive(&mut session, 1, strided(0, K).filter(|esi| *esi >= 10), 0);
    assert!(slots(&session, 1) > K / 2);
    assert_eq!(finish(&mut session, 1, &sorted(0..K), 0), done(1));
}

#[test]
fn a_block_that_lacks_symbols_keeps_its_slots() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    let received: Vec<u32> = strided(0, 60).collect();
    receive(&mut session, 0, received.iter().copied().chain(K..K + 30), 0);
    let report = finish(&mut session, 0, &received, 30);
    assert!(matches!(report, StoreReport::BlockNeedsMore { .. }), "{report:?}");
    receive(&mut session, 0, K + 30..K + 43, 30);
    assert_eq!(finish(&mut session, 0, &received, 43), done(0));
}

#[test]
fn scattered_symbols_are_resumed_and_more_follow() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, held) = open_store(folder.path());
    assert!(held.is_empty());
    receive(&mut session, 1, (20..25).chain(strided(0, 30)).chain([K + 5, K + 3]), 0);
    drop(session);
    let (mut session, held) = open_store(folder.path());
    let first = sorted((20..25).chain(strided(0, 30)));
    assert_eq!(held_source(&held, 1), first);
    assert_eq!(held[0].repairs, [K + 5, K + 3]);
    // The numbers are read back, and the next symbols follow.
    receive(&mut session, 1, strided(50, 30).chain(K + 10..K + 40), 2);
    let received = sorted(first.into_iter().chain(strided(50, 30)));
    drop(session);
    let (mut session, held) = open_store(folder.path());
    assert_eq!(held_source(&held, 1), received);
    assert_eq!(held[0].repairs.len(), 32);
    receive(&mut session, 1, K + 40..K + 60, 32);
    assert_eq!(finish(&mut session, 1, &received, 52), done(1));
}

#[test]
fn dropping_repair_symbols_keeps_the_source_symbols_in_slots() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    let received = sorted(strided(0, 60));
    receive(&mut session, 1, strided(0, 60).chain(K..K + 10), 0);
    // Without an attempt to decode: the decoder wanted ever more.
    session.store.judge_block(OBJECT, 1, BlockVerdict::RepairsDropped).unwrap();
    session.store.writer.wait();
    assert_eq!(slots(&session, 1), 0);
    drop(session);
    let (mut session, held) = open_store(folder.path());
    assert_eq!(held_source(&held, 1), received);
    assert!(held[0].repairs.is_empty());
    receive(&mut session, 1, K + 20..K + 62, 0);
    assert_eq!(finish(&mut session, 1, &received, 42), done(1));
    session.store.judge_block(OBJECT, 1, BlockVerdict::AllDropped).unwrap();
    session.store.writer.wait();
    assert_eq!(slots(&session, 1), 0);
    drop(session);
    assert!(open_store(folder.path()).1.is_empty());
}

/// Makes all content safe, as a sync does that is due.
fn sync(session: &mut Session) {
    {
        let mut disk = session.store.writer.disk();
        let log = disk.log_mut();
        log.unsynced_bytes = UNSYNCED_BYTES_MIN;
        log.synced_at = Instant::now().checked_sub(SYNC_TIME).unwrap();
    }
    wait_for_sync(session);
}

/// A copy of what a loss of power leaves: of the content nothing, of the journal what was synced.
fn after_loss_of_power(folder: &Path) -> tempfile::TempDir {
    let left = tempfile::tempdir().unwrap();
    let work = left.path().join(".headwater-work");
    fs::create_dir(&work).unwrap();
    for entry in fs::read_dir(folder.join(".headwater-work")).unwrap() {
        let entry = entry.unwrap();
        if entry.path().extension().is_none_or(|extension| extension != "content") {
            fs::copy(entry.path(), work.join(entry.file_name())).unwrap();
        }
    }
    let journal = fs::File::options().read(true).write(true).open(work.join(ledger::JOURNAL)).unwrap();
    let mut opening = [0; 32];
    journal.read_exact_at(&mut opening, 0).unwrap();
    // The ID of another boot.
    opening[10] ^= 1;
    let sum = blake3::hash(&opening[..24]);
    opening[24..].copy_from_slice(&sum.as_bytes()[..8]);
    journal.write_all_at(&opening, 0).unwrap();
    left
}

#[test]
fn a_whole_block_that_a_loss_of_power_takes_has_its_slots_until_the_next_sync() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    let received = sorted(strided(0, 60));
    receive(&mut session, 0, strided(0, 60).chain(K..K + 42), 0);
    sync(&mut session);
    assert_eq!(finish(&mut session, 0, &received, 42), done(0));
    session.store.judge_block(OBJECT, 0, BlockVerdict::Right).unwrap();
    session.store.writer.wait();
    let left = after_loss_of_power(folder.path());
    let (mut next, held) = open_store(left.path());
    assert_eq!((held_source(&held, 0), held[0].repairs.len()), (received.clone(), 42));
    assert_eq!(finish(&mut next, 0, &received, 42), done(0));
    let numbers = |session: &Session| slot_numbers(session, 0);
    assert!(numbers(&session).iter().all(|number| *number != 0));
    // The slots of a whole block are room that others need.
    sync(&mut session);
    assert!(numbers(&session).iter().all(|number| *number == 0));
}

/// A disk that is slower than the decoder: no slot is freed before the content is synced.
#[test]
fn beyond_the_room_for_slots_of_whole_blocks_the_content_is_synced_first() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    session.store.writer.disk().log_mut().whole_bytes_max = 0;
    let received = sorted(strided(0, 60));
    for sbn in [0, 1] {
        receive(&mut session, sbn, strided(0, 60).chain(K..K + 42), 0);
        let before = synced_bytes(folder.path());
        assert_eq!(finish(&mut session, sbn, &received, 42), done(sbn));
        session.store.writer.wait();
        assert!(synced_bytes(folder.path()) > before, "block {sbn}");
    }
    // The first block was synced, the second one not yet.
    assert!(slot_numbers(&session, 0).iter().all(|number| *number == 0));
    assert!(slot_numbers(&session, 1).iter().all(|number| *number != 0));
}

#[test]
fn symbols_that_come_after_the_block_was_decoded_touch_no_slot() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = open_store(folder.path());
    receive(&mut session, 0, strided(0, 60).chain(K..K + 42), 0);
    assert_eq!(finish(&mut session, 0, &sorted(strided(0, 60)), 42), done(0));
    session.store.writer.wait();
    let before = slot_numbers(&session, 0);
    receive(&mut session, 0, K + 50..K + 56, 42);
    session.store.write_all();
    session.store.writer.wait();
    assert_eq!((slot_numbers(&session, 0), slots(&session, 0)), (before, 0));
}

/// Digests may be announced long after a block is whole: the disk need not hold the block twice meanwhile.
#[test]
fn a_decoded_block_needs_no_slots_while_it_waits_for_its_digest() {
    let received = sorted(strided(0, 60));
    let decoded = |folder: &Path| {
        let (mut session, _) = open_store(folder);
        receive(&mut session, 1, strided(0, 60).chain(K..K + 42), 0);
        assert_eq!(finish(&mut session, 1, &received, 42), done(1));
        session.store.writer.wait();
        assert_eq!(slots(&session, 1), 0);
        session
    };
    let folder = tempfile::tempdir().unwrap();
    drop(decoded(folder.path()));
    let (mut session, held) = open_store(folder.path());
    assert_eq!((held_source(&held, 1), held[0].repairs.len()), (sorted(0..K), 0));
    assert_eq!(finish(&mut session, 1, &sorted(0..K), 0), done(1));
    // The digest tells that a repair symbol was wrong: the journal forgets what was decoded.
    let folder = tempfile::tempdir().unwrap();
    let mut session = decoded(folder.path());
    session.store.judge_block(OBJECT, 1, BlockVerdict::RepairsDropped).unwrap();
    receive(&mut session, 1, K + 50..K + 80, 0);
    // The slots that are used again are not freed.
    sync(&mut session);
    receive(&mut session, 1, K + 80..K + 92, 30);
    assert_eq!(finish(&mut session, 1, &received, 42), done(1));
    session.store.judge_block(OBJECT, 1, BlockVerdict::RepairsDropped).unwrap();
    drop(session);
    assert!(open_store(folder.path()).1.is_empty());
}

/// A receiver without memory for a block of an earlier session receives the block anew.
#[test]
fn a_block_that_begins_anew_over_old_slots_stays_within_its_slots() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open_store(folder.path()).0;
    for sbn in [0, 1] {
        receive(&mut session, sbn, strided(0, 90).chain(K..K + 50), 0);
    }
    let mut slot = 0;
    for round in 0..3 {
        drop(session);
        session = open_store(folder.path()).0;
        slot = 0;
        receive(&mut session, 0, strided(20 * round, 60).chain(K + 60..K + 60 + 20 * round), 0);
        slot += 20 * round;
        assert!(slots(&session, 0) <= 2 * K + K / 8 + 2);
    }
    let received = sorted(strided(40, 60));
    // The receiver gets more until the decoder has enough.
    let mut next = K + 200;
    let report = loop {
        let report = finish(&mut session, 0, &received, slot);
        let StoreReport::BlockNeedsMore { more, .. } = report else { break report };
        receive(&mut session, 0, next..next + more, slot);
        (next, slot) = (next + more, slot + more);
    };
    assert_eq!(report, done(0));
    // The neighbour's slots are untouched.
    let received = sorted(strided(0, 90));
    assert_eq!(finish(&mut session, 1, &received, 50), done(1));
}

#[test]
fn numbers_of_an_earlier_session_are_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (session, _) = open_store(folder.path());
    let place = session.store.object(OBJECT);
    let source = |esi| 1 << 31 | esi;
    // Zeros of a hole, a source symbol as a repair symbol, a number of no symbol, and numbers twice.
    let numbers = [0, source(3), 5, source(K), source(3), K + 1, 1 << 25, K, K + 1];
    let block = place.block(0);
    assert_eq!(place.stored_symbols(&block, &numbers), [(1, 3), (5, K + 1), (7, K)]);
}

#[test]
fn blocks_without_a_code_or_decoded_in_strips_have_source_symbols_in_their_places() {
    let in_strips = Parameters::ldpc(Scheme::LdpcStaircase, T, K, 2 * K, LdpcParameters::new(1));
    for codecs in [in_strips, Parameters::no_code(T)] {
        let folder = tempfile::tempdir().unwrap();
        let (session, _) = announced(folder.path(), codecs);
        assert_eq!(session.store.object(OBJECT).slots(0), None);
    }
}
