//! Bundles at a sender: many small files travel as a single file with bytes read from the files.

mod reader;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headwater_proto::delivery::{
    BUNDLE_MEMBERS_MAX, BundleLayout, BundleMember, DIRECTORY_BYTES_MAX, RelativePath,
};

pub(crate) use self::reader::{BundleReader, MemberCache, MemberFault};
use super::files::{PreparedFile, Stamp};

/// Choice of the files that travel in bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bundling {
    /// Files of fewer than 1000 symbols, if there are 32 or more.
    #[default]
    Auto,
    /// No file.
    Never,
    /// Files of fewer than 1000 symbols.
    Always,
}

/// Number of symbols from which a file travels alone: a separate block costs below 1 in 1000 then.
pub const SMALL_SYMBOLS: u64 = 1_000;
/// Number of small files from which bundles pay: fewer objects cost receivers little.
pub const SMALL_FILES_MIN: usize = 32;

/// Minimum bytes of a bundle. A changed file makes receivers take a bundle again.
const BYTES_MIN: u64 = 4 << 20;
/// Mean of the bytes from there to the end of a bundle.
const BYTES_MEAN: u64 = 4 << 20;
/// Bytes at which a bundle ends.
const BYTES_MAX: u64 = 16 << 20;

/// Time since the last change for which a file may still be growing.
const RECENT: Duration = Duration::from_secs(60);
/// Maximum bytes and number of recent files that are read before the session, so that a change during the
/// session costs nothing.
const SNAPSHOT_MAX: (u64, usize) = (32 << 20, 16_384);

/// Files that travel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bundle {
    pub(super) layout: BundleLayout,
    /// By member.
    pub(super) files: Vec<PreparedFile>,
    /// By member: content of a file that has changed recently.
    pub(super) snapshots: Vec<Option<Arc<[u8]>>>,
}

impl Bundle {
    /// Creates a bundle of files that are in place below `folder`.
    ///
    /// # Errors
    /// If a file is missing, or not as long as the member.
    pub(crate) fn in_place(layout: BundleLayout, folder: &Path) -> std::io::Result<Self> {
        let prepared = |member: &BundleMember| {
            let path = folder.join(member.path.as_str());
            let metadata = fs::symlink_metadata(&path)?;
            let bytes = u64::from(member.bytes);
            if !metadata.is_file() || metadata.len() != bytes {
                return Err(std::io::Error::other("the file is not the member"));
            }
            let (name, modified) = (member.path.clone(), Some(member.modified));
            let stamp = Stamp::of(&metadata);
            let mode = member.mode;
            Ok(PreparedFile {
                path,
                name,
                bytes,
                mode,
                modified,
                is_sparse: false,
                stamp,
                bundle: None,
                encoded: None,
            })
        };
        let files = layout.members().iter().map(prepared).collect::<Result<Vec<_>, _>>()?;
        let snapshots = vec![None; files.len()];
        Ok(Self { layout, files, snapshots })
    }
}

/// Content of recent files, read before the session.
#[derive(Debug)]
struct Snapshots {
    since: SystemTime,
    bytes: u64,
    files: usize,
}

impl Snapshots {
    fn new(now: SystemTime) -> Self {
        let (bytes, files) = SNAPSHOT_MAX;
        Self { since: now.checked_sub(RECENT).unwrap_or(SystemTime::UNIX_EPOCH), bytes, files }
    }

    /// Reads a file that has changed recently. Returns no content for any other file.
    ///
    /// # Errors
    /// If the file has changed since the preparation, or cannot be read.
    fn read(&mut self, file: &PreparedFile) -> Result<Option<Arc<[u8]>>, std::io::Error> {
        let is_recent = file.modified.is_some_and(|time| {
            let since = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i128::from(time.seconds()) >= i128::from(since.as_secs())
        });
        if !is_recent || self.files == 0 || file.bytes > self.bytes {
            return Ok(None);
        }
        let opened = File::open(&file.path)?;
        let mut content = Vec::new();
        (&opened).take(file.bytes).read_to_end(&mut content)?;
        if content.len() as u64 != file.bytes || Stamp::of(&opened.metadata()?) != file.stamp {
            return Err(std::io::Error::other("the file has changed"));
        }
        (self.bytes, self.files) = (self.bytes - file.bytes, self.files - 1);
        Ok(Some(content.into()))
    }
}

