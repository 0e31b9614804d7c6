//! Bytes of a bundle, read from the members' files.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use headwater_proto::delivery::{BundlePart, MemberCheck};

use super::Bundle;
use crate::send::files::Stamp;
use crate::system::files::{FileExt, open_to_read};

/// Maximum bytes of content kept for the whole session: a change of these members costs nothing. Opening a
/// small file takes longer than sending the file at 500 Mbit/s.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of content kept for the next reads: neighbouring symbols share members.
const CACHE_BYTES_MAX: usize = 8 << 20;
/// Maximum number of members kept for the next reads.
const CACHE_MEMBERS_MAX: usize = 16_384;
/// Bytes of a kept member beside the content.
const KEPT_COST: usize = 128;

/// Bundle with bytes read from files. A header needs the CRC of a single member, so that any part of a
/// bundle can be read at once.
///
/// Memory: 40 bytes for each member.
#[derive(Debug)]
pub(crate) struct BundleReader {
    bundle: Arc<Bundle>,
    /// By member: values of the first read.
    checks: Vec<OnceLock<MemberCheck>>,
    /// Number of the bundle in the cache.
    number: usize,
    cache: Arc<Mutex<MemberCache>>,
}

/// Reason for which a member cannot be sent.
#[derive(Debug)]
pub(crate) enum MemberFault {
    /// The file with this index among the members has changed.
    Changed(usize),
    /// The file cannot be read.
    Unreadable(usize, io::Error),
}

/// Contents of the members read first and last, of all bundles. Memory: [`KEPT_BYTES_MAX`] and
/// [`CACHE_BYTES_MAX`].
#[derive(Debug)]
pub(crate) struct MemberCache {
    /// Members read first, for the whole session.
    kept: BTreeMap<(usize, usize), Arc<[u8]>>,
    kept_bytes: usize,
    kept_bytes_max: usize,
    members: BTreeMap<(usize, usize), Arc<[u8]>>,
    order: VecDeque<(usize, usize)>,
    bytes: usize,
}

impl BundleReader {
    /// Reads a bundle with this number among the bundles of `cache`.
    pub(crate) fn new(bundle: Arc<Bundle>, number: usize, cache: &Arc<Mutex<MemberCache>>) -> Self {
        let checks = vec![OnceLock::new(); bundle.files.len()];
        Self { bundle, checks, number, cache: Arc::clone(cache) }
    }

    /// Reads a bundle whose members were verified by these values before.
    pub(crate) fn with_checks(mut self, checks: Vec<MemberCheck>) -> Self {
        self.checks = checks.into_iter().map(OnceLock::from).collect();
        self
    }

    /// Number of members.
    pub(crate) fn members(&self) -> usize {
        self.bundle.files.len()
    }

    /// Returns the path of a member.
    pub(crate) fn path(&self, member: usize) -> String {
        self.bundle.files[member].path.display().to_string()
    }

    /// Fills `room` with the bytes from `offset` on, which must be within the bundle.
    pub(crate) fn read(&self, mut offset: u64, mut room: &mut [u8]) -> Result<(), MemberFault> {
        let layout = &self.bundle.layout;
        while !room.is_empty() {
            let at = u32::try_from(offset).expect("a bundle is short");
            let count = match layout.part(at).expect("reads end with the bundle") {
                BundlePart::Header { member, from } => {
                    copy(&layout.local_header(member, self.check(member)?)[from..], room)
                }
                BundlePart::Content { member, from } => copy(&self.content(member)?[from..], room),
                BundlePart::Entry { member, from } => {
                    copy(&layout.entry(member, self.check(member)?)[from..], room)
                }
                BundlePart::End { from } => copy(&layout.end_record()[from..], room),
            };
            offset += count as u64;
            room = &mut room[count..];
        }
        Ok(())
    }

