//! Routers: what they merge, when they answer, and what hostile reports can do.

use core::net::SocketAddr;

use headwater_wire::sim::{Data, Group, SimReport};
use proptest::prelude::*;

use super::report;
use crate::machine::{ChannelId, Datagram, Ecn, Input, InterfaceId, Machine, Output, RouterOutput};
use crate::rng::Seed;
use crate::sim::collector::Tally;
use crate::sim::collector::{CHILDREN_MAX, Collector, Refused};
use crate::sim::{AggregationRouter, RouterConfig};
use crate::time::{Duration, Instant};

const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);
const UP: InterfaceId = InterfaceId(0);
const LEFT: InterfaceId = InterfaceId(1);
const RIGHT: InterfaceId = InterfaceId(2);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn host(number: u8) -> SocketAddr {
    ([10, 0, 0, number], 5_000).into()
}

struct Bed {
    router: AggregationRouter,
}

impl Bed {
    fn new(routers: Vec<InterfaceId>) -> Self {
        Self { router: AggregationRouter::new(RouterConfig::new(0, 5).with_routers(routers), Seed(3)) }
    }

    fn give(&mut self, now: Instant, ingress: InterfaceId, datagram: Datagram<'_>) -> (bool, Vec<SimReport>) {
        self.router.handle(now, Input::Routed(ingress, datagram));
        self.drain(now)
    }

