//! A sender and receivers without a network between them.

use core::net::SocketAddr;

use headwater_wire::sim::{Data, SimReport};
use proptest::prelude::*;

use super::report;
use crate::control::{Arrival, Membership, ReceiverControl, SenderControl};
use crate::machine::{ChannelId, Datagram, Ecn};
use crate::rng::Seed;
use crate::sim::schedule::clock;
use crate::sim::selection::Measured;
use crate::sim::{SimConfig, SimReceiver, SimSender};
use crate::time::{Duration, Instant};

const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn host(number: u8) -> SocketAddr {
    ([10, 0, 0, number], 5_000).into()
}

/// Drives a sender up to an instant, and shows each packet.
fn run(sender: &mut SimSender, until: Instant, mut see: impl FnMut(Instant, Data)) {
    loop {
        let next = sender.next_departure().into_iter().chain(sender.poll_timeout()).min().unwrap();
        if next > until {
            return;
        }
        sender.timeout(next);
        while let Some(departure) = sender.departure(next) {
            see(next, Data::parse(departure.cci.as_bytes()).unwrap());
            sender.departed(next, 1_000);
        }
    }
}

fn say(sender: &mut SimSender, now: Instant, from: u8, report: &SimReport) {
    let payload = report.emit();
    sender.feedback(
        now,
        &Datagram { source: host(from), channel: None, ecn: Ecn::NotCapable, payload: &payload },
    );
}

#[test]
fn requests_follow_each_other_and_wrap() {
    let mut sender = SimSender::new(
        SimConfig::new(5, 1_000).with_rtt_bounds(Duration::from_millis(1), Duration::from_millis(1)),
        at(0),
    );
    let mut last = None;
    let mut wrapped = 0;
    let mut now = at(0);
    for _ in 0..70_000 {
        now = sender.poll_timeout().unwrap();
        sender.timeout(now);
        while let Some(departure) = sender.departure(now) {
            let data = Data::parse(departure.cci.as_bytes()).unwrap();
            if let Some(before) = last {
                assert!(data.request.wrapping_sub(before) < 100, "{} after {before}", data.request);
                wrapped += u32::from(data.request < before);
            }
            last = Some(data.request);
            sender.departed(now, 1_000);
        }
    }
    assert_eq!(wrapped, 1);
    assert_eq!(sender.counters().requests, 70_001);
    // It still listens.
    let request = last.unwrap();
    say(&mut sender, now, 1, &report(request, 0, false, 1, clock(now)));
    assert_eq!(sender.counters().reports + sender.counters().refused, 1);
}

/// Answers each request as `answer` says: what to report, in ms after the request's first packet.
fn answered(
    config: SimConfig,
    until: Instant,
    mut answer: impl FnMut(&SimSender, u16) -> Vec<(u8, u8, bool)>,
) -> SimSender {
    let mut sender = SimSender::new(config, at(0));
    let mut last = None;
    let mut now = at(0);
    while now < until {
        now = sender.next_departure().into_iter().chain(sender.poll_timeout()).min().unwrap();
        sender.timeout(now);
        while let Some(departure) = sender.departure(now) {
            let data = Data::parse(departure.cci.as_bytes()).unwrap();
            sender.departed(now, 1_000);
            if last != Some(data.request) {
                last = Some(data.request);
                for (from, rank, is_congested) in answer(&sender, data.request) {
                    let rate = 1_000_000;
                    say(
                        &mut sender,
                        now,
                        from,
                        &report(data.request, rank, is_congested, rate, data.timestamp),
                    );
                }
            }
        }
    }
    sender
}

