//! Index of the resumable content of a working folder: content of earlier sessions, and the files of this
//! session, by the journal's numbers.
//!
//! The working folder also holds the FDT, so that a restarted receiver knows the session from its first
//! packet on.
//!
//! The FDT is not synced to disk: after a loss of power a damaged FDT fails its checksum, and the FDT is
//! received again.
//!
//! ```text
//! "HWFDT\0" version:u16 source:16 tsi:u64 instance:u32 length:u32 FDT checksum:32
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use headwater_proto::auth::PublicKey;
use headwater_proto::delivery::{
    Description, Digest, FDT_BYTES_MAX, FileSpec, FileVersion, HeldFile, StoreError,
};
use tracing::warn;

use super::folder::{Folder, is_recent};
use super::journal::{self, Change, Journal, Key};
use super::kept::{BLOCKS_BYTES_MAX, ResumeState, ResumedBlock, ResumedFile};
use super::place::{FilePlace, Places, STREAM, content_name, key_of, repair_name};
use super::write_log::WriteLog;
use super::writer::{Write, Writer};
use crate::system::files::FileExt;

pub(super) const JOURNAL: &str = "journal";
/// A journal during compaction.
pub(super) const JOURNAL_NEW: &str = "journal.new";
/// Maximum number of remembered files of earlier sessions; beyond the maximum the first files are forgotten.
const FILES_MAX: usize = 1 << 16;
/// Index of the content of a working folder that is worth keeping.
///
/// Memory: some 300 bytes for each file and object of this session and of earlier sessions, and the memory of
/// [`ResumeState`].
#[derive(Debug)]
pub(super) struct StoreIndex {
    places: Arc<Places>,
    /// The journal as opened, up to its length then: all content of earlier sessions.
    opened: (Arc<File>, u64),
    /// Blocks of earlier sessions, a part at a time.
    kept: ResumeState,
    /// Files of earlier sessions that this session has not taken over.
    files: BTreeMap<Key, (u32, ResumedFile)>,
    /// Objects of these files and of files taken over, by file and identity.
    objects: BTreeMap<(u32, Digest), u32>,
    /// All files of the journal, by its numbers.
    states: BTreeMap<u32, State>,
    next_file: u32,
    next_object: u32,
}

#[derive(Clone, Copy, Debug)]
struct State {
    key: Key,
    bytes: u64,
    version: FileVersion,
    /// Whether some content of the file came.
    is_begun: bool,
    is_placed: bool,
}

impl StoreIndex {
    /// Reads the content of earlier sessions, and begins a journal with that content only.
    pub(super) fn open(places: Arc<Places>) -> Result<(Self, WriteLog), StoreError> {
        let folder = &places.folder;
        let failed = |error: io::Error| folder.failed("write the journal", error);
        folder.discard(JOURNAL_NEW)?;
        let old = folder.find_work(JOURNAL);
        let end = old.as_ref().and_then(journal::trusted_end);
        let new = folder.open_work(JOURNAL_NEW, Some(0))?;
        let (journal, kept) = match (old, end) {
            (Some(old), Some(end)) => {
                let lost = lost_files(&places, &journal::read(&old, end, (0, 0), 0).files);
                journal::compact(&old, end, new, BLOCKS_BYTES_MAX, |file| lost.contains(&file))
                    .map_err(failed)?
            }
            _ => (Journal::create(new).map_err(failed)?, ResumeState::default()),
        };
        for file in kept.files.values().filter(|file| file.placed.is_none()) {
            for name in [content_name(&file.key), repair_name(&file.key)] {
                folder.find_work(&name).map_or(Ok(()), |file| file.sync_data()).map_err(failed)?;
            }
        }
        let (file, end) = journal.written();
        journal::sync(&file, end).map_err(failed)?;
        folder.rename_work(JOURNAL_NEW, JOURNAL)?;
        let state = |file: &ResumedFile| {
            let ResumedFile { key, bytes, version, placed } = *file;
            State { key, bytes, version, is_begun: true, is_placed: placed.is_some() }
        };
        let object =
            |(number, object): (&u32, &super::kept::ResumedObject)| ((object.file, object.identity), *number);
        let ledger = Self {
            opened: (file, end),
            states: kept.files.iter().map(|(number, file)| (*number, state(file))).collect(),
            files: kept.files.iter().map(|(number, file)| (file.key, (*number, *file))).collect(),
            objects: kept.objects.iter().map(object).collect(),
            next_file: kept.files.keys().next_back().map_or(0, |last| last.saturating_add(1)),
            next_object: kept.objects.keys().next_back().map_or(0, |last| last.saturating_add(1)),
            kept,
            places: Arc::clone(&places),
        };
        ledger.clean();
        Ok((ledger, WriteLog::new(places, journal)))
    }

