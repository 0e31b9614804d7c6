//! Socket of a relay: receives groups of any sources on one interface, for some UDP ports.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_proto::ChannelId;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tracing::{debug, warn};

use super::batch::RecvBatch;
use super::descriptor::{AsFd, BorrowedFd};
use super::endpoint::{Endpoint, OpenError, trying};
use super::interface::Interface;
use super::link::LinkWatch;
use super::sys::{self, MembershipChange, is_exhausted};

/// Receive buffer in bytes of each port and IP version.
const BUFFER_BYTES: usize = 8 << 20;

/// Group, and the only source; `None` stands for any source.
type Membership = (IpAddr, Option<IpAddr>);

/// Receives groups without a socket for each group: sockets that hold memberships have no port, and a socket
/// for each port takes the datagrams of all groups that this machine has joined on the interface
/// (`IP_MULTICAST_ALL`). Datagrams of other groups are dropped.
#[derive(Debug)]
pub struct GroupsSocket {
    interface: Interface,
    link: LinkWatch,
    ports: Vec<u16>,
    /// Sockets of ports, with the index of the port.
    readers: Vec<(usize, Endpoint)>,
    /// The reader last read.
    last: usize,
    holders: Vec<Holder>,
    /// Memberships by the index of the holder; `None` for a membership that the kernel refused.
    joined: BTreeMap<Membership, Option<usize>>,
    channels: BTreeMap<IpAddr, ChannelId>,
}

/// Socket that holds memberships, at most one of a group.
#[derive(Debug)]
struct Holder {
    socket: Socket,
    is_ipv4: bool,
    groups: BTreeSet<IpAddr>,
    /// The socket has refused a membership for want of room, and has left no group since.
    is_full: bool,
}

impl GroupsSocket {
    /// Opens the sockets of the ports, which other receivers of this machine may share. No group is joined.
    ///
    /// # Errors
    /// When another process holds a port without sharing, or the kernel is older than Linux 5.7.
    pub fn open(interface: Interface, ports: &[u16]) -> Result<Self, OpenError> {
        let mut socket = Self {
            interface,
            link: LinkWatch::new(None),
            ports: ports.to_vec(),
            readers: Vec::new(),
            last: 0,
            holders: Vec::new(),
            joined: BTreeMap::new(),
            channels: BTreeMap::new(),
        };
        socket.open_readers()?;
        Ok(socket)
    }