    /// Fails unless the content of a member is kept, or the path still leads to the prepared file.
    pub(crate) fn check_member(&self, member: usize) -> Result<(), MemberFault> {
        if self.bundle.snapshots[member].is_some() || self.lock().kept.contains_key(&(self.number, member)) {
            return Ok(());
        }
        let file = &self.bundle.files[member];
        let metadata = fs::metadata(&file.path).map_err(|error| MemberFault::Unreadable(member, error))?;
        if Stamp::of(&metadata) == file.stamp { Ok(()) } else { Err(MemberFault::Changed(member)) }
    }

    fn check(&self, member: usize) -> Result<MemberCheck, MemberFault> {
        match self.checks[member].get() {
            Some(check) => Ok(*check),
            None => {
                let content = self.content(member)?;
                Ok(*self.checks[member].get_or_init(|| check_of(&content)))
            }
        }
    }

    /// Returns the whole content of a member.
    fn content(&self, member: usize) -> Result<Arc<[u8]>, MemberFault> {
        if let Some(content) = &self.bundle.snapshots[member] {
            return Ok(Arc::clone(content));
        }
        if let Some(content) = self.lock().get((self.number, member)) {
            return Ok(content);
        }
        let content = self.load(member)?;
        let check = check_of(&content);
        if *self.checks[member].get_or_init(|| check) != check {
            return Err(MemberFault::Changed(member));
        }
        let content: Arc<[u8]> = content.into();
        self.lock().insert((self.number, member), Arc::clone(&content));
        Ok(content)
    }

    fn load(&self, member: usize) -> Result<Vec<u8>, MemberFault> {
        let prepared = &self.bundle.files[member];
        let unreadable = |error| MemberFault::Unreadable(member, error);
        // A pipe in the place of the file must not block the thread.
        let file = open_to_read(&prepared.path, true).map_err(unreadable)?;
        let mut content = vec![0; self.bundle.layout.members()[member].bytes as usize];
        file.read_exact_at(&mut content, 0).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => MemberFault::Changed(member),
            _ => unreadable(error),
        })?;
        let metadata = file.metadata().map_err(unreadable)?;
        if Stamp::of(&metadata) == prepared.stamp { Ok(content) } else { Err(MemberFault::Changed(member)) }
    }

    /// Ignores poisoning: no step under the lock leaves the cache inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, MemberCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemberCache {
    fn default() -> Self {
        Self {
            kept: BTreeMap::new(),
            kept_bytes: 0,
            kept_bytes_max: KEPT_BYTES_MAX,
            members: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl MemberCache {
    /// Creates a cache that keeps members for the next reads alone.
    pub(crate) fn for_next_reads() -> Self {
        Self { kept_bytes_max: 0, ..Self::default() }
    }

    fn get(&self, member: (usize, usize)) -> Option<Arc<[u8]>> {
        self.kept.get(&member).or_else(|| self.members.get(&member)).map(Arc::clone)
    }

    fn insert(&mut self, member: (usize, usize), content: Arc<[u8]>) {
        let cost = content.len() + KEPT_COST;
        if self.kept_bytes + cost <= self.kept_bytes_max {
            self.kept_bytes += cost;
            if let Some(twice) = self.kept.insert(member, content) {
                self.kept_bytes -= twice.len() + KEPT_COST;
            }
            return;
        }
        self.bytes += content.len();
        if let Some(twice) = self.members.insert(member, content) {
            self.bytes -= twice.len();
        } else {
            self.order.push_back(member);
        }
        while self.bytes > CACHE_BYTES_MAX || self.order.len() > CACHE_MEMBERS_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.members.remove(&oldest).map_or(0, |content| content.len());
        }
    }
}

fn check_of(content: &[u8]) -> MemberCheck {
    let digest = *blake3::hash(content).as_bytes();
    MemberCheck {
        crc32: crc32fast::hash(content),
        digest: *digest.first_chunk().expect("a digest has 32 bytes"),
    }
}

/// Copies as many bytes as both slices have, and returns the number.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let count = from.len().min(to.len());
    to[..count].copy_from_slice(&from[..count]);
    count
}
