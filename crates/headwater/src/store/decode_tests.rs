//! Files that travel encoded.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use headwater_fec::{Parameters, Partition, codec};
use headwater_proto::delivery::{Encoding, FileTime, block_digest, file_digest};

use super::tests::{FILE, OBJECT, T, create_block, next_report, receive_block};
use super::*;
use crate::coding::Encoder;
use crate::net::Poller;

const TIME: i64 = 1_763_971_200;

fn encoded(coding: ContentCoding, content: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(coding, Vec::new(), content.len() as u64).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Encoding as an honest sender announces the content.
fn announced(coding: ContentCoding, content: &[u8]) -> Encoding {
    Encoding { coding, bytes: content.len() as u64, digest: Some(*blake3::hash(content).as_bytes()) }
}

fn text(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("line {line} of a text\n").into_bytes()).take(bytes).collect()
}

struct Receiver {
    store: DiskStore,
    _poller: Poller,
}

impl Receiver {
    fn open(folder: &Path) -> Self {
        let poller = Poller::new().unwrap();
        let store = DiskStore::open(folder, StoreOptions::default(), poller.waker()).unwrap();
        Self { store, _poller: poller }
    }

    fn announce(
        &mut self,
        sent: &[u8],
        encoding: impl Into<Option<Encoding>>,
    ) -> Result<HeldFile, StoreError> {
        let spec = FileSpec {
            digest: Some(file_digest([&block_digest(sent)])),
            mode: Some(0o640),
            modified: FileTime::new(TIME, 5),
            encoding: encoding.into(),
            ..FileSpec::new(RelativePath::new("d/file").unwrap(), sent.len() as u64)
        };
        let held = self.store.create_file(FILE, &spec)?;
        create_block(&mut self.store, sent.len() as u64);
        Ok(held)
    }

    fn write(&mut self, sent: &[u8]) {
        receive_block(&mut self.store, sent);
    }

    fn finish(&mut self) -> StoreReport {
        self.store.finish_file(FILE);
        self.report()
    }

    fn receive(&mut self, sent: &[u8], encoding: Encoding) -> StoreReport {
        self.announce(sent, encoding).unwrap();
        self.write(sent);
        self.finish()
    }

    fn report(&mut self) -> StoreReport {
        next_report(&mut self.store)
    }
}

/// Returns the working folder, the only entry of a folder.
fn work(folder: &Path) -> PathBuf {
    fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
}

/// Returns the entries of a folder and of the folders in it, without the working folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(".headwater") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            names.extend(self::names(&entry.path()));
        } else {
            names.push(name);
        }
    }
    names
}

#[test]
fn an_encoded_file_is_decoded_with_the_metadata_of_the_file() {
    for coding in ContentCoding::ALL {
        let folder = tempfile::tempdir().unwrap();
        let content = [text(70_000), vec![0; 1 << 20], text(3)].concat();
        let mut receiver = Receiver::open(folder.path());
        let report = receiver.receive(&encoded(coding, &content), announced(coding, &content));
        assert_eq!(report, StoreReport::FileDone(FILE), "{coding}");
        drop(receiver);
        let path = folder.path().join("d/file");
        assert!(fs::read(&path).unwrap() == content);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec(), metadata.mode() & 0o777), (TIME, 5, 0o640));
        assert!(metadata.blocks() * 512 < content.len() as u64, "zeros are holes");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no working folder is left");
    }
}

#[test]
fn claims_that_do_not_hold_are_refused_and_leave_nothing() {
    let content = text(50_000);
    for coding in ContentCoding::ALL {
        let honest = announced(coding, &content);
        let sent = encoded(coding, &content);
        let cases = [
            (sent.clone(), Encoding { bytes: 49_999, ..honest }, "longer than the 49999"),
            (sent.clone(), Encoding { bytes: 50_001, ..honest }, "has 50000 bytes"),
            (sent.clone(), Encoding { digest: Some([1; 32]), ..honest }, "differs from its digest"),
            (sent[..sent.len() - 9].to_vec(), honest, "no valid"),
            ([&sent[..], b"rubbish"].concat(), honest, "no valid"),
            (content.clone(), honest, "no valid"),
        ];
        for (sent, encoding, reason) in cases {
            let folder = tempfile::tempdir().unwrap();
            let mut receiver = Receiver::open(folder.path());
            let report = receiver.receive(&sent, encoding);
            let StoreReport::FileRefused(FILE, error) = report else { panic!("{reason}: {report:?}") };
            assert!(error.to_string().contains(reason), "{coding}, {reason}: {error}");
            receiver.store.discard_file(FILE).unwrap();
            drop(receiver);
            assert_eq!(names(folder.path()), [""; 0], "{reason}");
        }
    }
}

#[test]
fn a_file_in_place_is_known_by_the_digest_of_its_content() {
    let (coding, content) = (ContentCoding::Zstd, text(100_000));
    let sent = encoded(coding, &content);
    for (present, is_same) in [(content.clone(), true), (text(99_999), false), (vec![b'x'; 100_000], false)] {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/file"), &present).unwrap();
        let mut receiver = Receiver::open(folder.path());
        let held = receiver.announce(&sent, announced(coding, &content)).unwrap();
        assert_eq!(held.is_present, present.len() == content.len());
        if held.is_present {
            receiver.store.compare_file(FILE, [0; 32], Vec::new());
            assert_eq!(receiver.report(), StoreReport::FileCompared { file: FILE, is_same });
        }
        if is_same {
            let metadata = fs::metadata(folder.path().join("d/file")).unwrap();
            assert_eq!(metadata.mtime(), TIME, "the metadata of the sender is applied");
            continue;
        }
        receiver.write(&sent);
        assert_eq!(receiver.finish(), StoreReport::FileDone(FILE));
        assert!(fs::read(folder.path().join("d/file")).unwrap() == content);
    }
}

