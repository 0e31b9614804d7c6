//! What the FDT has announced: files, and the objects that carry them.

use std::collections::BTreeMap;

use headwater_fec::Partition;
use headwater_wire::Fti;
use headwater_wire::fdt::{File, Segment};

use super::block::BlockState;
use crate::delivery::digest::{Digest, ShortDigest};
use crate::delivery::name::RelativePath;
use crate::delivery::object::{Codecs, partition_of};
use crate::delivery::plan::OBJECTS_MAX;
use crate::delivery::store::{FileIndex, FileSpec, ObjectIndex, ObjectSpec};

/// Most blocks of a session at a receiver: each costs 50 bytes before its first symbol. 2^21 blocks of RaptorQ are
/// 14 TB.
pub const BLOCKS_MAX: u64 = 1 << 21;

/// All that was announced.
#[derive(Debug, Default)]
pub struct Catalogue {
    pub files: Vec<FileState>,
    pub objects: Vec<ObjectState>,
    by_toi: BTreeMap<u128, Announced>,
    /// Files that come in several objects, by what their segments agree on.
    segmented: BTreeMap<SegmentKey, FileIndex>,
    codecs: Codecs,
    blocks: u64,
    /// Objects that the files announced will have.
    places: usize,
    awaiting_fti: usize,
}

type SegmentKey = (RelativePath, u64, u32, Option<Digest>);

/// What is known of a transport object identifier.
#[derive(Clone, Debug)]
pub enum Announced {
    /// It is being received.
    Object(ObjectIndex),
    /// It was refused: its packets are dropped.
    Refused,
    /// The FDT does not tell its coding: the first packet with EXT_FTI will.
    AwaitsFti(Box<File>),
}

#[derive(Debug)]
pub struct FileState {
    pub spec: FileSpec,
    pub digest: Option<Digest>,
    /// Its objects in the order of their segments; those not announced yet are `None`.
    pub objects: Vec<Option<ObjectIndex>>,
    /// Objects and blocks that are not done; at 0 the file is whole.
    pub left: u64,
    /// Source symbols of the objects announced, and symbols held.
    pub symbols: u64,
    pub symbols_held: u64,
    pub outcome: Option<FileOutcome>,
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOutcome {
    /// Whole, verified, under its final name.
    Done,
    /// Whole, but its digest is wrong.
    Mismatch,
    /// The store cannot hold it.
    Refused,
}

#[derive(Debug)]
pub struct ObjectState {
    pub file: FileIndex,
    pub fti: Fti,
    pub partition: Partition,
    /// n of a block of k symbols is asked of it.
    pub codec: std::sync::Arc<dyn headwater_fec::BlockCodec>,
    pub blocks: Vec<Option<Box<BlockState>>>,
    /// What the sender promised of its blocks; empty when it did not.
    pub promised: Vec<ShortDigest>,
    /// What the blocks done turned out to be.
    pub digests: Vec<Digest>,
}

/// Why an entry of the FDT is not received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Name(#[from] crate::delivery::name::NameError),
    #[error("its content is encoded ('{0}'), which is not supported; send it without Content-Encoding")]
    ContentEncoding(String),
    #[error("its coding is not supported: {0}")]
    Coding(String),
    #[error("it has more blocks than a receiver can keep account of ({BLOCKS_MAX})")]
    TooManyBlocks,
    #[error("the segments of the file contradict one another")]
    Segments,
    #[error("its length differs from its transfer length")]
    Length,
}

/// What to tell the store of a new object, and of its file if that is new too.
pub struct Admitted {
    pub object: ObjectIndex,
    pub object_spec: ObjectSpec,
    pub new_file: Option<FileIndex>,
}

impl Catalogue {
    pub fn look_up(&self, toi: u128) -> Option<&Announced> {
        self.by_toi.get(&toi)
    }

    /// Objects, refused ones included, at most [`OBJECTS_MAX`].
    pub fn is_full(&self) -> bool {
        self.by_toi.len() >= OBJECTS_MAX
    }

    pub fn refuse(&mut self, toi: u128) {
        self.set(toi, Announced::Refused);
    }

    fn set(&mut self, toi: u128, announced: Announced) {
        if let Some(Announced::AwaitsFti(_)) = self.by_toi.insert(toi, announced) {
            self.awaiting_fti -= 1;
        }
    }

    /// Whether an object was announced whose coding is not known yet.
    pub fn is_awaiting_fti(&self) -> bool {
        self.awaiting_fti > 0
    }

    pub fn await_fti(&mut self, file: File) {
        self.awaiting_fti += 1;
        self.by_toi.insert(file.toi, Announced::AwaitsFti(Box::new(file)));
    }

