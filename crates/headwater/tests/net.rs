//! Multicast on the loopback interface. What needs routes or devices of its own runs in a network namespace: such a
//! test starts itself again inside one, and is skipped, saying so, where the system forbids that.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use headwater::net::{
    Channels, Interface, InterfaceError, MembershipError, OpenError, Poller, ReceiverOptions, ReceiverSocket,
    RecvBatch, Run, SendError, SenderOptions, SenderSocket,
};
use headwater_proto::{ChannelId, Ecn};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use socket2::SockRef;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Longest wait for datagrams that should come.
const PATIENCE: Duration = Duration::from_secs(5);
/// Wait for datagrams that should not come. On loopback they would be there before the sender is done.
const QUIET: Duration = Duration::from_millis(100);

/// What was received, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Received {
    channel: Option<u16>,
    ecn: Ecn,
    source: SocketAddr,
    payload: Vec<u8>,
}

/// Groups on a port that no other test of this run uses, below those that the system hands out.
fn channels(family: Family, count: u16) -> Channels {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = u16::try_from(std::process::id() % 120).unwrap();
    let port = 20_000 + process * 100 + test;
    let base = match family {
        Family::V4 => format!("239.77.{process}.{}:{port}", test % 100),
        Family::V6 => format!("[ff15::77:{process:x}:{test:x}00]:{port}"),
    };
    Channels::new(base.parse().unwrap(), count).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Family {
    V4,
    V6,
}

fn loopback() -> Interface {
    Interface::find("lo").unwrap()
}

fn sender_options() -> SenderOptions {
    SenderOptions { interface: Some(loopback()), ..SenderOptions::default() }
}

fn sender(channels: &Channels) -> SenderSocket {
    SenderSocket::open(channels, &sender_options()).unwrap()
}

fn receiver_from(channels: &Channels, source: Option<IpAddr>) -> ReceiverSocket {
    let options = ReceiverOptions { interface: Some(loopback()), source, ..ReceiverOptions::default() };
    ReceiverSocket::open(channels, &options).unwrap()
}

fn receiver(channels: &Channels) -> ReceiverSocket {
    receiver_from(channels, None)
}

fn send(sender: &mut SenderSocket, channel: u16, ecn: Ecn, contents: &[u8], segment_bytes: usize) {
    let destination = sender.channels().address(ChannelId(channel)).unwrap();
    sender.send(&[Run { destination, contents, segment_bytes, ecn }]).unwrap();
}

fn send_one(sender: &mut SenderSocket, channel: u16, payload: &[u8]) {
    send(sender, channel, Ecn::NotCapable, payload, 0);
}

/// Reads until `wanted` datagrams have come, and for as long as more than that might.
fn receive(receiver: &mut ReceiverSocket, wanted: usize) -> Vec<Received> {
    let mut poller = Poller::new().unwrap();
    let mut batch = RecvBatch::new();
    let mut received = Vec::new();
    let mut deadline = Instant::now() + PATIENCE;
    loop {
        while receiver.recv(&mut batch).unwrap() > 0 {
            received.extend(batch.iter().map(|datagram| Received {
                channel: datagram.channel.map(|channel| channel.0),
                ecn: datagram.ecn,
                source: datagram.source,
                payload: datagram.payload.to_vec(),
            }));
        }
        if received.len() >= wanted {
            deadline = deadline.min(Instant::now() + QUIET);
        }
        if Instant::now() >= deadline {
            return received;
        }
        poller.wait(receiver.fds(), Some(deadline)).unwrap();
    }
}

fn payloads(received: &[Received]) -> Vec<&[u8]> {
    received.iter().map(|datagram| datagram.payload.as_slice()).collect()
}

/// Starts the named test again in a network namespace with loopback up and IPv6 groups routed over it. True within.
fn in_namespace(test: &str) -> bool {
    const MARK: &str = "HEADWATER_TEST_IN_NAMESPACE";
    // The route must be "local": Linux turns others over loopback into "unreachable".
    const SET_UP: &str = "ip link set dev lo up && ip -6 route add local ff00::/8 dev lo table local && \
                          ip link add dev left type veth peer name right && ip addr add 10.9.8.1/24 dev left && \
                          ip link set dev left up && ip link set dev right up";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let this = std::env::current_exe().unwrap();
    let outcome = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c"])
        .arg(format!("{{ {SET_UP}; }} || exit 77; exec \"$0\" --exact \"$1\" --nocapture"))
        .arg(this)
        .arg(test)
        .env(MARK, "1")
        .output();
    match outcome {
        Ok(output) if output.status.success() => {
            let report = String::from_utf8_lossy(&output.stdout);
            assert!(report.contains("1 passed"), "no test is named {test}");
        }
        // `unshare` failed, or the set-up did; a failing test ends with 101.
        Ok(output) if matches!(output.status.code(), Some(1 | 77)) => {
            eprintln!("{test} skipped, no network namespace: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output) => panic!(
            "in a network namespace:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => eprintln!("{test} skipped, no `unshare`: {error}"),
    }
    false
}

#[test]
fn carries_payload_channel_source_and_every_ecn_field_ipv4() {
    carries_payload_channel_source_and_every_ecn_field(Family::V4);
}

#[test]
fn carries_payload_channel_source_and_every_ecn_field_ipv6() {
    if in_namespace("carries_payload_channel_source_and_every_ecn_field_ipv6") {
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
    if in_namespace("the_ip_header_is_as_asked_ipv6") {
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
    if in_namespace("sixty_four_channels_arrive_exactly_once_each_ipv6") {
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
    if in_namespace("what_another_socket_joined_is_not_delivered_ipv6") {
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
    if !in_namespace("only_the_wanted_source_is_heard_ipv6") {
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
fn a_segmented_run_arrives_as_its_datagrams_in_order_ipv4() {
    a_segmented_run_arrives_as_its_datagrams_in_order(Family::V4);
}

#[test]
fn a_segmented_run_arrives_as_its_datagrams_in_order_ipv6() {
    if in_namespace("a_segmented_run_arrives_as_its_datagrams_in_order_ipv6") {
        a_segmented_run_arrives_as_its_datagrams_in_order(Family::V6);
    }
}

fn a_segmented_run_arrives_as_its_datagrams_in_order(family: Family) {
    const BYTES: usize = 1440;
    let channels = channels(family, 1);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(0)).unwrap();
    let mut sender = sender(&channels);
    let mut contents = (0..32_u8).flat_map(|i| [i; BYTES]).collect::<Vec<_>>();
    // The last may be shorter.
    contents.truncate(31 * BYTES + 100);
    let expected = contents.chunks(BYTES).collect::<Vec<_>>();
    for segmentation in [true, false] {
        sender.set_segmentation(segmentation);
        assert_eq!(sender.segmentation(), segmentation);
        let calls_before = sender.counters().calls;
        send(&mut sender, 0, Ecn::Capable0, &contents, BYTES);
        assert_eq!(sender.counters().calls - calls_before, 1, "a run, or 32 messages");
        let received = receive(&mut receiver, 32);
        assert_eq!(payloads(&received), expected);
        assert!(received.iter().all(|datagram| datagram.ecn == Ecn::Capable0));
    }
    assert_eq!(sender.counters().datagrams, 64);
    assert_eq!(sender.counters().bytes, 2 * contents.len() as u64);
}

#[test]
fn runs_beyond_one_call_are_split_between_datagrams() {
    let channels = channels(Family::V4, 1);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(0)).unwrap();
    let mut sender = sender(&channels);
    let contents = (0..150_u8).flat_map(|i| [i; 1000]).collect::<Vec<_>>();
    send(&mut sender, 0, Ecn::NotCapable, &contents, 1000);
    assert_eq!(sender.counters().calls, 1);
    assert_eq!(payloads(&receive(&mut receiver, 150)), contents.chunks(1000).collect::<Vec<_>>());
}

/// One call carries messages to several groups, with several ECN fields and lengths, and more than it takes go in two.
#[test]
fn runs_that_differ_go_together_and_in_order() {
    let channels = channels(Family::V4, 2);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(0)).unwrap();
    receiver.join(ChannelId(1)).unwrap();
    let mut sender = sender(&channels);
    let contents: Vec<u8> = (0..40).collect();
    let run = |index: usize| Run {
        destination: channels.address(ChannelId(u16::from(index % 2 == 1))).unwrap(),
        contents: &contents[index..=index],
        segment_bytes: 0,
        ecn: if index.is_multiple_of(3) { Ecn::Capable0 } else { Ecn::NotCapable },
    };
    let runs: Vec<_> = (0..40).map(run).collect();
    sender.send(&runs).unwrap();
    assert_eq!((sender.counters().calls, sender.counters().datagrams), (2, 40));
    let received = receive(&mut receiver, 40);
    for channel in 0..2 {
        let of_channel: Vec<_> = received.iter().filter(|one| one.channel == Some(channel)).collect();
        assert_eq!(of_channel.len(), 20);
        for (datagram, index) in of_channel.iter().zip((usize::from(channel)..40).step_by(2)) {
            assert_eq!((&datagram.payload[..], datagram.ecn), (runs[index].contents, runs[index].ecn));
        }
    }
}

/// What a machine answers by ICMP neither fails later datagrams nor keeps waits from waiting.
#[test]
fn a_port_that_nobody_listens_at_stops_nothing() {
    let channels = channels(Family::V4, 1);
    let mut receiver = receiver(&channels);
    receiver.join(ChannelId(0)).unwrap();
    let mut sender = sender(&channels);
    let closed = UdpSocket::bind((LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let run = Run { destination: closed, contents: b"x", segment_bytes: 0, ecn: Ecn::NotCapable };
    for _ in 0..50 {
        sender.send(&[run, run]).unwrap();
        send_one(&mut sender, 0, b"news");
    }
    assert_eq!(receive(&mut receiver, 50).len(), 50);
    let mut batch = RecvBatch::new();
    let mut poller = Poller::new().unwrap();
    let quiet = (0..50).any(|_| {
        let _reports = sender.recv(&mut batch);
        poller.wait([sender.as_fd()], Some(Instant::now() + QUIET)).unwrap().readable == 0
    });
    assert!(quiet, "reports wake the wait again and again");
}

/// A sender on an interface with a token bucket of this shape; `None` where the machine has none.
fn throttled_sender(shape: &str) -> Option<SenderSocket> {
    let bucket = "qdisc add dev left root tbf".split(' ').chain(shape.split(' '));
    if !Command::new("tc").args(bucket).status().unwrap().success() {
        eprintln!("skipped: no token bucket on this machine");
        return None;
    }
    let options =
        SenderOptions { interface: Some(Interface::find("left").unwrap()), ..SenderOptions::default() };
    Some(SenderSocket::open(&channels(Family::V4, 1), &options).unwrap())
}

/// Emptying the send buffer takes minutes here, and goes on all the time.
#[test]
fn a_full_send_buffer_is_not_waited_for_after_a_stop() {
    if !in_namespace("a_full_send_buffer_is_not_waited_for_after_a_stop") {
        return;
    }
    let Some(mut sender) = throttled_sender("rate 20kbit burst 2100 limit 10000000") else { return };
    let stop = Arc::new(AtomicBool::new(false));
    sender.set_stop(Arc::clone(&stop));
    let stopping = std::thread::spawn(move || {
        std::thread::sleep(QUIET);
        stop.store(true, Ordering::Release);
    });
    send(&mut sender, 0, Ecn::NotCapable, &[0; 2_000_000], 1_000);
    stopping.join().unwrap();
    let counters = sender.counters();
    assert_eq!(counters.datagrams + counters.unsent, 2_000);
    assert!(counters.datagrams > 0 && counters.unsent > 0 && counters.waits > 0, "{counters:?}");
}

#[test]
fn what_the_queue_of_the_interface_drops_is_counted() {
    if !in_namespace("what_the_queue_of_the_interface_drops_is_counted") {
        return;
    }
    // Two datagrams at once, and room for three more.
    let Some(mut sender) = throttled_sender("rate 8kbit burst 2100 limit 3200") else { return };
    for segmentation in [false, true] {
        sender.set_segmentation(segmentation);
        let before = sender.counters();
        send(&mut sender, 0, Ecn::NotCapable, &[0; 40_000], 1_000);
        let (sent, unsent) =
            (sender.counters().datagrams - before.datagrams, sender.counters().unsent - before.unsent);
        assert_eq!(sent + unsent, 40);
        assert!(unsent >= 30, "{unsent} of 40 found no room");
    }
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

#[test]
fn the_time_of_arrival_is_not_that_of_reading_ipv4() {
    the_time_of_arrival_is_not_that_of_reading(Family::V4);
}

#[test]
fn the_time_of_arrival_is_not_that_of_reading_ipv6() {
    if in_namespace("the_time_of_arrival_is_not_that_of_reading_ipv6") {
        the_time_of_arrival_is_not_that_of_reading(Family::V6);
    }
}

/// With a segment size, an ECN field and a destination beside it: all four fit.
fn the_time_of_arrival_is_not_that_of_reading(family: Family) {
    const READ_LATE: Duration = Duration::from_millis(50);
    const SLACK: Duration = Duration::from_millis(1);
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

#[test]
fn drops_for_want_of_buffer_are_counted() {
    let channels = channels(Family::V4, 1);
    let options = ReceiverOptions {
        interface: Some(loopback()),
        receive_buffer_bytes: 8192,
        ..ReceiverOptions::default()
    };
    let mut receiver = ReceiverSocket::open(&channels, &options).unwrap();
    assert_eq!(receiver.receive_buffer().asked_bytes, 8192);
    assert!(receiver.receive_buffer().granted_bytes >= 8192);
    receiver.join(ChannelId(0)).unwrap();
    let mut sender = sender(&channels);
    sender.set_segmentation(false);
    send(&mut sender, 0, Ecn::NotCapable, &[0; 100_000], 1000);
    let received = receive(&mut receiver, 1).len() as u64;
    assert!(received < 100);
    assert_eq!(receiver.counters().kernel_drops + received, 100);
}

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
    if !in_namespace("the_default_interface_follows_the_route_and_is_never_loopback") {
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
    if !in_namespace("refusals_of_the_kernel_are_explained") {
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
    assert!(sender_v4.segmentation());

    let v6 = channels(Family::V6, 1);
    let mut sender = sender(&v6);
    let unroute = "-6 route del local ff00::/8 dev lo table local";
    assert!(Command::new("ip").args(unroute.split(' ')).status().unwrap().success());
    let run = Run { destination: v6.base(), ..run };
    let error = sender.send(&[run]).unwrap_err();
    assert!(matches!(error, SendError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("ip -6 route add local ff00::/8 dev lo table local"), "{error}");
}
