//! EXT_AUTH, EXT_MANIFEST, EXT_KEY and EXT_CRYPT are written as extensions that read the same.
#![no_main]
use headwater_wire::auth::{Authentication, SenderKey, insert_manifest, manifest};
use headwater_wire::crypt::Crypt;
use headwater_wire::lct;
use libfuzzer_sys::fuzz_target;

/// LCT header without TOI and extensions.
const HEADER: [u8; 12] = [0x10, 0x80, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = lct::Packet::new_checked(bytes) else { return };
    let mut buffer = [0; 1_200];
    buffer[..HEADER.len()].copy_from_slice(&HEADER);
    if let Ok(Some((auth, _))) = Authentication::find(&packet) {
        let range = auth.insert(&mut buffer, HEADER.len()).expect("there is room");
        let again = lct::Packet::new_checked(&buffer[..range.end]).expect("a packet");
        assert_eq!(Authentication::find(&again), Ok(Some((auth, range))));
    } else if let Ok(Some(tags)) = manifest(&packet) {
        let end = insert_manifest(&mut buffer, HEADER.len(), tags.iter().copied()).expect("there is room");
        let again = lct::Packet::new_checked(&buffer[..end]).expect("a packet");
        assert_eq!(manifest(&again), Ok(Some(tags)));
    } else if let Ok(Some(key)) = SenderKey::find(&packet) {
        let end = key.insert(&mut buffer, HEADER.len()).expect("there is room");
        let again = lct::Packet::new_checked(&buffer[..end]).expect("a packet");
        assert_eq!(SenderKey::find(&again), Ok(Some(key)));
    } else if let Ok(Some((crypt, _))) = Crypt::find(&packet) {
        let range = crypt.insert(&mut buffer, HEADER.len()).expect("there is room");
        let again = lct::Packet::new_checked(&buffer[..range.end]).expect("a packet");
        assert_eq!(Crypt::find(&again), Ok(Some((crypt, range))));
    }
});
