//! A worked example of the tiles of Lucas et al. 2010, to the packet, and the property the sequencer exists
//! for: what a receiver holds is the beginning of the buffer.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::flid;
use crate::layering::{DynamicChannels, DynamicConfig, Shape, StaticLayers};
use crate::rate::Rate;

const START: Instant = Instant::from_nanos(3_000_000_000);

/// So many thousandths of a packet of 1000 bytes a second.
fn rate(thousandths: u64) -> Rate {
    Rate::from_bits(thousandths * 8).unwrap()
}

fn worked_example() -> DynamicChannels {
    let config = DynamicConfig::new(1_000, rate(32_000))
        .with_base_rate(rate(4_000))
        .with_ratio(0.5)
        .with_slot(Duration::from_secs(1))
        .with_quiescent_slots(2)
        .with_stagger(false);
    DynamicChannels::new(config, START).unwrap()
}

/// A packet as it leaves.
struct Sent {
    level: u16,
    at: Instant,
    number: u64,
    is_repeat: bool,
}

/// Everything that goes out in the buffer's time, each level in time order.
fn send(layering: &impl Layering, from: Instant, time: Duration, parts: u64, order: Order) -> Vec<Sent> {
    let mut arrangement = Arrangement::default();
    arrangement.lay(layering, from, time, parts, order, None);
    let mut sent = Vec::new();
    let mut start = from;
    while start < from + time {
        let end = layering.next_boundary(start).map_or(from + time, |next| next.min(from + time));
        for level in 0..layering.levels() {
            for n in 0..layering.packets(level, start, end) {
                let at = layering.departure(level, start, n);
                let pdu = arrangement.next(level, at).expect("counted");
                sent.push(Sent { level, at, number: pdu.number, is_repeat: pdu.is_repeat });
            }
            assert_eq!(arrangement.next(level, start), None, "no more than was counted");
        }
        start = end;
    }
    assert_eq!(sent.len() as u64, arrangement.packets());
    sent
}

/// What a receiver holds that has each level while its cumulative rate is at most `rate`: packets, and those
/// of them that are the buffer's beginning.
fn held(layering: &impl Layering, sent: &[Sent], rate: f64) -> (u64, u64) {
    let mut numbers: Vec<u64> = sent
        .iter()
        .filter(|packet| layering.cumulative_rate(packet.level, packet.at) <= rate * (1.0 + 1e-12))
        .map(|packet| packet.number)
        .collect();
    numbers.sort_unstable();
    let prefix = numbers.iter().zip(0..).take_while(|(number, place)| *number == place).count();
    (numbers.len() as u64, prefix as u64)
}

#[test]
fn the_worked_example_to_the_packet() {
    let layering = worked_example();
    let sent = send(&layering, START, Duration::from_millis(2_500), 56, Order::Tiles);
    let mut tiles: BTreeMap<(u64, u16), Vec<u64>> = BTreeMap::new();
    for packet in &sent {
        let interval = packet.at.since(START).as_nanos() / 1_000_000_000;
        tiles.entry((interval, packet.level)).or_default().push(packet.number);
    }
    // order interval level: first and last PDU of the table, sent from the last down to the first.
    let table = [
        (0, 0, 0, 4),
        (1, 0, 4, 8),
        (2, 0, 8, 10),
        (0, 1, 10, 11),
        (1, 1, 11, 13),
        (2, 1, 13, 14),
        (0, 2, 14, 19),
        (1, 2, 19, 25),
        (2, 2, 25, 28),
        (0, 3, 28, 39),
        (1, 3, 39, 50),
        (2, 3, 50, 56),
    ];
    for (interval, level, first, end) in table {
        let expected: Vec<u64> = (first..end).rev().collect();
        assert_eq!(tiles[&(interval, level)], expected, "level {level} in interval {interval}");
    }
    let found: Vec<(u64, u64)> =
        [4.0, 8.0, 10.0, 14.0, 18.0, 24.0, 32.0].iter().map(|rate| held(&layering, &sent, *rate)).collect();
    assert_eq!(found, [(10, 10), (14, 14), (17, 15), (25, 18), (30, 29), (41, 34), (56, 56)]);
}

#[test]
fn exact_order_closes_the_gaps_of_the_worked_example() {
    let layering = worked_example();
    let sent = send(&layering, START, Duration::from_millis(2_500), 56, Order::Exact);
    for rate in [4.0, 8.0, 10.0, 14.0, 18.0, 24.0, 32.0] {
        let (packets, prefix) = held(&layering, &sent, rate);
        assert_eq!(packets, prefix, "at {rate} packets/s");
    }
}

#[test]
fn surplus_packets_repeat_the_beginning() {
    let layering = worked_example();
    let sent = send(&layering, START, Duration::from_millis(2_500), 50, Order::Tiles);
    let repeats: Vec<u64> =
        sent.iter().filter(|packet| packet.is_repeat).map(|packet| packet.number).collect();
    assert_eq!(repeats, [5, 4, 3, 2, 1, 0]);
    let mut fresh: Vec<u64> =
        sent.iter().filter(|packet| !packet.is_repeat).map(|packet| packet.number).collect();
    fresh.sort_unstable();
    assert_eq!(fresh, (0..50).collect::<Vec<_>>());
}

