//! A packet that parses can be written again, and means the same.
#![no_main]
use headwater_wire::alc;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((mut repr, symbols)) = alc::parse(bytes) else { return };
    // What is read and cannot be written.
    repr.extensions.auth = false;
    let is_encrypted = repr.extensions.crypt.take().is_some();
    let mut datagram = vec![0; repr.buffer_len()];
    let len = repr.emit(&mut datagram).expect("a parsed packet can be written");
    assert_eq!(len, datagram.len());
    if is_encrypted {
        return;
    }
    datagram.extend_from_slice(symbols);
    assert_eq!(alc::parse(&datagram), Ok((repr, symbols)));
});
