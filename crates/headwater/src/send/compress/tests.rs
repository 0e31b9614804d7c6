//! Compression of files before a session.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::*;
use crate::coding::decode;
use crate::send::bundle::{Bundling, arrange};
use crate::send::{FileSet, prepare};

const SYMBOL: u16 = 1_024;

fn text(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|line: u32| format!("line {line} of a text\n").into_bytes()).take(bytes).collect()
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    noise
}

struct Bed {
    folder: tempfile::TempDir,
    temporary: tempfile::TempDir,
}

impl Bed {
    fn new(files: &[(&str, Vec<u8>)]) -> Self {
        let bed = Self { folder: tempfile::tempdir().unwrap(), temporary: tempfile::tempdir().unwrap() };
        fs::create_dir(bed.path("")).unwrap();
        files.iter().for_each(|(name, content)| fs::write(bed.path(name), content).unwrap());
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("files").join(name)
    }

    fn items(&self) -> Vec<PreparedFile> {
        let set: FileSet = prepare([self.path(".")]).unwrap();
        arrange(set.files(), Bundling::Auto, SYMBOL)
    }

    fn compress(&self, coding: ContentCoding) -> (Vec<PreparedFile>, CompressionSummary) {
        let mut items = self.items();
        let summary = compress(&mut items, coding, self.temporary.path(), SYMBOL).unwrap();
        (items, summary)
    }
}

fn sent(item: &PreparedFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(item.bytes).unwrap()];
    item.encoded.as_ref().unwrap().read(&mut bytes, 0).unwrap();
    bytes
}

fn decoded(item: &PreparedFile) -> Vec<u8> {
    let mut content = Vec::new();
    let Encoding { coding, bytes, digest } = item.encoded.as_ref().unwrap().encoding;
    decode(coding, &sent(item)[..], bytes, |chunk| {
        content.extend_from_slice(chunk);
        Ok(())
    })
    .unwrap();
    assert_eq!(digest, Some(*blake3::hash(&content).as_bytes()));
    content
}

#[test]
fn files_that_shrink_are_encoded_and_others_stay() {
    let long = [text(5 << 20), noise(1 << 20)].concat();
    let bed = Bed::new(&[
        ("empty", Vec::new()),
        ("long", long.clone()),
        ("noise", noise(300_000)),
        ("noise that is sampled", noise(5 << 20)),
        ("one packet", text(1_000)),
        ("text", text(300_000)),
    ]);
    for coding in ContentCoding::ALL {
        let (items, summary) = bed.compress(coding);
        let encoded: Vec<_> = items.iter().filter(|item| item.encoded.is_some()).collect();
        assert_eq!(
            encoded.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(),
            ["files/long", "files/text"]
        );
        assert!(decoded(encoded[0]) == long && decoded(encoded[1]) == text(300_000));
        let bytes = encoded.iter().map(|item| item.bytes).sum();
        let plain = long.len() as u64 + 300_000;
        let expected =
            CompressionSummary { coding, encoded: 2, bytes: plain, encoded_bytes: bytes, plain: 4 };
        assert_eq!(summary, expected);
        assert!(bytes < plain / 2, "{coding}: {bytes}");
        let contents = encoded.iter().map(|item| item.encoded.as_ref().unwrap());
        let lengths =
            contents.map(|content| (Arc::as_ptr(&content.file), content.file.metadata().unwrap().len()));
        let room: u64 = lengths.collect::<BTreeMap<_, _>>().values().sum();
        assert_eq!(room, bytes, "content that does not shrink takes no room");
    }
}

#[test]
fn a_bundle_is_encoded_whole() {
    let names: Vec<String> = (0..40).map(|number| format!("file {number}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), text(3_000))).collect();
    let bed = Bed::new(&files);
    let (items, summary) = bed.compress(ContentCoding::Zstd);
    assert_eq!((items.len(), summary.encoded), (1, 1));
    let bundle = items[0].bundle.as_ref().unwrap();
    let zip = decoded(&items[0]);
    assert_eq!(zip.len() as u64, u64::from(bundle.layout.bytes()));
    assert!(zip.windows(20).any(|window| window == &text(20)[..]));
}

#[test]
fn a_later_session_sends_the_same_bytes_for_the_same_content_alone() {
    use std::os::unix::fs::MetadataExt;

    let bed = Bed::new(&[("one", text(200_000)), ("two", text(300_000))]);
    let (first, _) = bed.compress(ContentCoding::Zstd);
    // A change that neither length nor time shows, as by a write through a mapping or another image.
    let old = fs::metadata(bed.path("two")).unwrap();
    let changed = [&b"L"[..], &text(300_000)[1..]].concat();
    let mut two = File::options().write(true).open(bed.path("two")).unwrap();
    two.write_all(&changed).unwrap();
    two.set_modified(old.modified().unwrap()).unwrap();
    let new = fs::metadata(bed.path("two")).unwrap();
    assert_eq!((old.mtime_nsec(), old.len(), old.ino()), (new.mtime_nsec(), new.len(), new.ino()));
    let (second, _) = bed.compress(ContentCoding::Zstd);
    assert!(sent(&first[0]) == sent(&second[0]));
    assert!(decoded(&first[1]) == text(300_000) && decoded(&second[1]) == changed);
}

#[test]
fn nothing_is_left_in_the_folder_even_by_a_killed_session_and_other_files_stay() {
    let bed = Bed::new(&[("one", text(200_000)), ("two", text(300_000))]);
    for name in ["other", &"a".repeat(64)] {
        let file = File::create(bed.temporary.path().join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    fs::create_dir(bed.temporary.path().join("session-other")).unwrap();
    let names = || fs::read_dir(bed.temporary.path()).unwrap().count();
    let _in_use = bed.compress(ContentCoding::Gzip);
    assert_eq!(names(), 3);
}

#[test]
fn a_file_with_holes_travels_plain() {
    let bed = Bed::new(&[("text", text(200_000))]);
    let sparse = File::create(bed.path("sparse")).unwrap();
    sparse.set_len(16 << 20).unwrap();
    sparse.write_all_at(&text(200_000), 8 << 20).unwrap();
    assert!(has_holes(&sparse, 16 << 20), "the file system of temporary files has no holes");
    let (items, summary) = bed.compress(ContentCoding::Zstd);
    assert_eq!((summary.encoded, summary.plain), (1, 1));
    let sparse = items.iter().find(|item| item.name.as_str().ends_with("sparse")).unwrap();
    assert!(sparse.encoded.is_none() && sparse.is_sparse && sparse.bytes == 16 << 20);
    // Few bytes on disk alone are the work of a file system that compresses.
    let mut items = bed.items();
    items.retain(|item| item.name.as_str().ends_with("text"));
    items[0].is_sparse = true;
    compress(&mut items, ContentCoding::Zstd, bed.temporary.path(), SYMBOL).unwrap();
    assert!(items[0].encoded.is_some());
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_advice() {
    let bed = Bed::new(&[("one", text(200_000))]);
    let missing = bed.temporary.path().join("missing");
    let error = compress(&mut bed.items(), ContentCoding::Zstd, &missing, SYMBOL).unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("--temp-dir"), "{error}");
}

#[test]
fn a_file_that_changes_before_it_is_read_travels_plain() {
    let bed = Bed::new(&[("one", text(200_000))]);
    let mut items = bed.items();
    fs::write(bed.path("one"), text(100_000)).unwrap();
    let summary = compress(&mut items, ContentCoding::Zstd, bed.temporary.path(), SYMBOL).unwrap();
    assert_eq!((summary.encoded, summary.plain), (0, 1));
    assert_eq!(items[0].encoded, None);
}
