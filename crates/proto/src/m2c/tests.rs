//! The receiver against its sender over a path that is one drop-tail queue.

use headwater_wire::extensions::{DemandEcho, Levels};
use headwater_wire::rtt::LossClass;

use super::*;
use crate::control::{Arrival, PathStatus, ReceiverControl, Rules};
use crate::layering::path::{BYTES, Run, SENDER, at, comes_and_goes, keeps_a_cap, measure};
use crate::layering::{DynamicConfig, Layering};
use crate::machine::{ChannelId, Ecn};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Layers from 96 kbit/s to a maximum in kbit/s.
fn layers(max: u64) -> DynamicConfig {
    DynamicConfig::fine(BYTES, Rate::from_kilobits(max))
        .with_base_rate(Rate::from_kilobits(96))
        .with_quiescent_slots(10)
}

fn run(max: u64, config: ReceiverConfig, rate: u64) -> Run<Receiver> {
    Run::new(layers(max), Receiver::new(layers(max), config).unwrap(), rate, 4, 5)
}

/// The rules of the papers.
fn published() -> ReceiverConfig {
    ReceiverConfig::new().with_rules(Rules::Published)
}

#[test]
fn a_receiver_alone_uses_its_link_and_loses_nothing() {
    for (link, max) in [(1_000, 4_000), (4_000, 16_000), (256, 4_000), (500, 4_000)] {
        let mut run = run(max, ReceiverConfig::new(), link);
        run.start();
        let (rate, loss) = measure(&mut run, 60, 400);
        // UDP payload is 0.978 of what the link carries.
        let share = rate / link as f64 / 0.978;
        assert!(share > 0.93 && loss < 0.005, "{share:.3} of {link} kbit/s, loss {loss:.3}");
    }
}

#[test]
fn a_receiver_alone_fills_its_link_by_the_published_rules() {
    // A level is 1.15 of what is held: levels a third apart lost up to 6 %, behind 500 kbit/s.
    for (link, max) in [(1_000, 4_000), (4_000, 16_000), (256, 4_000), (500, 4_000)] {
        let mut run = run(max, published(), link);
        run.start();
        let (rate, loss) = measure(&mut run, 60, 400);
        let share = rate / link as f64;
        assert!(share > 0.93, "{share:.3} of {link} kbit/s, loss {loss:.3}");
        assert!(loss < 0.035, "loss {loss:.3} at {link} kbit/s");
    }
}

#[test]
fn a_receiver_settles_at_what_its_machine_reads() {
    // The link brings 16 Mbit/s; the machine drops packets whenever more than 4 come.
    let read = 4_000.0;
    let mut run = run(16_000, ReceiverConfig::new(), 20_000);
    run.start();
    let (mut overruns, mut came, mut highest) = (0, 0.0, 0.0_f64);
    for step in 0..2_400 {
        let before = run.receiver.reception().packets;
        run.until(at(50 * (step + 1)));
        let packets = (run.receiver.reception().packets - before) as f64;
        let rate = packets * f64::from(BYTES) * 8.0 / 50.0;
        if rate > read {
            run.receiver.overrun(run.now);
            run.path.apply(run.now, &mut run.receiver);
        }
        if step >= 1_200 {
            overruns += u32::from(rate > read);
            came += rate / 1_200.0;
            highest = highest.max(rate);
        }
    }
    assert!(came > 0.5 * read && came < read, "{came:.0} kbit/s");
    assert!(highest < 1.5 * read, "{highest:.0} kbit/s at the most");
    assert!(overruns < 60, "more than it reads in {overruns} of 1200 steps");
}

#[test]
fn a_window_does_not_grow_in_the_round_trip_after_a_loss_event() {
    // Marks from a second packet on: a queue too short to be the session's own.
    let mut run =
        Run::new(layers(4_000), Receiver::new(layers(4_000), ReceiverConfig::new()).unwrap(), 1_000, 100, 5);
    run.path.marking = 2;
    run.start();
    run.until(at(30_000));
    let (mut last, mut events) = (0.0, 0);
    let mut recovery = None::<(Instant, f64)>;
    for ms in 30_000..90_000 {
        run.until(at(ms));
        let status = run.receiver.status(run.now).unwrap();
        let window = status.fair_rate * status.rtt;
        if window < 0.6 * last {
            recovery = Some((run.now + Duration::from_secs_f64(0.9 * status.rtt), window));
            events += 1;
        }
        if let Some((until, least)) = recovery.filter(|(until, _)| run.now < *until) {
            // The least window is the base channel's, and grows with the round-trip time.
            let most = least.max(1.01 * run.sender.channels().base_rate() * status.rtt);
            assert!(window <= 1.001 * most, "{window:.2} of {most:.2} packets before {until:?}");
        }
        last = window;
    }
    assert!(events > 5, "{events} events");
}

