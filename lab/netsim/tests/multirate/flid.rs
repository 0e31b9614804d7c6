//! FLID-SL and FLID-DL on the same beds.

use headwater_netsim::measure::jain;
use headwater_netsim::network::FlowId;
use headwater_proto::flid::{FlidConfig, FlidKind, FlidReceiver, FlidReceiverConfig, FlidSender, Layers};
use headwater_proto::{Duration, Instant, Rate, Seed};

use super::bed::{Bed, PAYLOAD, Place, mean, rates};

fn config(kind: FlidKind, bottleneck_kbps: u64) -> FlidConfig {
    let max = Rate::from_kilobits(4 * bottleneck_kbps);
    match kind {
        FlidKind::Static => FlidConfig::static_layers(PAYLOAD, max),
        FlidKind::Dynamic => FlidConfig::dynamic_layers(PAYLOAD, max),
    }
}

fn join(bed: &mut Bed, name: &str, config: FlidConfig, start: Duration) -> FlowId {
    let layers = Layers::new(&config, Instant::ZERO).expect("sound");
    let receiver = FlidReceiver::new(config, FlidReceiverConfig::new()).expect("sound");
    bed.one(name, FlidSender::new(layers), receiver, start).0
}

/// A bed of so many milliseconds of round trip, where joins take 5 ms.
fn bed(seed: u64, kbps: u64, round_trip: u64) -> Bed {
    Bed::new(seed, Place { round_trip: Duration::from_millis(round_trip), ..Place::new(kbps) })
}

/// FLID's part of a link beside one TCP, over two runs.
fn share(kind: FlidKind, kbps: u64, round_trip: u64) -> f64 {
    mean(2, |seed| {
        let mut bed = bed(seed, kbps, round_trip);
        let flows = [
            join(&mut bed, "flid", config(kind, kbps), Duration::from_millis(137 * seed)),
            bed.tcp("tcp", Duration::from_millis(1_000 + 211 * seed)),
        ];
        let mut run = bed.network.build(Seed(seed), 0).expect("sound");
        let found = rates(&mut run, &flows, 60, 300);
        found[0] / (found[0] + found[1])
    })
}

/// Its triggers are those of a TCP of 0.41 s: queueing of up to 0.3 s at 1 Mbit/s makes the other one, 0.08 s
/// at 4 Mbit/s do not.
#[test]
fn dynamic_layers_share_with_a_tcp_of_a_long_way() {
    let shares = [(1_000, 8), (4_000, 200), (4_000, 400), (4_000, 8)]
        .map(|(kbps, round_trip)| share(FlidKind::Dynamic, kbps, round_trip));
    assert!(shares[..3].iter().all(|share| (0.35..=0.70).contains(share)), "{shares:.3?}");
    assert!((0.08..0.35).contains(&shares[3]), "{shares:.3?}: a short way favours TCP, it starves nobody");
}

#[test]
fn static_layers_share_with_a_tcp_of_a_long_way() {
    let shares =
        [(1_000, 8), (4_000, 400)].map(|(kbps, round_trip)| share(FlidKind::Static, kbps, round_trip));
    assert!(shares.iter().all(|share| (0.30..=0.70).contains(share)), "{shares:.3?}");
}

#[test]
fn two_sessions_share() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        for kbps in [1_000, 4_000] {
            let index = mean(2, |seed| {
                let mut bed = bed(seed, kbps, 8);
                let later = Duration::from_millis(7_300 + 1_900 * seed);
                let flows = [
                    join(&mut bed, "one", config(kind, kbps), Duration::ZERO),
                    join(&mut bed, "other", config(kind, kbps), later),
                ];
                let mut run = bed.network.build(Seed(seed), 0).expect("sound");
                let found = rates(&mut run, &flows, 60, 300);
                let total: f64 = found.iter().sum();
                assert!(total > 800.0 * kbps as f64, "{kind:?}: {total:.0} bit/s of {kbps} kbit/s are used");
                jain(&found).expect("sound")
            });
            assert!(index > 0.90, "{kind:?}: Jain's index {index:.3} at {kbps} kbit/s");
        }
    }
}
