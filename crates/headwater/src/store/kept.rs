//! Content of an earlier session in the working folder, as recorded by its journal.

use std::collections::BTreeMap;

use headwater_proto::delivery::{Digest, FileVersion};

use super::journal::{Change, Key, Stamp};

/// Symbols of a block are numbered with 24 bits at most.
const ESI_END: u32 = 1 << 24;

/// Maximum memory for the state of blocks read at a time, in bytes: the blocks of a terabyte take 12 such
/// reads, in sequence.
pub(super) const BLOCKS_BYTES_MAX: usize = 8 << 20;
/// Memory of a block beside its bits.
const BLOCK_BYTES: usize = 160;

/// A block, by the journal's number of its object.
pub(super) type Id = (u32, u32);

/// Files and objects by the journal's numbers, and as many of their blocks as fit in memory. Bound:
/// [`BLOCKS_BYTES_MAX`] or a single larger block, and some 150 bytes for each file and object.
#[derive(Debug, Default)]
pub(super) struct ResumeState {
    pub(super) files: BTreeMap<u32, ResumedFile>,
    pub(super) objects: BTreeMap<u32, ResumedObject>,
    /// Range of the recorded blocks: from `from` on, up to the first block without memory.
    from: Id,
    pub(super) until: Option<Id>,
    blocks: BTreeMap<Id, ResumedBlock>,
    bytes: usize,
    bytes_max: usize,
}

/// A file that was received in part, or is in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResumedFile {
    pub(super) key: Key,
    pub(super) bytes: u64,
    pub(super) version: FileVersion,
    /// Set once the file has its final name.
    pub(super) placed: Option<Stamp>,
}

/// An object of a kept file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResumedObject {
    pub(super) file: u32,
    pub(super) identity: Digest,
}

/// State of a received block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResumedBlock {
    pub(super) is_whole: bool,
    /// Source symbols in place: bit `esi % 64` of word `esi / 64`.
    pub(super) source: Vec<u64>,
    /// Repair symbols, and more source symbols, are in the slots below `slots`.
    pub(super) slots: u32,
}

impl ResumedBlock {
    /// Whether source symbols are claimed.
    pub(super) fn has_source(&self) -> bool {
        self.is_whole || !self.source.is_empty()
    }

    fn bytes(&self) -> usize {
        BLOCK_BYTES + 8 * self.source.capacity()
    }

    fn word(&mut self, index: u32) -> Option<&mut u64> {
        let index = Some(index as usize).filter(|index| *index < ESI_END as usize / 64)?;
        if index >= self.source.len() {
            // Exact, as the state read from a journal must not take twice its bits.
            self.source.reserve_exact(index + 1 - self.source.len());
            self.source.resize(index + 1, 0);
        }
        self.source.get_mut(index)
    }
}

impl ResumeState {
    /// Starts empty, to record blocks from `from` on that take at most `bytes_max`.
    pub(super) fn new(from: Id, bytes_max: usize) -> Self {
        Self { from, bytes_max, ..Self::default() }
    }

    /// Applies the changes of a batch in order; `None` when a change is invalid.
    pub(super) fn apply_all(&mut self, mut batch: &[u8]) -> Option<()> {
        while !batch.is_empty() {
            self.apply(Change::decode(&mut batch)?)?;
        }
        Some(())
    }

