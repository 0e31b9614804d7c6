//! Receiver of a session: writes the symbols of datagrams to the store, and verifies and completes the files.

mod announcements;
mod block;
mod catalogue;
mod finishing;
mod map;
mod names;
mod pending;
mod place;
mod repair;
mod report;
mod roster;
mod stream;

use core::net::SocketAddr;
use std::collections::{BTreeSet, VecDeque};

use headwater_wire::fdt::ControlAttributes;

use self::catalogue::{Catalogue, FileOutcome};
use self::names::BlockNames;
use self::pending::Pending;
use self::pending::{BlockId, Room};
use self::roster::SessionReporter;
use self::stream::AnnouncedStream;
use super::fdt::FdtReceiver;
use super::front::{Classified, Front, Opened, SessionEvent, Wanted, front_views, wanted_setters};
use super::repair::RepairServers;
use super::store::{FileIndex, Store};
use crate::control::ReceiverControl;
use crate::machine::{Datagram, Input, Machine, Output};
use crate::time::Instant;

pub(in crate::delivery) use self::catalogue::CODED_BLOCK_BYTES_MAX;
pub use self::catalogue::STRIP_WIDTH_MIN;
pub use self::map::BlockMap;
pub use self::repair::{MissingRange, RepairFile, RepairPosition, RepairStats};
pub use self::report::{Drops, FileProgress, ReceiverEvent, ReceiverStats};

/// Default memory for packets of objects that the FDT has not described, in bytes.
pub const PENDING_BYTES: usize = 16 << 20;
/// Memory for the state of blocks and symbols, in bytes: enough for a terabyte in blocks of 10 017 symbols.
pub const BLOCK_STATE_BYTES: usize = 104 << 20;
/// Memory that a store may use for all blocks in decoding together, including the caches of codecs, in bytes.
/// A block that needs more is decoded alone and takes the rest from [`BLOCK_STATE_BYTES`]. If not enough is
/// left there, the object is refused.
pub const DECODING_BYTES: u64 = 88 << 20;
/// Configuration of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryReceiverConfig {
    wanted: Wanted,
    pending_bytes: usize,
}

impl Default for DeliveryReceiverConfig {
    /// The first session heard, from any sender; 16 MiB for packets that arrive before the FDT.
    fn default() -> Self {
        Self { wanted: Wanted::default(), pending_bytes: PENDING_BYTES }
    }
}

impl DeliveryReceiverConfig {
    wanted_setters!();

    /// Sets the maximum memory for packets that arrive before the FDT describes their object, in bytes.
    #[must_use]
    pub fn with_pending_bytes(mut self, bytes: usize) -> Self {
        self.pending_bytes = bytes;
        self
    }
}

/// Receiver of a session.
///
/// Memory, without the store: [`BLOCK_STATE_BYTES`] for blocks. Each block takes 64 bytes and, in progress,
/// some 100 more, a bit per source symbol, and 40 bytes for each 256 repair symbols sent (beyond that,
/// symbols are dropped until blocks are whole). In addition 12 bytes per block that waits for the store, 24
/// per block that waits for a digest, 32 per block if packets are requested; some 500 and the name per object
/// (at most [`super::OBJECTS_MAX`], all names at most [`super::FDT_BYTES_MAX`]), [`PENDING_BYTES`], and two
/// FDTs in reassembly.
#[derive(Debug)]
pub struct DeliveryReceiver<C, S> {
    front: Front<C, ReceiverEvent>,
    store: S,
    hearing: FdtReceiver,
    /// Whether to ask the store for the FDT that an earlier receiver kept.
    may_recall: bool,
    /// Control description of the FDT that an earlier receiver kept, until the FDT itself arrives.
    recalled: Option<Option<ControlAttributes>>,
    catalogue: Catalogue,
    pending: Pending,
    room: Room,
    /// Blocks with enough symbols, each queued once for the store.
    ready: VecDeque<BlockId>,
    /// Blocks that the store decodes, at most [`JOBS_MAX`](finishing::JOBS_MAX).
    decoding: Vec<BlockId>,
    /// Whole blocks that wait for the FDT to announce their digests.
    unproven: BTreeSet<BlockId>,
    /// Files that already exist at the destination, each queued once for the store to compare.
    to_compare: VecDeque<FileIndex>,
    /// Files whose digest the present instance has brought.
    described: BTreeSet<FileIndex>,
    /// Number of blocks of files in progress that need symbols.
    open_blocks: u64,
    names: BlockNames,
    /// Number of files in progress.
    open_files: usize,
    refused: usize,
    /// Whether an instance has named folders without files.
    has_folders: bool,
    /// Whether an instance had metadata beyond the attributes of files.
    has_metadata: bool,
    /// Whether the FDT announced more objects than a receiver accepts.
    overflowed: bool,
    /// Number of store operations without a report.
    jobs: usize,
    holding: bool,
    complete: bool,
    ended: bool,
    stats: ReceiverStats,
    /// Servers of the files, of the newest instance that names any.
    repair_servers: Option<RepairServers>,
    repair_stats: RepairStats,
    awaits_repair: bool,
    reporter: Option<Box<SessionReporter>>,
    stream: Option<AnnouncedStream>,
    /// Whether a whole FDT has described other content than the FDT before.
    has_other_content: bool,
    /// Index before which all files have ended.
    first_open_part: usize,
}