/// Returns the files of a session, sorted by name, with bundles in place of members. `files` are sorted
/// by name.
///
/// The end of a bundle depends on the name and the length of the next file, as far as the limits allow: a
/// file more changes one bundle, mostly. A file that is changing just now travels alone.
pub(super) fn arrange(files: &[PreparedFile], bundling: Bundling, symbol_size: u16) -> Vec<PreparedFile> {
    let is_small =
        |file: &&PreparedFile| file.bytes < SMALL_SYMBOLS * u64::from(symbol_size) && file.modified.is_some();
    let least = match bundling {
        Bundling::Auto => SMALL_FILES_MIN,
        Bundling::Never => usize::MAX,
        Bundling::Always => 1,
    };
    if files.iter().filter(is_small).count() < least {
        return files.to_vec();
    }
    let mut arranged = Vec::new();
    let mut names: BTreeSet<RelativePath> = files.iter().map(|file| file.name.clone()).collect();
    let mut open = OpenBundle::default();
    let mut snapshots = Snapshots::new(SystemTime::now());
    for file in files {
        let member = Some(file).filter(is_small).and_then(member);
        // A receiver refuses a bundle with names that differ by case alone.
        let member = member.filter(|_| !open.has_name(file));
        let Some((member, Ok(snapshot))) = member.map(|member| (member, snapshots.read(file))) else {
            arranged.push(file.clone());
            continue;
        };
        if open.ends_before(&member) {
            arranged.extend(core::mem::take(&mut open).seal(&mut names));
        }
        open.push(file, member, snapshot);
    }
    arranged.extend(open.seal(&mut names));
    arranged.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    arranged
}

fn member(file: &PreparedFile) -> Option<BundleMember> {
    let bytes = u32::try_from(file.bytes).ok()?;
    Some(BundleMember { path: file.name.clone(), bytes, mode: file.mode, modified: file.modified? })
}

/// Bundle to which files are added.
#[derive(Debug, Default)]
struct OpenBundle {
    members: Vec<BundleMember>,
    files: Vec<PreparedFile>,
    snapshots: Vec<Option<Arc<[u8]>>>,
    /// Names without regard to case.
    names: BTreeSet<String>,
    bytes: u64,
    entries: u64,
}

impl OpenBundle {
    fn has_name(&self, file: &PreparedFile) -> bool {
        let name = file.name.as_str().to_lowercase();
        let mut above = name.match_indices('/').map(|(slash, _)| &name[..slash]);
        let below = format!("{name}/");
        let is_folder = self.names.range(below.clone()..).next().is_some_and(|next| next.starts_with(&below));
        is_folder || self.names.contains(&name) || above.any(|above| self.names.contains(above))
    }

    fn ends_before(&self, member: &BundleMember) -> bool {
        let bytes = member.bundled_bytes();
        let is_full = self.members.len() == BUNDLE_MEMBERS_MAX
            || self.bytes + bytes > BYTES_MAX
            || self.entries + u64::from(member.entry_bytes()) > DIRECTORY_BYTES_MAX.into();
        is_full || (self.bytes >= BYTES_MIN && draw(member.path.as_str()) < bytes)
    }

    fn push(&mut self, file: &PreparedFile, member: BundleMember, snapshot: Option<Arc<[u8]>>) {
        self.snapshots.push(snapshot);
        self.bytes += member.bundled_bytes();
        self.entries += u64::from(member.entry_bytes());
        self.names.insert(file.name.as_str().to_lowercase());
        self.members.push(member);
        self.files.push(file.clone());
    }

    /// Makes the bundle, with a name that no file has. Names of equal first members are equal in each
    /// session.
    fn seal(self, taken: &mut BTreeSet<RelativePath>) -> Option<PreparedFile> {
        let hash = blake3::hash(self.members.first()?.path.as_str().as_bytes()).to_hex();
        let name = [8, 16, 64]
            .iter()
            .filter_map(|digits| RelativePath::new(&format!("bundle-{}.zip", &hash[..*digits])).ok());
        let name = name.into_iter().find(|name| !taken.contains(name));
        let layout = BundleLayout::new(self.members);
        let (Some(name), Some(layout)) = (name, layout) else { return None };
        taken.insert(name.clone());
        let first = self.files.first()?;
        Some(PreparedFile {
            path: name.as_str().into(),
            bytes: layout.bytes().into(),
            // The newest time, so that an interrupted receiver knows the version before the digest.
            modified: self.files.iter().filter_map(|file| file.modified).max(),
            mode: 0o644,
            stamp: first.stamp,
            is_sparse: false,
            name,
            bundle: Some(Arc::new(Bundle { layout, files: self.files, snapshots: self.snapshots })),
            encoded: None,
        })
    }
}

