//! Content in memory, for tests and simulations: same bytes and same order as with files.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use headwater_fec::{BlockEncoder, DecodeError, Repair};

use super::name::RelativePath;
use super::object::{Digest, ShortDigest, block_digest, file_digest};
use super::plan::SessionPlan;
use super::store::{
    BlockJob, BlockVerdict, Description, FileIndex, FileSpec, HeldBlock, HeldFile, ObjectIndex, ObjectSpec,
    Source, SourceError, Store, StoreError, StoreReport, StoredRepair,
};

/// Source of symbols from files in memory. A block is encoded at the first request for a repair symbol.
#[derive(Debug)]
pub struct MemorySource {
    objects: Vec<MemoryObject>,
    symbol_size: usize,
    encoders: BTreeMap<(usize, u32), Box<dyn BlockEncoder>>,
    /// Whether blocks of zeros are holes.
    has_holes: bool,
}

#[derive(Debug)]
struct MemoryObject {
    bytes: Arc<[u8]>,
    partition: headwater_fec::Partition,
    codec: Arc<dyn headwater_fec::BlockCodec>,
}

impl MemorySource {
    /// Creates a source from the contents of the planned files, in plan order.
    ///
    /// # Panics
    /// When the contents differ from the plan in number or lengths.
    pub fn new(plan: &SessionPlan, contents: &[&[u8]]) -> Self {
        assert_eq!(contents.len(), plan.files().len(), "one content for each file");
        let part = |start: u64, bytes: u64| -> core::ops::Range<usize> {
            let index = |at: u64| usize::try_from(at).expect("content in memory");
            index(start)..index(start + bytes)
        };
        let object = |object: &super::plan::PlannedObject| MemoryObject {
            bytes: Arc::from(&contents[object.file][part(object.offset, object.partition.transfer_length())]),
            partition: object.partition,
            codec: Arc::clone(&object.codec),
        };
        Self {
            objects: plan.objects().iter().map(object).collect(),
            symbol_size: plan
                .objects()
                .first()
                .map_or(0, |object| usize::from(object.partition.symbol_size())),
            encoders: BTreeMap::new(),
            has_holes: false,
        }
    }

    /// Treats blocks of zeros as holes.
    #[must_use]
    pub fn with_holes(self) -> Self {
        Self { has_holes: true, ..self }
    }

    /// Returns the digests of each object's blocks, for [`super::DeliverySender::new`].
    pub fn digests(&self) -> Vec<Vec<Digest>> {
        let digests = |object: &MemoryObject| {
            (0..object.partition.blocks()).map(|sbn| block_digest(object.block(sbn))).collect()
        };
        self.objects.iter().map(digests).collect()
    }
}

impl MemoryObject {
    fn block(&self, sbn: u32) -> &[u8] {
        let block = self.partition.block(sbn).expect("a block of the plan");
        let start = usize::try_from(block.offset).expect("content in memory");
        &self.bytes[start..start + usize::try_from(block.bytes).expect("content in memory")]
    }
}

impl Source for MemorySource {
    fn read_symbol(
        &mut self,
        object: usize,
        sbn: u32,
        esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        let content = &self.objects[object];
        let block = content.block(sbn);
        let k = content.partition.block(sbn).expect("a block of the plan").symbols;
        if esi < k {
            let start = esi as usize * self.symbol_size;
            let part = &block[start..block.len().min(start + self.symbol_size)];
            symbol[..part.len()].copy_from_slice(part);
            symbol[part.len()..].fill(0);
            return Ok(());
        }
        let failed = |error: headwater_fec::FecError| SourceError::Session(error.to_string());
        let encoder = match self.encoders.entry((object, sbn)) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let mut padded = block.to_vec();
                padded.resize(k as usize * self.symbol_size, 0);
                entry.insert(content.codec.encoder(k, &padded).map_err(failed)?)
            }
        };
        encoder.symbol(esi, symbol).map_err(failed)
    }

    fn is_hole(&self, object: usize, sbn: u32) -> bool {
        self.has_holes && self.objects[object].block(sbn).iter().all(|byte| *byte == 0)
    }
}

