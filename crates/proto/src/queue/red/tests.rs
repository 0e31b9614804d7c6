use core::convert::Infallible;

use proptest::prelude::*;
use rand::TryRng;

use super::*;
use crate::Seed;
use crate::queue::Limit;
use crate::queue::statistics::{assert_fits, chi_square};

const RATE: Rate = Rate::from_kilobits(8_000);
const DELAY: Duration = Duration::from_millis(10);

fn busy(packets: u32) -> Occupancy {
    Occupancy { packets, bytes: u64::from(packets) * 500, idle_since: None }
}

fn data(bytes: u32) -> Offered {
    Offered { bytes, ecn: Ecn::NotCapable, group: None }
}

fn red(config: RedConfig) -> Red {
    Red::new(config, RATE, DELAY).unwrap()
}

/// A small RED with an average that moves fast enough to be followed by hand.
fn by_hand() -> RedConfig {
    RedConfig {
        thresholds: Thresholds::Fixed { min: 2.0, max: 6.0 },
        weight: Weight::Fixed(0.5),
        max_p: 0.5,
        wait: false,
        ..RedConfig::ns1999(50)
    }
}

/// Draws that are given, not random. Running out of them is a failure.
struct Draws(Vec<f64>);

impl TryRng for Draws {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        unreachable!("RED draws 64 bits")
    }

    #[expect(clippy::cast_possible_truncation, reason = "53 bits at most: the cast is exact")]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(((self.0.remove(0) * (1_u64 << 53) as f64) as u64) << 11)
    }

    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
        unreachable!("RED draws 64 bits")
    }
}

#[test]
fn without_wait_by_hand() {
    let mut red = red(by_hand());
    let mut draws = Draws(vec![0.166, 0.426, 0.167, 0.43]);
    let mut admit = |packets| red.admit(Instant::ZERO, busy(packets), data(500), &mut draws);
    // avg 2: the first arrival at th_min passes without a draw, and is number 1.
    assert_eq!(admit(4), Verdict::Enqueue);
    // avg 3, count 2: p_b = 0.125, p_a = 0.125 / (1 - 0.25) = 0.1667, above 0.166.
    assert_eq!(admit(4), Verdict::Drop(DropReason::Early));
    // avg 3.5, count 1: p_b = 0.1875, p_a = 0.1875 / 0.8125 = 0.2308, below 0.426.
    assert_eq!(admit(4), Verdict::Enqueue);
    // avg 3.75, count 2: p_b = 0.21875, p_a = 0.21875 / 0.5625 = 0.3889, above 0.167.
    assert_eq!(admit(4), Verdict::Drop(DropReason::Early));
    // avg 2.375: one packet waits, so nothing is drawn, and draws begin anew.
    assert_eq!(admit(1), Verdict::Enqueue);
    assert_eq!(admit(4), Verdict::Enqueue);
    // avg 6.59 is beyond th_max: no draw.
    assert_eq!(admit(10), Verdict::Drop(DropReason::Forced));
    // avg 5.30, count 1: p_b = 0.412, p_a = 0.701, above 0.43. The forced drop began the count.
    assert_eq!(admit(4), Verdict::Drop(DropReason::Early));
    assert!(draws.0.is_empty());
}

#[test]
fn with_wait_by_hand() {
    let mut red = red(RedConfig { wait: true, ..by_hand() });
    let mut draws = Draws(vec![0.0, 0.0, 0.0, 0.28]);
    let mut admit = |packets| red.admit(Instant::ZERO, busy(packets), data(500), &mut draws);
    // avg 2, 3, 3.5, 3.75; p_b = 0, 0.125, 0.1875, 0.21875; count * p_b below 1: p_a = 0.
    (0..4).for_each(|_| assert_eq!(admit(4), Verdict::Enqueue));
    // avg 3.875, count 5: p_b = 0.234375, count * p_b = 1.17, p_a = 0.2830.
    assert_eq!(admit(4), Verdict::Drop(DropReason::Early));
    assert!(draws.0.is_empty());
}

