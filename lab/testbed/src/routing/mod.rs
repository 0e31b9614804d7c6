//! Routing between hosts: bridges that snoop IGMP or MLD, routers with IGMPv3 and PIM-SSM, or bridges that
//! flood.
//!
//! The kernel's bridges in a single subnet.
//!
//! The bridge next to the source queries for members; the rest of the bridges pass reports on towards that
//! querier. Two settings are essential. A port towards hosts behind another bridge never leaves fast, because
//! other members may be behind the port. A port towards the querier receives all multicast, so that sources
//! anywhere are heard.

mod frr;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration as StdDuration;
use std::{fmt, thread};

use headwater_netsim::plan::Scenario;
use headwater_netsim::plan::flow::Receivers;
use headwater_proto::Duration;

use crate::Error;
use crate::network::{Network, without};
use crate::shape::{Role, Shape};

/// Protocol by which hosts join groups, and bridges know members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupProtocol {
    /// Joins name sources: a leave takes a third of a second, or more where the queues are long.
    Igmpv3,
    /// Joins name no source, so that a link carries all senders of a group, and a leave takes two queries of
    /// a second each (RFC 2236, section 8).
    Igmpv2,
    /// IGMPv3's equivalent for groups of IPv6.
    Mldv2,
    /// IGMPv2's equivalent for groups of IPv6 (RFC 2710).
    Mldv1,
}

impl GroupProtocol {
    /// Whether groups are of IPv6.
    pub(crate) fn is_ipv6(self) -> bool {
        matches!(self, Self::Mldv2 | Self::Mldv1)
    }

    /// Whether joins name sources.
    fn names_sources(self) -> bool {
        matches!(self, Self::Igmpv3 | Self::Mldv2)
    }

    /// Returns the versions of IGMP and of MLD of hosts and bridges.
    pub(crate) fn versions(self) -> (u8, u8) {
        if self.names_sources() { (3, 2) } else { (2, 1) }
    }
}

/// Multicast forwarding of a bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Bridges of the kernel in a single subnet.
    Bridge(GroupProtocol),
    /// FRR's zebra and pimd in each router, a subnet for each link: source-specific groups, leaves within
    /// 0.11 s.
    Frr,
    /// Bridges that know no members: every group goes everywhere.
    Static,
}

/// Routing by name.
const NAMES: [(&str, Routing); 6] = [
    ("bridge", Routing::Bridge(GroupProtocol::Igmpv3)),
    ("igmpv2", Routing::Bridge(GroupProtocol::Igmpv2)),
    ("mldv2", Routing::Bridge(GroupProtocol::Mldv2)),
    ("mldv1", Routing::Bridge(GroupProtocol::Mldv1)),
    ("frr", Routing::Frr),
    ("static", Routing::Static),
];

impl Routing {
    /// Returns FRR if installed, else bridges.
    pub fn best() -> Self {
        if Self::Frr.missing().is_none() { Self::Frr } else { Self::Bridge(GroupProtocol::Igmpv3) }
    }

    /// Returns a required program that this machine lacks, if any.
    pub(crate) fn missing(self) -> Option<&'static str> {
        match self {
            Self::Frr => frr::PROGRAMS.into_iter().find(|program| !Path::new(program).exists()),
            Self::Bridge(_) | Self::Static => None,
        }
    }

    /// Returns the protocol of hosts.
    pub(crate) fn protocol(self) -> GroupProtocol {
        match self {
            Self::Bridge(protocol) => protocol,
            Self::Frr | Self::Static => GroupProtocol::Igmpv3,
        }
    }
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, routing)| routing == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Routing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, routing)| *routing);
        found.ok_or_else(|| {
            format!("'{text}' is no routing; there are {}", NAMES.map(|(name, _)| name).join(", "))
        })
    }
}

/// The routing of a bed.
#[derive(Debug)]
pub(crate) struct Router {
    routing: Routing,
    frr: Option<frr::Daemons>,
}

impl Router {
    pub fn new(routing: Routing) -> Self {
        Self { routing, frr: None }
    }

    /// Sets up addresses for all hosts, and forwarding at all routers. Programs keep files below `folder`.
    pub fn make(
        &mut self,
        network: &Network,
        shape: &Shape,
        scenario: &Scenario,
        folder: &Path,
    ) -> Result<(), Error> {
        match self.routing {
            Routing::Bridge(protocol) => {
                let least = if protocol.names_sources() { Duration::ZERO } else { OLD_LEAVE };
                let snooping = Snooping { protocol, leaves: scenario.leave_latency.max(least) };
                make_bridges(network, shape, root(shape, scenario), Some(snooping))
            }
            Routing::Static => make_bridges(network, shape, root(shape, scenario), None),
            Routing::Frr => {
                self.frr = Some(frr::make(network, shape, folder)?);
                Ok(())
            }
        }
    }

    /// Waits until memberships are known to the routers.
    pub fn settle(&self, network: &Network, shape: &Shape) -> Result<(), Error> {
        match &self.frr {
            Some(daemons) => daemons.settle(network, shape),
            None => {
                if matches!(self.routing, Routing::Bridge(_)) {
                    wait_for_bridges();
                }
                Ok(())
            }
        }
    }
}

