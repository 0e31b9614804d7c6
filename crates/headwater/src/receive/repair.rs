//! Repair of missing symbols from HTTP servers, after multicast has ended or fallen silent.
//!
//! The repair waits until nothing needed has come for some time, or the session is closed; then for the
//! session's offset and a random time, so that receivers do not ask at once. The machine lists missing ranges
//! and verifies each block. Multicast that resumes ends the repair.
//!
//! Beside packets ([`HttpPath`]) the repair begins after [`SILENT`], also without an FDT, and ends once
//! packets bring half of its rate.

use std::collections::VecDeque;
use std::time::Duration;

use headwater_proto::auth::PublicKey;
use headwater_proto::control::ReceiverControl;
use headwater_proto::delivery::{
    DeliveryReceiver, FDT_BYTES_MAX, FileIndex, MissingRange, RelativePath, RepairPosition, RepairServers,
};
use headwater_proto::{Instant, Seed};
use rand::RngExt;

use super::http::{
    AddressRule, DocumentRequest, FetchFailure, HttpClient, REQUESTS_MAX, RangeRequest, Reply, Server,
};
use super::listener::ListenOptions;
use super::paths::SILENT;
use super::rates::RateComparison;
use super::servers::Servers;
use crate::keys::{Trust, check_fdt};
use crate::net::Waker;
use crate::store::DiskStore;
use crate::system;

/// Time without a needed symbol after which repair begins.
const QUIET: Duration = Duration::from_secs(10);
/// Time over which receivers spread their requests if the session does not say.
const RANDOM_DEFAULT: Duration = Duration::from_secs(10);
/// Longest wait before the first request, whatever the session says.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// Time without a byte after which the servers are given up. A busy server may turn receivers away for
/// longer.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_BUSY: Duration = Duration::from_secs(600);
/// Time after which servers are asked again while the session is silent; shorter where the server is a path
/// of its own.
const RETRY_TIME: Duration = Duration::from_secs(300);
const RETRY_TIME_BESIDE: Duration = Duration::from_secs(10);
/// Time over which receivers spread their requests where the server is a path of its own.
const RANDOM_BESIDE: Duration = Duration::from_millis(300);
/// Time before the requests of a machine that takes the place of a machine without packets.
const PAUSE_AFTER_CHANGE: Duration = Duration::from_millis(700);
/// Longest signature behind an FDT, in bytes.
const FDT_SIGNATURE_BYTES: usize = 256;
/// Refused requests without a needed symbol after which a server is given up, so that a session of many files
/// makes no flood of requests to a host that has nothing to do with the session.
const REFUSALS_MAX: u32 = 16;
/// Attempts to reach a server, and the time between two attempts.
const ATTEMPTS_MAX: u32 = 4;
const ATTEMPT_PAUSE: Duration = Duration::from_secs(2);
/// Ranges that are listed at once.
const RANGES_MAX: usize = 64;
/// Replies that are taken in one turn of the driver.
const REPLIES_PER_TURN: usize = 16;
/// Rounds without a needed symbol after which repair ends, beyond one for each server: a server that refuses
/// a file costs a round.
const IDLE_ROUNDS_MAX: usize = 3;

/// Repair of a receiving session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairOptions {
    /// Whether missing symbols are fetched from the servers that a verified session names. Default: yes.
    pub is_enabled: bool,
    /// Base URL of a server to ask first, of any session. This server may have a local address. Default:
    /// none.
    pub url: Option<String>,
    /// Use of the server beside packets. Default: none, repair alone.
    pub beside: Option<HttpPath>,
}

/// HTTP server as a path of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpPath {
    /// URL of the session's FDT, for a session without packets. Default: none.
    pub fdt: Option<String>,
    /// Whether the user has named the server's host. Any other server must not have a local address.
    pub is_named_by_user: bool,
}

impl RepairOptions {
    /// Whether a text is the base URL of a server: `http` or `https`, a host, no user, no query.
    pub fn is_base_url(text: &str) -> bool {
        Server::new(text, AddressRule::Any).is_some()
    }
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self { is_enabled: true, url: None, beside: None }
    }
}