#[test]
fn gentle_rises_to_twice_the_upper_threshold() {
    let mut red = red(RedConfig { gentle: true, weight: Weight::Fixed(1.0), ..by_hand() });
    let mut draws = Draws(vec![0.3, 0.99]);
    let mut admit = |packets| red.admit(Instant::ZERO, busy(packets), data(500), &mut draws);
    assert_eq!(admit(3), Verdict::Enqueue);
    // avg 3, count 2: p_b = 0.125, p_a = 0.167.
    assert_eq!(admit(3), Verdict::Enqueue);
    // avg 9: p_b = 0.5 + 0.5 * 3 / 6 = 0.75; count 3: certain, whatever is drawn.
    assert_eq!(admit(9), Verdict::Drop(DropReason::Early));
    assert_eq!(admit(12), Verdict::Drop(DropReason::Forced));
    assert!(draws.0.is_empty());
}

#[test]
fn an_idle_link_lets_the_average_decay() {
    let mut red = red(RedConfig { weight: Weight::Fixed(0.25), ..by_hand() });
    let draws = &mut Draws(vec![]);
    assert_eq!(red.admit(Instant::ZERO, busy(4), data(500), draws), Verdict::Enqueue);
    assert_eq!(red.average(), 1.0);
    // At 8 Mbit/s a mean packet of 500 bytes takes 0.5 ms: 1.9 ms are 3 whole packets, and this arrival is a
    // fourth.
    let idle = Occupancy { packets: 0, bytes: 0, idle_since: Some(Instant::from_nanos(100_000)) };
    assert_eq!(red.admit(Instant::from_nanos(2_000_000), idle, data(500), draws), Verdict::Enqueue);
    assert!((red.average() - 0.75_f64.powi(4)).abs() < 1e-15);
    // Years of silence are no loop.
    let idle = Occupancy { idle_since: Some(Instant::ZERO), ..idle };
    assert_eq!(red.admit(Instant::from_nanos(u64::MAX), idle, data(500), draws), Verdict::Enqueue);
    assert_eq!(red.average(), 0.0);
    // Nor is a rate at which more packets would have fitted than 64 bits count.
    let config = RedConfig { packet_bytes_mean: 1, ..by_hand() };
    let mut red = Red::new(config, Rate::from_bits(u64::MAX).unwrap(), Duration::ZERO).unwrap();
    assert_eq!(red.admit(Instant::ZERO, busy(4), data(500), draws), Verdict::Enqueue);
    assert_eq!(red.admit(Instant::from_nanos(u64::MAX), idle, data(500), draws), Verdict::Enqueue);
    assert_eq!(red.average(), 0.0);
}

#[test]
fn a_full_queue_drops_whatever_the_average() {
    let mut red = red(RedConfig { limit: Limit::Packets(4), weight: Weight::Fixed(0.002), ..by_hand() });
    assert_eq!(red.admit(Instant::ZERO, busy(3), data(500), &mut Draws(vec![])), Verdict::Enqueue);
    assert_eq!(
        red.admit(Instant::ZERO, busy(4), data(500), &mut Draws(vec![])),
        Verdict::Drop(DropReason::Full)
    );
}

