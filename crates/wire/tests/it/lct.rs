//! The checked view over an LCT header.
use crate::hex::hex;
use headwater_wire::lct::{LctError, Packet};

/// C=3, PSI=2, S=1, O=3, H=1, A=0, B=1, HDR_LEN=12: every field at its longest, then the last type of
/// extension with a length byte and the first without.
const WIDEST: &str = "
    1E F1 0C 06
    00010203 04050607 08090A0B 0C0D0E0F
    A0A1A2A3A4A5
    B0B1B2B3B4B5B6B7B8B9BABBBCBD
    7F 01 EEEE
    80 0A0B0C
    00112233";

#[test]
fn widest_header_gives_every_field() {
    let bytes = hex(WIDEST);
    let packet = Packet::new_checked(&bytes).unwrap();
    assert_eq!(packet.psi(), 2);
    assert_eq!((packet.close_session(), packet.close_object()), (false, true));
    assert_eq!(packet.codepoint(), 6);
    assert_eq!(packet.cci(), hex("000102030405060708090A0B0C0D0E0F"));
    assert_eq!(packet.tsi(), Some(0xA0A1_A2A3_A4A5));
    assert_eq!(packet.toi(), Some(0xB0B1_B2B3_B4B5_B6B7_B8B9_BABB_BCBD));
    assert_eq!(packet.header_len(), 48);
    assert_eq!(packet.payload(), hex("00112233"));
}

#[test]
fn unknown_extensions_are_kept_in_order() {
    let bytes = hex(WIDEST);
    let packet = Packet::new_checked(&bytes).unwrap();
    let extensions: Vec<_> = packet.extensions().map(|(het, content)| (het, content.to_vec())).collect();
    assert_eq!(extensions, [(0x7F, vec![0xEE, 0xEE]), (0x80, vec![0x0A, 0x0B, 0x0C])]);
}

#[test]
fn absent_identifiers_are_none() {
    // S=0, O=0, H=0: no TSI, no TOI; HDR_LEN=2.
    let packet = Packet::new_checked(hex("10 00 02 00 00000000")).unwrap();
    assert_eq!((packet.tsi(), packet.toi()), (None, None));
    assert_eq!(packet.extensions().count(), 0);
    assert!(packet.payload().is_empty());
}

#[test]
fn half_words_alone_are_16_bit_identifiers() {
    // H=1, A=1.
    let packet = Packet::new_checked(hex("10 12 03 00 00000000 1234 5678")).unwrap();
    assert_eq!((packet.tsi(), packet.toi()), (Some(0x1234), Some(0x5678)));
    assert!(packet.close_session());
}

#[test]
fn reserved_bits_are_ignored() {
    // The two Res bits, 0x0C of byte 1.
    let packet = Packet::new_checked(hex("10 1C 03 00 00000000 1234 5678")).unwrap();
    assert_eq!((packet.close_session(), packet.close_object()), (false, false));
    assert_eq!(packet.toi(), Some(0x5678));
}

#[test]
fn other_versions_are_refused() {
    assert_eq!(Packet::new_checked(hex("20 10 03 00 00000000 1234 5678")).unwrap_err(), LctError::Version(2));
    assert_eq!(Packet::new_checked(hex("00 10 03 00 00000000 1234 5678")).unwrap_err(), LctError::Version(0));
}

#[test]
fn header_length_beyond_the_datagram_is_refused() {
    let error = Packet::new_checked(hex("10 10 04 00 00000000 1234 5678")).unwrap_err();
    assert_eq!(error, LctError::Truncated { need: 16, have: 12 });
}

#[test]
fn header_length_before_the_fields_end_is_refused() {
    let error = Packet::new_checked(hex("10 10 02 00 00000000 1234 5678")).unwrap_err();
    assert_eq!(error, LctError::HeaderLength { header_len: 8, fields_len: 12 });
}

#[test]
fn extension_of_length_zero_is_refused() {
    let error = Packet::new_checked(hex("10 10 04 00 00000000 1234 5678 40 00 0000")).unwrap_err();
    assert_eq!(error, LctError::Extension { het: 0x40 });
}

#[test]
fn extension_that_crosses_the_header_is_refused() {
    // HEL=2, but one word is left in the header; the payload behind it does not help.
    let error = Packet::new_checked(hex("10 10 04 00 00000000 1234 5678 40 02 0000 00000000")).unwrap_err();
    assert_eq!(error, LctError::Extension { het: 0x40 });
}

#[test]
fn every_cut_of_the_header_is_refused() {
    let bytes = hex(WIDEST);
    for len in 0..48 {
        assert!(
            matches!(Packet::new_checked(&bytes[..len]), Err(LctError::Truncated { have, .. }) if have == len)
        );
    }
}
