//! What an earlier session left in the working folder, as its journal tells.

use std::collections::BTreeMap;

use headwater_proto::delivery::Digest;

use super::change::{Change, Key, Stamp};

/// Symbols of a block are numbered with 24 bits at most.
const ESI_END: u32 = 1 << 24;

/// Files and objects by the journal's numbers.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) files: BTreeMap<u32, KeptFile>,
    pub(super) objects: BTreeMap<u32, KeptObject>,
}

/// A file that was received in part, or is in place.
#[derive(Debug)]
pub(super) struct KeptFile {
    pub(super) key: Key,
    pub(super) bytes: u64,
    pub(super) digest: Digest,
    /// Once it has its final name.
    pub(super) placed: Option<Stamp>,
}

/// An object of a kept file.
#[derive(Debug)]
pub(super) struct KeptObject {
    pub(super) file: u32,
    pub(super) identity: Digest,
    pub(super) blocks: BTreeMap<u32, KeptBlock>,
}

/// What came of a block.
#[derive(Debug, Default)]
pub(super) struct KeptBlock {
    pub(super) is_whole: bool,
    /// Source symbols in place: bit `esi % 64` of word `esi / 64`.
    pub(super) source: Vec<u64>,
    /// Repair symbols are in the slots below this one.
    pub(super) slots: u32,
}

impl Kept {
    /// Applies the changes of a batch in order; `None` when one makes no sense.
    pub(super) fn apply_all(&mut self, mut batch: &[u8]) -> Option<()> {
        while !batch.is_empty() {
            self.apply(Change::decode(&mut batch)?)?;
        }
        Some(())
    }

    /// The changes that make this from nothing.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        let files = self.files.iter().flat_map(|(&file, kept)| {
            let KeptFile { key, bytes, digest, placed, .. } = *kept;
            let placed = placed.map(|stamp| Change::Placed { file, stamp });
            [Change::File { file, key, bytes, digest }].into_iter().chain(placed)
        });
        let objects = self.objects.iter().flat_map(|(&object, kept)| {
            let KeptObject { file, identity, .. } = *kept;
            let blocks = kept.blocks.iter().flat_map(move |(sbn, kept)| block_changes(object, *sbn, kept));
            [Change::Object { object, file, identity }].into_iter().chain(blocks)
        });
        files.chain(objects)
    }

    /// Forgets a file with its objects.
    pub(super) fn forget(&mut self, file: u32) {
        self.files.remove(&file);
        self.objects.retain(|_, object| object.file != file);
    }

    fn apply(&mut self, change: Change) -> Option<()> {
        match change {
            Change::File { file, key, bytes, digest } => {
                self.files.insert(file, KeptFile { key, bytes, digest, placed: None });
            }
            Change::Object { object, file, identity } => {
                self.files.get(&file)?;
                self.objects.insert(object, KeptObject { file, identity, blocks: BTreeMap::new() });
            }
            Change::Source { object, sbn, esi, count } => {
                let end = esi.checked_add(count).filter(|end| *end <= ESI_END)?;
                let source = &mut self.block(object, sbn)?.source;
                source.resize(source.len().max(end.div_ceil(64) as usize), 0);
                (esi..end).for_each(|esi| source[(esi / 64) as usize] |= 1 << (esi % 64));
            }
            Change::Repairs { object, sbn, slots } => {
                self.block(object, sbn)?.slots = Some(slots).filter(|slots| *slots < ESI_END)?;
            }
            Change::Whole { object, sbn } => {
                *self.block(object, sbn)? = KeptBlock { is_whole: true, ..KeptBlock::default() };
            }
            Change::RepairsDropped { object, sbn } => self.block(object, sbn)?.slots = 0,
            Change::AllDropped { object, sbn } => {
                self.objects.get_mut(&object)?.blocks.remove(&sbn);
            }
            Change::Dropped { file } => self.forget(file),
            Change::Placed { file, stamp } => {
                self.files.get_mut(&file)?.placed = Some(stamp);
                self.objects.retain(|_, object| object.file != file);
            }
        }
        Some(())
    }

    fn block(&mut self, object: u32, sbn: u32) -> Option<&mut KeptBlock> {
        Some(self.objects.get_mut(&object)?.blocks.entry(sbn).or_default())
    }
}

fn block_changes(object: u32, sbn: u32, kept: &KeptBlock) -> impl Iterator<Item = Change> {
    let whole = kept.is_whole.then_some(Change::Whole { object, sbn });
    let source = runs(&kept.source).map(move |(esi, count)| Change::Source { object, sbn, esi, count });
    let repairs = (kept.slots > 0).then_some(Change::Repairs { object, sbn, slots: kept.slots });
    whole.into_iter().chain(source).chain(repairs)
}

/// Runs of bits that are set: where each begins and how long it is.
fn runs(words: &[u64]) -> impl Iterator<Item = (u32, u32)> {
    let end = u32::try_from(words.len() * 64).expect("ESIs have 24 bits");
    let find = move |from: u32, wanted: bool| {
        (from..end).find(|esi| (words[(esi / 64) as usize] & 1 << (esi % 64) != 0) == wanted)
    };
    let mut next = 0;
    core::iter::from_fn(move || {
        let first = find(next, true)?;
        next = find(first, false).unwrap_or(end);
        Some((first, next - first))
    })
}
