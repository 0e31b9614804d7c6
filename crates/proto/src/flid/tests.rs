//! Both ends over a path that is one drop-tail queue.

mod bench;

use headwater_wire::cci::FlidSlCci;

use super::*;
use crate::control::{Arrival, Departure, ReceiverControl, SenderControl};
use crate::layering::Layering;
use crate::layering::path::{BYTES, Run, SENDER, at, comes_and_goes, measure};
use crate::machine::{ChannelId, Ecn};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

fn config(kind: FlidKind, kbps: u64) -> FlidConfig {
    let rate = Rate::from_kilobits(kbps);
    match kind {
        FlidKind::Static => FlidConfig::static_layers(BYTES, rate),
        FlidKind::Dynamic => FlidConfig::dynamic_layers(BYTES, rate),
    }
}

fn layers(kind: FlidKind, kbps: u64) -> Layers {
    Layers::new(&config(kind, kbps), Instant::ZERO).unwrap()
}

fn run_of(
    config: FlidConfig,
    receiver: FlidReceiverConfig,
    kbps: u64,
    join: u64,
) -> Run<FlidReceiver, FlidSender> {
    let sender = FlidSender::new(Layers::new(&config, Instant::ZERO).unwrap());
    Run::over(sender, FlidReceiver::new(config, receiver).unwrap(), kbps, 4, join)
}

fn run(kind: FlidKind, kbps: u64) -> Run<FlidReceiver, FlidSender> {
    run_of(config(kind, 4 * kbps), FlidReceiverConfig::new(), kbps, 5)
}

/// Departures until `end`, taken when they are due.
fn departures(mut sender: FlidSender, end: Instant) -> Vec<(Instant, Departure)> {
    let mut all = Vec::new();
    while let Some(now) = sender.next_departure().filter(|at| *at < end) {
        all.push((now, sender.departure(now).unwrap()));
        sender.departed(now, BYTES.into());
    }
    all
}

#[test]
fn levels_grow_by_the_ratio_up_to_the_maximum() {
    let layers = layers(FlidKind::Dynamic, 4_000);
    let most = 4_000_000.0 / (8.0 * f64::from(BYTES));
    assert!((layers.rate(0) - 10.0).abs() < 1e-9);
    for level in 1..layers.levels() - 1 {
        assert!((layers.rate(level) / layers.rate(level - 1) - 1.3).abs() < 1e-4);
    }
    assert!((layers.rate_max() - most).abs() < 1e-9);
    // 15 levels, and 16 slots of 8 s of leaving: 31 channels, 32 with the least power of two, and the base.
    assert_eq!((layers.levels(), layers.channels()), (15, 33));
}

#[test]
fn numbers_that_make_no_session_are_refused() {
    let sound = config(FlidKind::Dynamic, 4_000);
    let refused = |config: FlidConfig| Layers::new(&config, Instant::ZERO).unwrap_err();
    assert_eq!(refused(sound.with_ratio(1.01)), FlidConfigError::Ratio(1.01));
    assert!(matches!(refused(sound.with_ratio(f64::NAN)), FlidConfigError::Ratio(_)));
    assert!(matches!(refused(sound.with_slot(Duration::ZERO)), FlidConfigError::Slot(_)));
    assert!(matches!(
        refused(sound.with_base_rate(Rate::from_kilobits(8))),
        FlidConfigError::BaseRate { .. }
    ));
    assert!(matches!(
        refused(sound.with_base_rate(Rate::from_kilobits(4_000))),
        FlidConfigError::Rates { .. }
    ));
    let channels = refused(sound.with_leave_latency(Duration::from_secs(80)));
    assert_eq!(channels, FlidConfigError::Channels { channels: 174, most: 128 });
    assert_eq!(refused(FlidConfig::static_layers(0, Rate::from_kilobits(1))), FlidConfigError::PacketBytes);
}

