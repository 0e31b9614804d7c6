//! Many receivers of one session, and one that is in a hurry.

use headwater_netsim::engine::Run;
use headwater_netsim::network::AgentId;
use headwater_netsim::tcp::Data;
use headwater_proto::{Duration, Seed, m2c};

use super::bed::{Bed, PAYLOAD, Place, at, mean, ms, rates, receiver, reception};

/// Rates of last hops in kbit/s.
const HOPS: [u64; 8] = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000];

/// Seconds, to a tenth, until a receiver has so many packets.
fn time_of(run: &mut Run, agent: AgentId, packets: u64, most: u64) -> f64 {
    for tenth in 1..10 * most {
        run.run_until(at(0) + ms(100 * tenth));
        if reception(run, agent).0 >= packets {
            return tenth as f64 / 10.0;
        }
    }
    f64::INFINITY
}

#[test]
fn each_receiver_gets_what_its_link_carries() {
    let mut bed = Bed::new(1, Place::new(1_000_000));
    let sent = bed.m2c_session("session", 50_000, Duration::ZERO);
    let agents = HOPS.map(|kbps| {
        let control = receiver(50_000, m2c::ReceiverConfig::new());
        bed.receiver(&format!("at-{kbps}"), sent, Some(kbps), ms(100), control)
    });
    let mut run = bed.network.build(Seed(1), 0).expect("sound");
    run.run_until(at(30));
    let before = agents.map(|agent| reception(&run, agent));
    run.run_until(at(110));
    for ((agent, before), kbps) in agents.into_iter().zip(before).zip(HOPS) {
        let after = reception(&run, agent);
        let packets = (after.0 - before.0) as f64;
        let loss = (after.1 - before.1) as f64 / packets;
        let share = packets * f64::from(PAYLOAD + 28) * 8.0 / 80.0 / (kbps * 1_000) as f64;
        assert!(share > 0.85, "{share:.3} of {kbps} kbit/s");
        assert!(loss < 0.04, "{loss:.3} lost at {kbps} kbit/s");
    }
}

#[test]
fn the_number_of_receivers_behind_a_bottleneck_changes_nothing() {
    let time = |receivers: u64| {
        let mut bed = Bed::new(1, Place::new(4_000));
        let sent = bed.m2c_session("session", 16_000, Duration::ZERO);
        let agents: Vec<AgentId> = (0..receivers)
            .map(|i| {
                let control = receiver(16_000, m2c::ReceiverConfig::new());
                bed.receiver(&format!("at-{i}"), sent, None, ms(110 + 37 * i % 100), control)
            })
            .collect();
        let mut run = bed.network.build(Seed(1), 0).expect("sound");
        let slowest = |run: &mut Run| agents.iter().map(|agent| reception(run, *agent).0).min().unwrap_or(0);
        (1..2_000)
            .find(|tenth| {
                run.run_until(at(0) + ms(100 * tenth));
                slowest(&mut run) >= 13_000
            })
            .expect("in time") as f64
            / 10.0
    };
    let alone = time(1);
    for receivers in [2, 5, 50] {
        let many = time(receivers);
        assert!(
            (many / alone - 1.0).abs() < 0.03,
            "{receivers} receivers take {many:.1} s, one {alone:.1} s"
        );
    }
}

#[test]
fn who_comes_later_finds_what_others_hold_and_does_not_slow_them() {
    // Seconds until each has what the link carries in 40 s, behind it with those that come at other times.
    let times = |starts: &[u64]| -> Vec<f64> {
        let mut bed = Bed::new(1, Place::new(4_000));
        let sent = bed.m2c_session("session", 16_000, Duration::ZERO);
        let agents: Vec<AgentId> = starts
            .iter()
            .map(|start| {
                let control = receiver(16_000, m2c::ReceiverConfig::new());
                bed.receiver(&format!("at-{start}"), sent, None, ms(*start), control)
            })
            .collect();
        let mut run = bed.network.build(Seed(1), 0).expect("sound");
        let of = |run: &mut Run, (agent, start): (&AgentId, &u64)| {
            time_of(run, *agent, 13_210, 120) - *start as f64 / 1_000.0
        };
        agents.iter().zip(starts).map(|pair| of(&mut run, pair)).collect()
    };
    // Across the beginning of an epoch, a second and five seconds apart.
    for starts in [[20_450, 20_520], [20_100, 21_100], [20_100, 25_100], [23_300, 28_300]] {
        let alone: f64 = starts.iter().map(|start| times(&[*start])[0]).sum::<f64>() / 2.0;
        let together = times(&starts);
        for (start, time) in starts.iter().zip(&together) {
            assert!(*time < 1.06 * alone, "{starts:?}: from {start} ms {time:.1} s, alone {alone:.1} s");
        }
    }
}

