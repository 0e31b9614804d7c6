//! How a sending socket is opened, and the socket options that make it so.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use headwater_proto::Ecn;
use nix::sys::socket::{setsockopt, sockopt};

use super::endpoint::{Endpoint, OpenError, trying};
use super::interface::Interface;

/// How a sending socket is opened.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Where to send. Default: where the kernel's route to the group leads.
    pub interface: Option<Interface>,
    /// Port to send from. Default: 0, any free one.
    pub port: u16,
    /// Routers that a multicast packet may pass, plus 1. Default: 1, so that nothing leaves the link unasked.
    pub ttl: u8,
    /// Differentiated services code point, 0 to 63 (RFC 2474). Default: 0, best effort.
    pub dscp: u8,
    /// Whether receivers on this machine hear it. Default: yes.
    pub loopback: bool,
    /// Send buffer in bytes. Default: 256 KiB. A larger one only makes packets wait in this machine.
    pub send_buffer_bytes: usize,
    /// Whether datagrams carry the ECN field asked for. Default: yes. If not, all are sent as not
    /// ECN-capable, for networks that drop the others.
    pub ecn: bool,
    /// How long the interface may be gone, down or without its address before that is an error. Default: 60
    /// s, in which a switch or a driver starts again. Only once something was sent: a wrong start is an error
    /// at once.
    pub outage_max: Duration,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            interface: None,
            port: 0,
            ttl: 1,
            dscp: 0,
            loopback: true,
            send_buffer_bytes: 256 << 10,
            ecn: true,
            outage_max: Duration::from_secs(60),
        }
    }
}

/// Sets them on a socket that sends on the interface, for groups of either IP version.
///
/// # Errors
/// [`OpenError::Option`].
pub(super) fn set_options(
    endpoint: &Endpoint,
    ipv4: bool,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(), OpenError> {
    if ipv4 {
        set_options_v4(endpoint, interface, options)
    } else {
        set_options_v6(endpoint, interface, options)
    }
}

fn set_options_v4(
    endpoint: &Endpoint,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(), OpenError> {
    let socket = &endpoint.socket;
    let address = interface.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED);
    trying(
        "set IP_MULTICAST_IF",
        rustix::net::sockopt::set_ip_multicast_if_with_ifindex(
            socket,
            &Ipv4Addr::UNSPECIFIED,
            &address,
            interface.index,
        )
        .map_err(io::Error::from),
    )?;
    // Without it a full queue of the interface goes unnoticed.
    trying("set IP_RECVERR", setsockopt(socket, sockopt::Ipv4RecvErr, &true).map_err(io::Error::from))?;
    trying("set IP_MULTICAST_TTL", socket.set_multicast_ttl_v4(u32::from(options.ttl)))?;
    trying("set IP_MULTICAST_LOOP", socket.set_multicast_loop_v4(options.loopback))?;
    let octet = traffic_class(options.dscp, Ecn::NotCapable);
    trying("set IP_TOS", socket.set_tos_v4(u32::from(octet)))
}

fn set_options_v6(
    endpoint: &Endpoint,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(), OpenError> {
    let socket = &endpoint.socket;
    trying("set IPV6_MULTICAST_IF", socket.set_multicast_if_v6(interface.index))?;
    trying("set IPV6_RECVERR", setsockopt(socket, sockopt::Ipv6RecvErr, &true).map_err(io::Error::from))?;
    trying("set IPV6_MULTICAST_HOPS", socket.set_multicast_hops_v6(u32::from(options.ttl)))?;
    trying("set IPV6_MULTICAST_LOOP", socket.set_multicast_loop_v6(options.loopback))?;
    let octet = traffic_class(options.dscp, Ecn::NotCapable);
    trying("set IPV6_TCLASS", socket.set_tclass_v6(u32::from(octet)))
}

/// The octet that IPv4 calls type of service and IPv6 traffic class (RFC 2474, RFC 3168).
pub(super) const fn traffic_class(dscp: u8, ecn: Ecn) -> u8 {
    (dscp << 2) | ecn as u8
}
