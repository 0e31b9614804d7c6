//! Captures made by hand.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherparse::PacketBuilder;
use headwater_wire::extensions::FdtExtension;
use headwater_wire::fdt::{Control, Instance};
use headwater_wire::{Cci, Extensions, Fti, PayloadId, alc};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

use crate::command::{headwater, run};

const PORT: u16 = 7287;

/// An ALC packet of RaptorQ: TSI 0x4857, TOI 1, slot 1, channel 2, sequence 772, EXT_SEQ, SBN 3, ESI 70000, 4 bytes.
const ALC: [u8; 28] = [
    0x10, 0x10, 5, 6, 1, 2, 3, 4, 0x48, 0x57, 0, 1, 96, 2, 0, 7, 0, 15, 0x42, 0x40, 3, 1, 0x11, 0x70, 0xDE,
    0xAD, 0xBE, 0xEF,
];

fn ipv4(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4([192, 0, 2, 1], [239, 255, 72, 87], 1).udp(40_000, port);
    builder.write(&mut bytes, payload).unwrap();
    bytes
}

fn capture(folder: &Path, packets: &[Vec<u8>]) -> PathBuf {
    let path = folder.join("x.pcap");
    let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(&path).unwrap(), header).unwrap();
    for (index, packet) in (0..).zip(packets) {
        let length = u32::try_from(packet.len()).unwrap();
        writer.write_packet(&PcapPacket::new(Duration::from_millis(index), length, packet)).unwrap();
    }
    path
}

#[test]
fn a_packet_is_shown_field_by_field_in_three_forms() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(folder.path(), &[ipv4(PORT, &ALC)]);
    let path = path.to_str().unwrap();
    let text = run(&["inspect", path]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    for part in [
        "192.0.2.1:40000 > 239.255.72.87:7287",
        "version=1",
        "hlen=20",
        "codepoint=6 (RaptorQ)",
        "tsi=18519",
        "toi=1",
        "slot 1 channel 2 sequence 772",
        "sbn=3",
        "esi=70000",
        "payload=4",
        "EXT_SEQ(buffer 7 offset 1000000)",
    ] {
        assert!(text.stdout.contains(part), "'{part}' is missing in {}", text.stdout);
    }
    let json = &run(&["inspect", "--json", path]).json()[0];
    assert_eq!((json["lct"]["tsi"].as_u64(), json["lct"]["toi"].as_str()), (Some(18_519), Some("1")));
    assert_eq!(json["lct"]["cci"]["sequence"], 772);
    assert_eq!((json["fec"]["sbn"].as_u64(), json["fec"]["esi"].as_u64()), (Some(3), Some(70_000)));
    assert_eq!(json["extensions"][0]["offset"], 1_000_000);
    let fields = run(&["inspect", "--fields", "tsv", path]).stdout;
    let rows: Vec<Vec<&str>> = fields.lines().map(|line| line.split('\t').collect()).collect();
    let cell = |name| rows[1][rows[0].iter().position(|column| *column == name).unwrap()];
    assert_eq!((cell("frame.number"), cell("udp.length")), ("1", "36"));
    assert_eq!((cell("rmt-fec.esi"), cell("alc.payload")), ("0x00011170", "deadbeef"));
    assert_eq!((cell("rmt-lct.hec.type"), cell("rmt-lct.hec.data")), ("96", "0007000f4240"));
}