impl<C: ReceiverControl, S: Store> DeliveryReceiver<C, S> {
    /// Creates a receiver that listens from `now` on.
    pub fn new(config: DeliveryReceiverConfig, control: C, store: S, now: Instant) -> Self {
        Self {
            front: Front::new(config.wanted, control, now),
            store,
            hearing: FdtReceiver::default(),
            may_recall: true,
            recalled: None,
            catalogue: Catalogue::default(),
            pending: Pending::new(config.pending_bytes),
            room: Room::new(BLOCK_STATE_BYTES),
            ready: VecDeque::new(),
            decoding: Vec::new(),
            unproven: BTreeSet::new(),
            to_compare: VecDeque::new(),
            described: BTreeSet::new(),
            open_blocks: 0,
            names: BlockNames::default(),
            open_files: 0,
            refused: 0,
            has_folders: false,
            has_metadata: false,
            overflowed: false,
            jobs: 0,
            holding: true,
            complete: false,
            ended: false,
            stats: ReceiverStats { last_progress: now, ..ReceiverStats::default() },
            repair_servers: None,
            repair_stats: RepairStats::default(),
            awaits_repair: false,
            reporter: None,
            stream: None,
            has_other_content: false,
            first_open_part: 0,
        }
    }

    /// Returns the counters. Each datagram received is in one counter ([`ReceiverStats::accounted`]).
    pub fn stats(&self) -> ReceiverStats {
        let dropped = self.stats.dropped.with_auth(&self.front.auth_counters());
        let (pending, waiting) = (self.pending.packets(), self.front.waiting());
        ReceiverStats { pending, waiting, dropped, ..self.stats }
    }

    front_views!(C);

