//! Window and tokens.

use proptest::prelude::*;

use crate::pgmcc::Window;

/// Sends what may be sent; how many packets.
fn fill(window: &mut Window) -> u32 {
    (0..).take_while(|_| window.is_open().then(|| window.sent()).is_some()).count().try_into().unwrap()
}

#[test]
fn below_the_threshold_each_acknowledgement_brings_two_packets_and_above_a_share() {
    let mut window = Window::new(10, 4.0);
    assert_eq!(fill(&mut window), 1);
    let mut sent = Vec::new();
    for sequence in 10..18 {
        assert_eq!(window.acknowledged(sequence, !0).unwrap().new, 1);
        sent.push(fill(&mut window));
    }
    // W = 2, 3, 4, then 4.25, 4.485, 4.708, 4.92, 5.12.
    assert_eq!(sent, [2, 2, 2, 1, 1, 1, 1, 2]);
    assert!((window.packets() - 5.0).abs() < 0.2, "{}", window.packets());
}

/// A window of some eight packets, all acknowledged; the number of the next one.
fn grown() -> (Window, u32) {
    let mut window = Window::new(0, 8.0);
    while window.packets() < 8.0 {
        fill(&mut window);
        window.acknowledged(window.next() - 1, !0);
    }
    let next = window.next();
    (window, next)
}

#[test]
fn a_hole_and_three_packets_behind_it_halve_the_window_once() {
    let (mut window, first) = grown();
    let before = window.packets();
    let sent = fill(&mut window);
    assert!(sent >= 8);
    // The first two are lost.
    let mut acknowledged = |place: u32, bitmap| {
        let told = window.acknowledged(first + place, bitmap).unwrap();
        fill(&mut window);
        told
    };
    assert!(!acknowledged(2, 0b1).is_halved);
    assert!(!acknowledged(3, 0b11).is_halved, "two are no proof");
    let told = acknowledged(4, 0b111);
    assert!(told.is_halved && told.lost == 2, "{told:?}");
    let halved = window.packets();
    assert!((halved - before / 2.0).abs() < 0.5, "{halved} of {before}");
    assert!(window.tokens() < 0.0, "packets must be acknowledged first: {}", window.tokens());
    // Two more lost in the same window halve it no more, and it does not grow.
    let after = window.next();
    for sequence in first + 7..after {
        assert!(!window.acknowledged(sequence, 1).unwrap().is_halved);
    }
    assert_eq!(window.packets(), halved);
    assert!(fill(&mut window) > 0);
    window.acknowledged(after, 1).unwrap();
    assert!(window.packets() > halved, "what was sent after the halving was acknowledged");
}

#[test]
fn a_timeout_begins_with_one_packet_and_late_acknowledgements_bring_none() {
    let (mut window, first) = grown();
    fill(&mut window);
    window.timed_out();
    assert_eq!((window.packets(), fill(&mut window)), (1.0, 1));
    assert_eq!(window.acknowledged(first + 2, 0b111).unwrap().new, 0);
    assert!(!window.is_open());
    assert_eq!(window.acknowledged(window.next() - 1, 1).unwrap().new, 1);
    assert_eq!(fill(&mut window), 2);
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged() {
    let mut window = Window::new(0, 4.0);
    fill(&mut window);
    assert_eq!(window.acknowledged(1, !0), None);
    assert_eq!(window.acknowledged(1_000_000, !0), None);
    assert_eq!(window.acknowledged(u32::MAX, !0).unwrap().new, 0, "before the first");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Whatever is lost, on both ways: tokens and packets under way make the window, so it neither leaks nor stands still.
    #[test]
    fn tokens_and_packets_under_way_make_the_window(
        first: u32,
        fates in prop::collection::vec((0_u8..10, 0_u8..10), 1..400),
    ) {
        let mut window = Window::new(first, 4.0);
        let (mut under_way, mut map, mut highest) = (0_i64, 0_u32, first.wrapping_sub(1));
        let mut sequence = first;
        for (data, ack) in fates {
            if window.is_open() {
                window.sent();
                under_way += 1;
            }
            if sequence == window.next() {
                // All were told of and nothing may leave: the timer runs out.
                window.timed_out();
                under_way = 0;
                prop_assert!(window.is_open());
                continue;
            }
            // The next packet arrives or not, and so does its acknowledgement.
            if data > 0 {
                let steps = sequence.wrapping_sub(highest);
                map = if steps < 32 { map << steps | 1 } else { 1 };
                highest = sequence;
                if ack > 0 {
                    let told = window.acknowledged(highest, map).unwrap();
                    under_way -= i64::from(told.new + told.lost);
                }
            }
            sequence = sequence.wrapping_add(1);
            prop_assert!(window.packets() >= 1.0);
            let sum = window.tokens() + under_way as f64;
            prop_assert!((sum - window.packets()).abs() < 1e-6, "{} and {} make {}", window.tokens(), under_way, window.packets());
        }
    }

    /// Any acknowledgements of any numbers.
    #[test]
    fn any_acknowledgements_keep_it_sound(acks in prop::collection::vec((-80_i32..80, any::<u32>()), 1..300)) {
        let mut window = Window::new(0, 4.0);
        for (distance, bitmap) in acks {
            fill(&mut window);
            let highest = window.next().wrapping_add_signed(distance);
            window.acknowledged(highest, bitmap);
            prop_assert!((1.0..=1e7).contains(&window.packets()));
            prop_assert!(window.tokens() <= window.packets() + 1e-6);
            prop_assert!(window.is_open() || window.is_waiting());
        }
    }
}
