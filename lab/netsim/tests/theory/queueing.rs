//! M/M/1, M/D/1 and M/D/1/K: mean number waiting and loss.

use headwater_netsim::network::{LinkConfig, LinkCounters};
use headwater_proto::Duration;
use headwater_proto::queue::{Limit, QueueConfig};

use crate::sources::{Gap, MEAN_BYTES, OneLink, RATE, SERVICE, Sizes};
use crate::statistics::Mean;

/// Room that no run fills.
const ENDLESS: Limit = Limit::Packets(1_000_000);
const LOADS: [f64; 3] = [0.5, 0.8, 0.95];

/// Counters of a run over `services` mean service times, after a tenth more that is not counted: mean waiting
/// packets, and loss.
fn run(load: f64, limit: Limit, sizes: Sizes, services: u64, seed: u64) -> (f64, f64) {
    let link = LinkConfig::new(RATE, Duration::ZERO).with_queue(QueueConfig::DropTail(limit));
    let gap = Gap::Exponential(SERVICE.as_secs_f64() / load);
    let mut link = OneLink::new(link, gap, sizes, seed);
    let before = link.run_for(services / 10);
    let after = link.run_for(services);
    measure(&before, &after, services)
}

fn measure(before: &LinkCounters, after: &LinkCounters, services: u64) -> (f64, f64) {
    let time = SERVICE.saturating_mul(services).as_nanos();
    let waiting = after.waiting_packet_nanos - before.waiting_packet_nanos;
    let dropped = after.queue_drops() - before.queue_drops();
    let offered = after.offered_packets - before.offered_packets;
    (waiting as f64 / time as f64, dropped as f64 / offered as f64)
}

/// Every queue at every load, over this many services per run; relative precision by load.
fn compare(services: u64, precision: [f64; 3]) {
    for (load, precision) in LOADS.into_iter().zip(precision) {
        let queue = |sizes| Mean::over_runs(|seed| run(load, ENDLESS, sizes, services, seed).0);
        queue(Sizes::Exponential).assert_is(
            &format!("M/M/1, {load}: waiting"),
            load * load / (1.0 - load),
            precision,
        );
        let md1 = load * load / (2.0 * (1.0 - load));
        queue(Sizes::Fixed).assert_is(&format!("M/D/1, {load}: waiting"), md1, precision);
    }
    // Room for few enough packets that some are lost at each load.
    for (load, room) in LOADS.into_iter().zip([2, 5, 10]) {
        let limited = |seed| run(load, Limit::Packets(room), Sizes::Fixed, services, seed);
        let (waiting, loss) = md1k(load, room as usize);
        let name = |what: &str| format!("M/D/1/{room}, {load}: {what}");
        Mean::over_runs(|seed| limited(seed).0).assert_is(&name("waiting"), waiting, precision[0]);
        Mean::over_runs(|seed| limited(seed).1).assert_is(&name("loss"), loss, precision[1]);
    }
}

/// Built with `HEADWATER_LONG` set, the test makes the numbers of `lab/notebook/netsim-validation.md`, which
/// takes several minutes in release.
#[test]
fn queues_are_as_long_as_theory_says() {
    if option_env!("HEADWATER_LONG").is_some() {
        println!("| queue, load | theory | ours, 10 runs, 95 % |\n|---|---|---|");
        compare(4_000_000, [0.02, 0.02, 0.05]);
    } else {
        compare(60_000, [0.1, 0.15, 0.5]);
    }
}

#[test]
fn a_limit_in_bytes_is_one_in_packets_when_all_are_equal() {
    let by = |limit| run(0.95, limit, Sizes::Fixed, 20_000, 1);
    assert_eq!(by(Limit::Packets(5)), by(Limit::Bytes(5 * u64::from(MEAN_BYTES))));
}

/// M/D/1 with room for `room` waiting packets: mean number waiting, and loss.
///
/// The chain embedded at departures, then Poisson arrivals see time averages: with q_j the share of
/// departures that leave j behind, p_j = q_j / (q_0 + load) for j up to `room`, and the rest of the time the
/// system is full.
fn md1k(load: f64, room: usize) -> (f64, f64) {
    let arrivals: Vec<f64> = (0..=room)
        .scan((-load).exp(), |term, k| {
            let now = *term;
            *term *= load / (k + 1) as f64;
            Some(now)
        })
        .collect();
    let mut behind = vec![1.0];
    for j in 0..room {
        let from_below: f64 = (1..=j).map(|i| behind[i] * arrivals[j + 1 - i]).sum();
        behind.push((behind[j] - behind[0] * arrivals[j] - from_below) / arrivals[0]);
    }
    let total: f64 = behind.iter().sum();
    let busy = behind[0] / total + load;
    let time: Vec<f64> = behind.iter().map(|share| share / total / busy).collect();
    let full = 1.0 - 1.0 / busy;
    let waiting: f64 = (1..=room).map(|j| (j - 1) as f64 * time[j]).sum();
    (waiting + room as f64 * full, full)
}

/// With no room, M/D/1/0 loses as Erlang's formula says for one line: load / (1 + load).
#[test]
fn the_formula_agrees_with_erlang() {
    for load in LOADS {
        assert!((md1k(load, 0).1 - load / (1.0 + load)).abs() < 1e-12);
        let (waiting, _) = md1k(load, 400);
        assert!((waiting - load * load / (2.0 * (1.0 - load))).abs() < 1e-6);
    }
}
