//! Members of bundles: put in place once the bundle is whole, or found in place.
//!
//! All members of a bundle are written to working files and verified before any member gets a final name, so
//! that a bad member refuses the bundle, and a single call syncs all members to disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use headwater_proto::delivery::{
    BUNDLE_END_BYTES, BundleEnd, BundleError, BundleLayout, BundleMember, DIRECTORY_BYTES_MAX, FileIndex,
    FileSpec, MemberCheck, RelativePath, StoreError, StoreReport,
};
use tracing::warn;

use super::bundle_cache::BundleCache;
use super::finish::{CHUNK_BYTES, Outcome};
use super::folder::{MemberFile, Parents};
use super::journal::{Key, Stamp};
use super::name_set::{self, IGNORES_CASE};
use super::place::{FilePlace, Places, hash_of, write_around_holes};
use super::selection::Selection;
use crate::system::files::sync_singly;
use crate::system::read_at;

/// Bound on the memory of unpacking or comparing a bundle, in bytes: the directory, the names in three forms,
/// and the members.
pub(super) const BYTES_MAX: u64 = 6 * DIRECTORY_BYTES_MAX as u64;
/// Maximum number of names of a session's files and members: 32 MiB of memory.
const NAMES_MAX: usize = 1 << 20;

/// Member of a bundle that is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnpackedMember {
    pub(crate) path: RelativePath,
    pub(crate) bytes: u64,
    /// Whether the member was in place before.
    pub(crate) is_present: bool,
}

/// Bundle whose members are in place.
#[derive(Debug)]
pub(crate) struct UnpackedBundle {
    /// Wanted members.
    pub(crate) members: Vec<UnpackedMember>,
    /// Directory of the bundle.
    pub(crate) directory: BundleDirectory,
}

/// Bundles whose members are in place, for the session's user.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnpackedBundles(Arc<Mutex<BTreeMap<usize, UnpackedBundle>>>);

impl UnpackedBundles {
    /// Returns a bundle that is done; `None` for any other file.
    pub(crate) fn take(&self, file: FileIndex) -> Option<UnpackedBundle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&file.0)
    }

    fn add(&self, file: FileIndex, bundle: UnpackedBundle) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(file.0, bundle);
    }
}

/// State of all bundles of a store.
#[derive(Debug, Default)]
pub(super) struct Unpacking {
    pub(super) cache: Option<BundleCache>,
    pub(super) selection: Selection,
    pub(super) unpacked: UnpackedBundles,
    /// By hash of a name: the file, or the bundle with the member.
    names: Mutex<BTreeMap<Key, FileIndex>>,
    /// Whether names that differ in case alone are one name.
    ignores_case: bool,
}

/// Reason for which a bundle is not unpacked.
enum UnpackError {
    /// The bundle is refused; other files are received.
    Refused(StoreError),
    /// Nothing can be stored.
    Failed(StoreError),
}

impl From<BundleError> for UnpackError {
    fn from(error: BundleError) -> Self {
        Self::Refused(StoreError(error.to_string()))
    }
}

/// Members of a bundle, verified against the bundle's length alone.
#[derive(Debug)]
pub(crate) struct BundleDirectory {
    pub(crate) layout: BundleLayout,
    /// By member.
    pub(crate) checks: Vec<MemberCheck>,
}

impl Unpacking {
    pub(super) fn new(cache: Option<BundleCache>, selection: Selection) -> Self {
        Self { cache, selection, ignores_case: IGNORES_CASE, ..Self::default() }
    }

    /// Takes a name for a file, or for a member of a bundle.
    ///
    /// # Errors
    /// If another file has the name, or the session has too many names.
    pub(super) fn claim(&self, path: &RelativePath, file: FileIndex) -> Result<(), StoreError> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key_of(path);
        match names.get(&key) {
            Some(owner) if *owner == file => Ok(()),
            Some(_) => Err(StoreError(format!("'{path}' is in another file or bundle of the session, too"))),
            None if names.len() >= NAMES_MAX => {
                Err(StoreError(format!("the session has more than {NAMES_MAX} files: send fewer at once")))
            }
            None => {
                names.insert(key, file);
                Ok(())
            }
        }
    }

    /// Takes the names of the members of a bundle, as [`Unpacking::claim`].
    ///
    /// # Errors
    /// As [`Unpacking::claim`], and if two members have one name.
    fn claim_members<'p>(
        &self,
        paths: impl Iterator<Item = &'p RelativePath>,
        bundle: FileIndex,
    ) -> Result<(), StoreError> {
        let mut keys = BTreeSet::new();
        for path in paths {
            if !keys.insert(self.key_of(path)) {
                return Err(StoreError(format!(
                    "'{path}' and another file differ in case alone, which is one name on this system; leave out one of them"
                )));
            }
            self.claim(path, bundle)?;
        }
        Ok(())
    }

    fn key_of(&self, path: &RelativePath) -> Key {
        hash_of(&name_set::key(path, self.ignores_case))
    }

    /// Returns the file with a name, or the bundle with the member.
    pub(super) fn owner_of(&self, path: &RelativePath) -> Option<FileIndex> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).get(&self.key_of(path)).copied()
    }

    fn wanted<'a>(
        &'a self,
        directory: &'a BundleDirectory,
    ) -> impl Iterator<Item = (usize, &'a BundleMember, MemberCheck)> {
        let members = directory.layout.members().iter().zip(&directory.checks).enumerate();
        let members = members.map(|(index, (member, check))| (index, member, *check));
        members.filter(|(_, member, _)| self.selection.wants(&member.path))
    }
}

