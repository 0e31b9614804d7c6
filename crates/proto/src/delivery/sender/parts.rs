//! Order of the parts of a stream: a new part first, then a share for the parts that are kept for late
//! receivers.
//!
//! The sender sends one set of parts at a time: a new part alone until its first pass is over, then the parts
//! that have had their first pass for [`KEPT_SHARE`] of that time, then the next new part. Without a new
//! part, all parts take turns.

use core::ops::Range;
use std::collections::VecDeque;

use headwater_fec::BlockCodec;

use super::inventory::Name;
use super::{DeliverySender, End, Next, ObjectHeader};
use crate::control::{BlockName, Request, SenderControl};
use crate::delivery::carousel::CarouselBlock;
use crate::delivery::fdt::FdtTooLarge;
use crate::delivery::object::Digest;
use crate::delivery::plan::SessionPlan;
use crate::delivery::store::Source;
use crate::time::Instant;

/// Symbols of a first pass beyond the source symbols of the part, as a divisor: 6 %, so that receivers that
/// lose less need no later pass.
const FIRST_PASS_REPAIR: u64 = 16;
/// Symbols of kept parts after the first pass of a new part, as a divisor of the symbols of that part.
const KEPT_SHARE: u64 = 4;

/// Parts of a stream that are sent. Memory: some 80 bytes a part.
#[derive(Debug, Default)]
pub(super) struct StreamParts {
    parts: VecDeque<Part>,
    set: SentSet,
    /// Symbols left of the turn of a set; `None` for no end.
    left: Option<u64>,
    is_open: bool,
}

#[derive(Debug)]
struct Part {
    file: usize,
    /// End of its objects.
    objects_end: usize,
    blocks: Range<u32>,
    symbols: u64,
    /// Whether the first pass is over.
    is_sent: bool,
}

/// Parts that are being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SentSet {
    /// Nothing was announced yet.
    #[default]
    Nothing,
    /// The oldest part that has not had its first pass.
    New,
    /// All parts that have had their first pass.
    Kept,
}

impl StreamParts {
    /// Whether parts follow.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Number of source symbols of all parts.
    pub(super) fn symbols(&self) -> u64 {
        self.parts.iter().map(|part| part.symbols).sum()
    }

    /// Returns the oldest part that waits for its first pass and is among the `announced` objects.
    fn next_new(&self, announced: usize) -> Option<&Part> {
        self.parts.iter().find(|part| !part.is_sent).filter(|part| part.objects_end <= announced)
    }

    /// Counts a symbol; returns whether the turn of the set is over.
    fn count(&mut self) -> bool {
        let Some(left) = &mut self.left else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// Begins the next turn and returns the blocks of its set.
    fn begin(&mut self, announced: usize) -> Vec<Range<u32>> {
        let was_new = self.set == SentSet::New;
        if was_new
            && self.left == Some(0)
            && let Some(part) = self.parts.iter_mut().find(|part| !part.is_sent)
        {
            part.is_sent = true;
        }
        let kept = || self.parts.iter().filter(|part| part.is_sent);
        let new = self.next_new(announced);
        let share = kept().next_back().map_or(0, |last| last.symbols / KEPT_SHARE);
        let (set, left, blocks) = match new {
            // The part that was new has had its turn just now.
            Some(_) if was_new && share > 0 && kept().nth(1).is_some() => {
                (SentSet::Kept, Some(share), kept().map(|part| part.blocks.clone()).collect())
            }
            Some(part) => {
                let symbols = part.symbols + part.symbols / FIRST_PASS_REPAIR;
                (SentSet::New, Some(symbols), vec![part.blocks.clone()])
            }
            None => (SentSet::Kept, None, kept().map(|part| part.blocks.clone()).collect()),
        };
        (self.set, self.left) = (set, left);
        blocks
    }
}

impl<C: SenderControl, S: Source> DeliverySender<C, S> {
    /// Sends the planned files as the first parts of a stream, which [`DeliverySender::add_parts`] continues.
    /// Until the part that ends the stream, the session does not end by itself: the time or the passes of
    /// [`End`] count from then.
    #[must_use]
    pub fn with_stream(mut self, plan: &SessionPlan) -> Self {
        let mut parts = StreamParts { is_open: plan.is_open(), ..StreamParts::default() };
        self.extend_parts(&mut parts, plan, 0);
        self.parts = Some(Box::new(parts));
        self
    }

    /// Adds the parts of a stream that `plan` has beyond the parts known. The source must have the content of
    /// the parts; `digests` holds the digests of all blocks of the new objects.
    ///
    /// # Errors
    /// When the FDT cannot describe the parts.
    ///
    /// # Panics
    /// When the sender sends no stream, or `digests` does not have the shape of the new objects.
    pub fn add_parts(
        &mut self,
        now: Instant,
        plan: &SessionPlan,
        digests: &[Vec<Digest>],
    ) -> Result<(), FdtTooLarge> {
        let first = self.objects.len();
        assert_eq!(plan.objects().len(), first + digests.len(), "one list of digests for each new object");
        let first_file = plan.objects().get(first).map_or(plan.files().len(), |object| object.file);
        let first_block = self.blocks.len();
        let new = self.push_objects(plan, first);
        self.content.extend(&new);
        self.inventory.extend(plan, first, digests);
        self.fdt.add_parts(plan.entries_from(first, digests))?;
        self.fdt.set_complete(self.inventory.is_complete());
        self.extend_content(plan, first_file);
        let mut parts = self.parts.take().expect("a sender of a stream");
        self.extend_parts(&mut parts, plan, first_block);
        if parts.is_open && !plan.is_open() {
            parts.is_open = false;
            self.symbols_of_passes = 0;
            if let End::At(at) = &mut self.config.end {
                *at = now + at.since(Instant::ZERO);
            }
        }
        self.parts = Some(parts);
        Ok(())
    }

