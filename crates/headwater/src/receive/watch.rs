//! Application of a receiver's machine: reports events, ends the session, and derives the outcome.

mod checks;
mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_proto::auth::PublicKey;
use headwater_proto::control::{Membership, ReceiverControl};
use headwater_proto::crypt::Unopened;
use headwater_proto::delivery::{
    DeliveryReceiver, Digest, FileIndex, ReceiverEvent, RelativePath, SessionEvent, StoreError,
};
use headwater_proto::{Instant, Machine};

use headwater_wire::extensions::Levels;

use super::block_map::BlockMapWatch;
use super::paths::{BytesByPath, ContentPath, PathMeter};
use super::repair::Repairer;
use super::serving::{Serving, ServingOptions};
use super::session::ContentPort;
use super::update::{
    FileStatus, HeardSession, ReceiveOutcome, ReceiveProgress, ReceiveSummary, ReceiveUpdate, SILENCE_SHOWN,
};
use crate::clock::{Progress, elapsed, used_channels};
use crate::driver::Application;
use crate::net::{LinkChange, Waker};
use crate::store::{DiskStore, MadeName, MadeNames, UnpackedBundle, UnpackedBundles, UnpackedMember};
use crate::system::InputLosses;
use crate::threads::StopHandle;

/// Interval at which the receiver reads the kernel's drop counter, with one system call for each socket.
const DROPS_INTERVAL: headwater_proto::Duration = headwater_proto::Duration::from_millis(50);
/// Longest wait for the reply to the report of the end after a request to stop.
const LINGER_STOPPED: headwater_proto::Duration = headwater_proto::Duration::from_millis(500);

/// Application of a receiving session.
pub(super) struct Watch<'a> {
    stop: StopHandle,
    observer: &'a mut dyn FnMut(ReceiveUpdate),
    timeout: Option<headwater_proto::Duration>,
    /// Whether only the packets of a named source are received.
    names_source: bool,
    linger: headwater_proto::Duration,
    /// Latest end of the wait for the reply to the report of the end.
    lingers_until: Option<Instant>,
    /// Whether a request to stop has shortened the wait.
    is_hurried: bool,
    progress: Progress,
    /// Messages that the kernel had dropped by the last check.
    kernel_drops: u64,
    drops_due: Instant,
    end: Option<EndReason>,
    /// Whether a session was ever found.
    session_found: bool,
    /// Other sessions heard, at most [`OTHERS_MAX`].
    others: Vec<HeardSession>,
    /// Start of listening for the session.
    began: Instant,
    /// Begin of a reported silence, and whether the session was found before.
    silent_since: Option<(Instant, bool)>,
    /// Packets lost on the way in before the start; `None` once the suspicion of too long packets was
    /// reported.
    losses_before: Option<InputLosses>,
    /// Names and lengths of the announced files, by number, without refused files.
    announced: BTreeMap<usize, (RelativePath, u64)>,
    /// Files that travel encoded.
    encoded: BTreeSet<usize>,
    mismatch: bool,
    files_completed: usize,
    links_made: usize,
    bytes_completed: u64,
    files_refused: usize,
    /// Files that the selection leaves out, also of bundles.
    files_unwanted: usize,
    /// Bundles of which the selection leaves files out.
    bundles_in_part: usize,
    has_told_contradiction: bool,
    /// Keys of the session's sender, to be kept with unfinished files.
    sender: Vec<PublicKey>,
    is_sender_kept: bool,
    /// Reason for which content is not taken.
    unopened: Option<Unopened>,
    /// Verified key of the session, if receivers remember the key, and the start of the session.
    verified: Option<(PublicKey, u32)>,
    has_told_unheard: bool,
    is_dismissed: bool,
    /// Highest level that the sender sends, as last told.
    ceiling: Option<u8>,
    repairer: Option<Repairer>,
    /// Bytes of a stream that are missing, and whether the stream's beginning is.
    missed: Option<(u64, bool)>,
    /// Whether a place takes a stream in order, so that a missing part ends the session.
    takes_in_order: bool,
    /// Path of packets, and bytes of the machines before.
    path: ContentPath,
    past: BytesByPath,
    /// Path that brings most, for a session with several paths.
    meter: PathMeter,
    /// Files that earlier machines of this session have completed; at most as many as a session has names.
    completed: BTreeSet<RelativePath>,
    /// Members of bundles that are in place.
    unpacked: UnpackedBundles,
    /// Names made at the end of the session.
    made: MadeNames,
    serving: Option<Serving>,
    /// Whether the session has several paths.
    has_paths: bool,
    /// Size of symbols on the path before, until a difference is reported.
    symbol_size_before: Option<u16>,
    block_map: BlockMapWatch,
}