    fn drain(&mut self, now: Instant) -> (bool, Vec<SimReport>) {
        let (mut passed, mut reports, mut buffer) = (false, Vec::new(), [0; 9_000]);
        while let Some(output) = self.router.poll_output(now, &mut buffer) {
            match output {
                Output::Router(RouterOutput::Pass { .. }) => passed = true,
                Output::Router(RouterOutput::Transmit { egress, transmit }) => {
                    assert_eq!(egress, UP);
                    reports.push(SimReport::parse(&buffer[..transmit.bytes]).unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
        (passed, reports)
    }

    /// A data packet that the sender sent at the same time by its clock.
    fn data(&mut self, ms: u64, request: u16) {
        let stamp = u32::try_from(10 * ms).unwrap();
        let cci = Data { rank: 0, request, timestamp: stamp, sequence: 0 }.to_cci();
        let (passed, reports) = self.give(
            at(ms),
            UP,
            Datagram {
                source: SENDER.into(),
                channel: Some(ChannelId::BASE),
                ecn: Ecn::Capable0,
                payload: cci.as_bytes(),
            },
        );
        assert!(passed && reports.is_empty());
    }

    fn report(&mut self, ms: u64, ingress: InterfaceId, from: u8, report: SimReport) -> Vec<SimReport> {
        self.report_of(ms, ingress, host(from), report)
    }

    fn report_of(
        &mut self,
        ms: u64,
        ingress: InterfaceId,
        source: SocketAddr,
        report: SimReport,
    ) -> Vec<SimReport> {
        let payload = report.emit();
        let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &payload };
        let (passed, reports) = self.give(at(ms), ingress, datagram);
        assert_eq!(passed, report.group.session != 0, "reports of the session are taken in");
        reports
    }

    /// A request at `ms`, which the one on the left answers after 10 ms.
    fn ask(&mut self, ms: u64, request: u16) -> (u32, Vec<SimReport>) {
        let stamp = u32::try_from(10 * ms).unwrap();
        self.data(ms, request);
        (stamp, self.report(ms + 10, LEFT, 1, report(request, 0, false, 1, stamp)))
    }

    fn wait(&mut self, ms: u64) -> Vec<SimReport> {
        self.router.handle(at(ms), Input::Timeout);
        self.drain(at(ms)).1
    }
}

#[test]
fn a_request_is_answered_once_all_have_or_when_its_time_is_over() {
    let mut bed = Bed::new(Vec::new());
    bed.data(0, 1);
    assert!(bed.report(10, LEFT, 1, report(1, 2, true, 50, 0)).is_empty(), "who there is, is not known");
    assert!(bed.report(20, RIGHT, 2, report(1, 0, false, 30, 0)).is_empty());
    let timer = bed.router.poll_timeout().unwrap();
    assert_eq!(timer, at(200), "twice the configured round-trip time");
    let first = bed.wait(200);
    assert_eq!(first.len(), 2, "one for each group");
    assert_eq!(first.iter().map(|report| report.is_last).collect::<Vec<_>>(), [false, true]);
    assert!(first.iter().all(|report| report.hold >= 1_800), "what the reports were held: {first:?}");

    bed.data(300, 2);
    assert!(bed.report(310, LEFT, 1, report(2, 2, true, 50, 3_000)).is_empty());
    let second = bed.report(320, RIGHT, 2, report(2, 2, false, 30, 3_000));
    assert_eq!(second.len(), 1, "all children have answered: {second:?}");
    let merged = second[0];
    assert_eq!((merged.reports, merged.congested, merged.population), (2, 1, 2));
    assert_eq!((merged.min_rate, merged.max_rate, merged.group.rank), (30, 50, 2));
    assert_eq!((merged.echo, merged.hold), (3_000, 0), "of the slower one, who was not held");
    assert!(merged.source != 7, "nobody is named");
    assert!(
        bed.report(330, LEFT, 3, report(2, 2, true, 10, 3_000)).is_empty(),
        "late: {:?}",
        bed.router.counters()
    );
    assert_eq!(bed.router.counters().late, 1);
}

#[test]
fn waits_shrink_with_the_subtrees_round_trip_time() {
    let mut bed = Bed::new(Vec::new());
    for request in 0..20_u16 {
        let ms = 500 * u64::from(request);
        bed.data(ms, request);
        let echo = u32::try_from(10 * ms).unwrap();
        bed.report(ms + 12, LEFT, 1, report(request, 0, false, 1, echo));
        bed.wait(ms + 499);
    }
    assert!((0.011..0.014).contains(&bed.router.rtt()), "{}", bed.router.rtt());
}

#[test]
fn who_falls_silent_is_waited_for_a_few_times_only() {
    let mut bed = Bed::new(Vec::new());
    let mut waited = Vec::new();
    for request in 0..12_u16 {
        let ms = 500 * u64::from(request);
        bed.data(ms, request);
        let echo = u32::try_from(10 * ms).unwrap();
        if request < 4 {
            bed.report(ms + 5, RIGHT, 2, report(request, 0, true, 1, echo));
        }
        let reports = bed.report(ms + 10, LEFT, 1, report(request, 0, false, 1, echo));
        waited.push(reports.is_empty());
        bed.wait(ms + 499);
    }
    assert!(waited[0], "nobody is known at first");
    assert!(waited[1..4].iter().all(|waited| !waited));
    assert!(waited[4..8].iter().all(|waited| *waited), "it may only be late");
    assert!(waited[8..].iter().all(|waited| !waited), "forgotten: {waited:?}");
}

/// Whoever answers each request after the next one has come makes nobody else wait past it.
#[test]
fn late_writers_mute_nobody() {
    let mut bed = Bed::new(Vec::new());
    bed.data(0, 0);
    bed.wait(79);
    let mut longest = 0.0_f64;
    for request in 1..30_u16 {
        let ms = 80 * u64::from(request);
        let (stamp, mut sent) = bed.ask(ms, request);
        sent.extend(bed.report(ms + 15, RIGHT, 2, report(request - 1, 0, false, 1, stamp - 800)));
        // And keeps being known.
        if request % 3 == 0 {
            sent.extend(bed.report(ms + 20, RIGHT, 2, report(request, 0, false, 1, stamp)));
        }
        sent.extend(bed.wait(ms + 79));
        assert_eq!(sent.len(), 1, "request {request}, {} s are waited for", bed.router.rtt());
        longest = longest.max(bed.router.rtt());
    }
    assert!(longest > 0.08, "it thinks that they take longer than requests are apart");
}

/// Who is five requests behind is heard all the same, in each request once, and so is how long that takes.
#[test]
fn who_is_late_counts_for_the_next_request() {
    let mut bed = Bed::new(Vec::new());
    for request in 0..40_u16 {
        let ms = 80 * u64::from(request);
        let (stamp, mut sent) = bed.ask(ms, request);
        if let Some(before) = request.checked_sub(5) {
            sent.extend(bed.report(ms + 12, RIGHT, 2, report(before, 0, true, 1, stamp - 4_000)));
        }
        sent.extend(bed.wait(ms + 79));
        let merged: Vec<_> = sent.iter().map(|report| (report.reports, report.congested)).collect();
        let expected = if request < 7 { continue } else { (2, 1) };
        assert_eq!(merged, [expected], "request {request}");
        let age = stamp + 120 - sent[0].echo - sent[0].hold;
        assert_eq!(age, 4_120, "tenths of a ms");
    }
    // What comes after the answer counts once for the next request, however often it comes.
    let (_, mut sent) = bed.ask(3_200, 40);
    sent.extend(bed.wait(3_279));
    assert_eq!(sent.len(), 1);
    for _ in 0..3 {
        assert!(bed.report(3_279, RIGHT, 2, report(40, 0, true, 1, 32_000)).is_empty());
    }
    let (_, mut sent) = bed.ask(3_280, 41);
    sent.extend(bed.wait(3_359));
    assert_eq!((sent.len(), sent[0].reports, sent[0].congested), (1, 2, 1));
    // Nobody is older than a few seconds.
    bed.data(13_000, 42);
    let refused = bed.router.counters().refused;
    assert!(bed.report(13_010, RIGHT, 2, report(41, 0, true, 1, 32_800)).is_empty());
    assert_eq!(bed.router.counters().refused, refused + 1);
}

/// Whoever came too late once, as a newcomer does where the others are known, is waited for from then on; and
/// a copy counts once.
#[test]
fn who_was_late_once_is_in_time_again() {
    let mut bed = Bed::new(Vec::new());
    for request in 0..21_u16 {
        let ms = 80 * u64::from(request);
        let (stamp, mut sent) = bed.ask(ms, request);
        if request >= 5 {
            sent.extend(bed.report(ms + 12, RIGHT, 2, report(request, 0, true, 1, stamp)));
        }
        sent.extend(bed.wait(ms + 79));
        if request > 6 {
            let merged = (sent.len(), sent[0].reports, sent[0].congested, sent[0].echo);
            assert_eq!(merged, (1, 2, 1, stamp), "request {request}");
        }
    }
    assert_eq!(bed.router.counters().late, 1);
    // A copy of what counted already.
    bed.report(1_679, RIGHT, 2, report(20, 0, true, 1, 16_000));
    let (_, early) = bed.ask(1_680, 21);
    assert!(early.is_empty(), "the other one is to answer that itself");
    let sent = bed.report(1_692, RIGHT, 2, report(21, 0, false, 1, 16_800));
    assert_eq!((sent.len(), sent[0].reports, sent[0].congested), (1, 2, 0));
}

/// What a router below was late with, of one receiver, stands for it only until it tells of all five.
#[test]
fn what_was_late_gives_way_to_what_is_told_anew() {
    let mut bed = Bed::new(vec![RIGHT]);
    let whole = |request, echo| SimReport { reports: 5, population: 5, ..report(request, 0, false, 1, echo) };
    for request in 0..20_u16 {
        let ms = 80 * u64::from(request);
        let (stamp, mut sent) = bed.ask(ms, request);
        if request % 4 == 3 {
            // In time; then one more that was late below.
            sent.extend(bed.report(ms + 12, RIGHT, 2, whole(request, stamp)));
            let late =
                SimReport { group: Group { session: 0, rank: 1 }, ..report(request, 0, true, 1, stamp) };
            sent.extend(bed.wait(ms + 70));
            sent.extend(bed.report(ms + 75, RIGHT, 2, late));
        } else {
            // Of the request before, and at once of this one.
            let before = request.wrapping_sub(1);
            sent.extend(bed.report(ms + 11, RIGHT, 2, report(before, 0, true, 1, stamp.wrapping_sub(800))));
            sent.extend(bed.report(ms + 12, RIGHT, 2, whole(request, stamp)));
        }
        sent.extend(bed.wait(ms + 79));
        let bottom: Vec<_> = sent.iter().filter(|report| report.group.rank == 0).collect();
        let merged: Vec<_> = bottom.iter().map(|report| (report.reports, report.congested)).collect();
        // How long is to be waited for them, is not known at first.
        assert!(request < 3 || merged == [(6, 0)], "request {request}: {sent:?}");
    }
}

/// Whoever echoes what was sent seconds before the request, and is silent at the next one, makes nobody else
/// wait past that.
#[test]
fn old_echoes_mute_nobody() {
    let mut bed = Bed::new(Vec::new());
    for request in 60..90_u16 {
        let ms = 80 * u64::from(request);
        let stamp = u32::try_from(10 * ms).unwrap();
        bed.data(ms, request);
        let mut sent = Vec::new();
        if request % 2 == 0 {
            sent.extend(bed.report(ms + 5, RIGHT, 2, report(request, 0, false, 1, stamp - 39_000)));
        }
        sent.extend(bed.report(ms + 10, LEFT, 1, report(request, 0, false, 1, stamp)));
        sent.extend(bed.wait(ms + 79));
        // How long is to be waited for the first one, is not known.
        assert!(request == 60 || sent.len() == 1, "request {request}");
    }
    assert!(bed.router.rtt() > 0.08, "it believes that they take longer than requests are apart");
}

/// Who comes first of a group just before the next request goes on, and makes nobody else wait past that one.
#[test]
fn who_comes_after_the_time_mutes_nobody() {
    let mut bed = Bed::new(Vec::new());
    bed.data(0, 0);
    bed.wait(79);
    for request in 1..30_u16 {
        let ms = 80 * u64::from(request);
        let (stamp, mut sent) = bed.ask(ms, request);
        sent.extend(bed.wait(ms + 74));
        if request % 2 == 0 {
            sent.extend(bed.report(ms + 75, RIGHT, 2, report(request, 4, false, 1, stamp)));
        }
        sent.extend(bed.wait(ms + 79));
        assert!(sent.iter().any(|report| report.group.rank == 0), "request {request}: {sent:?}");
    }
}

/// A queue that fills makes the way longer from request to request, each of which follows twice the way
/// before.
#[test]
fn a_way_that_grows_is_waited_for() {
    let mut bed = Bed::new(Vec::new());
    let (mut ms, mut way) = (0, 40);
    for request in 0..20_u16 {
        let (stamp, mut sent) = bed.ask(ms, request);
        sent.extend(bed.wait(ms + way - 1));
        sent.extend(bed.report(ms + way, RIGHT, 2, report(request, 0, true, 1, stamp)));
        // Who there is, is not known at first.
        if request == 0 {
            ms += 160;
            sent.extend(bed.wait(ms + way));
        }
        let congested: Vec<u32> = sent.iter().map(|report| report.congested).collect();
        assert_eq!(congested, [1], "request {request}, after {way} ms");
        ms += 2 * way;
        // It grows by a half, and empties now and then.
        way = if way > 150 { 40 } else { way * 3 / 2 };
    }
}

/// A group of few packets brings a request late, which is no part of the way there and back.
#[test]
fn round_trip_times_count_from_the_packet_that_is_echoed() {
    let mut collector = Collector::new(0, 5);
    collector.begin(at(0), 1, 0);
    collector.passes(1, 600);
    let early = report(1, 1, false, 1, 0);
    let late = SimReport { hold: 20, ..report(1, 0, false, 1, 600) };
    assert_eq!(collector.took(at(100), &early), Some(Duration::from_millis(100)));
    assert_eq!(collector.took(at(100), &late), Some(Duration::from_millis(38)));
    collector.begin(at(110), 2, 1_100);
    assert_eq!(collector.took(at(120), &late), Some(Duration::from_millis(58)), "of the request before");
    assert_eq!(collector.took(at(120), &SimReport { echo: 5_000, ..late }), None, "nothing was sent then");
    assert_eq!(collector.took(at(120), &SimReport { hold: u32::MAX, ..late }), None);
}

#[test]
fn request_numbers_wrap_and_a_sender_that_begins_anew_is_followed_after_silence() {
    let mut bed = Bed::new(Vec::new());
    for (ms, request, requests) in
        [(0, 65_534, 1), (100, 65_535, 2), (200, 0, 3), (300, 1, 4), (301, 65_535, 4)]
    {
        bed.data(ms, request);
        assert_eq!(bed.router.counters().requests, requests, "request {request}");
    }
    bed.data(2_000, 40_000);
    assert_eq!(bed.router.counters().requests, 4, "that is behind");
    bed.data(5_400, 40_000);
    assert_eq!(bed.router.counters().requests, 5, "the sender was started again");
}

#[test]
fn a_vanished_sender_leaves_nothing_to_wait_for() {
    let mut bed = Bed::new(Vec::new());
    bed.data(0, 1);
    bed.wait(200);
    assert_eq!(bed.router.poll_timeout(), None);
    assert_eq!(bed.report(400, LEFT, 1, report(1, 0, true, 1, 0)).len(), 1, "who answers first is sent on");
    assert!(bed.report(410, RIGHT, 2, report(1, 0, true, 1, 0)).is_empty(), "one for each group");
    assert_eq!(bed.router.poll_timeout(), None);
}

/// Fourteen routers one above the other, of whom none knows the one below it: all wait equally long, and the
/// answer is at the top all the same.
#[test]
fn routers_that_know_nobody_send_on_what_comes_first() {
    let mut chain: Vec<Bed> = (0..14).map(|_| Bed::new(vec![LEFT])).collect();
    for (depth, bed) in (0..).zip(&mut chain) {
        bed.data(5 * depth, 1);
        assert_eq!(bed.router.poll_timeout(), Some(at(5 * depth + 200)));
    }
    chain[13].report(75, RIGHT, 1, report(1, 2, true, 50, 0));
    chain[13].report(76, RIGHT, 2, report(1, 0, false, 30, 0));
    let mut ms = 265;
    let mut sent = Vec::new();
    for bed in chain.iter_mut().rev() {
        let below = std::mem::replace(&mut sent, bed.wait(ms));
        for report in below {
            sent.extend(bed.report(ms, LEFT, 1, report));
        }
        ms += 5;
    }
    let told: Vec<_> = sent.iter().map(|report| (report.group.rank, report.congested)).collect();
    assert_eq!(told, [(0, 0), (2, 1)]);
}

#[test]
fn what_is_no_report_from_below_passes() {
    let mut bed = Bed::new(Vec::new());
    let payload = report(1, 0, true, 1, 0).emit();
    let datagram = Datagram { source: host(1), channel: None, ecn: Ecn::NotCapable, payload: &payload };
    assert!(bed.give(at(0), LEFT, datagram).0, "before any data it is not known where the sender is");
    bed.data(1, 1);
    let other = Datagram { payload: b"else", ..datagram };
    assert!(bed.give(at(2), LEFT, other).0);
    let mut foreign = report(1, 0, true, 1, 0);
    foreign.group.session = 9;
    let foreign = foreign.emit();
    assert!(bed.give(at(3), LEFT, Datagram { payload: &foreign, ..datagram }).0, "of another session");
    assert_eq!(bed.router.children(), 0);
}

#[test]
fn writers_are_bounded() {
    let mut collector = Collector::new(0, 5);
    collector.begin(at(0), 1, 0);
    let mut refused = 0;
    for number in 0..u32::try_from(CHILDREN_MAX).unwrap() + 10 {
        let [_, a, b, c] = number.to_be_bytes();
        let writer = (LEFT, SocketAddr::from(([10, a, b, c], 9)));
        let taken = collector.take(at(1), writer, false, &report(1, 0, true, 1, 0));
        refused += u32::from(taken == Err(Refused::Crowded));
    }
    assert_eq!((collector.children(), refused), (CHILDREN_MAX, 10));
    for request in 2..8 {
        collector.begin(at(100 * u64::from(request)), request, 0);
    }
    assert_eq!(collector.children(), 0, "and forgotten");
}

/// Routers tell of many groups each: what stands in other requests than it answers is bounded as their
/// writers are.
#[test]
fn what_is_kept_for_other_requests_is_bounded() {
    const GROUPS: u8 = 64;
    let writers = u32::try_from(CHILDREN_MAX).unwrap() / u32::from(GROUPS) + 1;
    let told = |collector: &mut Collector, request: u16, groups: core::ops::Range<u8>| {
        let reports = groups.flat_map(|rank| (0..writers).map(move |number| (rank, number)));
        let taken = reports.map(|(rank, number)| {
            let [_, a, b, c] = number.to_be_bytes();
            let writer = (RIGHT, SocketAddr::from(([10, a, b, c], 9)));
            collector.take(at(100), writer, true, &report(request, rank, false, 1, 0))
        });
        taken.filter(|taken| *taken == Err(Refused::Crowded)).count()
    };
    let all = |collector: &Collector| {
        collector.tallies().into_iter().flatten().map(|tally| tally.reports).sum::<u32>()
    };
    let kept = u32::try_from(CHILDREN_MAX).unwrap();
    // All groups are settled by one writer's reports: those of the others are late, and are kept for the next
    // request.
    let mut collector = Collector::new(0, GROUPS.into());
    collector.begin(at(0), 1, 0);
    for rank in 0..GROUPS {
        _ = collector.take(at(1), (LEFT, host(1)), true, &report(1, rank, false, 1, 0));
    }
    _ = collector.settle();
    assert_eq!(told(&mut collector, 1, 0..GROUPS), usize::from(GROUPS));
    collector.begin(at(200), 2, 2_000);
    assert_eq!(all(&collector), kept);
    // So do answers to the request before that come while no group is settled.
    let mut collector = Collector::new(0, GROUPS.into());
    collector.begin(at(0), 1, 0);
    collector.begin(at(50), 2, 500);
    assert_eq!(told(&mut collector, 1, 0..GROUPS), usize::from(GROUPS));
    assert_eq!(all(&collector), kept);
    assert_eq!(told(&mut collector, 2, 0..1), 0, "an answer in time needs no room");
}

#[test]
fn a_network_has_few_writers_where_writers_are_limited() {
    for (limits, most) in [(true, 8), (false, 250)] {
        let mut collector = Collector::new(0, 5);
        if limits {
            collector.limit_networks();
        }
        collector.begin(at(0), 1, 0);
        let mut take = |ip: [u8; 4]| {
            collector.take(at(10), (LEFT, SocketAddr::from((ip, 9))), false, &report(1, 0, false, 1, 0))
        };
        let taken = (0..250).filter(|host| take([192, 0, 2, *host]).is_ok()).count();
        assert_eq!(taken, most);
        assert_eq!(take([192, 0, 3, 1]), Ok(()), "another network");
        assert_eq!(collector.tallies()[0].unwrap().reports, u32::try_from(most).unwrap() + 1);
    }
}

fn any_report() -> impl Strategy<Value = SimReport> {
    (any::<[u32; 4]>(), 0_u16..4, 0_u8..7, 0_u32..3, any::<bool>(), 0_u32..200).prop_map(
        |([source, counts, rates, hold], request, rank, echo, is_last, scale)| {
            let population = counts.max(1);
            let reports = (population / (1 + scale)).max(1);
            let congested = reports / (1 + scale % 3);
            let (min_rate, max_rate) = (rates / 2, rates);
            let hold = if scale % 2 == 0 { hold % 50 } else { hold };
            let group = Group { session: u32::from(scale == 199), rank };
            let echo = if scale % 5 == 0 { source } else { echo * 100 };
            SimReport {
                is_last,
                request,
                source,
                group,
                reports,
                congested,
                population,
                min_rate,
                max_rate,
                echo,
                hold,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn merging_is_associative_and_keeps_counts(
        parts in prop::collection::vec((0_u32..1_000, 0_u32..1_000, 0_u32..500, 0_u32..50), 3..20),
        split in 0_usize..20,
    ) {
        let tallies: Vec<Tally> = parts
            .iter()
            .map(|(rate, echo, arrived, hold)| {
                Tally::of(&SimReport { hold: *hold, ..report(1, 0, rate % 3 == 0, *rate, *echo) }, 1_000 + arrived)
            })
            .collect();
        let merge = |tallies: &[Tally]| tallies.iter().copied().reduce(Tally::merge);
        let whole = merge(&tallies).unwrap();
        let split = split % tallies.len();
        let (left, right) = (merge(&tallies[..split]), merge(&tallies[split..]));
        let halves = left.map_or(right, |left| right.map(|right| left.merge(right))).unwrap();
        let backward = tallies.iter().rev().copied().reduce(Tally::merge).unwrap();
        for other in [halves, backward] {
            prop_assert_eq!((whole.reports, whole.congested, whole.population), (other.reports, other.congested, other.population));
            prop_assert_eq!((whole.min_rate, whole.max_rate, whole.age()), (other.min_rate, other.max_rate, other.age()));
        }
        prop_assert_eq!(whole.reports as usize, tallies.len(), "counts are kept");
        prop_assert_eq!(whole.congested as usize, parts.iter().filter(|part| part.0 % 3 == 0).count());
        // What was held on is held longer, and no older.
        let sent_on = Tally::of(&whole.report(3_000, report(1, 0, false, 0, 0)), 3_000);
        prop_assert_eq!(sent_on.age(), whole.age());
    }

    /// Beside two honest receivers, a storm of reports from one address, each as it likes, counts as one
    /// receiver at most, and the router answers each request once per group.
    #[test]
    fn a_hostile_writer_is_one_receiver(
        storm in prop::collection::vec((any_report(), 0_u64..60), 1..60),
        is_congested in any::<bool>(),
    ) {
        let mut bed = Bed::new(vec![RIGHT]);
        for request in 0..3_u16 {
            let start = 1_000 * u64::from(request);
            let echo = u32::try_from(10 * start).unwrap();
            bed.data(start, request);
            let mut sent = Vec::new();
            let mut storm: Vec<_> = storm.iter().map(|(hostile, ms)| (*ms, Some(*hostile))).collect();
            storm.push((20, None));
            storm.sort_by_key(|(ms, _)| *ms);
            for (ms, hostile) in storm {
                match hostile {
                    Some(hostile) => {
                        // From another port each time.
                        let port = 5_000 + u16::try_from(ms).unwrap();
                        sent.extend(bed.report_of(start + ms, LEFT, (host(66).ip(), port).into(), hostile));
                    }
                    None => {
                        sent.extend(bed.report(start + ms, LEFT, 1, report(request, 1, is_congested, 40, echo)));
                        let router = SimReport { reports: 9, congested: 3, population: 9, ..report(request, 1, false, 40, echo) };
                        sent.extend(bed.report(start + ms, RIGHT, 2, router));
                    }
                }
            }
            sent.extend(bed.wait(start + 999));
            let ranks: std::collections::BTreeSet<u8> = sent.iter().map(|report| report.group.rank).collect();
            prop_assert_eq!(ranks.len(), sent.len(), "one report for each group");
            let reports: u32 = sent.iter().map(|report| report.reports).sum();
            let congested: u32 = sent.iter().map(|report| report.congested).sum();
            prop_assert!(reports <= 11, "{} reports", reports);
            prop_assert!(congested <= 4 + u32::from(is_congested));
            prop_assert!(sent.iter().all(|report| report.source != 7 && report.request == request));
            prop_assert!(bed.router.children() <= 3);
        }
    }
}
