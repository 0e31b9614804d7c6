//! Datagrams with a forged source.

use std::net::{SocketAddr, SocketAddrV4};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// IPPROTO_RAW: the datagram brings its own IP header.
const RAW: i32 = 255;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// A datagram to send.
pub(crate) struct Forged {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) payload: Vec<u8>,
}

/// Socket that sends datagrams with their IP header.
pub(crate) struct RawSocket {
    socket: Socket,
    packet: Vec<u8>,
}

impl RawSocket {
    pub(crate) fn open() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)))
            .context("cannot open a raw socket: run as root")?;
        Ok(Self { socket, packet: Vec::new() })
    }

    pub(crate) fn send(&mut self, forged: &Forged) -> Result<()> {
        let udp_bytes = u16::try_from(UDP_BYTES + forged.payload.len()).context("the payload is too long")?;
        let packet = &mut self.packet;
        packet.clear();
        packet.resize(IP_BYTES + UDP_BYTES, 0);
        // The kernel fills in the length, the identification and the checksum.
        (packet[0], packet[8], packet[9]) = (0x45, 64, 17);
        packet[12..16].copy_from_slice(&forged.from.ip().octets());
        packet[16..20].copy_from_slice(&forged.to.ip().octets());
        packet[20..22].copy_from_slice(&forged.from.port().to_be_bytes());
        packet[22..24].copy_from_slice(&forged.to.port().to_be_bytes());
        packet[24..26].copy_from_slice(&udp_bytes.to_be_bytes());
        packet.extend_from_slice(&forged.payload);
        match self.socket.send_to(packet, &SocketAddr::V4(forged.to).into()) {
            // A full queue loses the datagram.
            Err(error) if error.raw_os_error() != Some(105) => Err(error).context("cannot send"),
            _ => Ok(()),
        }
    }
}