/// Bytes of a whole bundle: those of the working file, or decoded bytes.
#[derive(Clone, Copy)]
struct BundleContent<'a> {
    places: &'a Places,
    file: &'a FilePlace,
    decoded: Option<&'a File>,
}

impl BundleContent<'_> {
    fn read(self, at: u64, bytes: &mut [u8]) -> Result<(), UnpackError> {
        let Self { places, file, decoded } = self;
        let read = match decoded {
            None => places.read(file, at, bytes),
            Some(decoded) => read_at(decoded, bytes, at)
                .map_err(|error| places.folder.failed(&format!("read '{}' back", file.spec.path), error)),
        };
        read.map_err(UnpackError::Failed)
    }
}

/// Puts the members of a whole bundle in place. A bundle that travelled encoded has been decoded.
pub(super) fn unpack(
    places: &Places,
    file: &FilePlace,
    decoded: Option<&File>,
) -> Result<Outcome, StoreError> {
    match place_members(places, BundleContent { places, file, decoded }) {
        Ok((stamp, bundle)) => {
            places.close(file);
            places.discard(&file.key())?;
            places.unpacking.unpacked.add(file.index, bundle);
            Ok(Outcome::Placed(file.index, stamp))
        }
        Err(UnpackError::Refused(error)) => {
            places.give_up(file);
            places.discard(&file.key())?;
            Ok(Outcome::Report(StoreReport::FileRefused(file.index, error)))
        }
        Err(UnpackError::Failed(error)) => Err(error),
    }
}

fn place_members(
    places: &Places,
    content: BundleContent<'_>,
) -> Result<(Stamp, UnpackedBundle), UnpackError> {
    let file = content.file;
    let (directory, bytes) = read_directory(content)?;
    let unpacking = &places.unpacking;
    let mut parents = Parents::of(&places.folder);
    let mut has_older = Vec::new();
    for (_, member, _) in unpacking.wanted(&directory) {
        has_older.push(parents.check_place(&member.path).map_err(UnpackError::Refused)?);
    }
    let names = unpacking.wanted(&directory).map(|(_, member, _)| &member.path);
    unpacking.claim_members(names, file.index).map_err(UnpackError::Refused)?;
    let mut members = Vec::new();
    let mut written = Vec::new();
    let result = (|| {
        for ((index, member, check), has_older) in unpacking.wanted(&directory).zip(has_older) {
            let is_present = has_older && find_member(places, member, check).is_some();
            if !is_present {
                written.push(write_member(places, content, &directory, index)?);
            }
            members.push(UnpackedMember {
                path: member.path.clone(),
                bytes: member.bytes.into(),
                is_present,
            });
        }
        places.folder.publish_members(&written).map_err(UnpackError::Failed)
    })();
    if let Err(error) = result {
        for member in &written {
            places.folder.discard(&member.work_name).map_err(UnpackError::Failed)?;
        }
        return Err(error);
    }
    if let (Some(cache), Some(digest)) = (&unpacking.cache, file.digest()) {
        cache.put(&digest, &bytes);
    }
    let content = places.content(file).map_err(UnpackError::Failed)?;
    let stamp = Stamp::of(&content);
    let stamp =
        stamp.map_err(|error| UnpackError::Failed(places.folder.failed("inspect a bundle", error)))?;
    Ok((stamp, UnpackedBundle { members, directory }))
}

/// Reads the directory of a whole bundle: parsed, and as bytes with the end record.
fn read_directory(content: BundleContent<'_>) -> Result<(BundleDirectory, Vec<u8>), UnpackError> {
    let length = content.file.spec.content_bytes();
    let mut record = [0; BUNDLE_END_BYTES];
    let Some(at) = length.checked_sub(BUNDLE_END_BYTES as u64) else {
        return Err(BundleError::NoEnd.into());
    };
    content.read(at, &mut record)?;
    let end = BundleEnd::parse(length, &record)?;
    let mut bytes = vec![0; end.bytes as usize];
    content.read(end.start.into(), &mut bytes)?;
    let (layout, checks) = end.parse_directory(&bytes)?;
    bytes.extend(record);
    Ok((BundleDirectory { layout, checks }, bytes))
}

/// Parses a directory with the end record, of a bundle of `length` bytes.
fn parse_kept(length: u64, bytes: &[u8]) -> Option<BundleDirectory> {
    let (directory, record) = bytes.split_last_chunk()?;
    let (layout, checks) = BundleEnd::parse(length, record).ok()?.parse_directory(directory).ok()?;
    Some(BundleDirectory { layout, checks })
}