/// A receiver that holds what its link brings of 16 Mbit/s after 60 s, and its kbit/s.
fn settled() -> (Run<Receiver>, f64) {
    let mut run = run(16_000, ReceiverConfig::new(), 20_000);
    run.start();
    let (before, _) = measure(&mut run, 50, 60);
    assert!(before > 10_000.0, "{before:.0} kbit/s");
    (run, before)
}

/// Tells the receiver of what its machine drops, each 50 ms from one instant in ms to another.
fn tells_of_drops(run: &mut Run<Receiver>, from: u64, to: u64) {
    let mut told = run.path.overruns;
    for now in (from..to).step_by(50) {
        run.until(at(now));
        if core::mem::replace(&mut told, run.path.overruns) < run.path.overruns {
            run.receiver.overrun(run.now);
            run.path.apply(run.now, &mut run.receiver);
        }
    }
}

#[test]
fn a_machine_that_stalls_costs_half_of_the_rate_at_most() {
    let (mut run, before) = settled();
    run.path.reading = Duration::from_micros(50);
    run.path.read = at(60_600);
    tells_of_drops(&mut run, 60_600, 62_000);
    assert!(run.path.overruns > 300, "{} packets dropped", run.path.overruns);
    let (after, _) = measure(&mut run, 62, 63);
    assert!(after > 0.4 * before, "{after:.0} kbit/s, {before:.0} before");
}

#[test]
fn a_machine_that_becomes_slow_is_followed_within_seconds() {
    let (mut run, _) = settled();
    // 1 000 kbit/s.
    run.path.reading = Duration::from_micros(11_840);
    tells_of_drops(&mut run, 60_000, 68_000);
    let dropped = run.path.overruns;
    tells_of_drops(&mut run, 68_000, 75_000);
    let (came, _) = measure(&mut run, 75, 80);
    assert!(came > 500.0 && came <= 1_001.0, "{came:.0} kbit/s");
    assert!(run.path.overruns - dropped < 100, "{} packets dropped later", run.path.overruns - dropped);
}

#[test]
fn levels_above_the_ceiling_are_left_and_not_lost() {
    let mut run = run(4_000, ReceiverConfig::new(), 20_000);
    run.start();
    run.until(at(20_000));
    let held = run.held();
    assert!(held > 10, "{held} channels");
    run.receiver.limited(run.now, Some(Levels { ceiling: 3, demand: None }));
    run.path.apply(run.now, &mut run.receiver);
    assert_eq!(run.held(), 4, "the base and three levels");
    run.until(at(40_000));
    assert!(run.held() <= 4, "nothing is joined above the ceiling");
    assert_eq!(run.receiver.reception().lost, 0);
    run.receiver.limited(run.now, None);
    run.until(at(80_000));
    assert!(run.held() > 10, "without a ceiling it takes what the link carries");
}

#[test]
fn a_start_begins_with_the_first_packet_of_an_epoch_only() {
    use headwater_wire::cci::WebrcCci;
    // Ten packets a second: each fifth one leaves when an epoch begins.
    let layers = layers(4_000).with_base_rate(Rate::from_bits(80 * u64::from(BYTES)).unwrap());
    let joins = |sequence: u32, levels: &[Option<Levels>]| {
        let receiver = Receiver::new(layers, ReceiverConfig::new()).unwrap();
        let mut run = Run::new(layers, receiver, 4_000, 4, 5);
        run.now = at(5_000 + 100 * u64::from(sequence));
        run.start();
        for levels in levels {
            run.receiver.limited(run.now, *levels);
        }
        let channel = run.sender.channels().dynamic_channels();
        run.give(0, WebrcCci { slot: 1, channel, sequence });
        run.held() > 1
    };
    let says = |ceiling, level| {
        let demand = DemandEcho { round: 1, is_open: false, level, loss: LossClass::default() };
        Some(Levels { ceiling, demand: Some(demand) })
    };
    for sequence in 1..50 {
        let begins = sequence % 5 == 0;
        for levels in [&[][..], &[None], &[says(9, 3)], &[says(200, 0)], &[says(200, 0), says(9, 0)]] {
            assert_eq!(joins(sequence, levels), begins, "packet {sequence} of the slot, {levels:?}");
        }
        // The sender knew of no holder when it was heard first: the room is this receiver's.
        assert!(joins(sequence, &[says(9, 0)]) && joins(sequence, &[says(9, 0), says(200, 0)]));
    }
}

