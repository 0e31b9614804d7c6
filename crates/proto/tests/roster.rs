//! Rosters of many receivers, of forgers, and of senders that start again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use core::cmp::Reverse;
use core::net::{Ipv4Addr, SocketAddr};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use headwater_proto::delivery::{content_digest, hex};
use headwater_proto::roster::{
    IDS_OF_HOST, ROWS_MAX, ReportKey, ReporterConfig, RosterConfig, RosterReporter, RosterSender, RowState,
};
use headwater_proto::{Datagram, Duration, Ecn, Instant, Seed};
use headwater_wire::extensions::Members;
use headwater_wire::roster::{REPORT_BYTES_MAX, ReceiverState, Reply, Report, ReportKind, RosterHeader};

const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);
const CONTENT: u32 = 0xC0FF_EE00;
/// Time on the way, each way.
const DELAY: Duration = Duration::from_millis(30);
/// Time between packets of the base channel.
const BASE: Duration = Duration::from_millis(96);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn state(content: u32) -> ReceiverState {
    ReceiverState { content, done_ppm: 500_000, ..ReceiverState::default() }
}

enum Happening {
    Base,
    Timer(usize),
    Report(usize, Vec<u8>),
    Reply(usize, Vec<u8>),
    /// The receiver ends with this result.
    End(usize, u8),
}

/// A sender and receivers that each have an address of their own.
struct Bed {
    now: Instant,
    sender: RosterSender,
    receivers: Vec<RosterReporter>,
    content: Vec<u32>,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    happenings: Vec<Option<Happening>>,
    free: Vec<usize>,
    order: u64,
    /// Announcements that receivers have heard of, or will.
    announced: VecDeque<(Instant, Members)>,
    /// Reports in each tenth of a second.
    tenths: Vec<u32>,
    /// Share of datagrams lost in each direction, one of so many; 0 for none.
    lost: u64,
    sent: u64,
    blocked: bool,
    /// Receivers whose end the sender knows.
    ends: BTreeSet<u64>,
}

impl Bed {
    fn new(config: RosterConfig) -> Self {
        let mut sender = RosterSender::new(config, [7; 32]);
        sender.set_content(Some(CONTENT));
        let mut bed = Self {
            now: Instant::ZERO,
            sender,
            receivers: Vec::new(),
            content: Vec::new(),
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            free: Vec::new(),
            order: 0,
            announced: VecDeque::new(),
            tenths: Vec::new(),
            lost: 0,
            sent: 0,
            blocked: false,
            ends: BTreeSet::new(),
        };
        bed.push(Instant::ZERO, Happening::Base);
        bed
    }

    /// Adds receivers that hear a first packet within the next `within` ms.
    fn add(&mut self, count: usize, within_ms: u64) {
        for _ in 0..count {
            let number = self.receivers.len();
            let seed = Seed(number as u64);
            let id = u64::try_from(number).unwrap().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut reporter = RosterReporter::new(ReporterConfig::new(id, seed));
            let [part, whole] = [number, count].map(|number| u64::try_from(number).unwrap());
            let start = self.now + Duration::from_millis(part * within_ms / whole);
            reporter.heard(start, SENDER.into(), self.heard(start));
            self.receivers.push(reporter);
            self.content.push(CONTENT);
            self.rearm(number);
        }
    }

    fn address(number: usize) -> SocketAddr {
        (Ipv4Addr::from_bits(0x0A00_0001 + u32::try_from(number).unwrap()), 40_000).into()
    }

    /// The announcement that all receivers have heard by now.
    fn heard(&mut self, now: Instant) -> Members {
        while self.announced.len() > 1 && self.announced[1].0 <= now {
            self.announced.pop_front();
        }
        let none = Members { exponent: 0, is_awaiting: true, is_quick: false, count: 0 };
        self.announced.front().filter(|(at, _)| *at <= now).map_or(none, |(_, members)| *members)
    }