#[test]
fn every_level_sends_what_the_schedule_counts() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let layers = layers(kind, 4_000);
        let all = departures(FlidSender::new(layers.clone()), at(20_000));
        let mut from = Instant::ZERO;
        while from < at(15_000) {
            let to = layers.next_boundary(from).unwrap_or(at(15_000));
            for level in 0..layers.levels() {
                let sent: Vec<&Departure> = all
                    .iter()
                    .map(|(_, departure)| departure)
                    .filter(|departure| departure.level == level && (from..to).contains(&departure.at))
                    .collect();
                assert_eq!(sent.len() as u64, layers.packets(level, from, to), "level {level}");
                let channel = layers.channel(level, from);
                assert!(sent.iter().all(|departure| departure.channel == channel));
            }
            from = to;
        }
    }
}

#[test]
fn packets_tell_their_slot_channel_and_place() {
    let layers = layers(FlidKind::Dynamic, 2_000);
    let mut next = vec![0; layers.channels().into()];
    for (_, departure) in departures(FlidSender::new(layers.clone()), at(100_000)) {
        let cci = departure.cci.flid_sl().unwrap();
        let slot = layers.slot_at(departure.at);
        assert_eq!(u64::from(cci.slot), slot % 128);
        assert_eq!(ChannelId(cci.group.into()), departure.channel);
        assert_eq!(cci.increase_trigger, layers.is_trigger(departure.level, slot));
        let next: &mut u16 = &mut next[usize::from(cci.group)];
        assert_eq!(cci.sequence, *next, "numbers of a channel follow each other");
        *next = next.wrapping_add(1);
    }
}

#[test]
fn dynamic_channels_go_down_a_level_in_each_slot_and_rest() {
    let layers = layers(FlidKind::Dynamic, 4_000);
    for slot in 0..300 {
        for level in 2..layers.levels() {
            assert_eq!(layers.channel_in(level, slot), layers.channel_in(level - 1, slot + 1));
        }
        let lowest = layers.channel_in(1, slot);
        // 8 s after it was at the lowest level nobody uses it.
        let used = |slot: u64| (1..layers.levels()).any(|level| layers.channel_in(level, slot) == lowest);
        assert!((slot + 1..=slot + 16).all(|slot| !used(slot)));
    }
}

#[test]
fn triggers_are_nested_and_as_frequent_as_the_rate_has_it() {
    let layers = layers(FlidKind::Dynamic, 40_000);
    let slots = 1 << 14;
    for level in 0..layers.levels() - 1 {
        let count = (0..slots).filter(|slot| layers.is_trigger(level, *slot)).count() as f64;
        let expected = (20.0 * 0.5 / layers.rate(level)).min(1.0) * slots as f64;
        assert!((count - expected).abs() <= 1.0 + 0.01 * expected, "{count} of {expected}");
        let nested = |slot| !layers.is_trigger(level + 1, slot) || layers.is_trigger(level, slot);
        assert!((0..slots).all(nested), "level {level}");
    }
    assert!((0..slots).all(|slot| !layers.is_trigger(layers.levels() - 1, slot)), "the highest never");
}

/// 20 TSD/R triggers a slot of 0.3 R each are 6 packets/s in a second, which is 1/RTT^2 for 0.41 s, whatever
/// the slot.
#[test]
fn a_rate_rises_by_a_packet_a_round_trip_in_a_round_trip_of_0_41_s() {
    for (kind, slot) in [(FlidKind::Dynamic, 500), (FlidKind::Dynamic, 200), (FlidKind::Static, 1_000)] {
        let config = config(kind, 40_000).with_slot(Duration::from_millis(slot));
        // A link that brings everything.
        let mut run = run_of(config, FlidReceiverConfig::new(), 100_000, 1);
        run.start();
        let mut rate = |seconds: u64| {
            run.until(at(seconds * 1_000));
            run.receiver.status(run.now).unwrap().fair_rate
        };
        let (early, late) = (rate(30), rate(330));
        let slope = (late - early) / 300.0;
        let rtt = 1.0 / slope.sqrt();
        assert!(
            (0.36..0.46).contains(&rtt),
            "{kind:?}, slots of {slot} ms: {slope:.2} packets/s/s, {rtt:.3} s"
        );
        assert_eq!(run.receiver.reception().lost, 0);
    }
}