/// Reason for the end of a run.
#[derive(Clone, Debug)]
enum EndReason {
    Completed,
    Closed,
    /// Another session has replaced this session.
    Superseded,
    ControlRefused(String),
    StoreFailed(StoreError),
    TimedOut,
    /// As `TimedOut`, while packets of the session arrive.
    NothingNeeded,
    Stopped,
    /// A part of a stream is missing, and the place takes the stream in order.
    PartMissed,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        stop: StopHandle,
        observer: &'a mut dyn FnMut(ReceiveUpdate),
        (timeout, names_source, linger): (Option<Duration>, bool, Duration),
        losses_before: InputLosses,
        now: Instant,
    ) -> Self {
        Self {
            stop,
            observer,
            timeout: timeout.map(Into::into),
            names_source,
            linger: linger.into(),
            lingers_until: None,
            is_hurried: false,
            progress: Progress::new(now),
            kernel_drops: 0,
            drops_due: now,
            end: None,
            session_found: false,
            others: Vec::new(),
            began: now,
            silent_since: None,
            losses_before: Some(losses_before),
            announced: BTreeMap::new(),
            encoded: BTreeSet::new(),
            mismatch: false,
            files_completed: 0,
            links_made: 0,
            bytes_completed: 0,
            files_refused: 0,
            files_unwanted: 0,
            bundles_in_part: 0,
            has_told_contradiction: false,
            sender: Vec::new(),
            is_sender_kept: true,
            unopened: None,
            verified: None,
            has_told_unheard: false,
            is_dismissed: false,
            ceiling: None,
            repairer: None,
            missed: None,
            takes_in_order: false,
            path: ContentPath::Multicast,
            past: BytesByPath::default(),
            meter: PathMeter::default(),
            completed: BTreeSet::new(),
            unpacked: UnpackedBundles::default(),
            made: MadeNames::default(),
            serving: None,
            has_paths: false,
            symbol_size_before: None,
            block_map: BlockMapWatch::default(),
        }
    }

    /// Sets the path of packets.
    pub(super) fn with_path(mut self, path: ContentPath) -> Self {
        self.path = path;
        self
    }

    /// Adds maps of the blocks in at most `cells` cells to the progress.
    pub(super) fn with_block_map(mut self, cells: usize) -> Self {
        self.block_map = BlockMapWatch::new(cells);
        self
    }

    pub(super) fn with_repairer(mut self, repairer: Repairer) -> Self {
        self.repairer = Some(repairer);
        self
    }

    /// Ends the session when a part of a stream is missing.
    pub(super) fn with_order(mut self, takes_in_order: bool) -> Self {
        self.takes_in_order = takes_in_order;
        self
    }

    /// Reports changes of the path by which most comes.
    pub(super) fn with_paths(mut self) -> Self {
        self.has_paths = true;
        self
    }

    /// Serves the files to other receivers.
    pub(super) fn with_serving(mut self, serving: Option<Serving>) -> Self {
        self.serving = serving;
        self
    }

    /// Sets the keys that sign the session; empty for an unsigned session.
    fn set_sender(&mut self, keys: Vec<PublicKey>) {
        (self.sender, self.is_sender_kept) = (keys, false);
    }

    /// Sets the waker of the session's next machine.
    pub(super) fn set_waker(&mut self, waker: &Waker) {
        self.repairer.iter_mut().for_each(|repairer| repairer.set_waker(waker.clone()));
    }

    /// Sets the bundles and links of the session's next machine.
    pub(super) fn set_unpacked(&mut self, unpacked: UnpackedBundles, made: MadeNames) {
        (self.unpacked, self.made) = (unpacked, made);
    }

    /// Whether the end of the session is known.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some() || self.lingers_until.is_some()
    }

    /// Ends a machine, whose place another machine takes with packets by `path`.
    pub(super) fn on_path_change<C: ReceiverControl>(
        &mut self,
        machine: &DeliveryReceiver<C, DiskStore>,
        path: ContentPath,
        now: Instant,
    ) {
        self.symbol_size_before = machine.symbol_size().or(self.symbol_size_before);
        self.past = self.bytes_by_path(machine);
        self.path = path;
        self.restart(now);
        self.repairer.iter_mut().for_each(Repairer::on_path_change);
    }

    fn bytes_by_path<C: ReceiverControl>(&self, machine: &DeliveryReceiver<C, DiskStore>) -> BytesByPath {
        self.past.plus(self.path, machine.stats().bytes, machine.repair_stats().bytes)
    }

    /// Returns the verified key of the latest session, if receivers remember the key, and the start of the
    /// session.
    pub(super) fn verified(&self) -> Option<(PublicKey, u32)> {
        self.verified
    }

    /// Whether another session replaces the session; if so, resets the state for the new session.
    pub(super) fn begins_anew(&mut self, now: Instant) -> bool {
        if !matches!(self.end, Some(EndReason::Superseded)) {
            return false;
        }
        self.restart(now);
        self.completed.clear();
        self.serving.iter().for_each(Serving::clear);
        self.repairer.iter_mut().for_each(Repairer::reset);
        true
    }

    /// Begins anew with another machine.
    fn restart(&mut self, now: Instant) {
        self.progress = Progress::new(now);
        self.end = None;
        (self.began, self.silent_since, self.unopened) = (now, None, None);
        self.announced.clear();
        self.encoded.clear();
        (self.mismatch, self.missed) = (false, None);
        (self.files_completed, self.bytes_completed, self.files_refused) = (0, 0, 0);
        self.links_made = 0;
        (self.files_unwanted, self.bundles_in_part) = (0, 0);
        self.meter.restart();
    }

    /// Returns the summary of the session with its outcome.
    pub(super) fn summary<C: ReceiverControl>(
        &mut self,
        machine: &mut DeliveryReceiver<C, DiskStore>,
        socket: &impl ContentPort,
        now: Instant,
    ) -> ReceiveSummary {
        // Time of serving is no time of reception.
        let now = self.serving.as_ref().and_then(Serving::whole_at).unwrap_or(now);
        let progress = self.snapshot(machine, socket, now);
        self.tell_path(&progress, (now, true));
        (self.observer)(ReceiveUpdate::Progress(Box::new(progress.clone())));
        let outcome = self.final_outcome(machine);
        ReceiveSummary {
            outcome,
            progress,
            files_completed: self.files_completed,
            bytes_completed: self.bytes_completed,
            files_refused: self.files_refused,
            files_unwanted: self.files_unwanted,
            datagrams: socket.counters().datagrams,
            others: core::mem::take(&mut self.others),
            kept: machine.store().resumable(),
            folders: machine.store().folders().to_vec(),
            is_described: machine.is_described(),
            pinned: Vec::new(),
        }
    }

    /// Reports the end to a sender that keeps a roster. Returns until when the run goes on for the reply;
    /// `None` ends the run. After a request to stop, also a later one, the run soon ends.
    fn linger<C: ReceiverControl>(
        &mut self,
        machine: &mut DeliveryReceiver<C, DiskStore>,
        now: Instant,
    ) -> Option<Instant> {
        if matches!(self.end, Some(EndReason::Superseded)) {
            return None;
        }
        if self.lingers_until.is_none() {
            let outcome = self.final_outcome(machine);
            machine.report_path(self.bytes_by_path(machine).roster_path());
            machine.report_in_part(self.bundles_in_part);
            let serving = self.serving.as_mut().filter(|_| outcome == ReceiveOutcome::Completed);
            if let Some(serving) = serving.filter(|_| !self.stop.is_stopped()) {
                let ServingOptions { port, time } = serving.options();
                serving.begin(now);
                machine.serve_repair(port);
                (self.observer)(ReceiveUpdate::Serving { port, time });
            }
            machine.finish(now, outcome.code());
            self.lingers_until = Some(now + self.linger);
        }
        if let Some(until) = self.serving.as_ref().and_then(Serving::until) {
            if now < until && !self.stop.is_stopped() {
                return Some(machine.poll_timeout().map_or(until, |next| next.min(until)));
            }
            self.serving.iter_mut().for_each(Serving::end);
            machine.stop_serving(now);
            self.lingers_until = Some(now + self.linger);
        }
        if self.stop.is_stopped() && !core::mem::replace(&mut self.is_hurried, true) {
            self.lingers_until = self.lingers_until.map(|until| until.min(now + LINGER_STOPPED));
        }
        let until = self.lingers_until?;
        let next = machine.poll_timeout().map_or(until, |next| next.min(until));
        (!machine.has_reported() && now < until).then_some(next)
    }

    fn snapshot<C: ReceiverControl>(
        &mut self,
        machine: &mut DeliveryReceiver<C, DiskStore>,
        socket: &impl ContentPort,
        now: Instant,
    ) -> ReceiveProgress {
        let files: Vec<_> = machine
            .files()
            .enumerate()
            .map(|(index, file)| FileStatus {
                bytes: file.bytes,
                symbols: file.symbols,
                symbols_held: file.symbols_held,
                is_done: file.is_done,
                is_refused: !self.announced.contains_key(&index),
            })
            .collect();
        let wanted = || files.iter().filter(|file| !file.is_refused);
        let stats = machine.stats();
        let counters = socket.counters();
        let silent = Duration::from(now.since(machine.last_heard().unwrap_or(self.began)));
        let control = machine.control_status(now);
        let has_ended = self.has_ended();
        if let Some(sender) =
            control.unheard.filter(|_| !core::mem::replace(&mut self.has_told_unheard, true))
        {
            (self.observer)(ReceiveUpdate::Unheard { sender });
        }
        let was_dismissed = core::mem::replace(&mut self.is_dismissed, control.dismissed.is_some());
        if let Some(left) = control.dismissed.filter(|_| !was_dismissed) {
            (self.observer)(ReceiveUpdate::Dismissed { returns: left.into() });
        }
        if let Some(Levels { ceiling, demand }) = control.levels
            && self.ceiling.replace(ceiling) != Some(ceiling)
        {
            let level = demand.map_or(0, |echo| echo.level);
            (self.observer)(ReceiveUpdate::CeilingChanged { ceiling, level });
        }
        ReceiveProgress {
            silent: (silent >= SILENCE_SHOWN).then_some(silent),
            elapsed: elapsed(now),
            rate_bits: self.progress.rate_bits(now, stats.bytes + machine.repair_stats().bytes),
            stats,
            repair: machine.repair_stats(),
            bytes_by_path: self.bytes_by_path(machine),
            reception: machine.reception(),
            control,
            kernel_drops: counters.kernel_drops,
            foreign: counters.foreign_group + counters.foreign_source,
            marked: counters.marked,
            channel_bytes: used_channels(socket.channel_bytes()),
            blocks: self.block_map.poll(machine, (now, has_ended)),
            symbols_held: wanted().map(|file| file.symbols_held.min(file.symbols)).sum(),
            symbols: wanted().map(|file| file.symbols).sum(),
            files,
        }
    }

    /// Reports the path of a session with several paths, if the path has changed; `now` is the time, and
    /// whether the session has ended.
    fn tell_path(&mut self, progress: &ReceiveProgress, now: (Instant, bool)) {
        let useful = (progress.stats.useful, progress.repair.useful);
        if let Some(path) = self.meter.look(self.path, useful, now).filter(|_| self.has_paths) {
            (self.observer)(ReceiveUpdate::PathChanged(path));
        }
    }

    /// Reports links and other names of files.
    fn report_names(&mut self) {
        for MadeName { path, file, is_present } in self.made.take() {
            match file {
                Some((file, bytes)) => {
                    self.file_completed(file.0, (path, bytes), (None, true), is_present);
                }
                None => {
                    self.links_made += 1;
                    (self.observer)(ReceiveUpdate::LinkMade { path, is_present });
                }
            }
        }
    }

    fn session_event(&mut self, event: SessionEvent) -> ReceiveUpdate {
        match event {
            SessionEvent::Found { tsi, source } => {
                self.session_found = true;
                ReceiveUpdate::SessionFound { tsi, source }
            }
            SessionEvent::Other { tsi, source } => {
                self.add_other(HeardSession { tsi, source });
                ReceiveUpdate::OtherSession { tsi, source }
            }
            SessionEvent::Verified { tsi, key, is_ephemeral, started } => {
                self.repairer.iter_mut().for_each(|repairer| repairer.set_verified(true));
                // Later sessions of an ephemeral key's holder have another key.
                self.set_sender(if is_ephemeral { Vec::new() } else { vec![key] });
                self.verified = (!is_ephemeral).then_some((key, started));
                ReceiveUpdate::SessionVerified { tsi, key, is_ephemeral, started }
            }
            SessionEvent::NextKey { key } => {
                if let [sender, ..] = self.sender[..] {
                    self.set_sender(vec![sender, key]);
                }
                ReceiveUpdate::NextKeyAnnounced { key }
            }
            SessionEvent::Unsigned { tsi } => {
                self.set_sender(Vec::new());
                ReceiveUpdate::SessionUnsigned { tsi }
            }
            SessionEvent::Unopened { tsi, reason } => {
                self.unopened = Some(reason);
                ReceiveUpdate::SessionUnopened { tsi, reason }
            }
            SessionEvent::Untrusted { tsi, source } => ReceiveUpdate::SessionUntrusted { tsi, source },
            SessionEvent::Superseded { tsi, source } => {
                self.end = Some(EndReason::Superseded);
                ReceiveUpdate::SessionReplaced { tsi, source }
            }
        }
    }

    /// Reports a file, or the members of a bundle.
    fn object_completed(&mut self, file: FileIndex, digest: Option<Digest>, is_present: bool) {
        // Other receivers need the encoded content, which is gone.
        let served = digest.filter(|_| !self.encoded.contains(&file.0));
        if let Some(UnpackedBundle { members, directory }) = self.unpacked.take(file) {
            let unwanted = directory.layout.members().len() - members.len();
            self.files_unwanted += unwanted;
            self.bundles_in_part += usize::from(unwanted > 0);
            if let Some(serving) = &mut self.serving
                && let Some((name, _)) = self.announced.get(&file.0)
                && unwanted == 0
            {
                serving.add_bundle(name, directory, served);
            }
            for UnpackedMember { path, bytes, is_present } in members {
                self.file_completed(file.0, (path, bytes), (None, true), is_present);
            }
        } else if let Some(completed) = self.announced.get(&file.0).cloned() {
            let (path, bytes) = &completed;
            self.serving.iter().for_each(|serving| serving.add(path, *bytes, served));
            self.file_completed(file.0, completed, (digest, digest.is_some()), is_present);
        }
    }

    /// Counts and reports a file that is in place.
    fn file_completed(
        &mut self,
        file: usize,
        (path, bytes): (RelativePath, u64),
        (digest, is_verified): (Option<Digest>, bool),
        is_present: bool,
    ) {
        self.files_completed += 1;
        self.bytes_completed += bytes;
        // An earlier machine of this session may have completed the file.
        if self.completed.insert(path.clone()) || !is_present {
            (self.observer)(ReceiveUpdate::FileCompleted {
                file,
                path,
                bytes,
                digest,
                is_verified,
                is_present,
            });
        }
    }
}