/// Store in memory that decodes immediately.
#[derive(Debug, Default)]
pub struct MemoryStore {
    files: Vec<(FileSpec, Vec<u8>)>,
    folders: Vec<RelativePath>,
    done: Vec<FileIndex>,
    objects: Vec<ObjectSpec>,
    /// ESI and symbol, by object, block and slot.
    slots: BTreeMap<(ObjectIndex, u32, u32), (u32, Vec<u8>)>,
    /// Blocks in the store, by object and block number.
    held: BTreeMap<(ObjectIndex, u32), HeldBlock>,
    /// Files of an interrupted store, by path.
    kept: BTreeMap<RelativePath, KeptFile>,
    /// Files that exist at the destination of an announced file.
    present: BTreeMap<RelativePath, Vec<u8>>,
    /// Blocks of resumed files, by file and identity of the block's object.
    resumed: BTreeMap<(FileIndex, Digest), Vec<KeptBlock>>,
    description: Option<Description>,
    reports: VecDeque<StoreReport>,
    /// Whether reports are held back.
    is_busy: bool,
    /// Maximum bytes of all files; a file beyond that is refused.
    bytes_max: u64,
    bytes: u64,
}

/// A block and the repair symbols of the block's slots, each with the ESI.
type KeptBlock = (HeldBlock, Vec<(u32, Vec<u8>)>);

/// A file of an interrupted store.
#[derive(Debug)]
struct KeptFile {
    spec: FileSpec,
    bytes: Vec<u8>,
    is_whole: bool,
    /// Blocks by the identity of the object.
    blocks: BTreeMap<Digest, Vec<KeptBlock>>,
}

impl MemoryStore {
    /// Sets whether reports are held back, as by a store that is busy decoding. Default: no.
    pub const fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Returns the created folders, in order of creation.
    pub fn folders(&self) -> &[RelativePath] {
        &self.folders
    }

    /// Returns the store that a restarted receiver finds: everything written, as a store on disk keeps the
    /// data.
    #[must_use]
    pub fn interrupted(self) -> Self {
        let mut blocks: BTreeMap<FileIndex, BTreeMap<Digest, Vec<KeptBlock>>> = BTreeMap::new();
        for ((object, sbn), held) in self.held {
            let ObjectSpec { file, identity, .. } = self.objects[object.0];
            if let Some(identity) = identity {
                let slots = (0..).zip(&held.repairs).map(|(slot, _)| &self.slots[&(object, sbn, slot)]);
                let symbols = slots.cloned().collect();
                blocks.entry(file).or_default().entry(identity).or_default().push((held, symbols));
            }
        }
        let mut kept = self.kept;
        for (index, (spec, bytes)) in self.files.into_iter().enumerate() {
            let index = FileIndex(index);
            let is_whole = self.done.contains(&index);
            let blocks = blocks.remove(&index).unwrap_or_default();
            kept.insert(spec.path.clone(), KeptFile { spec, bytes, is_whole, blocks });
        }
        Self { kept, description: self.description, bytes_max: self.bytes_max, ..Self::default() }
    }

    /// Creates a store for at most `bytes_max` bytes of files.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Puts a file at a destination, as another program might.
    pub fn put_present(&mut self, path: RelativePath, bytes: Vec<u8>) {
        self.present.insert(path, bytes);
    }

    /// Returns the digests of the file's blocks, computed over the given bytes.
    fn digests_of(&self, file: FileIndex, bytes: &[u8]) -> Vec<Digest> {
        let mut parts: Vec<&ObjectSpec> = self.objects.iter().filter(|object| object.file == file).collect();
        parts.sort_by_key(|object| object.offset);
        let digest = |object: &ObjectSpec, sbn| {
            let block = object.partition.block(sbn).expect("a block of the object");
            let range = object.offset + block.offset..object.offset + block.offset + block.bytes;
            let index = |at: u64| usize::try_from(at).expect("content in memory");
            block_digest(&bytes[index(range.start)..index(range.end)])
        };
        parts
            .into_iter()
            .flat_map(|object| (0..object.partition.blocks()).map(move |sbn| digest(object, sbn)))
            .collect()
    }

