//! What is read as a datagram of TFMCC is written as one that reads the same.
#![no_main]
use headwater_baselines::tfmcc::message::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let written = match Message::parse(bytes) {
        Ok(Message::Data(data)) => data.emit().to_vec(),
        Ok(Message::Report(report)) => report.emit().to_vec(),
        Err(_) => return,
    };
    assert_eq!(Message::parse(&written), Message::parse(bytes));
});
