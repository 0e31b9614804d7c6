//! Journals that are made anew while a session goes on, and what is left of sessions long ago.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use headwater_fec::{Parameters, Partition, codec};
use headwater_proto::Seed;
use headwater_proto::delivery::{Digest, FileVersion};
use headwater_proto::rng::Stream;
use rand::RngExt;

use super::journal::{Change, Journal};
use super::kept::ResumeState;
use super::ledger::{JOURNAL, JOURNAL_NEW};
use super::tests::{FILE, OBJECT, Session, T, open};
use super::write_log::{SYNC_TIME, UNSYNCED_BYTES_MIN};
use super::*;

fn journal(folder: &Path, name: &str) -> fs::File {
    fs::File::options().create_new(true).read(true).write(true).open(folder.join(name)).unwrap()
}

fn told(kept: &ResumeState) -> Vec<Change> {
    kept.changes().chain(kept.block_changes()).collect()
}

/// A change such as sessions note, of a few files and objects.
fn any_change(random: &mut Stream) -> Change {
    let (object, sbn) = (random.random_range(0..6), random.random_range(0..30));
    match random.random_range(0..200) {
        0 => Change::Dropped { file: random.random_range(0..3) },
        1 => Change::Placed {
            file: random.random_range(0..3),
            stamp: Stamp { device: 1, inode: 2, bytes: 3, changed: 4 },
        },
        2..6 => Change::AllDropped { object, sbn },
        6..10 => Change::RepairsDropped { object, sbn },
        10..20 => Change::Whole { object, sbn },
        20..40 => Change::Repairs { object, sbn, slots: random.random_range(0..100) },
        40..60 => Change::Word { object, sbn, index: random.random_range(0..8), bits: random.random() },
        _ => Change::Source {
            object,
            sbn,
            esi: random.random_range(0..500),
            count: random.random_range(1..20),
        },
    }
}

#[test]
fn a_journal_made_anew_tells_the_same_in_any_memory() {
    for seed in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let file = journal(folder.path(), "old");
        let mut old = Journal::create(file.try_clone().unwrap()).unwrap();
        for number in 0..3 {
            old.note(&Change::File {
                file: number,
                key: [0; 16],
                bytes: 1,
                version: FileVersion { digest: Some([0; 32]), modified: None },
            })
            .unwrap();
        }
        for object in 0..6_u8 {
            let identity: Digest = [object; 32];
            let (object, file) = (object.into(), u32::from(object) / 2);
            old.note(&Change::Object { object, file, identity }).unwrap();
        }
        let mut random = Seed(seed).stream("changes", 0);
        let (mut noted, mut ended) = (0, 0);
        while noted < 3_000 {
            let change = any_change(&mut random);
            // A file ends once; changes of its objects that follow count for nothing.
            let (_, end) = old.written();
            let is_known = match change {
                Change::Dropped { .. } | Change::Placed { .. } if noted < 2_000 || ended == 2 => false,
                Change::Dropped { file } | Change::Placed { file, .. } => {
                    old.flush().unwrap();
                    journal::read(&file_of(&old), end.max(old.written().1), (0, 0), 0)
                        .files
                        .contains_key(&file)
                }
                _ => noted < 2_990,
            };
            if is_known {
                old.note(&change).unwrap();
                ended += u32::from(matches!(change, Change::Dropped { .. } | Change::Placed { .. }));
            }
            noted += 1;
        }
        old.flush().unwrap();
        let (file, end) = old.written();
        let expected = told(&journal::read(&file, end, (0, 0), usize::MAX));
        assert!(expected.len() > 20);
        for (number, bytes_max) in [0, 1_000, usize::MAX].into_iter().enumerate() {
            let new = journal(folder.path(), &format!("new{number}"));
            let (new, _) = journal::compact(&file, end, new, bytes_max, |_| false).unwrap();
            let (new, new_end) = new.written();
            assert!(new_end < end);
            assert_eq!(told(&journal::read(&new, new_end, (0, 0), usize::MAX)), expected, "{bytes_max}");
        }
    }
}

