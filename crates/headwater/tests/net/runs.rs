//! Runs of datagrams in one call, and what becomes of those for which there is no room.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use headwater::net::{
    Interface, Poller, ReceiverOptions, ReceiverSocket, RecvBatch, Run, SenderOptions, SenderSocket,
};
use headwater_proto::{ChannelId, Ecn};

use crate::bed::{
    Family, LOCALHOST, QUIET, channels, has_linux_layer, in_namespace, loopback, payloads, receive, receiver,
    send, send_one, sender,
};

#[test]
fn a_segmented_run_arrives_as_its_datagrams_in_order_ipv4() {
    a_segmented_run_arrives_as_its_datagrams_in_order(Family::V4);
}

#[test]
fn a_segmented_run_arrives_as_its_datagrams_in_order_ipv6() {
    if in_namespace("runs::a_segmented_run_arrives_as_its_datagrams_in_order_ipv6") {
        a_segmented_run_arrives_as_its_datagrams_in_order(Family::V6);
    }
}

fn a_segmented_run_arrives_as_its_datagrams_in_order(family: Family) {
    const BYTES: usize = 1440;
    if !has_linux_layer() {
        return;
    }
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
    assert_eq!(sender.counters().calls, if has_linux_layer() { 1 } else { 150 });
    assert_eq!(payloads(&receive(&mut receiver, 150)), contents.chunks(1000).collect::<Vec<_>>());
}

/// One call carries messages to several groups, with several ECN fields and lengths, and more than it takes
/// go in two.
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
    let calls = if has_linux_layer() { 2 } else { 40 };
    assert_eq!((sender.counters().calls, sender.counters().datagrams), (calls, 40));
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
    if !in_namespace("runs::a_full_send_buffer_is_not_waited_for_after_a_stop") {
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
    if !has_linux_layer() || !in_namespace("runs::what_the_queue_of_the_interface_drops_is_counted") {
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
fn drops_for_want_of_buffer_are_counted() {
    if !has_linux_layer() {
        return;
    }
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
