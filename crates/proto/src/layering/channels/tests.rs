//! Counts and departures against the worked example, RFC 3738's numbers, and each other.

use proptest::prelude::*;

use super::super::{DynamicConfig, DynamicConfigError, StaticLayers};
use super::*;
use crate::rate::Rate;

const START: Instant = Instant::from_nanos(7_000_000_000);

fn rate(packets: f64, bytes: u16) -> Rate {
    Rate::from_bits(integer((packets * 8.0 * f64::from(bytes)).round())).unwrap()
}

/// Worked example: R0 = 4 packets/s, P = 1/2, sub-slots of 1 s, levels 1..3.
fn worked_example() -> DynamicChannels {
    let config = DynamicConfig::new(1_000, rate(32.0, 1_000))
        .with_base_rate(rate(4.0, 1_000))
        .with_ratio(0.5)
        .with_slot(Duration::from_secs(1))
        .with_quiescent_slots(2)
        .with_stagger(false);
    DynamicChannels::new(config, START).unwrap()
}

fn second(halves: u64) -> Instant {
    START + Duration::from_millis(500 * halves)
}

#[test]
fn the_worked_example_to_the_packet() {
    let channels = worked_example();
    assert_eq!(channels.levels(), 4);
    let counts: Vec<Vec<u64>> = [(0, 2), (2, 4), (4, 5)]
        .iter()
        .map(|(from, to)| (0..4).map(|level| channels.packets(level, second(*from), second(*to))).collect())
        .collect();
    assert_eq!(counts, [vec![4, 1, 5, 11], vec![4, 2, 6, 11], vec![2, 1, 3, 6]]);
    let rates = |level, from: u64, to: u64| {
        (channels.cumulative_rate_before(level, second(to)), channels.cumulative_rate(level, second(from)))
    };
    assert_eq!(rates(0, 0, 2), (4.0, 4.0));
    assert_eq!(rates(1, 0, 2), (4.0, 8.0));
    assert_eq!(rates(3, 0, 2).0.to_bits(), rates(2, 2, 4).1.to_bits(), "tiles fit without a gap");
    assert!((rates(1, 4, 5).0 - 5.657).abs() < 1e-3 && (rates(3, 4, 5).0 - 22.627).abs() < 1e-3);
}

#[test]
fn channels_are_named_after_the_slot_in_which_they_end() {
    let channels = worked_example();
    // T = ceil(3/1) + 2.
    assert_eq!(channels.dynamic_channels(), 5);
    assert_eq!(channels.channel(0, START), ChannelId::BASE);
    assert_eq!(channels.channel(1, START), ChannelId(1));
    assert_eq!(channels.channel(3, second(2)), ChannelId(4));
    assert_eq!(channels.channel_number(channels.wave_at(3, 1).number), 3);
    assert_eq!(channels.channel(1, second(10)), ChannelId(1), "used again after five slots");
    assert_eq!(channels.slot_index(channels.slot_at(second(10))), 0);
}

/// RFC 3738's defaults: L = 9; base plus j waves at a slot's start.
#[test]
fn webrc_has_its_published_numbers() {
    let config = DynamicConfig::new(1_000, rate(100.0, 1_000)).with_shape(Shape::Webrc);
    let channels = DynamicChannels::new(config, START).unwrap();
    assert_eq!(channels.base_per_slot(), 9);
    // N = floor(ln(1 + 100/3) / ln(4/3)) - 1 = 11.
    assert_eq!(channels.levels(), 12);
    assert_eq!(channels.dynamic_channels(), 11 + 30);
    for level in 0..=11_u16 {
        let expected = ((4.0_f64 / 3.0).powi(i32::from(level) + 1) - 1.0) * 3.0;
        let slot_start = START + Duration::from_secs(30);
        assert!((channels.cumulative_rate(level, slot_start) / expected - 1.0).abs() < 1e-12);
        let fallen = channels.cumulative_rate_before(level, slot_start);
        assert!((fallen / (0.75 * expected) - 1.0).abs() < 1e-12);
    }
    // Nine packets each slot, the first one when it begins.
    for slot in 0..4 {
        assert_eq!(channels.base_departure(9 * slot), channels.slot_start(slot));
        let (from, to) = (channels.slot_start(slot), channels.slot_start(slot + 1));
        assert_eq!(channels.packets(0, from, to), 9);
    }
    // Wave packets in a whole slot: BCR_P TSD / ln(1/P) (P^-n - P^-(n-1)), to within one.
    let last = channels.packets(1, START + Duration::from_secs(10), START + Duration::from_secs(20));
    assert!((11..=12).contains(&last), "{last} packets for 11.59");
}

