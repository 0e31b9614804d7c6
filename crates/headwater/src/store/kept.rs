//! What an earlier session left in the working folder, as its journal tells.

use std::collections::BTreeMap;

use headwater_proto::delivery::{Digest, HeldBlock};

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
    /// Slots for repair symbols below this one may be in use.
    pub(super) slots: u32,
}

/// An object of a kept file.
#[derive(Debug)]
pub(super) struct KeptObject {
    pub(super) file: u32,
    pub(super) identity: Digest,
    pub(super) blocks: BTreeMap<u32, HeldBlock>,
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
            let blocks = kept.blocks.values().flat_map(move |held| block_changes(object, held));
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
                self.files.insert(file, KeptFile { key, bytes, digest, placed: None, slots: 0 });
            }
            Change::Object { object, file, identity } => {
                self.files.get(&file)?;
                self.objects.insert(object, KeptObject { file, identity, blocks: BTreeMap::new() });
            }
            Change::Source { object, sbn, esi } if esi < ESI_END => {
                let source = &mut self.block(object, sbn)?.source;
                let word = (esi / 64) as usize;
                source.resize(source.len().max(word + 1), 0);
                source[word] |= 1 << (esi % 64);
            }
            Change::Source { .. } => return None,
            Change::Repair { object, sbn, repair } => {
                self.block(object, sbn)?.repairs.push(repair);
                let file = self.objects.get(&object)?.file;
                let slots = &mut self.files.get_mut(&file)?.slots;
                *slots = (*slots).max(repair.slot.checked_add(1)?);
            }
            Change::Whole { object, sbn } => {
                *self.block(object, sbn)? = HeldBlock { sbn, is_whole: true, ..HeldBlock::default() };
            }
            Change::RepairsDropped { object, sbn } => self.block(object, sbn)?.repairs.clear(),
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

    fn block(&mut self, object: u32, sbn: u32) -> Option<&mut HeldBlock> {
        let blocks = &mut self.objects.get_mut(&object)?.blocks;
        Some(blocks.entry(sbn).or_insert_with(|| HeldBlock { sbn, ..HeldBlock::default() }))
    }
}

fn block_changes(object: u32, held: &HeldBlock) -> impl Iterator<Item = Change> {
    let sbn = held.sbn;
    let whole = held.is_whole.then_some(Change::Whole { object, sbn });
    let bits = (0..).zip(&held.source).flat_map(|(word, bits)| {
        (0..64).filter(move |bit| bits & 1 << bit != 0).map(move |bit| word * 64 + bit)
    });
    let source = bits.map(move |esi| Change::Source { object, sbn, esi });
    let repairs = held.repairs.iter().map(move |repair| Change::Repair { object, sbn, repair: *repair });
    whole.into_iter().chain(source).chain(repairs)
}