    /// Returns the number of a file, if the file may be resumed, and the state of its content on disk.
    /// Different content under the same name is removed.
    pub(super) fn take_file(&mut self, writer: &Writer, spec: &FileSpec) -> (Option<u32>, HeldFile) {
        let key = key_of(&spec.path);
        if let Some((number, file)) = self.files.remove(&key) {
            let is_same = spec.bytes == file.bytes && file.version.is_same(&spec.version());
            // The digest of an encoded file is that of the encoded content.
            let is_whole = spec.digest.is_some()
                && file.version.digest == spec.digest
                && file.placed.is_some_and(|placed| placed.bytes == spec.content_bytes())
                && file.placed == self.places.folder.stamp(&spec.path);
            if is_same && is_whole == file.placed.is_some() {
                self.note_version(writer, number, spec.version());
                return (Some(number), HeldFile { is_whole, ..HeldFile::default() });
            }
            writer.note(Change::Dropped { file: number });
            writer.flush();
            self.states.remove(&number);
        }
        writer.push(Write::Discard(key));
        let version = spec.version();
        if !version.is_known() {
            return (None, HeldFile::default());
        }
        let file = self.next_file;
        self.next_file += 1;
        writer.note(Change::File { file, key, bytes: spec.bytes, version });
        let state = State { key, bytes: spec.bytes, version, is_begun: false, is_placed: false };
        self.states.insert(file, state);
        (Some(file), HeldFile::default())
    }

    /// Notes the digest of a file in progress.
    pub(super) fn learn_digest(&mut self, writer: &Writer, file: u32, digest: Digest) {
        self.note_version(writer, file, FileVersion { digest: Some(digest), modified: None });
    }

    /// Notes the sender's statement of a file's version; fields without a statement stay unchanged.
    fn note_version(&mut self, writer: &Writer, file: u32, told: FileVersion) {
        let Some(state) = self.states.get_mut(&file) else { return };
        let known = state.version;
        let version =
            FileVersion { digest: told.digest.or(known.digest), modified: told.modified.or(known.modified) };
        if version == known {
            return;
        }
        state.version = version;
        let State { key, bytes, .. } = *state;
        writer.note(Change::File { file, key, bytes, version });
    }

    /// Returns the number of an object of a resumable file, and its blocks on disk.
    pub(super) fn take_object(
        &mut self,
        writer: &Writer,
        file: u32,
        identity: Digest,
    ) -> (u32, BTreeMap<u32, ResumedBlock>) {
        if let Some(number) = self.objects.remove(&(file, identity)) {
            let mut blocks = self.take_blocks(number);
            if !self.has_content(file) {
                lose_content(writer, number, &mut blocks);
            }
            return (number, blocks);
        }
        let object = self.next_object;
        self.next_object += 1;
        writer.note(Change::Object { object, file, identity });
        (object, BTreeMap::new())
    }

    fn has_content(&self, file: u32) -> bool {
        let key = self.states.get(&file).map(|state| state.key);
        key.is_some_and(|key| self.places.has_content(&key))
    }

    /// Returns the blocks of an object left by an earlier session.
    fn take_blocks(&mut self, object: u32) -> BTreeMap<u32, ResumedBlock> {
        let (journal, end) = &self.opened;
        if !self.kept.has_blocks_of(object) {
            self.kept = journal::read(journal, *end, (object, 0), BLOCKS_BYTES_MAX);
        }
        let mut blocks = self.kept.take_blocks(object);
        while let Some(from) = self.kept.until.filter(|until| until.0 == object) {
            self.kept = journal::read(journal, *end, from, BLOCKS_BYTES_MAX);
            blocks.extend(self.kept.take_blocks(object));
        }
        blocks
    }

    /// Notes that symbols of a file came.
    pub(super) fn began(&mut self, place: &FilePlace) {
        if let Some(state) = place.number.and_then(|file| self.states.get_mut(&file)) {
            state.is_begun = true;
        }
    }

