//! Bundles whose members are put in place.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use headwater_proto::delivery::{
    BundleLayout, BundleMember, BundlePart, FileTime, MemberCheck, block_digest, file_digest,
};

use super::tests::{FILE, create_block, next_report, receive_block};
use super::*;
use crate::net::Poller;

const FOLDER_TIME: i64 = 1_763_971_200;

fn member(path: &str, content: &[u8]) -> (BundleMember, MemberCheck) {
    let modified = FileTime::new(FOLDER_TIME, 123_456_789).unwrap();
    let path = RelativePath::new(path).unwrap();
    let bytes = u32::try_from(content.len()).unwrap();
    let digest = *blake3::hash(content).as_bytes().first_chunk().unwrap();
    (BundleMember { path, bytes, mode: 0o640, modified }, MemberCheck { crc32: 0, digest })
}

pub(super) fn bundle(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (members, checks): (Vec<_>, Vec<_>) =
        files.iter().map(|(path, content)| member(path, content)).unzip();
    let layout = BundleLayout::new(members).unwrap();
    let mut out = Vec::new();
    while let Some(part) = layout.part(u32::try_from(out.len()).unwrap()) {
        match part {
            BundlePart::Header { member, .. } => out.extend(layout.local_header(member, checks[member])),
            BundlePart::Content { member, .. } => out.extend(files[member].1),
            BundlePart::Entry { member, .. } => out.extend(layout.entry(member, checks[member])),
            BundlePart::End { .. } => out.extend(layout.end_record()),
        }
    }
    out
}

struct Receiver {
    store: DiskStore,
    _poller: Poller,
}

impl Receiver {
    fn open(folder: &Path, selection: Selection) -> Self {
        let bundle_cache = Some(folder.join("cache"));
        let options = StoreOptions { selection, bundle_cache, ..StoreOptions::default() };
        let poller = Poller::new().unwrap();
        let store = DiskStore::open(&folder.join("out"), options, poller.waker()).unwrap();
        Self { store, _poller: poller }
    }

    fn announce(&mut self, content: &[u8]) -> HeldFile {
        let digest = file_digest([&block_digest(content)]);
        let spec = FileSpec {
            digest: Some(digest),
            ..FileSpec::new(RelativePath::new("bundle.zip").unwrap(), content.len() as u64)
        };
        let held = self.store.create_bundle(FILE, &spec).unwrap();
        create_block(&mut self.store, content.len() as u64);
        held
    }

    /// Receives a bundle whole, and returns the report of its end.
    fn receive(&mut self, content: &[u8]) -> StoreReport {
        self.announce(content);
        self.finish(content)
    }

    fn finish(&mut self, content: &[u8]) -> StoreReport {
        receive_block(&mut self.store, content);
        self.store.finish_file(FILE);
        self.report()
    }

    fn report(&mut self) -> StoreReport {
        next_report(&mut self.store)
    }

    fn unpacked(&self) -> Vec<(String, bool)> {
        let members = self.store.unpacked().take(FILE).unwrap();
        members.members.into_iter().map(|member| (member.path.to_string(), member.is_present)).collect()
    }
}

/// Names below the destination folder, without the working folder.
fn names(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, above: &str, names: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let name = format!("{above}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() && !name.starts_with(".headwater") {
                walk(&entry.path(), &format!("{name}/"), names);
            } else if !name.starts_with(".headwater") {
                names.push(name);
            }
        }
    }
    let mut found = Vec::new();
    walk(&folder.join("out"), "", &mut found);
    found.sort();
    found
}

const FILES: [(&str, &[u8]); 3] = [("a/b/one", b"first content"), ("a/two", b""), ("three", &[7; 300])];

#[test]
fn members_are_in_place_with_their_modes_and_times_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::open(folder.path(), Selection::default());
    assert_eq!(receiver.receive(&bundle(&FILES)), StoreReport::FileDone(FILE));
    let all = FILES.map(|(name, _)| (name.to_owned(), false));
    assert_eq!(receiver.unpacked(), all);
    drop(receiver);
    assert_eq!(names(folder.path()), FILES.map(|(name, _)| name));
    for (name, content) in FILES {
        let path = folder.path().join("out").join(name);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (FOLDER_TIME, 123_456_789));
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    }
    assert!(!folder.path().join("out/.headwater-work").exists());
}