    /// Returns the changes that create the files and objects.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        let files = self.files.iter().flat_map(|(&file, kept)| {
            let ResumedFile { key, bytes, version, placed } = *kept;
            let placed = placed.map(|stamp| Change::Placed { file, stamp });
            [Change::File { file, key, bytes, version }].into_iter().chain(placed)
        });
        let objects = self.objects.iter().map(|(&object, kept)| {
            let ResumedObject { file, identity } = *kept;
            Change::Object { object, file, identity }
        });
        files.chain(objects)
    }

    /// Returns the changes that create the blocks.
    pub(super) fn block_changes(&self) -> impl Iterator<Item = Change> {
        self.blocks.iter().flat_map(|(id, kept)| block_changes(*id, kept))
    }

    /// Whether the recorded range includes all blocks of an object.
    pub(super) fn has_blocks_of(&self, object: u32) -> bool {
        self.from <= (object, 0) && self.until.is_none_or(|until| until.0 > object)
    }

    /// Whether the recorded range includes a block.
    pub(super) fn tells_of(&self, id: Id) -> bool {
        self.from <= id && self.until.is_none_or(|until| id < until)
    }

    /// Removes and returns the recorded blocks of an object.
    pub(super) fn take_blocks(&mut self, object: u32) -> BTreeMap<u32, ResumedBlock> {
        let mut taken = self.blocks.split_off(&(object, 0));
        self.blocks.extend(taken.split_off(&(object + 1, 0)));
        self.bytes -= taken.values().map(ResumedBlock::bytes).sum::<usize>();
        taken.into_iter().map(|((_, sbn), block)| (sbn, block)).collect()
    }

    /// Removes a file with its objects.
    pub(super) fn forget(&mut self, file: u32) {
        self.files.remove(&file);
        self.forget_objects(file);
    }

    fn forget_objects(&mut self, file: u32) {
        let objects: Vec<u32> = self
            .objects
            .iter()
            .filter(|(_, object)| object.file == file)
            .map(|(number, _)| *number)
            .collect();
        for object in objects {
            self.objects.remove(&object);
            self.take_blocks(object);
        }
    }

    fn apply(&mut self, change: Change) -> Option<()> {
        match change {
            Change::File { file, key, bytes, version } => {
                // A number belongs to the same file for ever.
                let placed = self.files.get(&file).and_then(|known| known.placed);
                self.files.insert(file, ResumedFile { key, bytes, version, placed });
            }
            Change::Object { object, file, identity } => {
                self.files.get(&file)?;
                self.objects.insert(object, ResumedObject { file, identity });
            }
            Change::Source { object, sbn, esi, count } => {
                let end = esi.checked_add(count).filter(|end| *end <= ESI_END)?;
                self.change((object, sbn), |block| {
                    end.checked_sub(1).map_or(Some(()), |last| block.word(last / 64).map(|_| ()))?;
                    (esi..end).for_each(|esi| block.source[(esi / 64) as usize] |= 1 << (esi % 64));
                    Some(())
                })?;
            }
            Change::Word { object, sbn, index, bits } => {
                self.change((object, sbn), |block| block.word(index).map(|word| *word |= bits))?;
            }
            Change::Repairs { object, sbn, slots } => {
                let slots = Some(slots).filter(|slots| *slots < ESI_END)?;
                self.change((object, sbn), |block| {
                    block.slots = slots;
                    Some(())
                })?;
            }
            Change::Whole { object, sbn } => self.change((object, sbn), |block| {
                *block = ResumedBlock { is_whole: true, ..ResumedBlock::default() };
                Some(())
            })?,
            Change::RepairsDropped { object, sbn } => self.change((object, sbn), |block| {
                block.slots = 0;
                Some(())
            })?,
            Change::AllDropped { object, sbn } => {
                let dropped = self.blocks.remove(&(object, sbn));
                self.bytes -= dropped.map_or(0, |block| block.bytes());
            }
            Change::Dropped { file } => self.forget(file),
            Change::Placed { file, stamp } => {
                self.files.get_mut(&file)?.placed = Some(stamp);
                self.forget_objects(file);
            }
        }
        Some(())
    }

    /// Changes a block of a known object, if the block is in the recorded range. If memory runs out, the last
    /// blocks are removed.
    fn change(&mut self, id: Id, change: impl FnOnce(&mut ResumedBlock) -> Option<()>) -> Option<()> {
        // Also skips blocks of an object removed with its file.
        if !self.objects.contains_key(&id.0) || !self.tells_of(id) {
            return Some(());
        }
        let mut added = 0;
        let block = self.blocks.entry(id).or_insert_with(|| {
            added = BLOCK_BYTES;
            ResumedBlock::default()
        });
        let before = block.bytes();
        change(block)?;
        self.bytes = self.bytes + added + block.bytes() - before;
        while self.bytes > self.bytes_max && self.blocks.len() > 1 {
            let Some((last, block)) = self.blocks.pop_last() else { break };
            self.bytes -= block.bytes();
            self.until = Some(last);
        }
        Some(())
    }
}

/// Returns the changes that create a block: source symbols in runs, or word by word where that is shorter.
fn block_changes((object, sbn): Id, kept: &ResumedBlock) -> Vec<Change> {
    let mut changes = Vec::new();
    changes.extend(kept.is_whole.then_some(Change::Whole { object, sbn }));
    let words = kept.source.iter().filter(|word| **word != 0).count();
    // A run takes 17 bytes, a word 21.
    if 17 * runs(&kept.source).count() <= 21 * words {
        changes.extend(runs(&kept.source).map(|(esi, count)| Change::Source { object, sbn, esi, count }));
    } else {
        let words = (0..).zip(&kept.source).filter(|(_, word)| **word != 0);
        changes.extend(words.map(|(index, bits)| Change::Word { object, sbn, index, bits: *bits }));
    }
    changes.extend((kept.slots > 0).then_some(Change::Repairs { object, sbn, slots: kept.slots }));
    changes
}

/// Returns the runs of set bits: start and length.
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
