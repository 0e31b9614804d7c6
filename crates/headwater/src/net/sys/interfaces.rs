//! List of the network interfaces, and the interface of a route by a connected socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::SocketLayer;
use crate::net::interface::Interface;

/// Any port: connecting a UDP socket sends nothing.
const PORT: u16 = 9;

/// Returns all interfaces, in the kernel's order.
///
/// # Errors
/// The system's error.
#[cfg(unix)]
pub(in crate::net) fn list() -> io::Result<Vec<Interface>> {
    use nix::ifaddrs::{InterfaceAddress, getifaddrs};
    use nix::net::if_::{InterfaceFlags, if_nametoindex};

    let unaddressed = |entry: &InterfaceAddress| {
        Some(Interface {
            name: entry.interface_name.clone(),
            index: if_nametoindex(entry.interface_name.as_str()).ok()?,
            ipv4: None,
            ipv6: None,
            addresses: Vec::new(),
            up: entry.flags.contains(InterfaceFlags::IFF_UP),
            running: entry.flags.contains(InterfaceFlags::IFF_RUNNING),
            multicast: entry.flags.contains(InterfaceFlags::IFF_MULTICAST),
            loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        })
    };
    let mut interfaces = Vec::<Interface>::new();
    for entry in getifaddrs()? {
        let known = interfaces.iter().position(|interface| interface.name == entry.interface_name);
        let position = match known {
            Some(position) => position,
            None => {
                // Gone since the listing: as if never there.
                let Some(interface) = unaddressed(&entry) else {
                    continue;
                };
                interfaces.push(interface);
                interfaces.len() - 1
            }
        };
        if let Some(address) = entry.address.as_ref().and_then(ip_address) {
            interfaces[position].add_address(address);
        }
    }
    Ok(interfaces)
}

#[cfg(unix)]
fn ip_address(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    if let Some(address) = address.as_sockaddr_in() {
        return Some(address.ip().into());
    }
    address.as_sockaddr_in6().map(|address| address.ip().into())
}

/// Returns all interfaces with an address, in the system's order. Windows tells nothing about multicast,
/// which every interface other than a tunnel carries.
///
/// # Errors
/// The system's error.
#[cfg(windows)]
pub(in crate::net) fn list() -> io::Result<Vec<Interface>> {
    let mut interfaces = Vec::<Interface>::new();
    for entry in if_addrs::get_if_addrs()? {
        let Some(index) = entry.index else { continue };
        let position = match interfaces.iter().position(|interface| interface.index == index) {
            Some(position) => position,
            None => {
                interfaces.push(Interface {
                    name: entry.name.clone(),
                    index,
                    ipv4: None,
                    ipv6: None,
                    addresses: Vec::new(),
                    up: entry.is_oper_up(),
                    running: entry.is_oper_up(),
                    multicast: !entry.is_p2p(),
                    loopback: entry.is_loopback(),
                });
                interfaces.len() - 1
            }
        };
        interfaces[position].add_address(entry.ip());
    }
    Ok(interfaces)
}

/// Returns the index of the interface of the route to `destination`.
///
/// # Errors
/// [`io::ErrorKind::NetworkUnreachable`] when there is no route, else the system's error.
pub(in crate::net) fn interface_towards(destination: IpAddr) -> io::Result<u32> {
    #[cfg(target_os = "linux")]
    if !SocketLayer::current().is_portable() {
        return super::route::interface_towards(destination);
    }
    let _ = SocketLayer::current();
    let any: IpAddr =
        if destination.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(destination, PORT))?;
    let own = socket.local_addr()?.ip();
    let found = list()?.into_iter().find(|interface| interface.addresses.contains(&own));
    found.map(|interface| interface.index).ok_or_else(|| io::ErrorKind::NetworkUnreachable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_reached_through_loopback() {
        let loopback = list().unwrap().into_iter().find(|interface| interface.loopback).unwrap();
        assert_eq!(interface_towards("127.0.0.1".parse().unwrap()).unwrap(), loopback.index);
    }
}
