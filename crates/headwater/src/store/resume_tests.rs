//! Stores opened on what others left.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_fec::{Parameters, Partition, codec};
use headwater_proto::delivery::{Digest, FileTime, FileVersion, StoredRepair};

use super::journal::Change;
use super::kept::ResumeState;
use super::tests::{FILE, OBJECT, Session, T, open};
use super::*;

const IDENTITY: Digest = [7; 32];

/// Announces a file of 100 symbols in two blocks; what is held of it.
fn announce(session: &mut Session, digest: Option<Digest>, identity: Digest) -> (HeldFile, Vec<HeldBlock>) {
    announce_version(session, FileVersion { digest, modified: None }, identity)
}

/// The same, of a file whose time may be known.
fn announce_version(
    session: &mut Session,
    version: FileVersion,
    identity: Digest,
) -> (HeldFile, Vec<HeldBlock>) {
    let path = RelativePath::new("folder/file").unwrap();
    let FileVersion { digest, modified } = version;
    let spec = FileSpec { modified, digest, ..FileSpec::new(path, 6_400) };
    let held = session.store.create_file(FILE, &spec).unwrap();
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition: Partition::with_blocks(6_400, T, 2).unwrap(),
        codec: codec(Parameters::raptorq(T)).unwrap(),
        identity: version.is_known().then_some(identity),
    };
    (held, session.store.create_object(OBJECT, &object))
}

/// Receives some symbols of block 0, and block 1 whole, and leaves.
fn interrupted(folder: &Path) {
    let mut session = open(folder);
    assert_eq!(announce(&mut session, Some([1; 32]), IDENTITY), Default::default());
    receive(&mut session.store);
}

fn receive(store: &mut DiskStore) {
    for esi in [0, 3, 49] {
        store.write_source(OBJECT, 0, esi, &[u8::try_from(esi).unwrap(); T as usize]).unwrap();
    }
    for (esi, slot) in [(60, 0), (61, 1)] {
        store.write_repair(OBJECT, 0, StoredRepair { esi, slot }, &[9; T as usize]).unwrap();
    }
    store.write_source(OBJECT, 1, 2, &[5; T as usize]).unwrap();
    store.judge_block(OBJECT, 1, BlockVerdict::Right).unwrap();
}

fn expected() -> (HeldFile, Vec<HeldBlock>) {
    let open =
        HeldBlock { sbn: 0, is_whole: false, source: vec![1 | 1 << 3 | 1 << 49], repairs: vec![60, 61] };
    let whole = HeldBlock { sbn: 1, is_whole: true, ..HeldBlock::default() };
    (HeldFile::default(), vec![open, whole])
}

/// What a journal tells, as far as it can be trusted.
fn read(file: &fs::File) -> ResumeState {
    journal::trusted_end(file)
        .map_or_else(ResumeState::default, |end| journal::read(file, end, (0, 0), usize::MAX))
}

fn told_by(kept: &ResumeState) -> Vec<Change> {
    kept.changes().chain(kept.block_changes()).collect()
}

fn work(folder: &Path) -> PathBuf {
    folder.join(".headwater-work")
}

#[test]
fn what_came_is_there_for_the_next_session_and_the_one_after() {
    let folder = tempfile::tempdir().unwrap();
    interrupted(folder.path());
    for _ in 0..3 {
        let mut session = open(folder.path());
        assert_eq!(announce(&mut session, Some([1; 32]), IDENTITY), expected());
        let mut symbol = [0; T as usize];
        session.store.places.read(&session.store.file(FILE), 49 * 64, &mut symbol).unwrap();
        assert_eq!(symbol, [49; T as usize]);
        let (object, mut symbols) = (session.store.object(OBJECT), [0; 2 * T as usize]);
        session.store.places.read_slot_symbols(&object, &object.block(0), 0, &mut symbols).unwrap();
        assert_eq!(symbols, [9; 2 * T as usize]);
    }
}