    fn push(&mut self, at: Instant, happening: Happening) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            self.happenings.len() - 1
        });
        self.happenings[place] = Some(happening);
        self.order += 1;
        self.queue.push(Reverse((at, self.order << 24 | u64::try_from(place).unwrap())));
    }

    fn rearm(&mut self, number: usize) {
        if let Some(at) = self.receivers[number].poll_timeout() {
            self.push(at.max(self.now), Happening::Timer(number));
        }
    }

    fn is_lost(&mut self) -> bool {
        self.sent += 1;
        self.blocked || self.lost > 0 && self.sent.is_multiple_of(self.lost)
    }

    fn run(&mut self, until: Instant) {
        while let Some(Reverse((at, place))) = self.queue.peek().copied().filter(|next| next.0.0 <= until) {
            self.queue.pop();
            let place = usize::try_from(place & 0xFF_FFFF).unwrap();
            self.free.push(place);
            self.now = at;
            match self.happenings[place].take().unwrap() {
                Happening::Base => self.base(),
                Happening::Timer(number) => self.timer(number),
                Happening::Report(number, bytes) => self.report(number, &bytes),
                Happening::Reply(number, bytes) => self.reply(number, &bytes),
                Happening::End(number, result) => {
                    self.receivers[number].finish(self.now, result);
                    self.rearm(number);
                }
            }
        }
        self.now = until;
    }

    /// Runs until so many intervals from the start, as long as the longest of them.
    fn run_for_intervals(&mut self, count: u64) {
        let mut longest = Duration::ZERO;
        while self.now < Instant::ZERO + longest.max(self.sender.interval()).saturating_mul(count) {
            longest = longest.max(self.sender.interval());
            self.run(self.now + Duration::from_secs(5));
        }
    }

    fn base(&mut self) {
        self.sender.on_timeout(self.now);
        if let Some(members) = self.sender.announcement(self.now) {
            self.announced.push_back((self.now + Duration::from_millis(50), members));
        }
        self.push(self.now + BASE, Happening::Base);
    }

    fn timer(&mut self, number: usize) {
        // A timer that was set anew has another happening.
        if self.receivers[number].poll_timeout() != Some(self.now) {
            return;
        }
        let members = self.heard(self.now);
        let reporter = &mut self.receivers[number];
        reporter.heard(self.now, SENDER.into(), members);
        let mut buffer = [0; REPORT_BYTES_MAX];
        if reporter.is_due(self.now)
            && let Some(transmit) =
                reporter.transmit(self.now, || state(self.content[number]), false, &mut buffer)
            && !self.is_lost()
        {
            let bytes = buffer[..transmit.bytes].to_vec();
            self.push(self.now + DELAY, Happening::Report(number, bytes));
        }
        self.rearm(number);
    }

    fn report(&mut self, number: usize, bytes: &[u8]) {
        let tenth = usize::try_from(self.now.as_nanos() / 100_000_000).unwrap();
        self.tenths.resize(self.tenths.len().max(tenth + 1), 0);
        self.tenths[tenth] += 1;
        let before = self.sender.counters().reports;
        let source = Self::address(number);
        let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: bytes };
        let update = self.sender.on_datagram(self.now, &datagram);
        self.ends
            .extend(update.filter(|update| update.state == RowState::Done).map(|update| update.row.receiver));
        assert!(self.sender.counters().reports <= before + 1);
        let mut buffer = [0; 64];
        while let Some(transmit) = self.sender.poll_transmit(&mut buffer) {
            assert!(transmit.bytes <= bytes.len(), "no amplification");
            if !self.is_lost() {
                self.push(self.now + DELAY, Happening::Reply(number, buffer[..transmit.bytes].to_vec()));
            }
        }
    }

    fn reply(&mut self, number: usize, payload: &[u8]) {
        let datagram = Datagram { source: SENDER.into(), channel: None, ecn: Ecn::NotCapable, payload };
        assert!(self.receivers[number].answered(self.now, &datagram));
        self.rearm(number);
    }

    fn end(&mut self, number: usize, result: u8) {
        self.push(self.now, Happening::End(number, result));
    }

    /// Most reports in any second from an instant on.
    fn peak(&self, from: Instant) -> u32 {
        let from = usize::try_from(from.as_nanos() / 100_000_000).unwrap();
        let tenths = &self.tenths[from.min(self.tenths.len())..];
        tenths.windows(10).map(|second| second.iter().sum()).max().unwrap_or(0)
    }
}