    /// Whether the session has ended: everything was received, the sender is gone or was replaced by another,
    /// or the store failed.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns the progress of the announced files, by file index.
    pub fn files(&self) -> impl Iterator<Item = FileProgress<'_>> {
        self.catalogue.files.iter().map(|file| FileProgress {
            path: &file.spec.path,
            bytes: file.spec.bytes,
            symbols: file.symbols,
            symbols_held: file.symbols_held,
            is_done: file.outcome.is_some_and(FileOutcome::is_done),
        })
    }

    /// Returns the longest announced symbol size in bytes, over the objects of more than one symbol: a single
    /// symbol may be sent without padding. Time: O(objects).
    pub fn symbol_size(&self) -> Option<u16> {
        let partitions = self.catalogue.objects.iter().map(|object| object.partition);
        partitions.filter(|whole| whole.symbols() > 1).map(|whole| whole.symbol_size()).max()
    }

    /// Reports that this host dropped received packets because the driver did not read them in time. The
    /// control reduces its rate. The changes of membership follow at the next [`Machine::poll_output`] after
    /// a [`Machine::handle`].
    pub fn overrun(&mut self, now: Instant) {
        self.front.control.overrun(now);
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the store, for the driver to service.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Ends the receiver and returns the store with its content.
    pub fn into_store(self) -> S {
        self.store
    }

    fn on_datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        self.stats.packets += 1;
        self.stats.bytes += datagram.payload.len() as u64;
        if self.on_reply(now, datagram) {
            self.stats.signalling += 1;
            return;
        }
        let opened = self.front.open(now, datagram);
        self.admit_released(now);
        match opened {
            Opened::Packet(opened) => {
                let mut scratch = self.front.take_scratch();
                let classified = self.front.admit(now, &opened, &mut scratch.plain);
                self.on_classified(now, opened.source_and_bytes(), &classified);
                self.front.put_scratch(scratch);
            }
            Opened::Unverified => {}
            Opened::Other(classified) => self.on_classified(now, (datagram.source, 0), &classified),
        }
    }

    /// Admits packets that waited for their authentication.
    fn admit_released(&mut self, now: Instant) {
        let mut scratch = self.front.take_scratch();
        while let Some(opened) = self.front.next_released(&mut scratch.packet) {
            let classified = self.front.admit(now, &opened, &mut scratch.plain);
            self.on_classified(now, opened.source_and_bytes(), &classified);
        }
        self.front.put_scratch(scratch);
    }

    /// Handles a datagram from `source` of `bytes` of UDP payload.
    fn on_classified(
        &mut self,
        now: Instant,
        (source, bytes): (SocketAddr, u64),
        classified: &Classified<'_>,
    ) {
        match classified {
            Classified::Packet(header, payload) => {
                self.on_members(now, source, header.extensions.members);
                self.stats.longest = self.stats.longest.max(bytes);
                match (header.toi, header.payload_id) {
                    (Some(0), Some(id)) => self.on_fdt(now, header, id, payload),
                    (Some(toi), Some(id)) => self.on_symbol(now, toi, header, id, payload),
                    _ => self.stats.signalling += 1,
                }
            }
            Classified::Signalling => self.stats.signalling += 1,
            Classified::Malformed => self.stats.dropped.malformed += 1,
            Classified::Unopened => self.stats.dropped.unopened += 1,
            Classified::Foreign(replaces) => {
                self.stats.dropped.foreign += 1;
                if let Some((tsi, source)) = *replaces
                    && self.holding
                    && self.jobs == 0
                {
                    self.front.event(SessionEvent::Superseded { tsi, source });
                    self.ended = true;
                }
            }
        }
    }

    /// Ends the session if complete or closed. Starts or stops the control if symbols have become wanted or
    /// unwanted.
    fn settle(&mut self, now: Instant) {
        let described = self.complete && !self.catalogue.is_awaiting_fti();
        if !self.ended {
            if described && self.open_files == 0 {
                self.complete();
            } else if self.close_deadline().is_some_and(|at| at <= now) && !self.queue_last_blocks() {
                let all_done = self.open_files == 0
                    && !self.catalogue.files.is_empty()
                    && !self.awaits_parts()
                    && !self.catalogue.is_awaiting_fti();
                if all_done { self.complete() } else { self.end(ReceiverEvent::SessionClosed) }
            }
        }
        let satisfied = described && self.open_blocks == 0 && !self.lacks_spare_symbols();
        let wanted = !(self.ended || satisfied);
        if wanted != self.holding {
            self.holding = wanted;
            if wanted {
                self.front.control.start(now);
            } else {
                self.front.control.stop(now);
            }
            if !self.ended {
                self.report_need(now);
            }
        }
        self.front.collect_memberships();
    }

    /// Returns the time at which a closed session ends unless another packet arrives.
    fn close_deadline(&self) -> Option<Instant> {
        self.front.listening.close_deadline().filter(|_| !self.ended && self.jobs == 0 && !self.awaits_repair)
    }

    fn complete(&mut self) {
        for (location, reason) in self.store.finish_metadata() {
            self.refused += 1;
            self.front.event(ReceiverEvent::FileRefused { location, reason });
        }
        self.end(ReceiverEvent::SessionCompleted { refused: self.refused });
    }

    fn end(&mut self, event: ReceiverEvent) {
        self.ended = true;
        self.front.event(event);
    }
}

impl<C: ReceiverControl, S: Store> Machine for DeliveryReceiver<C, S> {
    type Event = ReceiverEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        // After a datagram, only a store with pending operations can have a report.
        let is_timeout = matches!(input, Input::Timeout);
        match input {
            Input::Timeout => {
                self.front.on_timeout(now);
                if !self.ended {
                    self.admit_released(now);
                }
            }
            Input::Datagram(datagram) if !self.ended => self.on_datagram(now, &datagram),
            Input::Datagram(datagram) => _ = self.on_reply(now, &datagram),
            Input::Routed(..) => {}
        }
        while (is_timeout || self.jobs > 0)
            && let Some(report) = self.store.poll_report()
        {
            self.on_report(now, report);
        }
        self.settle(now);
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<ReceiverEvent>> {
        let output = self.front.poll_output(now, buffer);
        if matches!(output, Some(Output::Transmit(_))) {
            self.name_block();
        }
        output.or_else(|| self.poll_report(now, buffer).map(Output::Transmit))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let reports = self.report_timeout();
        self.close_deadline().into_iter().chain(self.front.poll_timeout()).chain(reports).min()
    }
}