#[test]
fn another_content_coding_or_none_that_can_be_verified_starts_anew() {
    for (digest, identity) in [(Some([2; 32]), IDENTITY), (Some([1; 32]), [8; 32]), (None, IDENTITY)] {
        let folder = tempfile::tempdir().unwrap();
        interrupted(folder.path());
        let (_, blocks) = announce(&mut open(folder.path()), digest, identity);
        assert!(blocks.is_empty(), "{digest:?} {identity:?}: {blocks:?}");
    }
}

#[test]
fn until_the_digest_is_known_the_time_of_modification_names_the_content() {
    let version = |digest: Option<u8>, seconds: Option<i64>| FileVersion {
        digest: digest.map(|byte| [byte; 32]),
        modified: seconds.and_then(|seconds| FileTime::new(seconds, 5)),
    };
    let is_resumed =
        |folder: &Path, version| announce_version(&mut open(folder), version, IDENTITY) == expected();
    for (begun, learned, then, expected) in [
        (version(None, Some(3)), None, version(None, Some(3)), true),
        (version(None, Some(3)), None, version(Some(1), Some(3)), true),
        (version(Some(1), Some(3)), None, version(None, Some(3)), true),
        (version(Some(1), Some(3)), None, version(Some(1), Some(4)), true),
        (version(None, Some(3)), Some([1; 32]), version(Some(1), None), true),
        (version(None, Some(3)), None, version(None, Some(4)), false),
        (version(None, Some(3)), None, version(Some(1), None), false),
        (version(None, Some(3)), Some([1; 32]), version(Some(2), Some(3)), false),
        (version(Some(1), Some(3)), None, version(Some(2), Some(3)), false),
        (version(None, None), None, version(None, None), false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut session = open(folder.path());
        announce_version(&mut session, begun, IDENTITY);
        receive(&mut session.store);
        if let Some(digest) = learned {
            session.store.learn_digest(FILE, digest).unwrap();
        }
        drop(session);
        assert_eq!(is_resumed(folder.path(), then), expected, "{begun:?}, {learned:?}, {then:?}");
        // More is known of it now, and nothing is forgotten.
        if expected {
            assert!(is_resumed(folder.path(), begun) && is_resumed(folder.path(), then));
        }
    }
}

#[test]
fn a_damaged_journal_tells_less_and_never_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    interrupted(folder.path());
    let journal = fs::read(work(folder.path()).join("journal")).unwrap();
    let path = folder.path().join("damaged");
    let told = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        told_by(&read(&fs::File::open(&path).unwrap()))
    };
    let whole = told(&journal);
    assert_eq!(whole.len(), 5);
    let is_less = |told: &[Change]| told.iter().all(|change| whole.contains(change));
    for at in 0..journal.len() {
        let mut flipped = journal.clone();
        flipped[at] ^= 0x40;
        assert!(is_less(&told(&flipped)), "byte {at}");
        assert!(is_less(&told(&journal[..at])), "cut at {at}");
    }
    // Another version is another format.
    let mut newer = journal;
    newer[6] += 1;
    assert_eq!(told(&newer), []);
}

#[test]
fn after_a_loss_of_power_only_what_was_made_safe_counts() {
    let folder = tempfile::tempdir().unwrap();
    let change = |esi| Change::Source { object: 0, sbn: 0, esi, count: 1 };
    let file =
        fs::File::options().create_new(true).read(true).write(true).open(folder.path().join("j")).unwrap();
    let mut journal = journal::Journal::create(file.try_clone().unwrap()).unwrap();
    journal
        .note(&Change::File {
            file: 0,
            key: [0; 16],
            bytes: 1,
            version: FileVersion { digest: Some([0; 32]), modified: None },
        })
        .unwrap();
    journal.note(&Change::Object { object: 0, file: 0, identity: IDENTITY }).unwrap();
    journal.note(&change(0)).unwrap();
    journal.flush().unwrap();
    journal::sync(&file, journal.written().1).unwrap();
    journal.note(&change(1)).unwrap();
    journal.flush().unwrap();
    let source = || read(&file).take_blocks(0)[&0].source.clone();
    assert_eq!(source(), [0b11]);
    // The header of another boot.
    let mut opening = [0; 32];
    file.read_exact_at(&mut opening, 0).unwrap();
    opening[10] ^= 1;
    let sum = blake3::hash(&opening[..24]);
    opening[24..].copy_from_slice(&sum.as_bytes()[..8]);
    file.write_all_at(&opening, 0).unwrap();
    assert_eq!(source(), [0b01]);
}

