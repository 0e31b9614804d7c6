//! A checked LCT header never panics, whatever is asked of it, and its parts make up the whole.
#![no_main]
use headwater_wire::lct::{Packet, TOI_MAX, TSI_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::new_checked(bytes) else { return };
    assert!(packet.tsi().is_none_or(|tsi| tsi <= TSI_MAX));
    assert!(packet.toi().is_none_or(|toi| toi <= TOI_MAX));
    assert!(packet.psi() <= 3);
    assert_eq!(packet.header_len() + packet.payload().len(), bytes.len());
    let extensions_len: usize =
        packet.extensions().map(|(het, content)| content.len() + if het < 128 { 2 } else { 1 }).sum();
    let id_lens =
        (usize::from(bytes[1] >> 7) + usize::from(bytes[1] >> 5 & 3) + usize::from(bytes[1] >> 4 & 1)) * 4;
    assert_eq!(packet.header_len(), 4 + packet.cci().len() + id_lens + extensions_len);
});