#[test]
fn a_few_receivers_are_known_within_seconds_and_their_ends_at_once() {
    let mut bed = Bed::new(RosterConfig::new().with_awaiting(true));
    bed.add(40, 100);
    bed.run(at(3_000));
    assert_eq!(bed.sender.counts(bed.now).under_way, 40);
    assert_eq!(bed.sender.interval(), Duration::from_secs(2));
    for number in 0..38 {
        bed.end(number, 0);
    }
    bed.end(38, 7);
    bed.run(at(3_500));
    let counts = bed.sender.counts(bed.now);
    assert_eq!((counts.done, counts.left, counts.under_way), (38, 1, 1));
    assert!(bed.receivers[..39].iter().all(RosterReporter::is_over), "each end was replied to");
    let failed = bed.sender.rows().filter(|row| bed.sender.state(bed.now, row) == RowState::Left(7)).count();
    assert_eq!(failed, 1);
    // The fortieth receiver goes on, and then falls silent.
    bed.run(at(30_000));
    assert_eq!(bed.sender.counts(bed.now).under_way, 1);
    bed.blocked = true;
    bed.run(at(45_000));
    assert_eq!(bed.sender.counts(bed.now).silent, 1);
}

#[test]
fn an_end_comes_through_losses_and_nobody_waits_for_a_sender_out_of_reach() {
    let mut bed = Bed::new(RosterConfig::new().with_awaiting(true));
    bed.lost = 4;
    bed.add(100, 100);
    bed.run(at(20_000));
    (0..100).for_each(|number| bed.end(number, 0));
    bed.run(at(26_000));
    let done = bed.sender.counts(bed.now).done;
    assert!(done >= 95, "{done} of 100 with a loss of a quarter each way");

    let mut bed = Bed::new(RosterConfig::new().with_awaiting(true));
    bed.blocked = true;
    bed.add(10, 100);
    bed.run(at(60_000));
    (0..10).for_each(|number| bed.end(number, 0));
    bed.run(at(60_001));
    assert!(bed.receivers.iter().all(RosterReporter::is_over), "six hellos in vain");
}

#[test]
fn a_receiver_that_has_not_reported_stays_only_if_the_sender_waits() {
    for is_awaiting in [false, true] {
        let mut reporter = RosterReporter::new(ReporterConfig::new(1, Seed(1)));
        reporter.finish(at(0), 0);
        assert!(reporter.is_over(), "no sender keeps a roster");
        let mut reporter = RosterReporter::new(ReporterConfig::new(1, Seed(1)));
        reporter.heard(at(0), SENDER.into(), Members { exponent: 0, is_awaiting, is_quick: false, count: 0 });
        reporter.finish(at(10), 0);
        assert_eq!(reporter.is_over(), !is_awaiting);
    }
}

#[test]
fn a_hundred_thousand_starts_stay_within_twice_the_budget_and_are_counted() {
    // A million takes minutes: for `./ci.sh long`.
    let receivers: u32 = if option_env!("HEADWATER_LONG").is_some() { 1_000_000 } else { 100_000 };
    let all = u64::from(receivers);
    let mut bed = Bed::new(RosterConfig::new());
    bed.add(receivers as usize, 100);
    bed.run_for_intervals(2);
    let counts = bed.sender.counts(bed.now);
    let peak = bed.peak(Instant::ZERO);
    println!("{receivers}: at most {peak} reports a second; {counts:?} after {:?}", bed.now);
    // The waits of the first reports are for 10^5 receivers at most.
    let peak_max = 1_000 * receivers.div_ceil(100_000);
    assert!(peak <= peak_max, "{peak} reports in a second");
    assert!((all * 9 / 10..=all * 11 / 10).contains(&counts.under_way), "{counts:?} after {:?}", bed.now);
    assert!(counts.standard_error.is_some_and(|error| error < 0.02));
    assert_eq!(bed.sender.rows().count(), ROWS_MAX);

    // All of them end together.
    let ended = bed.now;
    for number in 0..receivers as usize {
        bed.end(number, 0);
    }
    bed.run(ended + Duration::from_secs(60));
    assert!(bed.peak(ended) <= peak_max, "{} reports in a second", bed.peak(ended));
    let ends = bed.ends.len();
    assert!(ends >= 200, "{ends} ends in the 5 s that receivers stay");
}

