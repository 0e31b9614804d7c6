//! PGM packets: literal ones of every type, round trips, and bytes that are wrong on purpose.
use std::net::IpAddr;

use headwater_wire::pgm::{
    Body, CongestionData, CongestionFeedback, Fragment, Gsi, NAK_LIST_MAX, NakList, Options, Packet, Parity,
    PgmPacketError, PgmReport, PgmWord,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::hex::hex;

const SPM: &str = "a001 1d4c 00 00 776d 010203040506 0000 00000007 00000010 0000001f 0001 0000 c0000201";
const ODATA: &str = "a001 1d4c 04 00 f19e 010203040506 0005 00000020 00000010 68656c6c6f";
const FRAGMENT: &str = "a001 1d4c 05 01 e6c4 010203040506 0003 00000020 00000010
    0004 0014 81 10 00 00 0000001f 00000400 00000403 616263";
const NAK: &str = "1d4c a001 08 03 b528 010203040506 0000 fffffffe 0001 0000 c0000201 0001 0000 efff4857
    0004 0010 82 0c 00 00 ffffffff 00000000";
const NCF: &str = "a001 1d4c 0a 01 b200 010203040506 0000 00000021 0001 0000 c0000201 0001 0000 efff4857
    0004 000c 83 08 00 00 00000010";
const SPMR: &str = "1d4c a001 0c 00 2da6 010203040506 0000";

const GSI: Gsi = Gsi([1, 2, 3, 4, 5, 6]);

fn v4(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn report(sequence: u32) -> PgmReport {
    PgmReport { sequence, source: v4("192.0.2.1"), group: v4("239.255.72.87") }
}

fn down(body: Body<'_>, options: Options) -> Packet<'_> {
    Packet { options, ..Packet::new(0xA001, 0x1D4C, GSI, body) }
}

fn up(body: Body<'_>, options: Options) -> Packet<'_> {
    Packet { options, ..Packet::new(0x1D4C, 0xA001, GSI, body) }
}

fn list(numbers: &[u32]) -> NakList {
    let mut list = NakList::default();
    assert!(numbers.iter().all(|number| list.push(*number)), "too long");
    list
}

fn emitted(packet: &Packet<'_>) -> Vec<u8> {
    let mut buffer = vec![0xAA; packet.buffer_len()];
    assert_eq!(packet.emit(&mut buffer), Ok(buffer.len()));
    buffer
}

/// The bytes with their checksum made right again, so that what lies behind it is looked at.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[6..8].fill(0);
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let sum = match u16::try_from(sum).map(|sum| !sum) {
        Ok(0) | Err(_) => 0xFFFF,
        Ok(sum) => sum,
    };
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn packets_are_these_bytes() {
    let spm = Body::Spm { sequence: 7, trail: 16, lead: 31, path: v4("192.0.2.1") };
    let odata = Body::Odata { sequence: 32, trail: 16, data: b"hello" };
    let rdata = Body::Rdata { sequence: 32, trail: 16, data: b"abc" };
    let fragment = Some(Fragment { first: 31, offset: 1024, length: 1027 });
    let none = Options::default();
    for (packet, digits) in [
        (down(spm, none), SPM),
        (down(odata, none), ODATA),
        (down(rdata, Options { fragment, ..none }), FRAGMENT),
        (up(Body::Nak(report(u32::MAX - 1)), Options { nak_list: list(&[u32::MAX, 0]), ..none }), NAK),
        (down(Body::Ncf(report(33)), Options { join: Some(16), ..none }), NCF),
        (up(Body::Spmr, none), SPMR),
    ] {
        let bytes = hex(digits);
        assert_eq!(emitted(&packet), bytes, "{packet:?}");
        assert_eq!(Packet::parse(&bytes), Ok(packet), "{digits}");
    }
}

#[test]
fn ipv6_takes_addresses_of_16_bytes() {
    let path = "2001:db8::1".parse().expect("an address");
    let spm = down(Body::Spm { sequence: 1, trail: 2, lead: 3, path }, Options::default());
    let bytes = emitted(&spm);
    assert_eq!((bytes.len(), &bytes[28..30]), (48, &[0, 2][..]));
    assert_eq!(Packet::parse(&bytes), Ok(spm));
}

#[test]
fn data_must_have_a_checksum_and_others_may() {
    let zeroed = |digits: &str| {
        let mut bytes = hex(digits);
        bytes[6..8].fill(0);
        bytes
    };
    assert_eq!(Packet::parse(&zeroed(ODATA)), Err(PgmPacketError::Checksum));
    assert!(Packet::parse(&zeroed(SPM)).is_ok());
    for digits in [SPM, ODATA, FRAGMENT, NAK, NCF, SPMR] {
        let bytes = hex(digits);
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Packet::parse(&wrong).is_err(), "bit {bit} of {digits}");
        }
    }
}

#[test]
fn wrong_lengths_are_refused_with_the_reason() {
    let changed = |digits: &str, at: usize, value: u8| {
        let mut bytes = hex(digits);
        bytes[at] = value;
        summed(bytes)
    };
    let refused = |bytes: &[u8]| Packet::parse(bytes).expect_err("it is wrong");
    assert_eq!(refused(&changed(ODATA, 15, 6)), PgmPacketError::DataLength { said: 6, have: 5 });
    assert_eq!(refused(&changed(SPMR, 4, 1)), PgmPacketError::Type(1), "POLL");
    assert_eq!(refused(&changed(NAK, 21, 9)), PgmPacketError::AddressFamily(9));
    let mut longer = hex(SPM);
    longer.extend([0; 4]);
    assert_eq!(refused(&summed(longer)), PgmPacketError::DataLength { said: 0, have: 4 });
    for cut in 16..hex(SPM).len() {
        assert!(
            matches!(refused(&summed(hex(SPM)[..cut].to_vec())), PgmPacketError::Truncated { .. }),
            "{cut}"
        );
    }
}

#[test]
fn options_that_loop_or_overrun_are_refused() {
    let at = 36; // OPT_LENGTH of the NAK
    let changed = |changes: &[(usize, u8)]| {
        let mut bytes = hex(NAK);
        changes.iter().for_each(|(offset, value)| bytes[at + offset] = *value);
        Packet::parse(&summed(bytes)).map(|packet| packet.options).expect_err("it is wrong")
    };
    assert_eq!(changed(&[(5, 0)]), PgmPacketError::OptionLength { kind: 2, len: 0 }, "it would never get on");
    assert_eq!(changed(&[(5, 3)]), PgmPacketError::OptionLength { kind: 2, len: 3 });
    assert_eq!(changed(&[(5, 16)]), PgmPacketError::OptionLength { kind: 2, len: 16 }, "beyond OPT_LENGTH");
    assert_eq!(changed(&[(5, 8)]), PgmPacketError::OptionsLength(16), "the end before the end");
    assert_eq!(changed(&[(4, 2)]), PgmPacketError::OptionsLength(16), "no end");
    assert_eq!(changed(&[(0, 2)]), PgmPacketError::OptionsLength(16), "OPT_LENGTH is not in front");
    assert_eq!(changed(&[(3, 3)]), PgmPacketError::OptionsLength(3));
    assert_eq!(changed(&[(4, 0x83)]), PgmPacketError::OptionLength { kind: 3, len: 12 });
    let mut many = hex(SPM);
    many[5] = 1;
    many.extend([0, 4, 0, 4 + 4 * 16]);
    many.extend([0x0D, 4, 0, 0].repeat(16));
    assert_eq!(Packet::parse(&summed(many)), Err(PgmPacketError::TooManyOptions));
}

#[test]
fn unknown_options_are_skipped_unless_the_packet_is_void_without() {
    let with = |opx: u8| {
        let mut bytes = hex(SPM);
        bytes[5] = 1;
        bytes.extend([0, 4, 0, 16, 0x55, 8, opx, 0, 1, 2, 3, 4, 0x8D, 4, 0, 0]);
        Packet::parse(&summed(bytes)).map(|packet| packet.options)
    };
    let expected = Options { syn: true, ..Options::default() };
    assert_eq!(with(0), Ok(expected));
    assert_eq!(with(1), Ok(expected));
    assert_eq!(with(2), Err(PgmPacketError::UnknownOption(0x55)));
}

#[test]
fn the_option_of_a_word_is_these_bytes() {
    let word = Some(PgmWord { word: *b"\x01\x23\x45\x67\x89\xAB\xCD\xEF", is_dismissed: true });
    let bytes = emitted(&up(Body::Spmr, Options { word, ..Options::default() }));
    assert_eq!(bytes[16..], hex("00 04 0010 f0 0c 00 01 0123456789abcdef"));
    assert_eq!(Packet::parse(&bytes).expect("a packet").options.word, word);
}

#[test]
fn a_buffer_that_is_too_short_is_left_alone() {
    let packet = down(Body::Odata { sequence: 1, trail: 1, data: b"x" }, Options::default());
    let mut buffer = [0; 24];
    assert_eq!(packet.emit(&mut buffer), Err(PgmPacketError::Truncated { need: 25, have: 24 }));
    assert_eq!(buffer, [0; 24]);
}

#[test]
fn data_that_is_there_already_is_packed_where_it_stands() {
    let body = Body::Rdata { sequence: 7, trail: 3, data: b"hello" };
    let whole = down(body, Options { join: Some(3), ..Options::default() });
    let bare = Packet { body: Body::Rdata { sequence: 7, trail: 3, data: &[] }, ..whole };
    let mut around = vec![0xAA; bare.buffer_len()];
    assert_eq!(bare.emit_around(&mut around[1..]), Err(PgmPacketError::Truncated { need: 36, have: 35 }));
    around.extend(b"hello");
    assert_eq!(bare.emit_around(&mut around), Ok(()));
    assert_eq!(around, emitted(&whole));
    let mut long = vec![0; bare.buffer_len() + 65_536];
    assert_eq!(bare.emit_around(&mut long), Err(PgmPacketError::DataLength { said: 65_535, have: 65_536 }));
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

prop_compose! {
    fn options()(
        fragment in of(any::<[u32; 3]>()),
        numbers in vec(any::<u32>(), 0..=NAK_LIST_MAX),
        (join, parity_group, group_size) in (of(any::<u32>()), of(any::<u32>()), of(any::<u32>())),
        parity in of(any::<(bool, bool, u32)>()),
        (syn, fin, reset) in (any::<bool>(), any::<bool>(), of(0..64u8)),
        data in of((any::<u32>(), address())),
        feedback in of((any::<u32>(), any::<u16>(), address())),
        word in of(any::<([u8; 8], bool)>()),
    ) -> Options {
        let parity = parity.map(|(pro_active, on_demand, group_size)| Parity { pro_active, on_demand, group_size });
        let congestion_feedback = feedback
            .map(|(timestamp, loss_rate, receiver)| CongestionFeedback { timestamp, loss_rate, receiver });
        Options {
            fragment: fragment.map(|[first, offset, length]| Fragment { first, offset, length }),
            nak_list: list(&numbers),
            join, parity, parity_group, group_size, syn, fin, reset,
            congestion_data: data.map(|(timestamp, acker)| CongestionData { timestamp, acker }),
            congestion_feedback,
            word: word.map(|(word, is_dismissed)| PgmWord { word, is_dismissed }),
        }
    }
}

fn body(data: &[u8]) -> impl Strategy<Value = Body<'_>> {
    let report = || {
        (any::<u32>(), address(), address()).prop_map(|(sequence, source, group)| PgmReport {
            sequence,
            source,
            group,
        })
    };
    prop_oneof![
        (any::<[u32; 3]>(), address()).prop_map(|([sequence, trail, lead], path)| Body::Spm {
            sequence,
            trail,
            lead,
            path
        }),
        any::<[u32; 2]>().prop_map(move |[sequence, trail]| Body::Odata { sequence, trail, data }),
        any::<[u32; 2]>().prop_map(move |[sequence, trail]| Body::Rdata { sequence, trail, data }),
        report().prop_map(Body::Nak),
        report().prop_map(Body::Nnak),
        report().prop_map(Body::Ncf),
        Just(Body::Spmr),
        any::<[u32; 2]>().prop_map(|[highest, bitmap]| Body::Ack { highest, bitmap }),
    ]
}

static DATA: [u8; 3] = [0, 0xFF, 7];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn packets_round_trip(
        (source_port, destination_port, gsi) in any::<(u16, u16, [u8; 6])>(),
        body in (0..DATA.len()).prop_flat_map(|len| body(&DATA[..len])),
        options in options(),
        (parity, variable_length) in any::<(bool, bool)>(),
    ) {
        let packet =
            Packet { source_port, destination_port, gsi: Gsi(gsi), body, options, parity, variable_length };
        let bytes = emitted(&packet);
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
        for cut in 0..bytes.len() {
            prop_assert!(Packet::parse(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn any_bytes_behind_a_plausible_start_are_survived(
        kind in 0..16u8, flags in any::<u8>(), rest in vec(any::<u8>(), 0..120), total in 0..40u8,
    ) {
        let mut bytes = hex(SPMR);
        (bytes[4], bytes[5]) = (kind, flags);
        bytes.extend(&rest);
        if let Some(place) = bytes.get_mut(24..28) {
            place.copy_from_slice(&[0, 4, 0, total]);
        }
        let bytes = summed(bytes);
        if let Ok(packet) = Packet::parse(&bytes) {
            let written = emitted(&packet);
            prop_assert_eq!(Packet::parse(&written), Ok(packet));
        }
    }
}
