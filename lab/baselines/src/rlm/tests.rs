//! The state machine, fed with layers over a bottleneck without a queue.

use super::{RlmConfig, RlmReceiver, RlmSender, State};
use headwater_proto::control::{Arrival, Membership, ReceiverControl, SenderControl};
use headwater_proto::machine::{ChannelId, Datagram, Ecn};
use headwater_proto::rate::Rate;
use headwater_proto::rng::Seed;
use headwater_proto::time::{Duration, Instant};

const SENDER: ([u8; 4], u16) = ([192, 0, 2, 1], 4_242);

fn config() -> RlmConfig {
    let rates = [1_000, 1_000, 1_000, 1_000].map(Rate::from_kilobits);
    RlmConfig::new(rates.to_vec(), 1_000).unwrap()
}

/// A receiver behind a link that takes so many layers and loses the fourth packet of each four beyond.
struct Bed {
    sender: RlmSender,
    receiver: RlmReceiver,
    held: u16,
    fits: u16,
    packets: u64,
    relayed: Vec<u8>,
}

impl Bed {
    fn new(fits: u16, seed: u64) -> Self {
        let (sender, receiver) =
            (RlmSender::new(config(), Instant::ZERO), RlmReceiver::new(&config(), Seed(seed)));
        let mut bed = Self { sender, receiver, held: 0, fits, packets: 0, relayed: Vec::new() };
        bed.receiver.start(Instant::ZERO);
        bed.settle(Instant::ZERO);
        bed
    }

    fn settle(&mut self, now: Instant) {
        while let Some(membership) = self.receiver.poll_membership() {
            self.held = match membership {
                Membership::Join(channel) => channel.0 + 1,
                Membership::Leave(channel) => channel.0,
            };
        }
        let mut buffer = [0; 64];
        while let Some(transmit) = self.receiver.poll_transmit(now, &mut buffer) {
            let payload = &buffer[..transmit.bytes];
            let datagram = Datagram { source: SENDER.into(), channel: None, ecn: Ecn::NotCapable, payload };
            self.sender.feedback(now, &datagram);
            let mut relayed = [0; 180];
            if let Some(transmit) = self.sender.poll_transmit(now, &mut relayed) {
                assert_eq!(transmit.bytes, relayed.len());
                self.relayed.extend(&relayed[..4]);
            }
        }
    }

    fn run(&mut self, seconds: u64, mut see: impl FnMut(Instant, &RlmReceiver)) {
        let end = Instant::ZERO + Duration::from_secs(seconds);
        while let Some(now) = self.sender.next_departure().filter(|at| *at < end) {
            if self.receiver.poll_timeout().is_some_and(|at| at <= now) {
                self.receiver.timeout(now);
            }
            let departure = self.sender.departure(now).unwrap();
            self.sender.departed(now, 1_000);
            self.packets += 1;
            let is_lost = self.held > self.fits
                && self.packets % u64::from(self.held) < u64::from(self.held - self.fits);
            if departure.channel.0 < self.held && !is_lost {
                let (source, channel, cci) = (SENDER.into(), departure.channel, &departure.cci);
                self.receiver.arrived(
                    now,
                    &Arrival {
                        source,
                        channel,
                        cci,
                        ecn: Ecn::NotCapable,
                        bytes: 1_000,
                        lateness: Duration::ZERO,
                    },
                );
            }
            self.settle(now);
            see(now, &self.receiver);
        }
    }
}

#[test]
fn it_finds_the_level_that_fits_and_learns_from_failure() {
    for seed in 1..4 {
        let mut bed = Bed::new(2, seed);
        let mut over = 0_u32;
        let mut all = 0_u32;
        bed.run(400, |_, receiver| {
            all += 1;
            over += u32::from(receiver.level() > 2);
            // A failed join shows within some packets; the layer below was heard long before.
            assert!(receiver.detection_time() <= 5.0, "{} s", receiver.detection_time());
        });
        assert!((2..=3).contains(&bed.receiver.level()));
        let counters = *bed.receiver.counters();
        assert!(counters.failed > 2, "{counters:?}");
        assert!(bed.receiver.join_timer(3) >= 20.0, "failures back off: {}", bed.receiver.join_timer(3));
        assert!(over * 10 < all, "failed joins are short: {over} of {all}");
    }
}

