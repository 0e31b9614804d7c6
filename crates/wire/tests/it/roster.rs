//! Reports and replies of the roster: literal packets.
use headwater_wire::extensions::{Extensions, Members};
use headwater_wire::roster::{
    ExchangeError, PacketCounts, ReceiverState, Reply, Report, ReportKind, RosterHeader, is_roster,
};

use crate::hex::hex;

const HEADER: RosterHeader = RosterHeader {
    kind: ReportKind::Progress,
    receiver: 0x0123_4567_89AB_CDEF,
    cookie: 0xFEDC_BA98_7654_3210,
    sequence: 0x0102,
};

fn progress() -> Report<'static> {
    let state = ReceiverState {
        result: 5,
        path: 2,
        content: 0xA1A2_A3A4,
        done_ppm: 999_999,
        useful_bytes: 0x0102_0304_0506_0708,
        rate_kbits: 10_000,
        fair_kbits: 12_000,
        lost_ppm: 1_000,
        files_whole: 3,
        files: 4,
        repair_port: Some(8_080),
        packets: None,
    };
    Report { header: HEADER, state: Some(state), name: Some("hall-7") }
}

const PROGRESS: &str = "48575011 0123456789abcdef fedcba9876543210 0102 05 02
    a1a2a3a4 000f423f 0102030405060708 00002710 00002ee0 000003e8 00000003 00000004
    01 06 68616c6c2d37  02 02 1f90";

#[test]
fn a_report_is_read_and_written() {
    let bytes = hex(PROGRESS);
    assert_eq!(Report::parse(&bytes), Ok(progress()));
    assert!(is_roster(&bytes));
    let mut buffer = [0; 256];
    let written = progress().emit(&mut buffer);
    assert_eq!(buffer[..written], bytes);
}

#[test]
fn a_report_may_count_packets() {
    let packets = Some(PacketCounts { received: 0x0102_0304, lost: 5 });
    let state = progress().state.map(|state| ReceiverState { packets, ..state });
    let bytes = hex(&format!("{PROGRESS} 04 08 01020304 00000005"));
    assert_eq!(Report::parse(&bytes), Ok(Report { state, ..progress() }));
    let mut buffer = [0; 256];
    let written = Report { state, ..progress() }.emit(&mut buffer);
    assert_eq!(buffer[..written], bytes);
}

#[test]
fn a_hello_says_nothing_and_is_as_long_as_its_reply() {
    let bytes = hex("48575010 0123456789abcdef 0000000000000000 0001 00 00");
    let header = RosterHeader { kind: ReportKind::Hello, cookie: 0, sequence: 1, ..HEADER };
    assert_eq!(Report::parse(&bytes), Ok(Report { header, state: None, name: None }));
    let mut buffer = [0; 256];
    let told = ReceiverState { content: 7, ..ReceiverState::default() };
    let written = Report { header, state: Some(told), name: Some("secret") }.emit(&mut buffer);
    assert_eq!(buffer[..written], bytes);

    let reply = Reply { header: RosterHeader { cookie: 9, ..header }, exponent: 3, is_counted: false };
    let bytes = hex("48575018 0123456789abcdef 0000000000000009 0001 03 00");
    assert_eq!((reply.emit().to_vec(), Reply::parse(&bytes)), (bytes.clone(), Ok(reply)));
    assert_eq!(bytes.len(), written);
}

#[test]
fn every_reply_is_shorter_than_its_report_or_as_long() {
    for kind in [ReportKind::Hello, ReportKind::Progress, ReportKind::Done, ReportKind::Leaving] {
        let header = RosterHeader { kind, ..HEADER };
        let report = Report { header, state: Some(ReceiverState::default()), name: None }.emit(&mut [0; 256]);
        assert!(Reply { header, exponent: 15, is_counted: true }.emit().len() <= report);
    }
}

#[test]
fn unknown_items_are_skipped_and_bad_values_left_out() {
    let fixed = &hex(PROGRESS)[..60];
    let name = |items: &str| {
        let bytes = [fixed, &hex(items)].concat();
        Report::parse(&bytes).map(|report| report.name.map(str::to_owned))
    };
    assert_eq!(name("7f 03 010203 01 01 61"), Ok(Some("a".into())));
    assert_eq!(name("01 01 61 01 01 62"), Ok(Some("a".into())), "the first counts");
    assert_eq!(name("01 01 ff"), Ok(None), "no UTF-8");
    assert_eq!(name("01 00"), Ok(None));
    assert_eq!(name("01 02 c3a4"), Ok(Some("ä".into())));
    assert_eq!(name("01 07 61 22 27 5c 20 cc88"), Ok(Some("a\"'\\ \u{308}".into())));
    // C0, DEL, C1 (CSI), a right-to-left override, a zero-width space and joiner, a line separator.
    for steering in ["1b", "0a", "7f", "c29b", "e280ae", "e2808b", "e2808d", "e280a8"] {
        let item = format!("01 {:02x} 61{steering}62", 2 + steering.len() / 2);
        assert_eq!(name(&item), Ok(None), "{steering}");
    }
    let long = format!("01 40 {}", "61".repeat(64));
    assert_eq!(name(&long), Ok(None), "64 bytes");
    for cut in ["01", "01 02 61"] {
        assert!(matches!(name(cut), Err(ExchangeError::Length(_))), "{cut}");
    }
}

#[test]
fn cut_and_foreign_datagrams_are_refused() {
    let bytes = hex(PROGRESS);
    let whole = [60, 68, 72];
    for cut in (0..bytes.len()).filter(|cut| !whole.contains(cut)) {
        assert!(Report::parse(&bytes[..cut]).is_err(), "{cut}");
    }
    assert!(Reply::parse(&bytes).is_err(), "a report is no reply");
    let change = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Report::parse(&bytes).err()
    };
    assert_eq!(change(2, b'R'), Some(ExchangeError::Magic));
    assert_eq!(change(3, 0x21), Some(ExchangeError::Version(2)));
    assert_eq!(change(3, 0x14), Some(ExchangeError::Kind(4)));
    assert_eq!(change(3, 0x19), Some(ExchangeError::Kind(9)), "a reply");
}

#[test]
fn the_extension_tells_the_interval_and_about_how_many_receivers() {
    for (count, told) in [(0, 0), (40, 40), (2_047, 2_047), (2_049, 2_050), (100_000, 100_032)] {
        assert_eq!(Members::rounded(count), told, "{count}");
    }
    assert_eq!(Members::rounded(u64::MAX), 2_047 << 31);
    let members = Members { exponent: 9, is_awaiting: true, is_quick: false, count: 100_032 };
    let bytes = members.emit();
    assert_eq!(bytes, hex("e1 98 36 1b")[..]);
    assert_eq!(Members::parse(&bytes[1..]), Some(members));
    let quick = Members { is_quick: true, ..members };
    assert_eq!(quick.emit(), hex("e1 9c 36 1b")[..]);
    assert_eq!(Members::parse(&quick.emit()[1..]), Some(quick));
    assert_eq!(Extensions { members: Some(members), ..Extensions::default() }.buffer_len(), 4);
}