#[test]
fn a_rate_rises_by_four_tenths_of_a_packet_a_request_and_falls_by_an_eighth_at_most_once_in_three() {
    let config = SimConfig::new(5, 1_000)
        .with_rtt(Duration::from_millis(40))
        .with_rtt_bounds(Duration::from_millis(40), Duration::from_secs(1));
    let calm = answered(config.clone(), at(4_010), |_, _| vec![(1, 0, false)]);
    // 50 requests of 80 ms; the last one is not over.
    assert!((calm.cumulative(0) - 100e3 - 40e3 * 50.0).abs() < 41e3, "{}", calm.cumulative(0));
    let mut rates = Vec::new();
    answered(config, at(4_010), |sender, _| {
        rates.push(sender.cumulative(0));
        vec![(1, 0, sender.cumulative(0) > 1e6)]
    });
    let falls: Vec<usize> = (1..rates.len()).filter(|place| rates[*place] < rates[place - 1]).collect();
    assert!(falls.len() > 4, "{rates:?}");
    assert!(falls.iter().all(|place| (rates[*place] / rates[place - 1] - 0.875).abs() < 1e-9));
    assert!(falls.windows(2).all(|pair| pair[1] - pair[0] >= 3), "held off: {falls:?}");
}

/// The maximum round-trip times of a sender, bounded to 50 ms and 1 s, by request, which these groups answer
/// in no time at all.
fn times(first_ms: u64, until: Instant, groups: impl Fn(u16) -> Vec<u8>) -> Vec<f64> {
    let ms = Duration::from_millis;
    let config = SimConfig::new(5, 1_000).with_rtt(ms(first_ms)).with_rtt_bounds(ms(50), ms(1_000));
    let mut times = Vec::new();
    answered(config, until, |sender, request| {
        times.push(sender.rtt_max());
        groups(request).into_iter().map(|rank| (1 + rank, rank, false)).collect()
    });
    times
}

fn check_times(times: &[f64], expected: &[f64]) {
    for (request, (time, expected)) in times.iter().zip(expected).enumerate() {
        assert!((time - expected).abs() < 1e-9, "request {request}: {times:?}");
    }
    assert!(times.len() > expected.len());
}

/// Once a full queue is gone, the session's clock is to be fast again.
#[test]
fn half_of_a_round_trip_time_that_is_over_is_kept() {
    check_times(&times(800, at(6_000), |_| vec![0]), &[0.8, 0.4, 0.2, 0.1, 0.05, 0.05]);
}

/// Those who are missing may be the farthest: a clock that they make no slower any more would run away from
/// them.
#[test]
fn the_round_trip_time_stays_while_a_group_is_missed() {
    let times = times(800, at(6_000), |request| if request < 2 { vec![0, 2] } else { vec![0] });
    check_times(&times, &[0.8, 0.4, 0.2, 0.2, 0.2, 0.2, 0.1, 0.05]);
}

#[test]
fn groups_open_when_receivers_come_and_close_when_they_are_gone() {
    let config = SimConfig::new(3, 1_000);
    let mut sizes = Vec::new();
    let sender = answered(config, at(10_000), |sender, request| {
        sizes.push(sender.cumulative(2) - sender.cumulative(1));
        if request < 20 { vec![(1, 0, false), (2, 2, false)] } else { vec![(1, 0, false)] }
    });
    assert!(sizes[5] >= 60e3 - 1.0, "{sizes:?}");
    assert!(sizes[23] > 60e3, "it is kept for three requests");
    assert!(sizes[26].abs() < 1e-6);
    assert!((sender.cumulative(2) - sender.cumulative(0)).abs() < 1e-6);
}

#[test]
fn without_any_report_it_falls_back_to_the_least() {
    let sender = answered(SimConfig::new(5, 1_000), at(20_000), |_, request| {
        if request < 40 { vec![(1, 0, false), (2, 1, false), (3, 4, false)] } else { Vec::new() }
    });
    assert!((sender.cumulative(4) - 100e3).abs() < 1.0, "{}", sender.cumulative(4));
}

/// The floor is a packet per request, below what it began with: silence is no reason to send more.
#[test]
fn silence_raises_no_rate() {
    let config =
        SimConfig::new(1, 1_000).with_rtt_bounds(Duration::from_millis(400), Duration::from_millis(400));
    let mut rates = Vec::new();
    answered(config, at(30_000), |sender, request| {
        rates.push(sender.cumulative(0));
        if request < 20 { vec![(1, 0, true)] } else { Vec::new() }
    });
    let rate = rates[21];
    assert!(rate < 50e3, "{rates:?}");
    assert!(rates[22..].iter().all(|later| *later <= rate), "{rates:?}");
}

