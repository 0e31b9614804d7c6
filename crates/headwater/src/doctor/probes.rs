//! Probes and answers: answering peers, number of routers, treatment of the ECN field on the path; the
//! answering side (`doctor --answer`); a datagram from this machine to this machine, which tests the join,
//! the route and the packet filter together.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use headwater_proto::{ChannelId, Ecn};
use headwater_wire::probe::{Message, ProbeArrival, Request};
use tracing::debug;

use super::check::{Check, Verdict};
use super::{DoctorOptions, error_chain};
use crate::net::{
    AsFd, Channels, Interface, ObservedSocket, OpenError, Poller, ReceiverOptions, ReceiverSocket, RecvBatch,
    Run, SenderOptions, SenderSocket,
};
use crate::threads::{StopHandle, stoppable};

const NAME: &str = "peers";
const ECN: &str = "ECN";
/// ECN code points, in the order of sending.
const CODE_POINTS: [Ecn; 4] = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::CongestionExperienced];
const ROUNDS: u16 = 3;
const PROBES: u16 = ROUNDS * 4;
const INTERVAL: Duration = Duration::from_millis(40);
/// Time to wait for the last answers.
const PATIENCE: Duration = Duration::from_millis(800);
/// Maximum number of peers.
const PEERS_MAX: usize = 64;
/// Maximum number of peers named in a sentence.
const NAMED_MAX: usize = 4;

/// Peer that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the peer.
    pub address: IpAddr,
    /// Whether the peer is this machine.
    pub is_here: bool,
    /// Probes sent to the peer.
    pub probes: u16,
    /// Answered probes.
    pub answers: u16,
    /// Routers on the path to the peer, if the peer's system reports the TTL.
    pub routers: Option<u8>,
    /// Differentiated services code point that arrived, for 0 sent.
    pub dscp: Option<u8>,
    /// Number of probes that arrived with each ECN code point, by the sent code point (as a number).
    pub ecn: [[u16; 4]; 4],
    /// Bit per answered probe, so that a copy of an answer does not count.
    answered: u16,
}

/// Treatment of the ECN field by a path (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnPath {
    /// The field is unchanged.
    Kept,
    /// The peer's system does not report the field.
    Untold,
    /// The field is set to Not-ECT.
    Bleached,
    /// ECN-capable datagrams are dropped.
    Dropped,
    /// ECN-capable datagrams arrive marked: the path is congested, or marks everything.
    Marked,
    /// The field is changed otherwise.
    Mangled,
}

/// Result of probing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeRound {
    nonce: u64,
    ttl: u8,
    here: Vec<IpAddr>,
    /// Peers, at most [`PEERS_MAX`].
    pub peers: Vec<Peer>,
}

/// Sends probes to the group. Takes 1.3 s.
///
/// # Errors
/// The failed operation, with all causes.
pub(super) fn ask(
    channels: &Channels,
    interface: &Interface,
    ttl: u8,
    nonce: u64,
    here: Vec<IpAddr>,
) -> Result<ProbeRound, String> {
    let options = SenderOptions { interface: Some(interface.clone()), ttl, ..SenderOptions::default() };
    let mut socket = SenderSocket::open(channels, &options).map_err(|error| error_chain(&error))?;
    let mut asking = ProbeRound { nonce, ttl, here, peers: Vec::new() };
    let mut ears = ReplyListener::new().map_err(|error| error.to_string())?;
    for sequence in 0..PROBES {
        let contents = Message::Request(asking.request(sequence)).emit();
        let run = Run {
            destination: channels.base(),
            contents: &contents,
            segment_bytes: 0,
            ecn: ecn_of(sequence),
        };
        socket.send(&[run]).map_err(|error| error_chain(&error))?;
        ears.listen(&mut socket, INTERVAL, &mut asking).map_err(|error| error.to_string())?;
    }
    ears.listen(&mut socket, PATIENCE, &mut asking).map_err(|error| error.to_string())?;
    Ok(asking)
}

struct ReplyListener {
    poller: Poller,
    batch: RecvBatch,
}