#[test]
fn a_budget_of_fifty_holds_for_a_thousand_receivers() {
    let mut bed = Bed::new(RosterConfig::new().with_budget(50));
    bed.add(1_000, 100);
    bed.run_for_intervals(2);
    assert!(bed.peak(Instant::ZERO) <= 100, "{} reports in a second", bed.peak(Instant::ZERO));
    assert_eq!(bed.sender.counts(bed.now).under_way, 1_000);
    let ended = bed.now;
    (0..1_000).for_each(|number| bed.end(number, 0));
    bed.run(ended + Duration::from_secs(120));
    assert!(bed.peak(ended) <= 100, "{} reports in a second", bed.peak(ended));
}

/// A sender and the datagrams of a test.
struct Hand(RosterSender);

impl Hand {
    fn new() -> Self {
        let mut sender = RosterSender::new(RosterConfig::new(), [7; 32]);
        sender.set_content(Some(CONTENT));
        Self(sender)
    }

    fn send(
        &mut self,
        now: Instant,
        source: SocketAddr,
        header: RosterHeader,
        content: u32,
    ) -> Option<Reply> {
        let mut buffer = [0; REPORT_BYTES_MAX];
        let bytes = Report { header, state: Some(state(content)), name: None }.emit(&mut buffer);
        let payload = &buffer[..bytes];
        let _update =
            self.0.on_datagram(now, &Datagram { source, channel: None, ecn: Ecn::NotCapable, payload });
        let mut reply = [0; 64];
        let transmit = self.0.poll_transmit(&mut reply)?;
        Some(Reply::parse(&reply[..transmit.bytes]).expect("a reply"))
    }

    /// Gets a cookie and reports with it.
    fn enter(&mut self, now: Instant, source: SocketAddr, receiver: u64) -> Option<u64> {
        let hello = RosterHeader { kind: ReportKind::Hello, receiver, cookie: 0, sequence: 1 };
        let cookie = self.send(now, source, hello, 0)?.header.cookie;
        let progress = RosterHeader { kind: ReportKind::Progress, cookie, sequence: 2, ..hello };
        self.send(now, source, progress, CONTENT).filter(|reply| reply.is_counted).map(|_| cookie)
    }
}

#[test]
fn a_cookie_is_of_one_address_and_one_receiver_and_wears_out() {
    let mut hand = Hand::new();
    let home = Bed::address(1);
    let cookie = hand.enter(at(0), home, 9).unwrap();
    let report = RosterHeader { kind: ReportKind::Done, receiver: 9, cookie, sequence: 3 };
    let mut is_counted = |now, source, header| hand.send(now, source, header, CONTENT).unwrap().is_counted;
    assert!(!is_counted(at(10), Bed::address(2), report), "another address");
    assert!(!is_counted(at(10), (home.ip(), 1).into(), report), "another port");
    assert!(!is_counted(at(10), home, RosterHeader { receiver: 8, ..report }), "another receiver");
    assert!(!is_counted(at(10), home, RosterHeader { cookie: cookie ^ 1, ..report }));
    assert!(is_counted(at(10), home, report));
    // In the next period the cookie counts, and the reply has the next one.
    let later = at(700_000);
    let reply = hand.send(later, home, RosterHeader { sequence: 4, ..report }, CONTENT).unwrap();
    assert!(reply.is_counted && reply.header.cookie != cookie);
    let next = RosterHeader { cookie: reply.header.cookie, sequence: 5, ..report };
    assert!(hand.send(at(1_300_000), home, next, CONTENT).unwrap().is_counted);
    assert!(!hand.send(at(1_300_000), home, report, CONTENT).unwrap().is_counted, "two periods later");
}

