//! What is read as a round-trip question or answer is written as one that reads the same.
#![no_main]
use headwater_wire::rtt::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = Message::parse(bytes) else { return };
    assert_eq!(Message::parse(&message.emit()), Ok(message));
});
