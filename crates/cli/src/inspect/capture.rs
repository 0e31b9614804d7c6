//! Captures: frames of pcap or pcapng files, and the UDP datagrams in the frames.

use std::io::{Cursor, Read};
use std::net::SocketAddr;
use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

/// First bytes of a pcapng file: the type of its section header block.
const PCAPNG_MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Captured frame.
pub struct Frame {
    /// Capture time since 1970.
    pub time: Duration,
    /// Outermost header.
    pub link: LinkType,
    /// Bytes, from the outermost header on.
    pub bytes: Vec<u8>,
}

/// Frames of a capture, in order.
pub enum Capture<R: Read> {
    /// The classic format, pcap.
    Pcap(PcapReader<R>),
    /// The newer format, pcapng.
    PcapNg(PcapNgReader<R>),
}

/// Outermost header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// IP header: 101, 228, 229.
    Raw,
    /// Ethernet: 1.
    Ethernet,
    /// Address family in the byte order of the capturing machine: 0; in network order: 108.
    Null,
    /// Linux cooked capture: 113.
    LinuxCooked,
    /// Linux cooked capture, second version: 276.
    LinuxCooked2,
    /// Any other header, by number.
    Unknown(u32),
}

/// UDP datagram of a frame.
pub struct Datagram<'a> {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Length field of the UDP header: payload and 8 bytes.
    pub udp_length: u16,
    /// Captured part of the UDP payload.
    pub payload: &'a [u8],
}

/// Opens a capture in either format.
pub fn open<R: Read>(mut reader: R) -> Result<Capture<impl Read>, PcapError> {
    let mut magic = [0; 4];
    reader.read_exact(&mut magic).map_err(PcapError::IoError)?;
    let reader = Cursor::new(magic).chain(reader);
    Ok(if magic == PCAPNG_MAGIC {
        Capture::PcapNg(PcapNgReader::new(reader)?)
    } else {
        Capture::Pcap(PcapReader::new(reader)?)
    })
}

impl<R: Read> Capture<R> {
    /// Reads the next frame.
    pub fn next_frame(&mut self) -> Option<Result<Frame, PcapError>> {
        match self {
            Self::Pcap(reader) => {
                let link = LinkType::from(reader.header().datalink);
                let frame = reader.next_packet()?;
                Some(frame.map(|frame| Frame { time: frame.timestamp, link, bytes: frame.data.into_owned() }))
            }
            Self::PcapNg(reader) => next_of_pcapng(reader),
        }
    }
}

/// Reads up to the next block with a frame.
fn next_of_pcapng<R: Read>(reader: &mut PcapNgReader<R>) -> Option<Result<Frame, PcapError>> {
    loop {
        let (interface, ticks, bytes) = match reader.next_block()? {
            Ok(Block::EnhancedPacket(packet)) => {
                (packet.interface_id, packet.timestamp.as_nanos(), packet.data.into_owned())
            }
            Ok(Block::SimplePacket(packet)) => (0, 0, packet.data.into_owned()),
            Ok(_) => continue,
            Err(error) => return Some(Err(error)),
        };
        let Some(interface) = usize::try_from(interface).ok().and_then(|i| reader.interfaces().get(i)) else {
            return Some(Err(PcapError::InvalidInterfaceId(interface)));
        };
        let link = LinkType::from(interface.linktype);
        return Some(Ok(Frame { time: time_of(ticks, interface), link, bytes }));
    }
}

/// Converts a capture time. The reader assumes ticks of nanoseconds; the interface block has the resolution,
/// by default microseconds.
fn time_of(ticks: u128, interface: &InterfaceDescriptionBlock<'_>) -> Duration {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let exponent = u32::from(resolution & 0x7F);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let nanos = base
        .checked_pow(exponent)
        .and_then(|per_second| ticks.checked_mul(1_000_000_000).map(|scaled| scaled / per_second));
    Duration::from_nanos(nanos.and_then(|nanos| u64::try_from(nanos).ok()).unwrap_or(0))
}

