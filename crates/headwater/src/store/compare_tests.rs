//! Files that stand in their place before a session begins.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use headwater_fec::{Parameters, Partition, codec};
use headwater_proto::delivery::{
    EntryKind, FileTime, MetadataEntry, Preserve, SessionMetadata, Xattr, block_digest, file_digest,
};

use super::tests::{FILE, OBJECT, Session, T, open, open_with, report};
use super::*;

const BYTES: usize = 6_000;

fn content() -> Vec<u8> {
    (0..BYTES).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

/// Announces a file of two blocks; whether one stands in its place, and its digests.
fn announce(session: &mut Session, content: &[u8]) -> (HeldFile, Digest, Vec<ShortDigest>) {
    let partition = Partition::with_blocks(BYTES as u64, T, 2).unwrap();
    let digests: Vec<Digest> = (0..2)
        .map(|sbn| {
            let block = partition.block(sbn).unwrap();
            let start = usize::try_from(block.offset).unwrap();
            block_digest(&content[start..start + usize::try_from(block.bytes).unwrap()])
        })
        .collect();
    let digest = file_digest(&digests);
    let spec = FileSpec {
        mode: Some(0o640),
        modified: FileTime::new(1_000_000, 5),
        digest: Some(digest),
        ..FileSpec::new(RelativePath::new("folder/file").unwrap(), BYTES as u64)
    };
    let held = session.store.create_file(FILE, &spec).unwrap();
    let object = ObjectSpec {
        file: FILE,
        offset: 0,
        partition,
        codec: codec(Parameters::raptorq(T)).unwrap(),
        identity: Some([7; 32]),
    };
    session.store.create_object(OBJECT, &object);
    (held, digest, digests.iter().map(|digest| *digest.first_chunk().unwrap()).collect())
}

/// What is said of a file of this content that stands in the place of the one announced.
fn compared(folder: &Path, present: &[u8]) -> StoreReport {
    fs::create_dir_all(folder.join("folder")).unwrap();
    fs::write(folder.join("folder/file"), present).unwrap();
    let mut session = open(folder);
    let (held, digest, promised) = announce(&mut session, &content());
    assert_eq!(held, HeldFile { is_present: true, ..HeldFile::default() });
    session.store.compare_file(FILE, digest, promised);
    loop {
        match report(&mut session) {
            StoreReport::BlockFound { .. } => {}
            end => return end,
        }
    }
}

/// Folder of a session that has found its file in place, and has ended before another file came.
fn folder_with_found_file() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("folder/file"), content()).unwrap();
    let mut session = open(folder.path());
    let (_, digest, promised) = announce(&mut session, &content());
    let other = FileSpec { digest: Some([3; 32]), ..FileSpec::new(RelativePath::new("other").unwrap(), 1) };
    session.store.create_file(FileIndex(1), &other).unwrap();
    session.store.compare_file(FILE, digest, promised);
    report(&mut session);
    folder
}

#[test]
fn a_file_that_is_there_is_kept_with_the_senders_mode_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("folder/file");
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(&path, content()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    assert_eq!(compared(folder.path(), &content()), StoreReport::FileCompared { file: FILE, is_same: true });
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.ino(), metadata.mode() & 0o777), (inode, 0o640));
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000, 5));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no working folder stays");
}

#[test]
fn a_file_that_differs_anywhere_is_not_the_same() {
    for at in [0, 2_000, BYTES - 1] {
        let folder = tempfile::tempdir().unwrap();
        let mut other = content();
        other[at] ^= 1;
        assert_eq!(
            compared(folder.path(), &other),
            StoreReport::FileCompared { file: FILE, is_same: false },
            "byte {at}"
        );
        assert_eq!(fs::read(folder.path().join("folder/file")).unwrap(), other, "it is left alone");
    }
}

#[test]
fn links_and_files_of_another_length_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    let place = folder.path().join("folder/file");
    fs::write(&place, &content()[1..]).unwrap();
    assert!(!announce(&mut open(folder.path()), &content()).0.is_present);
    fs::remove_file(&place).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("file"), content()).unwrap();
    fs::remove_dir(folder.path().join("folder")).unwrap();
    symlink(elsewhere.path(), folder.path().join("folder")).unwrap();
    let session = open(folder.path());
    assert!(session.store.places.folder.find(&RelativePath::new("folder/file").unwrap()).is_none());
}

