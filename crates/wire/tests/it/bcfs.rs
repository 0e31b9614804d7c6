//! Messages of the Breadcrumb Forwarding Service.
use std::net::SocketAddr;

use headwater_wire::bcfs::{ExchangeError, Header, Kind, Label, Level, WORD_BYTES, word_mut};
use headwater_wire::lct;
use proptest::prelude::*;

use crate::hex::hex;

const REQUEST: &str = "485742 10 0000000a 0001 20 04 1c77 0000 c0000201";
const NULL: &str = "485742 11 0000000a 0001 20 04 1c77 0000 c0000201";
const REPLY: &str = "485742 12 fffffffe 0002 1f 06 1c77 0000 20010db8000000000000000000000001";
const ANY: &str = "485742 10 0000000a 0001 20 04 1c77 0001 c0000201";
const AFTER_LOSS: &str = "485742 12 fffffffe 0002 1f 06 1c77 0002 20010db8000000000000000000000001";
const CHALLENGE: &str = "485742 13 0000000a 0001 20 04 1c77 0001 c0000201";
const RENEWAL: &str = "485742 13 0000000a 0001 20 04 1c77 0005 c0000201";
const WORD: &str = "0123456789abcdef";
const BODY: &str = "0123456789";

fn ipv4() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 7287))
}

fn ipv6() -> SocketAddr {
    SocketAddr::from(([0x2001, 0xDB8, 0, 0, 0, 0, 0, 1], 7287))
}

fn emitted(header: &Header) -> Vec<u8> {
    let mut bytes = vec![0xEE; header.buffer_len()];
    assert_eq!(header.emit(&mut bytes), Ok(bytes.len()));
    bytes
}

#[test]
fn messages_are_these_bytes() {
    let request = Header::new(Kind::Request, ipv4(), Label(10), Level(1));
    let null = Header { kind: Kind::Null, ..request };
    let reply = Header { hops: 31, ..Header::new(Kind::Reply, ipv6(), Label(0xFFFF_FFFE), Level(2)) };
    let any = Header { is_any: true, ..request };
    let after_loss = Header { follows_loss: true, ..reply };
    let challenge = Header { kind: Kind::Challenge, ..any };
    let renewal = Header { is_renewal: true, ..challenge };
    for (header, digits, body) in [
        (request, REQUEST, BODY),
        (null, NULL, ""),
        (reply, REPLY, BODY),
        (any, ANY, BODY),
        (after_loss, AFTER_LOSS, BODY),
        (challenge, CHALLENGE, WORD),
        (renewal, RENEWAL, WORD),
        (null, NULL, "0123456789abcdef0000000000000000"),
    ] {
        assert_eq!(emitted(&header), hex(digits));
        let (datagram, body) = (hex(&format!("{digits}{body}")), hex(body));
        assert_eq!(Header::parse(&datagram), Ok((header, body.as_slice())));
    }
}

#[test]
fn a_request_over_ipv4_has_the_size_of_an_ack() {
    assert_eq!(20 + hex(REQUEST).len(), 40, "behind an IPv4 header");
}

#[test]
fn other_datagrams_are_refused_with_the_reason() {
    let changed = |at: usize, value: u8| {
        let mut bytes = hex(REQUEST);
        bytes[at] = value;
        Header::parse(&bytes).err()
    };
    assert_eq!(changed(2, b'T'), Some(ExchangeError::Magic), "TFMCC");
    assert_eq!(changed(3, 0x20), Some(ExchangeError::Version(2)));
    assert_eq!(changed(3, 0x13), Some(ExchangeError::Length(20)), "a challenge has a word");
    assert_eq!(changed(3, 0x14), Some(ExchangeError::Kind(4)));
    assert_eq!(changed(11, 5), Some(ExchangeError::Family(5)));
    assert_eq!(changed(11, 6), Some(ExchangeError::Length(20)), "IPv6 takes 32");
    for (digits, lens) in [(REQUEST, 3..20), (REPLY, 3..32)] {
        for len in lens {
            assert_eq!(Header::parse(&hex(digits)[..len]), Err(ExchangeError::Length(len)));
        }
    }
    assert_eq!(
        Header::parse(&hex(&format!("{NULL}00"))),
        Err(ExchangeError::Length(21)),
        "a null has no content"
    );
    assert!(lct::Packet::new_checked(hex(REQUEST).as_slice()).is_err(), "no receiver of LCT takes it");
}

#[test]
fn the_word_of_a_request_is_written_in_place() {
    let mut worded = hex(&format!("{REQUEST}00000000000000000000000000000000"));
    *word_mut(&mut worded).expect("a body of 16 bytes") = *b"12345678";
    assert_eq!(Header::parse(&worded).expect("a request").1, b"12345678\0\0\0\0\0\0\0\0");
    assert_eq!(word_mut(&mut hex(&format!("{REQUEST}{WORD}"))), None, "too short a body");
    assert_eq!(word_mut(&mut [0; 40]), None);
}

#[test]
fn an_ipv4_address_has_one_form() {
    let mapped = "[::ffff:192.0.2.1]:7287".parse().unwrap();
    let header = Header::new(Kind::Request, mapped, Label(10), Level(1));
    assert_eq!(emitted(&header), hex(REQUEST));
    let long = "485742 10 0000000a 0001 20 06 1c77 0000 00000000000000000000ffffc0000201";
    assert_eq!(Header::parse(&hex(long)).unwrap().0, Header { source: ipv4(), ..header });
}

#[test]
fn short_buffers_are_refused_and_the_highest_level_stays() {
    let header = Header::new(Kind::Reply, ipv6(), Label(1), Level(u16::MAX));
    assert_eq!(header.emit(&mut [0; 31]), Err(ExchangeError::Length(31)));
    assert_eq!(header.level.raised(), Level(u16::MAX));
    assert_eq!(Level::ZERO.raised(), Level::ONE);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn what_is_written_is_read(
        source in any::<SocketAddr>(), kind in 0..4_usize, (label, level, hops) in any::<(u32, u16, u8)>(),
        mut body in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let kind = [Kind::Request, Kind::Null, Kind::Reply, Kind::Challenge][kind];
        match kind {
            Kind::Null => body.clear(),
            Kind::Challenge => body.resize(WORD_BYTES, 0),
            Kind::Request | Kind::Reply => {}
        }
        // Without what is not carried.
        let source = SocketAddr::new(source.ip().to_canonical(), source.port());
        let header = Header { hops, ..Header::new(kind, source, Label(label), Level(level)) };
        let mut datagram = emitted(&header);
        datagram.extend(&body);
        prop_assert_eq!(Header::parse(&datagram), Ok((header, body.as_slice())));
    }

    #[test]
    fn what_is_read_is_written_the_same(
        kind in 0..5_u8, middle in any::<[u8; 7]>(), family in 0..8_u8, tail in prop::collection::vec(any::<u8>(), 0..48),
    ) {
        let mut bytes = vec![b'H', b'W', b'B', 0x10 | kind];
        bytes.extend(middle);
        bytes.push(family);
        bytes.extend(tail);
        if let Ok((header, body)) = Header::parse(&bytes) {
            let mut written = emitted(&header);
            written.extend(body);
            prop_assert_eq!(Header::parse(&written), Ok((header, body)));
        }
    }
}
