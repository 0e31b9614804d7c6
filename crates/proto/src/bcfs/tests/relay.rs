//! Relays between addresses.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind};

use crate::bcfs::relay::{EgressShape, MulticastLink, Relay, RelayConfig, Upstream};
use crate::bcfs::{Label, Level, RouterConfig};
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Input, Machine, Output};
use crate::queue::QueueConfig;
use crate::rate::Rate;
use crate::rng::Seed;
use crate::time::{Duration, Instant};

const START: Instant = Instant::from_nanos(1_000_000_000);

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 7_000))
}

fn unicast(last: u8) -> Destination {
    Destination::Unicast(address(last))
}

fn config() -> RelayConfig {
    RelayConfig::new(RouterConfig::default().with_entries(1_000), Seed(1))
}

fn relay(config: RelayConfig) -> Relay {
    Relay::new(config).expect("sound numbers")
}

/// A message about the source with this last octet.
fn message(kind: Kind, source: u8, label: u32, body: usize) -> Vec<u8> {
    about(kind, address(source), label, body)
}

fn about(kind: Kind, source: SocketAddr, label: u32, body: usize) -> Vec<u8> {
    // Addresses of IPv6 are 12 bytes longer.
    let mut bytes = vec![0; if source.is_ipv4() { 20 } else { 32 } + body];
    Header::new(kind, source, Label(label), Level::ONE).emit(&mut bytes).expect("room");
    bytes
}

/// All that leaves at `now`: where to, and what.
fn sent(relay: &mut Relay, now: Instant) -> Vec<(Destination, Vec<u8>)> {
    let mut buffer = vec![0; crate::DATAGRAM_BYTES_MAX];
    core::iter::from_fn(|| match relay.poll_output(now, &mut buffer)? {
        Output::Transmit(transmit) => Some((transmit.destination, buffer[..transmit.bytes].to_vec())),
        other => panic!("{other:?}"),
    })
    .collect()
}

fn give(relay: &mut Relay, now: Instant, from: u8, payload: &[u8]) {
    give_from(relay, now, address(from), payload);
}

fn give_from(relay: &mut Relay, now: Instant, source: SocketAddr, payload: &[u8]) {
    let datagram = Datagram { source, channel: None, ecn: Ecn::Capable0, payload };
    relay.handle(now, Input::Datagram(datagram));
}

/// Hands a message over; where its consequences go.
fn play(relay: &mut Relay, now: Instant, from: u8, payload: &[u8]) -> Vec<Destination> {
    give(relay, now, from, payload);
    sent(relay, now).into_iter().map(|(destination, _)| destination).collect()
}

#[test]
fn requests_of_many_become_one_and_the_reply_goes_to_all() {
    let mut relay = relay(config());
    let request = message(Kind::Request, 1, 7, 4);
    assert_eq!(play(&mut relay, START, 10, &request), [unicast(1)], "the source itself");
    assert_eq!(play(&mut relay, START, 11, &request), []);
    let reply = message(Kind::Reply, 1, 7, 1_000);
    give(&mut relay, START, 1, &reply);
    let mut copies = sent(&mut relay, START);
    copies.sort_unstable_by_key(|(destination, _)| format!("{destination:?}"));
    assert_eq!(copies, [(unicast(10), reply.clone()), (unicast(11), reply.clone())], "unchanged");
    assert_eq!(play(&mut relay, START, 1, &reply), [], "nobody waits any more");
    let counters = relay.counters();
    assert_eq!((counters.egress.sent, counters.entries, counters.neighbours), (3, 0, 3));
    assert_eq!(counters.router.dropped.unsolicited, 1);
}

#[test]
fn several_messages_may_come_before_it_is_drained() {
    let mut relay = relay(config());
    for label in 0..20 {
        give(&mut relay, START, 10, &message(Kind::Request, 1, label, 4));
    }
    assert_eq!(sent(&mut relay, START).len(), 20);
    for label in 0..20 {
        give(&mut relay, START, 1, &message(Kind::Reply, 1, label, 100 + label as usize));
    }
    let lens: Vec<_> = sent(&mut relay, START).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens, (0..20).map(|label| 120 + label).collect::<Vec<_>>());
}