#[test]
fn without_answers_the_round_trip_time_doubles_and_the_first_answer_takes_its_place() {
    let times = times(100, at(14_000), |request| if request < 8 { Vec::new() } else { vec![0] });
    check_times(&times, &[0.1, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 0.05]);
}

/// Who comes by a way eight times as long as the longest so far is heard: requests become as far apart as
/// that takes, and the rate follows.
#[test]
fn a_receiver_that_is_far_away_is_heard() {
    let ms = Duration::from_millis;
    let config = SimConfig::new(1, 1_000).with_rtt(ms(40)).with_rtt_bounds(ms(40), ms(2_000));
    let mut sender = SimSender::new(config, at(0));
    let mut far = std::collections::VecDeque::new();
    let (mut last, mut now) = (None, at(0));
    let mut most = 0.0_f64;
    while now < at(12_000) {
        now = sender.next_departure().into_iter().chain(sender.poll_timeout()).min().unwrap();
        while let Some((_, report)) = far.front().filter(|(due, _)| *due <= now).copied() {
            far.pop_front();
            say(&mut sender, now, 2, &report);
        }
        sender.timeout(now);
        most = most.max(sender.cumulative(0));
        while let Some(departure) = sender.departure(now) {
            let data = Data::parse(departure.cci.as_bytes()).unwrap();
            sender.departed(now, 1_000);
            if last.replace(data.request) != Some(data.request) {
                let is_above = sender.cumulative(0) > 500e3;
                say(&mut sender, now, 1, &report(data.request, 0, false, 1_000_000, data.timestamp));
                far.push_back((now + ms(320), report(data.request, 0, is_above, 1_000_000, data.timestamp)));
            }
        }
    }
    assert!((0.31..0.7).contains(&sender.rtt_max()), "{} s", sender.rtt_max());
    assert!(most < 1.1e6 && sender.cumulative(0) > 350e3, "up to {most}, {}", sender.cumulative(0));
}

#[test]
fn a_group_that_is_closed_counts_no_more_and_one_that_opens_again_is_measured_anew() {
    let mut group = Measured::default();
    let (mut sequence, mut stamp) = (0, 0);
    let mut interval = |group: &mut Measured, packets: u32| {
        for packet in 0..packets {
            group.record(sequence, stamp + packet * 800 / packets);
            sequence += 1;
        }
        stamp += 800;
        group.settle(stamp);
        group.rate()
    };
    assert_eq!(interval(&mut group, 10), None, "one request tells nothing");
    let near = |rate: Option<f64>, expected: f64| rate.is_some_and(|rate| (rate - expected).abs() < 1e-6);
    assert!(near(interval(&mut group, 10), 125.0));
    assert!(near(interval(&mut group, 0), 0.0), "ten packets were due");
    assert!(near(interval(&mut group, 0), 0.0));
    assert_eq!(interval(&mut group, 10), None, "it is not measured over the silence");
    assert!(near(interval(&mut group, 10), 125.0));
    // Of a packet a request one may be late, or lost.
    let mut slow = Measured::default();
    interval(&mut slow, 1);
    assert!(near(interval(&mut slow, 1), 12.5));
    assert_eq!(interval(&mut slow, 0), None);
    assert!(near(interval(&mut slow, 1), 6.25));
    for _ in 0..7 {
        interval(&mut slow, 0);
    }
    assert!(near(slow.rate(), 0.0), "{:?}", slow.rate());
}

