//! Sending session for files: opens the session, runs the session, and returns a summary.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_fec::{Order, SLOWEST_RATE, Scheme};
use headwater_proto::auth::Signing;
use headwater_proto::control::{Counters, SenderControl};
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, Digest, Encoding, PlanConfig, RepairServers, SenderEvent,
    SessionPlan, Source, SourceError, Start,
};
use headwater_proto::{Instant, Seed};
use headwater_wire::fdt::PEERS_MAX;
use headwater_wire::sdp::{Groups, RequestSource, SessionDescription};

use super::budget::{Budget, MEMORY_LIMIT_DEFAULT, RepairPlace};
use super::bundle::arrange;
use super::compress::{CompressionSummary, compress};
use super::content::{Content, FileWatcher};
use super::error::SendError;
use super::files::{FileSet, PreparedFile, to_send};
use super::hashing::HashingThreads;
use super::input::{ContentSource, InputFeed};
use super::link::{Link, PullEndpoint};
use super::options::{self, SendOptions, SendOrder};
use super::packets::{Headers, PacketOptions, PacketPlan};
use super::published::{FdtPublisher, PublishedFiles};
use super::repair_store::store_file;
use super::roster::RosterWatch;
use super::source::FileSource;
use super::spool::{SendInput, Spool, SpoolConfig};
use super::update::{
    DemandWatch, RateWatch, SendOutcome, SendProgress, SendStarted, SendSummary, SendUpdate, SentCeiling,
    progress,
};
use crate::clock::{Clock, Progress, ntp_now, since_1970, used_channels};
use crate::congestion_control::Path;
use crate::driver::{Application, Port};
use crate::keys::SenderKey;
use crate::net::{BufferSize, LinkChange};
use crate::session::Session;
use crate::system;
use crate::threads::{StopHandle, worker_count};

/// Maximum time for hashing before the first packet. Longer content is hashed further while it is being
/// sent.
const HASHING_BEFORE: Duration = Duration::from_millis(500);
/// Maximum number of blocks whose digests are added in one turn of the driver.
const DIGESTS_PER_TURN: usize = 256;
/// Session that sends files to their end, or until the session is stopped.
///
/// Content is hashed for at most half a second before the first packet, and further while it is being sent.
/// Files that change or cannot be read are left out. [`Session::run`] fails if nothing is left to send, the
/// network fails, or the session is a rehearsal.
#[derive(Debug)]
pub struct SendSession {
    files: FileSet,
    /// Files of the plan: the files, with bundles in place of members.
    items: Vec<PreparedFile>,
    options: SendOptions,
    plan: SessionPlan,
    symbol_size: u16,
    packet_bytes: u16,
    budget: Budget,
    tsi: u32,
    published: PublishedFiles,
    way: SessionTransport,
    /// Content that is read during the session.
    input: Option<(SendInput, SpoolConfig)>,
    compression: Option<CompressionSummary>,
}

/// Transport of packets to receivers.
#[derive(Debug)]
enum SessionTransport {
    /// Multicast to groups.
    Groups(Box<Link>),
    /// Unicast replies to requests.
    Requests(PullEndpoint),
}

