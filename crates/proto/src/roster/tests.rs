//! Bounds of the table, and times of a receiver's reports.

use core::net::{IpAddr, SocketAddr};

use headwater_wire::extensions::Members;
use headwater_wire::roster::{ReceiverState, Reply, Report, ReportKind, RosterHeader};

use super::table::{News, Table};
use super::*;
use crate::machine::{Datagram, Ecn};
use crate::rng::Seed;
use crate::time::Instant;

const CONTENT: u32 = 7;
const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

struct Rows(Table);

impl Rows {
    fn new() -> Self {
        Self(Table::new([7; 32], 500))
    }

    fn report(&mut self, now: Instant, ip: IpAddr, receiver: u64, kind: ReportKind) -> Option<News> {
        self.named(now, ip, receiver, kind, None)
    }

    fn named(
        &mut self,
        now: Instant,
        ip: IpAddr,
        receiver: u64,
        kind: ReportKind,
        name: Option<&str>,
    ) -> Option<News> {
        self.received(now, ip, receiver, kind, (name, 1_000))
    }

    /// Reports a receiver of a name that has received so many bytes.
    fn received(
        &mut self,
        now: Instant,
        ip: IpAddr,
        receiver: u64,
        kind: ReportKind,
        (name, useful_bytes): (Option<&str>, u64),
    ) -> Option<News> {
        let state = ReceiverState { content: CONTENT, useful_bytes, ..ReceiverState::default() };
        self.stated(now, ip, receiver, kind, (name, state))
    }

    fn stated(
        &mut self,
        now: Instant,
        ip: IpAddr,
        receiver: u64,
        kind: ReportKind,
        (name, state): (Option<&str>, ReceiverState),
    ) -> Option<News> {
        // Numbers far apart are not overtaken.
        let sequence = u16::try_from(now.as_nanos() / 1_000_000 * 16 % 65_521).expect("below 2^16");
        let header = RosterHeader { kind, receiver, cookie: 1, sequence };
        let reported = self.0.report(now, INTERVAL_MIN, SocketAddr::new(ip, 9), &header, (&state, name));
        reported.map(|(_, news)| news)
    }

    fn states(&self, now: Instant) -> RosterCounts {
        self.0.counts(now, Some(CONTENT), INTERVAL_MIN)
    }
}

fn ipv4(bits: u32) -> IpAddr {
    core::net::Ipv4Addr::from_bits(bits).into()
}

#[test]
fn receivers_that_move_to_one_address_overflow_no_count() {
    let mut rows = Rows::new();
    for receiver in 0..1_000_u32 {
        rows.report(at(u64::from(receiver)), ipv4(receiver), receiver.into(), ReportKind::Progress);
    }
    for turn in 0..2 {
        for receiver in 0..1_000_u32 {
            let now = at(10_000 + 2_000 * turn + u64::from(receiver));
            rows.report(now, ipv4(1 << 24 | u32::from(turn > 0)), receiver.into(), ReportKind::Progress);
        }
    }
    assert_eq!(rows.0.rows().count(), 1_000);
}

#[test]
fn addresses_of_one_ipv6_network_share_the_rows_of_a_host() {
    let mut rows = Rows::new();
    for receiver in 0..200_u64 {
        let ip = core::net::Ipv6Addr::from_bits(0x2001_0DB8 << 96 | u128::from(receiver + 1));
        rows.report(at(receiver), ip.into(), receiver, ReportKind::Progress);
    }
    assert_eq!(rows.0.rows().count(), usize::from(IDS_OF_HOST) + 1);
    assert_eq!(rows.0.rows().filter(|row| row.is_shared).count(), 1);
}

#[test]
fn receivers_beyond_the_table_are_no_news_each_time() {
    let mut rows = Rows::new();
    let count = 2 * u32::try_from(ROWS_MAX).expect("small");
    for receiver in 0..count {
        rows.report(at(receiver.into()), ipv4(receiver), receiver.into(), ReportKind::Progress);
    }
    let mut first = 0;
    for receiver in 0..count {
        let now = at(u64::from(count + receiver));
        let news = rows.report(now, ipv4(receiver), receiver.into(), ReportKind::Progress);
        first += u32::from(news == Some(News::First));
    }
    assert_eq!(first, 0, "no receiver reports for the first time");
    // And a flood of them is dropped.
    let flood = (0..100_000_u32).filter(|report| {
        let now = at(50_000 + u64::from(report / 100));
        rows.report(now, ipv4(report % count), (report % count).into(), ReportKind::Done)
            == Some(News::Outside)
    });
    assert!(flood.count() <= 2_000 + 2_000, "2 000 a second, and as many at once");
}

