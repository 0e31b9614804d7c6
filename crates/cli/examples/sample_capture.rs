//! Writes a capture with every header extension, field size and FEC scheme that Headwater knows, over IPv4
//! and IPv6.
//!
//! `tests/interop/tshark.sh` asks stock tshark and `headwater inspect` what they see in it.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use etherparse::PacketBuilder;
use headwater_wire::cci::WebrcCci;
use headwater_wire::extensions::{
    ContentEncoding, DemandEcho, FdtExtension, Lateness, Levels, Members, Seq, Time,
};
use headwater_wire::fti::Ldpc;
use headwater_wire::rtt::LossClass;
use headwater_wire::{Cci, Extensions, Fti, PayloadId, alc};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

const PORT: u16 = 7287;
const SOURCE_PORT: u16 = 40_000;
const TTL: u8 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(path) = std::env::args_os().nth(1) else {
        return Err("usage: sample_capture FILE.pcap".into());
    };
    write(Path::new(&path))
}

fn write(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let header = PcapHeader { datalink: DataLink::RAW, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(path)?, header)?;
    for (index, payload) in (0..).zip(datagrams()?) {
        let bytes = if index % 2 == 0 { ipv4(&payload)? } else { ipv6(&payload)? };
        let length = u32::try_from(bytes.len())?;
        writer.write_packet(&PcapPacket::new_owned(Duration::from_millis(index), length, bytes))?;
    }
    Ok(())
}

fn ipv4(payload: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ipv4([192, 0, 2, 1], [239, 255, 72, 87], TTL).udp(SOURCE_PORT, PORT);
    builder.write(&mut bytes, payload)?;
    Ok(bytes)
}

fn ipv6(payload: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let source = "2001:db8::1".parse::<std::net::Ipv6Addr>()?.octets();
    let group = "ff3e::8000:4857".parse::<std::net::Ipv6Addr>()?.octets();
    let mut bytes = Vec::new();
    PacketBuilder::ipv6(source, group, TTL).udp(SOURCE_PORT, PORT).write(&mut bytes, payload)?;
    Ok(bytes)
}

/// What is written as a value, then what is written by hand because no value of ours says it.
fn datagrams() -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let mut datagrams = Vec::new();
    for repr in described().into_iter().chain(field_sizes()).chain(schemes()) {
        let mut datagram = vec![0; repr.buffer_len()];
        repr.emit(&mut datagram)?;
        if repr.payload_id.is_some() {
            datagram.extend(0..32_u8);
        }
        datagrams.push(datagram);
    }
    datagrams.extend(by_hand());
    Ok(datagrams)
}

fn plain() -> alc::Repr {
    alc::Repr {
        tsi: 0x4857,
        toi: Some(1),
        close_session: false,
        close_object: false,
        psi: 0,
        codepoint: 6,
        cci: Cci::ZERO,
        extensions: Extensions::default(),
        payload_id: Some(PayloadId { sbn: 3, esi: 70_000 }),
    }
}

