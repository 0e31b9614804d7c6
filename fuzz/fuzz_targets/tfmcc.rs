//! What is read as a datagram of TFMCC is written as one that reads the same.
#![no_main]
use headwater_baselines::tfmcc::TfmccMessage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let written = match TfmccMessage::parse(bytes) {
        Ok(TfmccMessage::Data(data)) => data.emit().to_vec(),
        Ok(TfmccMessage::Report(report)) => report.emit().to_vec(),
        Err(_) => return,
    };
    assert_eq!(TfmccMessage::parse(&written), TfmccMessage::parse(bytes));
});
