//! A receiver whose repairs do not come, or whose source is not in order.

use core::net::SocketAddr;

use headwater_proto::bcfs::{Label, Level};
use headwater_proto::{Datagram, Duration, Ecn, Input, Instant, Machine, Output};
use headwater_wire::bcfs::{Header, Kind};

use super::repair::{RepairReceiver, WINDOW_MAX};

const REPEAT: Duration = Duration::from_millis(100);

type Receiver = RepairReceiver<fn(u64, &[u8])>;

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 7_000))
}

fn receiver() -> Receiver {
    let ends = (address(1), address(2));
    RepairReceiver::new(ends, None, u32::MAX, REPEAT, Instant::ZERO, |_, _| {})
}

fn give(receiver: &mut Receiver, now: Instant, number: u64) {
    let mut payload = [0; 28];
    Header::new(Kind::Reply, address(1), Label(0), Level::ZERO).emit(&mut payload).expect("room");
    payload[20..].copy_from_slice(&number.to_be_bytes());
    let datagram = Datagram { source: address(2), channel: None, ecn: Ecn::NotCapable, payload: &payload };
    receiver.handle(now, Input::Datagram(datagram));
}

/// Requests that go out at `now`.
fn asked(receiver: &mut Receiver, now: Instant) -> usize {
    let mut buffer = [0; 100];
    let request = |buffer: &[u8]| Header::parse(buffer).is_ok_and(|(header, _)| header.kind == Kind::Request);
    let mut count = 0;
    while let Some(Output::Transmit(transmit)) = receiver.poll_output(now, &mut buffer) {
        count += usize::from(request(&buffer[..transmit.bytes]));
    }
    count
}

#[test]
fn what_never_comes_is_given_up() {
    let (mut receiver, window, mut now) = (receiver(), u64::from(WINDOW_MAX), Instant::ZERO);
    give(&mut receiver, now, 0);
    give(&mut receiver, now, window);
    for _ in 0..10 {
        assert_eq!(asked(&mut receiver, now), WINDOW_MAX as usize - 1);
        assert_eq!(asked(&mut receiver, now), 0, "not before its time");
        now += REPEAT;
    }
    assert_eq!(asked(&mut receiver, now), 0);
    let counters = receiver.counters();
    assert_eq!((counters.missed, counters.lost, counters.received), (window - 1, window - 1, 2));
}

#[test]
fn numbers_out_of_all_order_count_only_once_they_are_many() {
    let (mut receiver, now) = (receiver(), Instant::ZERO);
    give(&mut receiver, now, 100);
    give(&mut receiver, now, u64::MAX / 2);
    give(&mut receiver, now, 101);
    assert_eq!(receiver.counters().received, 2);
    assert_eq!(asked(&mut receiver, now), 0, "nothing is missing");
    for number in 1_000_000..1_000_020 {
        give(&mut receiver, now, number);
    }
    assert_eq!((receiver.counters().received, receiver.counters().missed), (2 + 4, 0));
}
