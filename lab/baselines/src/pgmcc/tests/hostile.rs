//! What reports cannot do.

use core::net::IpAddr;

use headwater_wire::pgm::{Body, CongestionData, CongestionFeedback, Options, Packet, PgmReport};
use proptest::prelude::*;

use super::{GROUP, PACKET, SESSION, group, host};
use crate::clock_us;
use crate::group::{address, at};
use crate::pgmcc::{PgmccReceiver, PgmccReceiverConfig, PgmccSender, PgmccSenderConfig};
use headwater_proto::machine::{ChannelId, DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, Machine};
use headwater_proto::rng::Seed;
use headwater_proto::time::{Duration, Instant};

fn said(now: Instant, receiver: IpAddr, loss_rate: u16) -> CongestionFeedback {
    CongestionFeedback { timestamp: clock_us(now).wrapping_sub(20_000), loss_rate, receiver }
}

fn give(
    sender: &mut PgmccSender,
    now: Instant,
    from: usize,
    body: Body<'_>,
    said: Option<CongestionFeedback>,
) {
    let options = Options { congestion_feedback: said, ..Options::default() };
    let packet = Packet::new(SESSION.destination_port, SESSION.source_port, SESSION.gsi, body);
    let mut bytes = vec![0; 1_000];
    let len = Packet { options, ..packet }.emit(&mut bytes).unwrap();
    let payload = &bytes[..len];
    let source = address(from).into();
    sender.handle(now, Input::Datagram(Datagram { source, channel: None, ecn: Ecn::NotCapable, payload }));
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    while sender.poll_output(now, &mut buffer).is_some() {}
}

