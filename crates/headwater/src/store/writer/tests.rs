//! The writer thread before a disk that stalls or fails.

use std::fs;
use std::sync::mpsc::{Sender, channel};

use headwater_fec::{Parameters, Partition, codec};
use headwater_proto::delivery::{
    BlockJob, FileSpec, ObjectIndex, ObjectSpec, RelativePath, Store as _, block_digest,
};

use super::super::tests::{FILE, OBJECT, Session, open, report};
use super::*;

/// Symbol size, in bytes.
const T: usize = 1_000;
/// Symbols of the one block of the file: 8 MB, more than the gathered and the queued symbols of such a
/// file take.
const K: u32 = 8_000;

/// A store that a file was announced to, and the number of source symbols that are held of it.
fn announced(folder: &std::path::Path) -> (Session, u32) {
    let mut session = open(folder);
    let bytes = u64::from(K) * T as u64;
    let path = RelativePath::new("file").unwrap();
    let spec = FileSpec { digest: Some([1; 32]), ..FileSpec::new(path, bytes) };
    session.store.create_file(FILE, &spec).unwrap();
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition: Partition::with_blocks(bytes, 1_000, 1).unwrap(),
        codec: codec(Parameters::raptorq(1_000)).unwrap(),
        identity: Some([7; 32]),
    };
    let held = session.store.create_object(OBJECT, &object);
    session.store.writer.wait();
    let held = held.iter().flat_map(|block| &block.source).map(|word| word.count_ones()).sum();
    (session, held)
}

fn symbol(esi: u32) -> [u8; T] {
    [u8::try_from(esi % 251).unwrap(); T]
}

fn receive(session: &mut Session, esis: std::ops::Range<u32>) {
    esis.for_each(|esi| session.store.write_source(OBJECT, 0, esi, &symbol(esi)).unwrap());
}

/// Stalls the thread, as a disk does, until the sender is dropped.
fn stall(writer: &Writer) -> Sender<()> {
    let ((stalled, is_stalled), (sender, end)) = (channel(), channel());
    let shared = Arc::clone(&writer.shared);
    thread::spawn(move || {
        let _disk = shared.disk();
        stalled.send(()).unwrap();
        let _dropped: Result<(), _> = end.recv();
    });
    is_stalled.recv().unwrap();
    sender
}

#[test]
fn a_stalled_disk_does_not_stall_the_store_up_to_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = announced(folder.path());
    let stall = stall(&session.store.writer);
    // If the store waited for the disk this would never end.
    receive(&mut session, 0..1_000);
    session.store.write_all();
    session.store.finish_block(BlockJob { object: OBJECT, sbn: 0, missing: Vec::new(), repairs: 0 });
    assert_eq!(session.store.poll_report(), None, "the job waits for the symbols before it");
    assert!(session.store.is_busy());
    let work = folder.path().join(".headwater-work");
    let names: Vec<_> = fs::read_dir(work).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_str().unwrap().ends_with(".content")), "{names:?}");
    drop(stall);
    let mut content: Vec<u8> = (0..1_000).flat_map(symbol).collect();
    content.resize(K as usize * T, 0);
    let digest = block_digest(&content);
    let expected = StoreReport::BlockDone { object: ObjectIndex(0), sbn: 0, digest };
    assert_eq!(report(&mut session), expected);
}

#[test]
fn a_disk_that_is_stalled_for_longer_makes_the_store_wait_within_the_bound() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = announced(folder.path());
    let shared = Arc::clone(&session.store.writer.shared);
    let bytes_max = shared.lock().bytes_max;
    let stall = stall(&session.store.writer);
    let store = thread::spawn(move || {
        receive(&mut session, 0..K);
        session
    });
    // Until there is no room for the next buffers.
    while shared.lock().bytes + (192 << 10) < bytes_max {
        thread::yield_now();
    }
    assert!(!store.is_finished());
    drop(stall);
    let mut session = store.join().unwrap();
    assert!(shared.lock().bytes <= bytes_max);
    session.store.finish_block(BlockJob { object: OBJECT, sbn: 0, missing: Vec::new(), repairs: 0 });
    let digest = block_digest(&(0..K).flat_map(symbol).collect::<Vec<u8>>());
    assert_eq!(report(&mut session), StoreReport::BlockDone { object: OBJECT, sbn: 0, digest });
}

#[test]
fn a_write_that_fails_ends_the_store_and_the_journal_tells_of_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (mut session, _) = announced(folder.path());
    receive(&mut session, 0..500);
    session.store.write_all();
    session.store.writer.wait();
    let file = session.store.file(FILE);
    let work = folder.path().join(".headwater-work");
    let (name, aside) = (work.join(file.content_name()), folder.path().join("aside"));
    // A folder in the place of the file cannot be written to.
    session.store.places.close(&file);
    fs::rename(&name, &aside).unwrap();
    fs::create_dir(&name).unwrap();
    receive(&mut session, 500..1_000);
    session.store.write_all();
    let failed = report(&mut session);
    assert!(matches!(&failed, StoreReport::Failed(error) if error.0.contains("working file")), "{failed:?}");
    fs::remove_dir(&name).unwrap();
    fs::rename(&aside, &name).unwrap();
    // The disk has room again, but the journal must not go on behind a hole.
    receive(&mut session, 1_000..1_500);
    drop(session);
    let (_session, held) = announced(folder.path());
    assert_eq!(held, 500);
}
