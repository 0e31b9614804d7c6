//! Sending session for files: opens the session, runs the session, and returns a summary.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_fec::{Order, SLOWEST_RATE, SYMBOL_SIZE_DEFAULT};
use headwater_proto::auth::{LISTED_RATE, TREE_BYTES, signed_bytes};
use headwater_proto::control::{Counters, SenderControl};
use headwater_proto::controls::Network;
use headwater_proto::crypt::ENCRYPTED_BYTES;
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, Digest, PlanConfig, RepairServers, SenderEvent, SessionPlan,
    Source, SourceError, Start,
};
use headwater_proto::{DATAGRAM_BYTES_MAX, Instant, Rate, Seed, fixed};
use headwater_wire::sdp::{Groups, RequestSource, SessionDescription};

use super::budget::{Budget, MEMORY_LIMIT_DEFAULT, RepairPlace};
use super::content::{Content, FileWatcher};
use super::error::SendError;
use super::files::FileSet;
use super::hashing::HashingThreads;
use super::link::{Link, LinkOptions, PullEndpoint};
use super::options::{self, SendOptions};
use super::published::{FdtPublisher, PublishedFiles};
use super::repair_store::store_file;
use super::roster::RosterWatch;
use super::source::FileSource;
use super::update::{
    DemandWatch, RateWatch, SendOutcome, SendProgress, SendStarted, SendSummary, SendUpdate, progress,
};
use crate::clock::{Clock, Progress, ntp_now};
use crate::congestion_control::{CongestionControl, Path};
use crate::driver::{Application, Port};
use crate::keys::SenderKey;
use crate::net::{BufferSize, LinkChange};
use crate::session::Session;
use crate::system;
use crate::threads::{StopHandle, worker_count};

/// Maximum headers of a packet with one symbol: LCT with long identifiers, CCI and FEC payload id, and spare
/// room.
const HEADER_BYTES_MAX: usize = 92;
/// Maximum time for hashing before the first packet. Longer content is hashed further while it is being
/// sent.
const HASHING_BEFORE: Duration = Duration::from_millis(500);
/// Maximum number of blocks whose digests are added in one turn of the driver.
const DIGESTS_PER_TURN: usize = 256;
/// Fixed rate in bit/s from which a session begins with the source symbols: decoding 100 MB takes 0.4 s of a
/// processor, which is 5 % of the time that 100 MB take at this rate.
const SOURCE_FIRST_RATE: u64 = 100_000_000;
/// Least ratio of maximum to base rate. Below this ratio there are not two waves above the base, which both
/// shapes of channels need.
const MAX_OVER_BASE_MIN: u64 = 5;

/// Session that sends files to their end, or until the session is stopped.
///
/// Content is hashed for at most half a second before the first packet, and further while it is being sent.
/// Files that change or cannot be read are left out. [`Session::run`] fails if nothing is left to send, the
/// network fails, or the session is a rehearsal.
#[derive(Debug)]
pub struct SendSession {
    files: FileSet,
    options: SendOptions,
    plan: SessionPlan,
    symbol_size: u16,
    packet_bytes: u16,
    budget: Budget,
    tsi: u32,
    published: PublishedFiles,
    way: SessionTransport,
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
        let planned = |order| -> Result<(SessionPlan, Budget), SendError> {
            let config = PlanConfig { scheme: options.scheme, symbol_size, order };
            let plan = SessionPlan::within(files.to_send(), config, memory)?
                .with_folders(files.folders().to_vec())?;
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
        let published = PublishedFiles::new(files.files());
        Ok(Self { files, options, plan, symbol_size, packet_bytes, budget, tsi, published, way })
    }

