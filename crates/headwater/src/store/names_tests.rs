//! Links, owners and attributes at the end of a session, from honest and hostile senders.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use headwater_proto::delivery::{
    EntryKind, FileTime, MetadataEntry, MetadataError, MetadataFault, Owner, Preserve, SessionMetadata, Xattr,
};

use super::tests::{FILE, Session, open_with};
use super::*;

fn path(name: &str) -> RelativePath {
    RelativePath::new(name).unwrap()
}

fn entry(name: &str, kind: EntryKind) -> MetadataEntry {
    MetadataEntry::new(path(name), kind)
}

fn link(name: &str, target: &str) -> MetadataEntry {
    entry(name, EntryKind::Link(target.into()))
}

fn hard_link(name: &str, target: &str) -> MetadataEntry {
    entry(name, EntryKind::HardLink(path(target)))
}

fn with(preserve: Preserve, links: bool) -> StoreOptions {
    StoreOptions { apply: ApplyOptions { preserve, links }, ..StoreOptions::default() }
}

/// A session of the file `d/file`, empty, with metadata.
fn session(folder: &Path, options: StoreOptions, travels: Preserve, entries: Vec<MetadataEntry>) -> Session {
    let mut session = open_with(folder, options);
    let owner = travels.owner.then_some(Owner { user: 0, group: 0 });
    session.store.describe_metadata(SessionMetadata { travels, owner, entries }, Vec::new());
    receive(&mut session, FILE, "d/file");
    session
}

fn receive(session: &mut Session, file: FileIndex, name: &str) {
    let spec =
        FileSpec { mode: Some(0o640), modified: FileTime::new(1_000, 5), ..FileSpec::new(path(name), 0) };
    session.store.create_file(file, &spec).unwrap();
    session.store.finish_file(file);
    let deadline = Instant::now() + Duration::from_secs(30);
    while session.store.poll_report() != Some(StoreReport::FileDone(file)) {
        assert!(Instant::now() < deadline);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn links_are_made_last_and_nothing_is_written_through_one() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let entries =
        vec![link("d/to file", "file"), link("up", "d"), link("d/file", "../x"), link("up/below", "d")];
    let mut first = session(&out, with(Preserve::default(), true), Preserve::default(), entries);
    let faults = first.store.finish_metadata();
    let names: Vec<_> = faults.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["d/file", "up/below"], "{faults:?}");
    assert_eq!(fs::read_link(out.join("up")).unwrap(), Path::new("d"));
    assert_eq!(fs::read_link(out.join("d/to file")).unwrap(), Path::new("file"));
    let made: Vec<_> =
        first.store.made_names().take().into_iter().map(|made| made.path.to_string()).collect();
    assert_eq!(made, ["d/to file", "up"]);
    drop(first);
    // A later session puts a file below the link, and one in the place of a link.
    let mut second = open_with(&out, with(Preserve::default(), true));
    let below = FileSpec::new(path("up/evil"), 0);
    let error = second.store.create_file(FILE, &below).unwrap_err();
    assert!(error.0.contains("links are not followed"), "{error}");
    receive(&mut second, FileIndex(1), "d/to file");
    assert!(!out.join("d/to file").is_symlink() && !out.join("d/evil").exists());
}

#[test]
fn no_link_is_made_without_the_receivers_option() {
    let folder = tempfile::tempdir().unwrap();
    let mut session =
        session(folder.path(), with(Preserve::ALL, false), Preserve::ALL, vec![link("l", "d/file")]);
    assert_eq!(session.store.finish_metadata(), []);
    assert!(!folder.path().join("l").is_symlink());
    // A link of the user is not replaced by a file either.
    symlink("d/file", folder.path().join("own")).unwrap();
    let own = session.store.places.folder.check_place(&path("own"));
    assert!(own.is_err());
}

