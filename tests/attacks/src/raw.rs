//! Datagrams with a forged source.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use socket2::{Domain, Protocol, Socket, Type};

/// IPPROTO_RAW: the datagram brings its own IP header.
const RAW: i32 = 255;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Most datagrams and bytes of one message that the kernel cuts into datagrams.
const SEGMENTS_MAX: usize = 64;
const RUN_BYTES_MAX: usize = 65_000;

/// A datagram to send.
pub(crate) struct Forged {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) payload: Vec<u8>,
}

/// Ports and length of datagrams that leave as one message.
type RunId = (SocketAddrV4, SocketAddrV4, usize);

/// Sockets that send datagrams with any source. A single datagram takes a raw socket; several of one length
/// between two ports leave as one message, at a fraction of the processor time.
pub(crate) struct ForgingSockets {
    raw: Socket,
    packet: Vec<u8>,
    /// Address of the interface to groups.
    interface: Ipv4Addr,
    bound: BTreeMap<SocketAddrV4, Socket>,
    runs: BTreeMap<RunId, Vec<u8>>,
}

impl ForgingSockets {
    pub(crate) fn open(interface: Ipv4Addr) -> Result<Self> {
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))
            .context("cannot open a raw socket: run as root")?;
        // The forger hears the groups that it sends to.
        raw.set_multicast_loop_v4(false)?;
        Ok(Self { raw, packet: Vec::new(), interface, bound: BTreeMap::new(), runs: BTreeMap::new() })
    }

    /// Adds a datagram to those that leave with the next [`ForgingSockets::flush`].
    pub(crate) fn push(&mut self, forged: &Forged) -> Result<()> {
        let bytes = forged.payload.len();
        let id = (forged.from, forged.to, bytes);
        let run = self.runs.entry(id).or_default();
        run.extend_from_slice(&forged.payload);
        if run.len() >= (SEGMENTS_MAX * bytes).min(RUN_BYTES_MAX.saturating_sub(bytes)) {
            let run = core::mem::take(run);
            self.send_run(id, &run)?;
        }
        Ok(())
    }

    /// Sends the datagrams.
    pub(crate) fn flush(&mut self) -> Result<()> {
        for (id, run) in core::mem::take(&mut self.runs) {
            self.send_run(id, &run)?;
        }
        Ok(())
    }

    fn send_run(&mut self, (from, to, bytes): RunId, run: &[u8]) -> Result<()> {
        let sent = if run.is_empty() {
            Ok(0)
        } else if run.len() == bytes {
            self.write_packet(from, to, run)?;
            self.raw.send_to(&self.packet, &SocketAddr::V4(to).into())
        } else {
            let socket = self.bound_to(from)?;
            setsockopt(socket, UdpGsoSegment, &i32::try_from(bytes)?)?;
            socket.send_to(run, &SocketAddr::V4(to).into())
        };
        match sent {
            // A full queue loses datagrams.
            Err(error) if error.raw_os_error() != Some(105) => Err(error).context("cannot send"),
            _ => Ok(()),
        }
    }

    fn write_packet(&mut self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Result<()> {
        let udp_bytes = u16::try_from(UDP_BYTES + payload.len()).context("the payload is too long")?;
        let packet = &mut self.packet;
        packet.clear();
        packet.resize(IP_BYTES + UDP_BYTES, 0);
        // The kernel fills in the length, the identification and the checksum.
        (packet[0], packet[8], packet[9]) = (0x45, 64, 17);
        packet[12..16].copy_from_slice(&from.ip().octets());
        packet[16..20].copy_from_slice(&to.ip().octets());
        packet[20..22].copy_from_slice(&from.port().to_be_bytes());
        packet[22..24].copy_from_slice(&to.port().to_be_bytes());
        packet[24..26].copy_from_slice(&udp_bytes.to_be_bytes());
        packet.extend_from_slice(payload);
        Ok(())
    }

    /// Returns a socket with the address of another host.
    fn bound_to(&mut self, from: SocketAddrV4) -> Result<&Socket> {
        if !self.bound.contains_key(&from) {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_ip_transparent_v4(true)?;
            socket.set_reuse_address(true)?;
            socket.set_multicast_if_v4(&self.interface)?;
            socket.set_multicast_loop_v4(false)?;
            socket.set_multicast_ttl_v4(64)?;
            socket.bind(&SocketAddr::V4(from).into())?;
            self.bound.insert(from, socket);
        }
        Ok(&self.bound[&from])
    }
}
