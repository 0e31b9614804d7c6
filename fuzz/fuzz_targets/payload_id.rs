//! Every four bytes are a FEC Payload ID, and come back as they were.
#![no_main]
use headwater_wire::{EncodingId, PayloadId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, [u8; 4])| {
    let (codepoint, bytes) = input;
    let Some(encoding_id) = EncodingId::from_codepoint(codepoint) else { return };
    assert_eq!(PayloadId::parse(encoding_id, bytes).emit(encoding_id), Ok(bytes));
});