/// Packets of a joined channel wait for a signature, and are older than the packet with the signature.
#[test]
fn packets_that_waited_for_a_signature_are_no_loss() {
    use headwater_wire::cci::WebrcCci;
    let layers = layers(4_000);
    let mut run = Run::new(layers, Receiver::new(layers, ReceiverConfig::new()).unwrap(), 4_000, 4, 5);
    run.start();
    let channel = run.sender.channels().dynamic_channels();
    let give = |run: &mut Run<Receiver>, sequence| run.give(0, WebrcCci { slot: 1, channel, sequence });
    (20..26).for_each(|sequence| give(&mut run, sequence));
    for sequence in 8..20 {
        let cci = WebrcCci { slot: 1, channel, sequence }.short().unwrap();
        let (source, channel, ecn) = (SENDER.into(), ChannelId::BASE, Ecn::NotCapable);
        let arrival =
            Arrival { source, channel, cci: &cci, ecn, bytes: BYTES.into(), lateness: Duration::ZERO };
        run.receiver.arrived_late(run.now, &arrival);
    }
    (26..31).for_each(|sequence| give(&mut run, sequence));
    assert_eq!(run.receiver.reception().lost, 0);
}

/// kbit/s and loss over the first five seconds of one that comes `phase` ms after a slot began.
fn beginning(link: u64, phase: u64, change: impl Fn(&mut Run<Receiver>)) -> (f64, f64) {
    let mut run = run(4 * link, ReceiverConfig::new(), link);
    change(&mut run);
    run.until(at(20_000 + phase));
    run.start();
    let from = run.receiver.reception();
    run.until(at(25_000 + phase));
    let to = run.receiver.reception();
    let (packets, lost) = ((to.packets - from.packets) as f64, (to.lost - from.lost) as f64);
    (packets * f64::from(BYTES) * 8.0 / 5_000.0, lost / (packets + lost))
}

#[test]
fn fast_start_is_fast() {
    for link in [256, 1_000, 4_000, 16_000] {
        for phase in [0, 1_900, 5_000, 9_700] {
            let (rate, loss) = beginning(link, phase, |_| ());
            let share = rate / link as f64;
            // It begins with an epoch: up to half a second of the five is waited for.
            assert!(share > 0.65 && loss < 0.14, "{share:.3} of {link} kbit/s at {phase} ms, loss {loss:.3}");
        }
    }
}

#[test]
fn fast_start_bears_a_busy_host() {
    for pause in [150, 300, 450, 600, 900] {
        let (rate, loss) = beginning(4_000, 3_300, |run| {
            run.path.late = Duration::from_millis(2);
            // Nothing is taken until 20 ms after that: what came meanwhile is taken at once.
            run.path.deaf = Some((at(23_300 + pause), at(23_320 + pause)));
        });
        // A pause amid the last joins ends the start at half of the link for a second or two.
        assert!(rate > 2_600.0 && loss < 0.12, "{rate:.0} kbit/s, loss {loss:.3}, pause after {pause} ms");
    }
}

#[test]
fn what_fast_start_joined_too_much_is_left() {
    // Joins take so long that the last one doubles the rate of a link that is full.
    let mut run = run(16_000, ReceiverConfig::new(), 1_000);
    run.path.join = Duration::from_millis(300);
    run.start();
    run.until(at(5_000));
    let status = run.receiver.status(run.now).unwrap();
    assert_eq!(status.mode, Mode::CongestionAvoidance);
    let (rate, loss) = measure(&mut run, 5, 10);
    assert!(rate > 700.0 && loss < 0.12, "{rate:.0} kbit/s, loss {loss:.3}");
}

#[test]
fn a_loss_halves_the_window_whatever_is_held() {
    let mut run = run(4_000, published(), 1_000);
    run.start();
    run.until(at(60_000));
    let mut falls = Vec::new();
    let mut before = f64::INFINITY;
    for step in 0..20_000 {
        run.until(at(60_000 + 5 * step));
        let status = run.receiver.status(run.now).unwrap();
        let window = status.fair_rate * status.rtt;
        if window < 0.7 * before && before.is_finite() {
            falls.push(window / before);
        }
        before = window;
    }
    // What is held at a time is less than the window's peak, as a TCP's mean is: half of that would be a
    // third of the peak.
    let least = falls.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(falls.len() > 5 && least > 0.47, "{} falls, to {least:.3}", falls.len());
}

#[test]
fn marks_are_loss_events() {
    // Nothing is lost, and each packet is marked: before anything was joined that says nothing, and then it
    // ends the start, and all joins.
    let mut run = run(4_000, ReceiverConfig::new(), 4_000);
    run.path.marking = 0;
    run.start();
    run.until(at(5_000));
    let status = run.receiver.status(run.now).unwrap();
    assert_eq!(status.mode, Mode::CongestionAvoidance);
    let (rate, _) = measure(&mut run, 60, 120);
    assert!(rate < 200.0, "{rate:.0} kbit/s");
    assert_eq!(run.receiver.reception().marked, run.receiver.reception().packets);
}