#[test]
fn receivers_of_one_folder_keep_out_of_each_others_way() {
    let folder = tempfile::tempdir().unwrap();
    let (first, mut second) = (open(folder.path()), open(folder.path()));
    announce(&mut second, Some([1; 32]), IDENTITY);
    second.store.write_source(OBJECT, 0, 0, &[1; T as usize]).unwrap();
    drop(first);
    drop(second);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [".headwater-work-2"], "the first one received nothing and left nothing");
}

/// Removes the working files with these extensions.
fn lose(folder: &Path, extensions: &[&str]) {
    for entry in fs::read_dir(work(folder)).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn what_is_lost_is_not_claimed_and_the_rest_counts() {
    let block = |source: &[u64], repairs: &[u32]| HeldBlock {
        sbn: 0,
        is_whole: false,
        source: source.to_vec(),
        repairs: repairs.to_vec(),
    };
    let [open_block, whole_block] = expected().1.try_into().unwrap();
    for (lost, held) in [
        (&["content", "repair"][..], vec![]),
        (&["content"], vec![block(&[], &[60, 61])]),
        (&["repair"], vec![block(&open_block.source, &[]), whole_block]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        interrupted(folder.path());
        lose(folder.path(), lost);
        // Twice: what was found to be lost stays lost.
        for _ in 0..2 {
            let (file, blocks) = announce(&mut open(folder.path()), Some([1; 32]), IDENTITY);
            assert_eq!((file, &blocks), (HeldFile::default(), &held), "{lost:?}");
        }
    }
}

/// Issue 23: a receiver stopped before its first block was decoded, which had nothing but repair symbols,
/// lost them all.
#[test]
fn repair_symbols_alone_are_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(folder.path());
    announce(&mut session, Some([1; 32]), IDENTITY);
    for (esi, slot) in [(160, 0), (161, 1)] {
        session.store.write_repair(OBJECT, 0, StoredRepair { esi, slot }, &[9; T as usize]).unwrap();
    }
    drop(session);
    let held = HeldBlock { sbn: 0, repairs: vec![160, 161], ..HeldBlock::default() };
    for _ in 0..2 {
        let (_, blocks) = announce(&mut open(folder.path()), Some([1; 32]), IDENTITY);
        assert_eq!(blocks, std::slice::from_ref(&held));
    }
}

/// A receiver at a low rate that is killed loses the symbols of 20 ms.
#[test]
fn a_few_symbols_are_soon_written() {
    let [folder, copy] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut session = open(folder.path());
    announce(&mut session, Some([1; 32]), IDENTITY);
    session.store.write_source(OBJECT, 0, 3, &[3; T as usize]).unwrap();
    std::thread::sleep(gather::SHORT_TIME);
    assert!(session.store.poll_report().is_none());
    session.store.writer.wait();
    fs::create_dir(work(copy.path())).unwrap();
    for entry in fs::read_dir(work(folder.path())).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), work(copy.path()).join(entry.file_name())).unwrap();
    }
    let (_, blocks) = announce(&mut open(copy.path()), Some([1; 32]), IDENTITY);
    assert_eq!(blocks, [HeldBlock { source: vec![1 << 3], ..HeldBlock::default() }]);
}

#[test]
fn a_file_in_place_counts_while_others_are_missing_and_nobody_touched_it() {
    for is_touched in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut session = open(folder.path());
        announce(&mut session, Some([1; 32]), IDENTITY);
        let other =
            FileSpec { digest: Some([3; 32]), ..FileSpec::new(RelativePath::new("other").unwrap(), 1) };
        session.store.create_file(FileIndex(1), &other).unwrap();
        session.store.finish_file(FILE);
        while session.store.poll_report().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(session);
        if is_touched {
            fs::write(folder.path().join("folder/file"), "mine").unwrap();
        }
        let (held, _) = announce(&mut open(folder.path()), Some([1; 32]), IDENTITY);
        assert_eq!(held.is_whole, !is_touched);
    }
}
