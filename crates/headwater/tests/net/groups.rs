//! Memberships, and who is heard.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use headwater::net::{
    Interface, Poller, RecvBatch, Run, SenderOptions, SenderSocket, UnicastOptions, UnicastSocket,
};
use headwater_proto::{ChannelId, Ecn};

use crate::bed::{
    Family, LOCALHOST, PATIENCE, channels, has_linux_layer, in_namespace, loopback, payloads, receive,
    receiver, receiver_from, send_one, sender,
};

#[test]
fn delivery_starts_with_joining_and_ends_with_leaving() {
    let channels = channels(Family::V4, 2);
    let mut receiver = receiver(&channels);
    let mut sender = sender(&channels);
    send_one(&mut sender, 0, b"early");
    assert_eq!(receive(&mut receiver, 0), []);

    receiver.join(ChannelId(0)).unwrap();
    receiver.join(ChannelId(0)).unwrap();
    assert!(receiver.is_joined(ChannelId(0)) && !receiver.is_joined(ChannelId(1)));
    send_one(&mut sender, 0, b"now");
    send_one(&mut sender, 1, b"not joined");
    assert_eq!(payloads(&receive(&mut receiver, 1)), [b"now"]);

    receiver.leave(ChannelId(0)).unwrap();
    receiver.leave(ChannelId(0)).unwrap();
    send_one(&mut sender, 0, b"late");
    assert_eq!(receive(&mut receiver, 0), []);
}

#[test]
fn sixty_four_channels_arrive_exactly_once_each_ipv4() {
    many_channels_arrive_exactly_once_each(Family::V4, None);
}

#[test]
fn sixty_four_channels_of_one_source_arrive_exactly_once_each() {
    many_channels_arrive_exactly_once_each(Family::V4, Some(LOCALHOST));
}

#[test]
fn sixty_four_channels_arrive_exactly_once_each_ipv6() {
    if in_namespace("groups::sixty_four_channels_arrive_exactly_once_each_ipv6") {
        many_channels_arrive_exactly_once_each(Family::V6, None);
    }
}

fn many_channels_arrive_exactly_once_each(family: Family, source: Option<IpAddr>) {
    const COUNT: u16 = 64;
    let channels = channels(family, COUNT);
    let mut receiver = receiver_from(&channels, source);
    for channel in 0..COUNT {
        receiver.join(ChannelId(channel)).unwrap();
    }
    if matches!(family, Family::V4) {
        assert!(receiver.fds().count() > 1, "Linux allows 20 memberships per socket");
    }
    // Room that leaving makes is used again.
    let sockets = receiver.fds().count();
    for channel in (0..COUNT).step_by(3) {
        receiver.leave(ChannelId(channel)).unwrap();
    }
    for channel in (0..COUNT).step_by(3) {
        receiver.join(ChannelId(channel)).unwrap();
    }
    assert_eq!(receiver.fds().count(), sockets);

    let mut sender = sender(&channels);
    for channel in 0..COUNT {
        send_one(&mut sender, channel, &channel.to_be_bytes());
    }
    let mut times = BTreeMap::<u16, usize>::new();
    for datagram in receive(&mut receiver, usize::from(COUNT)) {
        let channel = datagram.channel.unwrap();
        assert_eq!(datagram.payload, channel.to_be_bytes());
        *times.entry(channel).or_default() += 1;
    }
    assert_eq!(times, (0..COUNT).map(|channel| (channel, 1)).collect());
}

/// A receiver that reads late gets the datagrams of several kernel sockets in the order of arrival. If the
/// few of one socket overtook the many of another, the latter would look delayed by a queue.
#[test]
fn datagrams_of_several_sockets_come_in_order_of_arrival() {
    const COUNT: u16 = 64;
    const BETWEEN: Duration = Duration::from_micros(100);
    const SLACK: Duration = Duration::from_millis(2);
    let channels = channels(Family::V4, COUNT);
    let mut receiver = receiver(&channels);
    for channel in 0..COUNT {
        receiver.join(ChannelId(channel)).unwrap();
    }
    let mut sender = sender(&channels);
    // One datagram in eight is of the first socket.
    let sent: Vec<u16> = (0..800).map(|i| if i % 8 == 0 { 0 } else { COUNT - 1 }).collect();
    let (mut batch, deadline) = (RecvBatch::new(), Instant::now() + PATIENCE);
    // The kernel begins to take the time some moments after it was first asked to.
    loop {
        for channel in &sent {
            send_one(&mut sender, *channel, &[0; 100]);
            std::thread::sleep(BETWEEN);
        }
        let mut heard = Vec::new();
        while heard.len() < sent.len() && Instant::now() < deadline {
            receiver.recv(&mut batch).unwrap();
            heard.extend(batch.arrivals().map(|(at, datagram)| (at, datagram.channel.unwrap().0)));
        }
        assert_eq!(heard.len(), sent.len());
        // The clock of arrivals is read anew for each batch.
        let is_ordered = heard.windows(2).all(|pair| pair[1].0 + SLACK >= pair[0].0);
        let in_order = heard.iter().zip(&sent).filter(|((_, channel), sent)| channel == *sent).count();
        if !has_linux_layer() || (is_ordered && in_order > 700) {
            return;
        }
        assert!(Instant::now() < deadline, "{in_order} of {} in order, times {is_ordered}", sent.len());
    }
}

