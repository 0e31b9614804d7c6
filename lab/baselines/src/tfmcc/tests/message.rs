//! Datagrams of TFMCC.
use crate::tfmcc::{
    DATA_BYTES, Data, Echo, ExchangeError, NO_SUPPRESSION, REPORT_BYTES, TfmccMessage, TfmccReport,
};
use headwater_wire::lct;
use proptest::prelude::*;

use crate::hex::hex;

const DATA: &str = "485754 10 01020304 000f4240 0007a120 00000000000f4240 0a0b0c0d 00000064 0007 03 00";
const REPORT: &str = "485754 11 0a0b0c0d 00000064 000f4240 00000000000f4240 0007 03 00";

fn data() -> Data {
    Data {
        sequence: 0x0102_0304,
        timestamp_us: 1_000_000,
        rtt_max_us: 500_000,
        suppression: 1_000_000,
        round: 7,
        echo: Some(Echo { receiver: 0x0A0B_0C0D, timestamp_us: 100, is_clr: true }),
    }
}

const fn report() -> TfmccReport {
    TfmccReport {
        receiver: 0x0A0B_0C0D,
        timestamp_us: 100,
        echo_us: 1_000_000,
        rate: 1_000_000,
        round: 7,
        has_rtt: true,
        has_loss: true,
        leaves: false,
    }
}

#[test]
fn data_and_reports_are_these_bytes() {
    assert_eq!(data().emit().as_slice(), hex(DATA));
    assert_eq!(report().emit().as_slice(), hex(REPORT));
    let mut packet = hex(DATA);
    packet.extend([0xAB; 100]);
    assert_eq!(TfmccMessage::parse(&packet), Ok(TfmccMessage::Data(data())), "content may follow");
    assert_eq!(TfmccMessage::parse(&hex(REPORT)), Ok(TfmccMessage::Report(report())));
}

#[test]
fn without_an_echo_there_is_none() {
    let silent = Data { echo: None, suppression: NO_SUPPRESSION, ..data() };
    assert_eq!(TfmccMessage::parse(&silent.emit()), Ok(TfmccMessage::Data(silent)));
}

#[test]
fn other_datagrams_are_refused_with_the_reason() {
    let changed = |at: usize, value: u8| {
        let mut bytes = hex(REPORT);
        bytes[at] = value;
        TfmccMessage::parse(&bytes)
    };
    assert_eq!(changed(2, b'R'), Err(ExchangeError::Magic), "a round-trip question");
    assert_eq!(changed(3, 0x21), Err(ExchangeError::Version(2)));
    assert_eq!(changed(3, 0x12), Err(ExchangeError::Kind(2)));
    for (digits, len) in
        [(REPORT, REPORT_BYTES - 1), (REPORT, REPORT_BYTES + 1), (DATA, DATA_BYTES - 1), (DATA, 3)]
    {
        let mut datagram = hex(digits);
        datagram.resize(len, 0);
        assert_eq!(TfmccMessage::parse(&datagram), Err(ExchangeError::Length(len)));
    }
    assert!(lct::Packet::new_checked(hex(DATA).as_slice()).is_err(), "no receiver of LCT takes it");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn what_is_read_is_written_the_same(tail in prop::collection::vec(any::<u8>(), 0..48), kind in 0_u8..2) {
        let mut bytes = vec![b'H', b'W', b'T', 0x10 | kind];
        bytes.extend(tail);
        match TfmccMessage::parse(&bytes) {
            Ok(TfmccMessage::Data(data)) => {
                prop_assert_eq!(TfmccMessage::parse(&data.emit()), Ok(TfmccMessage::Data(data)));
            }
            Ok(TfmccMessage::Report(report)) => {
                prop_assert_eq!(TfmccMessage::parse(&report.emit()), Ok(TfmccMessage::Report(report)));
            }
            Err(_) => {}
        }
    }
}
