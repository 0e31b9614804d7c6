//! `--pcap FILE`: packets that a session sends and receives, as raw IP packets for Wireshark and
//! `headwater inspect`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use etherparse::{IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, UdpHeader};
use headwater::{PacketTrace, TraceHook};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};

use crate::exit::{Exit, Failure, OrExit};

/// Time to live written for received datagrams, whose time to live is unknown.
const TTL_UNKNOWN: u8 = 1;

/// Maximum time that the end of the process waits for a packet in progress.
const FLUSH_PATIENCE: Duration = Duration::from_millis(200);

/// Capture in progress. The hooks of the capture run on the threads of sessions.
pub struct Capture {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    /// `None` after the end of the file.
    writer: Option<PcapWriter<BufWriter<File>>>,
    /// Wall-clock time of the start.
    start: Duration,
    packet: Vec<u8>,
    /// First failed write, which ends the capture.
    failed: Option<anyhow::Error>,
}

impl Capture {
    /// Creates a file.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let tried = || format!("cannot write the capture '{}'", path.display());
        let file = File::create(path).or_exit(Exit::Disk, tried())?;
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header).or_exit(Exit::Disk, tried())?;
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = State { writer: Some(writer), start, packet: Vec::new(), failed: None };
        Ok(Self { path: path.to_owned(), state: Arc::new(Mutex::new(state)) })
    }

    /// Returns a hook for a session.
    pub fn hook(&self) -> TraceHook {
        let state = Arc::clone(&self.state);
        TraceHook::new(move |packet| state.lock().unwrap_or_else(PoisonError::into_inner).write(packet))
    }

    /// Returns a function for the end of the process that writes buffered packets.
    pub fn flusher(&self) -> impl Fn() + Send + 'static {
        let state = Arc::clone(&self.state);
        move || {
            let until = Instant::now() + FLUSH_PATIENCE;
            while Instant::now() < until {
                if let Ok(mut state) = state.try_lock() {
                    // The user interrupted twice: the process ends without a report.
                    let _unwritten = state.end();
                    return;
                }
                std::thread::sleep(FLUSH_PATIENCE / 100);
            }
        }
    }

    /// Ends the file.
    pub fn finish(self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match state.failed.take() {
            Some(error) => Err(error),
            None => state.end(),
        };
        result.or_exit(Exit::Disk, format!("cannot write the capture '{}'", self.path.display()))
    }
}

impl State {
    fn write(&mut self, trace: &PacketTrace<'_>) {
        if self.failed.is_none() {
            self.failed = self.try_write(trace).err();
        }
    }

    fn try_write(&mut self, trace: &PacketTrace<'_>) -> anyhow::Result<()> {
        self.packet.clear();
        write_packet(trace, &mut self.packet)?;
        let length = u32::try_from(self.packet.len())?;
        let packet = PcapPacket::new(self.start + trace.elapsed, length, &self.packet);
        if let Some(writer) = &mut self.writer {
            writer.write_packet(&packet)?;
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        match self.writer.take() {
            Some(writer) => Ok(writer.into_writer().flush()?),
            None => Ok(()),
        }
    }
}

/// Writes the datagram with IP and UDP headers.
fn write_packet(trace: &PacketTrace<'_>, out: &mut Vec<u8>) -> anyhow::Result<()> {
    let ports = (trace.source.port(), trace.destination.port());
    let dscp = trace.dscp.unwrap_or(0) & 0x3F;
    let ecn = trace.ecn as u8;
    let ttl = trace.ttl.unwrap_or(TTL_UNKNOWN);
    match (trace.source.ip(), trace.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = u16::try_from(UdpHeader::LEN + trace.payload.len())?;
            let mut ip = Ipv4Header::new(length, ttl, IpNumber::UDP, source.octets(), destination.octets())?;
            ip.dscp = IpDscp::try_new(dscp)?;
            ip.ecn = IpEcn::try_new(ecn)?;
            ip.fragment_offset = IpFragOffset::ZERO;
            ip.header_checksum = ip.calc_header_checksum();
            ip.write(out)?;
            UdpHeader::with_ipv4_checksum(ports.0, ports.1, &ip, trace.payload)?.write(out)?;
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6Header {
                traffic_class: dscp << 2 | ecn,
                flow_label: Ipv6FlowLabel::ZERO,
                payload_length: u16::try_from(UdpHeader::LEN + trace.payload.len())?,
                next_header: IpNumber::UDP,
                hop_limit: ttl,
                source: source.octets(),
                destination: destination.octets(),
            };
            ip.write(out)?;
            UdpHeader::with_ipv6_checksum(ports.0, ports.1, &ip, trace.payload)?.write(out)?;
        }
        _ => anyhow::bail!("a datagram from {} to {} is of no IP version", trace.source, trace.destination),
    }
    out.extend_from_slice(trace.payload);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use headwater::Direction;
    use headwater_proto::Ecn;

    fn packet(source: &str, destination: &str) -> Vec<u8> {
        let trace = PacketTrace {
            direction: Direction::Sent,
            elapsed: Duration::ZERO,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ecn: Ecn::Capable0,
            dscp: Some(46),
            ttl: Some(5),
            payload: b"hello",
        };
        let mut out = Vec::new();
        write_packet(&trace, &mut out).unwrap();
        out
    }

    #[test]
    fn ipv4_packets_carry_the_headers_they_had() {
        let bytes = packet("192.0.2.1:9", "239.1.2.3:7287");
        let sliced = SlicedPacket::from_ip(&bytes).unwrap();
        let Some(NetSlice::Ipv4(ip)) = sliced.net else { panic!("IPv4 was written") };
        assert_eq!((ip.header().ttl(), ip.header().dcp().value(), ip.header().ecn().value()), (5, 46, 2));
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("UDP was written") };
        assert_eq!((udp.source_port(), udp.destination_port(), udp.payload()), (9, 7287, &b"hello"[..]));
    }

    #[test]
    fn ipv6_packets_carry_the_headers_they_had() {
        let bytes = packet("[2001:db8::1]:9", "[ff15::1]:7287");
        let sliced = SlicedPacket::from_ip(&bytes).unwrap();
        let Some(NetSlice::Ipv6(ip)) = sliced.net else { panic!("IPv6 was written") };
        assert_eq!((ip.header().hop_limit(), ip.header().traffic_class()), (5, 46 << 2 | 2));
        let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("UDP was written") };
        assert_eq!(udp.payload(), b"hello");
    }
}