    /// Whether an object was announced with these parameters.
    pub fn agrees(&self, toi: u128, fti: Option<Fti>) -> bool {
        match self.by_toi.get(&toi) {
            Some(Announced::Object(index)) => fti.is_none_or(|fti| fti == self.objects[index.0].fti),
            _ => true,
        }
    }

    /// Takes an entry of the FDT in.
    pub fn admit(&mut self, entry: &File, fti: Fti) -> Result<Admitted, Refusal> {
        if let Some(encoding) = entry.content_encoding.as_deref().filter(|name| !matches!(*name, "" | "null"))
        {
            return Err(Refusal::ContentEncoding(encoding.to_owned()));
        }
        let length = fti.transfer_length();
        if entry.content_length.is_some_and(|content| content != length) {
            return Err(Refusal::Length);
        }
        let codec = self.codecs.of(&fti).map_err(|error| Refusal::Coding(error.to_string()))?;
        let partition = partition_of(&fti).map_err(|error| Refusal::Coding(error.to_string()))?;
        let blocks = u64::from(partition.blocks());
        if self.blocks + blocks > BLOCKS_MAX {
            return Err(Refusal::TooManyBlocks);
        }
        let promised = promised(entry, partition)?;

        let (file, new_file, segment) = self.file_of(entry, length)?;
        let state = &mut self.files[file.0];
        let object = ObjectIndex(self.objects.len());
        let place = state.objects.get_mut(segment.index as usize).filter(|place| place.is_none());
        *place.ok_or(Refusal::Segments)? = Some(object);
        // The object itself was one of those left; its blocks are now.
        state.left = state.left - 1 + blocks;
        state.symbols += partition.symbols();
        self.blocks += blocks;
        let count = usize::try_from(blocks).expect("within BLOCKS_MAX");
        self.objects.push(ObjectState {
            file,
            fti,
            partition,
            codec: std::sync::Arc::clone(&codec),
            blocks: (0..count).map(|_| None).collect(),
            promised,
            digests: vec![[0; 32]; count],
        });
        self.set(entry.toi, Announced::Object(object));
        let object_spec = ObjectSpec { file, offset: segment.offset, partition, codec };
        Ok(Admitted { object, object_spec, new_file: new_file.then_some(file) })
    }

    /// The file of an entry: a new one, or the one whose other segments were announced before.
    fn file_of(&mut self, entry: &File, length: u64) -> Result<(FileIndex, bool, Segment), Refusal> {
        let whole = || Segment {
            index: 0,
            count: 1,
            offset: 0,
            file: entry.content_location.clone(),
            file_length: length,
        };
        let segment = entry.headwater.segment.clone().unwrap_or_else(whole);
        let end = segment.offset.checked_add(length);
        let count = segment.count as usize;
        if end.is_none_or(|end| end > segment.file_length) || segment.index >= segment.count {
            return Err(Refusal::Segments);
        }
        let path = RelativePath::from_content_location(&segment.file)?;
        let key = (path.clone(), segment.file_length, segment.count, entry.headwater.digest);
        if count > 1
            && let Some(file) = self.segmented.get(&key)
        {
            let refused = self.files[file.0].outcome == Some(FileOutcome::Refused);
            return if refused { Err(Refusal::Segments) } else { Ok((*file, false, segment)) };
        }
        if self.places + count > OBJECTS_MAX {
            return Err(Refusal::TooManyBlocks);
        }
        self.places += count;
        let file = FileIndex(self.files.len());
        self.files.push(FileState {
            spec: FileSpec {
                path,
                bytes: segment.file_length,
                mode: entry.headwater.mode,
                md5: entry.content_md5.filter(|_| count == 1),
            },
            digest: entry.headwater.digest,
            objects: vec![None; count],
            left: count as u64,
            symbols: 0,
            symbols_held: 0,
            outcome: None,
        });
        if count > 1 {
            self.segmented.insert(key, file);
        }
        Ok((file, true, segment))
    }

    /// Gives a file up that was admitted just now: its other segments will be refused.
    pub fn withdraw(&mut self, file: FileIndex) {
        self.files[file.0].outcome = Some(FileOutcome::Refused);
    }

    /// Digests of all blocks of a file in order; complete once nothing is left of it.
    pub fn block_digests(&self, file: FileIndex) -> impl Iterator<Item = &Digest> {
        let objects = self.files[file.0].objects.iter().flatten();
        objects.flat_map(|object| self.objects[object.0].digests.iter())
    }
}

fn promised(entry: &File, partition: Partition) -> Result<Vec<ShortDigest>, Refusal> {
    let promised = &entry.headwater.block_digests;
    if promised.is_empty() || promised.len() == partition.blocks() as usize {
        Ok(promised.clone())
    } else {
        Err(Refusal::Coding("as many digests as blocks are needed".to_owned()))
    }
}