/// A receiver that joins the second group, as the bottom one falls at request 6 for others' sake, loses these
/// of the bottom group's packets in each request then, and so leaves. From then on `bottom` says, by requests
/// since the leave, how many packets the bottom group has in a request, and whether they are marked. What it
/// reports before and after the leave: whether it is congested.
fn after_a_leave(
    is_lost: impl Fn(u64, bool) -> bool,
    bottom: impl Fn(u16) -> (u64, bool),
) -> (SimReceiver, Vec<u32>, Vec<u32>) {
    let mut receiver = SimReceiver::new(SimConfig::new(3, 1_000), Seed(1));
    receiver.start(at(0));
    let (mut buffer, mut above, mut after) = ([0; 9_000], Vec::new(), Vec::new());
    let (mut sequences, mut left) = ([0; 2], None);
    for request in 0..60_u16 {
        let (packets, is_marked) = match left {
            Some(left) => bottom(request - left),
            None => (if request < 6 { 20 } else { 16 }, false),
        };
        for (rank, count) in [(0, packets), (1, 2)] {
            for packet in 0..count {
                sequences[usize::from(rank)] += 1;
                let is_after = receiver.held() == 1;
                if rank == 0 && (!is_after || left.is_some()) && is_lost(packet, is_after) {
                    continue;
                }
                let now = at(160 * u64::from(request) + packet * 160 / count);
                let sequence = sequences[usize::from(rank)];
                let cci = Data { rank, request, timestamp: clock(now), sequence }.to_cci();
                let ecn = if is_marked { Ecn::CongestionExperienced } else { Ecn::Capable0 };
                let (source, channel) = (SENDER.into(), ChannelId(rank.into()));
                receiver.arrived(
                    now,
                    &Arrival { source, channel, cci: &cci, ecn, bytes: 1_000, lateness: Duration::ZERO },
                );
                if let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
                    let report = SimReport::parse(&buffer[..transmit.bytes]).unwrap();
                    match (report.group.rank, left) {
                        (0, Some(_)) => after.push(report.congested),
                        (0, None) => {}
                        _ => above.push(report.congested),
                    }
                    if !above.is_empty() && receiver.held() == 1 {
                        left.get_or_insert(request);
                    }
                }
            }
        }
    }
    (receiver, above, after)
}

#[test]
fn a_full_queue_drops_any_group() {
    let (_, above, after) = after_a_leave(|packet, is_after| packet == 7 && !is_after, |_| (16, true));
    assert_eq!(above, [1; 10], "what is lost below counts");
    assert_eq!(after[..6], [0, 0, 1, 1, 1, 1], "marks are told once what was left is gone from the queue");
}

/// Where more is lost than an interval's decreases could end, it does not wait for the interval's end.
#[test]
fn who_loses_most_of_it_leaves_at_once() {
    let reports = |is_lost: fn(u64) -> bool| {
        after_a_leave(|packet, is_after| is_lost(packet) && !is_after, |_| (16, true)).1.len()
    };
    assert_eq!(reports(|packet| packet % 4 == 1), 10, "a quarter");
    assert!((2..=3).contains(&reports(|packet| packet % 2 == 1)), "a half, in two requests");
}

/// Congestion after a leave is not told of, unless too much is lost to wait.
#[test]
fn what_is_lost_beyond_bounds_is_told_of_after_a_leave_too() {
    let told = |is_lost: fn(u64) -> bool| {
        let after = after_a_leave(|packet, _| is_lost(packet), |_| (16, false)).2;
        after[..6].to_vec()
    };
    assert_eq!(told(|packet| packet % 4 == 1), [0, 0, 1, 1, 1, 1], "a quarter");
    assert_eq!(told(|packet| packet % 2 == 1), [1; 6], "a half");
}

/// A fall that follows its own marks is no yielding of others.
#[test]
fn who_left_a_full_queue_joins_nothing_for_it() {
    let bottom = |since| (if since < 4 { 16 } else { 14 + u64::from(since) / 8 }, since < 3);
    let (receiver, _, after) = after_a_leave(|packet, is_after| packet == 7 && !is_after, bottom);
    assert!(after.len() > 20 && after[5..].iter().all(|congested| *congested == 0), "{after:?}");
    assert_eq!((receiver.held(), receiver.counters().changes), (1, 2));
}