    /// Returns the objects, blocks and symbols of the session.
    pub fn plan(&self) -> &SessionPlan {
        &self.plan
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

    /// Returns the first position of the content. The position is random, so that receivers of an earlier
    /// session of the same content get other symbols. At high fixed rates the session begins with the source
    /// symbols; otherwise receivers with little loss would have to decode all blocks at the end.
    fn start(&self) -> Result<Start, SendError> {
        match self.options.congestion_control {
            CongestionControl::Fixed { rate } if rate.as_bits() >= SOURCE_FIRST_RATE => Ok(Start::First),
            _ => Ok(Start::Drawn(Seed(u64::from_ne_bytes(system::random_bytes()?)))),
        }
    }

    fn send<C: SenderControl>(
        &mut self,
        control: C,
        source: FileSource,
        known: ContentCheck,
        observer: &mut dyn FnMut(SendUpdate),
    ) -> Result<SendSummary, SendError> {
        let config = DeliverySenderConfig::new(self.tsi)
            .with_end(self.options.end.into())
            .with_ntp_at_zero(ntp_now())
            .with_start(self.start()?)
            .with_next_key(self.options.next_key);
        let ContentCheck { digests, lost, hashing, watching } = known;
        let is_on_request = self.options.congestion_control.is_on_request();
        let signing =
            self.options.signing.as_ref().map(|key| key.signing(self.tsi, is_on_request)).transpose();
        let has_trees = self.options.congestion_control.has_trees();
        let signing = signing?.map(|signing| signing.with_trees(has_trees));
        let started = signing.as_ref().map(|signing| signing.started());
        let signed = self.options.signing.clone().zip(started);
        let signed = signed.map(|(key, started)| (key, u64::from(self.tsi), started));
        let group = self.options.group_key.as_ref();
        let encryption = group.map(|keys| keys.encryption(self.options.signing.as_ref())).transpose();
        let roster = self.options.roster.clone().filter(|_| !is_on_request).map(RosterWatch::new);
        let kept = roster.as_ref().map(RosterWatch::sender).transpose()?;
        let mut machine = DeliverySender::new(config, &self.plan, &digests, control, source)?
            .with_signing(signing)
            .with_encryption(encryption?)
            .with_roster(kept, &self.plan);
        machine.hold(roster.as_ref().is_some_and(RosterWatch::waits));
        drop(digests);
        lost.into_iter().for_each(|error| withdraw(&mut machine, error));
        let clock = Clock::start();
        let mut watch = Watch {
            stop: self.way.stop().clone(),
            observer,
            files: &self.files,
            hashing: Some(hashing),
            watching,
            progress: Progress::new(clock.now()),
            rate: RateWatch::new(self.options.congestion_control.rate_max()),
            demand: DemandWatch::default(),
            failed: None,
            left_out: 0,
            last: None,
            roster,
            publisher: FdtPublisher::new(self.published.clone(), signed),
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
            files_left_out: watch.left_out,
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
        let store = match &self.budget.place {
            RepairPlace::Disk { bytes, folder } => Some(store_file(folder, *bytes)?),
            RepairPlace::Nowhere | RepairPlace::Memory { .. } => None,
        };
        let content = Arc::new(Content::new(self.files.files(), &self.plan));
        self.published.publish(&content);
        let bytes_total = self.files.bytes();
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
        let known = ContentCheck { digests, lost, hashing, watching: FileWatcher::start(&content)? };
        let control = self.options.congestion_control;
        let layered = control.is_multi_rate() && !control.is_on_request();
        let source = FileSource::new(content, &self.plan, &self.budget, store, layered)?;
        observer(SendUpdate::Started(Box::new(self.started())));
        match control {
            // At the highest rates the cost of the control counts for each packet.
            CongestionControl::Fixed { rate } => {
                self.send(fixed::FixedSender::new(rate, Instant::ZERO), source, known, observer)
            }
            control => {
                let path = Path {
                    sender: self.started().source.ip(),
                    group: self.options.link.group.ip(),
                    tsi: self.tsi,
                };
                self.send(control.sender(self.packet_bytes, path)?, source, known, observer)
            }
        }
    }

    fn is_progress(update: &SendUpdate) -> bool {
        matches!(update, SendUpdate::Progress(_) | SendUpdate::Hashing { .. })
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
    hashing: HashingThreads,
    watching: FileWatcher,
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
    files: &'a FileSet,
    /// `None` once all blocks are hashed.
    hashing: Option<HashingThreads>,
    watching: FileWatcher,
    progress: Progress,
    rate: RateWatch,
    demand: DemandWatch,
    failed: Option<SourceError>,
    left_out: usize,
    last: Option<SendProgress>,
    roster: Option<RosterWatch>,
    publisher: FdtPublisher,
}

impl Watch<'_> {
    /// Passes lost files and digests of newly hashed blocks to the machine.
    fn tell_digests<C: SenderControl, S: Source>(&mut self, machine: &mut DeliverySender<C, S>) {
        while let Some(error) = self.watching.poll() {
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

impl<C: SenderControl, S: Source, P: Port> Application<DeliverySender<C, S>, P> for Watch<'_> {
    fn steer(&mut self, machine: &mut DeliverySender<C, S>, _port: &mut P, now: Instant) {
        self.tell_digests(machine);
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
                self.left_out += 1;
                let path = self.files.files()[file].name.clone();
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
        machine: &mut DeliverySender<C, S>,
        _port: &P,
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
                ..progress(&machine.stats(), machine.pass_symbols(), rate_bits, unsent, now)
            };
            (self.observer)(SendUpdate::Progress(Box::new(progress.clone())));
            self.last = Some(progress);
        }
        (!ended).then_some(self.progress.next())
    }
}

/// Header bytes of content packets while identifiers fit in 16 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    usual: u16,
    longest: u16,
}

impl Headers {
    /// LCT and FEC payload id. A TSI and a TOI of 32 bits, EXT_LEVELS, and the announcement of a roster take
    /// 4 bytes more each.
    const FILES: Self = Self { usual: 16, longest: 28 };
    /// LCT, FEC payload id and EXT_SEQ; EXT_FTI in the first part of a buffer; EXT_LEVELS and a TSI of 32
    /// bits take 4 bytes more each.
    pub(crate) const BUFFERS: Self = Self { usual: 24, longest: 48 };
}

/// Options of packets, common to sessions of files and sessions of buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketOptions<'a> {
    pub(crate) congestion_control: &'a CongestionControl,
    pub(crate) tsi: Option<u32>,
    pub(crate) symbol_size: Option<u16>,
    pub(crate) is_signed: bool,
    pub(crate) is_encrypted: bool,
}

