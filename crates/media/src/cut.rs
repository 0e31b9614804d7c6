//! Received parts of a buffer to the best whole rung.

use std::collections::BTreeMap;
use std::ops::Range;

use headwater_fec::{Parameters, Repair, codec};

use crate::index::{Description, DescriptionError, Index, IndexError};
use crate::layout::{Block, Layout, Protection};

/// Longest buffer in bytes, if the length of a buffer is not known.
const BUFFER_BYTES_MAX: usize = 64 << 20;

/// Buffer as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedBuffer<'a> {
    /// Length of the whole buffer, if known.
    pub length: Option<usize>,
    /// Bytes from the beginning to the first hole.
    pub prefix: &'a [u8],
    /// Offsets and bytes beyond, ascending.
    pub pieces: Vec<(usize, &'a [u8])>,
}

/// Failure to cut a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// The header is lost, and cannot be repaired.
    #[error("the header of the buffer is lost")]
    Lost,
    /// The header is wrong.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The tracks do not fit the buffer.
    #[error("the tracks of the buffer have {claimed} bytes, and the buffer {length}")]
    Lengths {
        /// Bytes that the header claims.
        claimed: u64,
        /// Bytes of the buffer.
        length: u64,
    },
    /// The description is wrong.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The description has another number of rungs than the header.
    #[error("the description has another number of rungs than the header")]
    Rungs,
}

/// Playable part of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Header.
    pub index: Index,
    /// Description of the tracks; `None` if no buffer of this run had a whole description yet.
    pub description: Option<Description>,
    /// Audio fragments; empty if the audio is not whole, or there is none.
    pub audio: Vec<u8>,
    /// Number and fragments of the highest whole rung, if any rung is whole.
    pub rung: Option<(usize, Vec<u8>)>,
    /// Symbols that were repaired.
    pub repaired: usize,
}

/// Cuts the buffers of a session, in order.
///
/// Memory: the description of the last buffer, and during a cut at most three times the received bytes.
#[derive(Clone, Debug, Default)]
pub struct Cutter {
    /// Repair symbols of the last buffer, by which a lost header is repaired.
    protection: Protection,
    described: Option<Described>,
}

/// Last whole description.
#[derive(Clone, Debug)]
struct Described {
    run: u32,
    deflated: Vec<u8>,
    description: Description,
}

impl Cutter {
    /// Returns the playable part of a buffer.
    ///
    /// # Errors
    /// If the buffer is no video, forged, or its header is lost.
    pub fn cut(&mut self, received: &ReceivedBuffer<'_>) -> Result<Cut, CutError> {
        let index = self.index(received)?;
        let length = received.length.unwrap_or(BUFFER_BYTES_MAX).min(BUFFER_BYTES_MAX) as u64;
        let claimed = index.lengths.iter().map(|length| u64::from(*length)).sum();
        let too_long = |claimed| CutError::Lengths { claimed, length };
        let ranges = index.ranges().filter(|_| claimed <= length).ok_or_else(|| too_long(claimed))?;
        let ends: Vec<usize> = ranges[2..].iter().map(|range| range.end).collect();
        let layout = Layout::new(index.protection, &ends);
        if layout.bytes as u64 > length {
            return Err(too_long(layout.bytes as u64));
        }
        let mut reader = Reader::new(received, &layout);
        self.describe(&index, reader.read(&ranges[0]))?;
        self.protection = index.protection;
        let audio = reader.read(&ranges[1]).unwrap_or_default();
        let mut rung = None;
        for (number, range) in ranges[2..].iter().enumerate().rev().filter(|(_, range)| !range.is_empty()) {
            rung = reader.read(range).map(|bytes| (number, bytes));
            if rung.is_some() {
                break;
            }
        }
        let described = self.described.as_ref().filter(|described| described.run == index.run);
        let description = described.map(|described| described.description.clone());
        Ok(Cut { description, audio, rung, repaired: reader.count, index })
    }

    /// Returns the header, repaired if necessary.
    fn index(&self, received: &ReceivedBuffer<'_>) -> Result<Index, CutError> {
        let is_whole = received.length == Some(received.prefix.len());
        if is_whole || !received.prefix.is_empty() {
            match Index::parse(received.prefix) {
                Err(IndexError::Short) if is_whole => return Err(IndexError::Magic.into()),
                Err(IndexError::Short) => {}
                parsed => return Ok(parsed?),
            }
        }
        if self.protection.percent == 0 {
            return Err(CutError::Lost);
        }
        let k = usize::from(self.protection.first_block);
        let block = Block { first: 0, k, at: 0, m: self.protection.repairs(k) };
        let symbol = usize::from(self.protection.symbol_bytes);
        let layout = Layout { symbol, blocks: vec![block], bytes: (k + block.m) * symbol };
        let mut reader = Reader::new(received, &layout);
        let index = reader.block(0).and_then(|data| Index::parse(data).ok()).ok_or(CutError::Lost)?;
        // Another number of symbols in this block would have given other bytes.
        let first = index.ranges().map(|ranges| ranges[2].end.div_ceil(symbol));
        let is_same = index.protection == self.protection && first.is_some_and(|first| first <= k);
        if is_same { Ok(index) } else { Err(CutError::Lost) }
    }

