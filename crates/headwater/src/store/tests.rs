use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use headwater_fec::{Block, Parameters, Partition, codec};
use headwater_proto::delivery::{FileTime, block_digest};
use md5::{Digest as _, Md5};

use super::*;
use crate::net::Poller;
use crate::system::OPEN_FILES_MAX;

/// Symbol size T of the tests, in bytes.
pub(super) const T: u16 = 64;
/// Bytes of the file that most tests receive: two blocks, the last symbol 5 bytes long.
const BYTES: usize = 19 * 64 + 5;
pub(super) const FILE: FileIndex = FileIndex(0);
pub(super) const OBJECT: ObjectIndex = ObjectIndex(0);
/// Some block of 100 symbols of 1000 bytes.
const BLOCK: Block = Block { sbn: 0, first_symbol: 0, symbols: 100, offset: 0, bytes: 100_000 };

/// A store that wakes nobody.
pub(super) struct Session {
    pub(super) store: DiskStore,
    _poller: Poller,
}

/// Waits for the store's next report.
pub(super) fn next_report(store: &mut DiskStore) -> StoreReport {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(report) = store.poll_report() {
            return report;
        }
        assert!(Instant::now() < deadline, "no report came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn report(session: &mut Session) -> StoreReport {
    next_report(&mut session.store)
}

/// Announces content as an object of a single block.
pub(super) fn create_block(store: &mut DiskStore, bytes: u64) {
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition: Partition::with_blocks(bytes, T, 1).unwrap(),
        codec: codec(Parameters::raptorq(T)).unwrap(),
        identity: Some([7; 32]),
    };
    store.create_object(OBJECT, &object);
}

/// Receives the content of [`create_block`], without a loss.
pub(super) fn receive_block(store: &mut DiskStore, content: &[u8]) {
    for (esi, symbol) in (0..).zip(content.chunks(T.into())) {
        let mut padded = symbol.to_vec();
        padded.resize(T.into(), 0);
        store.write_source(OBJECT, 0, esi, &padded).unwrap();
    }
    store.finish_block(BlockJob { object: OBJECT, sbn: 0, missing: Vec::new(), repairs: 0 });
    assert!(matches!(next_report(store), StoreReport::BlockDone { .. }));
    store.judge_block(OBJECT, 0, BlockVerdict::Right).unwrap();
}

pub(super) fn open(folder: &Path) -> Session {
    open_with(folder, StoreOptions::default())
}

pub(super) fn open_with(folder: &Path, options: StoreOptions) -> Session {
    let poller = Poller::new().unwrap();
    Session { store: DiskStore::open(folder, options, poller.waker()).unwrap(), _poller: poller }
}

struct Fixture {
    // Dropped first: it looks after its own leavings in the folder.
    store: DiskStore,
    _poller: Poller,
    folder: tempfile::TempDir,
    content: Vec<u8>,
    object: ObjectSpec,
}

