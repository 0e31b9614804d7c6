//! Reasons why the kernel refuses to send a datagram, with the remedies.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::interface::Interface;
use super::sys::Refusal;

/// Reasons why a datagram could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No route (`ENETUNREACH`, `EHOSTUNREACH`).
    #[error("no route to {destination} on {interface}; add one: `{}`", route_advice(*.destination, .interface))]
    Unreachable {
        /// Destination of the datagram.
        destination: SocketAddr,
        /// The interface of the socket.
        interface: Box<Interface>,
        /// The kernel's error.
        source: io::Error,
    },
    /// The interface went away or down (`ENETDOWN`, `ENODEV`, `ENXIO`, `EADDRNOTAVAIL`).
    #[error("interface {interface} is down or has lost its address; bring it up and start again")]
    InterfaceDown {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A packet filter or security policy forbids sending (`EPERM`, `EACCES`).
    #[error("this machine's firewall or policy forbids sending to {destination}; see `nft list ruleset`")]
    Forbidden {
        /// Destination of the datagram.
        destination: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The datagram exceeds the interface's MTU (`EMSGSIZE`): datagrams are never fragmented.
    #[error(
        "a datagram of {bytes} bytes does not fit the MTU of {interface}; send smaller symbols, or raise the MTU"
    )]
    TooLarge {
        /// Length of the payload.
        bytes: usize,
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The send buffer stayed full for a second.
    #[error("{interface} has not sent anything for a second; is its link up?")]
    Stalled {
        /// The interface.
        interface: String,
    },
    /// Nothing could be sent for as long as an outage may last.
    #[error("nothing could be sent for {longest:?}; {}", .advice.as_deref().unwrap_or("then this machine still refused"))]
    Outage {
        /// Duration of the attempts.
        longest: Duration,
        /// The fault of the interface and the remedy, if known.
        advice: Option<String>,
        /// The last refusal.
        source: Box<SendError>,
    },
    /// Any other error.
    #[error("cannot send to {destination}")]
    Other {
        /// Destination of the datagram.
        destination: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
}

impl SendError {
    /// Whether the error may pass: the interface is gone, down, or without address or route.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::InterfaceDown { .. })
    }

    /// Classifies the kernel's refusal of a datagram of so many bytes.
    pub(super) fn new(destination: SocketAddr, bytes: usize, on: &Interface, source: io::Error) -> Self {
        let interface = on.name.clone();
        match Refusal::of(&source) {
            _ if source.kind() == io::ErrorKind::TimedOut => Self::Stalled { interface },
            Refusal::Unreachable => {
                Self::Unreachable { destination, interface: Box::new(on.clone()), source }
            }
            Refusal::Down => Self::InterfaceDown { interface, source },
            Refusal::Forbidden => Self::Forbidden { destination, source },
            Refusal::TooLarge => Self::TooLarge { bytes, interface, source },
            Refusal::Other => Self::Other { destination, source },
        }
    }
}

/// Returns the command that makes a destination reachable.
fn route_advice(destination: SocketAddr, interface: &Interface) -> String {
    let name = &interface.name;
    match destination.ip() {
        IpAddr::V4(address) if address.is_multicast() => format!("ip route add 224.0.0.0/4 dev {name}"),
        // Linux turns other routes through loopback into "unreachable", and gives loopback no multicast
        // route.
        IpAddr::V6(address) if address.is_multicast() && interface.loopback => {
            format!("ip -6 route add local ff00::/8 dev {name} table local")
        }
        IpAddr::V6(address) if address.is_multicast() => {
            format!("ip -6 route add multicast ff00::/8 dev {name} table local")
        }
        address => format!("ip route add {address} dev {name}"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::net::sys::{is_report, is_shortage};

    fn error(errno: Errno) -> SendError {
        let interface = Interface::named("eth7");
        SendError::new("239.1.1.1:1".parse().unwrap(), 1500, &interface, errno.into())
    }

    #[test]
    fn refusals_are_told_apart_with_advice() {
        assert!(matches!(error(Errno::NETUNREACH), SendError::Unreachable { .. }));
        assert!(error(Errno::NETUNREACH).to_string().contains("ip route add 224.0.0.0/4 dev eth7"));
        assert!(matches!(error(Errno::NETDOWN), SendError::InterfaceDown { .. }));
        assert!(matches!(error(Errno::PERM), SendError::Forbidden { .. }));
        assert!(is_shortage(&Errno::NOBUFS.into()) && !is_shortage(&Errno::NETDOWN.into()));
        assert!(matches!(error(Errno::MSGSIZE), SendError::TooLarge { bytes: 1500, .. }));
        assert!(matches!(error(Errno::BADF), SendError::Other { .. }));
        assert!(is_report(&Errno::HOSTUNREACH.into()) && !is_report(&Errno::BADF.into()));
    }
}
