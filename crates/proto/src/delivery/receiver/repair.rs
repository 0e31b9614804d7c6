//! Repair by bytes of whole files from a server: list of missing bytes, and symbols that a server returned.
//!
//! A server is not trusted. Only blocks with an announced digest are repaired. If a block with symbols of a
//! server does not match the digest, the block drops those symbols and its repair symbols, and the symbols
//! received by multicast stay. A single server of such symbols was wrong.

use headwater_wire::PayloadId;

use super::block::{Block, BlockState, Worth};
use super::catalogue::ObjectState;
use super::{DeliveryReceiver, ReceiverEvent};
use crate::control::ReceiverControl;
use crate::delivery::encoding::ContentCoding;
use crate::delivery::repair::RepairServers;
use crate::delivery::store::{FileIndex, ObjectIndex, Store};
use crate::time::Instant;

/// Longest gap of bytes that are not needed inside a range: the head of another request costs about as much
/// as a tenth of the gap, and a round trip costs more.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Needed bytes for each byte of a gap: gaps add at most 1/16 to the bytes of repair.
const NEEDED_PER_GAP: u64 = 16;
/// Longest range, in bytes: cancelled or stalled requests waste little.
const RANGE_BYTES_MAX: u64 = 1 << 20;

/// Range of a file's bytes with missing symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// The file.
    pub file: FileIndex,
    /// First byte, at the start of a symbol.
    pub start: u64,
    /// Length in bytes: whole symbols, unless the range ends at the end of the file.
    pub bytes: u64,
    /// Bytes of the file's symbols.
    pub symbol_bytes: u16,
}

impl MissingRange {
    fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// Position of a list of missing ranges: object and block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairPosition(usize, u32);

/// File at a repair server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairFile<'a> {
    /// Percent-encoded name.
    pub name: String,
    /// URI reference relative to the base URL, if the FDT gives another than the file's name.
    pub alternate: Option<&'a str>,
    /// Entity tag of the content, if the FDT gives a tag.
    pub etag: Option<&'a str>,
    /// Length in bytes, of encoded content if the content travels encoded.
    pub bytes: u64,
    /// Coding of the content.
    pub coding: Option<ContentCoding>,
}