impl ReplyListener {
    fn new() -> io::Result<Self> {
        Ok(Self { poller: Poller::new()?, batch: RecvBatch::new() })
    }

    fn listen(
        &mut self,
        socket: &mut SenderSocket,
        time: Duration,
        asking: &mut ProbeRound,
    ) -> io::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if socket.recv(&mut self.batch)? == 0 {
                self.poller.wait([socket.as_fd()], Some(until))?;
            }
            self.batch.iter().for_each(|datagram| asking.take(datagram.source, datagram.payload));
        }
        Ok(())
    }
}

fn ecn_of(sequence: u16) -> Ecn {
    CODE_POINTS[usize::from(sequence % 4)]
}

impl ProbeRound {
    fn request(&self, sequence: u16) -> Request {
        Request { nonce: self.nonce, sequence, ttl: self.ttl, traffic_class: ecn_of(sequence) as u8 }
    }

    fn take(&mut self, source: SocketAddr, datagram: &[u8]) {
        let Ok(Message::Reply(request, seen)) = Message::parse(datagram) else { return };
        if request.sequence >= PROBES || request != self.request(request.sequence) {
            return;
        }
        let address = source.ip();
        let at = match self.peers.iter().position(|peer| peer.address == address) {
            Some(at) => at,
            None if self.peers.len() == PEERS_MAX => return,
            None => {
                self.peers.push(Peer::new(address, self.here.contains(&address)));
                self.peers.len() - 1
            }
        };
        self.peers[at].take(request, seen);
    }
}

impl Peer {
    fn new(address: IpAddr, is_here: bool) -> Self {
        let ecn = [[0; 4]; 4];
        Self { address, is_here, probes: PROBES, answers: 0, routers: None, dscp: None, ecn, answered: 0 }
    }

    fn take(&mut self, request: Request, seen: ProbeArrival) {
        let bit = 1 << request.sequence;
        if self.answered & bit != 0 {
            return;
        }
        self.answered |= bit;
        self.answers += 1;
        self.routers = seen.ttl.and_then(|ttl| request.ttl.checked_sub(ttl)).or(self.routers);
        if let Some(class) = seen.traffic_class {
            self.dscp = Some(class >> 2);
            self.ecn[usize::from(request.traffic_class & 3)][usize::from(class & 3)] += 1;
        }
    }

    /// Returns the number of answered probes of a code point.
    fn answers_to(&self, sent: Ecn) -> usize {
        (0..PROBES).filter(|i| self.answered & 1 << i != 0 && ecn_of(*i) == sent).count()
    }

    /// Returns the treatment of the ECN field by the path to the peer.
    pub fn ecn_path(&self) -> EcnPath {
        let arrived = |sent: Ecn, as_what: Ecn| self.ecn[sent as usize][as_what as usize];
        let (capable, marked) = (Ecn::Capable0, Ecn::CongestionExperienced);
        if self.answers_to(Ecn::NotCapable) > 1 && self.answers_to(capable) + self.answers_to(marked) == 0 {
            return EcnPath::Dropped;
        }
        if self.ecn.as_flattened().iter().all(|count| *count == 0) {
            return EcnPath::Untold;
        }
        if arrived(capable, Ecn::NotCapable) + arrived(marked, Ecn::NotCapable) > 0 {
            EcnPath::Bleached
        } else if arrived(marked, capable) + arrived(marked, Ecn::Capable1) + arrived(capable, Ecn::Capable1)
            > 0
        {
            EcnPath::Mangled
        } else if arrived(capable, marked) > 0 {
            EcnPath::Marked
        } else {
            EcnPath::Kept
        }
    }
}

