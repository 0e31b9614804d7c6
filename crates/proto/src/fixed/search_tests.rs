use crate::rng::{Seed, Stream, unit};

use super::*;

const START: Rate = Rate::from_kilobits(10_000);

fn search(most: Rate) -> RateSearch {
    RateSearch::new(RateSearchConfig { start: START, least: Rate::from_kilobits(1_000), most })
}

/// Paths of receivers that report, without delay.
struct Bed {
    search: RateSearch,
    random: Stream,
    now: Instant,
    /// Time between two reports.
    interval: Duration,
    /// Capacity of each path in bit/s, and the part lost by chance.
    paths: Vec<(f64, f64)>,
    counts: Vec<(f64, f64)>,
    sent: f64,
    lost: Vec<f64>,
}

fn report(receiver: u64, packets: Option<PacketCounts>) -> ReceptionReport {
    ReceptionReport {
        receiver,
        is_under_way: packets.is_some(),
        packets,
        interval: Duration::from_millis(500),
    }
}

/// Draws a number of mean 0 and variance 1, nearly normal.
fn normal(random: &mut Stream) -> f64 {
    (0..12).map(|_| unit(random)).sum::<f64>() - 6.0
}

impl Bed {
    fn new(most: Rate, paths: &[(f64, f64)]) -> Self {
        let none = vec![(0.0, 0.0); paths.len()];
        let lost = vec![0.0; paths.len()];
        Self {
            search: search(most),
            random: Seed(1).stream("losses", 0),
            now: Instant::ZERO,
            interval: Duration::from_millis(500),
            paths: paths.to_vec(),
            counts: none,
            sent: 0.0,
            lost,
        }
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now + self.interval <= end {
            self.now += self.interval;
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let rate = self.search.rate().as_bits() as f64;
            let packets = self.interval.as_secs_f64() * rate / 11_520.0;
            self.sent += packets;
            for (index, (capacity, chance)) in self.paths.iter().enumerate() {
                let carried = packets * (capacity / rate).min(1.0);
                let deviation = libm::sqrt(carried * chance * (1.0 - chance)) * normal(&mut self.random);
                let arrived = (carried * (1.0 - chance) + deviation).clamp(0.0, carried);
                let (received, lost) = &mut self.counts[index];
                *received += arrived;
                *lost += packets - arrived;
                self.lost[index] += packets - arrived;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
                let packets = PacketCounts { received: *received as u32, lost: *lost as u32 };
                self.search.report(self.now, &report(index as u64, Some(packets)));
            }
        }
    }

    /// Returns the rate as a part of `capacity`.
    fn share(&self, capacity: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = self.search.rate().as_bits() as f64;
        rate / capacity
    }
}

const MOST: Rate = Rate::from_kilobits(10_000_000);

#[test]
fn the_slowest_path_is_filled_within_seconds_and_little_is_lost() {
    for capacity in [3e6, 50e6, 200e6, 5e9] {
        let mut bed = Bed::new(MOST, &[(capacity, 0.0), (4.0 * capacity, 0.01)]);
        bed.run(10);
        let (sent, lost) = (bed.sent, bed.lost[0]);
        let mut least = f64::INFINITY;
        for _ in 0..60 {
            bed.run(1);
            least = least.min(bed.share(capacity));
        }
        assert!(least > 0.9, "{least} of {capacity}");
        let part = (bed.lost[0] - lost) / (bed.sent - sent);
        assert!(part < 0.02, "{part} lost of {capacity}");
    }
}

/// Probes by the square of the step before sent 1.07 of what the path carries.
#[test]
fn a_probe_sends_little_more_than_the_path_carries() {
    for interval in [500, 1_000].map(Duration::from_millis) {
        for capacity in [10e6, 50e6, 200e6] {
            let mut bed = Bed { interval, ..Bed::new(MOST, &[(capacity, 0.0)]) };
            bed.run(10);
            let mut most = 0_f64;
            for _ in 0..60 {
                bed.run(1);
                most = most.max(bed.share(capacity));
            }
            assert!((1.01..1.05).contains(&most), "{most} of {capacity}, reports each {interval:?}");
        }
    }
}

#[test]
fn losses_by_chance_are_no_reason_to_fall() {
    for (count, chance) in [(1, 0.01), (2, 0.05), (9, 0.01), (9, 0.05), (9, 0.09)] {
        let mut bed = Bed::new(MOST, &vec![(100e6, chance); count]);
        bed.run(60);
        let mut least = f64::INFINITY;
        for _ in 0..120 {
            bed.run(1);
            least = least.min(bed.share(100e6));
        }
        assert!(least > 0.7, "{least} of {count} receivers with {chance}");
        let share = bed.share(100e6);
        assert!((0.7..1.2).contains(&share), "{share} of {count} receivers with {chance}");
    }
}

#[test]
fn capacity_that_falls_is_followed_and_capacity_that_returns_is_found() {
    let mut bed = Bed::new(MOST, &[(100e6, 0.0)]);
    bed.run(120);
    bed.paths[0].0 = 10e6;
    bed.run(4);
    assert!(bed.share(10e6) < 1.0, "{}", bed.share(10e6));
    bed.run(60);
    assert!(bed.share(10e6) > 0.9, "{}", bed.share(10e6));
    bed.paths[0].0 = 100e6;
    // The time to the next probe may have grown to a minute.
    bed.run(90);
    assert!(bed.share(100e6) > 0.9, "{}", bed.share(100e6));
}

