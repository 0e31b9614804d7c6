//! Faults between a sender and a receiver, and their effects.

use headwater_wire::cci::WebrcCci;
use rand::Rng;

use super::*;
use crate::control::{PathStatus, ReceiverControl, SenderControl};
use crate::layering::path::{BYTES, Run, at, measure};
use crate::layering::{DynamicChannels, DynamicConfig, DynamicSender};
use crate::machine::Ecn;
use crate::rate::Rate;
use crate::rng::Seed;
use crate::time::{Duration, Instant};

fn layers(max: u64) -> DynamicConfig {
    DynamicConfig::fine(BYTES, Rate::from_kilobits(max))
        .with_base_rate(Rate::from_kilobits(96))
        .with_quiescent_slots(10)
}

/// Returns a receiver after a minute behind 1 Mbit/s.
fn settled() -> Run<Receiver> {
    let receiver = Receiver::new(layers(4_000), ReceiverConfig::new()).unwrap();
    let mut run = Run::new(layers(4_000), receiver, 1_000, 4, 5);
    run.start();
    run.until(at(60_000));
    run
}

fn path_of(run: &mut Run<Receiver>) -> PathStatus {
    ReceiverControl::status(&mut run.receiver, run.now).path.unwrap()
}

/// Returns the base packet that leaves at an instant, of slots of five seconds.
fn base_packet(run: &Run<Receiver>, left: Instant) -> WebrcCci {
    let channels = run.sender.channels();
    let slot = channels.slot_at(left);
    let packet = left.since(channels.slot_start(slot)).as_nanos() * channels.base_per_slot() / 5_000_000_000;
    let sequence = u32::try_from(packet).unwrap();
    WebrcCci { slot: channels.slot_index(slot), channel: channels.dynamic_channels(), sequence }
}

/// Checks that packets have no effect on a receiver.
fn is_unharmed(run: &mut Run<Receiver>, from: u64, to: u64) {
    let (rate, loss) = measure(run, from, to);
    assert!(rate > 850.0 && loss < 0.15, "{rate:.0} kbit/s, loss {loss:.3}");
}

#[test]
fn a_sender_that_begins_again_is_followed() {
    // At any phase of the old slots.
    for pause in [1_000, 3_300, 47_000] {
        let mut run = settled();
        let again = DynamicChannels::new(layers(4_000), at(60_000 + pause)).unwrap();
        run.sender = DynamicSender::new(again);
        let (rate, _) = measure(&mut run, 130, 190);
        assert!(rate > 800.0, "{rate:.0} kbit/s after a pause of {pause} ms");
    }
}

#[test]
fn one_that_claims_another_slot_is_not_believed() {
    let mut run = settled();
    let slots = run.sender.channels().slots_per_cycle();
    let base = run.sender.channels().dynamic_channels();
    for tenth in 0..600 {
        run.until(at(60_000 + 100 * tenth));
        let slot = run.sender.channels().slot_at(run.now);
        // Ahead by more than one slot, or back in time.
        let slot = u16::try_from((slot + 2 + tenth % (slots - 4)) % slots).unwrap();
        run.give(0, WebrcCci { slot, channel: base, sequence: 3 });
        run.give(1, WebrcCci { slot, channel: 1, sequence: 65_000 });
    }
    let packets = run.receiver.reception().packets;
    assert!(packets > 60 * 70, "{packets}");
    is_unharmed(&mut run, 120, 180);
    assert_eq!(run.receiver.status(run.now).unwrap().mode, Mode::CongestionAvoidance);
}

#[test]
fn one_that_claims_to_be_seconds_early_stops_no_joins() {
    // Every four seconds from the start on, a base packet with a departure four seconds ahead.
    let receiver = Receiver::new(layers(4_000), ReceiverConfig::new()).unwrap();
    let mut run = Run::new(layers(4_000), receiver, 1_000, 4, 5);
    run.start();
    let base = run.sender.channels().dynamic_channels();
    for second in 0..180 {
        run.until(at(1_000 * second + 300));
        if second % 4 == 0 {
            let channels = run.sender.channels();
            let (slot, then) = (channels.slot_at(run.now), run.now + Duration::from_secs(4));
            let ahead = channels.slot_at(then) - slot;
            let packet = then.since(channels.slot_start(slot + ahead)).as_nanos() * channels.base_per_slot()
                / 10_000_000_000;
            let slot = u16::try_from((slot + ahead) % channels.slots_per_cycle()).unwrap();
            run.give(0, WebrcCci { slot, channel: base, sequence: u32::try_from(packet).unwrap() });
        }
    }
    is_unharmed(&mut run, 180, 240);
    let packets = run.receiver.reception().packets;
    assert!(packets > 180 * 70, "{packets}");
}

