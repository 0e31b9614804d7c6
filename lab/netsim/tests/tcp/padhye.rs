//! TCP under independent loss, against the square-root law and the equation of Padhye et al.
//! (`lab/notebook/netsim-validation.md`).

use headwater_netsim::network::LinkConfig;
use headwater_netsim::network::LossConfig;
use headwater_netsim::tcp::{AckPolicy, Config, Profile, Variant};
use headwater_proto::{Duration, Rate};

use super::bed::{Bed, assert_between, at};

const LOSSES: [f64; 5] = [0.001, 0.005, 0.01, 0.02, 0.05];
const MINIMUM_TIMEOUT: Duration = Duration::from_millis(200);
/// Losses in the shortest run: the rate is then known to some 5 %.
const EVENTS: f64 = 150.0;
const SEGMENTS_MIN: f64 = 10_000.0;
const WARM_UP_SECONDS: f64 = 20.0;

/// The full model of Padhye, Firoiu, Towsley and Kurose, *Modeling TCP throughput*, 1998, section 2.2,
/// without the receiver's window: send rate in segments per second at loss event rate `p`, `b` segments per
/// acknowledgement.
fn padhye(p: f64, b: f64, round_trip: f64, timeout: f64) -> f64 {
    let q = 1.0 - p;
    let c = (2.0 + b) / (3.0 * b);
    let window = c + (8.0 * q / (3.0 * b * p) + c * c).sqrt();
    let third = 1.0 - q.powi(3);
    let share = (third * (1.0 + q.powi(3) * (1.0 - q.powf(window - 3.0))) / (1.0 - q.powf(window))).min(1.0);
    let back_off =
        1.0 + p + 2.0 * p.powi(2) + 4.0 * p.powi(3) + 8.0 * p.powi(4) + 16.0 * p.powi(5) + 32.0 * p.powi(6);
    (q / p + window + share / q) / (round_trip * (b / 2.0 * window + 1.0) + share * timeout * back_off / q)
}

struct Measured {
    /// Segments sent per second.
    rate: f64,
    /// Over what the equation says, with the measured round-trip time and timeout.
    ratio: f64,
    round_trip: f64,
}

fn measure(profile: Profile, variant: Variant, b: u32, round_trip: Duration, p: f64) -> Measured {
    let acks = AckPolicy { every: b, ..AckPolicy::DELAYED };
    let sizes = Config { segment_bytes: 960, header_bytes: 40, maximum_window: 1000, ..profile.config() };
    let config = Config { variant, acks, rto_minimum: MINIMUM_TIMEOUT, ..sizes };
    // So fast that nothing ever waits.
    let link =
        LinkConfig::new(Rate::from_kilobits(1_000_000), Duration::ZERO).with_loss(LossConfig::Bernoulli(p));
    let mut bed = Bed::new(1, link, &config, &[round_trip]);
    let expected = padhye(p, b.into(), round_trip.as_secs_f64(), 2.0 * round_trip.as_secs_f64());
    let lasts = (EVENTS / p).max(SEGMENTS_MIN) / expected;
    bed.run.run_until(at(WARM_UP_SECONDS));
    let before = bed.counters(0).segments_sent;
    bed.run.run_until(at(WARM_UP_SECONDS + lasts));
    let counters = bed.counters(0);
    let rate = (counters.segments_sent - before) as f64 / lasts;
    let round_trip = counters.mean_rtt().unwrap().as_secs_f64();
    let timeout = counters.mean_first_timeout().unwrap_or(MINIMUM_TIMEOUT).as_secs_f64();
    Measured { rate, ratio: rate / padhye(p, b.into(), round_trip, timeout), round_trip }
}

/// The ratio to the equation over all of b, round trips and loss rates, in that order; printed as a table.
fn sweep(profile: Profile, variant: Variant, round_trips: &[u64], check: impl Fn(&str, u64, f64, &Measured)) {
    for b in [1, 2] {
        for &round_trip in round_trips {
            let mut line = format!("{profile} {variant:?}, b = {b}, {round_trip} ms:");
            for p in LOSSES {
                let what = format!("{profile} {variant:?}, b = {b}, {round_trip} ms, p = {p}");
                let measured = measure(profile, variant, b, Duration::from_millis(round_trip), p);
                line += &format!(" {:.2}", measured.ratio);
                if p < 0.01 {
                    let root = measured.rate * measured.round_trip * p.sqrt();
                    let law = (1.5 / f64::from(b)).sqrt();
                    assert_between(&what, "rate * RTT * sqrt(p)", root, 0.85 * law, 1.15 * law);
                }
                check(&what, round_trip, p, &measured);
            }
            println!("{line}");
        }
    }
}

#[test]
fn reno_follows_the_equation() {
    for (profile, round_trips) in [(Profile::Ns2005, &[20, 100, 500][..]), (Profile::Rfc, &[100])] {
        sweep(profile, Variant::Reno, round_trips, |what, _, p, measured| {
            // Long runs lie between 0.86 and 1.14, the extremes at 5 %: more than half of the losses end in a
            // timeout there, and the equation leaves the slow start after it out.
            let (least, most) = if p > 0.01 { (0.8, 1.2) } else { (0.85, 1.15) };
            assert_between(what, "ratio to the equation", measured.ratio, least, most);
        });
    }
}

#[test]
fn newreno_follows_the_equation_while_timeouts_are_cheap() {
    newer(Variant::NewReno);
}

#[test]
fn sack_follows_the_equation_while_timeouts_are_cheap() {
    newer(Variant::Sack);
}

/// The equation charges the timeouts of Reno, which these variants avoid. At 20 ms one costs ten round trips,
/// and they lie above it, the more the larger p.
fn newer(variant: Variant) {
    for (profile, round_trips) in [(Profile::Ns2005, &[20, 100, 500][..]), (Profile::Rfc, &[100])] {
        sweep(profile, variant, round_trips, |what, round_trip, p, measured| {
            let most = match p {
                _ if round_trip == 20 && p > 0.002 => 1.7,
                _ if p > 0.01 => 1.2,
                _ => 1.15,
            };
            assert_between(what, "ratio to the equation", measured.ratio, 0.85, most);
        });
    }
}