#[test]
fn no_packets_are_needed_if_each_row_is_of_one_receiver_that_needs_none() {
    let mut rows = Rows::new();
    let needs_packets = |rows: &Rows| rows.0.needs_packets(Some(CONTENT));
    let progress = |rows: &mut Rows, ms: u64, content: u32, done_ppm: u32| {
        let state = ReceiverState { content, done_ppm, ..ReceiverState::default() };
        rows.stated(at(ms), ipv4(3), 3, ReportKind::Progress, (None, state));
    };
    rows.report(at(0), ipv4(1), 1, ReportKind::Done);
    rows.report(at(0), ipv4(2), 2, ReportKind::Leaving);
    assert!(!needs_packets(&rows));
    progress(&mut rows, 1_000, CONTENT, 999_999);
    assert!(needs_packets(&rows), "one symbol is missing");
    progress(&mut rows, 2_000, CONTENT, 1_000_000);
    assert!(!needs_packets(&rows), "about to decode");
    assert!(rows.0.needs_packets(Some(8)) && rows.0.needs_packets(None), "of the content before");
    progress(&mut rows, 3_000, CONTENT, 500_000);
    rows.0.prune(at(60_000), Some(CONTENT), INTERVAL_MIN);
    assert!(needs_packets(&rows), "a silent receiver may receive");
    rows.report(at(61_000), ipv4(3), 3, ReportKind::Done);
    for receiver in 10..27 {
        rows.report(at(61_000), ipv4(9), receiver, ReportKind::Done);
    }
    assert!(needs_packets(&rows), "some of those behind an address");
}

#[test]
fn a_sample_always_needs_packets() {
    let mut rows = Rows::new();
    for receiver in 0..=u32::try_from(ROWS_MAX).expect("small") {
        assert!(!rows.0.needs_packets(Some(CONTENT)));
        rows.report(at(receiver.into()), ipv4(receiver), receiver.into(), ReportKind::Done);
    }
    assert!(rows.0.needs_packets(Some(CONTENT)));
}

#[test]
fn a_silent_row_expires_and_an_ended_one_stays() {
    let mut rows = Rows::new();
    let kinds = [ReportKind::Progress, ReportKind::Done, ReportKind::Leaving];
    for (receiver, kind) in (1..).zip(kinds) {
        rows.report(at(0), ipv4(receiver), receiver.into(), kind);
    }
    rows.0.prune(at(599_000), Some(CONTENT), INTERVAL_MIN);
    assert_eq!(rows.states(at(599_000)).silent, 1);
    rows.0.prune(at(600_001), Some(CONTENT), INTERVAL_MIN);
    let counts = rows.states(at(600_001));
    assert_eq!((counts.silent, counts.done, counts.left), (0, 1, 1));
}

#[test]
fn expired_rows_of_a_sample_make_room_for_other_receivers() {
    let mut rows = Rows::new();
    let count = 2 * u32::try_from(ROWS_MAX).expect("small");
    for receiver in 0..count {
        rows.report(at(receiver.into()), ipv4(receiver), receiver.into(), ReportKind::Progress);
    }
    assert!(rows.states(at(9_000)).standard_error.is_some());
    // A few receivers are left, and report each 2 s.
    for turn in 1..=600_u64 {
        for receiver in 0..10_u32 {
            let now = at(10_000 + 2_000 * turn + u64::from(receiver));
            rows.report(now, ipv4(receiver), receiver.into(), ReportKind::Progress);
        }
        rows.0.prune(at(11_000 + 2_000 * turn), Some(CONTENT), INTERVAL_MIN);
    }
    let counts = rows.states(at(1_211_000));
    assert_eq!((counts.total(), counts.standard_error), (10, None), "exact again");
}