#[test]
fn a_tenth_of_the_receivers_does_not_hold_the_others() {
    let paths = |count: usize| -> Vec<_> {
        (0..count).map(|index| if index == 0 { (2e6, 0.0) } else { (100e6, 0.0) }).collect()
    };
    let mut bed = Bed::new(MOST, &paths(20));
    bed.run(30);
    assert!(bed.share(100e6) > 0.9, "{}", bed.share(100e6));
    let mut bed = Bed::new(MOST, &paths(9));
    bed.run(30);
    assert!((0.9..1.1).contains(&bed.share(2e6)), "of fewer than ten, all count");
}

#[test]
fn no_receiver_takes_the_rate_below_the_least_and_none_raises_it_above_the_most() {
    let mut bed = Bed::new(Rate::from_kilobits(40_000), &[(1e3, 0.0)]);
    bed.run(30);
    assert_eq!(bed.search.rate(), Rate::from_kilobits(1_000));
    let mut bed = Bed::new(Rate::from_kilobits(33_000), &[(1e12, 0.0)]);
    bed.run(30);
    assert_eq!(bed.search.rate(), Rate::from_kilobits(33_000));
}

#[test]
fn a_receiver_that_is_silent_or_ends_counts_no_more() {
    let mut bed = Bed::new(MOST, &[(100e6, 0.0), (2e6, 0.0)]);
    bed.run(20);
    assert!(bed.share(2e6) < 1.1);
    bed.paths.truncate(1);
    bed.run(60);
    assert_eq!(bed.search.receivers(), 1);
    assert!(bed.share(100e6) > 0.9, "{}", bed.share(100e6));
    bed.search.report(bed.now, &report(0, None));
    assert_eq!(bed.search.receivers(), 0);
    assert_eq!(bed.search.rate(), START, "without receivers");
}

#[test]
fn a_receiver_that_starts_again_is_judged_by_its_new_packets() {
    let mut bed = Bed::new(MOST, &[(100e6, 0.0)]);
    bed.run(20);
    let rate = bed.search.rate();
    bed.counts[0] = (0.0, 0.0);
    bed.run(1);
    assert!(bed.search.rate() >= rate);
}

#[test]
fn a_late_driver_takes_the_rate_down() {
    let mut search = search(MOST);
    let mut now = Instant::ZERO;
    // Half of the time is given up.
    for _ in 0..2_000 {
        now += Duration::from_millis(1);
        search.departed(now, Duration::from_micros(500));
    }
    assert!(search.rate() < START, "{:?}", search.rate());
    assert!(search.reductions() > 0);
}

/// Sends for `seconds`, where the driver gives up a part of the time.
fn send(search: &mut RateSearch, now: &mut Instant, seconds: u64, part: f64) {
    for _ in 0..1_000 * seconds {
        *now += Duration::from_millis(1);
        search.departed(*now, Duration::from_secs_f64(part / 1e3));
    }
}

#[test]
fn without_reports_the_rate_returns_to_the_start() {
    let mut bed = Bed::new(MOST, &[(1e9, 0.0)]);
    bed.run(30);
    assert!(bed.search.rate() > START);
    let Bed { mut search, mut now, .. } = bed;
    send(&mut search, &mut now, 10, 0.0);
    assert_eq!(search.rate(), START, "feedback is lost");
    send(&mut search, &mut now, 2, 0.5);
    assert!(search.rate() < START);
    send(&mut search, &mut now, 60, 0.0);
    assert_eq!(search.rate(), START, "the driver was late once");
}

#[test]
fn a_receiver_that_reports_nothing_received_holds_no_rate_up() {
    let mut bed = Bed::new(MOST, &[(100e6, 0.0)]);
    bed.run(20);
    for second in 1..60 {
        let lost = PacketCounts { received: 0, lost: second * 100_000 };
        bed.run(1);
        bed.search.report(bed.now, &report(7, Some(lost)));
    }
    assert_eq!(bed.search.rate(), Rate::from_kilobits(1_000));
}

#[test]
fn a_receiver_without_packets_does_not_hold_the_others() {
    let mut bed = Bed::new(MOST, &[(100e6, 0.0)]);
    for _ in 0..120 {
        bed.run(1);
        bed.search.report(bed.now, &report(7, Some(PacketCounts { received: 0, lost: 0 })));
    }
    assert!(bed.share(100e6) > 0.9, "{}", bed.share(100e6));
}

#[test]
fn the_least_rate_shows_losses() {
    let [start, least] = [2_000, 200].map(Rate::from_kilobits);
    let mut bed = Bed::new(MOST, &[(1e3, 0.0)]);
    bed.search = RateSearch::new(RateSearchConfig { start, least, most: MOST });
    bed.run(60);
    assert_eq!(bed.search.rate(), Rate::from_kilobits(960));
}

#[test]
fn the_rate_stays_at_the_start_while_a_receiver_does_not_count_its_packets() {
    let mut bed = Bed::new(MOST, &[(100e6, 0.0)]);
    bed.run(20);
    for _ in 0..20 {
        bed.search.report(bed.now, &ReceptionReport { is_under_way: true, ..report(7, None) });
        assert_eq!(bed.search.rate(), START);
        bed.run(1);
    }
    bed.search.report(bed.now, &report(7, None));
    bed.run(30);
    assert!(bed.share(100e6) > 0.9, "{}", bed.share(100e6));
}
