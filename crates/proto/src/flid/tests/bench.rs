//! Packets straight from the sender to the receiver, and as a sender that is lying or was started anew writes
//! them.

use super::*;
use crate::layering::path::apply;

/// Packets straight from the sender to the receiver, without a path.
struct Bench {
    sender: FlidSender,
    receiver: FlidReceiver,
    held: Vec<bool>,
    now: Instant,
    slot: u64,
    /// The next sequence number of the base.
    base: u16,
}

impl Bench {
    fn new(kind: FlidKind) -> Self {
        let sender = FlidSender::new(layers(kind, 8_000));
        let held = vec![false; sender.channels().into()];
        let receiver = FlidReceiver::new(config(kind, 8_000), FlidReceiverConfig::new()).unwrap();
        let mut bench = Self { sender, receiver, held, now: Instant::ZERO, slot: 0, base: 0 };
        bench.receiver.start(bench.now);
        apply(&mut bench.held, &mut bench.receiver);
        bench
    }

    fn give(&mut self, cci: FlidSlCci) {
        let (source, channel) = (SENDER.into(), ChannelId(cci.group.into()));
        let cci = cci.try_into().unwrap();
        let arrival = Arrival {
            source,
            channel,
            cci: &cci,
            ecn: Ecn::NotCapable,
            bytes: BYTES.into(),
            lateness: Duration::ZERO,
        };
        self.receiver.timeout(self.now);
        self.receiver.arrived(self.now, &arrival);
        apply(&mut self.held, &mut self.receiver);
    }

    /// One slot of the sender's; the receiver gets what it holds and `keeps` says.
    fn slot(&mut self, keeps: impl Fn(&FlidSlCci) -> bool) {
        self.slot += 1;
        let end = Instant::ZERO + self.sender.layers().slot().saturating_mul(self.slot);
        while let Some(now) = self.sender.next_departure().filter(|at| *at < end) {
            self.now = now;
            let departure = self.sender.departure(now).unwrap();
            self.sender.departed(now, BYTES.into());
            let cci = departure.cci.flid_sl().unwrap();
            if cci.group == 0 {
                self.base = cci.sequence.wrapping_add(1);
            }
            if self.held[usize::from(departure.channel.0)] && keeps(&cci) {
                self.give(cci);
            }
        }
    }

    fn slots_without_loss(&mut self, slots: u64) {
        for _ in 0..slots {
            self.slot(|_| true);
        }
    }

    /// One packet of the base is lost, in the middle of the slot.
    fn slot_with_loss(&mut self) {
        let sequence = self.base.wrapping_add(2);
        self.slot(|cci| cci.group != 0 || cci.sequence != sequence);
    }

    fn level(&mut self) -> u16 {
        self.receiver.status(self.now).map_or(0, |status| status.levels)
    }
}

/// With dynamic layers a level less is there at once; with static ones nothing more is decided for nine
/// slots.
#[test]
fn a_lossy_slot_costs_a_level() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let mut bench = Bench::new(kind);
        bench.slots_without_loss(40);
        let before = bench.level();
        assert!(before > 5, "{before}");
        bench.slot_with_loss();
        bench.slot(|_| true);
        assert_eq!(bench.level(), before - 1);
        bench.slot_with_loss();
        bench.slot(|_| true);
        let expected = if kind == FlidKind::Dynamic { before - 2 } else { before - 1 };
        assert_eq!(bench.level(), expected);
        assert_eq!(bench.receiver.status(bench.now).unwrap().is_deaf, kind == FlidKind::Static);
    }
}

#[test]
fn one_burst_over_the_end_of_a_slot_is_answered_once() {
    let mut bench = Bench::new(FlidKind::Dynamic);
    bench.slots_without_loss(40);
    let before = bench.level();
    // The last packet of the base in a slot and one in its middle: the hole of the last one shows in the next
    // slot.
    let first = bench.base;
    bench.slot(|cci| cci.group != 0 || ![1, 4].contains(&cci.sequence.wrapping_sub(first)));
    bench.slots_without_loss(2);
    assert!(bench.level() >= before - 1, "{} of {before}", bench.level());
}

#[test]
fn late_packets_and_duplicates_are_no_losses() {
    for strange in [0_u16, 1] {
        let mut bench = Bench::new(FlidKind::Dynamic);
        bench.slots_without_loss(40);
        let before = bench.level();
        bench.slot(|_| true);
        let newest = bench.base.wrapping_sub(1 + strange);
        let slot = u8::try_from((bench.slot - 1) % 128).unwrap();
        bench.give(FlidSlCci { increase_trigger: false, slot, group: 0, sequence: newest });
        bench.slot(|_| true);
        assert!(bench.level() >= before, "{} of {before}", bench.level());
        assert_eq!(bench.receiver.reception().lost, 0);
    }
}