#[test]
fn a_folder_is_never_replaced_by_a_link() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("own")).unwrap();
    let entries = vec![link("own", "d"), link("d", "own")];
    let mut session = session(folder.path(), with(Preserve::default(), true), Preserve::default(), entries);
    assert_eq!(session.store.finish_metadata().len(), 2);
    assert!(folder.path().join("own").is_dir() && !folder.path().join("own").is_symlink());
}

#[test]
fn hard_links_are_linked_where_asked_and_copied_elsewhere() {
    for (preserve, links) in [(Preserve::ALL, 2), (Preserve::default(), 1)] {
        let folder = tempfile::tempdir().unwrap();
        let entries =
            vec![hard_link("again/file", "d/file"), hard_link("bad", "d/nothing"), hard_link("own", "mine")];
        fs::write(folder.path().join("mine"), "of the user").unwrap();
        let travels = Preserve { owner: false, ..Preserve::ALL };
        let mut session = session(folder.path(), with(preserve, false), travels, entries);
        let faults = session.store.finish_metadata();
        assert!(faults.iter().map(|(name, _)| name.as_str()).eq(["bad", "own"]), "{faults:?}");
        let metadata = fs::metadata(folder.path().join("again/file")).unwrap();
        assert_eq!((metadata.nlink(), metadata.mtime(), metadata.mode() & 0o777), (links, 1_000, 0o640));
        session.store.made_names().take();
        assert_eq!(session.store.finish_metadata().len(), 2);
        let made = session.store.made_names().take();
        assert!(made.len() == 1 && made[0].is_present, "the second time nothing is made");
    }
}

#[test]
fn owners_attributes_and_special_bits_need_the_receivers_option() {
    let mut special = entry("d/file", EntryKind::File);
    (special.mode, special.owner) = (Some(0o6755), Some(Owner { user: 1_234, group: 5_678 }));
    special.xattrs = vec![Xattr { name: "user.a".into(), value: vec![0, 1] }];
    let mut above = entry("d", EntryKind::Folder);
    (above.mode, above.modified) = (Some(0o1711), FileTime::new(7, 8));
    let entries = vec![above, special];
    for asks in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let preserve = if asks { Preserve::ALL } else { Preserve::default() };
        let mut session = session(folder.path(), with(preserve, false), Preserve::ALL, entries.clone());
        let faults = session.store.finish_metadata();
        let file = fs::metadata(folder.path().join("d/file")).unwrap();
        let above = fs::metadata(folder.path().join("d")).unwrap();
        assert_eq!((above.mtime(), above.mtime_nsec()), (7, 8));
        assert_eq!(above.mode() & 0o777, 0o711);
        let mut names = [0_u8; 100];
        let attributes = rustix::fs::listxattr(folder.path().join("d/file"), &mut names[..]).unwrap_or(0);
        if !asks {
            assert_eq!(faults, []);
            assert_eq!((file.mode() & 0o7777, above.mode() & 0o7000, attributes), (0o640, 0, 0));
            continue;
        }
        if is_root() {
            assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (1_234, 5_678, 0o6640));
            assert_eq!(above.mode() & 0o7777, 0o1711);
        } else {
            assert!(
                faults.iter().any(|(name, why)| name == "d/file" && why.contains("only root")),
                "{faults:?}"
            );
        }
        assert_eq!(file.mtime(), 1_000, "attributes change no time");
    }
}

#[test]
fn what_does_not_travel_is_not_applied_and_faults_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open_with(folder.path(), with(Preserve::ALL, false));
    let fault = MetadataFault { name: "x".into(), reason: MetadataError::Time };
    let travels = Preserve::NOTHING;
    session.store.describe_metadata(SessionMetadata { travels, ..SessionMetadata::default() }, vec![fault]);
    session.store.create_folder(&path("empty")).unwrap();
    receive(&mut session, FILE, "d/file");
    assert_eq!(session.store.finish_metadata()[0].0, "x");
    let metadata = fs::metadata(folder.path().join("d/file")).unwrap();
    assert!(metadata.mtime() > 1_000_000 && metadata.permissions().mode() & 0o777 != 0o640);
    assert!(!folder.path().join("empty").exists());
}

