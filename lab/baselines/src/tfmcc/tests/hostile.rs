//! What reports cannot do.

use crate::tfmcc::{TfmccMessage, TfmccReport};
use proptest::prelude::*;

use crate::clock_us;
use crate::group::{address, at};
use crate::tfmcc::{TfmccReceiver, TfmccSender, TfmccSenderConfig};
use headwater_proto::machine::{ChannelId, DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, Machine};
use headwater_proto::rng::Seed;
use headwater_proto::time::Instant;

use super::{PACKET, group};

fn report(now: Instant, rate: u64) -> TfmccReport {
    TfmccReport {
        receiver: 1,
        timestamp_us: clock_us(now),
        echo_us: clock_us(now).wrapping_sub(20_000),
        rate,
        round: 0,
        has_rtt: true,
        has_loss: true,
        leaves: false,
    }
}

fn give(sender: &mut TfmccSender, now: Instant, from: usize, payload: &[u8]) {
    let source = address(from).into();
    sender.handle(now, Input::Datagram(Datagram { source, channel: None, ecn: Ecn::NotCapable, payload }));
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    while sender.poll_output(now, &mut buffer).is_some() {}
}

#[test]
fn no_report_drives_the_rate_below_the_floor() {
    let mut network = group().with(1, 50, |packet| packet % 100 == 0);
    network.run_until(at(20_000));
    let now = network.now();
    let round = u16::try_from(network.sender.counters().rounds).unwrap();
    let lie = TfmccReport { round, ..report(now, 1) };
    give(&mut network.sender, now, 900, &lie.emit());
    assert_eq!(network.sender.rate().as_bits(), u64::from(PACKET), "one packet in 8 s");
    // Who lied once and says no more is forgotten, and the others are heard again.
    network.run_until(at(400_000));
    assert!(network.rate() > 100.0, "{}", network.rate());
}

#[test]
fn a_flood_of_a_liar_raises_the_rate_by_no_more_than_time_allows() {
    let mut sender = TfmccSender::new(TfmccSenderConfig::new(PACKET), Instant::ZERO);
    let start = at(1_000);
    give(&mut sender, start, 1, &report(start, 100_000).emit());
    let before = sender.rate().as_bits();
    for micros in 1..=100_000_u64 {
        let now = Instant::from_nanos(start.as_nanos() + 1_000 * micros);
        give(&mut sender, now, 1, &report(now, u64::MAX).emit());
    }
    // A tenth of a second with R_max of 0.5 s: less than two of its eighths, each a packet in R_max.
    let raised = (sender.rate().as_bits() - before) as f64;
    let step = 8.0 * f64::from(PACKET) / 0.5;
    assert!(raised <= 2.0 * step, "raised by {raised}, a step being {step}");
}

#[test]
fn replayed_old_and_absurd_reports_are_counted_and_change_nothing() {
    let mut sender = TfmccSender::new(TfmccSenderConfig::new(PACKET), Instant::ZERO);
    let now = at(1_000);
    let honest = report(now, 8_000);
    give(&mut sender, now, 1, &honest.emit());
    let (rate, clr) = (sender.rate(), *sender.clr().unwrap());
    let later = at(1_010);
    give(&mut sender, later, 1, &honest.emit());
    let of_old = TfmccReport { round: 0u16.wrapping_sub(9), rate: 1, ..report(later, 1) };
    give(&mut sender, later, 2, &of_old.emit());
    let of_future = TfmccReport { echo_us: clock_us(later).wrapping_add(1_000), ..report(later, 1) };
    give(&mut sender, later, 3, &of_future.emit());
    give(&mut sender, later, 4, &report(later, 0).emit());
    give(&mut sender, later, 5, &[0; 28]);
    let counters = sender.counters();
    assert_eq!((counters.stale, counters.absurd, counters.malformed), (2, 2, 1));
    assert_eq!((sender.rate(), sender.clr()), (rate, Some(&clr)));
}

#[test]
fn a_receiver_that_holds_reports_back_stretches_rounds_within_the_cap() {
    let mut sender = TfmccSender::new(TfmccSenderConfig::new(PACKET), Instant::ZERO);
    let now = at(100_000);
    let held = TfmccReport { echo_us: clock_us(now).wrapping_sub(90_000_000), ..report(now, 1_000_000) };
    // Nobody reported so far, so the rate is at its floor, and the round the one that this makes it.
    let round = {
        give(&mut sender, now, 1, &[]);
        u16::try_from(sender.counters().rounds).unwrap()
    };
    give(&mut sender, now, 1, &TfmccReport { round, ..held }.emit());
    assert!(sender.clr().is_some_and(|clr| clr.rtt == 2.0), "{:?}", sender.clr());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Storms of any reports: neither end panics, the sender goes on within its bounds.
    #[test]
    fn any_reports_leave_a_rate_within_bounds(
        storm in prop::collection::vec(
            (0_usize..200, any::<[u8; 24]>(), 0_u64..2_000_000, any::<bool>()), 1..200
        )
    ) {
        let most = 10_000_000;
        let config = TfmccSenderConfig::new(PACKET).with_max_rate(headwater_proto::Rate::from_bits(most).unwrap());
        let mut sender = TfmccSender::new(config, Instant::ZERO);
        let mut receiver = TfmccReceiver::new(Seed(1));
        let mut now = Instant::ZERO;
        for (from, bytes, step_us, is_near) in storm {
            now = Instant::from_nanos(now.as_nanos() + 1_000 * step_us);
            let mut payload = vec![b'H', b'W', b'T', 0x11];
            payload.extend(bytes);
            if let (true, Ok(TfmccMessage::Report(report))) = (is_near, TfmccMessage::parse(&payload)) {
                let round = u16::try_from(sender.counters().rounds & 0xFFFF).unwrap();
                let echo_us = clock_us(now).wrapping_sub(report.echo_us % 3_000_000);
                payload = TfmccReport { round, echo_us, ..report }.emit().to_vec();
            }
            give(&mut sender, now, from, &payload);
            prop_assert!((u64::from(PACKET)..=most).contains(&sender.rate().as_bits()));
            prop_assert!(sender.poll_timeout().is_some_and(|at| at >= now));
            // The same bytes as data.
            payload.resize(200, 0);
            payload[3] = 0x10;
            let channel = Some(ChannelId::BASE);
            let source = address(0).into();
            let data = Datagram { source, channel, ecn: Ecn::NotCapable, payload: &payload };
            receiver.handle(now, Input::Datagram(data));
            let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
            let mut outputs = 0;
            while receiver.poll_output(now, &mut buffer).is_some() {
                outputs += 1;
            }
            prop_assert!(outputs <= 2, "a join, a report");
            prop_assert!(receiver.fair_rate(now).is_none_or(|rate| rate >= 0.0));
        }
    }
}