/// The part of a link of 4 Mbit/s that a TCP gets beside a session whose receivers come at these times in ms,
/// where routers go on to send for two seconds what was left.
fn tcp_beside_slow_routers(seed: u64, starts: &[u64]) -> f64 {
    let mut bed = Bed::new(seed, Place::new(4_000));
    bed.network.leave_latency(ms(2_000));
    let sent = bed.m2c_session("session", 16_000, Duration::ZERO);
    for start in starts {
        let control = receiver(16_000, m2c::ReceiverConfig::new());
        bed.receiver(&format!("at-{start}"), sent, None, ms(*start), control);
    }
    let tcp = bed.tcp("tcp", bed.moment("tcp"));
    let mut run = bed.network.build(Seed(seed), 0).expect("sound");
    rates(&mut run, &[tcp], 20, 120)[0] / 4e6
}

#[test]
fn what_one_receiver_tries_in_vain_others_do_not_keep() {
    let share = mean(4, |seed| tcp_beside_slow_routers(seed, &[1_000, 1_700, 2_900, 4_300, 8_100]));
    // Without anyone who follows others it is 0.43; with those who take each other's trials for what is
    // carried it was 0.31.
    assert!(share > 0.36, "{share:.3}");
}

#[test]
fn a_small_file_comes_nearly_as_fast_as_by_tcp() {
    let packets = 4_000_000 / u64::from(PAYLOAD) + 1;
    let mut bed = Bed::new(1, Place::new(4_000));
    let tcp = bed.tcp_as("tcp", Duration::ZERO, Data::Bytes(4_000_000), |_| {});
    let mut run = bed.network.build(Seed(1), 0).expect("sound");
    let of_tcp = (1..200)
        .find(|tenth| {
            run.run_until(at(0) + ms(100 * tenth));
            run.flow_counters(tcp).delivered_payload_bytes >= 4_000_000
        })
        .expect("in time") as f64
        / 10.0;
    // At any phase of a slot.
    for start in [0, 1_700, 5_000, 8_300, 9_900] {
        let mut bed = Bed::new(1, Place::new(4_000));
        let sent = bed.m2c_session("session", 16_000, Duration::ZERO);
        let control = receiver(16_000, m2c::ReceiverConfig::new());
        let agent = bed.receiver("one", sent, None, ms(start), control);
        let mut run = bed.network.build(Seed(1), 0).expect("sound");
        let time = time_of(&mut run, agent, packets, 60) - start as f64 / 1_000.0;
        assert!(time < 1.25 * of_tcp, "from {start} ms: {time:.1} s, by TCP {of_tcp:.1} s");
    }
}

/// Seconds, over what the link alone would take, and the part lost, of a file that the link carries in
/// `seconds`.
fn beginning(place: Place, start: u64, seconds: u64) -> (f64, f64) {
    let mut bed = Bed::new(1, place);
    let sent = bed.m2c_session("session", 4 * place.kbps, Duration::ZERO);
    let control = receiver(4 * place.kbps, m2c::ReceiverConfig::new());
    let agent = bed.receiver("one", sent, None, ms(start), control);
    bed.short_tcps("pages", ms(6_000));
    let mut run = bed.network.build(Seed(1), 0).expect("sound");
    let packets = seconds * place.kbps * 1_000 / 8 / u64::from(PAYLOAD + 42);
    let time = time_of(&mut run, agent, packets, start / 1_000 + 8 * seconds) - start as f64 / 1_000.0;
    let (packets, lost) = reception(&run, agent);
    (time / seconds as f64, lost as f64 / (packets + lost) as f64)
}

#[test]
fn starts_find_what_links_carry() {
    // kbit/s, packets of queue, round trip and joins in ms; times over what the link would take: each step
    // takes a join, and the first waits for an epoch.
    let places = [
        (250, 10, 2, 5, 1.3),
        (250, 100, 200, 5, 1.3),
        (1_000, 25, 8, 5, 1.25),
        (1_000, 10, 50, 500, 1.7),
        (4_000, 100, 50, 5, 1.35),
        (4_000, 10, 200, 5, 1.6),
        (20_000, 25, 8, 5, 1.35),
    ];
    for (kbps, queue, round_trip, join, most) in places {
        let place = Place { kbps, queue, round_trip: ms(round_trip), join: ms(join) };
        let starts = [100, 3_700, 7_900].map(|start| {
            let (time, loss) = beginning(place, start, 8);
            assert!(loss < 0.1, "{place:?} from {start} ms: loss {loss:.3}");
            time
        });
        let mean = starts.iter().sum::<f64>() / 3.0;
        assert!(mean < most, "{place:?}: {starts:.2?}");
    }
}