#[test]
fn each_source_has_its_way_and_replies_come_by_that_alone() {
    let own = Upstream { source: Some(address(2)), via: address(5) };
    let all = Upstream { source: None, via: address(6) };
    let mut relay = relay(config().with_upstreams(vec![all, own]));
    assert_eq!(play(&mut relay, START, 10, &message(Kind::Request, 1, 7, 4)), [unicast(6)]);
    assert_eq!(play(&mut relay, START, 10, &message(Kind::Request, 2, 7, 4)), [unicast(5)]);
    let reply = message(Kind::Reply, 2, 7, 100);
    assert_eq!(play(&mut relay, START, 2, &reply), [], "nobody was asked there");
    assert_eq!(play(&mut relay, START, 6, &reply), [], "another source is asked there");
    assert_eq!(play(&mut relay, START, 10, &reply), [], "by one who asks");
    assert_eq!(play(&mut relay, START, 5, &reply), [unicast(10)]);
    let counters = relay.counters();
    assert_eq!((counters.refused.stranger, counters.router.dropped.not_from_upstream), (1, 2));
    assert_eq!(play(&mut relay, START, 5, &message(Kind::Request, 2, 8, 4)), [], "a circle of two");
    assert_eq!(relay.counters().router.dropped.from_upstream, 1);
}

#[test]
fn only_sources_that_are_named_are_asked() {
    let mut relay = relay(config().with_sources(vec![address(1)]));
    assert_eq!(play(&mut relay, START, 10, &message(Kind::Request, 2, 7, 4)), []);
    assert_eq!(play(&mut relay, START, 10, &message(Kind::Request, 1, 7, 4)), [unicast(1)]);
    assert_eq!(relay.counters().refused.source, 1);
}

#[test]
fn who_asks_too_fast_is_not_heard_and_the_others_are() {
    let mut relay = relay(config().with_requests_per_second(1_000));
    for label in 0..500 {
        give(&mut relay, START, 10, &message(Kind::Request, 1, label, 4));
    }
    assert_eq!(relay.counters().router.requests, 101, "a tenth of a second's, and one");
    give(&mut relay, START, 11, &message(Kind::Request, 1, 9, 4));
    assert_eq!(relay.counters().router.requests, 102);
    let later = START + Duration::from_millis(50);
    for label in 500..1_000 {
        give(&mut relay, later, 10, &message(Kind::Request, 1, label, 4));
    }
    assert_eq!(relay.counters().router.requests, 152);
    assert_eq!(relay.counters().refused.too_fast, 399 + 450);
}

#[test]
fn who_never_replies_is_asked_slowly_and_who_does_is_not() {
    let mut relay = relay(config());
    let mut asked = 0;
    for step in 0..1_000 {
        let now = START + Duration::from_millis(10 * step);
        asked += play(&mut relay, now, 10, &message(Kind::Request, 1, u32::try_from(step).unwrap(), 4)).len();
    }
    assert_eq!(asked, 41 + 199, "a burst, and 20 a second");
    assert_eq!(relay.counters().refused.unproven, 1_000 - 240);
    let now = START + Duration::from_secs(10);
    assert_eq!(play(&mut relay, now, 1, &message(Kind::Reply, 1, 999, 4)), [unicast(10)]);
    for label in 2_000..2_300 {
        assert_eq!(play(&mut relay, now, 10, &message(Kind::Request, 1, label, 4)), [unicast(1)]);
    }
}

#[test]
fn who_names_sources_at_random_takes_no_places_of_others() {
    let mut relay = relay(config());
    let named = |i: u16| {
        let [high, low] = i.to_be_bytes();
        SocketAddr::from(([198, 51, high, low], 7_000))
    };
    for step in 0..20 {
        let now = START + Duration::from_secs(step);
        for i in 0..2_000 {
            give(&mut relay, now, 10, &about(Kind::Request, named(i), u32::from(i), 4));
        }
        sent(&mut relay, now);
        let other = u8::try_from(20 + step).unwrap();
        assert_eq!(
            play(&mut relay, now, other, &message(Kind::Request, other + 100, 7, 4)),
            [unicast(other + 100)]
        );
    }
    assert!(relay.counters().neighbours < 700, "{:?}", relay.counters());
}

#[test]
fn a_host_is_not_asked_faster_by_many_of_its_ports() {
    let mut relay = relay(config());
    for port in 1..400 {
        give(&mut relay, START, 10, &about(Kind::Request, (address(1).ip(), port).into(), port.into(), 4));
    }
    assert_eq!(sent(&mut relay, START).len(), 41);
}

