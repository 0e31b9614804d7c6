//! Controls as senders configure them.

use super::*;

fn rate(bits: u64) -> Rate {
    Rate::from_bits(bits).unwrap()
}

#[test]
fn the_rate_at_the_start_is_at_most_the_maximum() {
    let max = Rate::from_kilobits(1_000);
    let control = CongestionControl::from(DedicatedOptions::new().with_max_rate(Some(max)));
    assert_eq!(control.rate_base(), Some(max));
}

#[test]
fn the_rate_chooses_the_order_unless_it_is_said() {
    let order = |bits, wanted| CongestionControl::Fixed { rate: rate(bits) }.order(wanted);
    assert_eq!(order(999_999_999, None), Order::Spread { rate: 999_999_999 });
    assert_eq!(order(1_000_000_000, None), Order::Window);
    assert_eq!(order(1_000_000_000, Some(SendOrder::Spread)), Order::Spread { rate: 1_000_000_000 });
    assert_eq!(order(1, Some(SendOrder::Window)), Order::Window);
    let fast = LayerOptions::new().with_max_rate(rate(10_000_000_000));
    assert_eq!(CongestionControl::M2c(fast).order(None), Order::Spread { rate: 10_000_000_000 });
}

#[test]
fn naks_count_for_four_seconds_of_packets_at_any_rate() {
    let packets = [(1, 4_096), (100_000_000, 4 * 12_500), (u64::MAX, u32::MAX)];
    for (bits, expected) in packets {
        assert_eq!(nak_packets(rate(bits), 1_000), expected, "{bits}");
    }
}

#[test]
fn channels_are_those_of_the_description() {
    for control in [CongestionControl::M2c, CongestionControl::Webrc, CongestionControl::FlidDl] {
        for max in [1_000_000, 100_000_000, 10_000_000_000] {
            let control = control(LayerOptions::new().with_max_rate(rate(max)));
            for packet_bytes in [80, 1_424] {
                assert_eq!(control.channels_of(packet_bytes), control.channels());
                assert_eq!(control.description(packet_bytes).unwrap().name(), control.name());
            }
        }
    }
    let default = CongestionControl::default();
    assert_eq!(default.control(), &controls::DEFAULT);
    assert_eq!(default.description(PACKET_BYTES_USUAL), Ok(Description::new(&controls::DEFAULT)));
    assert_eq!(CongestionControl::M2c(LayerOptions::new()).channels(), Ok(47 + 60 + 1));
    assert_eq!(CongestionControl::Webrc(LayerOptions::new()).channels(), Ok(18 + 30 + 1));
    assert_eq!(CongestionControl::LeSbcc(LeSbccOptions::new()).channels(), Ok(1));
    assert_eq!(CongestionControl::Rainbow(RainbowOptions::new()).channels(), Ok(1));
    let none = LayerOptions::new().with_max_rate(BASE_RATE_DEFAULT);
    assert!(CongestionControl::M2c(none).channels().is_err());
}

/// The length of packets changes no number of groups, and receivers read what the sender has fitted.
#[test]
fn channels_fit_to_a_number_of_groups() {
    for control in [CongestionControl::M2c, CongestionControl::Webrc] {
        for (groups, max) in [(16, 100_000_000), (32, 1_000_000_000), (64, 100_000_000)] {
            let layers = LayerOptions::new().with_max_rate(rate(max)).with_groups(Some(groups));
            let control = control(layers);
            let channels = control.channels().unwrap();
            assert!(channels <= groups && channels > groups / 2, "{channels} of {groups}");
            assert_eq!(control.channels_of(80), Ok(channels));
            let description = control.description(1_424).unwrap();
            assert_eq!(Description::from_fdt(description.to_fdt().as_ref()), Ok(description));
        }
        let few = CongestionControl::channels(&control(LayerOptions::new().with_groups(Some(4))));
        assert!(few.unwrap_err().to_string().contains("at least"));
    }
    let quick = LayerOptions::new().with_silence(Some(Duration::from_secs(10)));
    assert_eq!(CongestionControl::M2c(quick).channels(), Ok(47 + 2 + 1));
    let layers = LayerOptions::new().with_groups(Some(4));
    let default = CongestionControl::FlidDl(LayerOptions::new());
    assert_eq!(CongestionControl::FlidDl(layers).channels(), default.channels());
}

#[test]
fn the_default_rate_fits_the_interface() {
    for (speed, max) in [(Some(100), 95), (Some(10_000), 1_000), (None, 1_000)] {
        let idle_rate = Some(IDLE_RATE_DEFAULT);
        let mut control = CongestionControl::M2c(LayerOptions { idle_rate, ..LayerOptions::new() });
        control.set_interface_speed(|| speed.map(|megabits: u64| rate(1_000_000 * megabits)));
        let (CongestionControl::M2c(layers), max) = (control, rate(1_000_000 * max)) else { unreachable!() };
        assert_eq!(layers.max_rate, Some(max));
    }
}