#[test]
fn a_constant_rate_is_constant() {
    for shape in [Shape::Geometric, Shape::Webrc] {
        let config = DynamicConfig::new(1_000, rate(500.0, 1_000)).with_shape(shape).with_constant_rate(true);
        let channels = DynamicChannels::new(config, START).unwrap();
        let top = channels.levels() - 1;
        for step in 0..60 {
            let (from, to) = (second(step), second(step + 1));
            let sent: u64 = (0..=top).map(|level| channels.packets(level, from, to)).sum();
            let slack = u64::from(top) / 2;
            assert!((250 - slack..=250 + slack).contains(&sent), "{shape:?} {step}: {sent} of 250");
        }
    }
}

#[test]
fn levels_of_m2c_never_exceed_the_maximum_rate() {
    // Whole levels would send up to 1.15 of it as a slot begins.
    for max in [500.0, 520.0, 560.0] {
        let channels = DynamicChannels::new(DynamicConfig::fine(1_000, rate(max, 1_000)), START).unwrap();
        let top = channels.levels() - 1;
        for step in 0..60 {
            let at = second(step) + Duration::from_millis(7);
            assert!(channels.cumulative_rate(top, at) <= max, "{max} packets/s, step {step}");
            assert!(channels.cumulative_rate(top - 1, at) < channels.cumulative_rate(top, at));
        }
    }
}

#[test]
fn numbers_that_make_no_channels_are_refused() {
    let refused = |config: DynamicConfig| DynamicChannels::new(config, START).unwrap_err();
    let sound = DynamicConfig::new(1_000, rate(500.0, 1_000));
    assert!(matches!(refused(sound.with_ratio(1.0)), DynamicConfigError::Ratio(_)));
    assert!(matches!(refused(sound.with_ratio(f64::NAN)), DynamicConfigError::Ratio(_)));
    assert!(matches!(refused(sound.with_slot(Duration::from_nanos(5))), DynamicConfigError::Slot { .. }));
    assert!(matches!(refused(sound.with_channels_per_slot(0)), DynamicConfigError::Slot { .. }));
    assert!(matches!(refused(sound.with_channels_per_slot(7)), DynamicConfigError::Slot { .. }));
    assert!(matches!(refused(sound.with_quiescent_slots(300)), DynamicConfigError::Channels { .. }));
    let busy = DynamicConfig::new(1_000, rate(100_000.0, 1_000)).with_base_rate(rate(6_554.0, 1_000));
    assert_eq!(refused(busy), DynamicConfigError::BasePackets(65_540));
    let slow = DynamicConfig::new(1_000, rate(1.2, 1_000));
    let error = refused(slow);
    assert!(matches!(error, DynamicConfigError::Rates { least, .. } if least > 1.2), "{error}");
    let webrc = sound.with_shape(Shape::Webrc).with_channels_per_slot(2);
    assert_eq!(refused(webrc), DynamicConfigError::WebrcChannels(2));
}

fn shapes() -> impl Strategy<Value = DynamicConfig> {
    (prop::bool::ANY, 0.5..0.9_f64, 1_u64..20, 1_u16..4, 20.0..3_000.0_f64, prop::bool::ANY).prop_map(
        |(webrc, ratio, slot, per_slot, max, constant)| {
            let config = DynamicConfig::new(1_000, rate(max, 1_000))
                .with_ratio(ratio)
                .with_slot(Duration::from_secs(slot * u64::from(per_slot)))
                .with_quiescent_slots(3)
                .with_constant_rate(constant);
            if webrc {
                config.with_shape(Shape::Webrc).with_slot(Duration::from_secs(slot))
            } else {
                config.with_channels_per_slot(per_slot)
            }
        },
    )
}

