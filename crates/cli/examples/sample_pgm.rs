//! Writes a capture with every type of PGM packet and every option that Headwater knows, encapsulated in UDP.
//!
//! `tests/interop/pgm.sh` asks stock tshark what it sees in it.

use std::fs::File;
use std::net::IpAddr;
use std::time::Duration;

use etherparse::PacketBuilder;
use headwater_wire::pgm::{
    Body, CongestionData, CongestionFeedback, Fragment, Gsi, NAK_LIST_MAX, Options, Packet, Parity, PgmReport,
};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

const PORT: u16 = 3056;
const SOURCE_PORT: u16 = 40_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args_os().nth(1) else { return Err("usage: sample_pgm FILE.pcap".into()) };
    let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(path)?, header)?;
    for (index, (body, options)) in (0..).zip(packets()?) {
        let packet = Packet { options, ..Packet::new(40_961, 7_500, Gsi([1, 2, 3, 4, 5, 6]), body) };
        let mut payload = vec![0; packet.buffer_len()];
        packet.emit(&mut payload)?;
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [239, 255, 72, 87], 1).udp(SOURCE_PORT, PORT);
        builder.write(&mut bytes, &payload)?;
        let length = u32::try_from(bytes.len())?;
        writer.write_packet(&PcapPacket::new_owned(Duration::from_millis(index), length, bytes))?;
    }
    Ok(())
}

fn packets() -> Result<Vec<(Body<'static>, Options)>, Box<dyn std::error::Error>> {
    let source: IpAddr = "192.0.2.1".parse()?;
    let wide: IpAddr = "2001:db8::1".parse()?;
    let group: IpAddr = "239.255.72.87".parse()?;
    let none = Options::default();
    let odata = |options| (Body::Odata { sequence: 32, trail: 16, data: b"hello" }, options);
    let report = PgmReport { sequence: u32::MAX, source, group };
    let mut nak_list = none.nak_list;
    (0..).take(NAK_LIST_MAX).for_each(|number| assert!(nak_list.push(number), "there is room"));
    let fragment = Some(Fragment { first: 31, offset: 1_024, length: 1_029 });
    let parity = Some(Parity { pro_active: true, on_demand: true, group_size: 8 });
    let feedback = Some(CongestionFeedback { timestamp: 9, loss_rate: 655, receiver: source });
    let spm = |path| Body::Spm { sequence: 7, trail: 16, lead: 31, path };
    Ok(vec![
        (spm(source), none),
        (spm(wide), none),
        (spm(source), Options { parity, group_size: Some(3), syn: true, ..none }),
        odata(none),
        odata(Options { fragment, join: Some(16), fin: true, ..none }),
        odata(Options { congestion_data: Some(CongestionData { timestamp: 9, acker: source }), ..none }),
        odata(Options { parity_group: Some(4), reset: Some(1), ..none }),
        (Body::Rdata { sequence: 20, trail: 16, data: b"again" }, none),
        (Body::Nak(report), none),
        (Body::Nak(report), Options { nak_list, congestion_feedback: feedback, ..none }),
        (Body::Nnak(report), none),
        (Body::Ncf(PgmReport { source: wide, group: "ff3e::8000:4857".parse()?, ..report }), none),
        (Body::Ncf(report), Options { nak_list, join: Some(16), ..none }),
        (Body::Spmr, none),
        (Body::Ack { highest: 32, bitmap: 0xFFFF_FFFE }, Options { congestion_feedback: feedback, ..none }),
    ])
}
