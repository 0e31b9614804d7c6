//! Captures made by hand.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherparse::PacketBuilder;
use headwater_wire::auth::{Authentication, SenderKey, insert_manifest};
use headwater_wire::crypt::Crypt;
use headwater_wire::extensions::FdtExtension;
use headwater_wire::fdt::{ControlAttributes, Instance};
use headwater_wire::pgm::{self, Body, Fragment, NakList, Options, PgmReport};
use headwater_wire::{Cci, Extensions, Fti, PayloadId, alc};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

use crate::command::{headwater, run};

const PORT: u16 = 7287;

/// An ALC packet of RaptorQ: TSI 0x4857, TOI 1, slot 1, channel 2, sequence 772, EXT_SEQ, SBN 3, ESI 70000, 4
/// bytes.
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

/// Authentication and encryption; the payload of an encrypted packet has no symbol to show.
#[test]
fn extensions_of_keys_are_shown_by_their_fields() {
    let mut datagram = ALC.to_vec();
    let bytes = datagram.len();
    datagram.resize(2_000, 0);
    let crypt = Crypt { epoch: 3, salt: 0x1122, number: 70 };
    let bytes = crypt.insert(&mut datagram, bytes).unwrap().len() + bytes;
    let key = SenderKey { public: [0xAB; 32], is_ephemeral: true };
    let bytes = key.insert(&mut datagram, bytes).unwrap();
    let bytes = insert_manifest(&mut datagram, bytes, [[1; 12], [2; 12]].into_iter()).unwrap();
    let auth = Authentication {
        depth: 0,
        leaf: 0,
        started: 4_000_000_000,
        number: 5,
        key: [0xDE, 0xAD, 0xBE, 0xEF],
        pass: [0; 6],
        next_pass: [0; 6],
        signature: [0; 64],
        path: [[0; 16]; 4],
    };
    let bytes = bytes + auth.insert(&mut datagram, bytes).unwrap().len();
    datagram.truncate(bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = capture(folder.path(), &[ipv4(PORT, &datagram)]);
    let text = run(&["inspect", path.to_str().unwrap()]).stdout;
    for part in [
        "payload=8 ",
        "EXT_CRYPT(epoch 3 salt 0000000000001122 number 70)",
        &format!("EXT_KEY({} ephemeral)", "ab".repeat(32)),
        "EXT_MANIFEST(2 tags)",
        "EXT_AUTH(number 5 depth 0 leaf 0 started 4000000000 key deadbeef)",
    ] {
        assert!(text.contains(part), "'{part}' is missing in {text}");
    }
    assert!(!text.contains("sbn=") && !text.contains('['), "{text}");
}

/// Slot 5 with the increase trigger, group 2, sequence 772: in WEBRC's shape slot 133.
#[test]
fn the_cci_of_flid_dl_is_read_once_its_fdt_was_seen() {
    let mut control = ControlAttributes::new("flid-dl").unwrap();
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
    assert!(port.contains("neither ALC nor PGM"), "{port}");
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
            // The writer stores nanoseconds as ticks, which an interface without a resolution counts in
            // microseconds.
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

const GSI: pgm::Gsi = pgm::Gsi([1, 2, 3, 4, 5, 6]);

/// A PGM packet in a datagram to a UDP port.
fn in_pgm(port: u16, source_port: u16, body: Body<'_>, options: Options) -> Vec<u8> {
    let packet = pgm::Packet { options, ..pgm::Packet::new(source_port, 7_500, GSI, body) };
    let mut payload = vec![0; packet.buffer_len()];
    packet.emit(&mut payload).unwrap();
    ipv4(port, &payload)
}

/// The packet of above as a session of files over PGM carries it: its CCI is PGM's sequence number.
fn carried() -> Vec<u8> {
    let mut data = ALC;
    data[4..8].copy_from_slice(&[0, 0, 1, 2]);
    in_pgm(PORT, 0x9000, Body::Odata { sequence: 0x7_0102, trail: 5, data: &data }, Options::default())
}

#[test]
fn what_pgm_carries_is_shown_as_if_it_were_not_carried() {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(folder.path(), &[carried()]);
    let path = path.to_str().unwrap();
    let text = run(&["inspect", path]).stdout;
    for part in [
        "pgm type=ODATA gsi=010203040506 source_port=36864 destination_port=7500 sequence=459010 trail=5 data_bytes=28 | version=1",
        "tsi=18519 toi=1",
        "slot 0 channel 0 sequence 258",
        "sbn=3 esi=70000 payload=4 EXT_SEQ(buffer 7 offset 1000000)",
    ] {
        assert!(text.contains(part), "'{part}' is missing in {text}");
    }
    let json = &run(&["inspect", "--json", path]).json()[0];
    assert_eq!(
        (json["pgm"]["type"].as_str(), json["pgm"]["sequence"].as_u64()),
        (Some("ODATA"), Some(459_010))
    );
    assert_eq!((json["lct"]["tsi"].as_u64(), json["fec"]["esi"].as_u64()), (Some(18_519), Some(70_000)));
    let fields = run(&["inspect", "--fields", "tsv", path]).stdout;
    assert!(fields.ends_with("\tdeadbeef\n"), "{fields}");
}

#[test]
fn packets_of_pgm_by_themselves_are_shown_field_by_field() {
    let report = PgmReport { sequence: 7, source: [192, 0, 2, 1].into(), group: [239, 255, 72, 87].into() };
    let mut nak_list = NakList::default();
    assert!(nak_list.push(9) && nak_list.push(12));
    let fragment = Some(Fragment { first: 31, offset: 1_024, length: 1_029 });
    let data = |source_port, options| {
        in_pgm(3_056, source_port, Body::Odata { sequence: 32, trail: 16, data: &ALC }, options)
    };
    // A message may look like a packet of files: its CCI is no sequence number.
    let lone = data(0x9000, Options { fragment, join: Some(16), fin: true, ..Options::default() });
    let folder = tempfile::tempdir().unwrap();
    let path = capture(
        folder.path(),
        &[
            in_pgm(3_056, 40_000, Body::Nak(report), Options { nak_list, ..Options::default() }),
            lone,
            in_pgm(
                3_056,
                40_000,
                Body::Spm { sequence: 1, trail: 0, lead: 31, path: report.source },
                Options::default(),
            ),
            // The first bits of this one's source port are LCT's version.
            data(0x1010, Options::default()),
        ],
    );
    let path = path.to_str().unwrap();
    let text = run(&["inspect", path]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    for (line, part) in lines.iter().zip([
        "type=NAK gsi=010203040506 source_port=40000 destination_port=7500 sequences=[7,9,12] source=192.0.2.1 group=239.255.72.87",
        "data_bytes=28 fragment_first=31 fragment_offset=1024 fragment_length=1029 join=16 fin",
        "type=SPM gsi=010203040506 source_port=40000 destination_port=7500 sequence=1 trail=0 lead=31 path=192.0.2.1",
        "type=ODATA gsi=010203040506 source_port=4112",
    ]) {
        assert!(line.ends_with(part) || line.contains(part) && part.ends_with("4112"), "'{part}' is not the end of {line}");
        assert!(!line.contains("tsi="), "{line}");
    }
    let json = run(&["inspect", "--json", path]).json();
    assert_eq!(json[0]["pgm"]["sequences"], serde_json::json!([7, 9, 12]));
    assert_eq!((&json[1]["pgm"]["fin"], json[1].get("lct")), (&true.into(), None));
}

/// Without a checksum a datagram may be anything: it counts as PGM where PGM is.
#[test]
fn only_what_is_surely_pgm_is_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let spmr = |port| {
        let mut datagram = in_pgm(port, 40_000, Body::Spmr, Options::default());
        let end = datagram.len();
        datagram[end - 10..end - 8].fill(0);
        datagram
    };
    let mut broken = carried();
    *broken.last_mut().unwrap() ^= 1;
    let path = capture(folder.path(), &[spmr(PORT), spmr(3_056), broken]);
    let path = path.to_str().unwrap();
    let text = run(&["inspect", path]).stdout;
    assert!(text.lines().count() == 1 && text.contains(":3056 pgm type=SPMR"), "{text}");
    let text = run(&["inspect", "--port", "7287", path]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("pgm type=SPMR") && lines[1].contains("neither ALC nor PGM"), "{text}");
    assert!(lines[1].contains("wrong checksum"), "{text}");
}
