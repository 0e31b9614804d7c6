//! Check for a querier of memberships. Without a querier, snooping switches forget groups after some minutes,
//! and routers never learn of groups.
//!
//! Listens for IGMP and MLD queries on a raw socket, and provokes a query: a querier asks for remaining
//! members when a group is left (RFC 3376 section 6.4.2, RFC 3810 section 7.4.2).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use super::check::Check;
use super::limits;
use crate::net::{AsFd, Interface, Poller, bind_interface};

const NAME: &str = "querier";

/// Minimum time to listen: after a leave, a querier asks twice, a second apart (RFC 3376 section 8.8).
const ANSWERED_BY: Duration = Duration::from_secs(2);

/// Received query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Query {
    /// Address of the querier.
    pub source: IpAddr,
    /// IGMP version 1 to 3, or MLD version 1 or 2.
    pub version: u8,
}

/// Result of listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuerierSurvey {
    /// A query arrived.
    Heard(Query),
    /// No query arrived, not even after a leave.
    Silence(Duration),
    /// This process has no right to open raw sockets.
    Forbidden,
    /// The socket failed for another reason.
    Failed,
}

impl QuerierSurvey {
    /// Returns the version of the received query.
    pub(super) fn version(self) -> Option<u8> {
        match self {
            Self::Heard(query) => Some(query.version),
            Self::Silence(_) | Self::Forbidden | Self::Failed => None,
        }
    }
}

/// Bridge of this machine that is the interface or contains the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bridge {
    /// Name of the bridge.
    pub name: String,
    /// Whether the bridge forwards groups only to ports with members.
    pub snoops: bool,
    /// Whether the bridge sends queries.
    pub queries: bool,
}

/// Returns the bridge of an interface.
pub(super) fn bridge_of(interface: &str) -> Option<Bridge> {
    let class = format!("/sys/class/net/{interface}");
    let name = match std::fs::read_link(format!("{class}/brport/bridge")) {
        Ok(target) => target.file_name()?.to_str()?.to_owned(),
        Err(_) => interface.to_owned(),
    };
    let setting = |what: &str| limits::read_number(&format!("/sys/class/net/{name}/bridge/multicast_{what}"));
    let snoops = setting("snooping")? == 1;
    Some(Bridge { snoops, queries: setting("querier") == Some(1), name })
}

/// Parses an IGMP message with the IP header (RFC 2236, RFC 3376 section 4.1).
pub(super) fn igmp_query(packet: &[u8]) -> Option<Query> {
    const MEMBERSHIP_QUERY: u8 = 0x11;
    let header_bytes = usize::from(*packet.first()? & 0x0F) * 4;
    let source = <[u8; 4]>::try_from(packet.get(12..16)?).ok()?;
    let message = packet.get(header_bytes..)?;
    if *message.first()? != MEMBERSHIP_QUERY {
        return None;
    }
    let version = match (message.len(), message.get(1)?) {
        (0..8, _) => return None,
        (8..12, 0) => 1,
        (8..12, _) => 2,
        _ => 3,
    };
    Some(Query { source: source.into(), version })
}

/// Parses an MLD message of a raw socket, without the IP header (RFC 3810 section 5.1).
pub(super) fn mld_query(message: &[u8], source: IpAddr) -> Option<Query> {
    const MULTICAST_LISTENER_QUERY: u8 = 130;
    if *message.first()? != MULTICAST_LISTENER_QUERY || message.len() < 24 {
        return None;
    }
    Some(Query { source, version: if message.len() >= 28 { 2 } else { 1 } })
}