    /// Stops sending the oldest part of the stream, if its first pass is over. Returns its file. Receivers
    /// learn from the FDT that the part is gone.
    pub fn release_part(&mut self) -> Option<usize> {
        let parts = self.parts.as_mut()?;
        parts.parts.front().filter(|part| part.is_sent)?;
        let part = parts.parts.pop_front()?;
        self.fdt.release(part.objects_end);
        self.select_parts();
        Some(part.file)
    }

    /// Number of parts whose first pass is not over.
    pub fn unsent_parts(&self) -> usize {
        self.parts.as_ref().map_or(0, |parts| parts.parts.iter().filter(|part| !part.is_sent).count())
    }

    /// Returns the source, to add or remove content.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Whether parts of a stream follow.
    pub fn awaits_parts(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.is_open())
    }

    /// Adds object headers, blocks and orders of the plan's objects from `first` on; returns the new blocks.
    pub(super) fn push_objects(&mut self, plan: &SessionPlan, first: usize) -> Vec<CarouselBlock> {
        let mut new = Vec::new();
        for (index, object) in plan.objects().iter().enumerate().skip(first) {
            self.objects.push(ObjectHeader::new(object));
            for sbn in 0..object.partition.blocks() {
                let symbols = object.partition.block(sbn).expect("below the number of blocks").symbols;
                self.blocks.push((u32::try_from(index).expect("at most OBJECTS_MAX"), sbn));
                let block = carousel_block(&*object.codec, symbols, self.source.encoding_symbols(index, sbn));
                self.orders.push(&*object.codec, block.encoding_symbols, true);
                new.push(block);
            }
        }
        new
    }

    /// Returns the content that answers a request; without content, the FDT's first symbol.
    pub(super) fn content_for(&mut self, request: &Request) -> Next {
        let name = self.name_of(request);
        self.content.answer(request, name).map_or(Next::Description(0), Next::Symbol)
    }

    /// Returns the block that a request names, if the session has the block.
    fn name_of(&self, request: &Request) -> Name {
        let BlockName { toi, sbn, esi } = request.block?;
        // The TOIs count objects from 1.
        let number = self.blocks.binary_search(&(toi.get() - 1, sbn)).ok()?;
        Some((u32::try_from(number).ok()?, esi))
    }

    fn extend_parts(&mut self, parts: &mut StreamParts, plan: &SessionPlan, first_block: usize) {
        let known = parts.parts.back().map_or(0, |part| part.objects_end);
        let mut block = u32::try_from(first_block).expect("a session has below 2^32 blocks");
        for (index, object) in plan.objects().iter().enumerate().skip(known) {
            let (blocks, symbols) = (object.partition.blocks(), object.partition.symbols());
            match parts.parts.back_mut().filter(|part| part.file == object.file) {
                Some(part) => {
                    (part.objects_end, part.blocks.end) = (index + 1, block + blocks);
                    part.symbols += symbols;
                    part.is_sent &= part.symbols == 0;
                }
                None => parts.parts.push_back(Part {
                    file: object.file,
                    objects_end: index + 1,
                    blocks: block..block + blocks,
                    symbols,
                    // The part that ends the stream has nothing to send.
                    is_sent: symbols == 0,
                }),
            }
            block += blocks;
        }
    }

    /// Begins the turn of a new part if none is under way and the part is announced.
    pub(super) fn turn_parts(&mut self) {
        let announced = self.fdt.announced();
        let Some(parts) = &self.parts else { return };
        let is_idle = parts.left.is_none();
        if parts.set == SentSet::Nothing || (is_idle && parts.next_new(announced).is_some()) {
            self.select_parts();
        }
    }

    /// Counts a symbol of the parts.
    pub(super) fn count_part_symbol(&mut self) {
        if self.parts.as_mut().is_some_and(|parts| parts.count()) {
            self.select_parts();
        }
    }

    fn select_parts(&mut self) {
        let announced = self.fdt.announced();
        let Some(parts) = &mut self.parts else { return };
        let is_new_under_way = parts.set == SentSet::New && parts.left.is_some_and(|left| left > 0);
        if is_new_under_way {
            return;
        }
        let blocks = parts.begin(announced);
        self.content.select(|block| blocks.iter().any(|range| range.contains(&block)));
    }
}

/// Returns the block of k source symbols. `limit` is the number of encoding symbols that the source provides,
/// `None` for all symbols of the code.
pub(super) fn carousel_block(codec: &dyn BlockCodec, k: u32, limit: Option<u32>) -> CarouselBlock {
    let n = codec.encoding_symbols(k);
    CarouselBlock {
        symbols: k,
        encoding_symbols: limit.map_or(n, |limit| limit.clamp(k, n)),
        rateless: codec.is_rateless() && limit.is_none(),
    }
}