impl From<DataLink> for LinkType {
    fn from(link: DataLink) -> Self {
        match u32::from(link) {
            0 | 108 => Self::Null,
            1 => Self::Ethernet,
            101 | 228 | 229 => Self::Raw,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            other => Self::Unknown(other),
        }
    }
}

impl LinkType {
    /// Returns the UDP datagram in a frame; `None` for other frames and for later fragments of a datagram.
    pub fn datagram(self, frame: &[u8]) -> Option<Datagram<'_>> {
        let sliced = match self {
            Self::Raw => SlicedPacket::from_ip(frame),
            Self::Ethernet => SlicedPacket::from_ethernet(frame),
            Self::Null => SlicedPacket::from_ip(frame.get(4..)?),
            Self::LinuxCooked => SlicedPacket::from_ip(frame.get(16..)?),
            Self::LinuxCooked2 => SlicedPacket::from_ip(frame.get(20..)?),
            Self::Unknown(_) => return None,
        };
        let sliced = sliced.ok()?;
        let TransportSlice::Udp(udp) = sliced.transport? else { return None };
        let (source, destination) = match sliced.net? {
            NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Arp(_) => return None,
        };
        Some(Datagram {
            source: SocketAddr::new(source, udp.source_port()),
            destination: SocketAddr::new(destination, udp.destination_port()),
            udp_length: udp.length(),
            payload: udp.payload(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn ip(bytes: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([192, 0, 2, 1], [239, 1, 2, 3], 1)
            .udp(9, 7287)
            .write(&mut packet, bytes)
            .unwrap();
        packet
    }

    #[test]
    fn every_link_type_leads_to_the_datagram() {
        let mut ethernet = vec![1, 0, 0x5E, 1, 2, 3, 2, 0, 0, 0, 0, 1, 8, 0];
        ethernet.extend(ip(b"hello"));
        let behind = |header: usize| [vec![0; header], ip(b"hello")].concat();
        for (link, frame) in [
            (LinkType::Raw, ip(b"hello")),
            (LinkType::Ethernet, ethernet),
            (LinkType::Null, behind(4)),
            (LinkType::LinuxCooked, behind(16)),
            (LinkType::LinuxCooked2, behind(20)),
        ] {
            let datagram = link.datagram(&frame).unwrap();
            assert_eq!(datagram.payload, b"hello", "{link:?}");
            assert_eq!(datagram.source, "192.0.2.1:9".parse().unwrap());
            assert_eq!(datagram.destination, "239.1.2.3:7287".parse().unwrap());
            assert_eq!(datagram.udp_length, 13);
        }
        assert!(LinkType::Unknown(9).datagram(&ip(b"hello")).is_none());
    }

    #[test]
    fn frames_cut_anywhere_are_no_datagrams_and_no_panics() {
        let whole = ip(b"hello");
        for length in 0..whole.len() {
            for link in [LinkType::Raw, LinkType::Ethernet, LinkType::Null, LinkType::LinuxCooked2] {
                assert!(link.datagram(&whole[..length]).is_none());
            }
        }
    }

    #[test]
    fn clocks_of_pcapng_tick_as_their_interface_says() {
        let mut interface = InterfaceDescriptionBlock::new(DataLink::RAW, 0);
        assert_eq!(time_of(1_500_000, &interface), Duration::from_millis(1_500));
        interface.options.push(InterfaceDescriptionOption::IfTsResol(9));
        assert_eq!(time_of(1_500_000, &interface), Duration::from_micros(1_500));
        interface.options[0] = InterfaceDescriptionOption::IfTsResol(0x81);
        assert_eq!(time_of(3, &interface), Duration::from_millis(1_500));
        interface.options[0] = InterfaceDescriptionOption::IfTsResol(0x7F);
        assert_eq!(time_of(u128::MAX, &interface), Duration::ZERO);
    }
}