impl SendSession {
    /// Plans the session and opens its socket. Nothing is sent yet. Only names and lengths of the files are
    /// known.
    ///
    /// # Errors
    /// If an option is out of range, memory or disk is too small for the content, or no interface can send
    /// to the group.
    pub fn open(files: FileSet, mut options: SendOptions) -> Result<Self, SendError> {
        // Blocks suit receivers of the rate that all networks carry.
        let order = options::order(&options);
        options.congestion_control.set_interface_speed(|| options.link.interface()?.speed());
        let (PacketPlan { tsi, symbol_size, packet_bytes, .. }, way) = open(&options)?;
        let memory = options.memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT);
        let mut items = arrange(files.files(), options.bundling, symbol_size);
        items.iter_mut().for_each(|item| item.is_sparse &= options.skips_holes);
        let temporary = options.temporary_folder.clone().unwrap_or_else(std::env::temp_dir);
        let compress = |coding| compress(&mut items, coding, &temporary, symbol_size);
        let compression = options.compression.map(compress).transpose()?;
        let encoded = |(index, item): (usize, &PreparedFile)| Some((index, item.encoded.as_ref()?.encoding));
        let encodings: BTreeMap<usize, Encoding> = items.iter().enumerate().filter_map(encoded).collect();
        let is_sparse = |(index, item): (usize, &PreparedFile)| item.is_sparse.then_some(index);
        let sparse: BTreeSet<usize> = items.iter().enumerate().filter_map(is_sparse).collect();
        let is_bundle = |(index, item): (usize, &PreparedFile)| item.bundle.is_some().then_some(index);
        let bundles: BTreeSet<usize> = items.iter().enumerate().filter_map(is_bundle).collect();
        let planned = |order| -> Result<(SessionPlan, Budget), SendError> {
            let config = PlanConfig { scheme: options.scheme, symbol_size, order };
            let plan = SessionPlan::within(to_send(&items), config, memory)?
                .with_bundles(bundles.clone())
                .with_sparse(sparse.clone())
                .with_encodings(encodings.clone())
                .with_folders(files.folders().to_vec())?
                .with_metadata(files.metadata().clone());
            let budget = Budget::new(&plan, &options, worker_count())?;
            Ok((plan, budget))
        };
        // Long blocks take memory for their decoding plans; the encoders of all shorter blocks may fit in
        // this memory.
        let (plan, budget) = match (planned(order), order) {
            (Ok(found), _) if !matches!(found.1.place, RepairPlace::Disk { .. }) => found,
            (_, Order::Spread { rate }) if rate < SLOWEST_RATE => {
                planned(Order::Spread { rate: SLOWEST_RATE })?
            }
            (found, _) => found?,
        };
        let published = PublishedFiles::new(&items);
        Ok(Self {
            files,
            items,
            options,
            plan,
            symbol_size,
            packet_bytes,
            budget,
            tsi,
            published,
            way,
            input: None,
            compression,
        })
    }

    /// Opens a session of an input of unknown length, in spread order. The input is read when the session
    /// runs. The session's [`end`](SendOptions::end) counts from the end of the input.
    ///
    /// # Errors
    /// As [`SendSession::open`], and if there is no room for the bytes to keep.
    pub fn open_input(input: SendInput, options: SendOptions) -> Result<Self, SendError> {
        let options = SendOptions { order: Some(SendOrder::Spread), ..options };
        let mut session = Self::open(FileSet::default(), options)?;
        let (options, symbol_size) = (&session.options, session.symbol_size);
        let config = PlanConfig { scheme: options.scheme, symbol_size, order: session.plan.order() };
        let config = SpoolConfig::new(&input, config, options)?;
        session.input = Some((input, config));
        Ok(session)
    }

    /// Returns the bytes of the input that are kept for late receivers; `None` for a session of files.
    pub fn kept_bytes(&self) -> Option<u64> {
        self.input.as_ref().map(|(_, config)| config.keep)
    }

    /// Returns the objects, blocks and symbols of the session.
    pub fn plan(&self) -> &SessionPlan {
        &self.plan
    }

    /// Returns the result of the compression; `None` for a session without compression.
    pub fn compression(&self) -> Option<CompressionSummary> {
        self.compression
    }

    /// Returns the files of the session.
    pub fn files(&self) -> &FileSet {
        &self.files
    }

    /// Names servers of the files in the FDT, for receivers that miss symbols; at most
    /// [`REPAIR_URLS_MAX`](crate::REPAIR_URLS_MAX). Default: none.
    #[must_use]
    pub fn with_repair(mut self, servers: RepairServers) -> Self {
        self.plan = self.plan.with_repair(Some(servers));
        self
    }

    /// Whether the packets are signed.
    pub fn is_signed(&self) -> bool {
        self.options.signing.is_some()
    }

    /// Returns the files for a server, which the session makes readable when it runs.
    pub fn published(&self) -> PublishedFiles {
        self.published.clone()
    }

    /// Returns the description of the session, without URLs.
    pub fn description(&self) -> SessionDescription {
        let SendStarted { group, listen, channels, source, .. } = self.started();
        let groups = group.ip().is_multicast().then_some(Groups {
            base: group,
            count: channels,
            ttl: self.options.link.ttl,
        });
        let own = listen.first().filter(|listen| !listen.ip().is_unspecified());
        let source = Some(source.ip()).filter(|source| !source.is_unspecified());
        SessionDescription {
            version: u64::from(ntp_now()),
            groups,
            source,
            tsi: Some(self.tsi.into()),
            encoding_id: self.plan.objects().first().map(|object| object.fti.encoding_id().codepoint()),
            key: self.options.signing.as_ref().map(SenderKey::public),
            rainbow: own.map(|own| RequestSource { source: *own, via: None }),
            ..SessionDescription::default()
        }
    }

    /// Returns the storage of the session's repair symbols.
    pub fn repair_place(&self) -> &RepairPlace {
        &self.budget.place
    }

    /// Returns the parameters of the session at its start.
    pub fn started(&self) -> SendStarted {
        let listen = self.way.listen();
        let (channels, source, interface) = match &self.way {
            SessionTransport::Groups(link) => {
                let socket = &link.socket;
                (socket.channels().count(), socket.local_addr(), Some(socket.interface().name.clone()))
            }
            SessionTransport::Requests(_) => (1, listen[0], None),
        };
        SendStarted {
            tsi: self.tsi,
            group: listen.first().copied().unwrap_or(self.options.link.group),
            listen,
            channels,
            congestion_control: self.options.congestion_control,
            source,
            interface,
            bytes: self.files.bytes(),
            symbols: self.plan.symbols(),
            symbol_size: self.symbol_size,
            send_buffer: self.way.send_buffer(),
            segmentation: matches!(&self.way, SessionTransport::Groups(link) if link.socket.segmentation()),
        }
    }

    /// Returns the first position of the content. A session that repeats content begins at a random place, or
    /// by the clock with codes of a finite number of symbols, so that receivers of an earlier session get
    /// other symbols. At high fixed rates each session begins with the source symbols; otherwise receivers
    /// with little loss would have to decode all blocks at the end.
    fn start(&self) -> Result<Start, SendError> {
        let control = &self.options.congestion_control;
        let is_first = !self.options.is_repeated && self.options.scheme == Scheme::RaptorQ;
        if control.begins_with_source() || (is_first && !control.is_on_request()) {
            return Ok(Start::First);
        }
        let seed = Seed(u64::from_ne_bytes(system::random_bytes()?));
        if control.is_on_request() {
            return Ok(Start::Drawn(seed));
        }
        Ok(Start::ByClock { seed, clock: since_1970(), symbol_size: self.symbol_size })
    }

    fn signing(&self) -> Result<Option<Signing>, SendError> {
        let control = &self.options.congestion_control;
        let signing = self.options.signing.as_ref().map(|key| key.signing(self.tsi, control.is_on_request()));
        Ok(signing.transpose()?.map(|signing| signing.with_trees(control.has_trees())))
    }

    /// Returns the roster of receivers, if the session has one.
    fn roster(&self) -> Option<RosterWatch> {
        // Receivers take servers from verified sessions alone, and encrypted content is served by nobody.
        let may_name_peers = self.options.signing.is_some() && self.options.group_key.is_none();
        let mut options = self.options.roster.clone()?;
        options.peers.most = if may_name_peers { options.peers.most.min(PEERS_MAX) } else { 0 };
        Some(RosterWatch::new(options))
    }

    fn send<C: SenderControl>(
        &mut self,
        control: C,
        source: ContentSource,
        known: ContentCheck,
        observer: &mut dyn FnMut(SendUpdate),
    ) -> Result<SendSummary, SendError> {
        let config = DeliverySenderConfig::new(self.tsi)
            .with_end(self.options.end.into())
            .with_ntp_at_zero(ntp_now())
            .with_start(if known.feed.is_some() { Start::First } else { self.start()? })
            .with_next_key(self.options.next_key);
        let ContentCheck { digests, lost, hashing, watching, feed } = known;
        let signing = self.signing()?;
        let started = signing.as_ref().map(|signing| signing.started());
        let signed = self.options.signing.clone().zip(started);
        let signed = signed.map(|(key, started)| (key, u64::from(self.tsi), started));
        let group = self.options.group_key.as_ref();
        let encryption = group.map(|keys| keys.encryption(self.options.signing.as_ref())).transpose();
        let roster = self.roster();
        let is_quick = self.options.congestion_control.follows_roster();
        let kept = roster.as_ref().map(|roster| roster.sender(is_quick)).transpose()?;
        let plan = feed.as_ref().map_or(&self.plan, InputFeed::plan);
        let mut machine = DeliverySender::new(config, plan, &digests, control, source)?
            .with_signing(signing)
            .with_encryption(encryption?)
            .with_roster(kept, plan);
        if feed.is_some() {
            machine = machine.with_stream(plan);
        }
        machine.hold(roster.as_ref().is_some_and(RosterWatch::waits));
        drop(digests);
        lost.into_iter().for_each(|error| withdraw(&mut machine, error));
        let clock = Clock::start();
        let mut watch = Watch {
            stop: self.way.stop().clone(),
            observer,
            files: &self.items,
            hashing,
            watching,
            feed,
            progress: Progress::new(clock.now()),
            rate: RateWatch::new(self.options.congestion_control.rate_max()),
            demand: DemandWatch::default(),
            failed: None,
            left_out: 0,
            last: None,
            roster,
            publisher: FdtPublisher::new(self.published.clone(), signed),
            packet_bytes: self.packet_bytes,
        };
        let options = &mut self.options.link;
        match &mut self.way {
            SessionTransport::Groups(link) => link.drive(options, &mut machine, clock, &mut watch)?,
            SessionTransport::Requests(endpoint) => {
                endpoint.drive(options, &mut machine, clock, &mut watch)?;
            }
        }
        if let Some(error) = watch.failed {
            return Err(error.into());
        }
        let summary = |watch: &mut RosterWatch| Some(watch.summary(machine.roster()?, clock.now()));
        let roster = watch.roster.as_mut().and_then(summary);
        let outcome =
            if self.way.stop().is_stopped() { SendOutcome::Interrupted } else { SendOutcome::Completed };
        Ok(SendSummary {
            outcome,
            progress: watch.last.unwrap_or_default(),
            files_left_out: watch.left_out + self.files.refused().count(),
            roster,
            fdt_packets: machine.stats().fdt_packets,
            calls: match &self.way {
                SessionTransport::Groups(link) => link.socket.counters().calls,
                SessionTransport::Requests(endpoint) => endpoint.port.calls(),
            },
        })
    }
}

