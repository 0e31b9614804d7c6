//! The receiving end: datagrams in, symbols to their places, whole and verified files out.

mod block;
mod catalogue;
mod pending;
mod report;

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, VecDeque};

use headwater_wire::alc;
use headwater_wire::fdt::{File, Instance};
use headwater_wire::{Fti, PayloadId};

use self::block::{BlockState, Slots, Worth};
use self::catalogue::{Admitted, Announced, Catalogue, FileOutcome};
use self::pending::{Pending, PendingPacket};
use super::digest::{file_digest, short};
use super::fdt::{Assembly, Progress};
use super::store::{BlockJob, FileIndex, ObjectIndex, Store, StoreError, StoreReport, StoredRepair};
use crate::control::{Arrival, Membership, ReceiverControl, Reception};
use crate::machine::{ChannelId, Datagram, Input, Machine, Output};
use crate::time::{Duration, Instant};

pub use self::catalogue::BLOCKS_MAX;
pub use self::report::{Drops, FileProgress, ReceiverEvent, ReceiverStats};

/// Bytes of packets kept while their objects are unknown, by default.
pub const PENDING_BYTES: usize = 16 << 20;
/// FDT instances put together at the same time.
const ASSEMBLIES_MAX: usize = 2;
/// FDT instances remembered as known.
const INSTANCES_MAX: usize = 16;
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
/// Memory, beside the store: one bit per source symbol of the blocks under way, 8 bytes per repair symbol held, 50
/// bytes per block (at most [`BLOCKS_MAX`]), [`PENDING_BYTES`], and the FDT.
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
    /// Slots for repair symbols, by symbol size.
    slots: BTreeMap<u16, Slots>,
    /// Blocks of files under way that need symbols.
    open_blocks: u64,
    /// Files whose fate is open.
    open_files: usize,
    refused: usize,
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
            slots: BTreeMap::new(),
            open_blocks: 0,
            open_files: 0,
            refused: 0,
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
        let (Some(extension), Some(fti)) = (header.extensions.fdt, header.extensions.fti) else {
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
            let fti = instance.fti(entry).ok();
            if !self.catalogue.agrees(entry.toi, fti) {
                self.stats.dropped.contradiction += 1;
            } else if self.catalogue.look_up(entry.toi).is_none() && !self.catalogue.is_full() {
                match fti {
                    Some(fti) => self.admit(entry, fti),
                    None => self.catalogue.await_fti(entry.clone()),
                }
            }
        }
        self.complete |= instance.complete;
        self.replay(now);
    }

    fn admit(&mut self, entry: &File, fti: Fti) {
        let admitted = match self.catalogue.admit(entry, fti) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.refuse(entry, refusal.to_string());
                return;
            }
        };
        let Admitted { object, object_spec, new_file } = admitted;
        let file = object_spec.file;
        if let Some(file) = new_file {
            let spec = &self.catalogue.files[file.0].spec;
            let event = ReceiverEvent::FileAnnounced { file, path: spec.path.clone(), bytes: spec.bytes };
            if let Err(error) = self.store.create_file(file, spec) {
                self.catalogue.withdraw(file);
                self.refuse(entry, error.to_string());
                return;
            }
            self.open_files += 1;
            self.event(event);
        }
        self.open_blocks += u64::from(object_spec.partition.blocks());
        self.store.create_object(object, &object_spec);
        self.finish_file_if_whole(file);
    }

    fn refuse(&mut self, entry: &File, reason: String) {
        self.refused += 1;
        self.catalogue.refuse(entry.toi);
        self.event(ReceiverEvent::FileRefused { location: entry.content_location.clone(), reason });
    }

    /// Gives packets that came before the FDT another chance.
    fn replay(&mut self, now: Instant) {
        if self.pending.is_empty() {
            return;
        }
        let pending = self.pending.take();
        for (packet, payload) in pending.iter() {
            self.on_known_or_pending(now, packet, payload);
        }
    }

    fn on_symbol(&mut self, now: Instant, toi: u128, header: &alc::Repr, id: PayloadId, payload: &[u8]) {
        if let Some(fti) = header.extensions.fti
            && let Some(Announced::AwaitsFti(entry)) = self.catalogue.look_up(toi)
        {
            let entry = entry.clone();
            self.admit(&entry, fti);
        }
        self.on_known_or_pending(now, PendingPacket { toi, codepoint: header.codepoint, id }, payload);
    }

    fn on_known_or_pending(&mut self, now: Instant, packet: PendingPacket, payload: &[u8]) {
        match self.catalogue.look_up(packet.toi) {
            Some(Announced::Object(object)) => {
                let object = *object;
                if self.catalogue.objects[object.0].fti.encoding_id().codepoint() == packet.codepoint {
                    self.put_symbol(now, object, packet.id, payload);
                } else {
                    self.stats.dropped.bad_symbol += 1;
                }
            }
            Some(Announced::Refused) => self.stats.dropped.refused += 1,
            Some(Announced::AwaitsFti(_)) | None => {
                if !self.pending.push(packet, payload) {
                    self.stats.dropped.unknown_object += 1;
                }
            }
        }
    }

    fn put_symbol(&mut self, now: Instant, index: ObjectIndex, id: PayloadId, payload: &[u8]) {
        let object = &mut self.catalogue.objects[index.0];
        let Some(spec) = object.partition.block(id.sbn) else {
            self.stats.dropped.bad_symbol += 1;
            return;
        };
        let size = usize::from(object.partition.symbol_size());
        let rest = spec.bytes.saturating_sub(u64::from(id.esi) * size as u64);
        // Only the object's last source symbol may travel without its padding.
        let length_fits = payload.len() == size || (id.esi < spec.symbols && payload.len() as u64 == rest);
        if !length_fits || id.esi >= object.codec.esi_end(spec.symbols) {
            self.stats.dropped.bad_symbol += 1;
            return;
        }
        let block =
            object.blocks[id.sbn as usize].get_or_insert_with(|| Box::new(BlockState::new(spec.symbols)));
        match block.worth(id.esi) {
            Worth::Duplicate => self.stats.duplicates += 1,
            Worth::Surplus => self.stats.surplus += 1,
            Worth::Needed => {
                let written = if id.esi < spec.symbols {
                    block.add_source(id.esi);
                    self.store.write_source(index, id.sbn, id.esi, payload)
                } else {
                    let slot = self.slots.entry(object.partition.symbol_size()).or_default().take();
                    block.add_repair(StoredRepair { esi: id.esi, slot });
                    self.store.write_repair(index, slot, payload)
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
        let Some(block) = self.catalogue.objects[index.0].blocks[sbn as usize].as_mut() else { return };
        let (missing, repairs) = block.start_finishing();
        self.open_blocks -= 1;
        self.jobs += 1;
        self.store.finish_block(BlockJob { object: index, sbn, missing, repairs });
    }

    fn on_report(&mut self, now: Instant, report: StoreReport) {
        self.jobs = self.jobs.saturating_sub(1);
        match report {
            StoreReport::BlockDone { object, sbn, digest } => {
                self.stats.last_progress = now;
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
        let state = &mut self.catalogue.objects[object.0];
        let Some(block) = state.blocks[sbn as usize].as_mut() else { return };
        let repairs = block.done();
        self.slots.entry(state.partition.symbol_size()).or_default().give_back(&repairs);
        let file = state.file;
        self.catalogue.files[file.0].left -= 1;
        self.finish_file_if_whole(file);
    }

    fn block_needs_more(&mut self, object: ObjectIndex, sbn: u32) {
        let Some(block) = self.catalogue.objects[object.0].blocks[sbn as usize].as_mut() else { return };
        block.needs_more();
        self.open_blocks += 1;
        if block.is_ready() {
            self.finish_block(object, sbn);
        }
    }

    fn block_mismatched(&mut self, object: ObjectIndex, sbn: u32) {
        let state = &mut self.catalogue.objects[object.0];
        let Some(block) = state.blocks[sbn as usize].as_mut() else { return };
        let (repairs, dropped) = block.mismatched();
        self.slots.entry(state.partition.symbol_size()).or_default().give_back(&repairs);
        self.catalogue.files[state.file.0].symbols_held -= u64::from(dropped);
        self.stats.blocks_discarded += 1;
        self.open_blocks += 1;
    }

    fn finish_file_if_whole(&mut self, index: FileIndex) {
        let file = &self.catalogue.files[index.0];
        if file.left > 0 {
            return;
        }
        let matches =
            file.digest.is_none_or(|digest| digest == file_digest(self.catalogue.block_digests(index)));
        if matches {
            self.jobs += 1;
            self.store.finish_file(index);
        } else {
            self.end_file(index, FileOutcome::Mismatch);
        }
    }

    fn end_file(&mut self, file: FileIndex, outcome: FileOutcome) {
        let state = &mut self.catalogue.files[file.0];
        if state.outcome.replace(outcome).is_some() {
            return;
        }
        let digest = state.digest;
        self.open_files -= 1;
        self.event(if outcome == FileOutcome::Done {
            ReceiverEvent::FileCompleted { file, digest }
        } else {
            ReceiverEvent::FileMismatch { file }
        });
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
                let all_done = self.open_files == 0 && !self.catalogue.files.is_empty();
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