/// Five hundred receivers behind a link of 4 Mbit/s take 3 % of the link with replies to all reports.
#[test]
fn of_a_crowd_each_second_report_of_progress_is_answered_and_each_of_an_end() {
    let mut hand = Hand::new();
    let home = Bed::address(1);
    let cookie = hand.enter(at(0), home, 9).unwrap();
    let mut sequence = 2;
    for others in [10_u16, 200] {
        for other in 0..others {
            hand.enter(
                at(20 * u64::from(other)),
                Bed::address(2 + usize::from(other)),
                100 + u64::from(other),
            );
        }
        for _ in 0..20 {
            sequence += 1;
            let header = RosterHeader { kind: ReportKind::Progress, receiver: 9, cookie, sequence };
            let reply = hand.send(at(1_000 * u64::from(sequence)), home, header, 0);
            assert_eq!(reply.is_some(), others < 100 || sequence % 2 == 0, "{others} others: {sequence}");
        }
    }
    let end = RosterHeader { kind: ReportKind::Done, receiver: 9, cookie, sequence: 51 };
    assert!(hand.send(at(51_000), home, end, CONTENT).unwrap().is_counted);
    // A cookie of the last period is replaced at once.
    let header = RosterHeader { kind: ReportKind::Progress, receiver: 9, cookie, sequence: 53 };
    assert_ne!(hand.send(at(700_000), home, header, 0).unwrap().header.cookie, cookie);
}

#[test]
fn forgers_make_no_row_and_few_replies() {
    let mut hand = Hand::new();
    let mut replies = 0;
    for number in 0..1_000_000_u64 {
        let now = Instant::ZERO + Duration::from_micros(10 * number);
        let source = (Ipv4Addr::from_bits(0x0B00_0000 + u32::try_from(number).unwrap()), 9).into();
        let kind = [ReportKind::Hello, ReportKind::Progress, ReportKind::Done];
        let kind = kind[usize::try_from(number % 3).unwrap()];
        let header = RosterHeader { kind, receiver: number, cookie: number / 2, sequence: 1 };
        replies += u32::from(hand.send(now, source, header, CONTENT).is_some());
    }
    assert_eq!(hand.0.rows().count(), 0);
    assert!((4_900..=5_200).contains(&replies), "{replies} replies in 10 s");
    assert_eq!(hand.0.interval(), Duration::from_secs(2), "no honest receiver waits longer");
    // One network gets its share alone.
    let mut hand = Hand::new();
    let mut replies = 0;
    for number in 0..100_000_u64 {
        let now = Instant::ZERO + Duration::from_micros(100 * number);
        let source = (Ipv4Addr::from_bits(0x0B00_0000 + u32::try_from(number % 250).unwrap()), 9).into();
        let header = RosterHeader { kind: ReportKind::Hello, receiver: number, cookie: 0, sequence: 1 };
        replies += u32::from(hand.send(now, source, header, 0).is_some());
    }
    assert!(replies <= 256 + 20 * 10 + 1, "{replies}");
}

#[test]
fn an_address_has_few_rows_whatever_it_claims() {
    let mut hand = Hand::new();
    for id in 0..200 {
        let now = at(1_000 * id);
        assert!(hand.enter(now, Bed::address(1), id + 1).is_some(), "{id}");
    }
    assert_eq!(hand.0.rows().count(), usize::from(IDS_OF_HOST) + 1);
    assert!(hand.enter(at(200_000), Bed::address(2), 77).is_some(), "others are counted");
    assert_eq!(hand.0.rows().count(), usize::from(IDS_OF_HOST) + 2);
}

#[test]
fn more_receivers_than_rows_are_a_sample() {
    let mut hand = Hand::new();
    let mut known = 0;
    for number in 0..20_000_usize {
        // Below the limits of networks and of all.
        let id = u64::try_from(number).unwrap() + 1;
        known += u64::from(hand.enter(at(10 * id), Bed::address(300 * number), id).is_some());
    }
    assert_eq!(known, 20_000);
    let counts = hand.0.counts(at(200_000));
    assert_eq!(hand.0.rows().count(), ROWS_MAX);
    let total = counts.total();
    assert!((19_000..=21_000).contains(&total), "{counts:?}");
}