#[test]
fn a_time_beyond_all_calendars_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = open_with(folder.path(), StoreOptions::default());
    let spec = FileSpec { modified: FileTime::new(i64::MAX, 0), ..FileSpec::new(path("file"), 0) };
    session.store.create_file(FILE, &spec).unwrap();
    session.store.finish_file(FILE);
    let deadline = Instant::now() + Duration::from_secs(30);
    while session.store.poll_report() != Some(StoreReport::FileDone(FILE)) {
        assert!(Instant::now() < deadline);
    }
    let year = 365 * 24 * 3_600;
    assert!(fs::metadata(folder.path().join("file")).unwrap().mtime() < 200 * year);
}

/// Gives up the rights of root in this thread, and in threads that start later.
fn drop_root() {
    if is_root() {
        let nobody = rustix::fs::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
    }
}

/// A program of the sender's root must not become a program with the rights of the receiver's user.
#[test]
fn special_bits_come_with_the_senders_owner_alone() {
    drop_root();
    let folder = tempfile::tempdir().unwrap();
    let owner = Some(Owner { user: 1_234, group: 5_678 });
    let mut special = entry("d/file", EntryKind::File);
    (special.mode, special.owner) = (Some(0o6755), owner);
    let mut above = entry("d", EntryKind::Folder);
    (above.mode, above.owner) = (Some(0o3777), owner);
    let travels = Preserve { xattrs: false, ..Preserve::ALL };
    let mut session = session(folder.path(), with(Preserve::ALL, false), travels, vec![above, special]);
    let faults = session.store.finish_metadata();
    assert!(faults.iter().any(|(name, why)| name == "d/file" && why.contains("only root")), "{faults:?}");
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode() & 0o7777;
    fs::create_dir(folder.path().join("own")).unwrap();
    assert_eq!((mode("d/file") & 0o7000, mode("d")), (0, mode("own")));
}

/// A sender whose hard links do not travel sends each file; an entry must not fill the disk with copies.
#[test]
fn hard_links_that_do_not_travel_are_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let travels = Preserve { hardlinks: false, owner: false, ..Preserve::ALL };
    let entries = vec![hard_link("copy", "d/file")];
    let mut session = session(folder.path(), with(Preserve::default(), false), travels, entries);
    assert_eq!(session.store.finish_metadata().len(), 1);
    assert!(!folder.path().join("copy").exists());
}

#[test]
fn a_stopped_receiver_makes_no_further_copies() {
    let folder = tempfile::tempdir().unwrap();
    let travels = Preserve { owner: false, ..Preserve::ALL };
    let entries = vec![hard_link("copy", "d/file")];
    let stop = Arc::new(AtomicBool::new(true));
    let options = StoreOptions { stop: Some(stop), ..with(Preserve::default(), false) };
    let mut session = session(folder.path(), options, travels, entries);
    assert_eq!(session.store.finish_metadata().len(), 1);
    assert!(!folder.path().join("copy").exists());
}

#[test]
fn a_hard_link_to_a_file_that_is_not_selected_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let selection = Selection::new(&[], &["other".to_owned()]).unwrap();
    let options = StoreOptions { selection, ..with(Preserve::default(), false) };
    let travels = Preserve { owner: false, ..Preserve::ALL };
    let mut session = session(folder.path(), options, travels, vec![hard_link("name", "other")]);
    assert_eq!(session.store.finish_metadata(), []);
    assert!(!folder.path().join("name").exists());
}

#[test]
fn failures_beyond_those_named_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let travels = Preserve { owner: false, ..Preserve::ALL };
    let entries = (0..100).map(|number| hard_link(&format!("name{number}"), "missing")).collect();
    let mut session = session(folder.path(), with(Preserve::default(), false), travels, entries);
    let faults = session.store.finish_metadata();
    assert_eq!(faults.len(), 65);
    assert!(faults[64].1.starts_with("36 "), "{faults:?}");
}
