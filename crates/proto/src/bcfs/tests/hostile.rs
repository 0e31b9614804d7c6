//! What ends that mean harm, or are mistaken, can do to a router.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind};

use crate::bcfs::{BreadcrumbRouter, Label, Level, REQUEST_BODY_BYTES_MAX, RouterConfig};
use crate::machine::{Datagram, Destination, Ecn, Input, InterfaceId, Machine, Output, RouterOutput};
use crate::time::{Duration, Instant};

const UPSTREAM: InterfaceId = InterfaceId(0);
const BELOW: InterfaceId = InterfaceId(1);
const START: Instant = Instant::from_nanos(20_000_000_000);

fn source() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 7_000))
}

fn router(entries: usize) -> BreadcrumbRouter<InterfaceId> {
    BreadcrumbRouter::new(RouterConfig::default().with_entries(entries), UPSTREAM)
}

fn message(kind: Kind, label: u32, level: u16) -> Header {
    Header::new(kind, source(), Label(label), Level(level))
}

/// Hands bytes over, and how many datagrams come out.
fn give(
    router: &mut BreadcrumbRouter<InterfaceId>,
    now: Instant,
    ingress: InterfaceId,
    bytes: &[u8],
) -> usize {
    let datagram = Datagram { source: source(), channel: None, ecn: Ecn::NotCapable, payload: bytes };
    router.handle(now, Input::Routed(ingress, datagram));
    let mut buffer = [0; 600];
    core::iter::from_fn(|| router.poll_output(now, &mut buffer)).count()
}

fn hand(router: &mut BreadcrumbRouter<InterfaceId>, ingress: InterfaceId, header: Header) -> usize {
    let mut bytes = [0; 32];
    let len = header.emit(&mut bytes).expect("room");
    give(router, START, ingress, &bytes[..len])
}

#[test]
fn a_flood_of_labels_stays_within_the_bound_and_the_latest_are_served() {
    let mut router = router(1_000);
    for label in 0..50_000 {
        assert_eq!(hand(&mut router, BELOW, message(Kind::Request, label, 1)), 1);
        assert!(router.entries() <= 1_000 && router.links() <= 4_000);
    }
    assert_eq!(router.counters().evicted, 49_000);
    assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, 48_999, 1)), 0, "it gave way");
    for label in 49_000..50_000 {
        assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, label, 1)), 1, "{label}");
    }
    assert_eq!((router.entries(), router.links()), (0, 0));
}

#[test]
fn many_links_at_one_label_stay_within_the_bound() {
    let mut router = router(10);
    for link in 1..=1_000 {
        hand(&mut router, InterfaceId(link), message(Kind::Request, 1, 1));
        assert!(router.links() <= 40);
    }
    assert_eq!(
        hand(&mut router, UPSTREAM, message(Kind::Reply, 1, 1)),
        40,
        "of 25 evictions, the last is full"
    );
}

#[test]
fn the_highest_level_holds_others_back_only_until_a_null_follows() {
    let mut router = router(10);
    assert_eq!(hand(&mut router, BELOW, message(Kind::Request, 1, u16::MAX)), 1);
    assert_eq!(hand(&mut router, InterfaceId(2), message(Kind::Request, 1, u16::MAX)), 0, "held back");
    let mut bytes = [0; 20];
    message(Kind::Request, 1, 2).emit(&mut bytes).expect("room");
    let later = START + Duration::from_millis(1_001);
    let payload = &bytes;
    let datagram = Datagram { source: source(), channel: None, ecn: Ecn::NotCapable, payload };
    router.handle(later, Input::Routed(InterfaceId(2), datagram));
    let mut buffer = [0; 600];
    let Some(Output::Router(RouterOutput::Transmit { egress: UPSTREAM, transmit })) =
        router.poll_output(later, &mut buffer)
    else {
        panic!("a null goes up");
    };
    let (null, _) = Header::parse(&buffer[..transmit.bytes]).expect("a message");
    assert_eq!((null.kind, null.level, null.hops), (Kind::Null, Level(u16::MAX), 31));
    assert_eq!((router.counters().refreshed, router.counters().suppressed), (1, 2));
    assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, 1, u16::MAX)), 2);
    assert_eq!(router.entries(), 0);
}

#[test]
fn what_dies_on_the_way_holds_nobody_back() {
    let mut router = router(10);
    assert_eq!(hand(&mut router, BELOW, Header { hops: 1, ..message(Kind::Request, 1, u16::MAX) }), 1);
    let honest = message(Kind::Request, 1, 1);
    assert_eq!(hand(&mut router, InterfaceId(2), honest), 1, "a null that comes further");
    assert_eq!(hand(&mut router, InterfaceId(3), honest), 0, "it has gone far enough");
    assert_eq!(hand(&mut router, InterfaceId(4), honest), 0);
}

#[test]
fn for_want_of_links_the_breadcrumb_that_is_asked_for_stays() {
    let mut router = router(10);
    for label in 1..=2 {
        (1..=20).for_each(|link| {
            hand(&mut router, InterfaceId(link), message(Kind::Request, label, 1));
        });
    }
    assert_eq!(hand(&mut router, InterfaceId(21), message(Kind::Request, 1, 1)), 0, "asked for already");
    assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, 1, 1)), 21);
    assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, 2, 1)), 0, "the other gave way");
}

#[test]
fn replies_do_not_go_back_where_the_route_turned_round() {
    let mut router = router(10);
    for link in 1..=2 {
        hand(&mut router, InterfaceId(link), message(Kind::Null, 1, 1));
    }
    *router.routes_mut() = BELOW;
    assert_eq!(hand(&mut router, BELOW, message(Kind::Reply, 1, 0)), 1, "the other link");
    assert_eq!((router.counters().forwarded, router.links()), (1, 2));
}