/// Checks for a querier.
pub(super) fn judge(
    listening: QuerierSurvey,
    bridge: Option<&Bridge>,
    is_ipv4: bool,
    is_source_specific: bool,
) -> Check {
    let protocol = if is_ipv4 { "IGMP" } else { "MLD" };
    if let Some(Bridge { name, queries: true, snoops: true }) = bridge {
        return Check::ok(NAME, format!("bridge {name} of this machine asks for members itself"));
    }
    let unserved = bridge.filter(|bridge| bridge.snoops);
    match (listening, unserved) {
        (QuerierSurvey::Heard(query), _) => judge_query(query, protocol, is_ipv4, is_source_specific),
        (QuerierSurvey::Silence(_) | QuerierSurvey::Forbidden | QuerierSurvey::Failed, Some(bridge)) => {
            Check::warning(
                NAME,
                format!(
                    "bridge {} snoops, but neither asks for members nor heard anybody ask: it may drop groups \
                 after minutes",
                    bridge.name
                ),
                format!(
                    "let it ask: ip link set dev {0} type bridge mcast_querier 1; or flood: ip link set dev \
                 {0} type bridge mcast_snooping 0",
                    bridge.name
                ),
            )
        }
        (QuerierSurvey::Silence(waited), None) if waited < ANSWERED_BY => Check::unknown(
            NAME,
            format!("no {protocol} query in {:.1} s, which is too short to tell", waited.as_secs_f64()),
            "listen for longer: --wait 3s",
        ),
        (QuerierSurvey::Silence(waited), None) => Check::warning(
            NAME,
            format!("no {protocol} query in {:.1} s, not even when a group was left", waited.as_secs_f64()),
            "fine on a plain link; where a switch snoops or a router is to forward, enable its querier, \
             or sessions stop after minutes",
        ),
        (QuerierSurvey::Forbidden, None) => Check::unknown(
            NAME,
            format!("listening for {protocol} queries needs CAP_NET_RAW"),
            "run this as root; where a switch snoops, it or a router must be querier, or sessions stop \
             after minutes",
        ),
        (QuerierSurvey::Failed, None) => Check::unknown(
            NAME,
            format!("{protocol} queries cannot be listened for on this interface"),
            "where a switch snoops, it or a router must be querier, or sessions stop after minutes",
        ),
    }
}

fn judge_query(query: Query, protocol: &str, is_ipv4: bool, is_source_specific: bool) -> Check {
    let newest = if is_ipv4 { 3 } else { 2 };
    let Query { source, version } = query;
    // A switch that sends queries for a router uses no source address (RFC 4541 section 2.1.1).
    let by = if source.is_unspecified() { "a switch".to_owned() } else { source.to_string() };
    let seen = format!("{by} asks by {protocol}v{version}");
    if is_source_specific && version < newest {
        return Check::problem(
            NAME,
            format!("{seen}, which knows no sources"),
            format!(
                "set it to {protocol}v{newest}: this group is served only to receivers that name their source"
            ),
        );
    }
    Check::ok(NAME, seen)
}

/// Unused groups, which are left to provoke a query: organization-local, next to the default group.
const SCRATCH_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 72, 86);
const SCRATCH_V6: Ipv6Addr = Ipv6Addr::new(0xFF15, 0, 0, 0, 0, 0, 0x4857, 0x6472);
/// Time of membership, in which the join is reported, and time after the leave, in which the leave is
/// reported.
const HELD: Duration = Duration::from_millis(300);
const IGMP: i32 = 2;
const MESSAGE_BYTES_MAX: usize = 2_048;