/// A packet of data, for the receivers.
fn data(sequence: u32, timestamp: u32, acker: IpAddr) -> Vec<u8> {
    let options =
        Options { congestion_data: Some(CongestionData { timestamp, acker }), ..Options::default() };
    let body = Body::Odata { sequence, trail: sequence, data: &[] };
    let packet = Packet::new(SESSION.source_port, SESSION.destination_port, SESSION.gsi, body);
    let mut bytes = vec![0; 200];
    let len = Packet { options, ..packet }.emit(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn hear(receiver: &mut PgmccReceiver, now: Instant, payload: &[u8]) {
    let channel = Some(ChannelId::BASE);
    let datagram = Datagram { source: address(9).into(), channel, ecn: Ecn::NotCapable, payload };
    receiver.handle(now, Input::Datagram(datagram));
}

#[test]
fn copies_neither_count_nor_hide_losses() {
    let new = || {
        let config = PgmccReceiverConfig::new(7_500, GROUP, host(0));
        PgmccReceiver::new(config, Seed(1).stream("receiver", 0))
    };
    let (mut once, mut often) = (new(), new());
    // A tenth is lost, and some come late.
    let sequences =
        (0..300_u32).map(|place| place ^ u32::from(place % 16 < 2)).filter(|place| place % 10 != 7);
    for sequence in sequences {
        let packet = data(sequence, 0, host(1));
        hear(&mut once, at(1), &packet);
        (0..20).for_each(|_| hear(&mut often, at(1), &packet));
        // Longer ago than the map tells.
        if let Some(sequence) = sequence.checked_sub(100) {
            hear(&mut often, at(1), &data(sequence, 0, host(1)));
        }
    }
    assert_eq!(once.counters(), often.counters());
    assert_eq!(once.counters().packets, 270);
    assert!(once.loss() > 0.05 && (once.loss() - often.loss()).abs() < 1e-12, "{}", often.loss());
}

const NAK: Body<'_> = Body::Nak(PgmReport { sequence: 0, source: GROUP, group: GROUP });

#[test]
fn a_report_speaks_for_where_it_comes_from() {
    let mut network = group().with(1, 50, |packet| packet % 100 == 0);
    network.run_until(at(10_000));
    let now = network.now();
    let absurd = network.sender.counters().absurd;
    let forged = said(now, host(0), 60_000);
    give(&mut network.sender, now, 7, NAK, Some(forged));
    give(&mut network.sender, now, 7, NAK, None);
    let of_future =
        CongestionFeedback { timestamp: clock_us(now).wrapping_add(10_000), ..said(now, host(7), 60_000) };
    give(&mut network.sender, now, 7, NAK, Some(of_future));
    assert_eq!(network.sender.counters().absurd, absurd + 3);
    assert_eq!(network.acker(), Some(0));
}

#[test]
fn acknowledgements_of_others_and_of_the_same_packets_open_nothing() {
    let mut network = group().with(1, 50, |packet| packet % 100 == 0);
    network.run_until(at(10_000));
    let now = network.now();
    let sent = network.sender.counters().packets;
    let next = network.sender.window().next();
    for _ in 0..100 {
        let ack = Body::Ack { highest: next.wrapping_sub(1), bitmap: !0 };
        give(&mut network.sender, now, 7, ack, Some(said(now, host(7), 0)));
        let ack = Body::Ack { highest: next.wrapping_add(50), bitmap: !0 };
        give(&mut network.sender, now, 0, ack, Some(said(now, host(0), 700)));
        let ack = Body::Ack { highest: next.wrapping_sub(100), bitmap: !0 };
        give(&mut network.sender, now, 0, ack, Some(said(now, host(0), 700)));
    }
    assert_eq!(network.sender.counters().packets, sent);
}

#[test]
fn a_liar_that_falls_silent_is_replaced() {
    let mut network = group().with(1, 50, |packet| packet % 100 == 0);
    network.run_until(at(10_000));
    let now = network.now();
    give(&mut network.sender, now, 7, NAK, Some(said(now, host(7), 65_535)));
    assert_eq!(network.sender.acker().unwrap().address, host(7));
    network.run_until(at(20_000));
    assert_eq!(network.acker(), Some(0));
    assert!(network.sender.window().packets() > 2.0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Storms of any reports and data: neither end panics or falls silent for good.
    #[test]
    fn any_packets_leave_both_ends_sound(
        storm in prop::collection::vec(
            (0_usize..4, any::<[u32; 3]>(), any::<u16>(), 0_u64..2_000_000, any::<bool>()), 1..200
        )
    ) {
        let mut sender = PgmccSender::new(PgmccSenderConfig::new(SESSION, PACKET));
        let config = PgmccReceiverConfig::new(7_500, GROUP, host(0));
        let mut receiver = PgmccReceiver::new(config, Seed(1).stream("receiver", 0));
        let (mut now, mut buffer) = (Instant::ZERO, vec![0; DATAGRAM_BYTES_MAX]);
        for (from, [one, two, three], loss_rate, step_us, is_near) in storm {
            now = Instant::from_nanos(now.as_nanos() + 1_000 * step_us);
            let highest = if is_near { sender.window().next().wrapping_sub(one % 70) } else { one };
            let body = if two % 3 == 0 { NAK } else { Body::Ack { highest, bitmap: two } };
            let timestamp = if is_near { clock_us(now).wrapping_sub(three % 1_000_000) } else { three };
            let said = CongestionFeedback { timestamp, loss_rate, receiver: host(from) };
            give(&mut sender, now, from, body, Some(said));
            prop_assert!(sender.window().packets() >= 1.0);
            let timeout = sender.poll_timeout();
            prop_assert!(timeout.is_some_and(|at| at <= now + PgmccSenderConfig::TIMEOUT_MAX), "{timeout:?}");

            hear(&mut receiver, now, &data(highest, timestamp, host(from)));
            let mut outputs = 0;
            while receiver.poll_output(now, &mut buffer).is_some() {
                outputs += 1;
            }
            prop_assert!(outputs <= 3, "a join, an acknowledgement, a NAK");
            prop_assert!((0.0..=1.0).contains(&receiver.loss()));
            prop_assert!(receiver.poll_timeout().is_none_or(|at| at <= now + Duration::from_secs(1)));
        }
    }
}