/// One packet for each extension, and one with all that go together.
fn described() -> Vec<alc::Repr> {
    let with = |extensions| alc::Repr { extensions, ..plain() };
    let time = Time {
        sct_high: Some(0xE800_0000),
        sct_low: Some(0x8000_0000),
        expected_residual_time: Some(60),
        session_last_changed: Some(0xE700_0000),
        pi_specific: 0,
    };
    let seq = Seq { buffer: 7, offset: 1_000_000 };
    let fti = Fti::RaptorQ {
        transfer_length: 20_000_000,
        symbol_size: 1_408,
        blocks: 10,
        sub_blocks: 1,
        alignment: 4,
    };
    let fdt = FdtExtension { version: 2, instance_id: 0xABCDE };
    let all = Extensions {
        auth: false,
        crypt: None,
        time: Some(time),
        fti: Some(fti),
        fdt: Some(fdt),
        content_encoding: Some(ContentEncoding::Gzip),
        seq: Some(seq),
        levels: None,
        members: None,
        lateness: None,
    };
    let members = Members { exponent: 2, is_awaiting: true, is_quick: false, count: Members::rounded(1_234) };
    let lateness = Lateness { micros: 12_345 };
    let echo = DemandEcho { round: 13, is_open: true, level: 7, loss: LossClass::of(0.6) };
    vec![
        plain(),
        with(Extensions { time: Some(time), ..Extensions::default() }),
        with(Extensions { time: Some(Time { sct_low: None, ..time }), ..Extensions::default() }),
        with(Extensions { seq: Some(seq), ..Extensions::default() }),
        with(Extensions { levels: Some(Levels { ceiling: 9, demand: None }), ..Extensions::default() }),
        with(Extensions { levels: Some(Levels { ceiling: 9, demand: Some(echo) }), ..Extensions::default() }),
        with(Extensions { members: Some(members), ..Extensions::default() }),
        with(Extensions { lateness: Some(lateness), ..Extensions::default() }),
        with(Extensions { fti: Some(fti), ..Extensions::default() }),
        alc::Repr { toi: Some(0), ..with(all) },
        alc::Repr { close_object: true, ..plain() },
        alc::Repr { close_session: true, toi: None, payload_id: None, ..plain() },
        alc::Repr { close_session: true, close_object: true, payload_id: None, ..plain() },
    ]
}

/// Every length of the identifiers and of the congestion control field.
fn field_sizes() -> Vec<alc::Repr> {
    let identifiers = [
        (0xFFFF, 0xFFFF),
        (0x1_0000, 0x1_0000),
        (0xFFFF_FFFF, 0xFFFF_FFFF),
        (0xFFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF),
        (1, 0xFFFF_FFFF_FFFF_FFFF),
        (1, 0x1_2345_6789_ABCD_EF01_2345),
        (0xFFFF_FFFF_FFFF, (1 << 112) - 1),
    ];
    let long = WebrcCci { slot: 500, channel: 9, sequence: 123_456 }.long();
    let wide = |words: usize| Cci::new(&vec![0xA5; words * 4]).expect("3 or 4 words are a length of LCT");
    let of_cci = [long, wide(3), wide(4)].map(|cci| alc::Repr { cci, ..plain() });
    identifiers
        .map(|(tsi, toi)| alc::Repr { tsi, toi: Some(toi), ..plain() })
        .into_iter()
        .chain(of_cci)
        .collect()
}

/// Every scheme, with the EXT_FTI that belongs to it.
fn schemes() -> Vec<alc::Repr> {
    let ldpc = Ldpc {
        transfer_length: 1_000_000,
        symbol_size: 1_024,
        n1_minus3: 2,
        g: 1,
        max_block: 500,
        max_symbols: 750,
        seed: 12_345,
    };
    let schemes = [
        Fti::NoCode { transfer_length: 5_000, symbol_size: 1_408, max_block: 64 },
        Fti::LdpcStaircase(ldpc),
        Fti::LdpcTriangle(ldpc),
        Fti::ReedSolomon { transfer_length: 90_000, symbol_size: 1_024, max_block: 127, max_symbols: 255 },
    ];
    let with = |fti: Fti| alc::Repr {
        codepoint: fti.encoding_id().codepoint(),
        extensions: Extensions { fti: Some(fti), ..Extensions::default() },
        payload_id: Some(PayloadId { sbn: 2, esi: 200 }),
        ..plain()
    };
    schemes.map(with).to_vec()
}

/// EXT_NOP, EXT_AUTH and extensions that nobody has defined, of both kinds.
fn by_hand() -> Vec<Vec<u8>> {
    let packet = |extensions: &[u8]| {
        let words = 3 + u8::try_from(extensions.len() / 4).expect("a few words");
        let mut bytes = vec![0x10, 0x10, words, 6, 1, 2, 3, 4, 0x48, 0x57, 0, 1];
        bytes.extend_from_slice(extensions);
        bytes.extend([0, 0, 0, 9]);
        bytes.extend(0..32_u8);
        bytes
    };
    vec![
        packet(&[0, 1, 0, 0]),
        packet(&[1, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        packet(&[77, 2, 1, 2, 3, 4, 5, 6]),
        packet(&[222, 1, 2, 3]),
    ]
}