#[test]
fn packets_that_claim_to_be_early_or_late_make_no_levels_left() {
    // Within what a clock allows: 0.9 s early, 4 s late. The least delay falls, so all packets seem to wait.
    let mut run = settled();
    for second in 60..180 {
        run.until(at(1_000 * second + 300));
        let claimed = if second % 2 == 0 {
            run.now + Duration::from_millis(900)
        } else {
            run.now - Duration::from_secs(4)
        };
        let cci = base_packet(&run, claimed);
        run.give(0, cci);
    }
    let path = path_of(&mut run);
    assert_eq!(path.levels_left, 0, "{path:?}");
    // Nothing is lost beyond what the published rules lose beside a long round trip.
    let (rate, loss) = measure(&mut run, 180, 240);
    assert!(rate > 500.0 && loss < 0.15, "{rate:.0} kbit/s, loss {loss:.3}");
}

/// Copies of the base channel's present packet, with any lateness.
#[test]
fn packets_that_claim_any_lateness_make_no_levels_left() {
    for stamps in [false, true] {
        let receiver = Receiver::new(layers(4_000), ReceiverConfig::new()).unwrap();
        let mut run = Run::new(layers(4_000), receiver, 1_000, 4, 5);
        if stamps {
            run.sender.stamp_departures();
        }
        run.start();
        run.until(at(60_000));
        let mut stream = Seed(3).stream("lateness", 0);
        for tenth in 600..1_800_u64 {
            run.until(at(100 * tenth));
            let cci = base_packet(&run, run.now);
            let lateness = Duration::from_micros(u64::from(stream.next_u32() >> 8));
            run.give_with(0, cci, Ecn::NotCapable, lateness);
        }
        let path = path_of(&mut run);
        assert_eq!(path.levels_left, 0, "{path:?}");
        let (rate, loss) = measure(&mut run, 180, 240);
        assert!(rate > 500.0 && loss < 0.15, "{rate:.0} kbit/s, loss {loss:.3}");
    }
}

/// Replays whose lateness hides their age would set the lag, so that no later packet would seem timely.
#[test]
fn old_packets_that_claim_to_be_late_by_their_age_are_not_believed() {
    let receiver = Receiver::new(layers(4_000), ReceiverConfig::new()).unwrap();
    let mut run = Run::new(layers(4_000), receiver, 1_000, 4, 5);
    run.sender.stamp_departures();
    run.start();
    run.until(at(60_000));
    let before = run.receiver.reception().packets;
    for second in 60..120_u64 {
        run.until(at(1_000 * second));
        let age = Duration::from_millis(2_000 + 700 * (second % 11));
        let cci = base_packet(&run, run.now - age);
        run.give_with(0, cci, Ecn::NotCapable, age);
    }
    assert!(run.receiver.reception().packets - before > 60 * 70);
    assert_eq!(path_of(&mut run).levels_left, 0);
    is_unharmed(&mut run, 120, 180);
}

/// A stamped sender that begins again is punctual again.
#[test]
fn a_sender_that_begins_again_without_its_lag_is_followed() {
    let receiver = Receiver::new(layers(4_000), ReceiverConfig::new()).unwrap();
    let mut run = Run::new(layers(4_000), receiver, 1_000, 4, 5);
    run.sender.stamp_departures();
    run.start();
    // Half a second each second, for 20 s.
    for second in 10..30 {
        run.until(at(1_000 * second));
        run.now = at(1_000 * second + 500);
    }
    run.until(at(60_000));
    let again = DynamicChannels::new(layers(4_000), at(61_000)).unwrap();
    run.sender = DynamicSender::new(again);
    run.sender.stamp_departures();
    let (rate, _) = measure(&mut run, 130, 190);
    assert!(rate > 800.0, "{rate:.0} kbit/s");
}

/// Tenths of a second in slow start, of 70 s, behind three links, of a sender that is away for so many
/// milliseconds of each 100.
fn searches(away: u64) -> u32 {
    let mut searched = 0;
    for link in [1_000, 4_000, 10_000] {
        let receiver = Receiver::new(layers(40_000), ReceiverConfig::new()).unwrap();
        let mut run = Run::new(layers(40_000), receiver, link, 4, 5);
        run.sender.stamp_departures();
        run.start();
        for tenth in 0..1_000 {
            run.until(at(100 * tenth + 100 - away));
            run.now = at(100 * tenth + 100);
            let status = run.receiver.status(run.now);
            searched += u32::from(tenth > 300 && status.is_some_and(|status| status.mode == Mode::SlowStart));
        }
    }
    searched
}

