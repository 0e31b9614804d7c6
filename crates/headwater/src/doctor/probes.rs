//! Who answers, from how far, and what became of the ECN field on the way.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use headwater_proto::Ecn;
use headwater_wire::probe::{Message, Request, Seen};

use super::check::{Check, Verdict};
use super::error_chain;
use crate::net::{Channels, Interface, Poller, RecvBatch, Run, SenderOptions, SenderSocket};

const NAME: &str = "peers";
const ECN: &str = "ECN";
/// The code points, in the order in which a round sends them.
const CODE_POINTS: [Ecn; 4] = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::CongestionExperienced];
const ROUNDS: u16 = 3;
const PROBES: u16 = ROUNDS * 4;
const INTERVAL: Duration = Duration::from_millis(40);
/// How long the last answers may take.
const PATIENCE: Duration = Duration::from_millis(800);
/// Most peers told apart.
const PEERS_MAX: usize = 64;
/// Most peers named in a sentence.
const NAMED_MAX: usize = 4;

/// A peer that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Whether it is this machine.
    pub is_here: bool,
    /// Probes sent to it.
    pub probes: u16,
    /// Probes that it answered.
    pub answers: u16,
    /// Routers passed on the way there, where its system tells the TTL.
    pub routers: Option<u8>,
    /// Differentiated services code point that arrived, of 0 that was sent.
    pub dscp: Option<u8>,
    /// By ECN code point sent (as a number): how many arrived with each code point.
    pub ecn: [[u16; 4]; 4],
    /// A bit per probe answered, so that a copy of an answer does not count.
    answered: u16,
}

/// What a path does to the ECN field (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnPath {
    /// Nothing.
    Kept,
    /// The peer's system does not tell.
    Untold,
    /// It is set to Not-ECT.
    Bleached,
    /// Datagrams that are ECN-capable are dropped.
    Dropped,
    /// ECN-capable datagrams arrive marked: the path is congested, or marks everything.
    Marked,
    /// Otherwise changed.
    Mangled,
}

/// What asking came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asking {
    nonce: u64,
    ttl: u8,
    here: Vec<IpAddr>,
    /// At most [`PEERS_MAX`].
    pub peers: Vec<Peer>,
}

/// Asks on the group. Takes a second and a third.
///
/// # Errors
/// What was refused, with its causes.
pub(super) fn ask(
    channels: &Channels,
    interface: &Interface,
    ttl: u8,
    nonce: u64,
    here: Vec<IpAddr>,
) -> Result<Asking, String> {
    let options = SenderOptions { interface: Some(interface.clone()), ttl, ..SenderOptions::default() };
    let mut socket = SenderSocket::open(channels, &options).map_err(|error| error_chain(&error))?;
    let mut asking = Asking { nonce, ttl, here, peers: Vec::new() };
    let mut ears = Ears::new().map_err(|error| error.to_string())?;
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

struct Ears {
    poller: Poller,
    batch: RecvBatch,
}

impl Ears {
    fn new() -> io::Result<Self> {
        Ok(Self { poller: Poller::new()?, batch: RecvBatch::new() })
    }

    fn listen(&mut self, socket: &mut SenderSocket, time: Duration, asking: &mut Asking) -> io::Result<()> {
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

impl Asking {
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

    fn take(&mut self, request: Request, seen: Seen) {
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

    /// Probes of a code point that it answered.
    fn answers_to(&self, sent: Ecn) -> usize {
        (0..PROBES).filter(|i| self.answered & 1 << i != 0 && ecn_of(*i) == sent).count()
    }

    /// What the path to it does to the ECN field.
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

/// Whether anybody answers. `named`: our address, where peers must name it to hear us.
pub(super) fn judge(asking: &Result<Asking, String>, group: SocketAddr, named: Option<IpAddr>) -> Check {
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

/// Whether congestion marks would arrive; nothing when nobody answered.
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

/// How bad a path is, what its end gets, and what to do.
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

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "192.0.2.7";

    /// Peers as they result from a path that changes what was sent; `None` drops it.
    fn asked(path: impl Fn(u8) -> Option<u8>) -> Asking {
        let mut asking = Asking { nonce: 9, ttl: 8, here: Vec::new(), peers: Vec::new() };
        for sequence in 0..PROBES {
            let request = asking.request(sequence);
            if let Some(class) = path(request.traffic_class) {
                let seen = Seen { ttl: Some(6), traffic_class: Some(class) };
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
        let seen = Seen { ttl: Some(6), traffic_class: Some(3) };
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