/// Checks for answers. `named`: address of this machine, if peers must name the address to receive probes.
pub(super) fn judge(asking: &Result<ProbeRound, String>, group: SocketAddr, named: Option<IpAddr>) -> Check {
    let source = named.map_or_else(String::new, |source| format!(" --source {source}"));
    let how = format!("on another machine: headwater doctor --answer --group {group}{source}");
    let asking = match asking {
        Ok(asking) => asking,
        Err(reason) => {
            return Check::problem(
                NAME,
                reason.clone(),
                "the lines above may say why; nothing can be sent before",
            );
        }
    };
    if asking.peers.is_empty() {
        return Check::unknown(
            NAME,
            format!("nobody answered {PROBES} probes"),
            format!("to see the path, run {how}"),
        );
    }
    let mut named = asking.peers.iter().take(NAMED_MAX).map(described).collect::<Vec<_>>().join("; ");
    let more = asking.peers.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        named.push_str(&format!("; and {more} more"));
    }
    let mut check = Check::ok(NAME, named);
    if asking.peers.iter().all(|peer| peer.is_here) {
        check = check.with_advice(format!("only this machine answered; to see the path, run {how}"));
    }
    check.peers.clone_from(&asking.peers);
    check
}

/// Checks that congestion marks arrive; `None` without an answer.
pub(super) fn judge_ecn(peers: &[Peer]) -> Option<Check> {
    if peers.is_empty() {
        return None;
    }
    let faults = peers.iter().filter_map(|peer| Some((peer.address, fault(peer.ecn_path())?)));
    let faults = faults.take(NAMED_MAX).collect::<Vec<_>>();
    let Some((_, (verdict, _, advice))) = faults.iter().max_by_key(|(_, (verdict, ..))| *verdict) else {
        return Some(Check::ok(ECN, "ECT(0), ECT(1) and CE arrive as they were sent"));
    };
    let seen = faults.iter().map(|(address, (_, what, _))| format!("{address} {what}"));
    let seen = seen.collect::<Vec<_>>().join("; ");
    Some(match verdict {
        Verdict::Unknown => Check::unknown(ECN, seen, *advice),
        _ => Check::warning(ECN, seen, *advice),
    })
}

/// Returns the verdict, description and advice for a path.
fn fault(path: EcnPath) -> Option<(Verdict, &'static str, &'static str)> {
    const REWRITES: &str = "look for a device that rewrites the TOS or traffic class byte; without marks, \
        congestion shows as loss only";
    Some(match path {
        EcnPath::Kept => return None,
        EcnPath::Untold => (Verdict::Unknown, "does not tell what arrived", "ask a peer on Linux"),
        EcnPath::Bleached => (Verdict::Warning, "gets ECN erased (bleached)", REWRITES),
        EcnPath::Mangled => (Verdict::Warning, "gets another ECN field than was sent", REWRITES),
        EcnPath::Dropped => (
            Verdict::Warning,
            "gets no ECN-capable packets",
            "look for a firewall or an old router that drops packets with ECN bits; sessions that set \
             them do not arrive",
        ),
        EcnPath::Marked => (
            Verdict::Warning,
            "gets ECN-capable packets marked as congested",
            "look again when the network is quiet; a path that marks even then slows every session down",
        ),
    })
}

fn described(peer: &Peer) -> String {
    let whereabouts = match (peer.is_here, peer.routers) {
        (true, _) => ", this machine".to_owned(),
        (false, Some(0)) => ", no router between".to_owned(),
        (false, Some(1)) => ", 1 router between".to_owned(),
        (false, Some(routers)) => format!(", {routers} routers between"),
        (false, None) => String::new(),
    };
    let dscp = match peer.dscp {
        Some(dscp) if dscp != 0 => format!(", DSCP 0 became {dscp}"),
        _ => String::new(),
    };
    format!("{} answered {} of {}{whereabouts}{dscp}", peer.address, peer.answers, peer.probes)
}

/// Maximum burst of answers, and answers per second, which bounds the use of forged sources.
const ANSWERS_AT_ONCE: u32 = 40;
const ANSWERS_PER_SECOND: u32 = 20;
/// Maximum length of a probe in bytes.
const DATAGRAM_BYTES_MAX: usize = 64;

/// Session that answers probes.
#[derive(Debug)]
pub struct Answerer {
    socket: ObservedSocket,
    interface: Interface,
    poller: Poller,
    stop: StopHandle,
    allowance: Allowance,
}

