//! Window and tokens.

use proptest::prelude::*;

use crate::pgmcc::PgmccWindow;

/// Sends what may be sent; how many packets.
fn fill(window: &mut PgmccWindow) -> u32 {
    (0..).take_while(|_| window.is_open().then(|| window.sent()).is_some()).count().try_into().unwrap()
}

#[test]
fn below_the_threshold_each_acknowledgement_brings_two_packets_and_above_a_share() {
    let mut window = PgmccWindow::new(10, 4.0);
    assert_eq!(fill(&mut window), 1);
    let mut sent = Vec::new();
    for sequence in 10..18 {
        assert_eq!(window.acknowledged(sequence, !0, true).unwrap().new, 1);
        sent.push(fill(&mut window));
    }
    // W = 2, 3, 4, then 4.25, 4.485, 4.708, 4.92, 5.12.
    assert_eq!(sent, [2, 2, 2, 1, 1, 1, 1, 2]);
    assert!((window.packets() - 5.0).abs() < 0.2, "{}", window.packets());
}

/// A window of some eight packets, all acknowledged; the number of the next one.
fn grown() -> (PgmccWindow, u32) {
    let mut window = PgmccWindow::new(0, 8.0);
    while window.packets() < 8.0 {
        fill(&mut window);
        window.acknowledged(window.next() - 1, !0, true);
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
        let told = window.acknowledged(first + place, bitmap, true).unwrap();
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
        assert!(!window.acknowledged(sequence, 1, true).unwrap().is_halved);
    }
    assert_eq!(window.packets(), halved);
    assert!(fill(&mut window) > 0);
    window.acknowledged(after, 1, true).unwrap();
    assert!(window.packets() > halved, "what was sent after the halving was acknowledged");
}

/// The queue drops another packet of the same window, behind the first one by nearly a round trip: its
/// acknowledgements come when the halving is over.
#[test]
fn what_was_sent_before_a_halving_halves_no_more() {
    let (mut window, first) = grown();
    fill(&mut window);
    for place in 1..4 {
        let told = window.acknowledged(first + place, 0b111 >> (3 - place), true).unwrap();
        assert_eq!(told.is_halved, place == 3);
        fill(&mut window);
    }
    let after = window.next();
    let halved = window.packets();
    // The last one before the halving is lost, too.
    for sequence in (first + 4..after - 1).chain(after..after + 8) {
        fill(&mut window);
        let map = (0..32).rfold(0, |map, bit| {
            map << 1 | u32::from(![first, after - 1].contains(&sequence.wrapping_sub(bit)))
        });
        assert!(!window.acknowledged(sequence, map, true).unwrap().is_halved, "{sequence} of {after}");
    }
    assert!(window.packets() > halved);
}

#[test]
fn what_a_new_acker_lost_halves_the_window_though_the_old_one_had_it() {
    for is_forgiven in [false, true] {
        let (mut window, first) = grown();
        fill(&mut window);
        for sequence in first..first + 4 {
            assert!(!window.acknowledged(sequence, !0, true).unwrap().is_halved);
        }
        window.switched(is_forgiven);
        // It lacks the second; what the old one says of it meanwhile is of another path.
        assert_eq!(window.acknowledged(first + 4, !0b1000, true).unwrap().is_halved, !is_forgiven);
        assert!(!window.acknowledged(first + 5, !0, false).unwrap().is_halved);
    }
}

#[test]
fn a_timeout_begins_with_one_packet_and_late_acknowledgements_bring_none() {
    let (mut window, first) = grown();
    fill(&mut window);
    window.timed_out();
    assert_eq!((window.packets(), fill(&mut window)), (1.0, 1));
    assert_eq!(window.acknowledged(first + 2, 0b111, true).unwrap().new, 0);
    assert!(!window.is_open());
    assert_eq!(window.acknowledged(window.next() - 1, 1, true).unwrap().new, 1);
    assert_eq!(fill(&mut window), 2);
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged() {
    let mut window = PgmccWindow::new(0, 4.0);
    fill(&mut window);
    assert_eq!(window.acknowledged(1, !0, true), None);
    assert_eq!(window.acknowledged(1_000_000, !0, true), None);
    assert_eq!(window.acknowledged(u32::MAX, !0, true).unwrap().new, 0, "before the first");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Whatever is lost, on both ways: tokens and packets under way make the window, so it neither leaks nor
    /// stands still.
    #[test]
    fn tokens_and_packets_under_way_make_the_window(
        first: u32,
        fates in prop::collection::vec((0_u8..10, 0_u8..10), 1..400),
    ) {
        let mut window = PgmccWindow::new(first, 4.0);
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
                    let told = window.acknowledged(highest, map, true).unwrap();
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
        let mut window = PgmccWindow::new(0, 4.0);
        for (distance, bitmap) in acks {
            fill(&mut window);
            let highest = window.next().wrapping_add_signed(distance);
            window.acknowledged(highest, bitmap, true);
            prop_assert!((1.0..=1e7).contains(&window.packets()));
            prop_assert!(window.tokens() <= window.packets() + 1e-6);
            prop_assert!(window.is_open() || window.is_waiting());
        }
    }
}