    fn open_readers(&mut self) -> Result<(), OpenError> {
        self.readers.clear();
        for (index, port) in self.ports.iter().enumerate() {
            for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
                if !self.interface.addresses.iter().any(|address| address.is_ipv4() == any.is_ipv4()) {
                    continue;
                }
                let endpoint = Endpoint::open(SocketAddr::new(any, *port), true)?;
                let bound = sys::bind_interface(&endpoint.socket, &self.interface);
                trying("bind the socket to its interface (SO_BINDTODEVICE)", bound)?;
                let all = sys::receive_all_groups(&endpoint.socket, any.is_ipv4(), true);
                trying("set IP_MULTICAST_ALL", all)?;
                endpoint.set_receive_buffer(BUFFER_BYTES)?;
                self.readers.push((index, endpoint));
            }
        }
        Ok(())
    }

    /// Joins a group, from one source or from any. Packets of the group have this channel. A join that the
    /// kernel refuses is repeated by [`GroupsSocket::inspect`].
    pub fn join(&mut self, channel: ChannelId, group: IpAddr, source: Option<IpAddr>) {
        self.channels.insert(group, channel);
        let holder = self.join_now((group, source));
        self.joined.insert((group, source), holder);
    }

    /// Leaves a group that was joined with the same source.
    pub fn leave(&mut self, group: IpAddr, source: Option<IpAddr>) {
        if let Some(Some(holder)) = self.joined.remove(&(group, source)) {
            let Holder { socket, groups, is_full, .. } = &mut self.holders[holder];
            let index = self.interface.index;
            let left = match (group, source) {
                (_, Some(source)) => {
                    sys::change_source(socket, &self.interface, (group, source), MembershipChange::Leave)
                }
                (IpAddr::V4(group), None) => {
                    socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(index))
                }
                (IpAddr::V6(group), None) => socket.leave_multicast_v6(&group, index),
            };
            if let Err(error) = left {
                debug!(%group, %error, "a group that cannot be left is gone with its interface");
            }
            groups.remove(&group);
            *is_full = false;
        }
        if self.joined.range((group, None)..).next().is_none_or(|((next, _), _)| *next != group) {
            self.channels.remove(&group);
        }
    }

    fn join_now(&mut self, (group, source): Membership) -> Option<usize> {
        loop {
            let fits = |holder: &Holder| {
                holder.is_ipv4 == group.is_ipv4() && !holder.is_full && !holder.groups.contains(&group)
            };
            let index = match self.holders.iter().position(fits) {
                Some(index) => index,
                None => self.open_holder(group.is_ipv4())?,
            };
            let interface = self.interface.index;
            let holder = &mut self.holders[index];
            let socket = &holder.socket;
            let joined = match (group, source) {
                (_, Some(source)) => {
                    sys::change_source(socket, &self.interface, (group, source), MembershipChange::Join)
                }
                (IpAddr::V4(group), None) => {
                    socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
                }
                (IpAddr::V6(group), None) => socket.join_multicast_v6(&group, interface),
            };
            match joined {
                Ok(()) => {
                    holder.groups.insert(group);
                    return Some(index);
                }
                Err(error) if is_exhausted(&error) && !holder.groups.is_empty() => holder.is_full = true,
                Err(error) => {
                    warn!("cannot join {group} on {}: {error}; tried again each second", self.interface.name);
                    return None;
                }
            }
        }
    }

    fn open_holder(&mut self, is_ipv4: bool) -> Option<usize> {
        let domain = if is_ipv4 { Domain::IPV4 } else { Domain::IPV6 };
        match Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)) {
            Ok(socket) => {
                let groups = BTreeSet::new();
                self.holders.push(Holder { socket, is_ipv4, groups, is_full: false });
                Some(self.holders.len() - 1)
            }
            Err(error) => {
                warn!("cannot open a socket for one more group: {error}");
                None
            }
        }
    }

    /// Repeats joins that the kernel refused, and all joins on an interface that came back. Call once a
    /// second.
    pub fn inspect(&mut self) {
        if let Some(renewed) =
            self.link.inspect_link(&self.interface).and_then(|inspection| inspection.renewed)
        {
            debug!(interface = renewed.name, "the interface of the groups came back");
            self.interface = renewed;
            self.holders.clear();
            self.joined.values_mut().for_each(|holder| *holder = None);
            if let Err(error) = self.open_readers() {
                warn!("cannot receive on {}: {error}", self.interface.name);
            }
        }
        let refused = self.joined.iter().filter(|(_, holder)| holder.is_none());
        for membership in refused.map(|(membership, _)| *membership).collect::<Vec<_>>() {
            let holder = self.join_now(membership);
            self.joined.insert(membership, holder);
        }
    }

    /// Replaces the contents of `batch` by waiting datagrams of one port. Returns the number of datagrams.
    /// Never blocks.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn recv(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        for _ in 0..self.readers.len() {
            self.last = (self.last + 1) % self.readers.len();
            batch.clear();
            let channels = &self.channels;
            batch.read(&self.readers[self.last].1, |heard| {
                heard.destination.and_then(|group| channels.get(&group).copied()).map(Some)
            })?;
            if !batch.is_empty() {
                return Ok(batch.len());
            }
        }
        Ok(0)
    }

    /// Returns the index of the port of the last batch.
    pub fn port(&self) -> usize {
        self.readers.get(self.last).map_or(0, |(port, _)| *port)
    }

    /// Returns the group and port of a channel, with the port of the last batch.
    pub fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        let group = self.channels.iter().find(|(_, of)| **of == channel).map(|(group, _)| *group)?;
        Some(SocketAddr::new(group, *self.ports.get(self.port())?))
    }

    /// Returns the descriptors to wait on for readability.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.readers.iter().map(|(_, endpoint)| endpoint.as_fd())
    }
}
