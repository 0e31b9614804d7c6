//! Both ends over a path that is one drop-tail queue, and the schedule by itself.

use headwater_wire::cci::RlcCci;

use super::*;
use crate::path::{BYTES, Run, SENDER, apply, at};
use headwater_proto::control::{Arrival, ReceiverControl};
use headwater_proto::layering::turns::Schedule;
use headwater_proto::layering::{Layering, Unchanging};
use headwater_proto::machine::{ChannelId, Ecn};
use headwater_proto::rate::Rate;
use headwater_proto::time::{Duration, Instant};

/// Layers of 20, 20, 40, 80.. packets a second.
fn config(layers: u32) -> RlcConfig {
    let base = u64::from(BYTES) * 8 * 20;
    let rate = |bits| Rate::from_bits(bits).unwrap();
    RlcConfig::new(BYTES, rate(base), rate(base << (layers - 1)))
}

/// What a packet carries of its number.
fn low(number: u64) -> u16 {
    u16::try_from(number % 65_536).unwrap()
}

fn layers(count: u32) -> Layers {
    Layers::new(&config(count), Instant::ZERO).unwrap()
}

#[test]
fn rates_double() {
    let layers = layers(5);
    assert_eq!(Layering::levels(&layers), 5);
    for (level, rate) in (0..).zip([20.0, 40.0, 80.0, 160.0, 320.0]) {
        assert!((layers.rate(level) - rate).abs() < 1e-9);
    }
}

/// Layer 1 has 20 packets/s, points each 2 s, and bursts of 0.25 s.
#[test]
fn a_burst_doubles_the_rate_and_a_silence_follows_it() {
    let layers = layers(5);
    let count = |from: u64, to: u64| layers.packets(1, at(from), at(to));
    assert_eq!((count(750, 1_000), count(1_000, 1_250)), (5, 5), "none at an odd second");
    assert_eq!((count(1_500, 1_750), count(1_750, 2_000), count(2_000, 2_250)), (5, 10, 0));
    assert_eq!(count(0, 99_000), 1_980, "the mean is the rate");
    let points: Vec<u64> = (0..400).filter(|number| layers.is_point(1, *number)).collect();
    let times: Vec<u64> = points.iter().map(|number| layers.nth(1, *number).as_nanos() / 1_000_000).collect();
    assert_eq!(times.len(), 9);
    for (index, time) in (1..).zip(times) {
        assert!((index * 2_000 + 250..index * 2_000 + 301).contains(&time), "point {index} at {time} ms");
    }
    assert!(
        (0..10_000).all(|number| !layers.is_point(4, number) && !layers.is_burst(4, number)),
        "the highest has none"
    );
}

#[test]
fn the_schedule_counts_what_it_sends() {
    let layers = layers(5);
    for level in 0..5 {
        for number in 0..2_000 {
            let left = layers.nth(level, number);
            assert!(layers.nth(level, number + 1) > left, "in order");
            assert!(layers.before(level, left) <= number, "level {level}, packet {number}");
            assert!(layers.before(level, left + Duration::from_nanos(1)) > number);
        }
    }
}

#[test]
fn numbers_are_known_by_sixteen_bits() {
    let layers = layers(5);
    for base in [0, 10, 70_000, 1_000_000] {
        let at = layers.nth(0, base);
        for level in 1..5 {
            let number = layers.before(level, at) + 3;
            assert_eq!(layers.number(level, low(number), base), number);
        }
    }
}

fn run(kbps: u64, layers: u32) -> Run<RlcReceiver, RlcSender> {
    let sender = RlcSender::new(Layers::new(&config(layers), Instant::ZERO).unwrap());
    let receiver = RlcReceiver::new(config(layers), RlcReceiverConfig::new()).unwrap();
    Run::over(sender, receiver, kbps, 4, 5)
}

/// Over a link with room for 3 of 6 layers the receiver holds these, and tries no further one for long:
/// bursts warn it.
#[test]
fn takes_what_there_is_room_for() {
    // 80 packets/s of 1514 bytes take 969 kbit/s.
    let mut run = run(1_200, 6);
    run.start();
    run.until(at(60_000));
    assert_eq!(run.receiver.level(), 2);
    let before = run.receiver.reception();
    run.until(at(400_000));
    let after = run.receiver.reception();
    let rate = (after.packets - before.packets) as f64 / 340.0;
    assert!((70.0..=85.0).contains(&rate), "{rate} packets/s of 80");
}

/// A receiver without a path, and what it holds.
struct Alone {
    receiver: RlcReceiver,
    held: Vec<bool>,
    layers: Layers,
}

impl Alone {
    fn new() -> Self {
        let mut receiver = RlcReceiver::new(config(5), RlcReceiverConfig::new()).unwrap();
        receiver.start(Instant::ZERO);
        let mut held = vec![false; 5];
        apply(&mut held, &mut receiver);
        Self { receiver, held, layers: layers(5) }
    }

    /// All that is sent in this time and not in `lost` arrives at once.
    fn hear(&mut self, from: u64, to: u64, lost: impl Fn(u16, u64) -> bool) {
        let mut all: Vec<(Instant, u16, u64)> = (0..5)
            .flat_map(|level| {
                let numbers = self.layers.before(level, at(from))..self.layers.before(level, at(to));
                numbers.map(move |number| (level, number))
            })
            .map(|(level, number)| (self.layers.nth(level, number), level, number))
            .collect();
        all.sort_unstable();
        for (now, level, number) in all {
            self.receiver.timeout(now);
            apply(&mut self.held, &mut self.receiver);
            if self.held[usize::from(level)] && !lost(level, number) {
                self.arrive(now, level, number);
            }
            apply(&mut self.held, &mut self.receiver);
        }
    }