/// Progress of a repair, for the observer of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairUpdate {
    /// Symbols are missing, and repair begins after a wait.
    Scheduled {
        /// Time until the first request.
        wait: Duration,
        /// Base URL of the first server.
        url: String,
    },
    /// A server cannot repair a file.
    Refused {
        /// Name of the file.
        path: RelativePath,
        /// Base URL of the server.
        url: String,
        /// Reason.
        reason: String,
    },
    /// No server can be reached.
    Failed {
        /// Last reason.
        reason: String,
    },
}

/// Repair of one session.
#[derive(Debug)]
pub(super) struct Repairer {
    options: RepairOptions,
    /// Whether packets of the session come from this machine.
    is_local: bool,
    /// Whether the sender of the FDT is verified.
    is_verified: bool,
    /// Longest time without needed symbols before repair, by the session's timeout.
    quiet: Duration,
    /// Senders whose FDT is accepted from a server, and the session's identifier.
    trust: Trust,
    tsi: Option<u64>,
    /// Whether packets have failed to come before this machine.
    is_pressing: bool,
    /// Sender of an FDT that was taken from a server, until the observer has seen it.
    described_by: Option<Option<PublicKey>>,
    waker: Waker,
    phase: Phase,
    servers: Servers,
    /// Updates that the observer has not seen.
    updates: VecDeque<RepairUpdate>,
}

#[derive(Debug)]
enum Phase {
    /// Multicast brings what is needed.
    Idle,
    Waiting {
        until: Instant,
        /// Needed packets when the wait began.
        useful: u64,
    },
    Fetching(Box<Fetch>),
    /// No server helps.
    GivenUp {
        /// Needed packets when the servers were given up.
        useful: u64,
        /// Time of the next attempt, if the session is not closed.
        retry: Option<Instant>,
    },
}

#[derive(Debug)]
struct Fetch {
    client: HttpClient,
    /// Needed packets when the requests began.
    useful: u64,
    /// State of the FDT from the server.
    fdt: FdtFetch,
    compared: RateComparison,
    position: RepairPosition,
    ranges: VecDeque<MissingRange>,
    /// Requests without an answer.
    outstanding: usize,
    /// Files of which the whole content is on its way.
    whole: Option<FileIndex>,
    /// Earliest time of the next request.
    not_before: Instant,
    last_byte: Instant,
    is_busy: bool,
    failed_attempts: u32,
    refusals: u32,
    /// Needed symbols of this round, and rounds without any.
    useful_of_round: u64,
    idle_rounds: usize,
}

/// State of the request for the FDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FdtFetch {
    Due,
    Requested,
    Done,
}

type FileReceiver<C> = DeliveryReceiver<C, DiskStore>;

impl Repairer {
    pub(super) fn new(options: RepairOptions, is_local: bool, listen: &ListenOptions, waker: Waker) -> Self {
        let quiet = if options.beside.is_some() { SILENT } else { QUIET };
        Self {
            is_local,
            is_verified: false,
            quiet: listen.timeout.unwrap_or(quiet).min(quiet),
            trust: listen.trust.clone(),
            tsi: listen.tsi,
            is_pressing: options.beside.is_some() && listen.group.ip().is_unspecified(),
            described_by: None,
            options,
            waker,
            phase: Phase::Idle,
            servers: Servers::default(),
            updates: VecDeque::new(),
        }
    }

    /// Records whether the sender of the session is verified, which begins anew for each session.
    pub(super) fn set_verified(&mut self, is_verified: bool) {
        self.is_verified = is_verified;
    }

    /// Sets the waker of the session's next machine.
    pub(super) fn set_waker(&mut self, waker: Waker) {
        self.waker = waker;
    }

    /// Continues with another machine after the packets of the last machine did not come, or came no more.
    pub(super) fn on_path_change(&mut self) {
        self.reset();
        self.is_pressing = self.options.beside.is_some();
    }