impl Session for SendSession {
    type Update = SendUpdate;
    type Summary = SendSummary;
    type Error = SendError;

    fn stop_handle(&self) -> StopHandle {
        self.way.stop().clone()
    }

    fn run(&mut self, observer: &mut dyn FnMut(SendUpdate)) -> Result<SendSummary, SendError> {
        if self.options.is_rehearsal {
            return Err(SendError::Rehearsal);
        }
        if let Some(input) = self.input.take() {
            return self.send_input(input, observer);
        }
        let store = match &self.budget.place {
            RepairPlace::Disk { bytes, folder } => Some(store_file(folder, *bytes)?),
            RepairPlace::Nowhere | RepairPlace::Memory { .. } => None,
        };
        let content = Arc::new(Content::new(&self.items, &self.plan));
        self.published.publish(&content);
        let bytes_total = self.items.iter().map(|item| item.bytes).sum();
        let mut digests = vec![Vec::new(); self.plan.objects().len()];
        let mut lost = Vec::new();
        let mut hashing = HashingThreads::start(&content)?;
        hashing.wait(
            HASHING_BEFORE,
            || self.way.stop().is_stopped(),
            |bytes_done| observer(SendUpdate::Hashing { bytes_done, bytes_total }),
            |object, hashed| match hashed {
                Ok(digest) => digests[object].push(digest),
                Err(error) => lost.push(error),
            },
        );
        if self.way.stop().is_stopped() {
            return Ok(SendSummary::nothing_sent());
        }
        let watching = Some(FileWatcher::start(&content)?);
        let known = ContentCheck { digests, lost, hashing: Some(hashing), watching, feed: None };
        let control = self.options.congestion_control;
        let layered = control.is_multi_rate() && !control.is_on_request();
        let source = FileSource::new(content, &self.plan, &self.budget, store, layered)?;
        self.send_under_control(ContentSource::Files(Box::new(source)), known, observer)
    }