/// Writes a member to a working file, and verifies the member.
fn write_member(
    places: &Places,
    content: BundleContent<'_>,
    directory: &BundleDirectory,
    index: usize,
) -> Result<MemberFile, UnpackError> {
    let BundleDirectory { layout, checks } = directory;
    let (member, check) = (&layout.members()[index], checks[index]);
    let expected = layout.local_header(index, check);
    let mut header = vec![0; expected.len()];
    content.read(layout.header_start(index).into(), &mut header)?;
    if header != expected {
        return Err(BundleError::Header(member.path.clone()).into());
    }
    let work_name = format!("{:032x}.{index}.member", u128::from_be_bytes(content.file.key()));
    let attempt = |error| UnpackError::Failed(places.folder.failed("write a member of a bundle", error));
    let written = MemberFile { work_name, spec: spec_of(member) };
    let mode = places.folder.rules.mode(&written.spec);
    let work = places.folder.make_work(&written.work_name, mode).map_err(UnpackError::Failed)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES.min(member.bytes as usize)];
    let (mut at, start) = (0, u64::from(layout.content_start(index)));
    while at < u64::from(member.bytes) {
        let rest = usize::try_from(u64::from(member.bytes) - at).unwrap_or(usize::MAX);
        let length = chunk.len().min(rest);
        content.read(start + at, &mut chunk[..length])?;
        hasher.update(&chunk[..length]);
        write_around_holes(&work, &chunk[..length], at).map_err(attempt)?;
        at += length as u64;
    }
    work.set_len(member.bytes.into()).map_err(attempt)?;
    let is_right = hasher.finalize().as_bytes().starts_with(&check.digest);
    if is_right {
        places.folder.set_metadata(&work, &written.spec).map_err(UnpackError::Failed)?;
        sync_singly(&work).map_err(attempt)?;
        return Ok(written);
    }
    places.folder.discard(&written.work_name).map_err(UnpackError::Failed)?;
    Err(BundleError::Content(member.path.clone()).into())
}

fn spec_of(member: &BundleMember) -> FileSpec {
    FileSpec {
        mode: Some(member.mode),
        modified: Some(member.modified),
        ..FileSpec::new(member.path.clone(), member.bytes.into())
    }
}

/// Finds a member in place, and sets mode and time. `None` if the file is missing or
/// different.
fn find_member(places: &Places, member: &BundleMember, check: MemberCheck) -> Option<()> {
    let (file, stamp) = places.folder.find(&member.path)?;
    if stamp.bytes != u64::from(member.bytes) || !has_digest(&file, member.bytes, check) {
        return None;
    }
    if let Err(error) = places.folder.adopt(&file, &spec_of(member)) {
        warn!("{error}; its content is as announced");
    }
    Some(())
}

fn has_digest(file: &File, bytes: u32, check: MemberCheck) -> bool {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES.min(bytes as usize)];
    let mut at = 0;
    while at < bytes as usize {
        let length = chunk.len().min(bytes as usize - at);
        if read_at(file, &mut chunk[..length], at as u64).is_err() {
            return false;
        }
        hasher.update(&chunk[..length]);
        at += length;
    }
    hasher.finalize().as_bytes().starts_with(&check.digest)
}

/// Compares the files in place with the members of a bundle in the cache. The first different member
/// ends the comparison.
pub(super) fn compare(places: &Places, file: &FilePlace) -> Result<Outcome, StoreError> {
    let differs = Ok(Outcome::Report(StoreReport::FileCompared { file: file.index, is_same: false }));
    let unpacking = &places.unpacking;
    let kept = unpacking.cache.as_ref().zip(file.digest());
    let kept =
        kept.and_then(|(cache, digest)| cache.get(&digest, DIRECTORY_BYTES_MAX as usize + BUNDLE_END_BYTES));
    let Some((bytes, stamp)) = kept else { return differs };
    let Some(directory) = parse_kept(file.spec.content_bytes(), &bytes) else { return differs };
    let mut members = Vec::new();
    for (_, member, check) in unpacking.wanted(&directory) {
        if find_member(places, member, check).is_none() || unpacking.claim(&member.path, file.index).is_err()
        {
            return differs;
        }
        members.push(UnpackedMember {
            path: member.path.clone(),
            bytes: member.bytes.into(),
            is_present: true,
        });
    }
    unpacking.unpacked.add(file.index, UnpackedBundle { members, directory });
    places.give_up(file);
    places.discard(&file.key())?;
    Ok(Outcome::Present(file.index, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_another_case_are_taken_where_case_is_ignored() {
        let path = |name| RelativePath::new(name).unwrap();
        let (file, other) = (FileIndex(0), FileIndex(1));
        for ignores_case in [true, false] {
            let unpacking = Unpacking { ignores_case, ..Unpacking::default() };
            unpacking.claim(&path("A"), file).unwrap();
            assert_eq!(unpacking.claim(&path("a"), other).is_err(), ignores_case);
            assert_eq!(unpacking.owner_of(&path("a")), Some(if ignores_case { file } else { other }));
            let members = [path("d/b"), path("d/B")];
            assert_eq!(unpacking.claim_members(members.iter(), other).is_err(), ignores_case);
        }
    }
}