    /// Notes that a file has its final name.
    pub(super) fn placed(&mut self, place: &FilePlace) {
        // The file may have been given up meanwhile.
        if let Some(state) = place.number.and_then(|file| self.states.get_mut(&file)) {
            (state.is_begun, state.is_placed) = (true, true);
        }
    }

    /// Notes that a file was given up.
    pub(super) fn dropped(&mut self, place: &FilePlace) {
        place.number.and_then(|file| self.states.remove(&file));
    }

    /// Whether content is worth keeping: content of a file that is not in place, or files in place while
    /// other files of the session (`is_open`) are not.
    pub(super) fn is_resumable(&self, is_open: bool) -> bool {
        self.states.values().any(|state| state.is_begun && (is_open || !state.is_placed))
    }

    /// Whether a file of an earlier session is not in place.
    pub(super) fn has_unfinished(&self) -> bool {
        self.states.values().any(|state| !state.is_placed)
    }

    /// Leaves the working folder for the next session, or removes the working folder.
    pub(super) fn close(&self, log: &mut WriteLog, is_open: bool) {
        if !self.is_resumable(is_open) {
            self.places.folder.remove_work();
            return;
        }
        if let Err(error) = log.close() {
            warn!("{error}; what came last may have to be received again");
        }
        self.clean();
    }

    /// Removes files unknown to the journal.
    fn clean(&self) {
        let under_way = self.states.values().filter(|state| !state.is_placed);
        let mut names: Vec<_> =
            under_way.flat_map(|state| [content_name(&state.key), repair_name(&state.key)]).collect();
        if !names.is_empty() {
            names.push(STREAM.to_owned());
        }
        names.extend([JOURNAL, DESCRIPTION_FILE, SENDER_FILE, RECEIVER_FILE].map(str::to_owned));
        names.sort_unstable();
        if let Err(error) =
            self.places.folder.clean(|name| names.binary_search_by(|known| known.as_str().cmp(name)).is_ok())
        {
            warn!(%error, "the working folder could not be cleaned");
        }
    }
}

/// Drops the source symbols of blocks whose content is missing: otherwise later writes to new content would
/// count together with lost symbols.
fn lose_content(writer: &Writer, object: u32, blocks: &mut BTreeMap<u32, ResumedBlock>) {
    for (&sbn, block) in blocks.iter_mut().filter(|(_, block)| block.has_source()) {
        let slots = block.slots;
        *block = ResumedBlock { slots, ..ResumedBlock::default() };
        writer.note(Change::AllDropped { object, sbn });
        if slots > 0 {
            writer.note(Change::Repairs { object, sbn, slots });
        }
    }
    blocks.retain(|_, block| block.slots > 0);
    writer.flush();
}

/// Returns the files of a journal without any content on disk, or not worth keeping: too old, or too many. A
/// file may consist of repair symbols alone, or of source symbols alone.
fn lost_files(places: &Places, files: &BTreeMap<u32, ResumedFile>) -> BTreeSet<u32> {
    let is_kept = |file: &ResumedFile| match file.placed {
        Some(stamp) => is_recent(stamp.time()),
        None if places.device().is_some() => true,
        None => [&content_name(&file.key), &repair_name(&file.key), STREAM]
            .iter()
            .any(|name| places.folder.changed(name).is_some_and(is_recent)),
    };
    let beyond = files.len().saturating_sub(FILES_MAX);
    files
        .iter()
        .enumerate()
        .filter(|(place, (_, file))| *place < beyond || !is_kept(file))
        .map(|(_, (number, _))| *number)
        .collect()
}

/// Name of the file with the public keys of the sender.
const SENDER_FILE: &str = "sender";
const SENDER_FILE_NEW: &str = "sender.new";
/// A key, and the key announced for later sessions.
const SENDER_KEYS_MAX: usize = 2;

/// Writes the public keys of the sender, replacing the previous keys; removes the file if there is no key.
pub(super) fn write_sender(folder: &Folder, keys: &[PublicKey]) -> Result<(), StoreError> {
    if keys.is_empty() {
        return folder.discard(SENDER_FILE);
    }
    folder.discard(SENDER_FILE_NEW)?;
    let file = folder.open_work(SENDER_FILE_NEW, Some(0))?;
    let written = file.write_all_at(keys.as_flattened(), 0);
    written.map_err(|error| folder.failed("keep the sender's key", error))?;
    folder.rename_unsafe(SENDER_FILE_NEW, SENDER_FILE)
}

