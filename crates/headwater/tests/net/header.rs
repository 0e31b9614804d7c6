//! What comes with a datagram: where from, its ECN field, its IP header, when.

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use headwater::net::{Poller, RecvBatch, SenderOptions, SenderSocket};
use headwater_proto::{ChannelId, Ecn};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use socket2::SockRef;

use crate::bed::{
    Family, LOCALHOST, PATIENCE, Received, channels, has_linux_layer, in_namespace, payloads, receive,
    receiver, send, sender, sender_options,
};

#[test]
fn carries_payload_channel_source_and_every_ecn_field_ipv4() {
    carries_payload_channel_source_and_every_ecn_field(Family::V4);
}

#[test]
fn carries_payload_channel_source_and_every_ecn_field_ipv6() {
    if in_namespace("header::carries_payload_channel_source_and_every_ecn_field_ipv6") {
        carries_payload_channel_source_and_every_ecn_field(Family::V6);
    }
}

fn carries_payload_channel_source_and_every_ecn_field(family: Family) {
    let channels = channels(family, 3);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(2)).unwrap();
    let mut sender = sender(&channels);
    let fields = [Ecn::NotCapable, Ecn::Capable1, Ecn::Capable0, Ecn::CongestionExperienced];
    for ecn in fields {
        send(&mut sender, 2, ecn, b"news", 0);
    }
    let expected = fields.map(|ecn| Received {
        channel: Some(2),
        ecn,
        source: sender.local_addr(),
        payload: b"news".to_vec(),
    });
    assert_eq!(receive(&mut receiver, 4), expected);
    assert_eq!(receiver.counters().datagrams, 4);
    assert_eq!(receiver.counters().bytes, 16);
    assert_eq!(receiver.counters().kernel_drops, 0);
}

#[test]
fn the_ecn_field_is_cleared_when_switched_off() {
    let channels = channels(Family::V4, 1);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(0)).unwrap();
    let mut sender =
        SenderSocket::open(&channels, &SenderOptions { ecn: false, ..sender_options() }).unwrap();
    send(&mut sender, 0, Ecn::Capable0, b"x", 0);
    assert_eq!(receive(&mut receiver, 1)[0].ecn, Ecn::NotCapable);
}

#[test]
fn the_ip_header_is_as_asked_ipv4() {
    the_ip_header_is_as_asked(Family::V4);
}

#[test]
fn the_ip_header_is_as_asked_ipv6() {
    if in_namespace("header::the_ip_header_is_as_asked_ipv6") {
        the_ip_header_is_as_asked(Family::V6);
    }
}

fn the_ip_header_is_as_asked(family: Family) {
    let channels = channels(family, 1);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(0)).unwrap();
    let fd = receiver.fds().next().unwrap();
    match family {
        Family::V4 => setsockopt(&fd, sockopt::Ipv4RecvTtl, &true).unwrap(),
        Family::V6 => setsockopt(&fd, sockopt::Ipv6RecvHopLimit, &true).unwrap(),
    }
    let options = SenderOptions { dscp: 10, ttl: 7, ..sender_options() };
    let mut sender = SenderSocket::open(&channels, &options).unwrap();
    for (ecn, octet) in [(Ecn::NotCapable, 0b0010_1000), (Ecn::Capable0, 0b0010_1010)] {
        send(&mut sender, 0, ecn, b"x", 0);
        assert_eq!(header_fields(fd), (7, octet));
    }
}

/// TTL and traffic class of the next datagram.
fn header_fields(fd: BorrowedFd<'_>) -> (u8, u8) {
    Poller::new().unwrap().wait([fd], Some(Instant::now() + PATIENCE)).unwrap();
    let (mut payload, mut control) = ([0; 100], [0; 256]);
    let mut buffers = [IoSliceMut::new(&mut payload)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(fd.as_raw_fd(), &mut buffers, Some(&mut control), flags).unwrap();
    let (mut ttl, mut traffic_class) = (None, None);
    for entry in message.cmsgs().unwrap() {
        match entry {
            ControlMessageOwned::Ipv4Ttl(value) | ControlMessageOwned::Ipv6HopLimit(value) => {
                ttl = u8::try_from(value).ok();
            }
            ControlMessageOwned::Ipv4Tos(value) => traffic_class = Some(value),
            ControlMessageOwned::Ipv6TClass(value) => traffic_class = u8::try_from(value).ok(),
            _ => {}
        }
    }
    (ttl.unwrap(), traffic_class.unwrap())
}

#[test]
fn the_time_of_arrival_is_not_that_of_reading_ipv4() {
    the_time_of_arrival_is_not_that_of_reading(Family::V4);
}

#[test]
fn the_time_of_arrival_is_not_that_of_reading_ipv6() {
    if in_namespace("header::the_time_of_arrival_is_not_that_of_reading_ipv6") {
        the_time_of_arrival_is_not_that_of_reading(Family::V6);
    }
}

/// With a segment size, an ECN field and a destination beside it: all four fit.
fn the_time_of_arrival_is_not_that_of_reading(family: Family) {
    const READ_LATE: Duration = Duration::from_millis(50);
    const SLACK: Duration = Duration::from_millis(1);
    if !has_linux_layer() {
        return;
    }
    let channels = channels(family, 1);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId::BASE).unwrap();
    let mut sender = sender(&channels);
    let mut batch = RecvBatch::new();
    let patience = Instant::now() + PATIENCE;
    // The kernel begins to take the time some moments after it was first asked to.
    loop {
        let before = Instant::now();
        send(&mut sender, 0, Ecn::CongestionExperienced, &[7; 1_000], 100);
        let after = Instant::now();
        std::thread::sleep(READ_LATE);
        let mut arrivals = Vec::new();
        while receiver.recv(&mut batch).unwrap() > 0 {
            arrivals.extend(batch.arrivals().map(|(at, datagram)| (at, datagram.ecn, datagram.channel)));
        }
        assert_eq!(arrivals.len(), 10);
        assert!(arrivals.iter().all(|(_, ecn, _)| *ecn == Ecn::CongestionExperienced));
        assert!(arrivals.iter().all(|(.., channel)| *channel == Some(ChannelId::BASE)));
        if arrivals.iter().all(|(at, ..)| *at + SLACK >= before && *at <= after + SLACK) {
            return;
        }
        assert!(Instant::now() < patience, "{:?} after it was sent", arrivals[0].0 - before);
    }
}

#[test]
fn an_empty_datagram_arrives_empty() {
    let channels = channels(Family::V4, 1);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(0)).unwrap();
    let other = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    SockRef::from(&other).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    other.send_to(b"", channels.base()).unwrap();
    assert_eq!(payloads(&receive(&mut receiver, 1)), [b""]);
}