/// A schedule that slips fills no queue, and no receiver searches for capacity. A sender that is away for
/// 10 ms catches up; a sender that is away for 17 ms gives up 7 ms.
#[test]
fn a_sender_that_slips_begins_few_slow_starts() {
    let [punctual, slipping] = [10, 17].map(searches);
    assert!(slipping < 2 * punctual, "{slipping}, of a sender that catches up {punctual}");
}

#[test]
fn forged_losses_make_no_levels_left() {
    let mut run = settled();
    for tenth in 600..1_200_u64 {
        run.until(at(100 * tenth));
        let channels = run.sender.channels();
        let slot = channels.slot_at(run.now);
        let wave = channels.wave_at(1, slot);
        // Half of the numbers that follow seem to be missing, then the real ones are behind.
        let sequence = u32::try_from((65_536 - wave.packets + tenth * 7_919) % 65_536).unwrap();
        let (channel, number) = (channels.channel_of(wave.number).0, channels.channel_number(wave.number));
        run.give(channel, WebrcCci { slot: channels.slot_index(slot), channel: number, sequence });
    }
    let path = path_of(&mut run);
    assert_eq!(path.levels_left, 0, "losses alone are no overload: {path:?}");
    is_unharmed(&mut run, 130, 190);
}

#[test]
fn a_clock_that_jumps_is_followed() {
    // Seconds by which the receiver's clock jumps. A host that was suspended falls behind.
    for jump in [0.4, 3.0, 70.0, 4_000.0] {
        for is_ahead in [true, false] {
            let receiver = Receiver::new(layers(4_000), ReceiverConfig::new()).unwrap();
            let mut run = Run::new(layers(4_000), receiver, 1_000, 4, 5);
            let jump = Duration::from_secs_f64(jump);
            run.path.ahead = if is_ahead { Duration::ZERO } else { jump };
            run.start();
            run.until(at(60_000));
            run.path.ahead = if is_ahead { jump } else { Duration::ZERO };
            let jump = jump.as_secs_f64();
            // Within a minute, a jump ahead is no queue.
            let (rate, loss) = measure(&mut run, 120, 180);
            let case = format!("{jump} s, ahead: {is_ahead}");
            assert!(rate > 850.0 && loss < 0.15, "{rate:.0} kbit/s, loss {loss:.3}, jump of {case}");
            let rtt = run.receiver.status(run.now).unwrap().rtt;
            assert!(rtt < 0.35, "round-trip time of {rtt:.3} s, jump of {case}");
        }
    }
}

#[test]
fn a_packet_that_claims_to_be_early_is_forgotten() {
    let mut run = settled();
    let channels = run.sender.channels();
    let claimed = run.now + Duration::from_millis(900);
    let slot = channels.slot_at(claimed);
    let packet =
        claimed.since(channels.slot_start(slot)).as_nanos() * channels.base_per_slot() / 5_000_000_000;
    let (slot, channel) = (channels.slot_index(slot), channels.dynamic_channels());
    run.give(0, WebrcCci { slot, channel, sequence: u32::try_from(packet).unwrap() });
    run.until(at(61_000));
    let rtt = |run: &Run<Receiver>| run.receiver.clone().status(run.now).unwrap().rtt;
    assert!(rtt(&run) > 0.3, "all packets seem to wait");
    run.until(at(80_000));
    assert!(rtt(&run) < 0.3, "{:.3} s", rtt(&run));
    is_unharmed(&mut run, 90, 150);
}

#[test]
fn forged_marks_cost_no_more_than_honest_losses() {
    let mut run = settled();
    let base = run.sender.channels().dynamic_channels();
    for tenth in 600..1_200_u64 {
        run.until(at(100 * tenth));
        let channels = run.sender.channels();
        // A copy of the last packet of the base channel, with a mark.
        let slot = channels.slot_at(run.now);
        let packet =
            run.now.since(channels.slot_start(slot)).as_nanos() * channels.base_per_slot() / 5_000_000_000;
        let cci = WebrcCci {
            slot: channels.slot_index(slot),
            channel: base,
            sequence: u32::try_from(packet.saturating_sub(1)).unwrap(),
        };
        run.give_with(0, cci, Ecn::CongestionExperienced, Duration::ZERO);
    }
    let path = path_of(&mut run);
    assert_eq!(path.levels_left, 0, "marks alone are no overload: {path:?}");
    is_unharmed(&mut run, 150, 210);
}