    fn is_progress(update: &SendUpdate) -> bool {
        matches!(update, SendUpdate::Progress(_) | SendUpdate::Hashing { .. })
    }
}

impl SendSession {
    /// Sends an input from its first part on.
    fn send_input(
        &mut self,
        (input, config): (SendInput, SpoolConfig),
        observer: &mut dyn FnMut(SendUpdate),
    ) -> Result<SendSummary, SendError> {
        let stop = self.way.stop().clone();
        let spool = Spool::start(input.input, config.clone(), stop.clone())?;
        let Some(first) = spool.wait(|| stop.is_stopped()) else { return Ok(SendSummary::nothing_sent()) };
        let (feed, digests, source) = InputFeed::new(spool, config, self.plan.clone(), first?)?;
        let known =
            ContentCheck { digests, lost: Vec::new(), hashing: None, watching: None, feed: Some(feed) };
        self.send_under_control(ContentSource::Parts(source), known, observer)
    }

    fn send_under_control(
        &mut self,
        source: ContentSource,
        known: ContentCheck,
        observer: &mut dyn FnMut(SendUpdate),
    ) -> Result<SendSummary, SendError> {
        observer(SendUpdate::Started(Box::new(self.started())));
        let control = self.options.congestion_control;
        // At the highest rates the cost of the control counts for each packet.
        if let Some(single) = control.single_rate() {
            return self.send(single, source, known, observer);
        }
        let path =
            Path { sender: self.started().source.ip(), group: self.options.link.group.ip(), tsi: self.tsi };
        let mut sender = control.sender(self.packet_bytes, path)?;
        if control.is_stamped() {
            sender.stamp_departures();
        }
        self.send(sender, source, known, observer)
    }
}

