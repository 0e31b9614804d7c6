//! Encoded content: no more content comes than was announced, and all of it where decoding succeeds.
#![no_main]
use headwater::ContentCoding;
use headwater::coding::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(([kind, length @ ..], encoded)) = bytes.split_first_chunk::<4>() else { return };
    let coding = ContentCoding::ALL[usize::from(*kind) % ContentCoding::ALL.len()];
    let announced = u64::from(u32::from_le_bytes([length[0], length[1], length[2], 0]));
    let mut got = 0;
    let decoded = decode(coding, encoded, announced, |chunk| {
        got += chunk.len() as u64;
        Ok(())
    });
    assert!(got <= announced);
    assert!(decoded.is_err() || got == announced);
});