/// Returns a number below [`BYTES_MEAN`] that depends on the name alone.
fn draw(name: &str) -> u64 {
    let hash = *blake3::hash(name.as_bytes()).as_bytes();
    let number = u64::from_le_bytes(*hash.first_chunk().expect("a digest has 32 bytes"));
    number % BYTES_MEAN
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::send::prepare;

    fn files(count: usize, bytes: usize) -> (tempfile::TempDir, Vec<PreparedFile>) {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..count {
            fs::write(folder.path().join(format!("{index:05}")), vec![1; bytes]).unwrap();
        }
        let set = prepare([folder.path().join(".")]).unwrap();
        (folder, set.files().to_vec())
    }

    fn names(arranged: &[PreparedFile]) -> Vec<Vec<&str>> {
        let members =
            |file: &PreparedFile| file.bundle.clone().map_or(0, |bundle| bundle.layout.members().len());
        assert!(arranged.is_sorted_by(|one, other| one.name < other.name));
        assert!(arranged.iter().all(|file| file.bundle.is_none() || members(file) > 0));
        let bundles = arranged.iter().filter_map(|file| file.bundle.as_deref());
        bundles.map(|bundle| bundle.files.iter().map(|file| file.name.as_str()).collect()).collect()
    }

    #[test]
    fn few_files_and_long_files_travel_alone() {
        let (_folder, files) = files(SMALL_FILES_MIN, 10);
        let alone = |files: &[PreparedFile], bundling, symbol| arrange(files, bundling, symbol) == files;
        assert!(alone(&files[1..], Bundling::Auto, 1_408) && alone(&files, Bundling::Never, 1_408));
        let bundled = arrange(&files, Bundling::Auto, 1_408);
        assert_eq!(names(&bundled), [files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>()]);
        assert_eq!(bundled.len(), 1);
        let mut long = files.clone();
        long[3].bytes = 1_408_000;
        let bundled = arrange(&long, Bundling::Always, 1_408);
        assert_eq!((bundled.len(), names(&bundled)[0].len()), (2, 31));
    }

    #[test]
    fn a_new_file_changes_one_bundle() {
        let (_folder, mut files) = files(3_000, 10);
        // Longer than on disk, and old enough not to be read.
        let old = headwater_proto::delivery::FileTime::new(1_000_000, 0);
        files.iter_mut().for_each(|file| (file.bytes, file.modified) = (20_000, old));
        let all = arrange(&files, Bundling::Auto, 1_408);
        let added = files.remove(1_234);
        let before = arrange(&files, Bundling::Auto, 1_408);
        assert!(all.len() >= 5, "{}", all.len());
        let changed: Vec<_> = all.iter().filter(|bundle| !before.contains(bundle)).collect();
        assert!(changed.len() <= 2, "{}", changed.len());
        assert!(changed.iter().any(|bundle| names(&[(*bundle).clone()])[0].contains(&added.name.as_str())));
    }

    #[test]
    fn a_file_that_is_changing_travels_alone_and_a_later_change_costs_nothing() {
        let (folder, files) = files(40, 10);
        fs::write(folder.path().join("00007"), "grows while the session is prepared").unwrap();
        let arranged = arrange(&files, Bundling::Auto, 1_408);
        let alone = arranged.iter().filter(|file| file.bundle.is_none()).map(|file| file.name.as_str());
        assert!(alone.eq([files[7].name.as_str()]));
        let bundle = arranged.iter().find_map(|file| file.bundle.clone()).unwrap();
        let reader = BundleReader::new(Arc::clone(&bundle), 0, &Arc::default());
        let read = || {
            let mut bytes = vec![0; bundle.layout.bytes() as usize];
            reader.read(0, &mut bytes).map(|()| bytes)
        };
        let first = read().unwrap();
        fs::write(folder.path().join("00003"), "grows during the session").unwrap();
        fs::remove_file(folder.path().join("00004")).unwrap();
        assert_eq!(read().unwrap(), first);
        assert!((0..reader.members()).all(|member| reader.check_member(member).is_ok()));
    }

    #[test]
    fn a_pipe_in_the_place_of_a_member_blocks_no_thread() {
        let (folder, files) = files(40, 10);
        let arranged = arrange(&files, Bundling::Auto, 1_408);
        let bundle = arranged.iter().find_map(|file| file.bundle.as_deref()).unwrap();
        // As of files that are older.
        let bundle = Bundle { snapshots: vec![None; files.len()], ..bundle.clone() };
        let pipe = folder.path().join("00003");
        fs::remove_file(&pipe).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let mut bytes = vec![0; bundle.layout.bytes() as usize];
        let reader = BundleReader::new(Arc::new(bundle), 0, &Arc::default());
        assert!(reader.read(0, &mut bytes).is_err());
    }

    #[test]
    fn names_that_differ_by_case_alone_travel_apart() {
        let (_folder, mut files) = files(40, 10);
        let name = |name: &str| RelativePath::new(name).unwrap();
        (files[0].name, files[1].name, files[2].name) = (name("Aa"), name("aA"), name("aa/b"));
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let arranged = arrange(&files, Bundling::Auto, 1_408);
        let alone = arranged.iter().filter(|file| file.bundle.is_none()).map(|file| file.name.as_str());
        assert_eq!(alone.collect::<Vec<_>>(), ["aA", "aa/b"]);
        assert_eq!(names(&arranged)[0].len(), 38);
    }
}