/// A receiver fed by a sender that it alone answers, with nothing lost. `see` gives what a packet carries,
/// and its bytes.
fn feed(
    receiver: &mut SimReceiver,
    sender: &mut SimSender,
    until: Instant,
    see: impl Fn(&Data) -> (Ecn, usize),
) -> Vec<SimReport> {
    let mut reports = Vec::new();
    let mut buffer = [0; 9_000];
    let mut packets = Vec::new();
    run(sender, until, |now, data| packets.push((now, data)));
    for (now, data) in packets {
        let (ecn, bytes) = see(&data);
        let channel = ChannelId(data.rank.into());
        let arrival = Arrival {
            source: SENDER.into(),
            channel,
            cci: &data.to_cci(),
            ecn,
            bytes,
            lateness: Duration::ZERO,
        };
        receiver.arrived(now, &arrival);
        while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
            reports.push(SimReport::parse(&buffer[..transmit.bytes]).unwrap());
        }
    }
    reports
}

#[test]
fn each_request_is_answered_once_and_marks_are_told() {
    let config = SimConfig::new(5, 1_000);
    let mut sender = SimSender::new(config.clone(), at(0));
    let mut receiver = SimReceiver::new(config, Seed(1));
    receiver.start(at(0));
    assert_eq!(receiver.poll_membership(), Some(Membership::Join(ChannelId(0))));
    let marked = |data: &Data| match data.request {
        3 => (Ecn::CongestionExperienced, 1_000),
        _ => (Ecn::Capable0, 1_000),
    };
    let reports = feed(&mut receiver, &mut sender, at(3_000), marked);
    let requests: Vec<u16> = reports.iter().map(|report| report.request).collect();
    assert_eq!(
        requests,
        (1..=u16::try_from(requests.len()).unwrap()).collect::<Vec<_>>(),
        "the first one begins"
    );
    let congested: Vec<u16> =
        reports.iter().filter(|report| report.congested > 0).map(|report| report.request).collect();
    assert_eq!(congested, [4], "what was marked since request 3 is told in answer to request 4");
    assert_eq!(receiver.reception().lost, 0);
    assert!(receiver.rate().is_some_and(|rate| (80e3..120e3).contains(&rate)), "{:?}", receiver.rate());
    receiver.stop(at(3_000));
    let changes = receiver.counters().changes;
    receiver.stop(at(3_001));
    assert_eq!(receiver.counters().changes, changes, "it holds nothing any more");
}

/// A relay that carries the bottom group alone: who joins the next one in vain leaves it, and tries it
/// seldom.
#[test]
fn a_group_that_nobody_carries_is_left() {
    let least = Duration::from_millis(40);
    let config = SimConfig::new(3, 1_000).with_rtt(least).with_rtt_bounds(least, least);
    let mut sender = SimSender::new(config.clone(), at(0));
    let mut receiver = SimReceiver::new(config, Seed(1));
    receiver.start(at(0));
    let (mut last, mut now) = (None, at(0));
    let (mut above, mut requests) = (0, 0);
    while now < at(120_000) {
        now = sender.next_departure().into_iter().chain(sender.poll_timeout()).min().unwrap();
        sender.timeout(now);
        while let Some(departure) = sender.departure(now) {
            let data = Data::parse(departure.cci.as_bytes()).unwrap();
            sender.departed(now, 1_000);
            let (source, channel, cci) = (SENDER.into(), departure.channel, &departure.cci);
            receiver.arrived(
                now,
                &Arrival { source, channel, cci, ecn: Ecn::Capable0, bytes: 1_000, lateness: Duration::ZERO },
            );
            if last.replace(data.request) != Some(data.request) {
                // Others make the bottom group fall, and nobody tells the sender of the group above.
                let is_congested = data.request.is_multiple_of(5);
                say(&mut sender, now, 1, &report(data.request, 0, is_congested, 1_000, data.timestamp));
                requests += 1;
                above += u32::from(receiver.held() > 1);
            }
        }
    }
    let counters = *receiver.counters();
    assert!((2..=6).contains(&counters.unheard), "{counters:?}");
    assert!(above > 40 && 8 * above < requests, "it holds it in vain for {above} requests of {requests}");
}