#[test]
fn a_relay_above_is_asked_as_fast_as_need_be() {
    let above = Upstream { source: None, via: address(5) };
    let mut relay = relay(config().with_upstreams(vec![above]));
    for label in 0..400 {
        assert_eq!(play(&mut relay, START, 10, &message(Kind::Request, 1, label, 4)), [unicast(5)]);
    }
}

#[test]
fn from_elsewhere_nobody_reaches_loopback_and_groups() {
    let inside = SocketAddr::from(([127, 0, 0, 1], 53));
    let mut relay = relay(config());
    for source in ["127.0.0.1:53", "0.0.0.0:53", "239.1.2.3:53", "[::1]:53", "[ff02::1]:53"] {
        let source = source.parse().expect("an address");
        assert_eq!(play(&mut relay, START, 10, &about(Kind::Request, source, 7, 4)), [], "{source}");
    }
    assert_eq!(relay.counters().refused.source, 5);
    give_from(&mut relay, START, (inside.ip(), 7_000).into(), &about(Kind::Request, inside, 7, 4));
    assert_eq!(sent(&mut relay, START)[0].0, Destination::Unicast(inside), "from inside");
}

#[test]
fn addresses_of_a_link_keep_their_scope_and_mapped_ones_are_known() {
    let parsed = |text: &str| text.parse::<SocketAddr>().expect("an address");
    let (via, source) = (parsed("[fe80::1%2]:7289"), parsed("[::ffff:192.0.2.1]:7000"));
    let upstreams = vec![Upstream { source: Some(source), via }];
    let mut relay = relay(config().with_upstreams(upstreams).with_sources(vec![source]));
    let askers = [parsed("[fe80::2%2]:9"), parsed("[fe80::2%3]:9")];
    for asker in askers {
        give_from(&mut relay, START, asker, &message(Kind::Request, 1, 7, 4));
    }
    let up: Vec<_> = sent(&mut relay, START).into_iter().map(|(to, _)| to).collect();
    assert_eq!(up, [Destination::Unicast(via)]);
    give_from(&mut relay, START, via, &message(Kind::Reply, 1, 7, 4));
    let down: Vec<_> = sent(&mut relay, START).into_iter().map(|(to, _)| to).collect();
    assert!(
        down.len() == 2 && askers.iter().all(|asker| down.contains(&Destination::Unicast(*asker))),
        "{down:?}"
    );
}

#[test]
fn neighbours_are_bounded_and_silent_ones_give_way() {
    let mut relay = relay(config().with_neighbours(4));
    for from in 10..20 {
        give(&mut relay, START, from, &message(Kind::Request, 1, from.into(), 4));
    }
    let counters = relay.counters();
    assert_eq!(
        (counters.neighbours, counters.refused.no_neighbour),
        (4, 7),
        "three that ask, and the source"
    );
    let later = START + Duration::from_secs(11);
    sent(&mut relay, START);
    assert_eq!(play(&mut relay, later, 30, &message(Kind::Request, 1, 1, 4)), [unicast(1)]);
    assert_eq!(relay.counters().neighbours, 4);
    assert_eq!(play(&mut relay, later, 1, &message(Kind::Reply, 1, 10, 4)), [], "who is gone is not sent to");
    assert_eq!(play(&mut relay, later, 1, &message(Kind::Reply, 1, 1, 4)), [unicast(30)]);
}

#[test]
fn a_link_of_many_receivers_gets_one_reply_for_all() {
    let network = "192.0.2.64".parse().unwrap();
    let channel = ChannelId(0);
    let mut relay = relay(config().with_links(vec![MulticastLink { network, prefix: 26, channel }]));
    for from in [64, 65, 127, 128] {
        give(&mut relay, START, from, &message(Kind::Request, 1, 7, 4));
    }
    assert_eq!(sent(&mut relay, START).len(), 1);
    let mut to = play(&mut relay, START, 1, &message(Kind::Reply, 1, 7, 100));
    to.sort_unstable_by_key(|destination| format!("{destination:?}"));
    assert_eq!(to, [Destination::Channel(channel), unicast(128)]);
}

