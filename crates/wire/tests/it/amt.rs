//! AMT messages and the packets within. The IP packets were computed by another program.
use std::net::IpAddr;

use crate::hex::hex;
use headwater_wire::amt::inner::{InnerDatagram, InnerError};
use headwater_wire::amt::membership::{Query, RecordKind, Report, emit_report};
use headwater_wire::amt::{AmtError, Message, is_data};

const UDP4: &str = "45020021 00000000 4011cec4 c0000201 e8010203  0fa01c77000de3e4 68656c6c6f";
const UDP6: &str = "60200000 000d1140 20010db8000000000000000000000001 ff3e0000000000000000000080000001
    0fa01c77000de2f0 68656c6c6f";
const IGMP_QUERY: &str = "46c00024 00000000 01028209 c0000209 e0000001 94040000  110aece1 00000000 02140000";
const IGMP_REPORT: &str = "46c00034 00000000 010243ee 00000000 e0000016 94040000  220037f1 00000002
    05000001 e8010203 c0000201  04000000 ef010203";
const MLD_QUERY: &str = "6c000000 00240001 fe800000000000000000000000000009 ff020000000000000000000000000001
    3a00050200000100  82007a1f 03e80000 00000000000000000000000000000000 02140000";
const MLD_REPORT: &str = "6c000000 00340001 fe800000000000000000000000000002 ff020000000000000000000000000016
    3a00050200000100  8f00c100 00000001  05000001 ff3e0000000000000000000080000001
    20010db8000000000000000000000001";

const MAC: [u8; 6] = [1, 2, 3, 4, 5, 6];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn messages_are_written_and_read_as_in_the_rfc() {
    let gateway = "198.51.100.7:40000".parse().unwrap();
    let gateway6 = "[2001:db8::7]:40000".parse().unwrap();
    let messages = [
        (Message::Discovery { nonce: 0xA1B2_C3D4 }, "01000000 a1b2c3d4".to_owned()),
        (Message::Advertisement { nonce: 7, relay: ip("192.0.2.9") }, "02000000 00000007 c0000209".into()),
        (
            Message::Advertisement { nonce: 7, relay: ip("2001:db8::9") },
            "02000000 00000007 20010db8000000000000000000000009".into(),
        ),
        (Message::Request { nonce: 8, is_mld: false }, "03000000 00000008".into()),
        (Message::Request { nonce: 8, is_mld: true }, "03010000 00000008".into()),
        (
            Message::Query { mac: MAC, nonce: 8, is_limited: true, query: &[0x45], gateway: None },
            "0402 010203040506 00000008 45".into(),
        ),
        (
            Message::Query { mac: MAC, nonce: 8, is_limited: false, query: &[], gateway: Some(gateway) },
            "0401 010203040506 00000008 9c40 000000000000000000000000c6336407".into(),
        ),
        (
            Message::Query { mac: MAC, nonce: 8, is_limited: false, query: &[], gateway: Some(gateway6) },
            "0401 010203040506 00000008 9c40 20010db8000000000000000000000007".into(),
        ),
        (Message::Update { mac: MAC, nonce: 8, report: b"x" }, "0500 010203040506 00000008 78".into()),
        (Message::Data { packet: b"x" }, "0600 78".into()),
        (
            Message::Teardown { mac: MAC, nonce: 8, gateway },
            "0700 010203040506 00000008 9c40 000000000000000000000000c6336407".into(),
        ),
    ];
    for (message, bytes) in messages {
        let bytes = hex(&bytes);
        let mut buffer = [0xEE; 64];
        assert_eq!(message.emit(&mut buffer), Some(bytes.len()), "{message:?}");
        assert_eq!(&buffer[..bytes.len()], bytes, "{message:?}");
        assert_eq!(Message::parse(&bytes), Ok(message));
        assert_eq!(is_data(&bytes), matches!(message, Message::Data { .. }));
        assert_eq!(message.emit(&mut buffer[..bytes.len() - 1]), None, "no room");
    }
}

#[test]
fn other_versions_types_and_lengths_are_refused() {
    assert_eq!(Message::parse(&[]), Err(AmtError::Length(0)));
    assert_eq!(Message::parse(&hex("13000000 00000008")), Err(AmtError::Version(1)));
    assert_eq!(Message::parse(&hex("00000000 00000008")), Err(AmtError::Type(0)));
    assert_eq!(Message::parse(&hex("08000000 00000008")), Err(AmtError::Type(8)));
    assert_eq!(Message::parse(&hex("02000000 00000007 c000020909")), Err(AmtError::Length(13)));
    assert_eq!(Message::parse(&hex("0401 010203040506 00000008 9c40")), Err(AmtError::Length(14)));
    assert_eq!(Message::parse(&hex("06")), Err(AmtError::Length(1)));
    let mapped = hex("0700 010203040506 00000008 9c40 00000000000000000000ffffc6336407");
    let Ok(Message::Teardown { gateway, .. }) = Message::parse(&mapped) else { panic!("a teardown") };
    assert_eq!(gateway, "198.51.100.7:40000".parse().unwrap());
    // What is read is written as bytes that read the same, also for addresses of no host.
    for last in 0..3 {
        let mut bytes = mapped.clone();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&[0, 0, 0, last]);
        let message = Message::parse(&bytes).unwrap();
        let mut again = vec![0; 64];
        let length = message.emit(&mut again).unwrap();
        assert_eq!(Message::parse(&again[..length]), Ok(message), "0.0.0.{last}");
    }
}