fn spec(path: &str, bytes: u64) -> FileSpec {
    FileSpec::new(RelativePath::new(path).unwrap(), bytes)
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let poller = Poller::new().unwrap();
        let store = DiskStore::open(folder.path(), StoreOptions::default(), poller.waker()).unwrap();
        let content: Vec<u8> = (0..BYTES).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        let object = ObjectSpec {
            file: FILE,
            offset: 0,
            partition: Partition::with_blocks(BYTES as u64, T, 2).unwrap(),
            codec: codec(Parameters::raptorq(T)).unwrap(),
            identity: None,
        };
        Self { store, _poller: poller, folder, content, object }
    }

    /// With the file and its object announced.
    fn announced(spec: &FileSpec) -> Self {
        let mut fixture = Self::new();
        fixture.store.create_file(FILE, spec).unwrap();
        let object = fixture.object.clone();
        fixture.store.create_object(OBJECT, &object);
        fixture
    }

    fn block(&self, sbn: u32) -> &[u8] {
        let block = self.object.partition.block(sbn).unwrap();
        let start = usize::try_from(block.offset).unwrap();
        &self.content[start..start + usize::try_from(block.bytes).unwrap()]
    }

    fn k(&self, sbn: u32) -> u32 {
        self.object.partition.block(sbn).unwrap().symbols
    }

    fn symbol(&self, sbn: u32, esi: u32) -> Vec<u8> {
        let start = esi as usize * usize::from(T);
        let block = self.block(sbn);
        let mut symbol = block[start..block.len().min(start + usize::from(T))].to_vec();
        symbol.resize(T.into(), 0);
        symbol
    }

    fn write(&mut self, sbn: u32, esi: u32) {
        let symbol = self.symbol(sbn, esi);
        self.store.write_source(OBJECT, sbn, esi, &symbol).unwrap();
    }

    fn write_all_but(&mut self, sbn: u32, missing: &[u32]) {
        for esi in (0..self.k(sbn)).filter(|esi| !missing.contains(esi)) {
            self.write(sbn, esi);
        }
    }

    /// Keeps repair symbols of these numbers from k on, in slots from `first` on.
    fn write_repairs(&mut self, sbn: u32, first: u32, numbers: &[u32]) {
        let k = self.k(sbn);
        let mut padded = self.block(sbn).to_vec();
        padded.resize(k as usize * usize::from(T), 0);
        let encoder = self.object.codec.encoder(k, &padded).unwrap();
        for (slot, number) in (first..).zip(numbers) {
            let mut symbol = [0; T as usize];
            encoder.symbol(k + number, &mut symbol).unwrap();
            self.store.write_repair(OBJECT, sbn, StoredRepair { esi: k + number, slot }, &symbol).unwrap();
        }
    }

    fn report(&mut self) -> StoreReport {
        next_report(&mut self.store)
    }

    fn finish_block(&mut self, sbn: u32, missing: &[u32], repairs: u32) -> StoreReport {
        self.store.finish_block(BlockJob { object: OBJECT, sbn, missing: missing.to_vec(), repairs });
        self.report()
    }

    fn finish_file(&mut self) -> StoreReport {
        self.store.finish_file(FILE);
        self.report()
    }

    fn done(&self, sbn: u32) -> StoreReport {
        StoreReport::BlockDone { object: OBJECT, sbn, digest: block_digest(self.block(sbn)) }
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What stands in the folder beside the working folder.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with(".headwater-")).collect();
        names.sort();
        names
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.out(name)).unwrap().permissions().mode() & 0o7777
    }

    /// Ends the store, and makes sure that it leaves no working folder.
    fn end(self) {
        let Self { store, folder, .. } = self;
        drop(store);
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_str().unwrap().starts_with(".headwater-")), "{left:?}");
    }
}

#[test]
fn source_symbols_make_a_file_under_its_name_only_once_it_is_finished() {
    let mut fixture = Fixture::announced(&spec("a/b/file", BYTES as u64));
    for sbn in [1, 0] {
        fixture.write_all_but(sbn, &[]);
        assert_eq!(fixture.finish_block(sbn, &[], 0), fixture.done(sbn));
    }
    assert!(fixture.names().is_empty());
    assert_eq!(fixture.finish_file(), StoreReport::FileDone(FILE));
    assert_eq!(fs::read(fixture.out("a/b/file")).unwrap(), fixture.content);
    assert!(!fixture.store.is_busy());
    fixture.end();
}

#[test]
fn repair_symbols_stand_in_for_missing_ones() {
    let mut fixture = Fixture::announced(&spec("file", BYTES as u64));
    let missing = [0, 3, 4, fixture.k(0) - 1];
    fixture.write_all_but(0, &missing);
    fixture.write_repairs(0, 0, &[9, 2, 5]);
    fixture.store.write_all();
    fixture.write_repairs(0, 3, &[0, 1]);
    assert_eq!(fixture.finish_block(0, &missing, 5), fixture.done(0));
    // All of the last block, with its short symbol, from repair symbols alone.
    let missing: Vec<u32> = (0..fixture.k(1)).collect();
    let numbers: Vec<u32> = (10..12 + fixture.k(1)).collect();
    fixture.write_repairs(1, 0, &numbers);
    assert_eq!(fixture.finish_block(1, &missing, fixture.k(1) + 2), fixture.done(1));
    assert_eq!(fixture.finish_file(), StoreReport::FileDone(FILE));
    assert_eq!(fs::read(fixture.out("file")).unwrap(), fixture.content);
    fixture.end();
}