    /// Returns the sender of an FDT that was taken from a server: a key, or nobody known.
    pub(super) fn poll_described(&mut self) -> Option<Option<PublicKey>> {
        self.described_by.take()
    }

    /// Forgets a session that another session replaces.
    pub(super) fn reset(&mut self) {
        (self.phase, self.is_verified, self.is_pressing) = (Phase::Idle, false, false);
        self.servers.clear();
    }

    /// Whether repair waits for its time or fetches: the session has not timed out.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. } | Phase::Fetching(_))
    }

    /// Returns the next update.
    pub(super) fn poll_update(&mut self) -> Option<RepairUpdate> {
        self.updates.pop_front()
    }

    /// Returns the latest time of the next turn, if repair has a timer.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let timer = match &self.phase {
            Phase::Waiting { until, .. } => *until,
            Phase::Fetching(fetch) => fetch.not_before,
            Phase::Idle | Phase::GivenUp { .. } => return None,
        };
        (timer > now).then_some(timer)
    }

    /// Records that a block of a file did not match with symbols of a server. Nobody is blamed for a block
    /// with symbols of several servers, which is fetched again.
    pub(super) fn on_mismatch(
        &mut self,
        (file, server): (FileIndex, Option<u32>),
        path: Option<&RelativePath>,
    ) {
        let Some(place) = server.and_then(|id| self.servers.place(id)) else { return };
        let reason = "its content does not match the sender's digests".to_owned();
        if self.servers.get(place).is_some_and(|server| server.is_peer) {
            self.tell_refusal(place, path, reason.clone());
            self.servers.ban(place);
            self.leave_server(place, reason);
        } else if self.servers.of(file) == place {
            self.refuse(file, path, reason);
        }
    }

    /// Starts, continues or ends the repair.
    pub(super) fn steer<C: ReceiverControl>(&mut self, machine: &mut FileReceiver<C>, now: Instant) {
        let has_work = machine.has_repairable() || self.fdt_url(machine).is_some();
        if !self.options.is_enabled || (!has_work && !self.is_active()) {
            return machine.await_repair(false);
        }
        let useful = machine.stats().useful;
        if let Phase::GivenUp { useful: before, retry } = self.phase {
            let may_retry = before != useful || retry.is_some_and(|at| at <= now);
            if !may_retry || machine.is_closed(now) {
                let time = if self.options.beside.is_some() { RETRY_TIME_BESIDE } else { RETRY_TIME };
                self.phase = Phase::GivenUp { useful: before, retry: retry.or(Some(now + time.into())) };
                return machine.await_repair(false);
            }
            self.servers.begin_anew();
            self.phase = Phase::Idle;
        }
        let is_possible = has_work && self.names_servers(machine);
        machine.await_repair(is_possible);
        let has_resumed = self.has_resumed(machine, now);
        if !is_possible || (has_resumed && !machine.is_closed(now)) {
            self.phase = Phase::Idle;
            return;
        }
        match self.phase {
            Phase::Idle if self.is_due(machine, now) => self.schedule(machine, now),
            Phase::Waiting { until, .. } if until <= now => self.begin(machine, now),
            Phase::Fetching(_) => self.fetch(machine, now),
            Phase::Idle | Phase::Waiting { .. } | Phase::GivenUp { .. } => {}
        }
    }

    /// Returns the URL of the session's FDT if the machine lacks the whole FDT.
    fn fdt_url<C: ReceiverControl>(&self, machine: &FileReceiver<C>) -> Option<&String> {
        let beside = self.options.beside.as_ref().filter(|_| !machine.is_described() && !machine.is_ended());
        beside?.fdt.as_ref()
    }

    /// Whether packets bring what is needed: any needed packet or, beside a server that is a path of its own,
    /// half as many as the server.
    fn has_resumed<C: ReceiverControl>(&mut self, machine: &FileReceiver<C>, now: Instant) -> bool {
        let useful = machine.stats().useful;
        let Phase::Fetching(fetch) = &mut self.phase else {
            return self.useful_before().is_some_and(|before| before != useful);
        };
        if self.options.beside.is_none() {
            return fetch.useful != useful;
        }
        fetch.compared.do_packets_suffice(now, useful, machine.repair_stats().useful)
    }

    /// Returns the needed packets at the beginning of the wait or of the requests.
    fn useful_before(&self) -> Option<u64> {
        match &self.phase {
            Phase::Waiting { useful, .. } => Some(*useful),
            Phase::Fetching(fetch) => Some(fetch.useful),
            Phase::Idle | Phase::GivenUp { .. } => None,
        }
    }

    /// Whether the user or a verified session names a server.
    fn names_servers<C: ReceiverControl>(&self, machine: &FileReceiver<C>) -> bool {
        self.options.url.is_some() || (self.is_verified && machine.repair_servers().is_some())
    }

    /// Finds the servers: a server of the user, and the servers and peers of a verified session.
    fn find_servers<C: ReceiverControl>(&mut self, machine: &FileReceiver<C>) {
        let rule = self.rule_of_named();
        let own = self.options.url.as_ref().and_then(|url| Server::new(url, self.rule_of_own()));
        let found = machine.repair_servers().filter(|_| self.is_verified);
        let listed = |urls: fn(&RepairServers) -> &[String]| {
            found.map_or(&[][..], urls).iter().filter_map(move |url| Server::new(url, rule))
        };
        let (named, peers) = (listed(|found| &found.base_urls), listed(|found| &found.peer_urls));
        let mut random = Seed(system::random_u64()).stream("servers", 0);
        self.servers.find(own, named, peers, &mut random);
    }

    /// Returns the addresses that servers named by the session may have.
    fn rule_of_named(&self) -> AddressRule {
        if self.is_local { AddressRule::RemoteOrLoopback } else { AddressRule::Remote }
    }

    /// Returns the addresses that the server of the options may have.
    fn rule_of_own(&self) -> AddressRule {
        let is_users = self.options.beside.as_ref().is_none_or(|beside| beside.is_named_by_user);
        if is_users { AddressRule::Any } else { self.rule_of_named() }
    }

    fn is_due<C: ReceiverControl>(&self, machine: &FileReceiver<C>, now: Instant) -> bool {
        let is_pressing = self.is_pressing && machine.stats().useful == 0;
        let quiet = if is_pressing { PAUSE_AFTER_CHANGE.min(self.quiet) } else { self.quiet };
        let is_quiet = machine.stats().last_progress + quiet.into() <= now;
        machine.is_closed(now) || (is_quiet && !machine.store().is_busy())
    }

    fn schedule<C: ReceiverControl>(&mut self, machine: &FileReceiver<C>, now: Instant) {
        let useful = machine.stats().useful;
        self.find_servers(machine);
        let Some(first) = self.servers.get(0) else {
            return self
                .give_up(useful, "the session names no HTTP server by a URL of http or https".to_owned());
        };
        let url = first.server.url.clone();
        let servers = machine.repair_servers().filter(|_| self.is_verified);
        let (offset, random) = match (servers, &self.options.beside) {
            (_, Some(_)) => (Duration::ZERO, RANDOM_BESIDE),
            (Some(servers), None) => (servers.offset.into(), servers.random.into()),
            (None, None) => (Duration::ZERO, RANDOM_DEFAULT),
        };
        let random: Duration = random;
        let nanos = u64::try_from(random.min(WAIT_MAX).as_nanos()).unwrap_or(u64::MAX);
        let drawn = Seed(system::random_u64()).stream("repair", 0).random_range(0..=nanos);
        let wait = Duration::min(offset, WAIT_MAX) + Duration::from_nanos(drawn);
        self.phase = Phase::Waiting { until: now + wait.into(), useful };
        self.updates.push_back(RepairUpdate::Scheduled { wait, url });
    }

    fn begin<C: ReceiverControl>(&mut self, machine: &FileReceiver<C>, now: Instant) {
        let useful = machine.stats().useful;
        let Some(client) = HttpClient::start(self.waker.clone()) else {
            return self.give_up(useful, "no thread can be started for requests".to_owned());
        };
        self.phase = Phase::Fetching(Box::new(Fetch {
            client,
            useful,
            fdt: if self.fdt_url(machine).is_some() { FdtFetch::Due } else { FdtFetch::Done },
            compared: RateComparison::new(now, useful, machine.repair_stats().useful),
            position: RepairPosition::default(),
            ranges: VecDeque::new(),
            outstanding: 0,
            whole: None,
            not_before: now,
            last_byte: now,
            is_busy: false,
            failed_attempts: 0,
            refusals: 0,
            useful_of_round: 0,
            idle_rounds: 0,
        }));
    }

    fn give_up(&mut self, useful: u64, reason: String) {
        self.phase = Phase::GivenUp { useful, retry: None };
        self.updates.push_back(RepairUpdate::Failed { reason });
    }

    /// Moves a file to its next server.
    fn refuse(&mut self, file: FileIndex, path: Option<&RelativePath>, reason: String) {
        self.tell_refusal(self.servers.of(file), path, reason);
        self.servers.refuse(file);
    }

    fn tell_refusal(&mut self, place: usize, path: Option<&RelativePath>, reason: String) {
        if let (Some(refused), Some(path)) = (self.servers.get(place), path) {
            let (path, url) = (path.clone(), refused.server.url.clone());
            self.updates.push_back(RepairUpdate::Refused { path, url, reason });
        }
    }

    /// Takes replies, and makes the next requests.
    fn fetch<C: ReceiverControl>(&mut self, machine: &mut FileReceiver<C>, now: Instant) {
        for _ in 0..REPLIES_PER_TURN {
            let Phase::Fetching(fetch) = &mut self.phase else { return };
            let Some(reply) = fetch.client.poll() else { break };
            self.on_reply(machine, reply, now);
        }
        let Phase::Fetching(fetch) = &mut self.phase else { return };
        let patience = if fetch.is_busy { PATIENCE_BUSY } else { PATIENCE };
        if fetch.last_byte + patience.into() <= now {
            let (useful, seconds) = (fetch.useful, patience.as_secs());
            return self.give_up(useful, format!("no byte came from the servers for {seconds} s"));
        }
        if now >= fetch.not_before {
            match fetch.fdt {
                FdtFetch::Due => self.request_fdt(machine),
                FdtFetch::Requested => {}
                FdtFetch::Done => self.request(machine),
            }
        }
    }

    /// Asks for the session's FDT, which packets have not brought.
    fn request_fdt<C: ReceiverControl>(&mut self, machine: &FileReceiver<C>) {
        let url = self.fdt_url(machine).cloned();
        let rule = self.rule_of_own();
        let Phase::Fetching(fetch) = &mut self.phase else { return };
        let bytes_max = FDT_BYTES_MAX + FDT_SIGNATURE_BYTES;
        let request = url.map(|url| DocumentRequest { url, rule, bytes_max });
        fetch.fdt = match request.map(|request| fetch.client.request_document(request)) {
            None => FdtFetch::Done,
            Some(true) => FdtFetch::Requested,
            Some(false) => FdtFetch::Due,
        };
    }

    /// Takes the FDT of a server, if a trusted sender has signed the FDT.
    fn on_fdt<C: ReceiverControl>(&mut self, machine: &mut FileReceiver<C>, bytes: &[u8], now: Instant) {
        let useful = machine.stats().useful;
        let taken = check_fdt(bytes, &self.trust, self.tsi).and_then(|(xml, key)| {
            let is_taken = machine.put_description(now, xml.as_bytes());
            is_taken.map(|is_taken| is_taken.then_some(key)).map_err(|error| error.to_string())
        });
        let Phase::Fetching(fetch) = &mut self.phase else { return };
        fetch.fdt = FdtFetch::Done;
        match taken {
            Ok(key) => self.described_by = key.or(self.described_by),
            Err(reason) => self.give_up(useful, format!("the FDT of the server is not taken: {reason}")),
        }
    }

    fn on_reply<C: ReceiverControl>(&mut self, machine: &mut FileReceiver<C>, reply: Reply, now: Instant) {
        let Phase::Fetching(fetch) = &mut self.phase else { return };
        match reply {
            Reply::Document(Ok(bytes)) => {
                (fetch.last_byte, fetch.is_busy, fetch.failed_attempts) = (now, false, 0);
                self.on_fdt(machine, &bytes, now);
            }
            Reply::Document(Err(failure)) => {
                fetch.fdt = FdtFetch::Due;
                self.on_fdt_failure(failure, now);
            }
            Reply::Bytes { server, file, start, bytes } => {
                (fetch.last_byte, fetch.is_busy, fetch.failed_attempts) = (now, false, 0);
                // A server that was refused meanwhile is not trusted with the rest of its answer.
                if let Some(from) = self.servers.get(server).filter(|_| self.servers.of(file) == server) {
                    let needed = machine.put_repaired(now, (from.id, file), start, &bytes);
                    fetch.useful_of_round += needed;
                    fetch.refusals = if needed > 0 { 0 } else { fetch.refusals };
                }
            }
            Reply::Done { file, is_whole_file } => {
                fetch.outstanding = fetch.outstanding.saturating_sub(1);
                if is_whole_file {
                    fetch.ranges.retain(|range| range.file != file);
                }
                fetch.whole = fetch.whole.filter(|whole| *whole != file);
            }
            Reply::Failed { server, file, failure } => {
                fetch.outstanding = fetch.outstanding.saturating_sub(1);
                fetch.whole = fetch.whole.filter(|whole| *whole != file);
                self.on_failure(machine, (server, file), failure, now);
            }
        }
    }

    fn on_fdt_failure(&mut self, failure: FetchFailure, now: Instant) {
        let Phase::Fetching(fetch) = &mut self.phase else { return };
        let useful = fetch.useful;
        match failure {
            FetchFailure::Busy(time) => {
                (fetch.is_busy, fetch.not_before) = (true, now + time.into());
            }
            FetchFailure::Unreachable(reason) => {
                fetch.failed_attempts += 1;
                fetch.not_before = now + ATTEMPT_PAUSE.into();
                if fetch.failed_attempts >= ATTEMPTS_MAX {
                    self.give_up(useful, reason);
                }
            }
            FetchFailure::Refused(reason) => self.give_up(useful, format!("the FDT: {reason}")),
        }
    }

    fn on_failure<C: ReceiverControl>(
        &mut self,
        machine: &FileReceiver<C>,
        (server, file): (usize, FileIndex),
        failure: FetchFailure,
        now: Instant,
    ) {
        let Phase::Fetching(fetch) = &mut self.phase else { return };
        // The rest is listed anew.
        fetch.ranges.clear();
        let is_peer = self.servers.get(server).is_some_and(|server| server.is_peer);
        match failure {
            // Another server may have time.
            FetchFailure::Busy(_) if is_peer && self.servers.len() > 1 => {
                self.leave_server(server, "the receiver that serves is busy".to_owned());
            }
            FetchFailure::Busy(_) if !is_peer && self.servers.has_peers() => self.postpone_server(server),
            FetchFailure::Busy(time) => {
                fetch.is_busy = true;
                fetch.not_before = fetch.not_before.max(now + time.into());
            }
            FetchFailure::Unreachable(reason) => {
                fetch.failed_attempts += 1;
                fetch.not_before = now + ATTEMPT_PAUSE.into();
                if is_peer || fetch.failed_attempts >= ATTEMPTS_MAX {
                    fetch.failed_attempts = 0;
                    self.leave_server(server, reason);
                }
            }
            FetchFailure::Refused(reason) => {
                fetch.refusals += 1;
                let has_too_many = is_peer || fetch.refusals >= REFUSALS_MAX;
                // Another request of the same file may have failed first.
                if self.servers.of(file) == server {
                    let path = machine.files().nth(file.0).map(|file| file.path.clone());
                    self.refuse(file, path.as_ref(), reason.clone());
                }
                if has_too_many {
                    self.leave_server(server, reason);
                }
            }
        }
    }

    /// Takes a server that cannot be reached from the list; all files turn to the others.
    fn leave_server(&mut self, server: usize, reason: String) {
        let Phase::Fetching(fetch) = &self.phase else { return };
        let useful = fetch.useful;
        if self.servers.len() <= 1 {
            return self.give_up(useful, reason);
        }
        // Numbers of servers change, and replies of requests under way have old numbers: a new client begins
        // at once.
        self.servers.remove(server);
        self.phase = Phase::Waiting { until: Instant::ZERO, useful };
    }

    /// Moves a busy server behind all others, of which some are peers. A peer that fails leaves the list, so
    /// this ends.
    fn postpone_server(&mut self, server: usize) {
        let Phase::Fetching(fetch) = &self.phase else { return };
        let useful = fetch.useful;
        self.servers.postpone(server);
        self.phase = Phase::Waiting { until: Instant::ZERO, useful };
    }

    /// Lists missing ranges and asks for them, a few at a time.
    fn request<C: ReceiverControl>(&mut self, machine: &FileReceiver<C>) {
        let Self { phase: Phase::Fetching(fetch), servers, .. } = self else { return };
        while fetch.outstanding < REQUESTS_MAX && fetch.whole.is_none() {
            if fetch.ranges.is_empty() {
                let is_wanted = |file| servers.of(file) < servers.len();
                fetch.ranges = machine.missing_ranges(&mut fetch.position, RANGES_MAX, is_wanted).into();
            }
            let Some(range) = fetch.ranges.pop_front() else { break };
            let Some(file) = machine.repair_file(range.file) else { continue };
            // Receivers do not keep encoded content.
            if file.coding.is_some() {
                servers.skip_peers(range.file);
            }
            let server = servers.of(range.file);
            let Some(listed) = servers.get(server) else { continue };
            let (to, is_peer) = (&listed.server, listed.is_peer);
            let takes_whole = machine.missing_bytes(range.file) * 5 >= file.bytes * 4;
            // Peers are servers of ours: each file has its name there.
            let location = file.alternate.filter(|_| to.rule != AddressRule::Any && !is_peer);
            let request = RangeRequest {
                server,
                url: format!("{}{}", to.url, location.unwrap_or(&file.name)),
                rule: to.rule,
                is_peer,
                range,
                etag: file.etag.filter(|_| to.rule != AddressRule::Any).map(str::to_owned),
                file_bytes: file.bytes,
                coding: file.coding,
                takes_whole,
            };
            if !fetch.client.request(request) {
                fetch.ranges.push_front(range);
                break;
            }
            fetch.outstanding += 1;
            // The answer may be the whole file: until then, no second request.
            fetch.whole = takes_whole.then_some(range.file);
        }
        self.end_round(machine);
    }

    /// Begins the next round once all ranges are answered and decoded, or ends the repair.
    fn end_round<C: ReceiverControl>(&mut self, machine: &FileReceiver<C>) {
        let Phase::Fetching(fetch) = &mut self.phase else { return };
        if fetch.outstanding > 0 || !fetch.ranges.is_empty() || machine.has_jobs() {
            return;
        }
        let is_idle = core::mem::take(&mut fetch.useful_of_round) == 0 && !fetch.is_busy;
        fetch.idle_rounds = if is_idle { fetch.idle_rounds + 1 } else { 0 };
        fetch.position = RepairPosition::default();
        if fetch.idle_rounds > IDLE_ROUNDS_MAX + self.servers.len() {
            let useful = fetch.useful;
            self.give_up(useful, "the servers have nothing that is missing".to_owned());
        }
    }
}