#[test]
fn a_link_with_a_rate_queues_and_drops() {
    let queue = QueueConfig::drop_tail(5);
    // 1000 bytes with their headers each 10 ms.
    let shape = EgressShape { rate: Rate::from_bits(800_000).expect("above 0"), queue };
    let mut relay = relay(config().with_shape(Some(shape)));
    for from in [10, 11] {
        for label in 0..10 {
            give(&mut relay, START, from, &message(Kind::Request, 1, label, 4));
        }
    }
    sent(&mut relay, START);
    for label in 0..10 {
        give(&mut relay, START, 1, &message(Kind::Reply, 1, label, 1_000 - 28 - 20));
    }
    let mut times = Vec::new();
    for millis in 0..100 {
        let now = START + Duration::from_millis(millis);
        times.extend(sent(&mut relay, now).iter().map(|_| millis));
        assert!(relay.poll_timeout().is_none_or(|at| at > now));
    }
    assert_eq!(times, [0, 0, 10, 10, 20, 20, 30, 30, 40, 40], "each link by itself");
    assert_eq!(relay.counters().egress.queue_drops, 10, "of each, what found five waiting");
}

#[test]
fn what_waits_at_slow_links_stops_no_others() {
    let shape =
        EgressShape { rate: Rate::from_bits(8_000).expect("above 0"), queue: QueueConfig::drop_tail(20_000) };
    let mut relay = relay(config().with_shape(Some(shape)));
    play(&mut relay, START, 10, &message(Kind::Request, 1, 0, 4));
    let mut now = START;
    for label in 0..20_000 {
        now += Duration::from_micros(200);
        let from = if label % 2 == 0 { 10 } else { 11 };
        give(&mut relay, now, from, &message(Kind::Request, 1, label, 4));
        sent(&mut relay, now);
        give(&mut relay, now, 1, &message(Kind::Reply, 1, label, 0));
    }
    assert!(relay.counters().egress.no_room > 10_000, "{:?}", relay.counters());
    assert_eq!(play(&mut relay, now, 12, &message(Kind::Request, 1, 30_000, 4)), [unicast(1)]);
    assert_eq!(play(&mut relay, now, 1, &message(Kind::Reply, 1, 30_000, 0)), [unicast(12)]);
}

#[test]
fn a_relay_that_is_started_again_serves_who_asks_again() {
    let mut first = relay(config());
    play(&mut first, START, 10, &message(Kind::Request, 1, 7, 4));
    let mut second = relay(config());
    assert_eq!(play(&mut second, START, 1, &message(Kind::Reply, 1, 7, 4)), [], "it knows of nobody");
    assert_eq!(play(&mut second, START, 10, &message(Kind::Request, 1, 7, 4)), [unicast(1)]);
    assert_eq!(play(&mut second, START, 1, &message(Kind::Reply, 1, 7, 4)), [unicast(10)]);
}

/// Two who ask for any reply of a source, at different times and by different labels: what one was sent is
/// kept for the other.
#[test]
fn a_reply_of_which_any_would_do_is_sent_down_once_for_all() {
    let any = |kind, label, body| {
        let mut bytes = message(kind, 1, label, body);
        headwater_wire::bcfs::mark_any(&mut bytes);
        bytes
    };
    let mut relay = relay(config());
    for label in 1..=3 {
        assert_eq!(play(&mut relay, START, 10, &any(Kind::Request, label, 4)), [unicast(1)]);
        assert_eq!(play(&mut relay, START, 1, &any(Kind::Reply, label, 100)), [unicast(10)]);
    }
    let later = START + Duration::from_millis(100);
    give(&mut relay, later, 11, &any(Kind::Request, 9, 4));
    assert_eq!(sent(&mut relay, later), [(unicast(11), any(Kind::Reply, 9, 100))]);
    assert_eq!(
        play(&mut relay, later, 11, &message(Kind::Request, 1, 8, 4)),
        [unicast(1)],
        "of this label alone"
    );
    assert_eq!(play(&mut relay, later, 10, &any(Kind::Request, 1, 4)), [unicast(1)], "it has had them");
    let too_late = START + Duration::from_secs(2);
    assert_eq!(play(&mut relay, too_late, 11, &any(Kind::Request, 9, 4)), [unicast(1)]);
    assert_eq!(relay.counters().router.answered, 1);
    assert_eq!(relay.counters().router.requests, 6);
}