#[test]
fn a_block_says_how_many_symbols_it_lacks_and_takes_them_while_it_is_at_work() {
    let mut fixture = Fixture::announced(&spec("file", BYTES as u64));
    fixture.write_all_but(0, &[2, 5, 7]);
    fixture.write_repairs(0, 0, &[0]);
    let job = BlockJob { object: OBJECT, sbn: 0, missing: vec![2, 5, 7], repairs: 1 };
    fixture.store.finish_block(job);
    fixture.write_repairs(0, 1, &[4, 3]);
    assert_eq!(fixture.report(), StoreReport::BlockNeedsMore { object: OBJECT, sbn: 0, more: 2 });
    assert_eq!(fixture.finish_block(0, &[2, 5, 7], 3), fixture.done(0));
}

/// The room of a block is its own, whatever its neighbours have, and slots are used again once they are free.
#[test]
fn blocks_keep_their_repair_symbols_apart() {
    let mut fixture = Fixture::announced(&spec("file", BYTES as u64));
    let all: Vec<u32> = (0..fixture.k(0) + 2).collect();
    for sbn in [1, 0] {
        fixture.write_repairs(sbn, 0, &vec![7; all.len()]);
        fixture.store.write_all();
    }
    fixture.store.judge_block(OBJECT, 0, BlockVerdict::RepairsDropped).unwrap();
    for sbn in [1, 0] {
        fixture.write_repairs(sbn, 0, &all[..fixture.k(sbn) as usize + 2]);
    }
    for sbn in [0, 1] {
        let missing: Vec<u32> = (0..fixture.k(sbn)).collect();
        assert_eq!(fixture.finish_block(sbn, &missing, fixture.k(sbn) + 2), fixture.done(sbn));
    }
}

/// In whatever order symbols come, each is in its place: runs are written together, and the last symbol is
/// short.
#[test]
fn symbols_are_gathered_and_land_in_their_places() {
    let mut fixture = Fixture::announced(&spec("file", BYTES as u64));
    let last = fixture.k(1) - 1;
    for esi in [3, 4, last, 5, 1, 0, 2, 6].into_iter().chain(7..last) {
        fixture.write(1, esi);
    }
    assert_eq!(fixture.finish_block(1, &[], 0), fixture.done(1));
}

/// A process may be killed at any instant: what came a while ago is on disk, and the journal tells of it.
#[test]
fn what_came_a_while_ago_is_written() {
    let mut fixture = Fixture::announced(&FileSpec { digest: Some([1; 32]), ..spec("file", BYTES as u64) });
    fixture.write(0, 3);
    std::thread::sleep(gather::GATHER_TIME);
    assert_eq!(fixture.store.poll_report(), None);
    fixture.store.writer.wait();
    let mut symbol = [0; T as usize];
    fixture.store.places.read(&fixture.store.file(FILE), 3 * u64::from(T), &mut symbol).unwrap();
    assert_eq!(symbol, fixture.symbol(0, 3)[..]);
}

#[test]
fn what_is_gathered_is_bounded() {
    let mut gather = Gather::new();
    let mut gathered = 0_usize;
    for number in 0..100_000_u32 {
        let key = (0, number % 1_000);
        gathered += 1_000;
        if let Some(due) = gather.put_source(key, number / 1_000, &[0; 1_000]) {
            gathered -=
                gather.take(due).unwrap().source_runs(BLOCK, 1_000).map(|run| run.2.len()).sum::<usize>();
        }
        assert!(gathered <= 2 << 20, "{gathered}");
    }
}

#[test]
fn a_file_that_differs_from_its_md5_is_discarded() {
    let right: [u8; 16] = Md5::digest(&Fixture::new().content).into();
    for (md5, report) in [([0; 16], StoreReport::FileMismatch(FILE)), (right, StoreReport::FileDone(FILE))] {
        let mut fixture = Fixture::announced(&FileSpec { md5: Some(md5), ..spec("file", BYTES as u64) });
        for sbn in [0, 1] {
            fixture.write_all_but(sbn, &[]);
            fixture.finish_block(sbn, &[], 0);
        }
        assert_eq!(fixture.finish_file(), report);
        assert_eq!(fixture.names().is_empty(), md5 != right);
        fixture.end();
    }
}

