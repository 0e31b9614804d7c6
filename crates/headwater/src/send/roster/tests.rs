//! Ends of sessions by reports, with a clock and reports of the test.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use headwater_proto::{Datagram, Ecn};
use headwater_wire::roster::{ReceiverState, Reply, Report, ReportKind, RosterHeader};

use super::*;

const CONTENT: u32 = 7;

fn at(ms: u64) -> Instant {
    Instant::ZERO + headwater_proto::Duration::from_millis(ms)
}

/// A session whose driver takes a turn each 100 ms.
struct Bed {
    watch: RosterWatch,
    sender: RosterSender,
    now: u64,
    cookies: BTreeMap<(SocketAddr, u64), (u64, u16)>,
    contested: Vec<ContestedName>,
}

impl Bed {
    fn new(until: RosterEnd) -> Self {
        let options = RosterOptions { until: Some(until), ..RosterOptions::default() };
        let mut sender = RosterSender::new(RosterConfig::new(), [7; 32]);
        sender.set_content(Some(CONTENT));
        let watch = RosterWatch::new(options);
        Self { watch, sender, now: 0, cookies: BTreeMap::new(), contested: Vec::new() }
    }

    fn expecting(names: &[&str]) -> Self {
        Self::new(RosterEnd::Expected(names.iter().map(|name| (*name).to_owned()).collect()))
    }

    /// Goes on; returns whether the session has ended by its receivers.
    fn run(&mut self, until: u64) -> bool {
        while self.now < until {
            self.now = (self.now + 100).min(until);
            self.sender.on_timeout(at(self.now));
            self.watch.look(&self.sender, false, at(self.now));
        }
        self.watch.is_met
    }

    fn datagram(&mut self, source: SocketAddr, report: &Report<'_>) -> Reply {
        let mut buffer = [0; 256];
        let bytes = report.emit(&mut buffer);
        let payload = &buffer[..bytes];
        let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload };
        if let Some(update) = self.sender.on_datagram(at(self.now), &datagram) {
            self.contested.extend(self.watch.on_report(&update).1);
        }
        let mut reply = [0; 64];
        let bytes = self.sender.poll_transmit(&mut reply).expect("a reply").bytes;
        Reply::parse(&reply[..bytes]).expect("a reply")
    }

    fn report_of(&mut self, host: u8, receiver: u64, name: &str, kind: ReportKind, content: u32) {
        let source = SocketAddr::from(([192, 0, 2, host], 9));
        let hello = RosterHeader { kind: ReportKind::Hello, receiver, cookie: 0, sequence: 0 };
        let key = (source, receiver);
        if !self.cookies.contains_key(&key) {
            let reply = self.datagram(source, &Report { header: hello, state: None, name: None });
            self.cookies.insert(key, (reply.header.cookie, 0));
        }
        let (cookie, sequence) = self.cookies.get_mut(&key).expect("a cookie");
        *sequence += 1;
        let header = RosterHeader { kind, cookie: *cookie, sequence: *sequence, ..hello };
        let state = Some(ReceiverState { content, ..ReceiverState::default() });
        assert!(self.datagram(source, &Report { header, state, name: Some(name) }).is_counted);
    }

    fn report(&mut self, host: u8, name: &str, kind: ReportKind) {
        self.report_of(host, host.into(), name, kind, CONTENT);
    }

    fn missing(&mut self) -> Vec<(String, Option<RowState>)> {
        let missing = self.watch.summary(&self.sender, at(self.now)).missing;
        missing.into_iter().map(|missing| (missing.expected, missing.last.map(|(_, state)| state))).collect()
    }
}

#[test]
fn silence_ends_a_session_only_without_a_receiver_under_way() {
    let mut bed = Bed::new(RosterEnd::Idle(Duration::from_secs(1)));
    assert!(!bed.run(60_000), "nobody has reported");
    bed.report(1, "hall", ReportKind::Progress);
    bed.report(2, "attic", ReportKind::Progress);
    // Reports of a receiver are 2.5 s apart, and one is lost.
    for now in [65_000, 70_000] {
        assert!(!bed.run(now), "at {now}");
        bed.report(1, "hall", ReportKind::Progress);
    }
    bed.report(1, "hall", ReportKind::Done);
    // The attic is silent by now. A hello takes up to an interval of 2 s.
    assert!(!bed.run(73_900));
    assert!(bed.run(74_500));
}