/// Counters of symbols from repair servers, which are in no counter of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Bytes of content from servers.
    pub bytes: u64,
    /// Symbols that were needed.
    pub useful: u64,
    /// Symbols that were not: held, of a complete block, or without memory.
    pub unneeded: u64,
    /// Blocks that did not match the digest with symbols of a server.
    pub blocks_discarded: u64,
}

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Returns the servers that the session's FDT names. The FDT of an unsigned session may be forged.
    pub fn repair_servers(&self) -> Option<&RepairServers> {
        self.repair_servers.as_ref()
    }

    /// Returns the place of a file at repair servers.
    pub fn repair_file(&self, file: FileIndex) -> Option<RepairFile<'_>> {
        let state = self.catalogue.files.get(file.0)?;
        let (alternate, etag) = (state.location.alternate.as_deref(), state.location.etag.as_deref());
        let name = state.spec.path.to_content_location();
        let coding = state.spec.encoding.map(|encoding| encoding.coding);
        Some(RepairFile { name, alternate, etag, bytes: state.spec.bytes, coding })
    }

    /// Returns the counters of symbols from repair servers.
    pub fn repair_stats(&self) -> RepairStats {
        self.repair_stats
    }

    /// Keeps a closed session from ending while `awaits` is set: missing symbols may come from a server.
    pub fn await_repair(&mut self, awaits: bool) {
        self.awaits_repair = awaits;
    }

    /// Whether the sender closed the session and no packet followed.
    pub fn is_closed(&self, now: Instant) -> bool {
        self.front.listening.close_deadline().is_some_and(|at| at <= now)
    }

    /// Whether the store has blocks or files in work.
    pub fn has_jobs(&self) -> bool {
        self.jobs > 0
    }

    /// Returns about `most` ranges that complete blocks, from `position` on, and moves `position` behind the
    /// last range; all ranges of a block at once. An empty list ends the round. `is_wanted` selects files.
    pub fn missing_ranges(
        &self,
        position: &mut RepairPosition,
        most: usize,
        is_wanted: impl Fn(FileIndex) -> bool,
    ) -> Vec<MissingRange> {
        let mut ranges = Vec::new();
        while let Some(object) = self.catalogue.objects.get(position.0) {
            let is_open = self.is_repairable(object.file) && is_wanted(object.file);
            if is_open && object.is_verifiable(position.1) {
                if ranges.len() >= most {
                    return ranges;
                }
                add_ranges(object, position.1, &mut ranges);
            }
            position.1 += 1;
            if !is_open || position.1 as usize >= object.blocks.len() {
                *position = RepairPosition(position.0 + 1, 0);
            }
        }
        ranges
    }

    /// Number of missing bytes of a file, at most the length of the file.
    pub fn missing_bytes(&self, file: FileIndex) -> u64 {
        let Some(state) = self.catalogue.files.get(file.0).filter(|_| self.is_repairable(file)) else {
            return 0;
        };
        let size = state
            .objects
            .iter()
            .flatten()
            .next()
            .map_or(0, |object| self.catalogue.objects[object.0].partition.symbol_size());
        let symbols = state.symbols.saturating_sub(state.symbols_held);
        (symbols * u64::from(size)).min(state.spec.bytes)
    }

    /// Whether any file is in progress.
    pub fn has_repairable(&self) -> bool {
        self.open_files > 0 && !self.ended
    }

    fn is_repairable(&self, file: FileIndex) -> bool {
        let state = &self.catalogue.files[file.0];
        state.outcome.is_none() && !state.is_compared && !self.ended
    }

    /// Takes bytes of a file from a server with a number of the caller's choice, from `start` on: whole
    /// symbols, except at the end of the file.
    /// Returns the number of needed symbols. Symbols that no block needs are dropped.
    pub fn put_repaired(
        &mut self,
        now: Instant,
        (server, file): (u32, FileIndex),
        start: u64,
        bytes: &[u8],
    ) -> u64 {
        self.repair_stats.bytes += bytes.len() as u64;
        let (mut at, mut rest, mut needed) = (start, bytes, 0);
        while !rest.is_empty() && self.is_repairable(file) {
            let Some((object, sbn, esi, length)) = self.symbol_at(file, at) else { break };
            // A part of a symbol is useless.
            let Some((symbol, behind)) = rest.split_at_checked(length) else { break };
            let is_needed = self.put_repaired_symbol(now, server, (object, sbn, esi), symbol);
            let stats = &mut self.repair_stats;
            *(if is_needed { &mut stats.useful } else { &mut stats.unneeded }) += 1;
            needed += u64::from(is_needed);
            (at, rest) = (at + symbol.len() as u64, behind);
        }
        needed
    }

    /// Returns object, block, ESI and length of the source symbol that begins at a byte of a file.
    fn symbol_at(&self, file: FileIndex, at: u64) -> Option<(ObjectIndex, u32, u32, usize)> {
        let places = &self.catalogue.files[file.0].objects;
        let is_before = |place: &Option<ObjectIndex>| {
            place.is_none_or(|object| self.catalogue.objects[object.0].offset <= at)
        };
        let index = places.partition_point(is_before).checked_sub(1)?;
        let index = (*places.get(index)?)?;
        let object = &self.catalogue.objects[index.0];
        let size = object.partition.symbol_size();
        let within = at.checked_sub(object.offset).filter(|within| within.is_multiple_of(size.into()))?;
        let block = object.partition.block_with_symbol(within / u64::from(size))?;
        let esi = u32::try_from(within / u64::from(size) - block.first_symbol).ok()?;
        Some((index, block.sbn, esi, block.symbol_bytes(esi, size).into()))
    }

    fn put_repaired_symbol(
        &mut self,
        now: Instant,
        server: u32,
        (index, sbn, esi): (ObjectIndex, u32, u32),
        symbol: &[u8],
    ) -> bool {
        let object = &mut self.catalogue.objects[index.0];
        let id = PayloadId { sbn, esi };
        let Some(spec) = object.block_of(id, symbol.len()).filter(|_| object.is_verifiable(sbn)) else {
            return false;
        };
        let block = &mut object.blocks[sbn as usize];
        if matches!(block, Block::Unseen) {
            if !self.room.take((index, sbn), BlockState::bytes_of_new(spec.symbols)) {
                return false;
            }
            let first_try = object.codec.symbols_to_try(spec.symbols);
            *block = Block::Open(Box::new(BlockState::new(spec.symbols).with_first_try(first_try)));
        }
        let Some(block) = block.under_way().filter(|block| block.worth(esi) == Worth::Needed) else {
            return false;
        };
        if !self.room.take((index, sbn), block.bytes_for_repaired()) {
            return false;
        }
        block.add_repaired(esi, server);
        let is_ready = block.is_ready();
        let written = self.store.write_source(index, sbn, esi, symbol);
        self.count_symbol(now, (index, sbn), written, is_ready);
        true
    }

    /// Reports a block that did not match the digest with symbols of a server, or of several.
    pub(super) fn on_repair_mismatch(&mut self, file: FileIndex, server: Option<u32>) {
        self.repair_stats.blocks_discarded += 1;
        self.front.event(ReceiverEvent::RepairMismatch { file, server });
    }
}

impl ObjectState {
    /// Whether the digest of a block is known, against which symbols of a server are verified.
    fn is_verifiable(&self, sbn: u32) -> bool {
        (sbn as usize) < self.promised.len()
    }
}

/// Adds the ranges that complete a block.
fn add_ranges(object: &ObjectState, sbn: u32, ranges: &mut Vec<MissingRange>) {
    let Some(spec) = object.partition.block(sbn) else { return };
    let (missing, wanted) = match &object.blocks[sbn as usize] {
        Block::Unseen => ((0..spec.symbols).collect(), spec.symbols),
        Block::Open(state) if !state.is_finishing() => (state.missing_source(), state.symbols_wanted()),
        Block::Open(_) | Block::Ended => return,
    };
    let size = u64::from(object.partition.symbol_size());
    let first = object.offset + spec.offset;
    let (mut needed, mut gaps) = (0, 0);
    for esi in densest(&missing, wanted) {
        let start = first + u64::from(*esi) * size;
        let bytes = u64::from(spec.symbol_bytes(*esi, object.partition.symbol_size()));
        needed += bytes;
        if let Some(last) = ranges.last_mut().filter(|last| last.file == object.file && last.end() <= start) {
            let gap = start - last.end();
            let is_short = gap <= GAP_BYTES_MAX && (gaps + gap) * NEEDED_PER_GAP <= needed;
            let total = last.bytes + gap + bytes;
            if is_short && total <= RANGE_BYTES_MAX {
                gaps += gap;
                last.bytes = total;
                continue;
            }
        }
        let symbol_bytes = object.partition.symbol_size();
        ranges.push(MissingRange { file: object.file, start, bytes, symbol_bytes });
    }
}

/// Returns the `count` members of an ascending list that lie closest together: any source symbols complete a
/// coded block.
fn densest(list: &[u32], count: u32) -> &[u32] {
    let count = count as usize;
    if count == 0 || count >= list.len() {
        return list;
    }
    let spread = |first: &usize| list[first + count - 1] - list[*first];
    let first = (0..=list.len() - count).min_by_key(spread).unwrap_or_default();
    &list[first..first + count]
}