#[test]
fn two_receivers_of_one_port_both_hear_everything() {
    let channels = channels(Family::V4, 1);
    let mut receivers = [receiver(&channels), receiver(&channels)];
    for receiver in &mut receivers {
        receiver.join(ChannelId(0)).unwrap();
    }
    let mut sender = sender(&channels);
    send_one(&mut sender, 0, b"1");
    send_one(&mut sender, 0, b"2");
    for receiver in &mut receivers {
        assert_eq!(payloads(&receive(receiver, 2)), [b"1", b"2"]);
    }
}

#[test]
fn what_another_socket_joined_is_not_delivered_ipv4() {
    what_another_socket_joined_is_not_delivered(Family::V4);
}

#[test]
fn what_another_socket_joined_is_not_delivered_ipv6() {
    if in_namespace("groups::what_another_socket_joined_is_not_delivered_ipv6") {
        what_another_socket_joined_is_not_delivered(Family::V6);
    }
}

fn what_another_socket_joined_is_not_delivered(family: Family) {
    let channels = channels(family, 2);
    let (mut first, mut second) = (receiver(&channels), receiver(&channels));
    first.join(ChannelId(0)).unwrap();
    second.join(ChannelId(1)).unwrap();
    let mut sender = sender(&channels);
    send_one(&mut sender, 0, b"0");
    send_one(&mut sender, 1, b"1");
    assert_eq!(payloads(&receive(&mut first, 1)), [b"0"]);
    assert_eq!(payloads(&receive(&mut second, 1)), [b"1"]);
}

#[test]
fn only_the_wanted_source_is_heard_ipv4() {
    let channels = channels(Family::V4, 1);
    let wanted = Ipv4Addr::new(127, 0, 0, 2);
    let mut receiver = receiver_from(&channels, Some(wanted.into()));
    receiver.join(ChannelId(0)).unwrap();

    send_one(&mut sender(&channels), 0, b"refuse");
    let interface = Interface { ipv4: Some(wanted), ..loopback() };
    let options = SenderOptions { interface: Some(interface), ..SenderOptions::default() };
    let mut right = SenderSocket::open(&channels, &options).unwrap();
    send_one(&mut right, 0, b"accept");

    let received = receive(&mut receiver, 1);
    assert_eq!(payloads(&received), [b"accept"]);
    assert_eq!(received[0].source, right.local_addr());
    receiver.leave(ChannelId(0)).unwrap();
    send_one(&mut right, 0, b"late");
    assert_eq!(receive(&mut receiver, 0), []);
}

#[test]
fn only_the_wanted_source_is_heard_ipv6() {
    if !in_namespace("groups::only_the_wanted_source_is_heard_ipv6") {
        return;
    }
    let added =
        Command::new("ip").args(["-6", "addr", "add", "fd00:77::2/128", "dev", "lo", "nodad"]).status();
    assert!(added.unwrap().success());
    let channels = channels(Family::V6, 1);
    let right = Interface::find("fd00:77::2").unwrap();
    let wrong = Interface::find("::1").unwrap();
    assert_eq!((right.index, right.loopback), (wrong.index, true));
    let mut receiver = receiver_from(&channels, right.ipv6.map(IpAddr::V6));
    receiver.join(ChannelId(0)).unwrap();
    for (interface, payload) in [(wrong, b"refuse"), (right, b"accept")] {
        let options = SenderOptions { interface: Some(interface), ..SenderOptions::default() };
        send_one(&mut SenderSocket::open(&channels, &options).unwrap(), 0, payload);
    }
    assert_eq!(payloads(&receive(&mut receiver, 1)), [b"accept"]);
    receiver.leave(ChannelId(0)).unwrap();
}

/// A receiver asks a sender by unicast, from a port of its own, and hears that sender there and nobody else.
#[test]
fn a_sender_is_asked_by_unicast_and_only_it_is_heard() {
    let channels = channels(Family::V4, 1);
    let mut receiver = receiver(&channels);
    assert_eq!(receiver.asks_from(), None);
    let asked = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    let stranger = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    asked.set_read_timeout(Some(PATIENCE)).unwrap();
    let destination = asked.local_addr().unwrap();
    let question = Run { destination, contents: b"how far?", segment_bytes: 8, ecn: Ecn::NotCapable };
    assert_eq!(receiver.send(&[question]).unwrap(), 0);
    let mut heard = [0; 32];
    let (bytes, from) = asked.recv_from(&mut heard).unwrap();
    assert_eq!(&heard[..bytes], b"how far?");
    assert_eq!(receiver.asks_from().map(|own| own.port()), Some(from.port()));
    stranger.send_to(b"forged", from).unwrap();
    asked.send_to(b"so far", from).unwrap();
    let received = receive(&mut receiver, 1);
    assert_eq!(payloads(&received), [b"so far"]);
    assert_eq!((received[0].channel, received[0].source), (None, destination));
    assert_eq!(receiver.counters().foreign_source, 1);
}