#[test]
fn only_the_content_that_is_sent_counts_as_done() {
    let mut hand = Hand::new();
    let home = Bed::address(1);
    let cookie = hand.enter(at(0), home, 9).unwrap();
    let done = RosterHeader { kind: ReportKind::Done, receiver: 9, cookie, sequence: 3 };
    hand.send(at(1_000), home, done, CONTENT ^ 1);
    assert_eq!(hand.0.counts(at(1_001)).outdated, 1);
    hand.send(at(2_000), home, RosterHeader { sequence: 4, ..done }, CONTENT);
    assert_eq!(hand.0.counts(at(2_001)).done, 1);
    // A report that was overtaken changes nothing.
    let late = RosterHeader { kind: ReportKind::Progress, sequence: 2, ..done };
    assert_eq!(hand.send(at(2_002), home, late, CONTENT), None);
    assert_eq!(hand.0.counts(at(2_003)).done, 1);
    hand.0.set_content(Some(1));
    assert_eq!(hand.0.counts(at(2_004)).outdated, 1, "the content has changed");
}

#[test]
fn the_digest_of_a_content_is_that_of_its_files_in_the_order_of_names() {
    // docs/reference/wire/roster.md, computed by the Python package blake3.
    let expected = "64bbf385a12921cab0ac3a616183cc5d325995310fc1e75e71a2ee55daf0471a";
    let counted = core::array::from_fn(|index| u8::try_from(index).unwrap());
    let files = [("a/b.bin", 1, Some(counted)), ("ä", 1 << 40, Some([0xFF; 32]))];
    assert_eq!(hex(&content_digest(files.into_iter())), expected);
    assert_eq!(hex(&content_digest(files.into_iter().rev())), expected);
}

#[test]
fn a_sender_that_starts_again_learns_of_its_receivers() {
    let mut bed = Bed::new(RosterConfig::new());
    bed.add(50, 100);
    bed.run(at(10_000));
    // At the same address, with another key: the old cookies are wrong.
    bed.sender = RosterSender::new(RosterConfig::new(), [8; 32]);
    bed.run(at(14_000));
    assert_eq!(bed.sender.counts(bed.now).under_way, 50);
    // At another port, the receivers begin with a hello.
    let members = Members { exponent: 0, is_awaiting: false, is_quick: false, count: 0 };
    let reporter = &mut bed.receivers[0];
    reporter.heard(bed.now, ([192, 0, 2, 1], 4_243).into(), members);
    let due = reporter.poll_timeout().unwrap();
    let mut buffer = [0; REPORT_BYTES_MAX];
    assert!(reporter.is_due(due));
    let transmit = reporter.transmit(due, || state(CONTENT), false, &mut buffer).unwrap();
    assert_eq!(Report::parse(&buffer[..transmit.bytes]).unwrap().header.kind, ReportKind::Hello);
}

#[test]
fn replies_of_strangers_change_nothing() {
    let mut reporter = RosterReporter::new(ReporterConfig::new(9, Seed(1)));
    reporter.heard(
        at(0),
        SENDER.into(),
        Members { exponent: 0, is_awaiting: false, is_quick: false, count: 0 },
    );
    let due = reporter.poll_timeout().unwrap();
    let mut buffer = [0; REPORT_BYTES_MAX];
    assert!(reporter.is_due(due));
    let transmit = reporter.transmit(due, || state(0), false, &mut buffer).unwrap();
    let hello = Report::parse(&buffer[..transmit.bytes]).unwrap().header;
    let reply = Reply { header: RosterHeader { cookie: 5, ..hello }, exponent: 14, is_counted: false };
    let mut answer = |source: SocketAddr, reply: Reply| {
        let payload = reply.emit();
        let before = reporter.poll_timeout();
        let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload };
        assert!(reporter.answered(due, &datagram));
        reporter.poll_timeout() != before
    };
    assert!(!answer(Bed::address(1), reply), "another address");
    let header = RosterHeader { sequence: hello.sequence.wrapping_add(1), ..reply.header };
    assert!(!answer(SENDER.into(), Reply { header, ..reply }), "another number");
    let header = RosterHeader { receiver: 8, ..reply.header };
    assert!(!answer(SENDER.into(), Reply { header, ..reply }), "another receiver");
    assert!(answer(SENDER.into(), reply));
    assert!(!answer(SENDER.into(), reply), "a copy");
}