#[test]
fn a_request_goes_on_as_it_came_but_for_a_hop() {
    let mut router = router(10);
    let mut bytes = [7; 24];
    message(Kind::Request, 1, 1).emit(&mut bytes).expect("room");
    let datagram = Datagram { source: source(), channel: None, ecn: Ecn::NotCapable, payload: &bytes };
    router.handle(START, Input::Routed(BELOW, datagram));
    let mut buffer = [0; 600];
    let Some(Output::Router(RouterOutput::Transmit { egress: UPSTREAM, transmit })) =
        router.poll_output(START, &mut buffer)
    else {
        panic!("it goes up");
    };
    assert_eq!(transmit.destination, Destination::Unicast(source()));
    let sent = Header::parse(&buffer[..transmit.bytes]).expect("a message");
    assert_eq!(sent, (Header { hops: 31, ..message(Kind::Request, 1, 1) }, &[7; 4][..]));
    hand(&mut router, InterfaceId(2), message(Kind::Null, 1, 1));
    hand(&mut router, UPSTREAM, message(Kind::Reply, 1, 1));
    let is = router.counters();
    assert_eq!((is.requests, is.nulls, is.replies), (1, 1, 1));
    assert_eq!((is.sent_on, is.suppressed, is.refreshed, is.forwarded), (1, 1, 0, 2));
}

#[test]
fn what_is_not_in_order_is_dropped_and_counted() {
    let mut router = router(10);
    let mut refused = |ingress, header| assert_eq!(hand(&mut router, ingress, header), 0, "{header:?}");
    refused(UPSTREAM, message(Kind::Reply, 1, 1));
    refused(BELOW, message(Kind::Reply, 1, 1));
    refused(UPSTREAM, message(Kind::Request, 1, 1));
    refused(UPSTREAM, message(Kind::Null, 1, 1));
    refused(BELOW, Header { hops: 0, ..message(Kind::Request, 1, 1) });
    for nobody in ["0.0.0.0:7000", "239.1.1.1:7000", "192.0.2.1:0", "[ff15::1]:7000"] {
        let source = nobody.parse().expect("an address");
        refused(BELOW, Header { source, ..message(Kind::Request, 1, 1) });
    }
    assert_eq!(give(&mut router, START, BELOW, b"HWB"), 0);
    let mut long = [0; 20 + REQUEST_BODY_BYTES_MAX + 1];
    message(Kind::Request, 1, 1).emit(&mut long).expect("room");
    assert_eq!(give(&mut router, START, BELOW, &long), 0);
    let dropped = router.counters().dropped;
    assert_eq!((dropped.unsolicited, dropped.not_from_upstream, dropped.from_upstream), (1, 1, 2));
    assert_eq!((dropped.hops, dropped.no_route, dropped.malformed, dropped.too_long), (1, 4, 1, 1));
    assert_eq!((dropped.total(), router.entries()), (11, 0));
    assert_eq!(give(&mut router, START, BELOW, &long[..20 + REQUEST_BODY_BYTES_MAX]), 1, "as long as may be");
}

#[test]
fn a_null_without_a_breadcrumb_leaves_one() {
    let mut router = router(10);
    assert_eq!(hand(&mut router, BELOW, message(Kind::Null, 1, 1)), 1);
    assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, 1, 0)), 1);
    assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, 1, 0)), 1, "level 0 takes nothing away");
    assert_eq!(hand(&mut router, UPSTREAM, message(Kind::Reply, 1, 1)), 1);
    assert_eq!(router.entries(), 0);
}

#[test]
fn who_is_gone_gets_no_more_replies_although_others_keep_the_breadcrumb() {
    let mut router = router(10);
    let mut bytes = [0; 20];
    message(Kind::Null, 1, 1).emit(&mut bytes).expect("room");
    let mut now = START;
    give(&mut router, now, InterfaceId(2), &bytes);
    let mut reply = [0; 20];
    message(Kind::Reply, 1, 0).emit(&mut reply).expect("room");
    let mut sent = Vec::new();
    for _ in 0..5 {
        give(&mut router, now, BELOW, &bytes);
        sent.push(give(&mut router, now, UPSTREAM, &reply));
        now += Duration::from_secs(4);
    }
    assert_eq!(sent, [2, 2, 2, 1, 1]);
    assert_eq!(router.counters().links_expired, 1);
}

#[test]
fn requests_in_a_circle_come_to_an_end() {
    let mut routers = [router(10), router(10), router(10)];
    // Each sends up to the next; requests come from the one before by interface 1.
    let mut bytes = vec![0; 20];
    message(Kind::Request, 1, 1).emit(&mut bytes).expect("room");
    let (mut now, mut passed, mut buffer) = (START, 0, [0; 600]);
    let mut ingress = InterfaceId(2);
    for step in 0..1_000 {
        let datagram = Datagram { source: source(), channel: None, ecn: Ecn::NotCapable, payload: &bytes };
        routers[step % 3].handle(now, Input::Routed(ingress, datagram));
        let Some(Output::Router(RouterOutput::Transmit { transmit, .. })) =
            routers[step % 3].poll_output(now, &mut buffer)
        else {
            break;
        };
        bytes = buffer[..transmit.bytes].to_vec();
        (passed, ingress) = (step + 1, BELOW);
        // As slow as nulls must be to follow each other.
        now += Duration::from_millis(1_001);
    }
    assert_eq!(passed, 32, "the hops that it was given");
}