#[test]
fn datagrams_within_have_both_checksums() {
    for (bytes, source, group) in
        [(UDP4, "192.0.2.1:4000", "232.1.2.3:7287"), (UDP6, "[2001:db8::1]:4000", "[ff3e::8000:1]:7287")]
    {
        let bytes = hex(bytes);
        let datagram = InnerDatagram {
            source: source.parse().unwrap(),
            destination: group.parse().unwrap(),
            ecn: 0b10,
            payload: b"hello",
        };
        let mut buffer = [0xEE; 64];
        assert_eq!(datagram.emit(&mut buffer), Some(bytes.len()));
        assert_eq!(&buffer[..bytes.len()], bytes);
        // Padding behind the packet is ignored.
        assert_eq!(InnerDatagram::parse(&buffer), Ok(datagram));
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            // Neither checksum covers the IPv6 traffic class, flow label and hop limit.
            let is_covered = source.starts_with('1') || (4..).contains(&(bit / 8)) && bit / 8 != 7;
            assert!(!is_covered || InnerDatagram::parse(&wrong).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(InnerDatagram::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
    }
}

#[test]
fn fragments_and_datagrams_without_a_checksum() {
    let ipv4 = |edit: &[(usize, u8)]| {
        let mut bytes = hex(UDP4);
        edit.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        bytes
    };
    // More fragments; the header's checksum follows.
    let fragment = ipv4(&[(6, 0x20), (10, 0xAE)]);
    assert_eq!(InnerDatagram::parse(&fragment), Err(InnerError::Fragment));
    let unchecked = ipv4(&[(26, 0), (27, 0)]);
    assert_eq!(InnerDatagram::parse(&unchecked).map(|datagram| datagram.payload), Ok(&b"hello"[..]));
    let mut unchecked = hex(UDP6);
    unchecked[46..48].fill(0);
    assert_eq!(InnerDatagram::parse(&unchecked), Err(InnerError::Checksum));
    let mixed = InnerDatagram {
        source: "192.0.2.1:1".parse().unwrap(),
        destination: "[ff3e::1]:1".parse().unwrap(),
        ecn: 0,
        payload: &[],
    };
    assert_eq!(mixed.emit(&mut [0; 100]), None);
}

#[test]
fn general_queries_of_both_versions() {
    for (bytes, is_mld, source) in [(IGMP_QUERY, false, "192.0.2.9"), (MLD_QUERY, true, "fe80::9")] {
        let query = Query { is_mld, interval_s: 20, robustness: 2 };
        let bytes = hex(bytes);
        let mut buffer = [0xEE; 80];
        assert_eq!(query.emit(ip(source), &mut buffer), Some(bytes.len()));
        assert_eq!(&buffer[..bytes.len()], bytes);
        assert_eq!(Query::parse(&bytes), Ok(query));
        assert!(Report::parse(&bytes).is_err());
        for length in 0..bytes.len() {
            assert!(Query::parse(&bytes[..length]).is_err());
        }
    }
}

#[test]
fn reports_of_both_versions() {
    let (group, group6) = (ip("232.1.2.3"), ip("ff3e::8000:1"));
    let (source, source6) = (ip("192.0.2.1"), ip("2001:db8::1"));
    let ipv4 = [(RecordKind::Allow, group, Some(source)), (RecordKind::ToExclude, ip("239.1.2.3"), None)];
    let ipv6 = [(RecordKind::Allow, group6, Some(source6))];
    let cases: [(&str, &str, &[_]); 2] = [(IGMP_REPORT, "0.0.0.0", &ipv4), (MLD_REPORT, "fe80::2", &ipv6)];
    for (bytes, host, records) in cases {
        let bytes = hex(bytes);
        let mut buffer = [0xEE; 120];
        assert_eq!(emit_report(ip(host), records, &mut buffer), Some(bytes.len()));
        assert_eq!(&buffer[..bytes.len()], bytes);
        let report = Report::parse(&bytes).unwrap();
        let read: Vec<_> = report.records().map(|of| (of.kind, of.group, of.sources().next())).collect();
        assert_eq!(read, records);
        for length in 0..bytes.len() {
            assert!(Report::parse(&bytes[..length]).is_err());
        }
    }
    assert_eq!(emit_report(ip("0.0.0.0"), &ipv6, &mut [0; 120]), None);
}