#[test]
fn a_receiver_that_starts_again_without_its_identifier_is_one_receiver() {
    let (mut rows, hall) = (Rows::new(), Some("hall"));
    rows.named(at(0), ipv4(1), 1, ReportKind::Progress, hall);
    rows.named(at(1_000), ipv4(1), 2, ReportKind::Progress, hall);
    rows.named(at(2_000), ipv4(1), 1, ReportKind::Leaving, hall);
    rows.named(at(2_500), ipv4(1), 2, ReportKind::Progress, hall);
    rows.0.prune(at(3_000), Some(CONTENT), INTERVAL_MIN);
    assert_eq!(rows.states(at(3_000)).total(), 2, "both ran at the same time");
    // Another host of the name, another name at the address, and a receiver without a name are others.
    rows.named(at(4_000), ipv4(2), 3, ReportKind::Progress, hall);
    rows.named(at(4_000), ipv4(1), 4, ReportKind::Progress, Some("attic"));
    rows.report(at(4_000), ipv4(1), 5, ReportKind::Progress);
    rows.0.prune(at(4_500), Some(CONTENT), INTERVAL_MIN);
    assert_eq!(rows.states(at(4_500)).total(), 5);
    rows.named(at(5_000), ipv4(1), 6, ReportKind::Progress, hall);
    rows.0.prune(at(5_500), Some(CONTENT), INTERVAL_MIN);
    let counts = rows.states(at(5_500));
    assert_eq!((counts.left, counts.total()), (0, 5), "the receiver that had left has started again");
}

#[test]
fn receivers_of_one_host_that_are_done_count_each() {
    let (mut rows, hall) = (Rows::new(), Some("hall"));
    rows.named(at(0), ipv4(1), 1, ReportKind::Done, hall);
    rows.named(at(1_000), ipv4(1), 2, ReportKind::Done, hall);
    rows.named(at(1_500), ipv4(1), 3, ReportKind::Progress, hall);
    rows.0.prune(at(2_000), Some(CONTENT), INTERVAL_MIN);
    assert_eq!((rows.states(at(2_000)).done, rows.states(at(2_000)).total()), (2, 3));
    // Started again, a receiver finds its files whole.
    rows.received(at(3_000), ipv4(1), 4, ReportKind::Done, (hall, 0));
    rows.received(at(3_000), ipv4(2), 5, ReportKind::Done, (hall, 0));
    rows.0.prune(at(4_000), Some(CONTENT), INTERVAL_MIN);
    assert_eq!(
        rows.states(at(4_000)).done,
        3,
        "one of a host that had received, and one that had the content"
    );
}

/// A receiver with a cookie, at an exponent.
fn reporter(exponent: u8, is_awaiting: bool, seed: u64) -> (RosterReporter, Instant) {
    let mut reporter = RosterReporter::new(ReporterConfig::new(9, Seed(seed)));
    let members = Members { exponent, is_awaiting, is_quick: false, count: 0 };
    reporter.heard(at(0), SENDER.into(), members);
    let due = reporter.poll_timeout().expect("a hello");
    let hello = transmit(&mut reporter, due).expect("a hello");
    let header = RosterHeader { cookie: 5, ..hello };
    let payload = Reply { header, exponent, is_counted: false }.emit();
    let datagram = Datagram { source: SENDER.into(), channel: None, ecn: Ecn::NotCapable, payload: &payload };
    assert!(reporter.answered(due, &datagram));
    (reporter, due)
}

fn transmit(reporter: &mut RosterReporter, now: Instant) -> Option<RosterHeader> {
    transmit_whole(reporter, now).map(|(header, _)| header)
}

/// Returns header and port of a report.
fn transmit_whole(reporter: &mut RosterReporter, now: Instant) -> Option<(RosterHeader, Option<u16>)> {
    if !reporter.is_due(now) {
        return None;
    }
    let mut buffer = [0; 256];
    let bytes = reporter.transmit(now, ReceiverState::default, false, &mut buffer)?.bytes;
    let report = Report::parse(&buffer[..bytes]).expect("a report");
    Some((report.header, report.state.and_then(|state| state.repair_port)))
}

fn acknowledge(reporter: &mut RosterReporter, now: Instant, header: RosterHeader) {
    let payload = Reply { header, exponent: 0, is_counted: true }.emit();
    let datagram = Datagram { source: SENDER.into(), channel: None, ecn: Ecn::NotCapable, payload: &payload };
    assert!(reporter.answered(now, &datagram));
}

