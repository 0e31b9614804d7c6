//! A gateway and a relay by a virtual clock, and messages of strangers.

use core::net::{IpAddr, SocketAddr};

use headwater_wire::amt::demand::RelayedReport;
use headwater_wire::amt::inner::InnerDatagram;
use headwater_wire::amt::membership::{Query, RecordKind, emit_report};
use headwater_wire::amt::roster::{RELAYED_BYTES_MAX, RelayedRosterReport};
use headwater_wire::amt::{DATA_HEADER_BYTES, Message};
use headwater_wire::roster::{REPORT_BYTES_MAX, ReceiverState, Reply, Report, ReportKind, RosterHeader};
use headwater_wire::rtt::{self, Demand, LossClass};

use super::*;
use crate::egress::EgressShape;
use crate::machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, Machine, Output, RouterOutput,
};
use crate::queue::QueueConfig;
use crate::rate::Rate;
use crate::rng::Seed;
use crate::time::Instant;

const RELAY: &str = "198.51.100.1:2268";
const HERE: &str = "203.0.113.7:40000";
const PORT: u16 = 7287;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn relay(key: u8, shape: Option<EgressShape>) -> Relay {
    let config = RelayConfig::new(vec![PORT], [key; 32], Seed(1));
    Relay::new(config.with_addresses(vec![ip("198.51.100.1"), ip("2001:db8::1")]).with_shape(shape)).unwrap()
}

/// Passes a message to the relay; returns the answers with their destinations.
fn tell(relay: &mut Relay, now: Instant, from: SocketAddr, payload: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
    let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload };
    relay.handle(now, Input::Routed(tunnel(0), datagram));
    drain(relay, now)
}

fn drain(relay: &mut Relay, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut sent = Vec::new();
    while let Some(output) = relay.poll_output(now, &mut buffer) {
        let Output::Router(RouterOutput::Transmit { transmit, .. }) = output else { panic!("{output:?}") };
        let Destination::Unicast(to) = transmit.destination else { panic!("{transmit:?}") };
        sent.push((to, buffer[..transmit.bytes].to_vec()));
    }
    sent
}

fn message(of: &Message<'_>) -> Vec<u8> {
    let mut buffer = [0; 2_000];
    let bytes = of.emit(&mut buffer).unwrap();
    buffer[..bytes].to_vec()
}

