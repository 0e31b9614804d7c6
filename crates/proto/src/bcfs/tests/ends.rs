//! What clients and sources take and leave.

use core::net::SocketAddr;

use headwater_wire::bcfs::{Header, Kind};

use crate::bcfs::{
    Asked, BINDINGS_MAX, BcfsSource, Client, Label, Level, ReplyTo, ReturnPath, TooManyBindings,
};
use crate::machine::{ChannelId, Datagram, Destination, Ecn, Transmit};
use crate::time::{Duration, Instant};

const LABEL: Label = Label(0x0100_0007);

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 7_000))
}

fn datagram(source: SocketAddr, payload: &[u8]) -> Datagram<'_> {
    Datagram { source, channel: None, ecn: Ecn::NotCapable, payload }
}

fn source() -> BcfsSource {
    let mut source = BcfsSource::new(Some(address(1)), ReplyTo::Peer);
    source.bind(LABEL, 0xFF00_0000).unwrap();
    source
}

/// What goes up, and where to.
fn asked(client: &Client, label: Label, body: Option<&[u8]>) -> (Vec<u8>, Transmit) {
    let mut buffer = [0; 1_500];
    let transmit = client.request(label, Level(3), body, &mut buffer);
    (buffer[..transmit.bytes].to_vec(), transmit)
}

#[test]
fn a_request_comes_to_the_source_and_its_reply_to_the_client() {
    let (mut client, mut source, now) = (Client::new(address(1), address(9)), source(), Instant::ZERO);
    client.bind(LABEL, u32::MAX).unwrap();
    let (request, transmit) = asked(&client, LABEL, Some(b"what"));
    assert_eq!(transmit.destination, Destination::Unicast(address(9)), "the router's");
    let asked = source.receive(now, &datagram(address(9), &request)).unwrap();
    let Asked { label, level, is_null, wants_reply, body, path } = asked;
    assert_eq!((label, level, is_null, wants_reply, body), (LABEL, Level(3), false, true, &b"what"[..]));

    let mut buffer = [0; 1_500];
    BcfsSource::body(&path, &mut buffer)[..3].copy_from_slice(b"yes");
    let transmit = source.reply(now, &path, label, level, 3, &mut buffer);
    assert_eq!(transmit.destination, Destination::Unicast(address(9)));
    let reply = client.receive(&datagram(address(9), &buffer[..transmit.bytes])).unwrap();
    assert_eq!((reply.label, reply.level, reply.body), (LABEL, Level(3), &b"yes"[..]));
}

#[test]
fn a_null_is_answered_only_where_no_reply_was_of_late() {
    let (client, mut source, second) =
        (Client::new(address(1), address(9)), source(), Duration::from_secs(1));
    let (null, _) = asked(&client, LABEL, None);
    let at = |source: &mut BcfsSource, now| source.receive(now, &datagram(address(9), &null)).unwrap();
    let start = Instant::ZERO + second;
    let first = at(&mut source, start);
    assert!(first.is_null && first.wants_reply && first.body.is_empty());
    let elsewhere = ReturnPath { peer: address(8), ..first.path };
    source.reply(start, &elsewhere, LABEL, first.level, 0, &mut [0; 100]);
    assert!(at(&mut source, start).wants_reply, "another router was replied to");
    source.reply(start, &first.path, LABEL, Level::ONE, 0, &mut [0; 100]);
    assert!(at(&mut source, start).wants_reply, "a reply of level 1 leaves breadcrumbs of level 3");
    source.reply(start, &first.path, LABEL, Level::ZERO, 0, &mut [0; 100]);
    assert!(!at(&mut source, start).wants_reply, "one of level 0 means to");
    source.reply(start, &first.path, LABEL, first.level, 0, &mut [0; 100]);
    assert!(!at(&mut source, start + second).wants_reply);
    assert!(at(&mut source, start + second + Duration::from_nanos(1)).wants_reply);
    let (other, _) = asked(&client, Label(LABEL.0 + 1), None);
    assert!(source.receive(start, &datagram(address(9), &other)).unwrap().wants_reply, "another label");
}

#[test]
fn each_takes_what_is_for_it() {
    let (mut client, mut source, now) = (Client::new(address(1), address(9)), source(), Instant::ZERO);
    client.bind(LABEL, u32::MAX).unwrap();
    let message = |kind, source, label| {
        let mut bytes = [0; 20];
        Header::new(kind, source, label, Level::ONE).emit(&mut bytes).unwrap();
        bytes
    };
    let reply = message(Kind::Reply, address(1), LABEL);
    let from = |client: &mut Client, peer, bytes: &[u8]| client.receive(&datagram(peer, bytes)).is_some();
    assert!(from(&mut client, address(9), &reply));
    assert!(!from(&mut client, address(1), &reply), "another peer than asked");
    assert!(!from(&mut client, address(9), &message(Kind::Reply, address(2), LABEL)), "another source");
    assert!(!from(&mut client, address(9), &message(Kind::Reply, address(1), Label(8))), "not bound");
    assert!(!from(&mut client, address(9), &message(Kind::Request, address(1), LABEL)), "no reply");
    let by_group = Datagram { channel: Some(ChannelId::BASE), ..datagram(address(5), &reply) };
    assert!(client.receive(&by_group).is_some(), "routers reply to groups");
    assert_eq!(client.ignored(), 4);

    let to =
        |source: &mut BcfsSource, bytes: &[u8]| source.receive(now, &datagram(address(9), bytes)).is_some();
    assert!(to(&mut source, &message(Kind::Request, address(1), Label(0x01FF_FFFF))), "by the mask");
    assert!(!to(&mut source, &message(Kind::Request, address(1), Label(0x0200_0007))), "by the mask");
    assert!(!to(&mut source, &message(Kind::Request, address(2), LABEL)), "another source");
    assert!(!to(&mut source, &reply) && !to(&mut source, b"HWB"), "no request");
    assert_eq!(source.ignored(), 4);
}

#[test]
fn bindings_and_bodies_are_bounded() {
    let mut client = Client::new(address(1), address(9));
    for number in 0..BINDINGS_MAX {
        client.bind(Label(u32::try_from(number).unwrap()), u32::MAX).unwrap();
    }
    assert_eq!(client.bind(LABEL, 0), Err(TooManyBindings));
    let (request, _) = asked(&client, LABEL, Some(&[0; 600]));
    assert_eq!(request.len(), 20 + 512);
}