#[test]
fn a_receiver_that_ends_before_the_decoding_goes_on_later() {
    let (coding, content) = (ContentCoding::Gzip, text(100_000));
    let sent = encoded(coding, &content);
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::open(folder.path());
    receiver.announce(&sent, announced(coding, &content)).unwrap();
    receiver.write(&sent);
    drop(receiver);
    assert_eq!(names(folder.path()), [""; 0]);
    // As left by a receiver that was killed while decoding.
    let half = work(folder.path()).join("00000000000000000000000000000000.content.decoded");
    fs::write(&half, "half").unwrap();
    let mut receiver = Receiver::open(folder.path());
    assert!(!half.exists());
    receiver.announce(&sent, announced(coding, &content)).unwrap();
    assert_eq!(receiver.finish(), StoreReport::FileDone(FILE));
    assert!(fs::read(folder.path().join("d/file")).unwrap() == content);
}

/// The decoded file has its name, and the working folder has the encoded content still.
#[test]
fn a_receiver_that_is_killed_once_the_file_has_its_name_ends_later() {
    let (coding, content) = (ContentCoding::Zstd, text(100_000));
    let (sent, encoding) = (encoded(coding, &content), announced(coding, &content));
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::open(folder.path());
    receiver.announce(&sent, encoding).unwrap();
    receiver.write(&sent);
    drop(receiver);
    let work = work(folder.path());
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/file"), &content).unwrap();
    let mut receiver = Receiver::open(folder.path());
    assert!(receiver.announce(&sent, encoding).unwrap().is_present);
    receiver.store.compare_file(FILE, [0; 32], Vec::new());
    assert_eq!(receiver.report(), StoreReport::FileCompared { file: FILE, is_same: true });
    drop(receiver);
    assert!(fs::read(folder.path().join("d/file")).unwrap() == content);
    assert!(!work.exists());
}

#[test]
fn a_file_in_place_counts_as_whole_for_the_same_encoding_alone() {
    let (coding, content) = (ContentCoding::Gzip, text(100_000));
    let (sent, encoding) = (encoded(coding, &content), announced(coding, &content));
    for next in [Some(encoding), None] {
        let folder = tempfile::tempdir().unwrap();
        let mut receiver = Receiver::open(folder.path());
        assert_eq!(receiver.receive(&sent, encoding), StoreReport::FileDone(FILE));
        // Another file keeps the session open.
        let other = FileSpec::new(RelativePath::new("other").unwrap(), 1);
        receiver.store.create_file(FileIndex(1), &other).unwrap();
        drop(receiver);
        let held = Receiver::open(folder.path()).announce(&sent, next).unwrap();
        assert_eq!(held.is_whole, next.is_some(), "{next:?}");
    }
}

#[test]
fn a_stop_is_seen_while_no_content_comes_out() {
    for coding in ContentCoding::ALL {
        let sent = encoded(coding, b"").repeat(10_000);
        let encoding = announced(coding, b"some");
        let folder = tempfile::tempdir().unwrap();
        let mut receiver = Receiver::open(folder.path());
        receiver.announce(&sent, encoding).unwrap();
        receiver.write(&sent);
        let (places, file) = (&receiver.store.places, receiver.store.file(FILE));
        places.close_down();
        let outcome = decode::finish(places, &file, encoding);
        assert!(matches!(outcome, Ok(Outcome::Stopped)), "{coding}: {outcome:?}");
    }
}

#[test]
fn room_is_asked_for_encoded_and_decoded_content() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::open(folder.path());
    let encoding = Encoding { bytes: 1 << 60, ..announced(ContentCoding::Zstd, b"") };
    let error = receiver.announce(&[0; 100], encoding).unwrap_err();
    assert!(error.to_string().contains("are free"), "{error}");
}

#[test]
fn an_encoded_bundle_is_unpacked_and_a_long_claim_is_refused() {
    use super::unpack_tests::bundle;

    let coding = ContentCoding::Zstd;
    let content = bundle(&[("x/one", &text(5_000)), ("x/two", b"")]);
    let sent = encoded(coding, &content);
    for (bytes, is_fine) in [(content.len() as u64, true), (65 << 20, false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut receiver = Receiver::open(folder.path());
        let spec = FileSpec {
            digest: Some(file_digest([&block_digest(&sent)])),
            encoding: Some(Encoding { bytes, ..announced(coding, &content) }),
            ..FileSpec::new(RelativePath::new("bundle.zip").unwrap(), sent.len() as u64)
        };
        receiver.store.create_bundle(FILE, &spec).unwrap();
        let object = ObjectSpec {
            file: FILE,
            offset: 0,
            partition: Partition::with_blocks(sent.len() as u64, T, 1).unwrap(),
            codec: codec(Parameters::raptorq(T)).unwrap(),
            identity: None,
        };
        receiver.store.create_object(OBJECT, &object);
        receiver.write(&sent);
        let report = receiver.finish();
        if is_fine {
            assert_eq!(report, StoreReport::FileDone(FILE));
            assert!(fs::read(folder.path().join("x/one")).unwrap() == text(5_000));
        } else {
            assert!(matches!(report, StoreReport::FileRefused(..)), "{report:?}");
            assert_eq!(names(folder.path()), [""; 0]);
        }
    }
}