#[test]
fn a_name_goes_to_verified_senders_unless_public() {
    let reported = |is_public: bool, is_verified: bool| {
        let name = Some("a".repeat(62) + "ä");
        let config = ReporterConfig::new(9, Seed(1)).with_name(name, is_public);
        let mut reporter = RosterReporter::new(config);
        reporter.heard(
            at(0),
            SENDER.into(),
            Members { exponent: 0, is_awaiting: false, is_quick: false, count: 0 },
        );
        let due = reporter.poll_timeout().unwrap();
        let mut buffer = [0; REPORT_BYTES_MAX];
        reporter.is_due(due);
        let transmit = reporter.transmit(due, || state(0), is_verified, &mut buffer).unwrap();
        let header = Report::parse(&buffer[..transmit.bytes]).unwrap().header;
        assert_eq!(transmit.bytes, 24, "a hello has no name");
        let reply = Reply { header: RosterHeader { cookie: 5, ..header }, exponent: 0, is_counted: false };
        let payload = reply.emit();
        let datagram =
            Datagram { source: SENDER.into(), channel: None, ecn: Ecn::NotCapable, payload: &payload };
        reporter.answered(due, &datagram);
        assert!(reporter.is_due(due));
        let transmit = reporter.transmit(due, || state(0), is_verified, &mut buffer).unwrap();
        Report::parse(&buffer[..transmit.bytes]).unwrap().name.map(str::to_owned)
    };
    assert_eq!(reported(false, false), None);
    assert_eq!(reported(false, true), Some("a".repeat(62)), "cut at a character");
    assert_eq!(reported(true, false), Some("a".repeat(62)));
}

#[test]
fn with_keys_only_reports_of_their_holders_count() {
    let keys = [ReportKey::new(b"old secret"), ReportKey::new(b"new secret")];
    let mut sender = RosterSender::new(RosterConfig::new(), [7; 32]).with_keys(keys.to_vec());
    sender.set_content(Some(CONTENT));
    // A holder of each key, a stranger, and a holder of another key.
    let of_receivers =
        [Some(&keys[0]), Some(&keys[1]), None, Some(&ReportKey::new(b"other"))].map(|key| key.cloned());
    for (number, key) in of_receivers.into_iter().enumerate() {
        let config = ReporterConfig::new(number as u64 + 1, Seed(number as u64)).with_key(key);
        let mut reporter = RosterReporter::new(config);
        reporter.heard(
            at(0),
            SENDER.into(),
            Members { exponent: 0, is_awaiting: true, is_quick: false, count: 0 },
        );
        let source = Bed::address(number);
        let mut now = at(0);
        reporter.finish(at(1), 0);
        let mut last = Vec::new();
        while let Some(due) = reporter.poll_timeout().filter(|_| !reporter.is_over()) {
            now = now.max(due);
            let mut buffer = [0; REPORT_BYTES_MAX];
            if !reporter.is_due(now) {
                continue;
            }
            let Some(transmit) = reporter.transmit(now, || state(CONTENT), true, &mut buffer) else { break };
            last = buffer[..transmit.bytes].to_vec();
            let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &last };
            let update = sender.on_datagram(now, &datagram);
            assert_eq!(update.is_some(), number < 2 && transmit.bytes > 24, "receiver {number}");
            let mut reply = [0; 64];
            while let Some(transmit) = sender.poll_transmit(&mut reply) {
                let payload = &reply[..transmit.bytes];
                let datagram =
                    Datagram { source: SENDER.into(), channel: None, ecn: Ecn::NotCapable, payload };
                assert!(reporter.answered(now, &datagram));
            }
        }
        assert!(now < at(20_000), "receiver {number} ends, whatever the sender says");
        // No byte of a report can be changed.
        for place in 0..last.len() {
            let mut changed = last.clone();
            changed[place] ^= 1;
            let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &changed };
            assert_eq!(sender.on_datagram(now, &datagram), None, "receiver {number}, byte {place}");
        }
    }
    assert_eq!(sender.rows().count(), 2);
    assert!(sender.counters().unauthenticated >= 2, "{:?}", sender.counters());
}