    /// Keeps the description of a buffer, if whole.
    fn describe(&mut self, index: &Index, deflated: Option<Vec<u8>>) -> Result<(), CutError> {
        let Some(deflated) = deflated else { return Ok(()) };
        let is_known = |known: &Described| known.run == index.run && known.deflated == deflated;
        if self.described.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let description = Description::parse(&deflated)?;
        if description.rungs.len() != index.rungs() {
            return Err(CutError::Rungs);
        }
        self.described = Some(Described { run: index.run, deflated, description });
        Ok(())
    }
}

/// Reads the data of a buffer, and repairs blocks on demand.
struct Reader<'a> {
    received: &'a ReceivedBuffer<'a>,
    layout: &'a Layout,
    /// Blocks that were tried to repair.
    blocks: BTreeMap<usize, Option<Vec<u8>>>,
    /// Repaired symbols.
    count: usize,
}

impl<'a> Reader<'a> {
    const fn new(received: &'a ReceivedBuffer<'a>, layout: &'a Layout) -> Self {
        Self { received, layout, blocks: BTreeMap::new(), count: 0 }
    }

    /// Returns a range of the data, if received or repaired.
    fn read(&mut self, data: &Range<usize>) -> Option<Vec<u8>> {
        if data.is_empty() {
            return Some(Vec::new());
        }
        let layout = self.layout;
        if layout.blocks.is_empty() {
            return self.received.get(data.clone()).map(<[u8]>::to_vec);
        }
        // The parts are looked at before memory is taken for the whole.
        let mut parts = Vec::new();
        for number in layout.blocks_of(data) {
            let block = layout.blocks[number];
            let (from, to) = (block.first * layout.symbol, (block.first + block.k) * layout.symbol);
            let part = data.start.max(from) - from..data.end.min(to) - from;
            let at = block.at * layout.symbol;
            let plain = self.received.get(at + part.start..at + part.end);
            if plain.is_none() {
                self.block(number)?;
            }
            parts.push((number, part, plain));
        }
        let mut bytes = Vec::with_capacity(data.len());
        for (number, part, plain) in parts {
            bytes.extend_from_slice(match plain {
                Some(plain) => plain,
                None => self.block(number)?.get(part)?,
            });
        }
        Some(bytes)
    }

    /// Returns the source symbols of a block with losses, if enough symbols came.
    fn block(&mut self, number: usize) -> Option<&[u8]> {
        if !self.blocks.contains_key(&number) {
            let repaired = self.repair(number);
            self.count += repaired.as_ref().map_or(0, |(_, missing)| *missing);
            self.blocks.insert(number, repaired.map(|(bytes, _)| bytes));
        }
        self.blocks.get(&number)?.as_deref()
    }

    fn repair(&self, number: usize) -> Option<(Vec<u8>, usize)> {
        let block = *self.layout.blocks.get(number)?;
        let (symbol, at) = (self.layout.symbol, block.at);
        let received = |place: usize| self.received.get((at + place) * symbol..(at + place + 1) * symbol);
        let missing: Vec<usize> = (0..block.k).filter(|place| received(*place).is_none()).collect();
        let esi = |place: usize| u32::try_from(place).ok();
        let repair = |place: usize| Some(Repair { esi: esi(place)?, data: received(place)? });
        let repairs: Vec<_> = (block.k..block.k + block.m).filter_map(repair).collect();
        if missing.len() > repairs.len() {
            return None;
        }
        let mut bytes = vec![0; block.k * symbol];
        for place in 0..block.k {
            if let Some(data) = received(place) {
                bytes[place * symbol..(place + 1) * symbol].copy_from_slice(data);
            }
        }
        let (k, n) = (esi(block.k)?, esi(block.k + block.m)?);
        let codec = codec(Parameters::reed_solomon(u16::try_from(symbol).ok()?, k, n)).ok()?;
        let absent: Vec<u32> = missing.iter().filter_map(|place| esi(*place)).collect();
        codec.decode(k, &mut bytes, &absent, &repairs).ok()?;
        Some((bytes, missing.len()))
    }
}

impl<'a> ReceivedBuffer<'a> {
    /// Returns a range of the buffer, if received.
    fn get(&self, range: Range<usize>) -> Option<&'a [u8]> {
        if range.end <= self.prefix.len() {
            return self.prefix.get(range);
        }
        let behind = self.pieces.partition_point(|(offset, _)| *offset <= range.start);
        let (offset, bytes) = self.pieces.get(behind.checked_sub(1)?)?;
        bytes.get(range.start - offset..range.end - offset)
    }
}