#[test]
fn a_cap_is_kept() {
    let config = ReceiverConfig::new().with_max_rate(Rate::from_kilobits(500));
    keeps_a_cap(run(4_000, config, 4_000), 350.0, 30, 130);
}

#[test]
fn a_receiver_may_come_at_any_time_and_go() {
    comes_and_goes(run(4_000, ReceiverConfig::new(), 1_000), 700.0, 150, 200);
}

#[test]
fn a_channel_that_never_comes_is_given_up() {
    let mut run = run(4_000, ReceiverConfig::new(), 1_000);
    run.start();
    run.until(at(2_000));
    // From now on joins lead nowhere.
    run.path.join = Duration::from_secs(1_000_000);
    run.until(at(60_000));
    let held = run.path.joined.iter().flatten().filter(|since| **since <= run.now).count();
    assert!(held >= 1, "the base is still there");
    let pending = run.held() - held;
    assert!(pending <= 1, "{pending} joins wait");
    let packets = run.receiver.reception().packets;
    run.until(at(70_000));
    assert!(run.receiver.reception().packets > packets);
}

#[test]
fn what_makes_no_sense_is_ignored() {
    use headwater_wire::cci::WebrcCci;
    let mut run = run(4_000, ReceiverConfig::new(), 1_000);
    run.start();
    run.until(at(3_000));
    let levels = run.sender.channels().levels();
    for (slot, channel, sequence) in [(255, 0, 0), (0, 255, 0), (0, 20, 0), (3, 200, 7), (0, levels, 65_535)]
    {
        let cci = WebrcCci { slot, channel, sequence }.short().unwrap();
        let (source, channel) = (SENDER.into(), ChannelId(1));
        let arrival =
            Arrival { source, channel, cci: &cci, ecn: Ecn::NotCapable, bytes: 1, lateness: Duration::ZERO };
        run.receiver.arrived(run.now, &arrival);
        run.path.apply(run.now, &mut run.receiver);
    }
    let (rate, _) = measure(&mut run, 30, 60);
    assert!(rate > 700.0, "{rate:.0} kbit/s");
}

/// Estimate of the path of a run.
fn path_of(run: &mut Run<Receiver>) -> PathStatus {
    ReceiverControl::status(&mut run.receiver, run.now).path.unwrap()
}

#[test]
fn the_bottleneck_is_measured() {
    for link in [500, 1_000, 4_000] {
        let mut run = run(4 * link, ReceiverConfig::new(), link);
        run.start();
        run.until(at(60_000));
        let path = path_of(&mut run);
        let found = path.bottleneck.unwrap().as_bits() as f64 / (1e3 * link as f64 * 0.978);
        assert!((found - 1.0).abs() < 0.05 && path.is_alone, "{found:.3} of {link} kbit/s: {path:?}");
        assert!(path.to_string().starts_with("alone on a path of"), "{path}");
    }
}

#[test]
fn a_capacity_that_falls_is_followed_within_two_seconds() {
    for (before, after) in [(10_000, 1_000), (4_000, 400)] {
        let mut run = run(4 * before, ReceiverConfig::new(), before);
        run.start();
        run.until(at(40_000));
        run.path.set_rate(after);
        for ms in (40_100..42_000).step_by(100) {
            run.until(at(ms));
            let path = path_of(&mut run);
            assert!(path.bottleneck.is_some() && path.to_string().contains(" a path of "), "{path}");
        }
        let (_, loss) = measure(&mut run, 42, 60);
        assert!(loss < 0.2, "{loss:.3} lost of {after} kbit/s");
        run.path.set_rate(before);
        let (rate, _) = measure(&mut run, 70, 90);
        assert!(rate > 0.8 * before as f64, "{rate:.0} of {before} kbit/s");
    }
}

#[test]
fn by_the_published_rules_a_capacity_that_falls_loses_most_packets() {
    let mut run = run(40_000, published(), 10_000);
    run.start();
    run.until(at(40_000));
    run.path.set_rate(1_000);
    let (_, loss) = measure(&mut run, 42, 60);
    assert!(loss > 0.6 && ReceiverControl::status(&mut run.receiver, run.now).path.is_none(), "{loss:.3}");
}

#[test]
fn losses_by_chance_cost_no_rate() {
    for every in [100, 30, 10] {
        let mut run = run(16_000, ReceiverConfig::new(), 4_000);
        run.path.lossy = Some(every);
        run.start();
        let (rate, _) = measure(&mut run, 60, 120);
        let share = rate / 4_000.0 / 0.978 / (1.0 - 1.0 / every as f64);
        assert!(share > 0.85, "{share:.3} of what one packet lost of {every} leaves");
        let path = path_of(&mut run);
        assert!(path.chance_losses > 1_000 / every * 2 && path.chance > 0.0, "{path:?}");
    }
}
