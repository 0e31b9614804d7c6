//! EXT_CRYPT.
use headwater_wire::alc::AlcError;
use headwater_wire::auth::{Error, SenderKey};
use headwater_wire::crypt::{CRYPT_BYTES, Crypt};
use headwater_wire::extensions::ExtensionError;
use headwater_wire::{PayloadId, alc, lct};

use crate::hex::hex;

const CRYPT: Crypt = Crypt { epoch: 9, salt: 0x1122_3344_5566_7788, number: 0x0102_0304_0506_0708 };
/// LCT header of 12 bytes: CCI 01020003, TSI 7, TOI 1.
const HEADER: &str = "01020003 0007 0001";
const EXTENSION: &str = "62 05 09 00 1122334455667788 0102030405060708";

fn inserted(packet: &str) -> (Vec<u8>, usize) {
    let mut buffer = hex(packet);
    let bytes = buffer.len();
    buffer.resize(1_000, 0);
    CRYPT.insert(&mut buffer, bytes).expect("there is room");
    (buffer, bytes + CRYPT_BYTES)
}

fn error(digits: &str) -> AlcError {
    alc::parse(&hex(digits)).expect_err("a malformed packet")
}

#[test]
fn an_encrypted_packet_is_these_bytes() {
    let (buffer, bytes) = inserted(&format!("10 10 03 06 {HEADER} 0001 00000005 aabb"));
    assert_eq!(&buffer[..bytes], hex(&format!("10 10 08 06 {HEADER} {EXTENSION} 0001 00000005 aabb")));
    let packet = lct::Packet::new_checked(&buffer[..bytes]).unwrap();
    assert_eq!(Crypt::find(&packet), Ok(Some((CRYPT, 12..12 + CRYPT_BYTES))));
    let (header, payload) = alc::parse(&buffer[..bytes]).unwrap();
    assert_eq!((header.extensions.crypt, header.payload_id), (Some(CRYPT), None));
    assert_eq!(payload, hex("0001 00000005 aabb"), "the payload is not read before it is decrypted");
}

#[test]
fn a_decrypted_payload_is_split() {
    let id = PayloadId { sbn: 1, esi: 5 };
    assert_eq!(alc::split_payload(6, &hex("01 000005 aabb")), Ok((Some(id), [0xAA, 0xBB].as_slice())));
    assert_eq!(alc::split_payload(6, &[]), Ok((None, [].as_slice())));
    assert_eq!(alc::split_payload(6, &[1, 2]), Err(AlcError::PayloadTruncated(2)));
    assert_eq!(alc::split_payload(77, &[1; 9]), Err(AlcError::UnknownScheme(77)));
}

#[test]
fn extensions_of_the_authentication_alone_may_follow() {
    let (mut buffer, bytes) = inserted(&format!("10 10 03 06 {HEADER}"));
    let key = SenderKey { public: [7; 32], is_ephemeral: false };
    let bytes = key.insert(&mut buffer, bytes).unwrap();
    assert_eq!(alc::parse(&buffer[..bytes]).unwrap().0.extensions.crypt, Some(CRYPT));
    for (extension, het) in [("c0200001", 192), ("00010000", 0), (EXTENSION, 98)] {
        let words = 8 + extension.replace(' ', "").len() / 8;
        let packet = format!("10 10 {words:02x} 06 {HEADER} {EXTENSION} {extension}");
        assert_eq!(error(&packet), ExtensionError::BehindCrypt(het).into());
    }
}

#[test]
fn wrong_lengths_and_missing_room_are_refused() {
    let short = format!("10 10 05 06 {HEADER} 62 02 0900 11223344");
    assert_eq!(error(&short), ExtensionError::Length { het: 98, need: 18, have: 6 }.into());
    let short = hex(&short);
    let packet = lct::Packet::new_checked(short.as_slice()).unwrap();
    assert_eq!(Crypt::find(&packet), Err(Error::Length { het: 98, have: 6 }));
    let mut buffer = hex(&format!("10 10 03 06 {HEADER}"));
    let bytes = buffer.len();
    assert_eq!(CRYPT.insert(&mut buffer, bytes), Err(Error::Room(20)));
}