impl SessionTransport {
    const fn stop(&self) -> &StopHandle {
        match self {
            Self::Groups(link) => &link.stop,
            Self::Requests(endpoint) => &endpoint.stop,
        }
    }

    /// Returns the addresses at which requests are accepted.
    fn listen(&self) -> Vec<SocketAddr> {
        match self {
            Self::Groups(_) => Vec::new(),
            Self::Requests(endpoint) => endpoint.listen.clone(),
        }
    }

    fn send_buffer(&self) -> BufferSize {
        match self {
            Self::Groups(link) => link.socket.send_buffer(),
            Self::Requests(endpoint) => endpoint.port.send_buffer(),
        }
    }
}

/// Digests known at the start of the session, files that cannot be sent, and the threads that check the
/// remaining content.
struct ContentCheck {
    digests: Vec<Vec<Digest>>,
    /// Files that cannot be sent.
    lost: Vec<SourceError>,
    hashing: Option<HashingThreads>,
    watching: Option<FileWatcher>,
    /// Parts of an input that follow.
    feed: Option<InputFeed>,
}

/// Withdraws the file of `error` from a session; ends the session if the error concerns the whole session.
fn withdraw<C: SenderControl, S: Source>(machine: &mut DeliverySender<C, S>, error: SourceError) {
    match error {
        SourceError::File { file, why, .. } => machine.withdraw(file, why, error),
        SourceError::Session(_) => machine.fail(error),
    }
}

/// Application of a sender: passes digests to the machine, stops the machine on request, and reports
/// progress.
struct Watch<'a> {
    stop: StopHandle,
    observer: &'a mut dyn FnMut(SendUpdate),
    files: &'a [PreparedFile],
    /// `None` once all blocks are hashed.
    hashing: Option<HashingThreads>,
    watching: Option<FileWatcher>,
    feed: Option<InputFeed>,
    progress: Progress,
    rate: RateWatch,
    demand: DemandWatch,
    failed: Option<SourceError>,
    left_out: usize,
    last: Option<SendProgress>,
    roster: Option<RosterWatch>,
    publisher: FdtPublisher,
    packet_bytes: u16,
}

impl Watch<'_> {
    /// Passes lost files and digests of newly hashed blocks to the machine.
    fn tell_digests<C: SenderControl, S: Source>(&mut self, machine: &mut DeliverySender<C, S>) {
        while let Some(error) = self.watching.as_ref().and_then(FileWatcher::poll) {
            withdraw(machine, error);
        }
        let Some(hashing) = &mut self.hashing else { return };
        for (object, hashed) in core::iter::from_fn(|| hashing.poll()).take(DIGESTS_PER_TURN) {
            match hashed {
                Ok(digest) => machine.add_digests(object, &[digest]),
                Err(error) => withdraw(machine, error),
            }
        }
        if hashing.is_done() {
            self.hashing = None;
        }
    }
}