#[test]
fn a_receiver_alone_uses_its_link() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        for link in [1_000, 4_000] {
            let mut run = run(kind, link);
            run.start();
            let (rate, loss) = measure(&mut run, 100, 400);
            assert!(rate > 0.6 * link as f64, "{kind:?}: {rate:.0} of {link} kbit/s, loss {loss:.3}");
            assert!(loss < 0.05, "{kind:?}: loss {loss:.3} at {link} kbit/s");
        }
    }
}

#[test]
fn a_cap_is_kept() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let receiver = FlidReceiverConfig::new().with_max_rate(Rate::from_kilobits(500));
        let mut run = run_of(config(kind, 4_000), receiver, 4_000, 5);
        run.start();
        let (rate, loss) = measure(&mut run, 60, 160);
        assert!((370.0..=500.0).contains(&rate), "{kind:?}: {rate:.0} kbit/s");
        assert_eq!(loss, 0.0);
    }
}

#[test]
fn a_cap_below_the_base_leaves_the_base() {
    let receiver = FlidReceiverConfig::new().with_max_rate(Rate::from_bits(1_000).unwrap());
    let mut run = run_of(config(FlidKind::Dynamic, 4_000), receiver, 4_000, 5);
    run.start();
    run.until(at(20_000));
    assert_eq!(run.held(), 1);
}

#[test]
fn a_receiver_may_come_at_any_time_and_go() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        comes_and_goes(run(kind, 1_000), 500.0, 200, 300);
    }
}

/// Nothing comes of joins any more: with dynamic layers the base is left over, and no more than a few joins
/// wait.
#[test]
fn joins_that_never_come_true_are_given_up() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let mut run = run(kind, 1_000);
        run.start();
        run.until(at(60_000));
        run.path.join = Duration::from_secs(1_000_000);
        run.until(at(120_000));
        let answered = run.path.joined.iter().flatten().filter(|since| **since <= run.now).count();
        assert!(answered >= 1, "the base is still there");
        assert!(run.held() - answered <= 8, "{} joins wait", run.held() - answered);
        let packets = run.receiver.reception().packets;
        run.until(at(130_000));
        assert!(run.receiver.reception().packets > packets);
        run.path.join = Duration::from_millis(5);
        let (rate, _) = measure(&mut run, 250, 300);
        assert!(rate > 500.0, "{kind:?}: {rate:.0} kbit/s once joins work again");
    }
}

/// A join that takes as long as a slot is never heard at the highest level.
#[test]
fn joins_slower_than_a_slot_still_lead_up() {
    for join in [100, 500, 1_200] {
        let mut run = run_of(config(FlidKind::Dynamic, 16_000), FlidReceiverConfig::new(), 4_000, join);
        run.start();
        let (rate, loss) = measure(&mut run, 150, 350);
        assert!(rate > 1_500.0, "{rate:.0} kbit/s with joins of {join} ms");
        assert!(loss < 0.3, "loss {loss:.3} with joins of {join} ms");
        let latency = run.receiver.status(run.now).unwrap().join_latency.unwrap();
        let seconds = join as f64 / 1_000.0;
        assert!((seconds..seconds + 0.25).contains(&latency), "{latency:.3} s");
    }
}

#[test]
fn the_end_of_joins_is_told_by_a_timeout() {
    let mut run = run(FlidKind::Dynamic, 1_000);
    run.start();
    run.path.join = Duration::from_secs(1_000_000);
    run.until(at(2_000));
    assert!(run.receiver.poll_timeout().is_some_and(|at| at > run.now));
}
