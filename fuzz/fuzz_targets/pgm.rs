//! What is read as a PGM packet is written as one that reads the same. Fuzzing does not find checksums: each
//! input is read as it is, and with its own made right.
#![no_main]
use headwater_wire::pgm::Packet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    if bytes.len() >= 16 {
        let mut summed = bytes.to_vec();
        summed[6..8].fill(0);
        let words =
            summed.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| (*low).into()));
        let mut sum: u64 = words.sum();
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        let sum = if sum == 0xFFFF { 0xFFFF } else { 0xFFFF - sum };
        summed[6..8].copy_from_slice(&sum.to_be_bytes()[6..]);
        read(&summed);
    }
});

fn read(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let mut written = vec![0; packet.buffer_len()];
    assert_eq!(packet.emit(&mut written), Ok(written.len()));
    assert_eq!(Packet::parse(&written), Ok(packet));
}
