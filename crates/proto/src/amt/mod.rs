//! Automatic Multicast Tunneling (AMT, RFC 7450): multicast for hosts without multicast, over unicast UDP.
//!
//! A [`Gateway`] tells a [`Relay`] the groups and sources that the host receives, as IGMPv3 or MLDv2 reports.
//! The relay receives the groups natively and sends each gateway a copy of the packets. The packets within
//! the messages are whole IP packets ([`headwater_wire::amt`]).
//!
//! | attempt by a stranger | effect |
//! |---|---|
//! | updates from a forged address | nothing: no address has a code that was sent to another address |
//! | requests that forge a victim's address | a network gets 20 answers a second ([`Relay`]) |
//! | updates from ever new ports of an address | at most [`GATEWAYS_PER_ADDRESS`] gateways |
//! | joins of ever new groups | [`GROUPS_MAX`] for each gateway, [`MEMBERSHIPS_MAX`] for all |
//! | joins of more than the gateway's link carries | the latest groups are pruned, see [`Relay`] |
//! | data, queries from others than the relay | dropped by the gateway |
//!
//! An answer is longer than its request, because RFC 7450 has it so: 66 or 106 bytes of UDP payload with a
//! query, for 8 bytes. The limit of answers to a network bounds the reflected rate to 20 kbit/s.

mod gateway;
mod relay;
#[cfg(test)]
mod tests;

use core::net::IpAddr;

use crate::time::Duration;

pub use gateway::{Gateway, GatewayConfig, GatewayEvent};
pub use relay::{
    ADDRESSES_MAX, NATIVE_PORTS_MAX, NativeMembership, Relay, RelayConfig, RelayCounters, RelayRefused,
    native, tunnel,
};

/// Most gateways of a relay.
pub const GATEWAYS_MAX: usize = 1_024;
/// Most gateways of a relay at one address: hosts behind an address translator.
pub const GATEWAYS_PER_ADDRESS: usize = 256;
/// Most groups of a gateway; a group that is received from several named sources counts for each.
pub const GROUPS_MAX: usize = 256;
/// Most memberships of a relay: pairs of a group and a source, or groups of any source.
pub const MEMBERSHIPS_MAX: usize = 4_096;

/// Time between the queries of a gateway to a relay of ours.
const QUERY_INTERVAL: Duration = Duration::from_secs(20);
/// Number of times that a gateway sends a change of its memberships.
const ROBUSTNESS: u8 = 3;
/// Time after which a relay forgets a membership that no update repeats: two intervals and the response time
/// (RFC 3376, section 8.4).
const MEMBERSHIP_TIME: Duration = Duration::from_secs(2 * 20 + 5);

/// Group and its only source; `None` stands for any source.
type Membership = (IpAddr, Option<IpAddr>);

/// Whether a host may receive a group through a tunnel: not a group of a link or of a host alone.
fn is_routed(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group.octets()[..3] != [224, 0, 0],
        // Scopes 0 to 2: reserved, interface-local, link-local.
        IpAddr::V6(group) => group.is_multicast() && group.octets()[1] & 0xF > 2,
    }
}

/// Whether an address may be the source of a group's packets. Groups of a loopback interface have loopback
/// sources, other groups have none.
fn is_source(source: IpAddr, group: IpAddr, is_loopback: bool) -> bool {
    let is_host = !source.is_multicast() && !source.is_unspecified();
    is_host && source.is_ipv4() == group.is_ipv4() && (is_loopback || !source.is_loopback())
}