#[test]
fn packets_of_chance_end_and_fill_nothing() {
    for seed in 0..4 {
        let mut run = settled();
        let mut draws = Seed(seed).stream("forged", 0);
        let channels = run.sender.channels().dynamic_channels();
        for step in 0..6_000 {
            run.until(at(60_000 + 10 * step));
            let (place, sequence) = (draws.next_u64(), draws.next_u64());
            // Half of the packets claim the present slot.
            let now = run.sender.channels().slot_index(run.sender.channels().slot_at(run.now));
            let slot = if place.is_multiple_of(2) { now } else { u16::from(place.to_le_bytes()[2]) };
            let channel = u16::try_from((place >> 32) % u64::from(channels + 2)).unwrap();
            let sequence = u32::try_from(sequence % 65_536).unwrap();
            let ecn = if place & 4 == 0 { Ecn::NotCapable } else { Ecn::CongestionExperienced };
            run.give_with(
                u16::from(place & 8 == 0),
                WebrcCci { slot, channel, sequence },
                ecn,
                Duration::ZERO,
            );
            assert!(run.held() <= usize::from(channels) + 1);
        }
        // Packets that claimed to be 0.9 s early made all others seem to wait; the control grows slowly until
        // the least delay is forgotten.
        is_unharmed(&mut run, 780, 840);
    }
}

#[test]
fn a_host_that_sleeps_leaves_no_levels() {
    let mut run = settled();
    for second in (60..120).step_by(3) {
        run.path.deaf = Some((at(1_000 * second), at(1_000 * second + 300)));
        run.until(at(1_000 * (second + 3)));
    }
    run.path.deaf = None;
    let path = path_of(&mut run);
    assert_eq!(path.levels_left, 0, "{path:?}");
    is_unharmed(&mut run, 130, 190);
}

#[test]
fn copies_do_not_hide_an_overload() {
    let mut run = settled();
    run.path.repeats = true;
    run.path.set_rate(100);
    run.until(at(70_000));
    let path = path_of(&mut run);
    assert!(path.levels_left > 5, "{path:?}");
    let (rate, loss) = measure(&mut run, 75, 85);
    assert!(rate < 130.0 && loss < 0.3, "{rate:.0} kbit/s, loss {loss:.3}");
}

#[test]
fn without_its_base_channel_it_goes_on() {
    let mut run = settled();
    run.path.joined[0] = Some(at(1_000_000_000));
    let (rate, loss) = measure(&mut run, 60, 180);
    // The base channel's 86 kbit/s are missing.
    assert!(rate > 850.0 - 86.0 && loss < 0.15, "{rate:.0} kbit/s, loss {loss:.3}");
}

#[test]
fn packets_that_come_late_or_twice_are_no_loss() {
    let config = ReceiverConfig::new().with_max_rate(Rate::from_kilobits(600));
    let mut run = Run::new(layers(4_000), Receiver::new(layers(4_000), config).unwrap(), 1_000, 4, 5);
    run.path.repeats = true;
    // Later than the next two packets over all channels, which may both belong to the same channel.
    run.path.late = Duration::from_millis(25);
    run.start();
    let (rate, loss) = measure(&mut run, 30, 130);
    assert!(rate > 400.0, "{rate:.0} kbit/s");
    assert_eq!(loss, 0.0);
}

#[test]
fn sequence_numbers_wrap() {
    // The base channel sends 8 packets a second: 65 536 in 8 083 seconds.
    let small = layers(400);
    let mut run = Run::new(small, Receiver::new(small, ReceiverConfig::new()).unwrap(), 256, 4, 5);
    run.until(at(8_000_000));
    run.start();
    let (rate, loss) = measure(&mut run, 8_040, 8_140);
    assert!(rate > 215.0 && loss < 0.15, "{rate:.0} kbit/s, loss {loss:.3}");
}

#[test]
fn a_receiver_that_was_deaf_for_twenty_seconds_recovers() {
    let mut run = settled();
    run.path.stalled = at(80_000);
    let (rate, _) = measure(&mut run, 100, 160);
    assert!(rate > 800.0, "{rate:.0} kbit/s");
}

#[test]
fn a_quiescent_channel_that_goes_on_sending_is_ignored() {
    let mut run = settled();
    let lost = run.receiver.reception().lost;
    for ms in (60_000..120_000).step_by(50) {
        run.until(at(ms));
        let channels = run.sender.channels();
        let now = channels.slot_at(run.now);
        // The wave that ended a slot ago, as if still active.
        let wave = channels.wave_at(1, now - 1);
        let slot = channels.slot_index(now);
        let (channel, number) = (channels.channel_of(wave.number).0, channels.channel_number(wave.number));
        run.give(channel, WebrcCci { slot, channel: number, sequence: u32::try_from(ms % 65_536).unwrap() });
    }
    let lost = run.receiver.reception().lost - lost;
    assert!(lost < 60 * 12, "{lost} packets lost in a minute, of some 5 000");
    is_unharmed(&mut run, 120, 180);
    assert!(Instant::ZERO < run.now);
}