#[test]
fn joins_are_announced_to_all() {
    let mut bed = Bed::new(4, 1);
    bed.run(200, |_, _| {});
    assert_eq!(bed.receiver.level(), 4);
    assert_eq!(bed.relayed, [0x82, 0, 0, 0, 0x83, 0, 0, 0, 0x84, 0, 0, 0]);
}

/// Packets at these times, of 4 bytes of congestion control information each: 2 and the layer's number for an
/// announcement, or the base layer's number.
fn take(receiver: &mut RlmReceiver, packets: &[(u64, [u8; 4])]) {
    for (ms, bytes) in packets {
        let now = Instant::ZERO + Duration::from_millis(*ms);
        let (source, channel) = (SENDER.into(), ChannelId(bytes[1].into()));
        let cci = headwater_wire::Cci::new(bytes).unwrap();
        receiver.arrived(
            now,
            &Arrival {
                source,
                channel,
                cci: &cci,
                ecn: Ecn::NotCapable,
                bytes: 1_000,
                lateness: Duration::ZERO,
            },
        );
    }
}

/// What a receiver of the base layer comes to that hears an announcement of `layer`, and loses packet 3 right
/// after, so long after its start.
fn after_a_loss(ms: u64, layer: u8) -> RlmReceiver {
    let mut receiver = RlmReceiver::new(&config(), Seed(1));
    receiver.start(Instant::ZERO);
    let base = |ms, sequence| (ms, [0, 0, 0, sequence]);
    let announced = (ms + 2, [0x80 | layer, 0, 0, 0]);
    let packets =
        [base(ms + 1, 1), announced, base(ms + 3, 2), base(ms + 4, 4), base(ms + 5, 5), base(ms + 6, 6)];
    take(&mut receiver, &packets);
    assert_eq!(receiver.level(), 1);
    receiver
}

#[test]
fn losses_of_others_joins_are_not_its_own() {
    let receiver = after_a_loss(20_000, 2);
    assert_eq!(receiver.state(), State::Hysteresis, "it waits for the other to give up");
    assert!((receiver.join_timer(2) - 10.0).abs() < 1e-9, "and learns from its failure");
    assert_eq!(
        after_a_loss(20_000, 1).state(),
        State::Hysteresis,
        "that another joins its layer is nothing new"
    );
}

/// What a layer loses that was joined of late may be its own doing, whoever joins another one; the base
/// layer's start is no exception.
#[test]
fn losses_soon_after_its_own_join_are_measured() {
    assert_eq!(after_a_loss(0, 2).state(), State::Measure);
}

/// A failed join leaves the next try to the timer that runs.
#[test]
fn a_drop_leaves_the_join_timer_running() {
    let mut seen = 0;
    for seed in 1..20 {
        let mut bed = Bed::new(2, seed);
        let mut before = None;
        bed.run(60, |_, receiver| {
            let due = receiver.poll_timeout();
            match receiver.level() {
                3 => before = due,
                _ if before.take().is_some_and(|before| Some(before) == due) => seen += 1,
                _ => {}
            }
        });
    }
    assert!(seen > 3, "{seen}");
}

/// Every other packet of the base layer is lost: it is given up, and as nothing is heard from then on,
/// nothing is joined again.
#[test]
fn a_base_layer_that_does_not_fit_is_given_up() {
    let mut receiver = RlmReceiver::new(&config(), Seed(1));
    receiver.start(Instant::ZERO);
    let mut given_up = None;
    for number in 0..40_000_u16 {
        let now = Instant::ZERO + Duration::from_millis(8 * u64::from(number));
        if receiver.poll_timeout().is_some_and(|at| at <= now) {
            receiver.timeout(now);
        }
        let [high, low] = number.to_be_bytes();
        if number % 2 == 0 {
            let cci = headwater_wire::Cci::new(&[0, 0, high, low]).unwrap();
            let (source, channel, ecn) = (SENDER.into(), ChannelId::BASE, Ecn::NotCapable);
            receiver.arrived(
                now,
                &Arrival { source, channel, cci: &cci, ecn, bytes: 1_000, lateness: Duration::ZERO },
            );
        }
        given_up = given_up.or((receiver.level() == 0).then_some(now));
        assert_eq!(receiver.level(), usize::from(given_up.is_none()), "{now:?}");
    }
    assert!(given_up.is_some_and(|at| at < Instant::ZERO + Duration::from_secs(60)), "{given_up:?}");
    assert_eq!((receiver.counters().joins, receiver.counters().drops), (0, 1));
    assert_eq!(receiver.poll_timeout(), None);
}
