//! SIM's congestion control information and feedback.
use headwater_wire::lct;
use headwater_wire::sim::{Data, Group, Holding, REPORT_BYTES, SimPacketError, SimReport};
use proptest::prelude::*;

use crate::hex::hex;

const DATA: &str = "01 03 fffe 000186a0 01020304";
const REPORT: &str =
    "01 01 fffe 0a0b0c0d 12345603 00000003 00000002 00000004 00002710 0000c350 000186a0 00000010";

const fn data() -> Data {
    Data { rank: 3, request: 0xFFFE, timestamp: 100_000, sequence: 0x0102_0304 }
}

const fn report() -> SimReport {
    SimReport {
        is_last: true,
        request: 0xFFFE,
        source: 0x0A0B_0C0D,
        group: Group { session: 0x0012_3456, rank: 3 },
        reports: 3,
        congested: 2,
        population: 4,
        min_rate: 10_000,
        max_rate: 50_000,
        echo: 100_000,
        hold: 16,
    }
}

#[test]
fn data_and_reports_are_these_bytes() {
    assert_eq!(data().to_cci().as_bytes(), hex(DATA));
    assert_eq!(Data::parse(&hex(DATA)), Ok(data()));
    assert_eq!(report().emit().as_slice(), hex(REPORT));
    assert_eq!(SimReport::parse(&hex(REPORT)), Ok(report()));
}

#[test]
fn a_holding_is_these_bytes() {
    let holding = Holding { session: 0x0012_3456, groups: 3 };
    assert_eq!(holding.emit().as_slice(), hex("01 03 0000 123456 00"));
    assert_eq!(Holding::parse(&hex("01 03 ffff 123456 ff")), Ok(holding), "what means nothing yet");
    assert_eq!(Holding::parse(&hex("02 03 0000 123456 00")), Err(SimPacketError::Version(2)));
    assert_eq!(Holding::parse(&hex("01 03 0000 123456")), Err(SimPacketError::Length(7)));
    assert!(lct::Packet::new_checked(holding.emit().as_slice()).is_err());
}

#[test]
fn other_bytes_are_refused_with_the_reason() {
    let changed = |at: usize, value: u8| {
        let mut bytes = hex(REPORT);
        bytes[at] = value;
        SimReport::parse(&bytes)
    };
    assert_eq!(changed(0, 2), Err(SimPacketError::Version(2)));
    assert_eq!(changed(1, 0xFF), Ok(report()), "unknown flags");
    assert_eq!(changed(15, 0), Err(SimPacketError::Counts { congested: 2, reports: 0, population: 4 }));
    assert_eq!(changed(19, 4), Err(SimPacketError::Counts { congested: 4, reports: 3, population: 4 }));
    assert_eq!(changed(23, 2), Err(SimPacketError::Counts { congested: 2, reports: 3, population: 2 }));
    assert_eq!(changed(28, 0xFF), Ok(SimReport { max_rate: 0xFF00_C350, ..report() }));
    assert_eq!(changed(24, 0xFF), Err(SimPacketError::Rates { min: 0xFF00_2710, max: 50_000 }));
    for len in [0, REPORT_BYTES - 1, REPORT_BYTES + 1] {
        let mut datagram = hex(REPORT);
        datagram.resize(len, 0);
        assert_eq!(SimReport::parse(&datagram), Err(SimPacketError::Length(len)));
        assert_eq!(Data::parse(&datagram), Err(SimPacketError::Length(len)));
    }
    assert_eq!(Data::parse(&[2; 12]), Err(SimPacketError::Version(2)));
    assert!(lct::Packet::new_checked(hex(REPORT).as_slice()).is_err(), "no receiver of LCT takes it");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn what_is_read_is_written_the_same(
        tail in prop::collection::vec(any::<u8>(), 39),
        counts in prop::array::uniform3(0_u8..4),
    ) {
        let mut bytes = vec![1];
        bytes.extend(tail);
        if let Ok(data) = Data::parse(&bytes[..12]) {
            let cci = data.to_cci();
            prop_assert_eq!(cci.as_bytes(), &bytes[..12]);
        }
        // Counts and rates that are often in order.
        for (place, count) in counts.into_iter().enumerate() {
            bytes[12 + 4 * place..16 + 4 * place].copy_from_slice(&[0, 0, 0, count]);
        }
        if let Ok(report) = SimReport::parse(&bytes) {
            prop_assert!(report.congested <= report.reports && report.reports <= report.population);
            prop_assert_eq!(SimReport::parse(&report.emit()), Ok(report));
        }
    }
}