/// Received probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedProbe {
    /// Sender of the probe.
    pub by: SocketAddr,
    /// Content of the probe.
    pub request: Request,
    /// Header fields on arrival.
    pub seen: ProbeArrival,
    /// Whether the probe was answered; otherwise too many probes arrived, or sending failed.
    pub is_answered: bool,
}

impl Answerer {
    /// Joins the group.
    ///
    /// # Errors
    /// [`OpenError`]: no interface, the port is taken, or the group cannot be joined.
    pub fn open(options: &DoctorOptions) -> Result<Self, OpenError> {
        let interface = options.find_interface()?;
        let socket = ObservedSocket::open(options.group, &interface, options.source)?;
        let (poller, stop) = stoppable()?;
        Ok(Self { socket, interface, poller, stop, allowance: Allowance::full(Instant::now()) })
    }

    /// Returns the interface of the session.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns a handle that stops the session from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Answers until stopped.
    ///
    /// # Errors
    /// If receiving fails for good: the interface is gone.
    pub fn run(&mut self, observe: &mut dyn FnMut(&ReceivedProbe)) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        while !self.stop.is_stopped() {
            let Some(observed) = self.socket.recv(&mut buffer)? else {
                self.poller.wait([self.socket.as_fd()], None)?;
                continue;
            };
            let Ok(Message::Request(request)) = Message::parse(&buffer[..observed.bytes]) else { continue };
            let seen = ProbeArrival { ttl: observed.ttl, traffic_class: observed.traffic_class };
            let is_answered =
                self.allowance.take(Instant::now()) && self.answer(request, seen, observed.source);
            observe(&ReceivedProbe { by: observed.source, request, seen, is_answered });
        }
        Ok(())
    }

    fn answer(&self, request: Request, seen: ProbeArrival, to: SocketAddr) -> bool {
        let reply = Message::Reply(request, seen).emit();
        match self.socket.send_to(&reply, to) {
            Ok(()) => true,
            Err(error) => {
                debug!(%to, %error, "an answer could not be sent");
                false
            }
        }
    }
}

/// Token bucket.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// Instant up to which tokens were added.
    filled: Instant,
}

