//! What a machine is told of time, on the loopback interface.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use headwater_proto::control::Membership;
use headwater_proto::{ChannelId, Input, Instant, Machine, Output};

use super::{Application, Hooks, drive};
use crate::clock::Clock;
use crate::net::{Channels, Interface, LinkChange, Poller, ReceiverOptions, ReceiverSocket};

/// How late each turn reads.
const LATE: Duration = Duration::from_millis(30);
/// What a datagram may take over the loopback interface.
const SLACK: Duration = Duration::from_millis(5);

/// Writes down when it was told what.
#[derive(Default)]
struct Diary {
    times: Vec<Instant>,
    heard: Vec<(Instant, u8)>,
}

impl Machine for Diary {
    type Event = ();

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.times.push(now);
        if let Input::Datagram(datagram) = input {
            self.heard.push((now, datagram.payload[0]));
        }
    }

    fn poll_output(&mut self, _now: Instant, _buffer: &mut [u8]) -> Option<Output<()>> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Sends in each turn, and holds the next one up.
struct Slow {
    from: UdpSocket,
    to: SocketAddr,
    clock: Clock,
    sent: Vec<Instant>,
}

impl Slow {
    const TURNS: usize = 12;
}

impl Application<Diary, ReceiverSocket> for Slow {
    fn event(&mut self, (): ()) {}

    fn membership(&mut self, _membership: Membership) {}

    fn link(&mut self, _change: LinkChange) {}

    fn observe(
        &mut self,
        _machine: &mut Diary,
        _port: &ReceiverSocket,
        _unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        if self.sent.len() == Self::TURNS {
            return None;
        }
        let number = u8::try_from(self.sent.len()).expect("few");
        self.sent.push(self.clock.now());
        self.from.send_to(&[number], self.to).expect("there is room");
        thread::sleep(LATE);
        Some(now + Duration::from_secs(1).into())
    }
}

#[test]
fn a_machine_is_told_when_a_datagram_came_not_when_it_was_read() {
    let to: SocketAddr = "239.77.250.1:19877".parse().unwrap();
    let channels = Channels::new(to, 1).unwrap();
    let interface = Some(Interface::find("lo").unwrap());
    let options = ReceiverOptions { interface, ..ReceiverOptions::default() };
    let mut port = ReceiverSocket::open(&channels, &options).unwrap();
    port.join(ChannelId::BASE).unwrap();
    let from = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    from.set_multicast_if_v4(&std::net::Ipv4Addr::LOCALHOST).unwrap();
    let clock = Clock::start();
    let mut slow = Slow { from: from.into(), to, clock, sent: Vec::new() };
    let mut diary = Diary::default();
    let hooks = Hooks { trace: None, loss: None, dscp: 0, ttl: 0 };
    drive(&mut diary, &mut port, &mut Poller::new().unwrap(), clock, hooks, &mut slow).unwrap();

    assert!(diary.times.is_sorted(), "time never goes back");
    let heard: Vec<_> = diary.heard.iter().map(|(_, number)| usize::from(*number)).collect();
    assert!(heard.is_sorted() && heard.len() + 1 >= Slow::TURNS, "{heard:?}");
    // A busy machine may hold the sending up; the kernel takes the time only some moments after it was first asked to.
    let soon = diary.heard.iter().filter(|(at, number)| {
        let sent = slow.sent[usize::from(*number)];
        (sent..sent + SLACK.into()).contains(at)
    });
    assert!(soon.count() * 2 > heard.len(), "{:?} sent at {:?}", diary.heard, slow.sent);
}
