//! M2C beside TCP and beside itself, on one drop-tail bottleneck. `examples/multirate.rs` has the same by the
//! numbers.

use headwater_netsim::measure::jain;
use headwater_netsim::tcp::{Data, Variant};
use headwater_proto::rtt::ProberConfig;
use headwater_proto::{Seed, m2c};

use super::bed::{Bed, M2c, Place, at, layers, mean, ms, rates};

/// Ratio of M2C to one TCP.
fn ratio(seed: u64, place: Place, config: m2c::ReceiverConfig) -> f64 {
    let mut bed = Bed::new(seed, place);
    let start = bed.moment("tcp");
    let flows = [bed.m2c("m2c", 4 * place.kbps, config).0, bed.tcp("tcp", start)];
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    let found = rates(&mut run, &flows, 60, 300);
    found[0] / found[1]
}

#[test]
fn m2c_shares_with_one_tcp() {
    for kbps in [1_000, 4_000] {
        let share = mean(3, |seed| {
            let ratio = ratio(seed, Place::new(kbps), m2c::ReceiverConfig::new());
            assert!((0.5..=2.0).contains(&ratio), "{ratio:.3} of the TCP at {kbps} kbit/s, seed {seed}");
            ratio / (1.0 + ratio)
        });
        assert!((0.40..=0.60).contains(&share), "M2C takes {share:.3} of {kbps} kbit/s");
    }
}

/// Coarse levels of a session up to 16 Mbit/s: a receiver waits longer for a level, and keeps a level longer.
#[test]
fn few_groups_share_with_one_tcp() {
    for (groups, silence, bounds) in [(16, 300, 0.36..=0.64), (32, 300, 0.38..=0.62), (16, 30, 0.38..=0.62)] {
        let share = mean(3, |seed| {
            let mut bed = Bed::new(seed, Place::new(4_000));
            let start = bed.moment("tcp");
            let fit = layers(16_000).fit(groups, ms(1_000 * silence)).expect("enough groups");
            let session = bed.m2c_on("m2c", fit, m2c::ReceiverConfig::new()).0;
            let flows = [session, bed.tcp("tcp", start)];
            let mut run = bed.network.build(Seed(seed), 0).expect("sound");
            let found = rates(&mut run, &flows, 100, 400);
            assert!(found[0] + found[1] > 3_800_000.0, "{found:?} bit/s are used");
            found[0] / (found[0] + found[1])
        });
        assert!(bounds.contains(&share), "M2C takes {share:.3} on {groups} groups");
    }
}

/// The part that M2C, or a TCP with SACK, takes beside a TCP without SACK, whose timeouts leave room.
fn share_beside_reno(seed: u64, kbps: u64, is_m2c: bool) -> f64 {
    let mut bed = Bed::new(seed, Place::new(kbps));
    let (start, other) = (bed.moment("tcp"), bed.moment("other"));
    let ours =
        if is_m2c { bed.m2c("m2c", 4 * kbps, m2c::ReceiverConfig::new()).0 } else { bed.tcp("other", other) };
    let reno = bed.tcp_as("tcp", start, Data::Greedy, |config| config.variant = Variant::Reno);
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    let found = rates(&mut run, &[ours, reno], 60, 200);
    found[0] / (found[0] + found[1])
}

#[test]
fn m2c_takes_from_a_weaker_tcp_what_a_tcp_would() {
    for kbps in [1_000, 4_000] {
        let [m2c, sack] = [true, false].map(|is_m2c| mean(3, |seed| share_beside_reno(seed, kbps, is_m2c)));
        assert!((m2c - sack).abs() < 0.08, "M2C takes {m2c:.3} of {kbps} kbit/s, a TCP {sack:.3}");
    }
}

#[test]
fn neither_the_way_nor_slow_joins_starve_anyone() {
    let ways = [(1_000, 50, 5), (1_000, 200, 5), (4_000, 200, 5), (1_000, 20, 500), (4_000, 20, 500)];
    for (kbps, round_trip, join) in ways {
        let place = Place { round_trip: ms(round_trip), join: ms(join), ..Place::new(kbps) };
        let asking = m2c::ReceiverConfig::new().with_prober(ProberConfig::new(Seed(7)));
        let ratio = ratio(1, place, asking);
        assert!((0.5..=2.0).contains(&ratio), "{ratio:.3} of the TCP: {place:?}");
    }
}

#[test]
fn two_sessions_share() {
    for kbps in [1_000, 4_000] {
        let index = mean(3, |seed| {
            let mut bed = Bed::new(seed, Place::new(kbps));
            let flows = ["one", "other"].map(|name| bed.m2c(name, 4 * kbps, m2c::ReceiverConfig::new()).0);
            let mut run = bed.network.build(Seed(seed), 0).expect("sound");
            let found = rates(&mut run, &flows, 60, 300);
            let total: f64 = found.iter().sum();
            assert!(total > 950.0 * kbps as f64, "{total:.0} bit/s of {kbps} kbit/s are used");
            jain(&found).expect("sound")
        });
        assert!(index > 0.90, "Jain's index {index:.3} at {kbps} kbit/s");
    }
}

#[test]
fn questions_find_the_round_trip_that_joins_hide() {
    let place = Place { round_trip: ms(40), join: ms(500), ..Place::new(4_000) };
    let mut bed = Bed::new(1, place);
    let asking = m2c::ReceiverConfig::new().with_prober(ProberConfig::new(Seed(1)));
    let (_, asking) = bed.m2c("asking", 4_000, asking);
    let (_, mute) = bed.m2c("mute", 4_000, m2c::ReceiverConfig::new());
    let mut run = bed.network.build(Seed(1), 0).expect("sound");
    run.run_until(at(60));
    let rtt = |agent| {
        let receiver: &M2c = run.agent(agent).expect("a receiver");
        receiver.machine().control().status(run.now()).expect("it has begun").rtt
    };
    // 40 ms, and the queue of 25 packets, which is 75 ms.
    assert!((0.04..0.13).contains(&rtt(asking)), "{}", rtt(asking));
    assert!(rtt(mute) > 0.2, "{}: what a join takes", rtt(mute));
}

#[test]
fn short_tcps_get_through() {
    let mut bed = Bed::new(1, Place::new(1_000));
    let flows = [bed.m2c("m2c", 4_000, m2c::ReceiverConfig::new()).0, bed.short_tcps("pages", ms(6_000))];
    let mut run = bed.network.build(Seed(1), 0).expect("sound");
    let found = rates(&mut run, &flows, 60, 300);
    // Ten pages of 3160 bytes a minute are 4.2 kbit/s, and their headers.
    assert!(found[1] > 3_000.0, "{found:?} bit/s");
    assert!(found[0] > 850_000.0, "{found:?} bit/s");
}