impl<C: SenderControl, P: Port> Application<DeliverySender<C, ContentSource>, P> for Watch<'_> {
    fn steer(&mut self, machine: &mut DeliverySender<C, ContentSource>, _port: &mut P, now: Instant) {
        self.tell_digests(machine);
        if let Some(feed) = &mut self.feed {
            feed.steer(machine, now, self.observer);
        }
        self.publisher.update(machine);
        if let Some(roster) = &mut self.roster {
            roster.steer(machine, now);
        }
        if self.stop.is_stopped() {
            machine.close();
        }
    }

    fn event(&mut self, event: SenderEvent) {
        match event {
            SenderEvent::FileWithdrawn { file, error } => {
                let item = &self.files[file];
                self.left_out += item.bundle.as_ref().map_or(1, |bundle| bundle.files.len());
                let path = item.name.clone();
                (self.observer)(SendUpdate::FileLeftOut { path, reason: error.to_string() });
            }
            SenderEvent::PassCompleted(passes) => (self.observer)(SendUpdate::PassCompleted(passes)),
            SenderEvent::SourceFailed(error) => self.failed = Some(error),
            SenderEvent::Reported(update) => {
                let recorded = self.roster.as_mut().map(|roster| roster.on_report(&update));
                let (content, contested) = recorded.unwrap_or_default();
                (self.observer)(SendUpdate::ReceiverReported { update, content });
                if let Some(contested) = contested {
                    (self.observer)(SendUpdate::NameContested(Box::new(contested)));
                }
            }
            SenderEvent::Finished => {}
        }
    }

    fn link(&mut self, change: LinkChange) {
        (self.observer)(SendUpdate::LinkChanged(change));
    }

    fn observe(
        &mut self,
        machine: &mut DeliverySender<C, ContentSource>,
        port: &P,
        unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        let ended = machine.is_finished();
        if self.progress.is_due(now) || ended {
            let demand = machine.control().demand();
            // A sender that follows demand tells of its low rate instead.
            if demand.is_none() && self.roster.as_mut().is_some_and(|roster| roster.is_nobody_there(now)) {
                (self.observer)(SendUpdate::NobodyReports);
            }
            if let Some(limit) = self.rate.on_overload(machine.control().overload()) {
                (self.observer)(SendUpdate::RateLimited(limit));
            }
            for update in self.demand.on_demand(demand, now) {
                (self.observer)(update);
            }
            let rate_bits = self.progress.rate_bits(now, machine.stats().bytes);
            let progress = SendProgress {
                counters: Counters::of(machine.control()),
                roster: self.roster.as_ref().map(|roster| roster.progress().clone()),
                channel_bytes: used_channels(port.channel_bytes()),
                ceiling: ceiling(machine.control(), self.packet_bytes, now),
                ..progress(&machine.stats(), machine.pass_symbols(), rate_bits, unsent, now)
            };
            (self.observer)(SendUpdate::Progress(Box::new(progress.clone())));
            self.last = Some(progress);
        }
        (!ended).then_some(self.progress.next())
    }
}

/// Returns the highest level that a control with several levels sends, with packets of `packet_bytes`.
fn ceiling(control: &impl SenderControl, packet_bytes: u16, now: Instant) -> Option<SentCeiling> {
    let layering = control.layering()?;
    let top = layering.levels().checked_sub(1).filter(|top| *top > 0)?;
    let level = control.demand().map_or(top, |demand| demand.ceiling);
    let driver = control.overload().and_then(|overload| overload.ceiling).unwrap_or(top);
    let level = level.min(driver).min(top);
    let bits = layering.cumulative_rate(level, now) * 8.0 * f64::from(packet_bytes);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    Some(SentCeiling { level, rate_bits: bits as u64 })
}

/// Opens the transport of a session of files.
fn open(options: &SendOptions) -> Result<(PacketPlan, SessionTransport), SendError> {
    let packets = PacketOptions {
        congestion_control: &options.congestion_control,
        tsi: options.tsi,
        symbol_size: options.symbol_size,
        is_beside_requests: options.is_beside_requests,
        is_signed: options.signing.is_some(),
        is_encrypted: options.group_key.is_some(),
    };
    options::check(options)?;
    if !options.congestion_control.is_on_request() {
        return PacketPlan::open(&options.link, packets, Headers::FILES)
            .map(|(planned, link)| (planned, SessionTransport::Groups(Box::new(link))));
    }
    packets.check()?;
    let (ipv4, ipv6): (Vec<SocketAddr>, Vec<_>) = options.listen.iter().partition(|at| at.is_ipv4());
    if let ([one, other, ..], _) | (_, [one, other, ..]) = (&ipv4[..], &ipv6[..]) {
        return Err(SendError::ListenTwice(*one, *other));
    }
    let endpoint = PullEndpoint::open(&options.listen, &options.link, options.is_rehearsal)?;
    let (mtu, interface) = endpoint.mtu();
    let planned = PacketPlan::new(packets, Headers::FILES, endpoint.header_bytes(), Some(mtu), &interface)?;
    Ok((planned, SessionTransport::Requests(endpoint)))
}