impl<C: ReceiverControl, P: ContentPort> Application<DeliveryReceiver<C, DiskStore>, P> for Watch<'_> {
    fn steer(&mut self, machine: &mut DeliveryReceiver<C, DiskStore>, socket: &mut P, now: Instant) {
        if now >= self.drops_due {
            self.drops_due = now + DROPS_INTERVAL;
            let kernel_drops = socket.counters().kernel_drops;
            if core::mem::replace(&mut self.kernel_drops, kernel_drops) < kernel_drops {
                machine.overrun(now);
            }
        }
        if let Some(repairer) = &mut self.repairer {
            repairer.steer(machine, now);
            while let Some(update) = repairer.poll_update() {
                (self.observer)(ReceiveUpdate::Repair(update));
            }
            if let Some(key) = repairer.poll_described() {
                self.session_found = true;
                (self.observer)(ReceiveUpdate::DescribedByHttp { key });
                self.set_sender(key.into_iter().collect());
            }
        }
        if !core::mem::replace(&mut self.is_sender_kept, true) {
            machine.store_mut().pin(&self.sender);
        }
        // The base channel accepts any next sender; the other channels belong to this sender.
        socket.expect_source(machine.session().map(|(source, _)| source));
    }

    fn event(&mut self, event: ReceiverEvent) {
        let update = match event {
            ReceiverEvent::Session(event) => self.session_event(event),
            ReceiverEvent::FileAnnounced { file, path, bytes, encoding } => {
                self.announced.insert(file.0, (path.clone(), bytes));
                self.encoded.extend(encoding.map(|_| file.0));
                ReceiveUpdate::FileAnnounced { file: file.0, path, bytes, encoding }
            }
            ReceiverEvent::FileRefused { location, reason } => {
                self.files_refused += 1;
                ReceiveUpdate::FileRefused { location, reason }
            }
            ReceiverEvent::PartAnnounced { file, stream } => {
                ReceiveUpdate::PartAnnounced { file: file.0, stream }
            }
            ReceiverEvent::PartMissed { stream, offset, bytes } => {
                let (sum, is_beginning) = self.missed.unwrap_or((0, offset == 0));
                self.missed = Some((sum.saturating_add(bytes), is_beginning));
                ReceiveUpdate::PartMissed { stream, offset, bytes }
            }
            ReceiverEvent::StreamCompleted { stream, bytes, missed } => {
                ReceiveUpdate::StreamCompleted { stream, bytes, missed }
            }
            ReceiverEvent::FileCompleted { file, digest, is_present } => {
                return self.object_completed(file, digest, is_present);
            }
            ReceiverEvent::FileUnwanted { file } => {
                self.files_unwanted += 1;
                let Some((path, _)) = self.announced.remove(&file.0) else { return };
                ReceiveUpdate::FileUnwanted { file: file.0, path }
            }
            ReceiverEvent::FileMismatch { file } => {
                self.mismatch = true;
                let Some((path, _)) = self.announced.get(&file.0).cloned() else { return };
                ReceiveUpdate::FileMismatch { file: file.0, path }
            }
            ReceiverEvent::RepairMismatch { file, server } => {
                let path = self.announced.get(&file.0).map(|(path, _)| path);
                let blamed = (file, server);
                return self.repairer.iter_mut().for_each(|repairer| repairer.on_mismatch(blamed, path));
            }
            ReceiverEvent::SessionCompleted { refused } => {
                self.report_names();
                self.end = Some(EndReason::Completed);
                ReceiveUpdate::SessionCompleted { refused }
            }
            ReceiverEvent::ControlRefused { reason } => {
                self.end = Some(EndReason::ControlRefused(reason.clone()));
                ReceiveUpdate::ControlRefused { reason }
            }
            ReceiverEvent::SessionClosed => {
                self.end = Some(EndReason::Closed);
                ReceiveUpdate::SessionClosed
            }
            ReceiverEvent::StoreFailed(error) => {
                self.end = Some(EndReason::StoreFailed(error.clone()));
                ReceiveUpdate::StoreFailed(error)
            }
        };
        (self.observer)(update);
    }

    fn membership(&mut self, membership: Membership) {
        (self.observer)(match membership {
            Membership::Join(channel) => ReceiveUpdate::Joined(channel),
            Membership::Leave(channel) => ReceiveUpdate::Left(channel),
        });
    }

    fn link(&mut self, change: LinkChange) {
        (self.observer)(ReceiveUpdate::LinkChanged(change));
    }

    fn observe(
        &mut self,
        machine: &mut DeliveryReceiver<C, DiskStore>,
        socket: &P,
        _unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        // Once the end is reported, no packet changes the end.
        if machine.is_ended() || self.lingers_until.is_some() {
            return self.linger(machine, now);
        }
        if self.stop.is_stopped() {
            self.end = Some(EndReason::Stopped);
            return self.linger(machine, now);
        }
        if self.takes_in_order && self.missed.is_some() {
            self.end = Some(EndReason::PartMissed);
            return self.linger(machine, now);
        }
        let gives_up = self.gives_up(machine);
        if gives_up.is_some_and(|at| at <= now) {
            let is_heard = machine.last_heard().is_some_and(|last| now < last + SILENCE_SHOWN.into());
            self.end = Some(if is_heard { EndReason::NothingNeeded } else { EndReason::TimedOut });
            return self.linger(machine, now);
        }
        if self.progress.is_due(now) {
            self.watch_silence(machine, socket, now);
            self.watch_length(machine, socket);
            self.watch_symbol_size(machine);
            let progress = self.snapshot(machine, socket, now);
            machine.report_path(progress.bytes_by_path.roster_path());
            let contradictions = progress.stats.contradictions;
            if contradictions > 0 && !core::mem::replace(&mut self.has_told_contradiction, true) {
                (self.observer)(ReceiveUpdate::SessionContradicted { contradictions });
            }
            self.tell_path(&progress, (now, false));
            (self.observer)(ReceiveUpdate::Progress(Box::new(progress)));
        }
        let repairs = self.repairer.as_ref().and_then(|repairer| repairer.next(now));
        let next = repairs.map_or(self.progress.next(), |at| at.min(self.progress.next()));
        Some(gives_up.map_or(next, |at| at.min(next)))
    }
}