/// A sender withdraws a file while threads are at work on it: neither its blocks nor its name fail the
/// session, and no file of zeros takes its place.
#[test]
fn a_file_given_up_while_it_is_finished_leaves_nothing_and_fails_nothing() {
    for round in 0..20 {
        let mut fixture = Fixture::announced(&spec("file", BYTES as u64));
        fs::write(fixture.out("file"), "an older file").unwrap();
        fixture.write_all_but(0, &[2, 5]);
        fixture.write_repairs(0, 0, &[0, 1, 2]);
        fixture.write_all_but(1, &[]);
        let (object, missing) = (OBJECT, vec![2, 5]);
        fixture.store.finish_block(BlockJob { object, sbn: 0, missing, repairs: 3 });
        fixture.store.finish_file(FILE);
        // At another moment of the work each time.
        std::thread::sleep(Duration::from_micros(50 * round));
        fixture.store.discard_file(FILE).unwrap();
        for _ in 0..2 {
            let report = fixture.report();
            assert!(!matches!(report, StoreReport::Failed(_)), "{report:?}");
        }
        assert_eq!(fixture.store.open_files, 0);
        let found = fs::read(fixture.out("file")).unwrap();
        let is_sound = found == b"an older file" || found[..64] == fixture.content[..64];
        assert!(is_sound, "{} bytes that are nobody's", found.len());
    }
}

#[test]
fn an_older_file_is_replaced_and_empty_files_exist() {
    let mut fixture = Fixture::new();
    fs::write(fixture.out("file"), "older").unwrap();
    fixture.store.create_file(FILE, &spec("file", 0)).unwrap();
    assert_eq!(fixture.finish_file(), StoreReport::FileDone(FILE));
    assert_eq!(fs::read(fixture.out("file")).unwrap(), b"");
}

#[test]
fn a_file_in_place_has_the_senders_time_of_modification() {
    let mut fixture = Fixture::new();
    let modified = FileTime::new(-3, 250_000_000);
    let before = fs::metadata(fixture.folder.path()).unwrap().modified().unwrap();
    fixture.store.create_file(FILE, &FileSpec { modified, ..spec("file", 0) }).unwrap();
    assert_eq!(fixture.finish_file(), StoreReport::FileDone(FILE));
    let metadata = fs::metadata(fixture.out("file")).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-3, 250_000_000));
    assert!(metadata.accessed().unwrap() >= before, "the time of access is its own");
}

#[test]
fn only_permission_bits_are_taken_over() {
    let mut fixture = Fixture::new();
    let default = fixture.out("default");
    fs::write(&default, "").unwrap();
    let default = fixture.mode("default");
    for (index, (mode, expected)) in
        [(Some(0o7700), 0o700), (Some(0o100_400), 0o400), (None, default)].into_iter().enumerate()
    {
        let file = FileIndex(index);
        let name = format!("file{index}");
        fixture.store.create_file(file, &FileSpec { mode, ..spec(&name, 0) }).unwrap();
        fixture.store.finish_file(file);
        assert_eq!(fixture.report(), StoreReport::FileDone(file));
        assert_eq!(fixture.mode(&name), expected, "{mode:?}");
    }
}

#[test]
fn names_that_are_taken_are_refused_at_once() {
    let mut fixture = Fixture::new();
    fs::create_dir(fixture.out("folder")).unwrap();
    fs::write(fixture.out("file"), "").unwrap();
    symlink("/tmp", fixture.out("link")).unwrap();
    let mut refused = |name: &str| {
        let index = FileIndex(fixture.store.files.len());
        fixture.store.create_file(index, &spec(name, 0)).is_err()
    };
    assert!(refused("folder") && refused("file/x") && refused("link/x") && refused("link"));
    assert!(!refused("file") && !refused("folder/x/y") && !refused("folder/xy"));
    // What the session itself has announced.
    assert!(refused("file") && refused("folder/x") && refused("folder/x/y/z"));
    assert!(!refused("folder/x/z"));
}