    fn arrive(&mut self, now: Instant, level: u16, number: u64) {
        let cci = RlcCci {
            synchronization_point: self.layers.is_point(level, number),
            layer: u8::try_from(level).unwrap(),
            sequence: low(number),
        };
        let arrival = Arrival {
            source: SENDER.into(),
            channel: ChannelId(level),
            cci: &cci.into(),
            ecn: Ecn::NotCapable,
            bytes: BYTES.into(),
            lateness: Duration::ZERO,
        };
        self.receiver.arrived(now, &arrival);
        apply(&mut self.held, &mut self.receiver);
    }
}

#[test]
fn rises_at_the_second_point_of_each_layer() {
    let mut alone = Alone::new();
    alone.hear(0, 1_400, |_, _| false);
    assert_eq!(alone.receiver.level(), 0, "one point");
    alone.hear(1_400, 2_400, |_, _| false);
    assert_eq!(alone.receiver.level(), 1, "two points of layer 0");
    // Its first point is the one at which it was joined: here, joins take no time.
    alone.hear(2_400, 4_200, |_, _| false);
    assert_eq!(alone.receiver.level(), 1, "one point of layer 1");
    alone.hear(4_200, 4_400, |_, _| false);
    assert_eq!(alone.receiver.level(), 2);
}

#[test]
fn a_loss_in_a_burst_forbids_the_next_layer_and_no_more() {
    let mut alone = Alone::new();
    alone.hear(0, 2_400, |_, _| false);
    let layers = alone.layers.clone();
    // The last packet of the burst: what follows it is the point itself.
    let last = (0..100).rfind(|number| layers.is_burst(1, *number)).unwrap();
    alone.hear(2_400, 5_900, |level, number| level == 1 && number == last);
    assert_eq!((alone.receiver.level(), alone.receiver.reception().lost), (1, 1));
    alone.hear(5_900, 6_400, |_, _| false);
    assert_eq!(alone.receiver.level(), 2, "the next burst came whole");
}

/// A queue that a burst overflows loses one packet here and one there.
#[test]
fn several_holes_in_a_burst_cost_no_more_than_one() {
    let mut alone = Alone::new();
    alone.hear(0, 2_400, |_, _| false);
    let layers = alone.layers.clone();
    let last = (0..100).rfind(|number| layers.is_burst(1, *number)).unwrap();
    alone.hear(2_400, 5_900, |level, number| level == 1 && (number == last || number == last - 3));
    assert_eq!((alone.receiver.level(), alone.receiver.reception().lost), (1, 2));
    alone.hear(5_900, 6_400, |_, _| false);
    assert_eq!(alone.receiver.level(), 2, "the next burst came whole");
}

#[test]
fn what_comes_late_is_no_loss_and_no_hole_later_on() {
    let mut alone = Alone::new();
    alone.hear(0, 2_400, |_, _| false);
    let first = alone.layers.before(0, at(2_400));
    alone.arrive(at(2_410), 0, first + 1);
    alone.arrive(at(2_411), 0, first);
    assert_eq!(alone.receiver.poll_timeout(), None, "nothing is missing");
    for (now, number) in (2..10).map(|step| (2_411 + 50 * step, first + step)) {
        alone.arrive(at(now), 0, number);
    }
    alone.arrive(at(2_909), 0, first + 11);
    alone.receiver.timeout(at(2_911));
    alone.arrive(at(2_914), 0, first + 10);
    assert_eq!((alone.receiver.level(), alone.receiver.reception().lost), (1, 0));
}

#[test]
fn a_copy_of_a_point_is_no_second_one() {
    let mut alone = Alone::new();
    alone.hear(0, 1_400, |_, _| false);
    let point = (0..100).find(|number| alone.layers.is_point(0, *number)).unwrap();
    for _ in 0..3 {
        alone.arrive(at(1_401), 0, point);
    }
    assert_eq!(alone.receiver.level(), 0);
    alone.hear(1_400, 2_400, |_, _| false);
    assert_eq!(alone.receiver.level(), 1, "the second one");
}

#[test]
fn a_loss_gives_up_a_layer_and_is_deaf_for_a_while() {
    let mut alone = Alone::new();
    alone.hear(0, 6_900, |_, _| false);
    assert_eq!(alone.receiver.level(), 2);
    let first = alone.layers.before(0, at(7_000));
    alone.hear(6_900, 7_700, |level, number| level == 0 && number == first + 2);
    assert_eq!(alone.receiver.level(), 1);
    alone.hear(7_700, 8_150, |level, number| level == 0 && number == first + 11);
    assert_eq!(alone.receiver.level(), 1, "deaf");
}

#[test]
fn foreign_packets_change_nothing() {
    let mut alone = Alone::new();
    alone.hear(0, 1_400, |_, _| false);
    for raw in [[0xFF_u8; 4], [0xD5, 200, 0, 0], [0, 0, 0, 0]] {
        let cci = headwater_wire::Cci::new(&raw).unwrap();
        let arrival = Arrival {
            source: SENDER.into(),
            channel: ChannelId::BASE,
            cci: &cci,
            ecn: Ecn::NotCapable,
            bytes: 100,
            lateness: Duration::ZERO,
        };
        alone.receiver.arrived(at(1_401), &arrival);
    }
    alone.hear(1_400, 2_400, |_, _| false);
    assert_eq!((alone.receiver.level(), alone.receiver.reception().lost), (1, 0));
}