#[test]
fn a_pause_of_the_senders_machine_is_no_silence_of_its_receivers() {
    let mut bed = Bed::new(RosterEnd::Idle(Duration::from_secs(4)));
    bed.report(1, "hall", ReportKind::Progress);
    assert!(!bed.run(1_000));
    // The machine stands still for a minute, and with it the receivers on it.
    bed.now = 61_000;
    assert!(!bed.run(64_000));
    bed.report(1, "hall", ReportKind::Progress);
    assert!(!bed.run(67_000));
    let mut bed = Bed::expecting(&["hall"]);
    bed.report(1, "hall", ReportKind::Progress);
    assert!(!bed.run(1_000));
    bed.now = 61_000;
    assert!(!bed.run(75_000));
    assert!(bed.run(77_000), "15 s of silence");
}

#[test]
fn a_second_claim_of_a_name_counts_once_the_first_is_over() {
    let mut bed = Bed::expecting(&["hall"]);
    bed.report(1, "hall", ReportKind::Progress);
    // A forger claims to be done under the name.
    bed.report(66, "hall", ReportKind::Done);
    bed.report(66, "hall", ReportKind::Done);
    assert!(!bed.run(1_000));
    let contested = bed.contested.iter().map(|contested| contested.second.address.ip().to_string());
    assert_eq!(contested.collect::<Vec<_>>(), ["192.0.2.66"], "told once");
    bed.report(1, "hall", ReportKind::Leaving);
    assert_eq!(bed.missing(), [("hall".to_owned(), Some(RowState::Left(0)))]);
    // A receiver that has left may start again elsewhere.
    bed.report(2, "hall", ReportKind::Done);
    assert!(bed.run(2_000));
    assert_eq!(bed.missing(), []);
}

#[test]
fn a_host_that_receives_once_more_is_no_second_claim() {
    let mut bed = Bed::expecting(&["hall", "192.0.2.2"]);
    for host in [1, 2] {
        bed.report(host, "hall", ReportKind::Done);
        bed.report_of(host, 100 + u64::from(host), "hall", ReportKind::Progress, CONTENT);
    }
    assert_eq!(bed.contested.len(), 1, "of the second host, which has its place by address, too");
    assert!(!bed.run(1_000), "both receive once more");
}

#[test]
fn a_receiver_with_other_content_is_missing_and_ends_the_wait() {
    let mut bed = Bed::expecting(&["hall", "hall", "::ffff:192.0.2.2"]);
    bed.report_of(1, 1, "hall", ReportKind::Done, CONTENT + 1);
    bed.report(2, "attic", ReportKind::Done);
    assert!(!bed.run(14_000), "the receiver may start again");
    assert!(bed.run(16_000));
    assert_eq!(bed.missing(), [("hall".to_owned(), Some(RowState::Outdated))]);
}

#[test]
fn an_expected_receiver_whose_row_has_expired_is_silent_not_forgotten() {
    let mut bed = Bed::expecting(&["hall", "attic"]);
    bed.report(1, "hall", ReportKind::Progress);
    assert!(!bed.run(700_000), "the attic never reported");
    assert_eq!(bed.sender.rows().count(), 0);
    let missing = bed.missing();
    assert!(matches!(missing[0].1, Some(RowState::Silent(_))), "{missing:?}");
    assert_eq!(missing[1], ("attic".to_owned(), None));
}

#[test]
fn receivers_stay_at_their_end_where_ends_count_or_are_recorded() {
    let awaits = |options: RosterOptions| {
        let mut sender = RosterWatch::new(options).sender(false).expect("random numbers");
        sender.announcement(Instant::ZERO).expect("the first announcement").is_awaiting
    };
    assert!(!awaits(RosterOptions::default()));
    assert!(awaits(RosterOptions { records_ends: true, ..RosterOptions::default() }));
    assert!(awaits(RosterOptions { until: Some(RosterEnd::Done(1)), ..RosterOptions::default() }));
}
