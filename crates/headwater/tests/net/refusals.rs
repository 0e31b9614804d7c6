//! What is refused, and what is said of it.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use headwater::net::{
    Interface, InterfaceError, MembershipError, OpenError, ReceiverOptions, ReceiverSocket, Run, SendError,
    SenderOptions, SenderSocket,
};
use headwater_proto::{ChannelId, Ecn};

use crate::bed::{Family, channels, has_linux_layer, in_namespace, receiver, sender, sender_options};

#[test]
fn what_does_not_exist_is_refused_with_what_does() {
    let error = Interface::find("nonesuch0").unwrap_err();
    assert!(matches!(&error, InterfaceError::Unknown { wanted, .. } if wanted == "nonesuch0"));
    assert!(error.to_string().contains("lo (127.0.0.1"), "{error}");
    assert!(matches!(Interface::find("198.51.100.77"), Err(InterfaceError::Unknown { .. })));

    let found = Interface::find("127.0.0.1").unwrap();
    assert_eq!((found.name.as_str(), found.ipv4, found.loopback), ("lo", Some(Ipv4Addr::LOCALHOST), true));

    let channels = channels(Family::V4, 2);
    let mut receiver = receiver(&channels);
    assert!(matches!(
        receiver.join(ChannelId(2)),
        Err(MembershipError::NoSuchChannel { channel: 2, count: 2 })
    ));
    let options = ReceiverOptions { source: Some("::1".parse().unwrap()), ..ReceiverOptions::default() };
    assert!(matches!(ReceiverSocket::open(&channels, &options), Err(OpenError::SourceFamily { .. })));
    let options = SenderOptions { dscp: 64, ..sender_options() };
    assert!(matches!(SenderSocket::open(&channels, &options), Err(OpenError::CodePoint(64))));
}

#[test]
fn the_default_interface_follows_the_route_and_is_never_loopback() {
    // The portable layer knows the address of a route alone, not the interface.
    if !has_linux_layer()
        || !in_namespace("refusals::the_default_interface_follows_the_route_and_is_never_loopback")
    {
        return;
    }
    let group = "239.1.2.3".parse::<IpAddr>().unwrap();
    let ip =
        |arguments: &str| assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());

    let error = Interface::default_for(group).unwrap_err();
    assert!(matches!(error, InterfaceError::NoRoute { .. }), "{error}");
    assert!(error.to_string().contains("left (10.9.8.1"), "{error}");

    ip("route add 239.0.0.0/8 dev lo");
    let error = Interface::default_for(group).unwrap_err();
    assert!(matches!(&error, InterfaceError::OnlyLoopback { name, .. } if name == "lo"), "{error}");

    // The address that a route prefers may be another interface's.
    ip("addr add 10.9.9.9/32 dev lo");
    ip("route replace 239.0.0.0/8 dev left src 10.9.9.9");
    let interface = Interface::default_for(group).unwrap();
    assert_eq!((interface.name.as_str(), interface.ipv4), ("left", Some(Ipv4Addr::new(10, 9, 8, 1))));

    let channels = channels(Family::V4, 1);
    let nameless =
        SenderOptions { interface: Some(Interface::find("right").unwrap()), ..SenderOptions::default() };
    let error = SenderSocket::open(&channels, &nameless).unwrap_err();
    assert!(matches!(error, OpenError::Interface(InterfaceError::NoAddress { .. })), "{error}");

    ip("link set dev left down");
    assert!(matches!(Interface::find("left"), Err(InterfaceError::Down { .. })));
}

#[test]
fn refusals_of_the_kernel_are_explained() {
    if !in_namespace("refusals::refusals_of_the_kernel_are_explained") {
        return;
    }
    let left =
        SenderOptions { interface: Some(Interface::find("left").unwrap()), ..SenderOptions::default() };
    let v4 = channels(Family::V4, 1);
    let mut sender_v4 = SenderSocket::open(&v4, &left).unwrap();
    let run = Run { destination: v4.base(), contents: &[0; 3000], segment_bytes: 1500, ecn: Ecn::Capable0 };
    // The MTU is 1500, and headers take 28: neither segmented nor singly.
    let error = sender_v4.send(&[run]).unwrap_err();
    assert!(matches!(error, SendError::TooLarge { bytes: 1500, .. }), "{error}");
    assert_eq!(sender_v4.counters().datagrams, 0);
    // That was no reason to give segmentation up.
    assert_eq!(sender_v4.segmentation(), has_linux_layer());

    let v6 = channels(Family::V6, 1);
    let mut sender = sender(&v6);
    let unroute = "-6 route del local ff00::/8 dev lo table local";
    assert!(Command::new("ip").args(unroute.split(' ')).status().unwrap().success());
    let run = Run { destination: v6.base(), ..run };
    let error = sender.send(&[run]).unwrap_err();
    assert!(matches!(error, SendError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("ip -6 route add local ff00::/8 dev lo table local"), "{error}");
}
