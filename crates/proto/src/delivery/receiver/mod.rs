//! The receiving end: datagrams in, symbols to their places, whole and verified files out.

mod block;
mod catalogue;
mod pending;
mod report;

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use headwater_wire::alc;
use headwater_wire::fdt::{FdtError, File, Instance};
use headwater_wire::{Fti, PayloadId};

use self::block::{Block, BlockState, Slots, Worth};
use self::catalogue::{Admitted, Announced, Catalogue, FileOutcome, Refusal};
use self::pending::{Pending, PendingPacket};
use super::digest::{file_digest, short};
use super::fdt::{Assembly, Progress};
use super::store::{
    BlockJob, BlockVerdict, FileIndex, HeldBlock, ObjectIndex, Store, StoreError, StoreReport, StoredRepair,
};
use crate::control::{Arrival, Membership, ReceiverControl, Reception};
use crate::machine::{ChannelId, Datagram, Input, Machine, Output};
use crate::time::{Duration, Instant};

pub use self::catalogue::{BLOCKS_MAX, SYMBOLS_MAX};
pub use self::report::{Drops, FileProgress, ReceiverEvent, ReceiverStats};

/// Bytes of packets kept while their objects are unknown, by default.
pub const PENDING_BYTES: usize = 16 << 20;
/// FDT instances put together at the same time.
const ASSEMBLIES_MAX: usize = 2;
/// Versions of FLUTE that are read: RFC 3926 and RFC 6726.
const FDT_VERSIONS: core::ops::RangeInclusive<u8> = 1..=2;
/// FDT instances remembered as known.
const INSTANCES_MAX: usize = 16;
/// A block that was whole and wrong so often will never be right: the promise or the sender is wrong.
const STRIKES_MAX: u8 = 8;
/// A closed session ends when nothing was heard for this long.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Configuration of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    tsi: Option<u64>,
    source: Option<IpAddr>,
    pending_bytes: usize,
}

impl Default for ReceiverConfig {
    /// The first session heard, from anyone; 16 MiB for packets that come before the FDT.
    fn default() -> Self {
        Self { tsi: None, source: None, pending_bytes: PENDING_BYTES }
    }
}

impl ReceiverConfig {
    /// Only the session with this identifier. Default: the first one heard.
    #[must_use]
    pub fn with_tsi(mut self, tsi: Option<u64>) -> Self {
        self.tsi = tsi;
        self
    }

    /// Only from this address. Default: whoever sends the session first.
    #[must_use]
    pub fn with_source(mut self, source: Option<IpAddr>) -> Self {
        self.source = source;
        self
    }

    /// Most bytes kept of packets that come before the FDT describes their object.
    #[must_use]
    pub fn with_pending_bytes(mut self, bytes: usize) -> Self {
        self.pending_bytes = bytes;
        self
    }
}

/// The receiving end of a session.
///
/// Memory, beside the store: 64 bytes per block (at most [`BLOCKS_MAX`]), some 100 more and one bit per source symbol
/// (at most [`SYMBOLS_MAX`]) for each block under way, 16 bytes per repair symbol held (8, and spare room), some 500
/// and the name per object (at most [`super::OBJECTS_MAX`], all names at most [`super::FDT_BYTES_MAX`]),
/// [`PENDING_BYTES`], and two FDTs being put together.
#[derive(Debug)]
pub struct Receiver<C, S> {
    config: ReceiverConfig,
    control: C,
    store: S,
    session: Option<(IpAddr, u64)>,
    assemblies: VecDeque<Assembly>,
    instances: VecDeque<u32>,
    catalogue: Catalogue,
    pending: Pending,
    /// Blocks of files under way that need symbols.
    open_blocks: u64,
    /// Files whose fate is open.
    open_files: usize,
    refused: usize,
    /// Whether there were more objects than a receiver takes.
    overflowed: bool,
    /// What the store has not reported yet.
    jobs: usize,
    holding: bool,
    complete: bool,
    /// Whether the sender was heard to close the session. It counts once nothing more is heard: a packet that is
    /// corrupt or forged does not end a session that goes on.
    closed: bool,
    last_heard: Instant,
    ended: bool,
    outputs: VecDeque<Output<ReceiverEvent>>,
    stats: ReceiverStats,
}