#[test]
fn ecn_marks_what_is_drawn_and_drops_what_is_forced() {
    let at = |average: u32, config: RedConfig, ecn| {
        let mut red = red(RedConfig { weight: Weight::Fixed(1.0), ..config });
        let mut draws = Draws(vec![0.0; 2]);
        red.admit(Instant::ZERO, busy(3), data(500), &mut draws);
        red.admit(Instant::ZERO, busy(average), Offered { bytes: 500, ecn, group: None }, &mut draws)
    };
    let early = Verdict::Drop(DropReason::Early);
    let forced = Verdict::Drop(DropReason::Forced);
    let ecn = RedConfig { mark_p: 0.2, ..by_hand().with_ecn() };
    // avg 3: p_b = 0.125; avg 5: p_b = 0.375.
    assert_eq!(at(3, ecn, Ecn::Capable0), Verdict::Mark);
    assert_eq!(at(3, ecn, Ecn::Capable1), Verdict::Mark);
    assert_eq!(at(3, ecn, Ecn::CongestionExperienced), Verdict::Mark);
    assert_eq!(at(3, ecn, Ecn::NotCapable), early);
    assert_eq!(at(3, by_hand(), Ecn::Capable0), early);
    assert_eq!(at(5, ecn, Ecn::Capable0), early, "p_b above mark_p");
    assert_eq!(at(5, RedConfig { mark_p: 1.0, ..ecn }, Ecn::Capable0), Verdict::Mark);
    assert_eq!(at(6, ecn, Ecn::Capable0), forced);
    let soft = RedConfig { hard_drop: false, ..ecn };
    assert_eq!(at(6, soft, Ecn::Capable0), Verdict::Mark);
    assert_eq!(at(6, soft, Ecn::NotCapable), forced);
}

#[test]
fn automatic_parameters_follow_the_link() {
    let config = RedConfig { packet_bytes_mean: 1_000, ..RedConfig::after_2001(100) };
    // 100 Mbit/s: C = 12 500 packets/s; 5 ms are 62.5 packets.
    let fast = Rate::from_kilobits(100_000);
    assert_eq!(config.thresholds(fast), (31.25, 93.75));
    let weight = config.weight(fast, Duration::from_millis(50));
    assert!((weight - (1.0 - (-1.0 / (10.0 * 0.15024 * 12_500.0_f64)).exp())).abs() < 1e-12);
    // 1 Mbit/s: C = 125; 5 packets at least; round-trip time 100 ms at least.
    let slow = Rate::from_kilobits(1_000);
    assert_eq!(config.thresholds(slow), (5.0, 15.0));
    let weight = config.weight(slow, Duration::from_millis(1));
    assert!((weight - (1.0 - (-1.0 / 125.0_f64).exp())).abs() < 1e-12);
}

#[test]
fn nonsense_is_refused_by_name() {
    let error = |config: RedConfig| Red::new(config, RATE, DELAY).unwrap_err().to_string();
    let good = RedConfig::ns1999(50);
    let fixed = |min, max| RedConfig { thresholds: Thresholds::Fixed { min, max }, ..good };
    for (config, words) in [
        (fixed(5.0, 5.0), "th_max is 5; it must be above th_min"),
        (fixed(-1.0, 5.0), "th_min is -1"),
        (fixed(f64::NAN, 5.0), "th_min is NaN"),
        (fixed(5.0, f64::INFINITY), "th_max is inf"),
        (RedConfig { weight: Weight::Fixed(0.0), ..good }, "weight is 0; it must be in (0, 1]"),
        (RedConfig { max_p: 1.5, ..good }, "max_p is 1.5"),
        (RedConfig { max_p: 0.0, ..good }, "max_p is 0"),
        (RedConfig { mark_p: -0.1, ..good }, "mark_p is -0.1"),
        (RedConfig { packet_bytes_mean: 0, ..good }, "packet_bytes_mean is 0"),
    ] {
        assert!(error(config).contains(words), "{}", error(config));
    }
}

/// Gaps between draws with the average held at 3, where p_b = 1/16.
fn gaps(seed: u64, wait: bool) -> Vec<usize> {
    let config = RedConfig { weight: Weight::Fixed(1.0), max_p: 0.25, wait, ..by_hand() };
    let mut red = red(config);
    let mut stream = Seed(seed).stream("gaps", 0);
    let mut draws =
        (1..).filter(|_| red.admit(Instant::ZERO, busy(3), data(500), &mut stream) != Verdict::Enqueue);
    let mut last: usize = draws.next().unwrap();
    let gap = |draw| draw - std::mem::replace(&mut last, draw);
    draws.take(20_000).map(gap).collect()
}