/// A message of which any would do.
fn any(kind: Kind, label: u32, level: u16, body: u8) -> Vec<u8> {
    let header = Header { is_any: true, ..Header::new(kind, address(1), Label(label), Level(level)) };
    let mut bytes = vec![body; header.buffer_len() + 1];
    header.emit(&mut bytes).expect("room");
    bytes
}

/// What answers a request that any reply would do for from what was kept: its level, whether it followed a
/// loss, and its body.
fn kept(relay: &mut Relay, now: Instant, from: u8, label: u32, level: u16) -> (u16, bool, u8) {
    give(relay, now, from, &any(Kind::Request, label, level, 0));
    let [(to, bytes)] = &sent(relay, now)[..] else { panic!("one answer") };
    let (header, body) = Header::parse(bytes).expect("a message");
    assert_eq!(
        (*to, header.kind, header.label, header.is_any),
        (unicast(from), Kind::Reply, Label(label), true)
    );
    (header.level.0, header.follows_loss, body[0])
}

/// The reply, or the request, was lost above: what it left is cleared by a higher level, which no reply that
/// was kept may hold up. Who gets it from what is kept is told of the loss.
#[test]
fn a_level_raised_over_a_breadcrumb_goes_up_whatever_was_kept() {
    let mut relay = relay(config());
    assert_eq!(play(&mut relay, START, 10, &any(Kind::Request, 5, 1, 0)), [unicast(1)]);
    assert_eq!(play(&mut relay, START, 11, &any(Kind::Request, 6, 1, 0)), [unicast(1)]);
    assert_eq!(play(&mut relay, START, 1, &any(Kind::Reply, 6, 1, 60)), [unicast(11)]);
    let later = START + Duration::from_millis(100);
    assert_eq!(play(&mut relay, later, 10, &any(Kind::Request, 5, 2, 0)), [unicast(1)]);
    assert_eq!(play(&mut relay, later, 1, &any(Kind::Reply, 5, 2, 50)), [unicast(10)]);
    assert_eq!(relay.counters().router.answered, 0);
    assert_eq!(relay.counters().entries, 0);
    assert_eq!([7, 8].map(|label| kept(&mut relay, later, 12, label, 1)), [(1, false, 60), (1, true, 50)]);
}

/// Where no breadcrumb is left, the reply passed and was lost below: nothing above needs to be cleared, and
/// nobody else lost anything.
#[test]
fn a_level_raised_for_what_was_lost_below_is_answered_from_what_was_kept() {
    let mut relay = relay(config());
    for label in [5, 6] {
        assert_eq!(play(&mut relay, START, 10, &any(Kind::Request, label, 1, 0)), [unicast(1)]);
        assert_eq!(play(&mut relay, START, 1, &any(Kind::Reply, label, 1, 50)), [unicast(10)]);
    }
    assert_eq!(play(&mut relay, START, 11, &any(Kind::Request, 9, 2, 0)), [unicast(11)]);
    assert_eq!(kept(&mut relay, START, 11, 9, 3), (3, false, 50));
    // Nothing is left that it has not had.
    assert_eq!(play(&mut relay, START, 11, &any(Kind::Request, 9, 4, 0)), [unicast(1)]);
    assert_eq!(play(&mut relay, START, 1, &any(Kind::Reply, 9, 4, 90)), [unicast(11)]);
    assert_eq!((relay.counters().router.answered, relay.counters().entries), (2, 0));
    assert_eq!(
        kept(&mut relay, START, 10, 7, 1),
        (1, false, 90),
        "only asked for with a level from the start"
    );
}

/// A relay above tells of what was lost above it; so does the one below.
#[test]
fn a_loss_above_is_told_from_relay_to_relay() {
    let mut relay = relay(config());
    let mut reply = any(Kind::Reply, 5, 1, 50);
    let (header, _) = Header::parse(&reply).expect("a message");
    Header { follows_loss: true, ..header }.emit(&mut reply).expect("room");
    assert_eq!(play(&mut relay, START, 10, &any(Kind::Request, 5, 1, 0)), [unicast(1)]);
    assert_eq!(play(&mut relay, START, 1, &reply), [unicast(10)]);
    assert_eq!(kept(&mut relay, START, 11, 7, 1), (1, true, 50));
}