impl<C: ReceiverControl, S: Store> Receiver<C, S> {
    /// A receiver that begins to listen at `now`.
    pub fn new(config: ReceiverConfig, mut control: C, store: S, now: Instant) -> Self {
        control.start(now);
        let mut receiver = Self {
            config,
            control,
            store,
            session: None,
            assemblies: VecDeque::new(),
            instances: VecDeque::new(),
            catalogue: Catalogue::default(),
            pending: Pending::new(config.pending_bytes),
            open_blocks: 0,
            open_files: 0,
            refused: 0,
            overflowed: false,
            jobs: 0,
            holding: true,
            complete: false,
            closed: false,
            last_heard: now,
            ended: false,
            outputs: VecDeque::new(),
            stats: ReceiverStats { last_progress: now, ..ReceiverStats::default() },
        };
        receiver.collect_memberships();
        receiver
    }

    /// What was received and what was dropped, and why.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// What the congestion control has measured.
    pub fn reception(&self) -> Reception {
        self.control.reception()
    }

    /// Whether the session ended: all there is to receive was received, the sender is gone, or the store failed.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The files announced so far, by their index.
    pub fn files(&self) -> impl Iterator<Item = FileProgress<'_>> {
        self.catalogue.files.iter().map(|file| FileProgress {
            path: &file.spec.path,
            bytes: file.spec.bytes,
            symbols: file.symbols,
            symbols_held: file.symbols_held,
            is_done: file.outcome == Some(FileOutcome::Done),
        })
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, for the driver to tend.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Ends the receiver and gives its store back, with all that it holds.
    pub fn into_store(self) -> S {
        self.store
    }