fn file_of(journal: &Journal) -> Arc<fs::File> {
    journal.written().0
}

/// Announces a file of 200 symbols in two blocks; what is held of the first one.
fn announce(session: &mut Session) -> Vec<u64> {
    let bytes = 200 * u64::from(T);
    let path = RelativePath::new("file").unwrap();
    let spec = FileSpec { digest: Some([1; 32]), ..FileSpec::new(path, bytes) };
    session.store.create_file(FILE, &spec).unwrap();
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition: Partition::with_blocks(bytes, T, 2).unwrap(),
        codec: codec(Parameters::raptorq(T)).unwrap(),
        identity: Some([7; 32]),
    };
    let held = session.store.create_object(OBJECT, &object);
    held.into_iter().find(|block| block.sbn == 0).map_or(Vec::new(), |block| block.source)
}

/// Receives a symbol of block 0, and writes it down.
fn receive(session: &mut Session, esi: u32) {
    session.store.write_source(OBJECT, 0, esi, &[1; T as usize]).unwrap();
    session.store.write_all();
    session.store.writer.wait();
}

/// What a process that is killed now leaves to the next one.
fn killed_now(folder: &Path, change: impl FnOnce(&Path)) -> Vec<u64> {
    let left = tempfile::tempdir().unwrap();
    let work = left.path().join(".headwater-work");
    fs::create_dir(&work).unwrap();
    for entry in fs::read_dir(folder.join(".headwater-work")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), work.join(entry.file_name())).unwrap();
    }
    change(&work);
    announce(&mut open(left.path()))
}

#[test]
fn whoever_is_killed_while_a_journal_is_made_anew_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(folder.path());
    announce(&mut session);
    (0..20).step_by(2).for_each(|esi| receive(&mut session, esi));
    assert_eq!(killed_now(folder.path(), |_| ()), [0x5_5555]);
    let before = session.store.writer.disk().log_mut().journal_bytes();
    {
        let mut disk = session.store.writer.disk();
        let log = disk.log_mut();
        (log.compact_at, log.unsynced_bytes) = (0, UNSYNCED_BYTES_MIN);
    }
    receive(&mut session, 20);
    // The new journal is there or not, and grows; the old one goes on.
    assert_eq!(killed_now(folder.path(), |_| ()), [0x15_5555]);
    let new = folder.path().join(".headwater-work").join(JOURNAL_NEW);
    while !session.store.workers.is_idle() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let length = fs::metadata(&new).unwrap().len();
    receive(&mut session, 22);
    for cut in 0..=length {
        let held = killed_now(folder.path(), |work| {
            fs::File::options().write(true).open(work.join(JOURNAL_NEW)).unwrap().set_len(cut).unwrap();
        });
        assert_eq!(held, [0x55_5555], "cut at {cut}");
    }
    assert!(session.store.poll_report().is_none());
    session.store.writer.wait();
    assert!(!new.exists() && session.store.writer.disk().log_mut().compact_at > 0);
    assert_eq!(killed_now(folder.path(), |_| ()), [0x55_5555], "what came meanwhile is in the new one");
    assert!(session.store.writer.disk().log_mut().journal_bytes() < before);
    receive(&mut session, 24);
    assert_eq!(killed_now(folder.path(), |_| ()), [0x155_5555]);
    drop(session);
    assert_eq!(announce(&mut open(folder.path())), [0x155_5555]);
}

/// Returns the length in the header of the journal, which is trusted after another boot.
pub(super) fn synced_bytes(folder: &Path) -> u64 {
    let journal = fs::File::open(folder.join(".headwater-work").join(JOURNAL)).unwrap();
    let mut length = [0; 8];
    journal.read_exact_at(&mut length, 32).unwrap();
    u64::from_le_bytes(length)
}