#[test]
fn a_receiver_that_serves_goes_on_to_report_its_port_until_it_stops() {
    for is_answered in [true, false] {
        let (mut reporter, mut now) = reporter(0, false, 1);
        reporter.serve(7_280);
        reporter.finish(now, 0);
        assert_eq!(
            transmit_whole(&mut reporter, now).map(|(header, port)| (header.kind, port)),
            Some((ReportKind::Done, None)),
            "the end names no port"
        );
        let mut reports = Vec::new();
        for _ in 0..40 {
            now = reporter.poll_timeout().expect("a report, as long as the receiver serves");
            let Some((header, port)) = transmit_whole(&mut reporter, now) else { continue };
            if is_answered {
                acknowledge(&mut reporter, now, header);
            }
            reports.push((now, header.kind, port));
        }
        assert!(reporter.is_over(), "nothing else is waited for");
        let is_serving = |report: &&(Instant, ReportKind, Option<u16>)| {
            report.1 == ReportKind::Done && report.2 == Some(7_280)
        };
        let serving = reports.iter().filter(is_serving).count();
        assert!(if is_answered { serving == 39 } else { (1..20).contains(&serving) }, "{serving}");
        if !is_answered {
            assert!(reports.iter().any(|report| report.1 == ReportKind::Hello), "the sender may be another");
            continue;
        }
        let intervals = reports[1..].windows(2).map(|pair| pair[1].0.since(pair[0].0));
        let within = |time: Duration| (at(800)..at(2_500)).contains(&(Instant::ZERO + time));
        assert!(intervals.into_iter().all(within), "{reports:?}");
        reporter.stop_serving(now);
        assert!(!reporter.is_over());
        let (header, port) = transmit_whole(&mut reporter, now).expect("at once");
        assert_eq!((header.kind, port), (ReportKind::Done, None));
        acknowledge(&mut reporter, now, header);
        assert!(reporter.is_over() && reporter.poll_timeout().is_none());
    }
}

#[test]
fn a_receiver_that_fails_serves_nobody() {
    let (mut reporter, now) = reporter(0, false, 1);
    reporter.serve(7_280);
    reporter.finish(now, 5);
    while let Some(due) = reporter.poll_timeout() {
        let report = transmit_whole(&mut reporter, due).expect("a report");
        assert_eq!((report.0.kind, report.1), (ReportKind::Leaving, None));
    }
    assert!(reporter.is_over());
}

/// Reports to a sender, with the right cookie.
fn report(sender: &mut RosterSender, now: Instant, from: SocketAddr, receiver: u64, state: ReceiverState) {
    let mut buffer = [0; 256];
    let mut cookie = 0;
    for _ in 0..2 {
        let header = RosterHeader { kind: ReportKind::Done, receiver, cookie, sequence: 1 };
        let bytes = Report { header, state: Some(state), name: None }.emit(&mut buffer);
        let payload = &buffer[..bytes];
        sender.on_datagram(now, &Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload });
        let mut reply = [0; 64];
        let bytes = sender.poll_transmit(&mut reply).expect("a reply").bytes;
        cookie = Reply::parse(&reply[..bytes]).expect("a reply").header.cookie;
    }
}