#[test]
fn receivers_answer_the_sender() {
    let channels = channels(Family::V4, 1);
    let mut sender = sender(&channels);
    let answering = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    answering.send_to(b"lost 7", sender.local_addr()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.wait([sender.as_fd()], Some(Instant::now() + PATIENCE)).unwrap();
    let mut batch = RecvBatch::new();
    assert_eq!(sender.recv(&mut batch).unwrap(), 1);
    let answer = batch.iter().next().unwrap();
    assert_eq!((answer.payload, answer.channel), (&b"lost 7"[..], None));
    assert_eq!(answer.source, answering.local_addr().unwrap());
    assert_eq!(sender.recv(&mut batch).unwrap(), 0);
    assert!(batch.is_empty());
}

#[test]
fn datagrams_to_no_group_of_ours_are_counted_not_delivered() {
    let channels = channels(Family::V4, 1);
    let mut receiver = receiver(&channels);
    let stray = UdpSocket::bind((LOCALHOST, 0)).unwrap();
    stray.send_to(b"stray", (LOCALHOST, channels.port())).unwrap();
    assert_eq!(receive(&mut receiver, 0), []);
    assert_eq!(receiver.counters().foreign_group, 1);
    assert_eq!(receiver.counters().datagrams, 0);
}

/// Linux hands a socket what is sent to its address by whatever interface: here by `near`, from a host of
/// another network.
#[test]
fn a_socket_that_is_bound_to_its_interface_hears_nothing_by_others() {
    if !in_namespace("groups::a_socket_that_is_bound_to_its_interface_hears_nothing_by_others") {
        return;
    }
    let run = |program: &str, arguments: &str| {
        assert!(Command::new(program).args(arguments.split(' ')).status().unwrap().success(), "{arguments}");
    };
    let mut host = Command::new("unshare").args(["--net", "sleep", "30"]).spawn().unwrap();
    run("ip", "link add dev near type veth peer name far");
    let namespace = || std::fs::read_link(format!("/proc/{}/ns/net", host.id())).unwrap();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let began = Instant::now();
    while namespace() == own && began.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
    run("ip", &format!("link set far netns {}", host.id()));
    run("ip", "address add 10.9.9.1/24 dev near");
    run("ip", "link set near up");
    let at_host = |arguments: &str| run("nsenter", &format!("-t {} -n {arguments}", host.id()));
    at_host("ip address add 10.9.9.2/24 dev far");
    at_host("ip link set far up");
    at_host("ip route add 10.9.8.0/24 via 10.9.9.1");

    let left = Interface::find("left").unwrap();
    let open = |is_bound| {
        let options =
            UnicastOptions { multicast: Some((left.clone(), 1)), is_bound, ..UnicastOptions::default() };
        UnicastSocket::open(left.bind_address(true, 0).unwrap(), &options).unwrap()
    };
    let [mut bound, mut free] = [true, false].map(open);
    for socket in [&bound, &free] {
        let command = format!("echo > /dev/udp/10.9.8.1/{}", socket.local_addr().port());
        let sent = Command::new("nsenter")
            .args(["-t", &host.id().to_string(), "-n", "bash", "-c", &command])
            .status();
        assert!(sent.unwrap().success());
    }
    let (mut batch, began) = (RecvBatch::new(), Instant::now());
    while free.recv(&mut batch).unwrap() == 0 {
        assert!(began.elapsed() < PATIENCE, "nothing came by the other interface");
        std::thread::yield_now();
    }
    assert_eq!(bound.recv(&mut batch).unwrap(), 0);
    host.kill().unwrap();
    host.wait().unwrap();
}

/// Runs to 40 ports at which nobody listens: each is answered by ICMP at once.
fn to_nobody() -> Vec<Run<'static>> {
    let free: Vec<_> = (0..40).map(|_| UdpSocket::bind((LOCALHOST, 0)).unwrap()).collect();
    let to = free.iter().map(|socket| socket.local_addr().unwrap());
    to.map(|destination| Run { destination, contents: b"!", segment_bytes: 0, ecn: Ecn::NotCapable })
        .collect()
}

#[test]
fn what_icmp_tells_fails_no_read_of_a_sender() {
    let mut sender = sender(&channels(Family::V4, 1));
    sender.send(&to_nobody()).unwrap();
    let mut batch = RecvBatch::new();
    for _ in 0..4 {
        assert_eq!(sender.recv(&mut batch).unwrap(), 0);
    }
}

#[test]
fn what_icmp_tells_fails_no_read_of_a_socket_that_sends_to_groups_too() {
    let options = UnicastOptions { multicast: Some((loopback(), 1)), ..UnicastOptions::default() };
    let mut socket = UnicastSocket::open((LOCALHOST, 0).into(), &options).unwrap();
    assert_eq!(socket.send(&to_nobody()), 0);
    let mut batch = RecvBatch::new();
    for _ in 0..4 {
        assert_eq!(socket.recv(&mut batch).unwrap(), 0);
    }
}
