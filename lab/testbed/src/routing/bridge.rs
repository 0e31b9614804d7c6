//! The kernel's bridges in a single subnet.
//!
//! The bridge next to the source queries for members; the rest of the bridges pass reports on towards that
//! querier. Two settings are essential. A port towards hosts behind another bridge never leaves fast, because
//! other members may be behind the port. A port towards the querier receives all multicast, so that sources
//! anywhere are heard.

use std::thread;
use std::time::Duration as StdDuration;

use headwater_proto::Duration;

use crate::error::Error;
use crate::network::{Network, without};
use crate::shape::{Role, Shape};

/// Minimum interval between two queries for members, in hundredths of a second; a port is pruned after three
/// queries without an answer.
const LAST_MEMBER_INTERVAL: u64 = 10;
const LAST_MEMBER_COUNT: u64 = 3;
/// Bridges forward by known memberships only after their first response interval.
const SETTLING: StdDuration = StdDuration::from_millis(1_000);

/// Creates bridges at all routers. `leaves` is the desired duration of a leave; without `leaves`, bridges
/// track no members and flood.
pub(super) fn make(
    network: &Network,
    shape: &Shape,
    root: Option<usize>,
    leaves: Option<Duration>,
) -> Result<(), Error> {
    for router in shape.routers() {
        let is_root = root == Some(router);
        let options =
            leaves.map_or_else(|| "mcast_snooping 0".into(), |leaves| snooping(shape, is_root, leaves));
        let mut commands = vec![
            format!("link add bridge type bridge stp_state 0 {options}"),
            "link set dev bridge up".into(),
        ];
        for (link, other) in shape.neighbours(router) {
            let port = Network::port(shape, router, *link);
            commands.push(format!("link set dev {port} master bridge"));
            let is_up = root.is_some_and(|root| !is_root && shape.way(router, root) == Some(*link));
            let leaves_fast = if shape.roles[*other] == Role::Host { "on" } else { "off" };
            if leaves.is_some() {
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
    }
    // All ports are up: ask now.
    if let (Some(root), Some(_)) = (root, leaves) {
        let turn = |on: u8| format!("link set dev bridge type bridge mcast_querier {on}");
        network.ip(root, &[turn(0), turn(1)])?;
    }
    Ok(())
}

/// Times in hundredths of a second.
fn snooping(shape: &Shape, is_root: bool, leaves: Duration) -> String {
    // Queries wait in the same queues as all packets: the remaining members must have answered the first
    // query in time.
    let queues = shape.longest_wait().as_nanos() * 3 / 4 / 10_000_000;
    let asked = leaves.as_nanos() / LAST_MEMBER_COUNT / 10_000_000;
    let interval = LAST_MEMBER_INTERVAL.max(queues).max(asked);
    format!(
        "mcast_snooping 1 mcast_igmp_version 3 mcast_startup_query_interval 50 mcast_startup_query_count 4 mcast_query_interval 500 \
         mcast_query_response_interval 50 mcast_hash_max 16384 mcast_last_member_interval {interval} \
         mcast_last_member_count {LAST_MEMBER_COUNT} mcast_querier {}",
        u8::from(is_root)
    )
}

pub(super) fn settle() {
    thread::sleep(SETTLING);
}