#[test]
fn a_file_that_was_found_to_be_there_counts_in_the_next_session() {
    let folder = folder_with_found_file();
    let (held, ..) = announce(&mut open(folder.path()), &content());
    assert_eq!(held, HeldFile { is_whole: true, ..HeldFile::default() });
}

/// Symbols that came before the comparison wait to be written when it ends. Noted after the file they would
/// end the journal.
#[test]
fn symbols_gathered_of_a_file_that_is_there_spoil_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("folder/file"), content()).unwrap();
    let other = FileSpec {
        digest: Some([3; 32]),
        ..FileSpec::new(RelativePath::new("other").unwrap(), BYTES as u64)
    };
    let object = |file| ObjectSpec {
        file,
        offset: 0,
        partition: Partition::with_blocks(BYTES as u64, T, 2).unwrap(),
        codec: codec(Parameters::raptorq(T)).unwrap(),
        identity: Some([8; 32]),
    };
    let mut session = open(folder.path());
    let (_, digest, promised) = announce(&mut session, &content());
    session.store.create_file(FileIndex(1), &other).unwrap();
    session.store.create_object(ObjectIndex(1), &object(FileIndex(1)));
    session.store.write_source(OBJECT, 0, 3, &[1; T as usize]).unwrap();
    session.store.compare_file(FILE, digest, promised);
    assert_eq!(report(&mut session), StoreReport::FileCompared { file: FILE, is_same: true });
    session.store.write_source(ObjectIndex(1), 0, 9, &[2; T as usize]).unwrap();
    drop(session);
    let mut again = open(folder.path());
    again.store.create_file(FILE, &other).unwrap();
    let held = again.store.create_object(OBJECT, &object(FILE));
    assert_eq!(held.len(), 1, "the other file's symbol is resumed");
}

#[test]
fn further_names_of_a_file_in_place_keep_content_and_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let (file, snapshot) = (folder.path().join("folder/file"), folder.path().join("snapshot"));
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(&file, content()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&file, &snapshot).unwrap();
    let before = fs::metadata(&snapshot).unwrap();
    for names in [1, 2] {
        let mut session = open(folder.path());
        let (_, digest, promised) = announce(&mut session, &content());
        session.store.compare_file(FILE, digest, promised);
        assert_eq!(report(&mut session), StoreReport::FileCompared { file: FILE, is_same: true });
        drop(session);
        let (kept, new) = (fs::metadata(&snapshot).unwrap(), fs::metadata(&file).unwrap());
        assert_eq!((kept.mode(), kept.mtime()), (before.mode(), before.mtime()));
        assert_eq!((new.mode() & 0o777, new.mtime(), new.nlink()), (0o640, 1_000_000, names));
        assert_eq!((fs::read(&file).unwrap(), fs::read(&snapshot).unwrap()), (content(), content()));
        // A file that is as announced keeps its names.
        fs::hard_link(&file, folder.path().join("second")).ok();
    }
}

/// A receiver that was killed before the last step has not applied owners and attributes.
#[test]
fn a_resumed_file_gets_its_attributes() {
    let folder = folder_with_found_file();
    let preserve = Preserve { xattrs: true, ..Preserve::default() };
    let apply = ApplyOptions { preserve, links: false };
    let mut session = open_with(folder.path(), StoreOptions { apply, ..StoreOptions::default() });
    let path = RelativePath::new("folder/file").unwrap();
    let mut entry = MetadataEntry::new(path, EntryKind::File);
    entry.xattrs = vec![Xattr { name: "user.a".into(), value: b"value".to_vec() }];
    let metadata = SessionMetadata { travels: preserve, owner: None, entries: vec![entry] };
    session.store.describe_metadata(metadata, Vec::new());
    let (held, ..) = announce(&mut session, &content());
    assert!(held.is_whole);
    assert_eq!(session.store.finish_metadata(), []);
    let mut value = [0_u8; 10];
    let length = rustix::fs::getxattr(folder.path().join("folder/file"), "user.a", &mut value[..]);
    assert_eq!(length.map(|length| &value[..length]), Ok(&b"value"[..]));
}