impl Allowance {
    fn full(now: Instant) -> Self {
        Self { left: ANSWERS_AT_ONCE, filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        const INTERVAL: Duration = Duration::from_millis(1_000 / ANSWERS_PER_SECOND as u64);
        let due = now.saturating_duration_since(self.filled).as_nanos() / INTERVAL.as_nanos();
        if due >= u128::from(ANSWERS_AT_ONCE) {
            *self = Self::full(now);
        } else {
            let due = u32::try_from(due).expect("below the size of the bucket");
            self.left = (self.left + due).min(ANSWERS_AT_ONCE);
            self.filled += INTERVAL * due;
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
}

const LOOPBACK_NAME: &str = "loopback";
/// Maximum time of a datagram to this machine, with a wide margin.
const LOOPBACK_PATIENCE: Duration = Duration::from_millis(500);

/// Fate of the datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoopbackOutcome {
    /// The datagram arrived.
    Heard,
    /// The datagram did not arrive.
    Silence,
    /// Sending or joining failed.
    Failed(String),
}

/// Sends to the group and listens.
pub(super) fn probe_loopback(channels: &Channels, interface: &Interface, nonce: u64) -> LoopbackOutcome {
    attempt(channels, interface, nonce).unwrap_or_else(LoopbackOutcome::Failed)
}

fn attempt(channels: &Channels, interface: &Interface, nonce: u64) -> Result<LoopbackOutcome, String> {
    let options = SenderOptions { interface: Some(interface.clone()), ttl: 0, ..SenderOptions::default() };
    let mut sender = SenderSocket::open(channels, &options).map_err(|error| error_chain(&error))?;
    // Source-specific groups need a named source: this machine.
    let source = channels.is_source_specific().then(|| sender.local_addr().ip());
    let options =
        ReceiverOptions { interface: Some(interface.clone()), source, ..ReceiverOptions::default() };
    let mut receiver = ReceiverSocket::open(channels, &options).map_err(|error| error_chain(&error))?;
    receiver.join(ChannelId::BASE).map_err(|error| error_chain(&error))?;
    let request = Request { nonce, sequence: 0, ttl: 0, traffic_class: 0 };
    // A reply is never answered, so that no peer on this machine takes part.
    let (destination, contents) = (channels.base(), Message::Reply(request, ProbeArrival::default()).emit());
    let run = Run { destination, contents: &contents, segment_bytes: 0, ecn: Ecn::NotCapable };
    sender.send(&[run]).map_err(|error| error_chain(&error))?;
    match comes_back(&mut receiver, &contents) {
        Ok(true) => Ok(LoopbackOutcome::Heard),
        Ok(false) => Ok(LoopbackOutcome::Silence),
        Err(error) => Err(error.to_string()),
    }
}

fn comes_back(receiver: &mut ReceiverSocket, contents: &[u8]) -> io::Result<bool> {
    let deadline = Instant::now() + LOOPBACK_PATIENCE;
    let (mut poller, mut batch) = (Poller::new()?, RecvBatch::new());
    while Instant::now() < deadline {
        if receiver.recv(&mut batch)? == 0 {
            poller.wait(receiver.fds(), Some(deadline))?;
        }
        if batch.iter().any(|datagram| datagram.payload == contents) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that this machine receives its own datagrams.
pub(super) fn judge_loopback(outcome: &LoopbackOutcome, channels: &Channels, interface: &Interface) -> Check {
    let group = channels.base();
    let name = &interface.name;
    match outcome {
        LoopbackOutcome::Heard => {
            Check::ok(LOOPBACK_NAME, format!("a datagram sent to {group} on {name} was received here"))
        }
        LoopbackOutcome::Silence => Check::problem(
            LOOPBACK_NAME,
            format!("a datagram sent to {group} on {name} was not received here"),
            format!(
                "the firewall of this machine is the likeliest reason: let UDP port {} in; then rp_filter",
                channels.port()
            ),
        ),
        LoopbackOutcome::Failed(reason) => Check::problem(
            LOOPBACK_NAME,
            reason.clone(),
            "the lines above may say why; nothing can be sent or received before",
        ),
    }
}

#[cfg(test)]
mod peers_tests {
    use super::*;

    const PEER: &str = "192.0.2.7";

    /// Peers as they result from a path that changes what was sent; `None` drops it.
    fn asked(path: impl Fn(u8) -> Option<u8>) -> ProbeRound {
        let mut asking = ProbeRound { nonce: 9, ttl: 8, here: Vec::new(), peers: Vec::new() };
        for sequence in 0..PROBES {
            let request = asking.request(sequence);
            if let Some(class) = path(request.traffic_class) {
                let seen = ProbeArrival { ttl: Some(6), traffic_class: Some(class) };
                asking.take(
                    SocketAddr::new(PEER.parse().unwrap(), 7287),
                    &Message::Reply(request, seen).emit(),
                );
            }
        }
        asking
    }

    fn ecn_path(path: impl Fn(u8) -> Option<u8>) -> EcnPath {
        asked(path).peers[0].ecn_path()
    }

    #[test]
    fn what_a_path_does_to_ecn_is_told() {
        assert_eq!(ecn_path(Some), EcnPath::Kept);
        assert_eq!(ecn_path(|_| Some(0)), EcnPath::Bleached);
        assert_eq!(ecn_path(|ecn| Some(if ecn == 3 { 0 } else { ecn })), EcnPath::Bleached);
        assert_eq!(ecn_path(|ecn| (ecn == 0).then_some(0)), EcnPath::Dropped);
        assert_eq!(ecn_path(|ecn| Some(if ecn == 0 { 0 } else { 3 })), EcnPath::Marked);
        assert_eq!(ecn_path(|ecn| Some(if ecn == 3 { 2 } else { ecn })), EcnPath::Mangled);
        // A rewritten code point of differentiated services is no fault of ECN's.
        assert_eq!(ecn_path(|ecn| Some(46 << 2 | ecn)), EcnPath::Kept);
    }

    #[test]
    fn routers_answers_and_dscp_are_counted() {
        let asking = asked(|ecn| Some(46 << 2 | ecn));
        let peer = &asking.peers[0];
        assert_eq!((peer.routers, peer.answers, peer.dscp), (Some(2), 12, Some(46)));
        let check = judge(&Ok(asking), "239.1.1.1:1".parse().unwrap(), None);
        assert_eq!(check.seen, "192.0.2.7 answered 12 of 12, 2 routers between, DSCP 0 became 46");
        assert_eq!(judge_ecn(&check.peers).unwrap().verdict, Verdict::Ok);
        assert_eq!(judge_ecn(&asked(|_| Some(0)).peers).unwrap().verdict, Verdict::Warning);
        assert_eq!(judge_ecn(&[]), None);
    }

    #[test]
    fn forged_and_repeated_answers_do_not_count() {
        let mut asking = asked(|ecn| (ecn == 0).then_some(0));
        let peer = SocketAddr::new(PEER.parse().unwrap(), 7287);
        let before = asking.clone();
        let again = asking.request(0);
        let seen = ProbeArrival { ttl: Some(6), traffic_class: Some(3) };
        for forged in
            [again, Request { nonce: 8, ..asking.request(1) }, Request { ttl: 255, ..asking.request(1) }]
        {
            asking.take(peer, &Message::Reply(forged, seen).emit());
        }
        let beyond = Request { sequence: PROBES, ..asking.request(0) };
        asking.take(peer, &Message::Reply(beyond, seen).emit());
        asking.take(peer, &Message::Request(asking.request(1)).emit());
        assert_eq!(asking, before);
        for last in 0..=255 {
            asking.take(SocketAddr::from(([10, 0, 0, last], 1)), &Message::Reply(again, seen).emit());
        }
        assert_eq!(asking.peers.len(), PEERS_MAX);
    }

    #[test]
    fn nobody_and_failure_differ() {
        let group = "239.1.1.1:1".parse().unwrap();
        let nobody = judge(&Ok(asked(|_| None)), group, "192.0.2.1".parse().ok());
        assert_eq!(nobody.verdict, Verdict::Unknown);
        assert!(
            nobody
                .advice
                .unwrap()
                .contains("headwater doctor --answer --group 239.1.1.1:1 --source 192.0.2.1")
        );
        assert_eq!(judge(&Err("no route".to_owned()), group, None).verdict, Verdict::Problem);
    }
}

#[cfg(test)]
mod answer_tests {
    use super::*;

    #[test]
    fn answers_are_limited_at_once_and_over_time() {
        let start = Instant::now();
        let mut allowance = Allowance::full(start);
        let mut answered =
            |at: Duration, asked: usize| (0..asked).filter(|_| allowance.take(start + at)).count();
        assert_eq!(answered(Duration::ZERO, 100), 40);
        assert_eq!(answered(Duration::from_millis(49), 100), 0);
        assert_eq!(answered(Duration::from_millis(1_000), 100), 20);
        assert_eq!(answered(Duration::from_secs(86_400), 100), 40);
        // Asked steadily for ten seconds.
        let steady =
            (0..1_000).map(|i| answered(Duration::from_millis(86_400_000 + i * 10), 1)).sum::<usize>();
        assert_eq!(steady, 199);
    }
}

#[cfg(test)]
mod loopback_tests {
    use super::*;
    use crate::doctor::check::Verdict;

    #[test]
    fn silence_and_refusals_are_problems() {
        let channels = Channels::new("239.255.72.99:17287".parse().unwrap(), 1).unwrap();
        let interface = Interface::find("lo").unwrap();
        let verdict = |outcome| judge_loopback(&outcome, &channels, &interface).verdict;
        assert_eq!(verdict(LoopbackOutcome::Heard), Verdict::Ok);
        assert_eq!(verdict(LoopbackOutcome::Silence), Verdict::Problem);
        assert_eq!(verdict(LoopbackOutcome::Failed("no".to_owned())), Verdict::Problem);
        assert_eq!(probe_loopback(&channels, &interface, 1), LoopbackOutcome::Heard);
    }
}