    /// Takes the blocks of the present file whose digests are promised, and reports the blocks.
    fn find_blocks(&mut self, file: FileIndex, present: &[u8], promised: &[ShortDigest]) {
        let mut objects: Vec<usize> = (0..self.objects.len()).collect();
        objects.retain(|object| self.objects[*object].file == file);
        objects.sort_by_key(|object| self.objects[*object].offset);
        let of_object =
            |object: usize| (0..self.objects[object].partition.blocks()).map(move |sbn| (object, sbn));
        let blocks: Vec<_> = objects.into_iter().flat_map(of_object).zip(promised).collect();
        for ((object, sbn), promised) in blocks {
            let spec = &self.objects[object];
            let block = spec.partition.block(sbn).expect("a block of the object");
            let index = |at: u64| usize::try_from(at).expect("content in memory");
            let range = index(spec.offset + block.offset)..index(spec.offset + block.offset + block.bytes);
            let Some(content) = present.get(range.clone()) else { continue };
            let digest = block_digest(content);
            if digest.starts_with(promised) {
                self.files[file.0].1[range].copy_from_slice(content);
                let object = ObjectIndex(object);
                self.reports.push_back(StoreReport::BlockFound { object, sbn, digest });
            }
        }
    }

    /// Returns the finished files with name and content, in order of completion.
    pub fn finished(&self) -> impl Iterator<Item = (&FileSpec, &[u8])> {
        self.done.iter().map(|file| {
            let (spec, bytes) = &self.files[file.0];
            (spec, bytes.as_slice())
        })
    }

    /// Changes one byte of the first unfinished file, like a failing disk.
    pub fn damage(&mut self, offset: usize) {
        let files = self.kept.values_mut().filter(|file| !file.is_whole);
        if let Some(byte) = files.filter_map(|file| file.bytes.get_mut(offset)).next() {
            *byte ^= 1;
        }
    }

    fn held_mut(&mut self, object: ObjectIndex, sbn: u32) -> &mut HeldBlock {
        self.held.entry((object, sbn)).or_insert_with(|| HeldBlock { sbn, ..HeldBlock::default() })
    }

    fn range(&self, object: ObjectIndex, sbn: u32) -> (usize, core::ops::Range<usize>) {
        let spec = &self.objects[object.0];
        let block = spec.partition.block(sbn).expect("a block of the object");
        let start = usize::try_from(spec.offset + block.offset).expect("content in memory");
        (spec.file.0, start..start + usize::try_from(block.bytes).expect("content in memory"))
    }
}