#[test]
fn a_link_put_in_the_way_meanwhile_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new();
    fixture.store.create_file(FILE, &spec("folder/file", 0)).unwrap();
    symlink(outside.path(), fixture.out("folder")).unwrap();
    let report = fixture.finish_file();
    assert!(matches!(&report, StoreReport::Failed(error) if error.0.contains("is no folder")), "{report:?}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    fixture.end();
}

#[test]
fn files_that_do_not_fit_are_refused_before_anything_is_written() {
    let mut fixture = Fixture::new();
    for (index, bytes) in [1 << 60, u64::MAX].into_iter().enumerate() {
        let error = fixture.store.create_file(FileIndex(index), &spec("huge", bytes)).unwrap_err();
        assert!(error.0.contains("free some space"), "{error}");
        assert!(fixture.store.out_of_space().is_some());
    }
    assert!(
        fixture.store.create_file(FileIndex(2), &spec("huge", 1)).is_ok(),
        "the refused ones take nothing"
    );
}

#[test]
fn more_files_than_may_be_open_are_received_side_by_side() {
    let mut fixture = Fixture::new();
    let count = OPEN_FILES_MAX + 30;
    let partition = Partition::new(2 * u64::from(T), T, 1).unwrap();
    for index in 0..count {
        let file = FileIndex(index);
        fixture.store.create_file(file, &spec(&format!("file{index}"), 2 * u64::from(T))).unwrap();
        let object = ObjectSpec { file, partition, ..fixture.object.clone() };
        fixture.store.create_object(ObjectIndex(index), &object);
    }
    let symbol = |index: usize, sbn: u32| [u8::try_from((index + sbn as usize) % 256).unwrap(); T as usize];
    for sbn in [0, 1] {
        for index in 0..count {
            fixture.store.write_source(ObjectIndex(index), sbn, 0, &symbol(index, sbn)).unwrap();
        }
    }
    for index in 0..count {
        for sbn in [0, 1] {
            let job = BlockJob { object: ObjectIndex(index), sbn, missing: Vec::new(), repairs: 0 };
            fixture.store.finish_block(job);
            assert!(matches!(fixture.report(), StoreReport::BlockDone { .. }));
        }
    }
    for index in 0..count {
        fixture.store.finish_file(FileIndex(index));
    }
    for _ in 0..count {
        assert!(matches!(fixture.report(), StoreReport::FileDone(_)));
    }
    for index in 0..count {
        let expected = [symbol(index, 0), symbol(index, 1)].concat();
        assert_eq!(fs::read(fixture.out(&format!("file{index}"))).unwrap(), expected);
    }
    fixture.end();
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let waker = Poller::new().unwrap().waker();
    let error = DiskStore::open(&file.join("out"), StoreOptions::default(), waker).unwrap_err();
    assert!(error.0.contains("choose a folder"), "{error}");
}

#[test]
fn folders_are_made_inside_and_never_through_links_or_files() {
    let mut fixture = Fixture::new();
    let out = fixture.folder.path().to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), out.join("link")).unwrap();
    fs::write(out.join("old-file"), "").unwrap();
    fs::create_dir(out.join("there")).unwrap();
    let path = |path: &str| RelativePath::new(path).unwrap();
    for name in ["a/b/c", "there", "there/too", "a/b/c"] {
        fixture.store.create_folder(&path(name)).unwrap();
        assert!(out.join(name).is_dir(), "{name}");
    }
    for (name, why) in [("link", "no folder"), ("link/below", "no folder"), ("old-file", "no folder")] {
        let refused = fixture.store.create_folder(&path(name)).unwrap_err().0;
        assert!(refused.contains(why), "{name}: {refused}");
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    fixture.store.create_file(FILE, &spec("file", 0)).unwrap();
    assert!(fixture.store.create_folder(&path("file")).is_err(), "a file of the session will have the name");
    assert!(fixture.store.create_folder(&path("file/below")).is_err());
}