    fn on_datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        self.stats.packets += 1;
        self.stats.bytes += datagram.payload.len() as u64;
        let Ok((header, payload)) = alc::parse(datagram.payload) else {
            self.stats.dropped.malformed += 1;
            return;
        };
        if !self.is_ours(datagram.source, header.tsi) {
            self.stats.dropped.foreign += 1;
            return;
        }
        let channel = datagram.channel.unwrap_or(ChannelId::BASE);
        let bytes = datagram.payload.len();
        self.control.arrived(now, &Arrival { channel, cci: &header.cci, ecn: datagram.ecn, bytes });
        self.closed |= header.close_session;
        self.last_heard = now;
        match (header.toi, header.payload_id) {
            (Some(0), Some(id)) => self.on_fdt(now, &header, id, payload),
            (Some(toi), Some(id)) => self.on_symbol(now, toi, &header, id, payload),
            _ => {}
        }
    }

    /// Whether a packet is of the session; the first one heard decides which that is.
    fn is_ours(&mut self, source: SocketAddr, tsi: u64) -> bool {
        if let Some(session) = self.session {
            return session == (source.ip(), tsi);
        }
        let ours = self.config.tsi.is_none_or(|wanted| wanted == tsi)
            && self.config.source.is_none_or(|wanted| wanted == source.ip());
        if ours {
            self.session = Some((source.ip(), tsi));
            self.event(ReceiverEvent::SessionFound { tsi, source });
        }
        ours
    }

    fn on_fdt(&mut self, now: Instant, header: &alc::Repr, id: PayloadId, payload: &[u8]) {
        let known = header.extensions.fdt.filter(|fdt| FDT_VERSIONS.contains(&fdt.version));
        let (Some(extension), Some(fti)) = (known, header.extensions.fti) else {
            self.stats.dropped.bad_fdt += 1;
            return;
        };
        self.stats.fdt_packets += 1;
        if self.instances.contains(&extension.instance_id) {
            return;
        }
        let Some(index) = self.assembly(extension.instance_id, fti, header) else {
            self.stats.dropped.bad_fdt += 1;
            return;
        };
        match self.assemblies[index].put(id, payload) {
            Progress::Useless => {}
            Progress::Needed => self.stats.last_progress = now,
            Progress::Whole(xml) => {
                self.assemblies.remove(index);
                match Instance::parse(&xml) {
                    Ok(instance) => {
                        self.stats.last_progress = now;
                        self.remember(extension.instance_id);
                        self.on_instance(now, &instance);
                    }
                    // Not remembered: a corrupt symbol may have spoiled it, and it will come again.
                    Err(_) => self.stats.dropped.bad_fdt += 1,
                }
            }
            Progress::Broken => {
                self.assemblies.remove(index);
                self.stats.dropped.bad_fdt += 1;
            }
        }
    }

    /// The assembly of an instance, begun if there is none; the oldest one makes room.
    fn assembly(&mut self, instance_id: u32, fti: Fti, header: &alc::Repr) -> Option<usize> {
        if let Some(index) = self.assemblies.iter().position(|one| one.is_of(instance_id, &fti)) {
            return Some(index);
        }
        let assembly = Assembly::new(instance_id, fti, header.extensions.content_encoding)?;
        if self.assemblies.len() == ASSEMBLIES_MAX {
            self.assemblies.pop_front();
        }
        self.assemblies.push_back(assembly);
        Some(self.assemblies.len() - 1)
    }

    fn remember(&mut self, instance_id: u32) {
        if self.instances.len() == INSTANCES_MAX {
            self.instances.pop_front();
        }
        self.instances.push_back(instance_id);
    }

    fn on_instance(&mut self, now: Instant, instance: &Instance) {
        for entry in &instance.files {
            let fti = instance.fti(entry);
            if !self.catalogue.agrees(entry, fti.clone().ok()) {
                self.stats.dropped.contradiction += 1;
                continue;
            }
            let tells_something = match self.catalogue.look_up(entry.toi) {
                None if self.catalogue.is_full() => {
                    self.refuse_beyond(entry);
                    false
                }
                None => true,
                Some(Announced::AwaitsFti(_)) => fti.is_ok(),
                Some(Announced::Object(_) | Announced::Refused) => false,
            };
            if tells_something
                && let Err(refusal) = self.announce(now, entry, instance.content_encoding(entry), fti)
            {
                self.refuse(entry, refusal.to_string());
            }
        }
        self.complete |= instance.complete;
        if self.complete {
            // Nothing more will be described.
            if !self.catalogue.is_awaiting_fti() {
                self.pending.clear();
            }
            for file in self.catalogue.with_holes() {
                self.refused += 1;
                let location = self.catalogue.files[file.0].spec.path.to_string();
                let reason = "not all of its segments are described".to_owned();
                self.event(ReceiverEvent::FileRefused { location, reason });
                self.end_file(file, FileOutcome::Refused);
            }
        }
    }

    /// Refuses an entry beyond those that are kept account of: told once, counted always.
    fn refuse_beyond(&mut self, entry: &File) {
        self.stats.dropped.refused += 1;
        if !core::mem::replace(&mut self.overflowed, true) {
            self.refused += 1;
            let location = entry.content_location.clone();
            let reason = Refusal::TooManyObjects.to_string();
            self.event(ReceiverEvent::FileRefused { location, reason });
        }
    }

    /// Takes in an entry that is new, or that tells the coding of one that is not.
    fn announce(
        &mut self,
        now: Instant,
        entry: &File,
        content_encoding: Option<&str>,
        fti: Result<Fti, FdtError>,
    ) -> Result<(), Refusal> {
        self.catalogue.take_names(entry)?;
        if let Some(encoding) = content_encoding {
            return Err(Refusal::ContentEncoding(encoding.to_owned()));
        }
        match (fti, self.pending.fti(entry.toi)) {
            (Ok(fti), _) | (Err(FdtError::Missing(_)), Some(fti)) => self.admit(now, entry, fti),
            // EXT_FTI of its packets will tell.
            (Err(FdtError::Missing(_)), None) => self.catalogue.await_fti(entry),
            (Err(error), _) => Err(error.into()),
        }
    }

    fn admit(&mut self, now: Instant, entry: &File, fti: Fti) -> Result<(), Refusal> {
        let Admitted { object, object_spec, new_file } = self.catalogue.admit(entry, fti)?;
        let file = object_spec.file;
        if let Some(file) = new_file {
            let spec = &self.catalogue.files[file.0].spec;
            let event = ReceiverEvent::FileAnnounced { file, path: spec.path.clone(), bytes: spec.bytes };
            let held = match self.store.create_file(file, spec) {
                Ok(held) => held,
                Err(error) => {
                    self.catalogue.forget(object);
                    return Err(Refusal::Store(error));
                }
            };
            self.catalogue.files[file.0].slots = Slots::from(held.slots);
            self.open_files += 1;
            self.event(event);
            if held.is_whole {
                // Its blocks count as waiting until its objects end, below.
                self.open_blocks += u64::from(object_spec.partition.blocks());
                self.end_file(file, FileOutcome::Done);
            }
        }
        if !self.catalogue.is_open(file) {
            let _never_counted = self.catalogue.end_object(object);
            return Ok(());
        }
        self.open_blocks += u64::from(object_spec.partition.blocks());
        for held in self.store.create_object(object, &object_spec) {
            self.resume_block(object, &held);
        }
        self.finish_file_if_whole(file);
        // Packets that came before the FDT.
        for (packet, payload) in self.pending.take(entry.toi).iter() {
            self.put_packet(now, object, packet, payload);
        }
        Ok(())
    }

    /// Goes on with a block where an earlier session stopped.
    fn resume_block(&mut self, index: ObjectIndex, held: &HeldBlock) {
        let object = &mut self.catalogue.objects[index.0];
        let Some(spec) = object.partition.block(held.sbn) else { return };
        let block = BlockState::resumed(spec.symbols, object.codec.esi_end(spec.symbols), held);
        let (count, is_ready) = (u64::from(block.count()), block.is_ready());
        object.blocks[held.sbn as usize] = Block::Open(Box::new(block));
        self.catalogue.files[object.file.0].symbols_held += count;
        self.stats.resumed += count;
        if is_ready {
            self.finish_block(index, held.sbn);
        }
    }

    fn refuse(&mut self, entry: &File, reason: String) {
        self.refused += 1;
        self.catalogue.refuse(entry.toi);
        let _dropped = self.pending.take(entry.toi);
        self.event(ReceiverEvent::FileRefused { location: entry.content_location.clone(), reason });
    }

    fn on_symbol(&mut self, now: Instant, toi: u128, header: &alc::Repr, id: PayloadId, payload: &[u8]) {
        let fti = header.extensions.fti;
        if let Some(fti) = fti
            && let Some(Announced::AwaitsFti(entry)) = self.catalogue.look_up(toi)
        {
            let entry = entry.clone();
            if let Err(refusal) = self.admit(now, &entry, fti) {
                self.refuse(&entry, refusal.to_string());
            }
        }
        let packet = PendingPacket { toi, codepoint: header.codepoint, id };
        match self.catalogue.look_up(toi) {
            Some(Announced::Object(object)) => self.put_packet(now, *object, packet, payload),
            Some(Announced::Refused) => self.stats.dropped.refused += 1,
            Some(Announced::AwaitsFti(_)) | None => {
                let awaited = !self.complete || self.catalogue.is_awaiting_fti();
                if !awaited || !self.pending.push(packet, fti, payload) {
                    self.stats.dropped.unknown_object += 1;
                }
            }
        }
    }

    fn put_packet(&mut self, now: Instant, object: ObjectIndex, packet: PendingPacket, payload: &[u8]) {
        let state = &self.catalogue.objects[object.0];
        let outcome = self.catalogue.files[state.file.0].outcome;
        if outcome.is_some_and(|outcome| outcome != FileOutcome::Done) {
            self.stats.dropped.refused += 1;
        } else if state.fti.encoding_id().codepoint() == packet.codepoint {
            self.put_symbol(now, object, packet.id, payload);
        } else {
            self.stats.dropped.bad_symbol += 1;
        }
    }

    fn put_symbol(&mut self, now: Instant, index: ObjectIndex, id: PayloadId, payload: &[u8]) {
        let object = &mut self.catalogue.objects[index.0];
        let Some(spec) = object.partition.block(id.sbn) else {
            self.stats.dropped.bad_symbol += 1;
            return;
        };
        let size = usize::from(object.partition.symbol_size());
        // Only the object's last source symbol may travel without its padding.
        let bytes = usize::from(spec.symbol_bytes(id.esi, object.partition.symbol_size()));
        let length_fits = payload.len() == size || (bytes > 0 && payload.len() == bytes);
        if !length_fits || id.esi >= object.codec.esi_end(spec.symbols) {
            self.stats.dropped.bad_symbol += 1;
            return;
        }
        let Some(block) = object.blocks[id.sbn as usize].open(spec.symbols) else {
            self.stats.surplus += 1;
            return;
        };
        match block.worth(id.esi) {
            Worth::Duplicate => self.stats.duplicates += 1,
            Worth::Surplus => self.stats.surplus += 1,
            Worth::Needed => {
                let written = if id.esi < spec.symbols {
                    block.add_source(id.esi);
                    self.store.write_source(index, id.sbn, id.esi, payload)
                } else {
                    let slot = self.catalogue.files[object.file.0].slots.take();
                    let repair = StoredRepair { esi: id.esi, slot };
                    block.add_repair(repair);
                    self.store.write_repair(index, id.sbn, repair, payload)
                };
                let ready = block.is_ready();
                self.catalogue.files[object.file.0].symbols_held += 1;
                self.stats.useful += 1;
                self.stats.last_progress = now;
                match written {
                    Err(error) => self.fail(error),
                    Ok(()) if ready => self.finish_block(index, id.sbn),
                    Ok(()) => {}
                }
            }
        }
    }

    fn finish_block(&mut self, index: ObjectIndex, sbn: u32) {
        let Some(block) = self.catalogue.objects[index.0].blocks[sbn as usize].under_way() else { return };
        let (missing, repairs) = block.start_finishing();
        self.open_blocks -= 1;
        self.jobs += 1;
        self.store.finish_block(BlockJob { object: index, sbn, missing, repairs });
    }

    fn on_report(&mut self, now: Instant, report: StoreReport) {
        self.jobs = self.jobs.saturating_sub(1);
        self.stats.last_progress = now;
        match report {
            StoreReport::BlockDone { object, sbn, digest } => {
                let state = &mut self.catalogue.objects[object.0];
                state.digests[sbn as usize] = digest;
                if state.promised.get(sbn as usize).is_none_or(|promised| *promised == short(&digest)) {
                    self.block_done(object, sbn);
                } else {
                    self.block_mismatched(object, sbn);
                }
            }
            StoreReport::BlockNeedsMore { object, sbn } => self.block_needs_more(object, sbn),
            StoreReport::FileDone(file) => self.end_file(file, FileOutcome::Done),
            StoreReport::FileMismatch(file) => self.end_file(file, FileOutcome::Mismatch),
            StoreReport::Failed(error) => self.fail(error),
        }
    }

    fn block_done(&mut self, object: ObjectIndex, sbn: u32) {
        let file = self.catalogue.objects[object.0].file;
        if !self.catalogue.is_open(file) {
            return;
        }
        let state = &mut self.catalogue.files[file.0];
        state.slots.give_back(&self.catalogue.objects[object.0].blocks[sbn as usize].end());
        state.left -= 1;
        self.judge_block(object, sbn, BlockVerdict::Right);
        self.finish_file_if_whole(file);
    }

    fn block_needs_more(&mut self, object: ObjectIndex, sbn: u32) {
        let Some(block) = self.catalogue.objects[object.0].blocks[sbn as usize].under_way() else { return };
        block.needs_more();
        self.open_blocks += 1;
        if block.is_ready() {
            self.finish_block(object, sbn);
        }
    }

    fn block_mismatched(&mut self, object: ObjectIndex, sbn: u32) {
        self.stats.blocks_discarded += 1;
        let state = &mut self.catalogue.objects[object.0];
        let Some(block) = state.blocks[sbn as usize].under_way() else { return };
        let (repairs, dropped) = block.mismatched();
        let (strikes, file) = (block.strikes(), state.file);
        let verdict =
            if block.count() == 0 { BlockVerdict::AllDropped } else { BlockVerdict::RepairsDropped };
        let state = &mut self.catalogue.files[file.0];
        state.slots.give_back(&repairs);
        state.symbols_held -= u64::from(dropped);
        self.open_blocks += 1;
        self.judge_block(object, sbn, verdict);
        if strikes >= STRIKES_MAX {
            self.end_file(file, FileOutcome::Mismatch);
        }
    }

    fn judge_block(&mut self, object: ObjectIndex, sbn: u32, verdict: BlockVerdict) {
        if let Err(error) = self.store.judge_block(object, sbn, verdict) {
            self.fail(error);
        }
    }

    fn finish_file_if_whole(&mut self, index: FileIndex) {
        let file = &self.catalogue.files[index.0];
        if file.left > 0 {
            return;
        }
        let matches =
            file.spec.digest.is_none_or(|digest| digest == file_digest(self.catalogue.block_digests(index)));
        if matches {
            self.jobs += 1;
            self.store.finish_file(index);
        } else {
            self.end_file(index, FileOutcome::Mismatch);
        }
    }

    fn end_file(&mut self, file: FileIndex, outcome: FileOutcome) {
        if !self.catalogue.is_open(file) {
            return;
        }
        self.open_blocks -= self.catalogue.end_file(file, outcome);
        self.open_files -= 1;
        if outcome != FileOutcome::Done
            && let Err(error) = self.store.discard_file(file)
        {
            self.fail(error);
        }
        match outcome {
            FileOutcome::Done => {
                let digest = self.catalogue.files[file.0].spec.digest;
                self.event(ReceiverEvent::FileCompleted { file, digest });
            }
            FileOutcome::Mismatch => self.event(ReceiverEvent::FileMismatch { file }),
            // Told with the reason by whoever refused it.
            FileOutcome::Refused => {}
        }
    }

    fn fail(&mut self, error: StoreError) {
        if !self.ended {
            self.end(ReceiverEvent::StoreFailed(error));
        }
    }

    /// Holds channels while symbols are wanted, and says so when the session has ended.
    fn settle(&mut self, now: Instant) {
        let described = self.complete && !self.catalogue.is_awaiting_fti();
        if !self.ended {
            if described && self.open_files == 0 {
                self.end(ReceiverEvent::SessionCompleted { refused: self.refused });
            } else if self.close_deadline().is_some_and(|at| at <= now) {
                let all_done = self.open_files == 0
                    && !self.catalogue.files.is_empty()
                    && !self.catalogue.is_awaiting_fti();
                self.end(if all_done {
                    ReceiverEvent::SessionCompleted { refused: self.refused }
                } else {
                    ReceiverEvent::SessionClosed
                });
            }
        }
        let satisfied = described && self.open_blocks == 0;
        let wanted = !(self.ended || satisfied);
        if wanted != self.holding {
            self.holding = wanted;
            if wanted { self.control.start(now) } else { self.control.stop(now) }
        }
        self.collect_memberships();
    }

    /// When a session that was closed has ended, unless more is heard.
    fn close_deadline(&self) -> Option<Instant> {
        (self.closed && !self.ended && self.jobs == 0).then(|| self.last_heard + CLOSE_GRACE)
    }

    fn end(&mut self, event: ReceiverEvent) {
        self.ended = true;
        self.event(event);
    }

    fn event(&mut self, event: ReceiverEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    fn collect_memberships(&mut self) {
        while let Some(membership) = self.control.poll_membership() {
            self.outputs.push_back(match membership {
                Membership::Join(channel) => Output::Join(channel),
                Membership::Leave(channel) => Output::Leave(channel),
            });
        }
    }
}

impl<C: ReceiverControl, S: Store> Machine for Receiver<C, S> {
    type Event = ReceiverEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => self.control.timeout(now),
            Input::Datagram(datagram) if !self.ended => self.on_datagram(now, &datagram),
            Input::Datagram(_) => {}
        }
        while let Some(report) = self.store.poll_report() {
            self.on_report(now, report);
        }
        self.settle(now);
    }

    fn poll_output(&mut self, _now: Instant, _buffer: &mut [u8]) -> Option<Output<ReceiverEvent>> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.close_deadline().into_iter().chain(self.control.poll_timeout()).min()
    }
}
