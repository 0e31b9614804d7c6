//! EXT_AUTH and EXT_MANIFEST.
use headwater_wire::auth::{
    AUTH_BYTES, Authentication, Error, KEY_BYTES, MANIFEST_TAGS_MAX, SenderKey, insert_manifest, manifest,
};
use headwater_wire::{alc, lct};
use proptest::prelude::*;

use crate::hex::hex;

/// LCT header of 12 bytes without TOI, as a manifest has it: CCI 01020003, TSI 7.
const HEADER: &str = "10 80 03 00 01020003 00000007";
/// Header and a FEC Payload ID with two bytes of symbol.
const PACKET: &str = "10 10 03 00 01020003 0007 0001 00000005 aabb";
const FIELDS: &str = "01 17 11 00 e0000001 00000102 deadbeef 060504030201 161514131211";

fn authentication(depth: u8, leaf: u8) -> Authentication {
    let mut path = [[0; 16]; 4];
    for (number, node) in (1..).zip(&mut path[..depth.into()]) {
        node.fill(number);
    }
    Authentication {
        depth,
        leaf,
        started: 0xE000_0001,
        number: 0x102,
        key: [0xDE, 0xAD, 0xBE, 0xEF],
        pass: [6, 5, 4, 3, 2, 1],
        next_pass: [0x16, 0x15, 0x14, 0x13, 0x12, 0x11],
        signature: [0x55; 64],
        path,
    }
}

fn found(datagram: &[u8]) -> Result<Option<Authentication>, Error> {
    Ok(Authentication::find(&lct::Packet::new_checked(datagram)?)?.map(|(auth, _)| auth))
}

fn with_room(digits: &str) -> (Vec<u8>, usize) {
    let mut bytes = hex(digits);
    let length = bytes.len();
    bytes.resize(9_000, 0);
    (bytes, length)
}

#[test]
fn a_signed_packet_is_these_bytes() {
    let (mut buffer, bytes) = with_room(PACKET);
    let range = authentication(0, 0).insert(&mut buffer, bytes).unwrap();
    assert_eq!(range, 12..12 + AUTH_BYTES);
    let expected = format!("10 10 1a 00 01020003 0007 0001 {FIELDS} {} 00000005 aabb", "55".repeat(64));
    let datagram = &buffer[..bytes + AUTH_BYTES];
    assert_eq!(datagram, hex(&expected));
    assert_eq!(found(datagram), Ok(Some(authentication(0, 0))));
    let (header, symbol) = alc::parse(datagram).unwrap();
    assert!(header.extensions.auth, "receivers that know no EXT_AUTH read the packet all the same");
    assert_eq!(symbol, [0xAA, 0xBB]);
}

#[test]
fn a_packet_of_a_tree_is_these_bytes() {
    let (mut buffer, bytes) = with_room(HEADER);
    let range = authentication(2, 3).insert(&mut buffer, bytes).unwrap();
    let tree = FIELDS.replace("17 11 00", "1f 11 23");
    let (signature, nodes) = ("55".repeat(64), "01".repeat(16) + &"02".repeat(16));
    let expected = format!("10 80 22 00 01020003 00000007 {tree} {signature} {nodes}");
    assert_eq!(&buffer[..range.end], hex(&expected));
    assert_eq!(found(&buffer[..range.end]), Ok(Some(authentication(2, 3))));
    assert_eq!(Authentication::unsigned_part(range).len(), 64 + 32);
}

#[test]
fn a_manifest_is_these_bytes() {
    let (mut buffer, bytes) = with_room(HEADER);
    let tags = [[1; 12], [2; 12]];
    let bytes = insert_manifest(&mut buffer, bytes, tags.into_iter()).unwrap();
    let expected =
        format!("10 80 0a 00 01020003 00000007 61 07 02 00 {} {}", "01".repeat(12), "02".repeat(12));
    assert_eq!(&buffer[..bytes], hex(&expected));
    let packet = lct::Packet::new_checked(&buffer[..bytes]).unwrap();
    assert_eq!(manifest(&packet), Ok(Some(tags.as_slice())));
    assert!(alc::parse(&buffer[..bytes]).is_ok());
}