#[test]
fn a_server_of_repair_is_a_whole_receiver_at_the_address_of_its_reports() {
    let mut sender = RosterSender::new(RosterConfig::new(), [7; 32]);
    sender.set_content(Some(CONTENT));
    let state = |content, port| ReceiverState { content, repair_port: port, ..ReceiverState::default() };
    let whole = state(CONTENT, Some(7_280));
    let from = |text: &str| text.parse::<SocketAddr>().expect("an address");
    report(&mut sender, at(0), from("192.0.2.7:9"), 1, whole);
    report(&mut sender, at(0), from("192.0.2.7:10"), 2, state(CONTENT, Some(7_281)));
    report(&mut sender, at(0), from("[2001:db8::7]:9"), 3, state(CONTENT, Some(1_024)));
    report(&mut sender, at(0), from("192.0.2.8:9"), 4, state(CONTENT, Some(1_023)));
    report(&mut sender, at(0), from("192.0.2.9:9"), 5, state(CONTENT + 1, Some(7_280)));
    report(&mut sender, at(0), from("192.0.2.10:9"), 6, state(CONTENT, None));
    report(&mut sender, at(0), from("[fe80::1]:9"), 7, whole);
    // Without a cookie.
    let mut buffer = [0; 256];
    let header = RosterHeader { kind: ReportKind::Done, receiver: 8, cookie: 9, sequence: 1 };
    let bytes = Report { header, state: Some(whole), name: None }.emit(&mut buffer);
    let (source, payload) = (from("192.0.2.11:9"), &buffer[..bytes]);
    sender.on_datagram(at(0), &Datagram { source, channel: None, ecn: Ecn::NotCapable, payload });
    sender.poll_transmit(&mut [0; 64]).expect("a cookie");

    let servers: Vec<_> = sender.repair_servers(at(1)).collect();
    assert_eq!(servers.len(), 2, "{servers:?}");
    assert!(servers.contains(&from("[2001:db8::7]:1024")));
    assert!(servers.iter().any(|server| server.ip() == ipv4(0xC000_0207)), "one of a host");
    assert_eq!(sender.repair_servers(at(1)).collect::<Vec<_>>(), servers, "the order stays");
    assert_eq!(sender.last_report(), Some(at(0)), "a receiver without a port reports its end alone");
    report(&mut sender, at(7_000), from("[2001:db8::7]:9"), 3, state(CONTENT, Some(1_024)));
    assert_eq!(sender.last_report(), Some(at(0)), "a receiver that serves keeps no session alive");
    assert_eq!(sender.repair_servers(at(8_100)).count(), 1, "a silent receiver serves no more");
    sender.set_content(Some(CONTENT + 2));
    assert_eq!(sender.repair_servers(at(8_100)).count(), 0, "the content is another");
}

#[test]
fn a_sender_that_never_replies_gets_a_hello_each_five_minutes() {
    let mut reporter = RosterReporter::new(ReporterConfig::new(9, Seed(1)));
    reporter.heard(
        at(0),
        SENDER.into(),
        Members { exponent: 0, is_awaiting: false, is_quick: false, count: 0 },
    );
    let mut hellos = 0;
    while let Some(now) = reporter.poll_timeout().filter(|now| *now < at(3_600_000)) {
        hellos += u32::from(transmit(&mut reporter, now).is_some());
    }
    assert!((6 + 9..=6 + 15).contains(&hellos), "{hellos} in an hour");
}

#[test]
fn the_report_of_an_end_is_due_while_the_receiver_stays_or_never() {
    // Half of the interval is 4 s: each end is told.
    for seed in 0..100 {
        let (mut reporter, now) = reporter(2, true, seed);
        reporter.finish(now, 0);
        let due = reporter.poll_timeout().expect("a report");
        assert!(!reporter.is_over() && due <= now + Duration::from_secs(4));
        assert_eq!(transmit(&mut reporter, due).map(|header| header.kind), Some(ReportKind::Done));
    }
    // Half of the interval is 32 s: no receiver waits in vain.
    let is_told = |seed: &u64| {
        let (mut reporter, now) = reporter(5, true, *seed);
        reporter.finish(now, 0);
        let due = reporter.poll_timeout();
        assert_eq!(due.is_some(), !reporter.is_over());
        assert!(due.is_none_or(|due| due <= now + Duration::from_secs(5)), "a wait in vain");
        due.is_some()
    };
    let told = (0..1_000).filter(is_told).count();
    assert!((100..220).contains(&told), "{told} of 1000 in 5 s of 32");
}

#[test]
fn a_sender_that_does_not_wait_gets_the_end_twice_within_a_second() {
    let (mut reporter, now) = reporter(0, false, 1);
    reporter.finish(now, 0);
    let mut sent = Vec::new();
    while let Some(due) = reporter.poll_timeout() {
        assert_eq!(transmit(&mut reporter, due).map(|header| header.kind), Some(ReportKind::Done));
        sent.push(due.since(now));
    }
    assert!(reporter.is_over());
    assert_eq!(sent, [Duration::ZERO, Duration::from_millis(500)]);
}

#[test]
fn a_hello_computes_no_state() {
    let mut reporter = RosterReporter::new(ReporterConfig::new(9, Seed(1)));
    reporter.heard(
        at(0),
        SENDER.into(),
        Members { exponent: 0, is_awaiting: false, is_quick: false, count: 0 },
    );
    let due = reporter.poll_timeout().expect("a hello");
    assert!(reporter.is_due(due));
    let state = || unreachable!("a hello has no state");
    assert!(reporter.transmit(due, state, false, &mut [0; 256]).is_some());
}