/// It begins from the base with dynamic layers, whose channels are elsewhere now.
#[test]
fn a_sender_that_is_started_anew_is_followed() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let mut bench = Bench::new(kind);
        bench.slots_without_loss(40);
        let before = bench.level();
        let restarted = bench.now;
        let layers = Layers::new(&config(kind, 8_000), restarted).unwrap();
        let slot = layers.slot();
        bench.sender = FlidSender::new(layers);
        let mut least = before;
        let mut pass = |bench: &mut Bench, slots: u64| {
            let end = bench.now + slot.saturating_mul(slots);
            while let Some(now) = bench.sender.next_departure().filter(|at| *at < end) {
                bench.now = now;
                let departure = bench.sender.departure(now).unwrap();
                bench.sender.departed(now, BYTES.into());
                if bench.held[usize::from(departure.channel.0)] {
                    bench.give(departure.cci.flid_sl().unwrap());
                }
                least = least.min(bench.level());
            }
        };
        pass(&mut bench, 3);
        pass(&mut bench, 60);
        assert!(bench.level() > before, "{kind:?}: {} after {before}", bench.level());
        assert_eq!(least, if kind == FlidKind::Dynamic { 0 } else { before });
        assert_eq!(bench.receiver.reception().lost, 0);
    }
}

/// Slots that jump, as when a sender slept: what has gone quiet meanwhile is left, and the rest goes on.
#[test]
fn a_sender_that_paused_is_followed() {
    for (pause, stays) in [(3, true), (40, false), (200, false)] {
        let mut bench = Bench::new(FlidKind::Dynamic);
        bench.slots_without_loss(40);
        let before = bench.level();
        bench.slot += pause;
        bench.now = Instant::ZERO + Duration::from_millis(500 * bench.slot);
        // It gives up what it missed, but for the last second.
        bench.sender.timeout(bench.now);
        while let Some(departure) = bench.sender.departure(bench.now) {
            bench.sender.departed(bench.now, BYTES.into());
            if bench.held[usize::from(departure.channel.0)] {
                bench.give(departure.cci.flid_sl().unwrap());
            }
        }
        let expected = if stays { before - 3..=before + 1 } else { 0..=2 };
        assert!(expected.contains(&bench.level()), "{pause} slots: {} of {before}", bench.level());
        bench.slots_without_loss(60);
        assert!(bench.level() > 5);
        assert_eq!(bench.receiver.reception().lost, 0, "what was never sent is not lost");
    }
}

#[test]
fn without_the_base_channel_the_others_go_on() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let mut bench = Bench::new(kind);
        bench.slots_without_loss(40);
        let before = bench.level();
        for _ in 0..60 {
            bench.slot(|cci| cci.group != 0);
        }
        assert!(bench.level() >= before, "{} of {before}", bench.level());
    }
}

/// Whatever is written in packets: no panic, no channel twice, and the session goes on.
#[test]
fn packets_that_lie_change_little() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let mut bench = Bench::new(kind);
        bench.slots_without_loss(40);
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..100 {
            for _ in 0..5 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [slot, group, s0, s1, trigger, ..] = state.to_be_bytes();
                bench.give(FlidSlCci {
                    increase_trigger: trigger & 1 == 1,
                    slot: slot & 0x7F,
                    group,
                    sequence: u16::from_be_bytes([s0, s1]),
                });
            }
            bench.slot(|_| true);
            assert!(bench.held[0] && bench.held.iter().filter(|held| **held).count() <= 33);
        }
        bench.slots_without_loss(100);
        assert!(bench.level() > 5, "{}", bench.level());
    }
}

/// A forged sequence number makes all that follow look late; eight in a row are believed.
#[test]
fn a_sequence_number_that_was_a_lie_costs_little() {
    for kind in [FlidKind::Static, FlidKind::Dynamic] {
        let mut bench = Bench::new(kind);
        bench.slots_without_loss(40);
        let before = bench.level();
        let slot = u8::try_from((bench.slot - 1) % 128).unwrap();
        let sequence = bench.base.wrapping_add(20_000);
        bench.give(FlidSlCci { increase_trigger: false, slot, group: 0, sequence });
        bench.slots_without_loss(4);
        assert!(bench.level() >= before - 4);
        bench.slots_without_loss(40);
        assert!(bench.level() >= before, "{kind:?}: {} after {before}", bench.level());
    }
}