/// Listens until `deadline`.
pub(super) fn listen(interface: &Interface, is_ipv4: bool, deadline: Instant) -> QuerierSurvey {
    let start = Instant::now();
    match receive_query(interface, is_ipv4, deadline) {
        Ok(Some(query)) => QuerierSurvey::Heard(query),
        Ok(None) => QuerierSurvey::Silence(start.elapsed()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => QuerierSurvey::Forbidden,
        Err(_) => QuerierSurvey::Failed,
    }
}

fn receive_query(interface: &Interface, is_ipv4: bool, deadline: Instant) -> io::Result<Option<Query>> {
    let socket = raw_socket(interface, is_ipv4)?;
    let mut poller = Poller::new()?;
    let mut hear = |until: Instant| next_query(&socket, &mut poller, is_ipv4, until.min(deadline));
    // Join, leave and join again, because the query goes to the group.
    for is_joined in [true, false] {
        member(&socket, interface.index, is_ipv4, is_joined)?;
        if let Some(query) = hear(Instant::now() + HELD)? {
            return Ok(Some(query));
        }
    }
    member(&socket, interface.index, is_ipv4, true)?;
    hear(deadline)
}

fn raw_socket(interface: &Interface, is_ipv4: bool) -> io::Result<Socket> {
    let (domain, protocol) =
        if is_ipv4 { (Domain::IPV4, Protocol::from(IGMP)) } else { (Domain::IPV6, Protocol::ICMPV6) };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_nonblocking(true)?;
    bind_interface(&socket, interface)?;
    Ok(socket)
}

fn member(socket: &Socket, index: u32, is_ipv4: bool, is_joined: bool) -> io::Result<()> {
    let on = InterfaceIndexOrAddress::Index(index);
    match (is_ipv4, is_joined) {
        (true, true) => socket.join_multicast_v4_n(&SCRATCH_V4, &on),
        (true, false) => socket.leave_multicast_v4_n(&SCRATCH_V4, &on),
        (false, true) => socket.join_multicast_v6(&SCRATCH_V6, index),
        (false, false) => socket.leave_multicast_v6(&SCRATCH_V6, index),
    }
}

fn next_query(
    socket: &Socket,
    poller: &mut Poller,
    is_ipv4: bool,
    until: Instant,
) -> io::Result<Option<Query>> {
    // The type reads from a raw socket as well.
    let reader = UdpSocket::from(socket.try_clone()?);
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    loop {
        let (bytes, from) = match reader.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if Instant::now() >= until {
                    return Ok(None);
                }
                poller.wait([socket.as_fd()], Some(until))?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let message = &buffer[..bytes];
        let query = if is_ipv4 { igmp_query(message) } else { mld_query(message, from.ip()) };
        // A busy link must not extend the deadline.
        if query.is_some() || Instant::now() >= until {
            return Ok(query);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    fn igmp(message: &[u8]) -> Option<Query> {
        // With the router alert option: 24 bytes of header.
        let mut packet =
            vec![0x46, 0xC0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 192, 0, 2, 1, 224, 0, 0, 1, 0x94, 4, 0, 0];
        packet.extend(message);
        igmp_query(&packet)
    }

    #[test]
    fn versions_of_queries_are_told_by_length_and_code() {
        let query = |version| Some(Query { source: "192.0.2.1".parse().unwrap(), version });
        assert_eq!(igmp(&[0x11, 0, 0, 0, 0, 0, 0, 0]), query(1));
        assert_eq!(igmp(&[0x11, 100, 0, 0, 0, 0, 0, 0]), query(2));
        assert_eq!(igmp(&[0x11, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]), query(3));
        assert_eq!(igmp(&[0x22, 100, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(igmp(&[0x11, 100]), None);
        assert_eq!((igmp_query(&[]), igmp_query(&[0x4F; 20])), (None, None));
        let router = "fe80::1".parse().unwrap();
        let mut message = [0; 28];
        message[0] = 130;
        assert_eq!(mld_query(&message, router).map(|query| query.version), Some(2));
        assert_eq!(mld_query(&message[..24], router).map(|query| query.version), Some(1));
        assert_eq!((mld_query(&message[..23], router), mld_query(&[143; 28], router)), (None, None));
    }

    #[test]
    fn a_bridge_that_snoops_alone_is_a_warning() {
        let silence = QuerierSurvey::Silence(Duration::from_secs(3));
        let bridge = |snoops, queries| Bridge { name: "br0".to_owned(), snoops, queries };
        let check = judge(silence, Some(&bridge(true, false)), true, false);
        assert_eq!(check.verdict, Verdict::Warning);
        assert!(check.advice.unwrap().contains("ip link set dev br0 type bridge mcast_querier 1"));
        assert_eq!(judge(silence, Some(&bridge(true, true)), true, false).verdict, Verdict::Ok);
        assert_eq!(judge(QuerierSurvey::Forbidden, None, true, false).verdict, Verdict::Unknown);
        assert_eq!(judge(silence, None, false, false).verdict, Verdict::Warning);
        let short = QuerierSurvey::Silence(Duration::from_millis(100));
        assert_eq!(judge(short, None, true, false).verdict, Verdict::Unknown);
    }

    #[test]
    fn an_old_querier_spoils_source_specific_groups_only() {
        let heard = |version| QuerierSurvey::Heard(Query { source: "192.0.2.1".parse().unwrap(), version });
        assert_eq!(judge(heard(2), None, true, false).verdict, Verdict::Ok);
        assert_eq!(judge(heard(2), None, true, true).verdict, Verdict::Problem);
        assert_eq!(judge(heard(2), None, false, true).verdict, Verdict::Ok);
        let switch = QuerierSurvey::Heard(Query { source: "0.0.0.0".parse().unwrap(), version: 3 });
        assert!(judge(switch, None, true, true).seen.starts_with("a switch"));
    }
}