impl Store for MemoryStore {
    fn create_folder(&mut self, path: &RelativePath) -> Result<(), StoreError> {
        self.folders.push(path.clone());
        Ok(())
    }

    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        debug_assert_eq!(file.0, self.files.len(), "files count up");
        let bytes = self.bytes.saturating_add(spec.bytes);
        let fits = bytes <= self.bytes_max;
        let length = if fits { usize::try_from(spec.bytes).expect("within bytes_max") } else { 0 };
        self.files.push((spec.clone(), vec![0; length]));
        if !fits {
            return Err(StoreError(format!("{} bytes do not fit", spec.bytes)));
        }
        self.bytes = bytes;
        let is_present =
            self.present.get(&spec.path).is_some_and(|present| present.len() as u64 == spec.bytes);
        let is_present = is_present || spec.is_sparse;
        let nothing = HeldFile { is_present, ..HeldFile::default() };
        let Some(kept) = self.kept.remove(&spec.path) else { return Ok(nothing) };
        let is_same = kept.spec.bytes == spec.bytes && kept.spec.version().is_same(&spec.version());
        // Only the digest proves that a whole file is the same.
        let is_whole = kept.is_whole && spec.digest.is_some() && kept.spec.digest == spec.digest;
        if !is_same || kept.is_whole != is_whole {
            return Ok(nothing);
        }
        self.files[file.0].1 = kept.bytes;
        self.resumed.extend(kept.blocks.into_iter().map(|(identity, blocks)| ((file, identity), blocks)));
        if is_whole {
            self.done.push(file);
        }
        Ok(HeldFile { is_whole, is_present: is_present && !is_whole, ..HeldFile::default() })
    }

    fn learn_digest(&mut self, file: FileIndex, digest: Digest) -> Result<HeldFile, StoreError> {
        self.files[file.0].0.digest = Some(digest);
        Ok(HeldFile::default())
    }

    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock> {
        debug_assert!(object.0 >= self.objects.len(), "objects count up");
        // Objects of refused files are never added: fill the gap.
        self.objects.resize_with(object.0 + 1, || spec.clone());
        let resumed = spec.identity.and_then(|identity| self.resumed.remove(&(spec.file, identity)));
        let kept = resumed.unwrap_or_default();
        for (held, symbols) in &kept {
            self.held.insert((object, held.sbn), held.clone());
            let slots = (0..).zip(symbols).map(|(slot, symbol)| ((object, held.sbn, slot), symbol.clone()));
            self.slots.extend(slots);
        }
        kept.into_iter().map(|(held, _)| held).collect()
    }

    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let (file, range) = self.range(object, sbn);
        let size = usize::from(self.objects[object.0].partition.symbol_size());
        let block = &mut self.files[file].1[range];
        let part = &mut block[esi as usize * size..];
        let length = part.len().min(symbol.len());
        part[..length].copy_from_slice(&symbol[..length]);
        let held = self.held_mut(object, sbn);
        let word = (esi / 64) as usize;
        held.source.resize(held.source.len().max(word + 1), 0);
        held.source[word] |= 1 << (esi % 64);
        Ok(())
    }

    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let held = self.held_mut(object, sbn);
        held.repairs.truncate(repair.slot as usize);
        held.repairs.push(repair.esi);
        self.slots.insert((object, sbn, repair.slot), (repair.esi, symbol.to_vec()));
        Ok(())
    }

    fn finish_block(&mut self, job: BlockJob) {
        let BlockJob { object, sbn, .. } = job;
        let (file, range) = self.range(object, sbn);
        let spec = &self.objects[object.0];
        let size = spec.partition.symbol_size();
        let k = spec.partition.block(sbn).expect("a block of the object").symbols;
        let slots = self.slots.range((object, sbn, 0)..(object, sbn, job.repairs));
        let repairs: Vec<_> = slots.map(|(_, (esi, data))| Repair { esi: *esi, data }).collect();
        let mut block = self.files[file].1[range.clone()].to_vec();
        block.resize(k as usize * usize::from(size), 0);
        let decoded = match spec.codec.decode(k, &mut block, &job.missing, &repairs) {
            _ if job.missing.is_empty() => Ok(()),
            Ok(()) => Ok(()),
            Err(DecodeError::NeedMore { more }) => Err(more),
            Err(DecodeError::Invalid(_)) => Err(1),
        };
        self.reports.push_back(match decoded {
            Ok(()) => {
                block.truncate(range.len());
                let digest = block_digest(&block);
                self.files[file].1[range].copy_from_slice(&block);
                StoreReport::BlockDone { object, sbn, digest }
            }
            Err(more) => StoreReport::BlockNeedsMore { object, sbn, more },
        });
    }

    fn judge_block(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        verdict: BlockVerdict,
    ) -> Result<(), StoreError> {
        let held = self.held_mut(object, sbn);
        held.repairs.clear();
        match verdict {
            BlockVerdict::Right => held.is_whole = true,
            BlockVerdict::RepairsDropped => {}
            BlockVerdict::AllDropped => *held = HeldBlock { sbn, ..HeldBlock::default() },
        }
        Ok(())
    }

    fn discard_file(&mut self, file: FileIndex) -> Result<(), StoreError> {
        self.held.retain(|(object, _), _| self.objects[object.0].file != file);
        Ok(())
    }

    fn finish_file(&mut self, file: FileIndex) {
        self.done.push(file);
        self.reports.push_back(StoreReport::FileDone(file));
    }

    fn compare_file(&mut self, file: FileIndex, digest: Digest, promised: Vec<ShortDigest>) {
        let spec = &self.files[file.0].0;
        let length = usize::try_from(spec.bytes).expect("content in memory");
        let bytes = self.present.get(&spec.path).cloned().unwrap_or_else(|| vec![0; length]);
        let digests = self.digests_of(file, &bytes);
        let is_same = digests.iter().zip(&promised).all(|(one, promised)| one.starts_with(promised))
            && file_digest(&digests) == digest;
        if is_same {
            self.files[file.0].1 = bytes;
            self.done.push(file);
        } else {
            self.find_blocks(file, &bytes, &promised);
        }
        self.reports.push_back(StoreReport::FileCompared { file, is_same });
    }

    fn keep_description(&mut self, description: &Description) {
        self.description = Some(description.clone());
    }

    fn kept_description(&mut self) -> Option<Description> {
        self.description.clone()
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        if self.is_busy { None } else { self.reports.pop_front() }
    }
}