/// Packets of the FDT, and of the ends of files, are shorter: a request that follows one shows no fall, after
/// which it would join.
#[test]
fn the_length_of_a_packet_says_nothing_of_the_rate_that_is_sent() {
    let rtt = Duration::from_millis(100);
    let config = SimConfig::new(5, 1_000).with_rtt_bounds(rtt, rtt);
    let mut sender = SimSender::new(config.clone(), at(0));
    let mut receiver = SimReceiver::new(config, Seed(1));
    receiver.start(at(0));
    let short = |data: &Data| (Ecn::Capable0, if data.request.is_multiple_of(5) { 300 } else { 1_000 });
    // It answers, or the rate would stay.
    let mut requests = 0;
    for ms in (0..20_000).step_by(10) {
        for report in feed(&mut receiver, &mut sender, at(ms), short) {
            requests += 1;
            say(&mut sender, at(ms), 1, &report);
        }
    }
    assert!(requests > 50, "{requests} requests");
    assert_eq!((receiver.held(), receiver.counters().changes), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    /// Whatever a hostile writer adds to what an honest receiver says, no rate moves in a request by more
    /// than an honest report could move it: a step up, or an eighth down, and what order demands.
    #[test]
    fn hostile_reports_move_a_rate_by_no_more_than_one_could(
        storm in prop::collection::vec((any::<[u32; 6]>(), 0_u8..6, 0_u8..3, any::<bool>()), 1..20),
    ) {
        let least = Duration::from_millis(40);
        let config = SimConfig::new(5, 1_000).with_rtt(least).with_rtt_bounds(least, Duration::from_millis(400));
        let mut sender = SimSender::new(config, at(0));
        let mut now = at(0);
        let mut last = None;
        let mut before = [100e3_f64; 5];
        while now < at(6_000) {
            now = sender.next_departure().into_iter().chain(sender.poll_timeout()).min().unwrap();
            sender.timeout(now);
            let rates: Vec<f64> = (0..5).map(|rank| sender.cumulative(rank)).collect();
            for (rank, rate) in rates.iter().enumerate() {
                // A step is a packet in two round-trip times, 100 kbit/s at most; a group that opens begins
                // 100 kbit/s above the one below.
                let below = if rank == 0 { 0.0 } else { rates[rank - 1] };
                let most = (before[rank] + 100_001.0).max(below + 200_001.0);
                prop_assert!(*rate <= most, "group {} from {} to {}", rank, before[rank], rate);
                prop_assert!(rank == 0 || *rate >= below);
            }
            prop_assert!(rates[0] >= 0.874 * before[0]);
            before.copy_from_slice(&rates);
            while let Some(departure) = sender.departure(now) {
                let data = Data::parse(departure.cci.as_bytes()).unwrap();
                sender.departed(now, 1_000);
                if last == Some(data.request) {
                    continue;
                }
                last = Some(data.request);
                say(&mut sender, now, 1, &report(data.request, 0, false, 1_000, data.timestamp));
                for ([source, counts, rates, echo, hold, _], rank, kind, is_congested) in &storm {
                    let hostile = SimReport {
                        source: *source,
                        reports: (*counts).max(1),
                        congested: if *is_congested { (*counts).max(1) } else { 0 },
                        population: (*counts).max(1),
                        min_rate: rates / 3,
                        max_rate: *rates,
                        echo: if *kind == 0 { *echo } else { data.timestamp },
                        hold: if *kind == 1 { *hold } else { 0 },
                        ..report(data.request, *rank, false, 0, 0)
                    };
                    say(&mut sender, now, 66, &hostile);
                }
            }
        }
        prop_assert!(sender.rtt_max() <= 0.4);
    }
}
