//! Compression of files before a session.

use std::fs;
use std::os::unix::fs::DirBuilderExt;

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
    cache: PathBuf,
}

impl Bed {
    /// Makes files whose last change is past.
    fn new(files: &[(&str, Vec<u8>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("files")).unwrap();
        for (name, content) in files {
            fs::write(folder.path().join("files").join(name), content).unwrap();
        }
        let cache = folder.path().join("cache");
        Self { folder, cache }
    }

    fn set(&self) -> FileSet {
        prepare([self.folder.path().join("files/.")]).unwrap()
    }

    fn compress(&self, coding: ContentCoding) -> Result<(Vec<PreparedFile>, CompressionSummary), SendError> {
        let mut items = arrange(self.set().files(), Bundling::Auto, SYMBOL);
        let options = CompressionOptions { coding, folder: Some(self.cache.clone()) };
        let summary = compress(&mut items, &options, Path::new("/nowhere"), SYMBOL)?;
        Ok((items, summary))
    }

    /// Returns the contents of the cache without folders of sessions.
    fn kept(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.cache).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).collect()
    }

    fn sessions(&self) -> usize {
        fs::read_dir(&self.cache).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    }
}

fn decoded(item: &PreparedFile) -> Vec<u8> {
    let encoded = item.encoded.as_ref().unwrap();
    let bytes = fs::read(&encoded.path).unwrap();
    let mut content = Vec::new();
    let Encoding { coding, bytes: length, digest } = encoded.encoding;
    decode(coding, &bytes[..usize::try_from(item.bytes).unwrap()], length, |chunk| {
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
        let (items, summary) = bed.compress(coding).unwrap();
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
    }
}

#[test]
fn a_bundle_is_encoded_whole() {
    let names: Vec<String> = (0..40).map(|number| format!("file {number}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), text(3_000))).collect();
    let bed = Bed::new(&files);
    let (items, summary) = bed.compress(ContentCoding::Zstd).unwrap();
    assert_eq!((items.len(), summary.encoded), (1, 1));
    let bundle = items[0].bundle.as_ref().unwrap();
    let zip = decoded(&items[0]);
    assert_eq!(zip.len() as u64, u64::from(bundle.layout.bytes()));
    assert!(zip.windows(20).any(|window| window == &text(20)[..]));
}

#[test]
fn a_second_session_gets_the_same_bytes_and_encodes_changed_files_alone() {
    let bed = Bed::new(&[("noise", noise(200_000)), ("one", text(200_000)), ("two", text(300_000))]);
    // Changes of less than two seconds ago are encoded anew each time.
    let (first, _) = bed.compress(ContentCoding::Zstd).unwrap();
    assert!(bed.kept().is_empty(), "a change within the tick of the clock would go unseen");
    let bytes = |items: &[PreparedFile], index: usize| {
        fs::read(&items[index].encoded.as_ref().unwrap().path).unwrap()
    };
    thread::sleep(RECENT + Duration::from_millis(1_100));
    let (second, _) = bed.compress(ContentCoding::Zstd).unwrap();
    assert_eq!(bed.kept().len(), 3, "with the note that noise does not shrink");
    assert!((1..3).all(|index| bytes(&first, index) == bytes(&second, index)));
    let written = |path: &PathBuf| fs::metadata(path).unwrap().ino();
    let before: Vec<u64> = bed.kept().iter().map(written).collect();
    fs::write(bed.folder.path().join("files/two"), text(310_000)).unwrap();
    let (third, summary) = bed.compress(ContentCoding::Zstd).unwrap();
    assert!(bytes(&third, 1) == bytes(&first, 1) && decoded(&third[2]) == text(310_000));
    assert_eq!((summary.encoded, summary.plain), (2, 1));
    assert_eq!(bed.kept().iter().map(written).collect::<Vec<_>>(), before, "nothing was encoded again");
    // Content of the first session stays until the session ends.
    assert!(decoded(&second[2]) == text(300_000));
    assert_eq!(bed.sessions(), 3);
    drop((first, second, third));
    assert_eq!(bed.sessions(), 0);
}

#[test]
fn damaged_content_is_encoded_again() {
    let bed = Bed::new(&[("one", text(200_000))]);
    thread::sleep(RECENT + Duration::from_millis(1_100));
    drop(bed.compress(ContentCoding::Gzip).unwrap());
    let kept = bed.kept().remove(0);
    let whole = fs::read(&kept).unwrap();
    for damaged in [&whole[..whole.len() - 1], b"", &vec![0; whole.len()]] {
        fs::write(&kept, damaged).unwrap();
        let (items, _) = bed.compress(ContentCoding::Gzip).unwrap();
        assert!(decoded(&items[0]) == text(200_000));
        assert!(fs::read(&kept).unwrap() == whole);
    }
}

#[test]
fn abandoned_and_old_content_is_removed() {
    let bed = Bed::new(&[("one", text(200_000))]);
    fs::DirBuilder::new().mode(0o700).create(&bed.cache).unwrap();
    let abandoned = bed.cache.join("session-killed");
    fs::create_dir(&abandoned).unwrap();
    fs::write(abandoned.join("lock"), "").unwrap();
    fs::write(abandoned.join("0.part"), "half").unwrap();
    let old = bed.cache.join("00");
    fs::write(&old, "old").unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(15 * 24 * 3_600);
    File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    fs::write(bed.cache.join("01"), "new").unwrap();
    let session = bed.compress(ContentCoding::Zstd).unwrap();
    assert!(!abandoned.exists() && !old.exists() && bed.cache.join("01").exists());
    // A session in use is not abandoned.
    drop(bed.compress(ContentCoding::Zstd).unwrap());
    assert_eq!(bed.sessions(), 1);
    drop(session);
}

#[test]
fn a_folder_of_other_users_is_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let bed = Bed::new(&[("one", text(200_000))]);
    let refused = |bed: &Bed| {
        let error = bed.compress(ContentCoding::Zstd).unwrap_err();
        assert!(matches!(&error, SendError::Compression { .. }), "{error}");
        error.to_string()
    };
    fs::create_dir(&bed.cache).unwrap();
    fs::set_permissions(&bed.cache, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refused(&bed).contains("--temp-dir"));
    fs::remove_dir(&bed.cache).unwrap();
    let elsewhere = bed.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &bed.cache).unwrap();
    refused(&bed);
}

#[test]
fn a_file_that_changes_before_it_is_read_travels_plain() {
    let bed = Bed::new(&[("one", text(200_000))]);
    let mut items = bed.set().files().to_vec();
    fs::write(bed.folder.path().join("files/one"), text(100_000)).unwrap();
    let options = CompressionOptions { coding: ContentCoding::Zstd, folder: Some(bed.cache.clone()) };
    let summary = compress(&mut items, &options, Path::new("/nowhere"), SYMBOL).unwrap();
    assert_eq!((summary.encoded, summary.plain), (0, 1));
    assert_eq!(items[0].encoded, None);
}