impl PacketOptions<'_> {
    /// Returns the bytes that a signature adds to a packet. On request, packets of the FDT carry the key,
    /// too.
    fn signed_bytes(&self) -> u16 {
        let bytes = signed_bytes(self.congestion_control.is_on_request());
        let bytes = bytes + if self.congestion_control.has_trees() { TREE_BYTES } else { 0 };
        if self.is_signed { u16::try_from(bytes).unwrap_or(u16::MAX) } else { 0 }
    }

    /// Returns the bytes that control and encryption add to each packet.
    fn added_bytes(&self) -> u16 {
        let encrypted = if self.is_encrypted { ENCRYPTED_BYTES } else { 0 };
        self.congestion_control.added_bytes() + u16::try_from(encrypted).unwrap_or(u16::MAX)
    }

    fn check(&self) -> Result<(), SendError> {
        let refuse = |option, value, range| Err(SendError::Option { option, value, range });
        if self.tsi == Some(0) {
            return refuse("the TSI", 0, "from 1 to 4294967295");
        }
        let (control, max) = (self.congestion_control, self.congestion_control.rate_max());
        if let Some(base) = control.rate_base().filter(|_| control.is_multi_rate()) {
            // Rates that follow reports need no room for steps above the first step.
            let follows = control.control().network == Network::GroupsAndReports;
            let over = if follows { 1 } else { MAX_OVER_BASE_MIN };
            let least = Rate::from_bits(base.as_bits().saturating_mul(over)).unwrap_or(base);
            if max < least {
                return Err(SendError::Rates { base, max, least });
            }
        }
        let symbol_max = DATAGRAM_BYTES_MAX - HEADER_BYTES_MAX;
        if let Some(size) = self.symbol_size.filter(|size| *size == 0 || usize::from(*size) > symbol_max) {
            return refuse("the symbol size", size.into(), "from 1 to 8880 bytes");
        }
        Ok(())
    }
}