/// Writes all, and waits for the end of the sync that is due then, if any.
pub(super) fn wait_for_sync(session: &mut Session) {
    session.store.write_all();
    session.store.writer.wait();
    while session.store.writer.disk().log_mut().is_syncing {
        while session.store.poll_report().is_some() {}
        session.store.writer.wait();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn content_is_synced_by_amount_and_time_also_while_nothing_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(folder.path());
    announce(&mut session);
    let synced = || synced_bytes(folder.path());
    let opened = synced();
    let long_ago = Instant::now().checked_sub(SYNC_TIME).unwrap();
    session.store.writer.disk().log_mut().synced_at = long_ago;
    receive(&mut session, 0);
    wait_for_sync(&mut session);
    assert_eq!(synced(), opened, "a sync of little content is not worth its cost");
    {
        let mut disk = session.store.writer.disk();
        let log = disk.log_mut();
        (log.synced_at, log.unsynced_bytes) = (Instant::now() + SYNC_TIME, UNSYNCED_BYTES_MIN);
    }
    receive(&mut session, 2);
    wait_for_sync(&mut session);
    assert_eq!(synced(), opened, "the last sync ended just now");
    session.store.writer.disk().log_mut().synced_at = long_ago;
    wait_for_sync(&mut session);
    assert_eq!(synced(), session.store.writer.disk().log_mut().journal_bytes());
}

#[test]
fn without_room_for_a_new_journal_the_old_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(folder.path());
    announce(&mut session);
    receive(&mut session, 0);
    let failed = Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
    session.store.writer.disk().log_mut().compacted(failed, 0).unwrap();
    receive(&mut session, 1);
    assert_eq!(killed_now(folder.path(), |_| ()), [0b11]);
}

/// Sets when all that a working folder holds was written; less than 0 days ago is in the future.
fn age(work: &Path, days: i64) {
    let span = Duration::from_secs(days.unsigned_abs() * 24 * 60 * 60);
    let then = if days < 0 { SystemTime::now() + span } else { SystemTime::now() - span };
    for entry in fs::read_dir(work).unwrap() {
        let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(then).unwrap();
    }
}

#[test]
fn what_nobody_went_on_with_is_removed_after_two_weeks() {
    for (days, held) in [(13, vec![0b1]), (15, vec![]), (-400, vec![0b1])] {
        let folder = tempfile::tempdir().unwrap();
        let mut session = open(folder.path());
        announce(&mut session);
        receive(&mut session, 0);
        drop(session);
        age(&folder.path().join(".headwater-work"), days);
        assert_eq!(announce(&mut open(folder.path())), held, "{days} days");
    }
}

#[test]
fn other_working_folders_go_when_they_are_old_and_nobody_uses_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut sessions: Vec<_> = (0..4).map(|_| open(folder.path())).collect();
    for session in &mut sessions {
        announce(session);
        receive(session, 0);
    }
    let fourth = sessions.pop();
    // The second one is at work; the third was killed long ago, the fourth yesterday.
    let (third, second) = (sessions.pop(), sessions.pop());
    drop((third, fourth, sessions));
    for (number, days) in [(2, 20), (3, 20), (4, 1)] {
        age(&folder.path().join(format!(".headwater-work-{number}")), days);
    }
    let first = open(folder.path());
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".headwater-work", ".headwater-work-2", ".headwater-work-4"]);
    drop((first, second));
}

#[test]
fn a_damaged_fdt_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open(folder.path());
    announce(&mut session);
    receive(&mut session, 0);
    let description = Description {
        source: "192.0.2.1".parse().unwrap(),
        tsi: 5,
        instance_id: 6,
        xml: b"<FDT-Instance/>".to_vec(),
    };
    session.store.keep_description(&description);
    drop(session);
    let kept = || open(folder.path()).store.kept_description();
    assert_eq!(kept(), Some(description));
    let path = folder.path().join(".headwater-work/fdt");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"X", 45).unwrap();
    assert_eq!(kept(), None);
}