/// The count includes the present arrival, so gaps are uniform on 1 .. 1/p - 1 and 1/p .. 2/p - 1.
#[test]
fn gaps_are_uniform() {
    for seed in 0..20 {
        for (wait, shortest, longest) in [(false, 1, 15), (true, 16, 31)] {
            let mut observed = vec![0; longest - shortest + 1];
            gaps(seed, wait).into_iter().for_each(|gap| observed[gap - shortest] += 1);
            let expected = vec![20_000.0 / observed.len() as f64; observed.len()];
            assert_fits(&format!("seed {seed}, wait {wait}"), &observed, &expected);
            observed.push(0);
            let (statistic, critical) =
                chi_square(&observed, &vec![20_000.0 / observed.len() as f64; observed.len()]);
            assert!(statistic > critical, "one more gap is another distribution, and is told apart");
        }
    }
}

/// RED as one procedure, after the pseudo-code of the paper (figure 2) with ns-2's changes to it: (m + 1),
/// the first arrival, the guard on q, wait, bytes, gentle, `mark_p`.
struct Reference {
    config: RedConfig,
    /// In packets.
    th_min: f64,
    th_max: f64,
    weight: f64,
    avg: f64,
    old: bool,
    count: f64,
    count_bytes: f64,
    /// How near the last decision was: a tie within rounding may go either way.
    margin: f64,
}

impl Reference {
    fn new(config: RedConfig) -> Self {
        let (th_min, th_max) = config.thresholds(RATE);
        let weight = config.weight(RATE, DELAY);
        let (avg, old, count, count_bytes, margin) = (0.0, false, 0.0, 0.0, 0.0);
        Self { config, th_min, th_max, weight, avg, old, count, count_bytes, margin }
    }

    fn arrival(&mut self, now: f64, o: Occupancy, p: Offered, u: f64) -> Verdict {
        let (c, w) = (self.config, self.weight);
        let (size, mean) = (f64::from(p.bytes), f64::from(c.packet_bytes_mean));
        let (q, unit) = if c.average_in_bytes { (o.bytes as f64, mean) } else { (f64::from(o.packets), 1.0) };
        let (th_min, th_max) = (self.th_min * unit, self.th_max * unit);
        let idle = o.idle_since.map_or(0.0, |since| now - since.as_nanos() as f64);
        let m = (idle * RATE.as_bits() as f64 / (8e9 * mean)).floor();
        self.avg = self.avg * (1.0 - w).powf(m + 1.0) + w * q;
        self.count += 1.0;
        self.count_bytes += size;
        let ties = [th_min, th_max, 2.0 * th_max].map(|edge| (self.avg - edge).abs());
        self.margin = ties.into_iter().fold(f64::INFINITY, f64::min);
        let ect = c.ecn && p.ecn != Ecn::NotCapable;
        let mut verdict = Verdict::Enqueue;
        if self.avg >= th_min && q > 1.0 {
            if self.avg >= if c.gentle { 2.0 * th_max } else { th_max } {
                verdict = if ect && !c.hard_drop { Verdict::Mark } else { Verdict::Drop(DropReason::Forced) };
            } else if !self.old {
                (self.old, self.count, self.count_bytes) = (true, 1.0, size);
            } else {
                let pb = if self.avg < th_max {
                    c.max_p * (self.avg - th_min) / (th_max - th_min)
                } else {
                    c.max_p + (1.0 - c.max_p) * (self.avg - th_max) / th_max
                };
                if u < self.pa(pb, size) {
                    verdict =
                        if ect && pb <= c.mark_p { Verdict::Mark } else { Verdict::Drop(DropReason::Early) };
                }
                for tie in [u - self.pa(pb, size), pb - c.mark_p] {
                    self.margin = self.margin.min(tie.abs());
                }
            }
        } else {
            self.old = false;
        }
        if c.limit.refuses(o, p) {
            verdict = Verdict::Drop(DropReason::Full);
        }
        if verdict != Verdict::Enqueue {
            (self.count, self.count_bytes) = (0.0, 0.0);
        }
        verdict
    }