/// Reads the public keys of the sender; none if the file is missing or damaged.
pub(super) fn read_sender(folder: &Folder) -> Vec<PublicKey> {
    let mut bytes = Vec::new();
    let Some(file) = folder.find_work(SENDER_FILE) else { return Vec::new() };
    let read = file.take(1 + (SENDER_KEYS_MAX * size_of::<PublicKey>()) as u64).read_to_end(&mut bytes);
    match (read, bytes.as_chunks()) {
        (Ok(_), (keys, [])) => keys.to_vec(),
        _ => Vec::new(),
    }
}

/// Name of the file with the receiver's identifier.
const RECEIVER_FILE: &str = "receiver";

/// Reads the receiver's identifier, or writes `new`. An identifier that cannot be written is not kept.
pub(super) fn receiver_id(folder: &Folder, new: u64) -> u64 {
    let mut bytes = [0; 8];
    let known = folder.find_work(RECEIVER_FILE).is_some_and(|file| file.read_exact_at(&mut bytes, 0).is_ok());
    if known && bytes != [0; 8] {
        return u64::from_be_bytes(bytes);
    }
    let written =
        folder.open_work(RECEIVER_FILE, Some(0)).map(|file| file.write_all_at(&new.to_be_bytes(), 0));
    let _kept = matches!(written, Ok(Ok(())));
    new
}

/// Name of the FDT in the working folder.
const DESCRIPTION_FILE: &str = "fdt";
/// Name of the FDT during a write.
const DESCRIPTION_FILE_NEW: &str = "fdt.new";
const MAGIC: &[u8; 6] = b"HWFDT\0";
/// Counts up with every change of the format; other versions are not read.
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 6 + 2 + 16 + 8 + 4 + 4;
const CHECKSUM_BYTES: usize = 32;

/// Writes the FDT, replacing the previous FDT.
pub(super) fn write_description(folder: &Folder, description: &Description) -> Result<(), StoreError> {
    folder.discard(DESCRIPTION_FILE_NEW)?;
    let file = folder.open_work(DESCRIPTION_FILE_NEW, Some(0))?;
    let written = file.write_all_at(&encode(description), 0);
    written.map_err(|error| folder.failed("keep the FDT", error))?;
    folder.rename_unsafe(DESCRIPTION_FILE_NEW, DESCRIPTION_FILE)
}

/// Reads the FDT, if present and undamaged.
pub(super) fn read_description(folder: &Folder) -> Option<Description> {
    read_description_file(&folder.find_work(DESCRIPTION_FILE)?)
}

fn read_description_file(file: &File) -> Option<Description> {
    let mut bytes = Vec::new();
    let bytes_max = (HEADER_BYTES + FDT_BYTES_MAX + CHECKSUM_BYTES) as u64;
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    decode(&bytes)
}

fn encode(description: &Description) -> Vec<u8> {
    let source = match description.source {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let length = u32::try_from(description.xml.len()).expect("at most FDT_BYTES_MAX");
    let mut bytes = [
        MAGIC.as_slice(),
        &VERSION.to_le_bytes(),
        &source.octets(),
        &description.tsi.to_le_bytes(),
        &description.instance_id.to_le_bytes(),
        &length.to_le_bytes(),
        &description.xml,
    ]
    .concat();
    bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Description> {
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
    if blake3::hash(content).as_bytes() != checksum {
        return None;
    }
    let mut rest = content.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
    let source = Ipv6Addr::from_octets(take(&mut rest)?).to_canonical();
    let tsi = u64::from_le_bytes(take(&mut rest)?);
    let instance_id = u32::from_le_bytes(take(&mut rest)?);
    let length = u32::from_le_bytes(take(&mut rest)?);
    (rest.len() == length as usize).then(|| Description { source, tsi, instance_id, xml: rest.to_vec() })
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (field, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_or_not_at_all() {
        for source in ["192.0.2.1", "2001:db8::1"] {
            let kept = Description {
                source: source.parse().unwrap(),
                tsi: 77,
                instance_id: 0xF_FFFF,
                xml: b"<FDT-Instance/>".to_vec(),
            };
            let bytes = encode(&kept);
            assert_eq!(decode(&bytes), Some(kept));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert_eq!(decode(&damaged), None, "byte {at}");
                assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
            }
        }
    }
}