#[test]
fn the_longest_manifest_fits_beside_its_signature() {
    let (mut buffer, bytes) = with_room("1c 80 06 00 01020003 00000000 00000000 00000000 00000007");
    let tags = [[7; 12]; MANIFEST_TAGS_MAX];
    let bytes = insert_manifest(&mut buffer, bytes, tags.into_iter()).unwrap();
    let range = authentication(0, 0).insert(&mut buffer, bytes).unwrap();
    assert!(range.end <= lct::HEADER_LEN_MAX);
    let packet = lct::Packet::new_checked(&buffer[..range.end]).unwrap();
    assert_eq!(manifest(&packet).unwrap().unwrap().len(), MANIFEST_TAGS_MAX);
    assert!(Authentication::find(&packet).unwrap().is_some());
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_the_packet() {
    let (mut buffer, bytes) = with_room(HEADER);
    let before = buffer.clone();
    assert_eq!(insert_manifest(&mut buffer, bytes, [].into_iter()), Err(Error::Tags(0)));
    assert_eq!(insert_manifest(&mut buffer, bytes, [[0; 12]; 76].into_iter()), Err(Error::Tags(76)));
    assert_eq!(authentication(4, 16 - 1).insert(&mut buffer[..100], 12), Err(Error::Room(156)));
    assert_eq!(
        Authentication { leaf: 2, ..authentication(1, 0) }.insert(&mut buffer, bytes),
        Err(Error::Leaf { depth: 1, leaf: 2 })
    );
    assert_eq!(buffer, before);
}

#[test]
fn malformed_extensions_are_refused_with_the_reason() {
    let changed = |at: usize, value: u8| {
        let (mut buffer, bytes) = with_room(HEADER);
        let range = authentication(1, 1).insert(&mut buffer, bytes).unwrap();
        buffer[at] = value;
        found(&buffer[..range.end])
    };
    assert_eq!(changed(14, 0x01), Err(Error::Scheme(0x01)), "no protection against replays");
    assert_eq!(changed(14, 0x21), Err(Error::Scheme(0x21)));
    assert_eq!(changed(15, 0x12), Err(Error::Leaf { depth: 1, leaf: 2 }));
    assert_eq!(changed(15, 0x50), Err(Error::Leaf { depth: 5, leaf: 0 }));
    assert_eq!(changed(15, 0x21), Err(Error::Length { het: 1, have: 106 }));
    let (mut buffer, bytes) = with_room(HEADER);
    let range = authentication(0, 0).insert(&mut buffer, bytes).unwrap();
    let range = authentication(0, 0).insert(&mut buffer, range.end).unwrap();
    assert_eq!(found(&buffer[..range.end]), Err(Error::Duplicate(1)));
    let wrong = hex("10 80 07 00 01020003 00000007 61 04 02 00 010101010101010101010101");
    let packet = lct::Packet::new_checked(wrong.as_slice()).unwrap();
    assert_eq!(manifest(&packet), Err(Error::Length { het: 97, have: 14 }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn no_bytes_panic_and_values_come_back(
        het in prop::sample::select(vec![1_u8, 97]),
        mut content in prop::collection::vec(any::<u8>(), 0..200),
        scheme in any::<bool>(),
    ) {
        if scheme && het == 1 {
            content.splice(..content.len().min(1), [0x11]);
        }
        while content.len() % 4 != 2 {
            content.push(0);
        }
        let mut datagram = hex(HEADER);
        datagram.extend([het, u8::try_from(content.len() / 4 + 1).unwrap()]);
        datagram.extend(&content);
        datagram[2] = u8::try_from(datagram.len() / 4).unwrap();
        let packet = lct::Packet::new_checked(datagram.as_slice()).unwrap();
        if let Ok(Some(tags)) = manifest(&packet) {
            let (mut again, bytes) = with_room(HEADER);
            let bytes = insert_manifest(&mut again, bytes, tags.iter().copied()).unwrap();
            let again = lct::Packet::new_checked(&again[..bytes]).unwrap();
            prop_assert_eq!(manifest(&again).unwrap(), Some(tags));
        }
        if let Ok(Some((auth, range))) = Authentication::find(&packet) {
            let (mut again, bytes) = with_room(HEADER);
            prop_assert_eq!(auth.insert(&mut again, bytes).unwrap(), range.clone());
            prop_assert_eq!(&again[..range.end], &datagram[..]);
        }
    }
}

#[test]
fn a_key_is_these_bytes() {
    let (mut buffer, bytes) = with_room(HEADER);
    let key = SenderKey { public: [0x77; 32], is_ephemeral: true };
    let end = key.insert(&mut buffer, bytes).unwrap();
    assert_eq!(end, bytes + KEY_BYTES);
    let expected = format!("10 80 0c 00 01020003 00000007 63 09 01 00 {}", "77".repeat(32));
    assert_eq!(buffer[..end], hex(&expected));
    let packet = lct::Packet::new_checked(&buffer[..end]).unwrap();
    assert_eq!(SenderKey::find(&packet), Ok(Some(key)));
    let header = hex(HEADER);
    assert_eq!(SenderKey::find(&lct::Packet::new_checked(header.as_slice()).unwrap()), Ok(None));
    let short = hex("10 80 05 00 01020003 00000007 63 02 01 00 00000000");
    let short = lct::Packet::new_checked(short.as_slice()).unwrap();
    assert_eq!(SenderKey::find(&short), Err(Error::Length { het: 99, have: 6 }));
}