/// Slot 5 with the increase trigger, group 2, sequence 772: in WEBRC's shape slot 133.
#[test]
fn the_cci_of_flid_dl_is_read_once_its_fdt_was_seen() {
    let mut control = Control::new("flid-dl").unwrap();
    control.put("base-rate", 120_000).unwrap();
    let fdt = Instance { control: Some(control), ..Instance::default() }.to_xml();
    let header = alc::Repr {
        tsi: 0x4857,
        toi: Some(0),
        close_session: false,
        close_object: false,
        psi: 0,
        codepoint: 0,
        cci: Cci::ZERO,
        extensions: Extensions {
            fti: Some(Fti::NoCode {
                transfer_length: fdt.len().try_into().unwrap(),
                symbol_size: 1_400,
                max_block: 8,
            }),
            fdt: Some(FdtExtension { version: 2, instance_id: 1 }),
            ..Extensions::default()
        },
        payload_id: Some(PayloadId { sbn: 0, esi: 0 }),
    };
    assert!(fdt.len() <= 1_400);
    let mut described = vec![0; header.buffer_len()];
    header.emit(&mut described).unwrap();
    described.extend(fdt.as_bytes());
    let mut packet = ALC;
    packet[4] = 0x85;
    let folder = tempfile::tempdir().unwrap();
    let path = capture(folder.path(), &[ipv4(PORT, &packet), ipv4(PORT, &described), ipv4(PORT, &packet)]);
    let path = path.to_str().unwrap();
    let text = run(&["inspect", path]).stdout;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("tsi=18519 toi=1")).collect();
    assert!(lines[0].contains("(slot 133 channel 2 sequence 772)"), "{text}");
    assert!(lines[1].contains("(slot 5 channel 2 sequence 772 increase)"), "{text}");
    let json = run(&["inspect", "--json", path]).json();
    assert_eq!(
        (json[0]["lct"]["cci"]["slot"].as_u64(), json[0]["lct"]["cci"].get("increase")),
        (Some(133), None)
    );
    assert_eq!(
        (json[2]["lct"]["cci"]["slot"].as_u64(), json[2]["lct"]["cci"]["increase"].as_bool()),
        (Some(5), Some(true))
    );
}

#[test]
fn other_traffic_is_passed_over_unless_a_port_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path =
        capture(folder.path(), &[ipv4(53, b"no ALC at all"), ipv4(PORT, &ALC), ipv4(PORT, &[0x20, 0])]);
    let path = path.to_str().unwrap();
    assert_eq!(run(&["inspect", path]).stdout.lines().count(), 1);
    let port = run(&["inspect", "--port", "7287", path]).stdout;
    assert_eq!(port.lines().count(), 2);
    assert!(port.contains("no ALC packet"), "{port}");
    // One row for every frame, so that rows of two tools stay side by side.
    assert_eq!(run(&["inspect", "--fields", "tsv", "--port", "53", path]).stdout.lines().count(), 4);
    let nothing = run(&["inspect", "--port", "9", path]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(0), ""));
    assert!(nothing.stderr.contains("--port"), "{}", nothing.stderr);
}

#[test]
fn pcapng_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcapng");
    let mut writer = PcapNgWriter::new(File::create(&path).unwrap()).unwrap();
    writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0)).unwrap();
    let frame = [&[1, 0, 0x5E, 127, 72, 87, 2, 0, 0, 0, 0, 1, 8, 0], &ipv4(PORT, &ALC)[..]].concat();
    for micros in [0, 1_500] {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            // The writer stores nanoseconds as ticks, which an interface without a resolution counts in microseconds.
            timestamp: Duration::from_nanos(micros),
            original_len: u32::try_from(frame.len()).unwrap(),
            data: Cow::Borrowed(&frame),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
    }
    let json = run(&["inspect", "--json", path.to_str().unwrap()]).json();
    assert_eq!(json.len(), 2);
    assert_eq!((json[1]["time"].as_f64(), json[1]["fec"]["esi"].as_u64()), (Some(0.0015), Some(70_000)));
}

#[test]
fn broken_captures_end_with_an_error_and_never_with_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(folder.path(), &[ipv4(PORT, &ALC), ipv4(PORT, &ALC)]);
    let whole = fs::read(&path).unwrap();
    for cut in (0..whole.len()).step_by(5) {
        fs::write(&path, &whole[..cut]).unwrap();
        let run = run(&["inspect", path.to_str().unwrap()]);
        assert!(matches!(run.code, Some(0 | 7)), "cut at {cut}: {:?} {}", run.code, run.stderr);
    }
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let run = run(&["inspect", path.to_str().unwrap()]);
    assert_eq!((run.code, run.stdout.lines().count()), (Some(7), 1), "what is whole is shown");
    assert!(run.stderr.contains("beyond frame 1"), "{}", run.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(folder.path(), &vec![ipv4(PORT, &ALC); 5_000]);
    let mut child = headwater().args(["inspect", path.to_str().unwrap()]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