#[test]
fn nothing_goes_out_outside_the_buffers_time() {
    let layering = worked_example();
    let mut arrangement = Arrangement::default();
    arrangement.lay(&layering, START, Duration::from_secs(1), 9, Order::Tiles, None);
    assert_eq!(arrangement.next(0, START - Duration::from_nanos(1)), None);
    assert_eq!(arrangement.next(0, START + Duration::from_secs(1)), None);
    assert_eq!(arrangement.next(9, START), None);
    assert!(arrangement.next(0, START).is_some());
}

#[derive(Clone, Debug)]
enum AnyLayers {
    Dynamic(DynamicConfig),
    Static(Vec<Rate>),
    Flid(flid::FlidConfig),
}

fn layers() -> impl Strategy<Value = AnyLayers> {
    let dynamic = (prop::bool::ANY, 0.5..0.85_f64, 1_u64..8, 1_u16..4, 30_000..600_000_u64, prop::bool::ANY)
        .prop_map(|(webrc, ratio, slot, per_slot, max, constant)| {
            let per_slot = if webrc { 1 } else { per_slot };
            let config = DynamicConfig::new(1_000, rate(max))
                .with_ratio(ratio)
                .with_shape(if webrc { Shape::Webrc } else { Shape::Geometric })
                .with_channels_per_slot(per_slot)
                .with_slot(Duration::from_secs(slot * u64::from(per_slot)))
                .with_quiescent_slots(3)
                .with_constant_rate(constant);
            AnyLayers::Dynamic(config)
        });
    let fixed = prop::collection::vec(1_000..50_000_u64, 1..8)
        .prop_map(|rates| AnyLayers::Static(rates.into_iter().map(rate).collect()));
    let flid = (1.1..2.0_f64, 200_u64..3_000, 30_000..600_000_u64, prop::bool::ANY).prop_map(
        |(ratio, slot, max, is_dynamic)| {
            let new =
                if is_dynamic { flid::FlidConfig::dynamic_layers } else { flid::FlidConfig::static_layers };
            let config = new(1_000, rate(max)).with_ratio(ratio).with_slot(Duration::from_millis(slot));
            AnyLayers::Flid(config)
        },
    );
    prop_oneof![3 => dynamic, 1 => fixed, 2 => flid]
}

/// The optimality of the sequencer on one set of layers.
fn check(layering: &impl Layering, from: Instant, time: Duration) -> Result<(), TestCaseError> {
    let mut counting = Arrangement::default();
    counting.lay(layering, from, time, 1, Order::Tiles, None);
    let parts = counting.packets();
    if parts == 0 {
        return Ok(());
    }
    for order in [Order::Tiles, Order::Exact] {
        let sent = send(layering, from, time, parts, order);
        let mut numbers: Vec<u64> = sent.iter().map(|packet| packet.number).collect();
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..parts).collect::<Vec<_>>(), "every part once");

        // Rates at which tiles end: those of each level when a slot begins.
        let boundary = layering.next_boundary(from).unwrap_or(from);
        for level in 0..layering.levels() {
            let rate = layering.cumulative_rate(level, boundary);
            let (packets, prefix) = held(layering, &sent, rate);
            prop_assert_eq!(packets, prefix, "{:?}: level {} at {} packets/s", order, level, rate);
        }
        // Any other rate: no more is missing than lies in tiles that are held in part; nothing in exact
        // order.
        for step in 1..20 {
            let top = layering.cumulative_rate(layering.levels() - 1, boundary);
            let rate = top * f64::from(step) / 20.0;
            let (packets, prefix) = held(layering, &sent, rate);
            let open = if order == Order::Exact { 0 } else { partly_held(layering, from, time, rate) };
            prop_assert!(packets - prefix <= open, "{order:?} at {rate}: {prefix} of {packets}, {open} open");
        }
    }
    Ok(())
}

/// Packets in tiles that a receiver at `rate` holds in part.
fn partly_held(layering: &impl Layering, from: Instant, time: Duration, rate: f64) -> u64 {
    let mut open = 0;
    let mut start = from;
    while start < from + time {
        let end = layering.next_boundary(start).map_or(from + time, |next| next.min(from + time));
        for level in 0..layering.levels() {
            let (least, most) =
                (layering.cumulative_rate_before(level, end), layering.cumulative_rate(level, start));
            if least <= rate * (1.0 + 1e-12) && most > rate {
                open += layering.packets(level, start, end);
            }
        }
        start = end;
    }
    open
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_held_is_the_beginning(layers in layers(), delay in 0_u64..20_000, time in 50_u64..12_000) {
        let from = START + Duration::from_millis(delay);
        let time = Duration::from_millis(time);
        match layers {
            AnyLayers::Dynamic(config) => check(&DynamicChannels::new(config, START).unwrap(), from, time)?,
            AnyLayers::Flid(config) => check(&flid::Layers::new(&config, START).unwrap(), from, time)?,
            AnyLayers::Static(rates) => check(&StaticLayers::new(&rates, 1_000, START), from, time)?,
        }
    }
}
