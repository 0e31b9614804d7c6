//! Captures of the packets on chosen links, as raw IPv4 packets (link type 101) with nanoseconds, for
//! Wireshark.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::{SocketAddr, SocketAddrV4};
use std::rc::Rc;

use etherparse::{IpEcn, IpHeaders, Ipv4Header, PacketBuilder, TcpOptionElement};
use headwater_proto::{Ecn, Instant};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};

use super::{AgentEvent, LinkEvent, Observer, OnLink};
use crate::engine::{Body, Destination, Packet, Run};
use crate::network::{AgentId, LinkId};
use crate::tcp::Segment;

/// Port of all groups.
const GROUP_PORT: u16 = 7_287;
/// Headers in a capture have real sizes, whatever header size the flow counts on the wire; payload without
/// bytes is written as zeros.
const PAYLOAD_BYTES_MAX: usize = 65_535 - 120;

/// Writes every packet that reaches the far end of a captured link. A failed write ends the capture; see
/// [`Pcap::finish`].
pub struct Pcap<W: Write> {
    links: Vec<LinkId>,
    addresses: Vec<SocketAddrV4>,
    /// By sender and receiver of data: bytes of a full segment, as seen so far on any link. Sequence numbers
    /// count segments in the simulator, bytes in a capture.
    segment_bytes: BTreeMap<(AgentId, AgentId), u32>,
    buffer: Vec<u8>,
    zeros: Rc<[u8]>,
    writer: Result<PcapWriter<W>, PcapError>,
}

impl<W: Write> fmt::Debug for Pcap<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcap").field("links", &self.links).finish_non_exhaustive()
    }
}

impl<W: Write> Pcap<W> {
    /// Captures on these links of `run`; the header is written at once.
    pub fn new(run: &Run, links: Vec<LinkId>, out: W) -> Self {
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        Self {
            links,
            addresses: run.addresses(),
            segment_bytes: BTreeMap::new(),
            buffer: Vec::new(),
            zeros: Rc::from(vec![0; PAYLOAD_BYTES_MAX]),
            writer: PcapWriter::with_header(out, header),
        }
    }

    /// Ends the capture and returns the writer.
    ///
    /// # Errors
    ///
    /// The first write that failed.
    pub fn finish(self) -> Result<W, PcapError> {
        self.writer.map(PcapWriter::into_writer)
    }

    fn record(&mut self, at: Instant, packet: &Packet, payload: &[u8], ecn: Ecn) {
        self.buffer.clear();
        // Packets too long for IP are left out, because no real link would carry such packets.
        if self.write_ip(packet, payload, ecn).is_none() {
            return;
        }
        let Ok(writer) = &mut self.writer else { return };
        let length = u32::try_from(self.buffer.len()).unwrap_or(u32::MAX);
        let record = PcapPacket::new(core::time::Duration::from_nanos(at.as_nanos()), length, &self.buffer);
        if let Err(error) = writer.write_packet(&record) {
            self.writer = Err(error);
        }
    }

    /// Writes the packet into the buffer; `None` if the packet is too long.
    fn write_ip(&mut self, packet: &Packet, payload: &[u8], ecn: Ecn) -> Option<()> {
        let from = self.addresses[packet.source.index()];
        let to = match packet.destination {
            Destination::Agent { agent, .. } => self.addresses[agent.index()],
            Destination::Group(group) => SocketAddrV4::new(group.address(), GROUP_PORT),
        };
        let mut header = Ipv4Header {
            source: from.ip().octets(),
            destination: to.ip().octets(),
            time_to_live: 64,
            identification: (packet.sequence & 0xFFFF) as u16,
            ..Ipv4Header::default()
        };
        header.ecn = IpEcn::try_new(ecn as u8).ok()?;
        let zeros = Rc::clone(&self.zeros);
        let filler = zeros.get(..packet.payload_bytes as usize)?;
        let builder = PacketBuilder::ip(IpHeaders::Ipv4(header, Default::default()));
        match packet.body {
            Body::Filler => builder.udp(from.port(), to.port()).write(&mut self.buffer, filler).ok(),
            Body::Datagram => builder.udp(from.port(), to.port()).write(&mut self.buffer, payload).ok(),
            Body::Tcp(segment) => {
                let Destination::Agent { agent, .. } = packet.destination else { return None };
                let tcp = self.tcp(packet.source, agent, &segment);
                let mut builder = builder.tcp(from.port(), to.port(), tcp.sequence, u16::MAX);
                // Past the first SYN, every segment on a real wire acknowledges.
                if segment.acknowledges || !segment.syn {
                    builder = builder.ack(tcp.ack);
                }
                builder = if segment.syn { builder.syn() } else { builder };
                builder = if segment.echo { builder.ece() } else { builder };
                builder = if segment.cwr { builder.cwr() } else { builder };
                builder.options(&tcp.options).ok()?.write(&mut self.buffer, filler).ok()
            }
        }
    }

    /// The numbers of a segment in bytes: the SYN is number 0, data begin at 1.
    fn tcp(&self, from: AgentId, to: AgentId, segment: &Segment) -> TcpNumbers {
        let bytes = |ends, number: u32| {
            1_u32.wrapping_add(number.wrapping_mul(self.segment_bytes.get(&ends).copied().unwrap_or(1)))
        };
        let blocks: Vec<_> = segment
            .sack
            .as_slice()
            .iter()
            .map(|block| (bytes((to, from), block.start), bytes((to, from), block.end)))
            .collect();
        let options = match blocks[..] {
            [first, ref more @ ..] => {
                let more = [0, 1, 2].map(|index| more.get(index).copied());
                vec![TcpOptionElement::SelectiveAcknowledgement(first, more)]
            }
            [] => Vec::new(),
        };
        let sequence = if segment.syn {
            0
        } else if segment.payload_bytes == 0 {
            1
        } else {
            bytes((from, to), segment.sequence)
        };
        TcpNumbers { sequence, ack: bytes((to, from), segment.ack), options }
    }

    /// Every segment before the last is full, so the longest segment seen counts.
    fn learn(&mut self, packet: &Packet) {
        if let (Body::Tcp(segment), Destination::Agent { agent, .. }) = (packet.body, packet.destination) {
            let most = self.segment_bytes.entry((packet.source, agent)).or_insert(1);
            *most = (*most).max(segment.payload_bytes.into());
        }
    }
}

struct TcpNumbers {
    sequence: u32,
    ack: u32,
    options: Vec<TcpOptionElement>,
}

impl<W: Write + 'static> Observer for Pcap<W> {
    fn on_link(&mut self, at: Instant, what: &OnLink<'_>) {
        self.learn(what.packet);
        if what.event == LinkEvent::Delivered && self.links.contains(&what.link) {
            self.record(at, what.packet, what.payload, what.ecn);
        }
    }

    fn on_agent(&mut self, _: Instant, _: AgentId, _: AgentEvent<'_>) {}
}

impl Run {
    /// By agent: source address of its packets, in captures and for machines.
    fn addresses(&self) -> Vec<SocketAddrV4> {
        let address = |agent| match self.core.address(AgentId(agent)) {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => unreachable!("nodes have IPv4 addresses"),
        };
        (0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)).map(address).collect()
    }
}