/// Checked options and packet sizes, common to sessions of files and sessions of buffers.
#[derive(Debug)]
pub(crate) struct PacketPlan {
    pub(crate) tsi: u32,
    pub(crate) symbol_size: u16,
    /// UDP payload of a content packet, as the congestion control counts it.
    pub(crate) packet_bytes: u16,
}

impl PacketPlan {
    /// Plans a session to groups and opens the socket that sends to the groups.
    pub(crate) fn open(
        link: &LinkOptions,
        packets: PacketOptions<'_>,
        headers: Headers,
    ) -> Result<(Self, Link), SendError> {
        packets.check()?;
        let control = packets.congestion_control;
        if control.is_on_request() {
            return Err(SendError::NotOnRequest(control.name()));
        }
        let link = Link::open(link, control.channels()?, 0)?;
        let interface = link.socket.interface();
        let planned = Self::new(packets, headers, link.header_bytes(), interface.mtu(), &interface.name)?;
        Ok((planned, link))
    }

    /// Plans packets for a path with `path_bytes` of headers and, if known, an MTU.
    fn new(
        options: PacketOptions<'_>,
        headers: Headers,
        path_bytes: u32,
        mtu: Option<u32>,
        interface: &str,
    ) -> Result<Self, SendError> {
        let added = options.added_bytes();
        let signed = options.signed_bytes();
        let header_bytes = path_bytes + u32::from(headers.longest) + u32::from(added + signed);
        let symbol_size = options.symbol_size.unwrap_or_else(|| symbol_size_for(mtu, header_bytes));
        // Without signature or encryption, the longest symbol fits the longest datagram.
        let longest = path_bytes + u32::try_from(DATAGRAM_BYTES_MAX).unwrap_or(u32::MAX);
        let mtu = mtu.unwrap_or(longest).min(longest);
        if header_bytes + u32::from(symbol_size) > mtu {
            return Err(SendError::Mtu { symbol_size, mtu, interface: interface.to_owned() });
        }
        // Most packets of a fast session of layers are listed, and no longer than without authentication.
        let control = options.congestion_control;
        let is_mostly_listed = control.is_layered() && control.rate_max() >= LISTED_RATE;
        let signed = if is_mostly_listed { 0 } else { signed };
        let packet_bytes = symbol_size + headers.usual + added + signed;
        options.congestion_control.channels_of(packet_bytes)?;
        let tsi = match options.tsi {
            Some(tsi) => tsi,
            None => random_tsi()?,
        };
        Ok(Self { tsi, symbol_size, packet_bytes })
    }
}

/// Opens the transport of a session of files.
fn open(options: &SendOptions) -> Result<(PacketPlan, SessionTransport), SendError> {
    let packets = PacketOptions {
        congestion_control: &options.congestion_control,
        tsi: options.tsi,
        symbol_size: options.symbol_size,
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

/// Returns the symbol size with which the longest packets of a signed session of files fit a path of this
/// MTU.
pub(crate) fn symbol_size_within(mtu: Option<u32>, is_ipv4: bool) -> u16 {
    let ip_and_udp = if is_ipv4 { 28 } else { 48 };
    let signed = u32::try_from(signed_bytes(false)).unwrap_or(u32::MAX);
    symbol_size_for(mtu, ip_and_udp + u32::from(Headers::FILES.longest) + signed)
}

/// Returns the symbol size for a path of this MTU (an unknown MTU counts as 1500): a multiple of 64 (the
/// width of vector instructions), at least 64 and at most the default.
fn symbol_size_for(mtu: Option<u32>, header_bytes: u32) -> u16 {
    let room = mtu.unwrap_or(1_500).saturating_sub(header_bytes) / 64 * 64;
    u16::try_from(room).unwrap_or(u16::MAX).clamp(64, SYMBOL_SIZE_DEFAULT)
}

/// Returns 16 random bits, not 0. With 16 bits the headers are shortest.
fn random_tsi() -> Result<u32, SendError> {
    Ok(u32::from(u16::from_ne_bytes(system::random_bytes()?)).max(1))
}
