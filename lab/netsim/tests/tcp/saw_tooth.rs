//! Greedy connections through a drop-tail queue, against closed forms.
//!
//! A connection of which P segments are on the path and B can wait loses one segment when its window exceeds
//! W = P + B + 1, and halves it: a saw-tooth from W/2 to W, of 3/8 * b * W^2 segments
//! (`lab/notebook/netsim-validation.md`).

use headwater_netsim::network::LinkConfig;
use headwater_netsim::tcp::{AckPolicy, Config, Profile, Variant};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Duration, Rate};

use super::bed::{Bed, assert_between, at};

/// 1000 segments/s.
const RATE: Rate = Rate::from_kilobits(8_000);
const QUEUE: u16 = 40;

fn config(profile: Profile, variant: Variant, b: u32) -> Config {
    let acks = AckPolicy { every: b, ..AckPolicy::DELAYED };
    Config { variant, acks, segment_bytes: 960, header_bytes: 40, maximum_window: 1000, ..profile.config() }
}

fn bottleneck() -> LinkConfig {
    LinkConfig::new(RATE, Duration::ZERO).with_queue(QueueConfig::drop_tail(QUEUE.into()))
}

#[test]
fn one_connection_makes_the_saw_tooth() {
    for profile in [Profile::Ns2005, Profile::Rfc] {
        for variant in [Variant::Reno, Variant::NewReno, Variant::Sack] {
            for b in [1, 2] {
                saw_tooth(profile, variant, b);
            }
        }
    }
}

fn saw_tooth(profile: Profile, variant: Variant, b: u32) {
    let what = format!("{profile} {variant:?}, b = {b}");
    // 40 ms hold 40 segments: as many as may wait, so that the link is busy at half the window too.
    let mut bed = Bed::new(1, bottleneck(), &config(profile, variant, b), &[Duration::from_millis(40)]);
    let w = 40.0 + f64::from(QUEUE) + 1.0;
    bed.run.run_until(at(30.0));
    let (before, link_before) = (bed.counters(0), bed.link());
    let (mut largest, mut smallest) = (0.0_f64, f64::INFINITY);
    for step in 1..=10_000 {
        bed.run.run_until(at(30.0 + f64::from(step) * 0.01));
        largest = largest.max(bed.sender(0).cwnd());
        smallest = smallest.min(bed.sender(0).cwnd());
    }
    let (after, link_after) = (bed.counters(0), bed.link());
    // Until the loss is noticed, a round trip later, the window grows by one more segment, two with the
    // rounding up.
    assert_between(&what, "largest window", largest, w, w + 2.0);
    assert_between(&what, "smallest window", smallest, w / 2.0 - 1.0, w / 2.0 + 1.5);
    let drops = link_after.queue_drops() - link_before.queue_drops();
    let cycles = after.fast_retransmits - before.fast_retransmits;
    assert_eq!(after.timeouts, before.timeouts, "{what}");
    let resent = after.segments_retransmitted - before.segments_retransmitted;
    // One at either end of the measurement may be cut off.
    assert!(drops.abs_diff(cycles) <= 1, "{what}: {drops} drops in {cycles} cycles");
    assert!(drops.abs_diff(resent) <= 1, "{what}: {drops} drops, {resent} segments sent again");
    let per_cycle = (after.segments_sent - before.segments_sent) as f64 / cycles as f64;
    let ideal = 0.375 * f64::from(b) * w * w;
    assert_between(&what, "segments per cycle", per_cycle, 0.8 * ideal, 1.2 * ideal);
    let busy =
        (link_after.sent_bytes - link_before.sent_bytes) as f64 * 8.0 / (RATE.as_bits() as f64 * 100.0);
    assert_between(&what, "share of time the link was busy", busy, 0.999, 1.0001);
    println!(
        "{what}: window {smallest:.1} to {largest:.1} (W = {w}), {per_cycle:.0} segments per cycle ({ideal:.0}), busy {busy:.4}"
    );
}

/// Two connections of one round trip: the window W is theirs together. If both lose at each overflow, 3/32 *
/// W^2 segments pass per loss; if they take turns, each has 4/7 of W when it loses and 6/49 * W^2 pass. Half
/// each, in the long run.
#[test]
fn two_connections_share_and_lose_as_the_closed_form_says() {
    for profile in [Profile::Ns2005, Profile::Rfc] {
        for variant in [Variant::NewReno, Variant::Sack] {
            let (mut share, mut per_loss) = (0.0, 0.0);
            for seed in 1..=SEEDS {
                // One service time, against phase effects.
                let config = Config { overhead: Duration::from_millis(1), ..config(profile, variant, 1) };
                let mut bed = Bed::new(seed, bottleneck(), &config, &[Duration::from_millis(40); 2]);
                bed.run.run_until(at(20.0));
                let before = [bed.counters(0), bed.counters(1)];
                let drops_before = bed.link().queue_drops();
                bed.run.run_until(at(120.0));
                let after = [bed.counters(0), bed.counters(1)];
                let sent = [0, 1].map(|flow| (after[flow].segments_sent - before[flow].segments_sent) as f64);
                share += sent[0] / (sent[0] + sent[1]) / SEEDS as f64;
                per_loss +=
                    (sent[0] + sent[1]) / (bed.link().queue_drops() - drops_before) as f64 / SEEDS as f64;
            }
            let what = format!("{profile} {variant:?}");
            let w = 40.0 + f64::from(QUEUE) + 1.0;
            println!(
                "{what}: share {share:.3}, {:.4} * W^2 segments per loss (3/32 = 0.0938 to 6/49 = 0.1224)",
                per_loss / (w * w)
            );
            assert_between(&what, "share of the first", share, 0.45, 0.55);
            assert_between(
                &what,
                "segments per loss",
                per_loss,
                0.8 * 3.0 / 32.0 * w * w,
                1.2 * 6.0 / 49.0 * w * w,
            );
        }
    }
}

const SEEDS: u64 = 4;

/// Rates of connections with unlike round trips are as (RTT_2 / RTT_1)^a with 1 <= a <= 2 (Lakshman and
/// Madhow, *The performance of TCP/IP for networks with high bandwidth-delay products and random loss*,
/// 1997): 2 if losses coincide.
#[test]
fn the_longer_round_trip_gets_less() {
    let mut ratio = 0.0;
    for seed in 1..=SEEDS {
        let config =
            Config { overhead: Duration::from_millis(1), ..config(Profile::Ns2005, Variant::Sack, 1) };
        let round_trips = [Duration::from_millis(40), Duration::from_millis(160)];
        let mut bed = Bed::new(seed, bottleneck(), &config, &round_trips);
        bed.run.run_until(at(20.0));
        let before = [bed.counters(0), bed.counters(1)];
        bed.run.run_until(at(120.0));
        let sent = [0, 1].map(|flow| (bed.counters(flow).segments_sent - before[flow].segments_sent) as f64);
        ratio += sent[0] / sent[1] / SEEDS as f64;
    }
    // With the queue, on average three quarters of full: 40 + 30 and 160 + 30 ms.
    let round_trips: f64 = 190.0 / 70.0;
    let exponent = ratio.ln() / round_trips.ln();
    println!("rates as {ratio:.2} : 1, exponent {exponent:.2}");
    assert_between("40 and 160 ms", "exponent", exponent, 0.9, 2.1);
}