/// Requests a query from an address; returns the code.
fn proof(relay: &mut Relay, now: Instant, from: SocketAddr, nonce: u32) -> [u8; 6] {
    let answers = tell(relay, now, from, &message(&Message::Request { nonce, is_mld: false }));
    let [(to, answer)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(*to, from);
    let Ok(Message::Query { mac, nonce: answered, query, gateway, .. }) = Message::parse(answer) else {
        panic!("{answer:?}")
    };
    assert_eq!((answered, gateway), (nonce, Some(from)));
    assert_eq!(Query::parse(query), Ok(Query { is_mld: false, interval_s: 20, robustness: 3 }));
    mac
}

type Records<'a> = &'a [(RecordKind, IpAddr, Option<IpAddr>)];

fn update(mac: [u8; 6], nonce: u32, records: Records<'_>) -> Vec<u8> {
    let source = if records[0].1.is_ipv4() { "0.0.0.0" } else { "fe80::2" };
    let mut report = [0; 1_500];
    let bytes = emit_report(ip(source), records, &mut report).unwrap();
    message(&Message::Update { mac, nonce, report: &report[..bytes] })
}

fn natives(relay: &mut Relay) -> Vec<NativeMembership> {
    std::iter::from_fn(|| relay.poll_native()).collect()
}

/// Passes a packet of a group; returns the gateways that got a copy.
fn packet(relay: &mut Relay, now: Instant, channel: ChannelId, source: &str) -> Vec<SocketAddr> {
    let payload = &[7; 1_000];
    let datagram = Datagram { source: address(source), channel: Some(channel), ecn: Ecn::Capable0, payload };
    relay.handle(now, Input::Routed(native(0), datagram));
    drain(relay, now).into_iter().map(|(to, _)| to).collect()
}

/// A gateway and a relay, with a link of a delay between.
struct Pair {
    gateway: Gateway,
    relay: Relay,
    /// Whether messages reach the relay.
    is_up: bool,
    events: Vec<GatewayEvent>,
    sent: usize,
}

impl Pair {
    fn new(is_ipv6: bool) -> Self {
        let gateway = Gateway::new(GatewayConfig::new(address(RELAY), is_ipv6, Seed(2)));
        Self { gateway, relay: relay(7, None), is_up: true, events: Vec::new(), sent: 0 }
    }

    /// Runs until the end; answers arrive in the same step.
    fn run(&mut self, mut now: Instant, end: Instant) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while now <= end {
            self.gateway.handle(now, Input::Timeout);
            self.relay.handle(now, Input::Timeout);
            while let Some(output) = self.gateway.poll_output(now, &mut buffer) {
                match output {
                    Output::Event(event) => self.events.push(event),
                    Output::Transmit(transmit) => {
                        assert_eq!(transmit.destination, Destination::Unicast(address(RELAY)));
                        self.sent += 1;
                        if self.is_up {
                            let sent = buffer[..transmit.bytes].to_vec();
                            self.answer(now, &sent);
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
            now += Duration::from_millis(10);
        }
    }

    fn answer(&mut self, now: Instant, sent: &[u8]) {
        for (_, answer) in tell(&mut self.relay, now, address(HERE), sent) {
            let source = address(RELAY);
            let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload: &answer };
            self.gateway.handle(now, Input::Datagram(datagram));
        }
    }
}

#[test]
fn a_gateway_finds_its_relay_and_joins_and_leaves() {
    for (is_ipv6, group, source) in
        [(false, "232.1.2.3", "192.0.2.1"), (true, "ff3e::8000:1", "2001:db8:1::1")]
    {
        let mut pair = Pair::new(is_ipv6);
        pair.run(at(0), at(1_000));
        assert_eq!(pair.sent, 0, "nothing is sent without a group");
        assert!(pair.gateway.join(at(1_000), ip(group), Some(ip(source))));
        pair.run(at(1_000), at(1_000));
        assert_eq!(pair.events, [GatewayEvent::Connected { relay: address(RELAY) }]);
        let [joined] = natives(&mut pair.relay)[..] else { panic!("one join") };
        assert_eq!((joined.group, joined.source, joined.is_join), (ip(group), Some(ip(source)), true));
        // Two memberships later the first is still there, as the gateway repeats its report.
        pair.gateway.join(at(2_000), ip(if is_ipv6 { "ff15::1" } else { "239.1.2.3" }), None);
        pair.run(at(2_000), at(120_000));
        assert_eq!(pair.relay.counters().memberships, 2);
        assert!(pair.sent < 40, "{} messages in two minutes", pair.sent);
        pair.gateway.leave(at(120_000), ip(group));
        pair.run(at(120_000), at(120_000));
        assert_eq!(pair.relay.counters().memberships, 1);
        pair.gateway.close(at(121_000));
        pair.run(at(121_000), at(121_000));
        assert_eq!(pair.relay.counters().gateways, 0);
        let sent = pair.sent;
        pair.run(at(121_000), at(200_000));
        assert_eq!(pair.sent, sent, "nothing is sent after the end");
        assert_eq!(pair.relay.counters().refused, RelayRefused::default());
    }
}

#[test]
fn a_relay_that_restarts_is_found_within_seconds() {
    for down in [0, 3_000, 60_000] {
        let mut pair = Pair::new(false);
        pair.gateway.join(at(0), ip("232.1.2.3"), Some(ip("192.0.2.1")));
        pair.run(at(0), at(1_000));
        pair.gateway.on_data(at(1_000));
        (pair.relay, pair.is_up) = (relay(8, None), false);
        pair.run(at(1_000), at(1_000 + down));
        pair.is_up = true;
        pair.run(at(1_000 + down), at(9_000 + down));
        assert_eq!(pair.relay.counters().memberships, 1, "down for {down} ms");
    }
}

#[test]
fn data_that_stops_and_a_silent_relay_cost_few_messages() {
    let mut pair = Pair::new(false);
    pair.gateway.join(at(0), ip("239.1.2.3"), None);
    pair.run(at(0), at(1_000));
    pair.gateway.on_data(at(1_000));
    let sent = pair.sent;
    pair.run(at(1_000), at(61_000));
    assert!(pair.sent - sent < 16, "{} messages in a minute without data", pair.sent - sent);
    pair.is_up = false;
    let sent = pair.sent;
    pair.run(at(61_000), at(661_000));
    assert!(pair.sent - sent < 160, "{} messages in ten minutes without a relay", pair.sent - sent);
    assert!(pair.events.contains(&GatewayEvent::Silent { relay: address(RELAY) }));
}

#[test]
fn packets_go_to_the_gateways_that_joined_the_group_and_source() {
    let mut relay = relay(7, None);
    let group = ip("232.1.2.3");
    let from = |last: u8| SocketAddr::new([203, 0, 113, last].into(), 4_000);
    let cases: [Records<'_>; 3] = [
        &[(RecordKind::Allow, group, Some(ip("192.0.2.1")))],
        &[(RecordKind::ToExclude, group, None)],
        &[(RecordKind::IsExclude, group, None), (RecordKind::Allow, group, Some(ip("192.0.2.1")))],
    ];
    for (gateway, records) in (1..).zip(cases) {
        let mac = proof(&mut relay, at(0), from(gateway), 9);
        assert_eq!(tell(&mut relay, at(0), from(gateway), &update(mac, 9, records)), []);
    }
    let natives = natives(&mut relay);
    let channel = natives[0].channel;
    assert_eq!(natives.len(), 2, "each membership is joined once");
    assert!(natives.iter().all(|native| native.is_join && native.channel == channel));
    let got = |relay: &mut Relay, source| {
        let mut got = packet(relay, at(1), channel, source);
        got.sort_unstable();
        got
    };
    assert_eq!(got(&mut relay, "192.0.2.1:5"), [from(1), from(2), from(3)]);
    assert_eq!(got(&mut relay, "192.0.2.2:5"), [from(2), from(3)]);
    // The change to a source leaves the group of any source.
    let mac = proof(&mut relay, at(2), from(2), 9);
    tell(
        &mut relay,
        at(2),
        from(2),
        &update(mac, 9, &[(RecordKind::ToInclude, group, Some(ip("192.0.2.2")))]),
    );
    assert_eq!(got(&mut relay, "192.0.2.1:5"), [from(1), from(3)]);
    assert_eq!(got(&mut relay, "192.0.2.2:5"), [from(2), from(3)]);
    relay.handle(at(46_000), Input::Timeout);
    assert_eq!((relay.counters().gateways, relay.counters().memberships), (0, 0));
}

#[test]
fn a_loopback_source_belongs_to_groups_of_a_loopback_interface() {
    let from = address("127.0.0.1:4000");
    for is_loopback in [false, true] {
        let config = RelayConfig::new(vec![PORT], [7; 32], Seed(1)).on_loopback(is_loopback);
        let mut relay = Relay::new(config.with_addresses(vec![ip("127.0.0.1")])).unwrap();
        let mac = proof(&mut relay, at(0), from, 9);
        let source = Some(ip("127.0.0.1"));
        tell(&mut relay, at(0), from, &update(mac, 9, &[(RecordKind::Allow, ip("232.1.2.3"), source)]));
        assert_eq!(relay.counters().memberships, usize::from(is_loopback));
    }
}

#[test]
fn packets_are_rebuilt_with_their_source_group_and_port() {
    let mut relay = relay(7, None);
    let mac = proof(&mut relay, at(0), address(HERE), 1);
    tell(
        &mut relay,
        at(0),
        address(HERE),
        &update(mac, 1, &[(RecordKind::IsExclude, ip("239.1.2.3"), None)]),
    );
    let channel = natives(&mut relay)[0].channel;
    let source = address("192.0.2.1:4001");
    let datagram = Datagram { source, channel: Some(channel), ecn: Ecn::Capable0, payload: b"symbol" };
    relay.handle(at(1), Input::Routed(native(0), datagram));
    let [(_, sent)] = &drain(&mut relay, at(1))[..] else { panic!("one copy") };
    let inner = InnerDatagram::parse(&sent[DATA_HEADER_BYTES..]).unwrap();
    let destination = address("239.1.2.3:7287");
    assert_eq!(inner, InnerDatagram { source, destination, ecn: 0b10, payload: b"symbol" });
    assert_eq!(sent.len(), 6 + 30);
}

#[test]
fn forged_updates_bring_nothing() {
    let mut relay = relay(7, None);
    let records: Records<'_> = &[(RecordKind::IsExclude, ip("239.1.2.3"), None)];
    let mac = proof(&mut relay, at(0), address(HERE), 1);
    let victim = address("203.0.113.8:40000");
    for (from, mac, nonce, ms) in [
        (victim, mac, 1, 0),
        (address("203.0.113.7:40001"), mac, 1, 0),
        (address(HERE), mac, 2, 0),
        (address(HERE), [0; 6], 1, 0),
        // Two minutes later.
        (address(HERE), mac, 1, 120_000),
    ] {
        assert_eq!(tell(&mut relay, at(ms), from, &update(mac, nonce, records)), []);
    }
    assert_eq!(relay.counters().refused.forged, 5);
    assert_eq!((relay.counters().gateways, natives(&mut relay).len()), (0, 0));
    let mac = proof(&mut relay, at(179_000), address(HERE), 1);
    tell(&mut relay, at(239_000), address(HERE), &update(mac, 1, records));
    assert_eq!(relay.counters().gateways, 1, "a code is right in the next minute");
    // Groups of the link, and reports that are none.
    let link: Records<'_> = &[(RecordKind::IsExclude, ip("224.0.0.251"), None)];
    tell(&mut relay, at(239_000), victim, &update(mac, 1, link));
    let broken = message(&Message::Update { mac, nonce: 1, report: &[0x45; 40] });
    tell(&mut relay, at(239_000), address(HERE), &broken);
    assert_eq!((relay.counters().refused.forged, relay.counters().refused.reports), (6, 1));
    let mac = proof(&mut relay, at(239_000), victim, 1);
    tell(&mut relay, at(239_000), victim, &update(mac, 1, link));
    assert_eq!(relay.counters().gateways, 1, "a group of a link is not joined");
}

#[test]
fn a_teardown_needs_the_code_of_the_former_address() {
    let mut relay = relay(7, None);
    let mac = proof(&mut relay, at(0), address(HERE), 1);
    tell(
        &mut relay,
        at(0),
        address(HERE),
        &update(mac, 1, &[(RecordKind::IsExclude, ip("239.1.2.3"), None)]),
    );
    let now_at = address("203.0.113.7:50000");
    let teardown = |mac| message(&Message::Teardown { mac, nonce: 1, gateway: address(HERE) });
    tell(&mut relay, at(1), now_at, &teardown([1; 6]));
    assert_eq!(relay.counters().gateways, 1);
    tell(&mut relay, at(1), now_at, &teardown(mac));
    assert_eq!(relay.counters().gateways, 0);
    let kinds: Vec<_> = natives(&mut relay).iter().map(|native| native.is_join).collect();
    assert_eq!(kinds, [true, false]);
}

#[test]
fn answers_to_a_network_are_limited_and_a_flood_leaves_nothing() {
    let mut relay = relay(7, None);
    let mut answered = 0;
    for number in 0..20_000_u32 {
        let [.., high, low] = number.to_be_bytes();
        let from = SocketAddr::new([203, 0, 113, low].into(), 1_000 + u16::from(high));
        let request = message(&Message::Request { nonce: number, is_mld: true });
        let answers = tell(&mut relay, at(number.into()), from, &request);
        answered += answers.len();
        assert!(answers.iter().all(|(_, answer)| answer.len() <= 12 + 76 + 18));
    }
    assert!((600..=700).contains(&answered), "{answered} in 20 s");
    assert_eq!(relay.counters().gateways, 0);
}

#[test]
fn gateways_and_groups_are_bounded() {
    let mut relay = relay(7, None);
    let groups: Vec<_> = (0..300_u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            (RecordKind::IsExclude, IpAddr::from([239, 1, high, low]), None)
        })
        .collect();
    let mut tell_all = |from: SocketAddr, groups: Records<'_>| {
        // The code is made without the limit of answers.
        let mac = relay.mac_for_test(at(0), from, 1);
        for groups in groups.chunks(100) {
            tell(&mut relay, at(0), from, &update(mac, 1, groups));
        }
        relay.counters()
    };
    let counters = tell_all(address(HERE), &groups);
    assert_eq!((counters.memberships, counters.crowded), (GROUPS_MAX, 44));
    for port in 1..=300 {
        tell_all(SocketAddr::new(ip("203.0.113.9"), port), &groups[..1]);
    }
    assert_eq!(tell_all(address(HERE), &groups[..1]).gateways, 1 + GATEWAYS_PER_ADDRESS);
    for number in 0..2_000_u16 {
        let [high, low] = number.to_be_bytes();
        tell_all(SocketAddr::new([10, 0, high, low].into(), 1), &groups[..1]);
    }
    let counters = tell_all(address(HERE), &groups[..1]);
    assert_eq!((counters.gateways, counters.memberships), (GATEWAYS_MAX, GROUPS_MAX));
    let request = message(&Message::Request { nonce: 1, is_mld: false });
    let [(_, answer)] = &tell(&mut relay, at(0), address("192.0.2.77:1"), &request)[..] else { panic!() };
    let Ok(Message::Query { is_limited, .. }) = Message::parse(answer) else { panic!("{answer:?}") };
    assert!(is_limited);
}

#[test]
fn a_gateway_loses_the_groups_that_its_link_does_not_carry() {
    let rate = Rate::from_bits(1_000_000).unwrap();
    let mut relay = relay(7, Some(EgressShape { rate, queue: QueueConfig::drop_tail(50) }));
    let groups = ["239.1.2.1", "239.1.2.2", "239.1.2.3"].map(ip);
    for group in groups {
        let mac = relay.mac_for_test(at(0), address(HERE), 1);
        tell(&mut relay, at(0), address(HERE), &update(mac, 1, &[(RecordKind::IsExclude, group, None)]));
    }
    let channels: Vec<_> = natives(&mut relay).iter().map(|native| native.channel).collect();
    // 0.4, 0.4 and 1.6 Mbit/s.
    let mut run = |from: u64, to: u64| {
        for ms in (from..to).step_by(5) {
            for (index, channel) in channels.iter().enumerate() {
                if index == 2 || ms % 20 == 0 {
                    packet(&mut relay, at(ms), *channel, "192.0.2.1:5");
                }
            }
        }
        relay.counters()
    };
    assert_eq!(run(0, 2_000).pruned, 0);
    assert_eq!(run(2_000, 6_000).pruned, 1);
    let before = run(6_000, 6_500).egress.queue_drops;
    let mut carried = run(6_500, 20_000);
    assert_eq!((carried.pruned, carried.egress.queue_drops), (1, before), "the other groups lose nothing");
    carried = run(20_000, 36_000);
    assert!(carried.egress.queue_drops > before, "tried again after half a minute");
}

fn demand(level: u8, is_starting: bool, loss: f64) -> Demand {
    Demand { level, is_starting, loss: LossClass::of(loss) }
}

/// A relay with a gateway that receives a group from any source.
fn relay_with_member() -> (Relay, ChannelId, [u8; 6]) {
    let mut relay = relay(7, None);
    let mac = proof(&mut relay, at(0), address(HERE), 5);
    let group = ip("239.1.2.3");
    tell(&mut relay, at(0), address(HERE), &update(mac, 5, &[(RecordKind::IsExclude, group, None)]));
    let channel = natives(&mut relay)[0].channel;
    (relay, channel, mac)
}

fn relayed(mac: [u8; 6], sender: &str, demand: Demand) -> Vec<u8> {
    RelayedReport { demand, mac, nonce: 5, sender: address(sender) }.emit().to_vec()
}

/// Passes a packet of a source; returns the reports that the relay sends, with their destinations.
fn reports(relay: &mut Relay, now: Instant, channel: ChannelId, source: &str) -> Vec<(SocketAddr, Demand)> {
    let datagram =
        Datagram { source: address(source), channel: Some(channel), ecn: Ecn::Capable0, payload: &[7; 100] };
    relay.handle(now, Input::Routed(native(0), datagram));
    let sent = drain(relay, now).into_iter();
    let report = |(to, bytes): (SocketAddr, Vec<u8>)| match rtt::Message::parse(&bytes) {
        Ok(rtt::Message::Report(demand)) => Some((to, demand)),
        _ => None,
    };
    sent.filter_map(report).collect()
}

#[test]
fn a_relay_sends_each_sender_the_maximum_of_its_gateways_reports() {
    let (mut relay, channel, mac) = relay_with_member();
    let (source, other) = ("10.0.0.9:7287", "10.0.0.8:7287");
    for (sender, of) in [
        (source, demand(9, false, 0.02)),
        (source, demand(12, false, 0.12)),
        (source, demand(12, false, 0.02)),
        (source, demand(30, false, 0.8)),
        (source, demand(20, true, 0.0)),
        (other, demand(3, false, 0.02)),
    ] {
        assert_eq!(tell(&mut relay, at(10), address(HERE), &relayed(mac, sender, of)), []);
    }
    let sent = reports(&mut relay, at(20), channel, source);
    let of_source = [
        Demand { level: 20, is_starting: true, loss: LossClass::default() },
        demand(12, false, 0.02),
        demand(30, false, 0.8),
    ];
    assert_eq!(sent, of_source.map(|demand| (address(source), demand)));
    assert_eq!(reports(&mut relay, at(21), channel, other), [(address(other), demand(3, false, 0.02))]);
    assert_eq!(reports(&mut relay, at(30), channel, source), [], "each report is sent once");
    assert_eq!((relay.counters().reports, relay.counters().reports_sent), (6, 4));
}

#[test]
fn reports_of_many_receivers_are_merged_to_few() {
    let (mut relay, channel, mac) = relay_with_member();
    let source = "10.0.0.9:7287";
    let mut sent = Vec::new();
    for ms in 0..1_000_u64 {
        let level = u8::try_from(ms % 40).unwrap();
        sent.extend(reports(&mut relay, at(ms), channel, source));
        let report = relayed(mac, source, demand(level, false, 0.02));
        let datagram =
            Datagram { source: address(HERE), channel: None, ecn: Ecn::NotCapable, payload: &report };
        relay.handle(at(ms), Input::Routed(tunnel(0), datagram));
    }
    assert!((9..=11).contains(&sent.len()), "{}", sent.len());
    assert!(sent[1..].iter().all(|(_, demand)| demand.level == 39), "{sent:?}");
}

#[test]
fn a_relay_reports_to_sources_of_its_packets_alone() {
    let (mut relay, channel, mac) = relay_with_member();
    let source = "10.0.0.9:7287";
    // A host that sends nothing, another port of the source, and another IP version.
    for sender in ["192.0.2.1:53", "10.0.0.9:53", "[2001:db8::9]:7287"] {
        tell(&mut relay, at(0), address(HERE), &relayed(mac, sender, demand(9, false, 0.02)));
    }
    assert_eq!(relay.counters().refused.forged, 1, "the gateway receives no IPv6 group");
    assert_eq!(reports(&mut relay, at(10), channel, source), []);
    // A wrong code, an address without memberships, and bytes that are no report.
    let forged = relayed([9; 6], source, demand(9, false, 0.02));
    tell(&mut relay, at(20), address(HERE), &forged);
    let stranger = address("203.0.113.8:40000");
    let code = proof(&mut relay, at(20), stranger, 5);
    tell(&mut relay, at(20), stranger, &relayed(code, source, demand(9, false, 0.02)));
    tell(&mut relay, at(20), address(HERE), &forged[..20]);
    assert_eq!((relay.counters().refused.forged, relay.counters().refused.malformed), (3, 1));
    assert_eq!(reports(&mut relay, at(30), channel, source), []);
    // Packets that came too long ago.
    tell(&mut relay, at(6_000), address(HERE), &relayed(mac, source, demand(9, false, 0.02)));
    tell(&mut relay, at(12_000), address(HERE), &relayed(mac, source, demand(9, false, 0.02)));
    assert_eq!(drain(&mut relay, at(12_000)), []);
    assert_eq!(reports(&mut relay, at(12_010), channel, source).len(), 1);
}

#[test]
fn a_gateway_cannot_fill_a_relay_with_senders() {
    let (mut relay, channel, mac) = relay_with_member();
    for number in 0..1_000_u16 {
        let sender = SocketAddr::new(ip("10.0.0.9"), number + 1).to_string();
        tell(&mut relay, at(0), address(HERE), &relayed(mac, &sender, demand(9, false, 0.02)));
    }
    assert_eq!((relay.counters().reports, relay.counters().crowded), (1_000, 0));
    // Addresses of which no packet has come make room.
    let source = "10.0.0.9:7287";
    tell(&mut relay, at(0), address(HERE), &relayed(mac, source, demand(9, false, 0.02)));
    assert_eq!(reports(&mut relay, at(10), channel, source).len(), 1);
}

#[test]
fn a_report_to_a_sender_that_has_ended_wakes_nobody() {
    let (mut relay, channel, mac) = relay_with_member();
    let source = "10.0.0.9:7287";
    tell(&mut relay, at(0), address(HERE), &relayed(mac, source, demand(9, false, 0.02)));
    reports(&mut relay, at(0), channel, source);
    tell(&mut relay, at(6_000), address(HERE), &relayed(mac, source, demand(9, false, 0.02)));
    relay.handle(at(7_000), Input::Timeout);
    relay.handle(at(8_100), Input::Timeout);
    assert!(relay.poll_timeout().is_none_or(|due| due > at(8_100)), "{:?}", relay.poll_timeout());
}

/// A report to a roster, as the sender gets the report, and as the gateway sends the report.
fn roster_report(mac: [u8; 6], sender: &str) -> (RosterHeader, Vec<u8>, Vec<u8>) {
    let header = RosterHeader { kind: ReportKind::Done, receiver: 7, cookie: 9, sequence: 3 };
    let (mut bytes, mut message) = ([0; REPORT_BYTES_MAX], [0; RELAYED_BYTES_MAX]);
    let state = Some(ReceiverState::default());
    let length = Report { header, state, name: Some("a-host") }.emit(&mut bytes);
    let report = &bytes[..length];
    let relayed = RelayedRosterReport { report, mac, nonce: 5, sender: address(sender) };
    let length = relayed.emit(&mut message).unwrap();
    (header, report.to_vec(), message[..length].to_vec())
}

#[test]
fn a_relay_passes_reports_to_a_roster_on_and_their_replies_back() {
    let (mut relay, channel, mac) = relay_with_member();
    let source = "10.0.0.9:7287";
    let (header, report, message) = roster_report(mac, source);
    assert_eq!(tell(&mut relay, at(10), address(HERE), &message), [], "no packet of the sender has come");
    packet(&mut relay, at(20), channel, source);
    assert_eq!(tell(&mut relay, at(30), address(HERE), &message), [(address(source), report)]);
    let reply = Reply { header, exponent: 1, is_counted: true }.emit();
    assert_eq!(tell(&mut relay, at(40), address("10.0.0.9:53"), &reply), [], "another port of the source");
    assert_eq!(tell(&mut relay, at(40), address(source), &reply), [(address(HERE), reply.to_vec())]);
    assert_eq!(tell(&mut relay, at(50), address(source), &reply), [], "one reply for a report");
    assert_eq!((relay.counters().passed, relay.counters().refused.malformed), (2, 2));
}

#[test]
fn a_relay_passes_no_report_to_a_roster_of_a_stranger_or_to_a_stranger() {
    let (mut relay, channel, mac) = relay_with_member();
    let (source, other) = ("10.0.0.9:7287", "192.0.2.1:53");
    let (_, _, message) = roster_report(mac, source);
    let (_, _, forged) = roster_report([9; 6], source);
    let (_, _, to_stranger) = roster_report(mac, other);
    let stranger = address("203.0.113.8:40000");
    let code = proof(&mut relay, at(0), stranger, 5);
    let (_, _, of_no_member) = roster_report(code, source);
    for ms in [0, 100, 200] {
        packet(&mut relay, at(ms), channel, source);
        for (from, bytes) in [
            (address(HERE), &forged),
            (address(HERE), &to_stranger),
            (stranger, &of_no_member),
            (stranger, &message),
        ] {
            assert_eq!(tell(&mut relay, at(ms + 10), from, bytes), []);
        }
    }
    assert_eq!((relay.counters().passed, relay.counters().refused.forged), (0, 9));
}