#[test]
fn static_layers_number_every_layer() {
    let rates = vec![Rate::from_kilobits(1); 65_535];
    assert_eq!(StaticLayers::new(&rates, 1_000, START).levels(), 65_535);
}

#[test]
#[should_panic(expected = "65536 layers")]
fn static_layers_are_no_more_than_level_numbers() {
    StaticLayers::new(&[Rate::from_kilobits(1); 65_536], 1_000, START);
}

proptest! {
    /// What is asked and what is sent are the same packets, at any time, in any shape.
    #[test]
    fn counts_are_the_departures(
        config in shapes(),
        level in 0_u16..30,
        from in 0_u64..90_000_000_000,
        part in 0.0..1.0_f64,
    ) {
        let channels = DynamicChannels::new(config, START).unwrap();
        let level = level % channels.levels();
        let from = START + Duration::from_nanos(from);
        let boundary = channels.next_boundary(from).unwrap();
        let to = from + Duration::from_nanos(integer(boundary.since(from).as_nanos() as f64 * part));
        let count = channels.packets(level, from, to);
        let mut last = from;
        for n in 0..count.min(2_000) {
            let at = channels.departure(level, from, n);
            prop_assert!(at >= last && at < to, "packet {n} of {count}: {at:?} in {from:?}..{to:?}");
            last = at;
        }
        if count <= 2_000 {
            prop_assert!(channels.departure(level, from, count) >= to.min(boundary));
        }
        // Counts add up.
        let middle = from + Duration::from_nanos(to.since(from).as_nanos() / 3);
        prop_assert_eq!(channels.packets(level, from, middle) + channels.packets(level, middle, to), count);
    }

    /// A wave's packets over its slots are all its packets, and they are the integral of its rate.
    #[test]
    fn a_wave_sends_what_its_rate_says(config in shapes(), number in 0_u64..40) {
        let channels = DynamicChannels::new(config, START).unwrap();
        let wave = channels.wave(number);
        let mut sent = 0;
        let mut expected = 0.0;
        let mut from = wave.begins;
        while from < wave.ends {
            let to = channels.next_boundary(from).unwrap();
            let level = u16::try_from(number + 1 - channels.slot_at(from) * channels.channels_per_slot()).unwrap();
            prop_assert_eq!(channels.channel(level, from), channels.channel_of(number));
            sent += channels.packets(level, from, to);
            // The rate falls in a straight enough line over a thousandth of a sub-slot.
            let step = Duration::from_nanos(to.since(from).as_nanos() / 1_000);
            let mut at = from + Duration::from_nanos(step.as_nanos() / 2);
            for _ in 0..1_000 {
                let below = channels.cumulative_rate(level - 1, at);
                expected += (channels.cumulative_rate(level, at) - below) * step.as_secs_f64();
                at += step;
            }
            from = to;
        }
        prop_assert_eq!(sent, wave.packets);
        prop_assert!((sent as f64 - expected).abs() <= 1.0 + expected * 1e-3, "{sent} of {expected}");
    }

    #[test]
    fn static_layers_count_what_they_send(
        rates in prop::collection::vec(1_000_u64..10_000_000, 1..9),
        level in 0_usize..9,
        from in 0_u64..3_000_000_000,
        length in 0_u64..1_000_000_000,
    ) {
        let level = level % rates.len();
        let all: Vec<Rate> = rates.iter().map(|bits| Rate::from_bits(*bits).unwrap()).collect();
        let layers = StaticLayers::new(&all, 1_000, START);
        let from = START + Duration::from_nanos(from);
        let to = from + Duration::from_nanos(length);
        let level = u16::try_from(level).unwrap();
        let count = layers.packets(level, from, to);
        let expected = rates[usize::from(level)] as f64 / 8_000.0 * Duration::from_nanos(length).as_secs_f64();
        prop_assert!((count as f64 - expected).abs() <= 1.0, "{count} of {expected}");
        if count > 0 {
            prop_assert!(layers.departure(level, from, 0) >= from);
            prop_assert!(layers.departure(level, from, count - 1) < to);
        }
        prop_assert!(layers.departure(level, from, count) >= to);
    }
}
