//! What is read as a message of BCFS is written as one that reads the same.
#![no_main]
use headwater_wire::bcfs::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, body)) = Header::parse(bytes) else { return };
    let mut written = vec![0; header.buffer_len()];
    assert_eq!(header.emit(&mut written), Ok(written.len()));
    written.extend(body);
    assert_eq!(Header::parse(&written), Ok((header, body)));
});