/// A host's address.
pub(crate) fn address(routing: Routing, shape: &Shape, host: usize) -> Ipv4Addr {
    match (routing, shape.neighbours(host).first()) {
        (Routing::Frr, Some((link, _))) => Shape::link_address(*link, shape.end(*link, host)),
        _ => Shape::flat_address(host),
    }
}

/// A host's address as the source of groups.
pub(crate) fn group_source(routing: Routing, shape: &Shape, host: usize) -> IpAddr {
    match routing.protocol().is_ipv6() {
        true => Shape::flat_address6(host).into(),
        false => address(routing, shape, host).into(),
    }
}

/// Router next to the first source of a group, which queries for members. Without groups, the first router.
fn root(shape: &Shape, scenario: &Scenario) -> Option<usize> {
    let casts = scenario.flows.iter().find(|flow| matches!(flow.to, Receivers::Group(_)));
    let next = casts.and_then(|flow| shape.neighbours(flow.from).first()).map(|(_, next)| *next);
    next.filter(|next| shape.routers().any(|router| router == *next)).or_else(|| shape.routers().next())
}

/// Minimum interval between two queries for members, in hundredths of a second; a port is pruned after three
/// queries without an answer.
const LAST_MEMBER_INTERVAL: u64 = 10;
const LAST_MEMBER_COUNT: u64 = 3;
/// Duration of a leave by IGMPv2 or MLDv1: two queries of a second each (RFC 2236, section 8).
const OLD_LEAVE: Duration = Duration::from_secs(2);
const OLD_LAST_MEMBER_COUNT: u64 = 2;
/// Bridges forward by known memberships only after their first response interval.
const SETTLING: StdDuration = StdDuration::from_millis(1_000);

/// Snooping of a bed's bridges.
#[derive(Clone, Copy)]
struct Snooping {
    protocol: GroupProtocol,
    /// Desired duration of a leave.
    leaves: Duration,
}

/// Creates bridges at all routers. Without `snooping`, bridges track no members and flood.
fn make_bridges(
    network: &Network,
    shape: &Shape,
    root: Option<usize>,
    snooping: Option<Snooping>,
) -> Result<(), Error> {
    for router in shape.routers() {
        let is_root = root == Some(router);
        let options =
            snooping.map_or_else(|| "mcast_snooping 0".into(), |snooping| snooping.options(shape, is_root));
        let mut commands = vec![
            format!("link add bridge type bridge stp_state 0 {options}"),
            "link set dev bridge up".into(),
        ];
        for (link, other) in shape.neighbours(router) {
            let port = Network::port(shape, router, *link);
            commands.push(format!("link set dev {port} master bridge"));
            let is_up = root.is_some_and(|root| !is_root && shape.way(router, root) == Some(*link));
            // By IGMPv2 and MLDv1 a switch waits for answers to its queries.
            let is_fast = shape.roles[*other] == Role::Host
                && snooping.is_some_and(|snooping| snooping.protocol.names_sources());
            let leaves_fast = if is_fast { "on" } else { "off" };
            if snooping.is_some() {
                let towards = if is_up { 2 } else { 0 };
                commands.push(format!(
                    "link set dev {port} type bridge_slave mcast_router {towards} mcast_fast_leave {leaves_fast}"
                ));
            }
        }
        network.ip(router, &commands).map_err(|error| {
            without(error, "bridges that snoop IGMP (CONFIG_BRIDGE, CONFIG_BRIDGE_IGMP_SNOOPING)")
        })?;
    }
    for host in shape.hosts() {
        network.address(host, Shape::flat_address(host), 16, None)?;
        if snooping.is_some_and(|snooping| snooping.protocol.is_ipv6()) {
            network.address6(host, Shape::flat_address6(host))?;
        }
    }
    // All ports are up: ask now.
    if let (Some(root), Some(_)) = (root, snooping) {
        let turn = |on: u8| format!("link set dev bridge type bridge mcast_querier {on}");
        network.ip(root, &[turn(0), turn(1)])?;
    }
    Ok(())
}

impl Snooping {
    /// Returns options of a bridge. Times in hundredths of a second.
    fn options(self, shape: &Shape, is_root: bool) -> String {
        let Self { protocol, leaves } = self;
        let (igmp, mld) = protocol.versions();
        let count = if protocol.names_sources() { LAST_MEMBER_COUNT } else { OLD_LAST_MEMBER_COUNT };
        // Queries wait in the same queues as all packets: the remaining members must have answered the first
        // query in time.
        let queues = shape.longest_wait().as_nanos() * 3 / 4 / 10_000_000;
        let asked = leaves.as_nanos() / count / 10_000_000;
        let interval = LAST_MEMBER_INTERVAL.max(queues).max(asked);
        format!(
            "mcast_snooping 1 mcast_igmp_version {igmp} mcast_mld_version {mld} mcast_startup_query_interval 50 mcast_startup_query_count 4 \
             mcast_query_interval 500 mcast_query_response_interval 50 mcast_hash_max 16384 mcast_last_member_interval {interval} \
             mcast_last_member_count {count} mcast_querier {}",
            u8::from(is_root)
        )
    }
}

fn wait_for_bridges() {
    thread::sleep(SETTLING);
}