    fn pa(&mut self, pb: f64, size: f64) -> f64 {
        let mean = f64::from(self.config.packet_bytes_mean);
        let n = if self.config.draw_by_bytes { (self.count_bytes / mean).floor() } else { self.count };
        self.margin = self.margin.min((n * pb - 1.0).abs()).min((n * pb - 2.0).abs());
        let mut pa = if self.config.wait {
            if n * pb < 1.0 {
                0.0
            } else if n * pb < 2.0 {
                pb / (2.0 - n * pb)
            } else {
                1.0
            }
        } else if n * pb < 1.0 {
            pb / (1.0 - n * pb)
        } else {
            1.0
        };
        if self.config.draw_by_bytes && pa < 1.0 {
            pa *= size / mean;
        }
        pa
    }
}

/// An arrival: time since the last one, a step of the queue's length, size, ECN capability, and a draw.
type Arrival = (u64, i32, u32, bool, f64);

prop_compose! {
    fn configs()(
        min in 0.0..20.0_f64, span in 0.5..30.0_f64, automatic in any::<(bool, bool)>(), weight in 0.0005..1.0_f64,
        max_p in 0.01..1.0_f64, switches in any::<[bool; 6]>(), mark_p in 0.0..1.0_f64, mean in 40..1_500_u32, limit in 5..60_u32,
    ) -> RedConfig {
        let [gentle, wait, average_in_bytes, draw_by_bytes, ecn, hard_drop] = switches;
        let thresholds = Thresholds::Fixed { min, max: min + span };
        RedConfig {
            limit: Limit::Packets(limit),
            thresholds: if automatic.0 { Thresholds::Automatic(Duration::from_millis(5)) } else { thresholds },
            weight: if automatic.1 { Weight::Automatic } else { Weight::Fixed(weight) },
            max_p, gentle, wait, average_in_bytes, draw_by_bytes, packet_bytes_mean: mean, ecn, mark_p, hard_drop,
        }
    }
}

proptest! {
    #[test]
    fn step_by_step_as_the_published_algorithm(
        config in configs(),
        arrivals in prop::collection::vec((0..20_000_000_u64, -3..5_i32, 40..1_500_u32, any::<bool>(), 0.0..1.0_f64), 1..300),
    ) {
        follow(&config, &arrivals);
    }
}

/// Runs both over a queue that wanders between empty and 60 packets.
fn follow(config: &RedConfig, arrivals: &[Arrival]) {
    let (mut red, mut reference) = (red(*config), Reference::new(*config));
    let (mut now, mut idle_since, mut waiting) = (0, Some(Instant::ZERO), 0_i32);
    for &(gap, step, bytes, ect, u) in arrivals {
        now += gap;
        waiting = (waiting + step).clamp(-1, 60);
        // An empty queue has been idle for half of the gap, or since it last was busy.
        idle_since = (waiting < 0).then(|| idle_since.unwrap_or(Instant::from_nanos(now - gap / 2)));
        let packets = u32::try_from(waiting.max(0)).unwrap();
        let occupancy = Occupancy { packets, bytes: u64::from(packets) * 700, idle_since };
        let ecn = if ect { Ecn::Capable0 } else { Ecn::NotCapable };
        let offered = Offered { bytes, ecn, group: None };
        let expected = reference.arrival(now as f64, occupancy, offered, u);
        let verdict = red.admit(Instant::from_nanos(now), occupancy, offered, &mut Draws(vec![u]));
        assert!((red.average() - reference.avg).abs() <= 1e-9 * reference.avg.max(1.0));
        if reference.margin < 1e-9 {
            return;
        }
        assert_eq!(verdict, expected, "at {now} ns, average {}", reference.avg);
    }
}