#[test]
fn a_receiver_that_runs_again_compares_the_members_and_receives_the_bundle_if_one_differs() {
    let folder = tempfile::tempdir().unwrap();
    let content = bundle(&FILES);
    let mut receiver = Receiver::open(folder.path(), Selection::default());
    assert!(!receiver.announce(&content).is_present);
    drop(receiver);
    Receiver::open(folder.path(), Selection::default()).receive(&content);

    let digest = file_digest([&block_digest(&content)]);
    let compare = |is_same| {
        let mut receiver = Receiver::open(folder.path(), Selection::default());
        assert!(receiver.announce(&content).is_present);
        receiver.store.compare_file(FILE, digest, Vec::new());
        assert_eq!(receiver.report(), StoreReport::FileCompared { file: FILE, is_same });
        receiver
    };
    let receiver = compare(true);
    assert!(receiver.unpacked().iter().all(|(_, is_present)| *is_present));
    drop(receiver);
    let three = folder.path().join("out/three");
    let before = fs::metadata(folder.path().join("out/a/b/one")).unwrap().ino();
    fs::write(&three, [8; 300]).unwrap();
    drop(compare(false));
    let mut receiver = Receiver::open(folder.path(), Selection::default());
    assert_eq!(receiver.receive(&content), StoreReport::FileDone(FILE));
    let present: Vec<bool> = receiver.unpacked().into_iter().map(|(_, is_present)| is_present).collect();
    assert_eq!(present, [true, true, false]);
    assert_eq!(fs::read(&three).unwrap(), [7; 300]);
    assert_eq!(fs::metadata(folder.path().join("out/a/b/one")).unwrap().ino(), before, "was not rewritten");
}

#[test]
fn only_members_that_are_wanted_are_put_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let selection = Selection::new(&["a".to_owned()], &["two".to_owned()]).unwrap();
    let mut receiver = Receiver::open(folder.path(), selection);
    assert_eq!(receiver.receive(&bundle(&FILES)), StoreReport::FileDone(FILE));
    assert_eq!(names(folder.path()), ["a/b/one"]);
}

/// Receives a bundle that must be refused, and returns the reason. Nothing is put in place.
fn refused(folder: &Path, content: &[u8]) -> String {
    let mut receiver = Receiver::open(folder, Selection::default());
    let before = names(folder);
    let StoreReport::FileRefused(FILE, error) = receiver.receive(content) else { panic!("accepted") };
    receiver.store.discard_file(FILE).unwrap();
    drop(receiver);
    assert_eq!(names(folder), before);
    assert!(!folder.join("out/.headwater-work").exists());
    error.to_string()
}

#[test]
fn one_bad_member_refuses_the_bundle_before_any_member_is_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let content = bundle(&FILES);
    let at = |wanted: &[u8]| content.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    let mut other = content.clone();
    other[at(b"first content")] ^= 1;
    assert!(refused(folder.path(), &other).contains("'a/b/one' of the bundle has another digest"));
    let mut header = content.clone();
    header[14] ^= 1;
    assert!(refused(folder.path(), &header).contains("headers of the member 'a/b/one'"));
    let last = content.len() - 1;
    assert!(refused(folder.path(), &content[..last]).contains("does not end as a zip"));
    assert!(refused(folder.path(), b"short").contains("does not end as a zip"));
}

#[test]
fn members_never_replace_or_pass_what_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::create_dir_all(out.join("three")).unwrap();
    assert!(refused(folder.path(), &bundle(&FILES)).contains("'three'"));
    fs::remove_dir(out.join("three")).unwrap();
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, out.join("a")).unwrap();
    assert!(refused(folder.path(), &bundle(&FILES)).contains("links are not followed"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn names_of_other_files_of_the_session_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::open(folder.path(), Selection::default());
    receiver.announce(&bundle(&FILES));
    let spec = FileSpec::new(RelativePath::new("three").unwrap(), 1);
    receiver.store.create_file(FileIndex(1), &spec).unwrap();
    let StoreReport::FileRefused(FILE, error) = receiver.finish(&bundle(&FILES)) else { panic!("accepted") };
    assert!(error.to_string().contains("'three' is in another file"), "{error}");
}
