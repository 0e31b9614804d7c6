//! Relays on loopback sockets: a tree, a relay that goes away and comes back, a link that is shaped.

use std::net::{SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headwater::proto::bcfs::relay::{EgressShape, RelayConfig, Upstream};
use headwater::proto::bcfs::{BcfsSource, Client, Label, Level, ReplyTo, RouterConfig};
use headwater::proto::queue::QueueConfig;
use headwater::proto::{DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Rate, Seed};
use headwater::relay::{RelayOptions, RelayProgress, RelaySession};
use headwater::{Session, StopHandle};

const BODY: usize = 1_000;
const ANY: &str = "127.0.0.1:0";

/// A relay on a thread.
struct Running {
    address: SocketAddr,
    stop: StopHandle,
    thread: JoinHandle<RelayProgress>,
}

impl Running {
    fn start(listen: SocketAddr, options: RelayOptions) -> Self {
        let mut session =
            RelaySession::open(RelayOptions { listen: vec![listen], ..options }).expect("a relay");
        let (address, stop) = (session.local_addrs()[0], session.stop_handle());
        let thread = std::thread::spawn(move || session.run(&mut |_| {}).expect("it runs"));
        Self { address, stop, thread }
    }

    fn end(self) -> RelayProgress {
        self.stop.stop();
        self.thread.join().expect("no panic")
    }
}

fn any() -> SocketAddr {
    ANY.parse().expect("an address")
}

fn config() -> RelayConfig {
    RelayConfig::new(RouterConfig::default(), Seed(0))
}

fn below(relay: &Running) -> RelayOptions {
    let upstreams = vec![Upstream { source: None, via: relay.address }];
    RelayOptions::new(config().with_upstreams(upstreams))
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(ANY).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    socket
}

fn send(socket: &UdpSocket, destination: Destination, bytes: &[u8]) {
    let Destination::Unicast(to) = destination else { panic!("by unicast") };
    // While a relay is gone, the system may say so.
    let _gone = socket.send_to(bytes, to);
}

/// Answers requests until it is dropped; the number of them.
struct Answering {
    address: SocketAddr,
    ends: std::sync::mpsc::Sender<()>,
    thread: JoinHandle<u64>,
}

impl Answering {
    fn start() -> Self {
        let socket = socket();
        let address = socket.local_addr().expect("an address");
        let (ends, ended) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut source, mut answered) = (BcfsSource::new(Some(address), ReplyTo::Peer), 0);
            source.bind(Label(0), 0).expect("one");
            let (start, mut buffer) = (Instant::now(), vec![0; DATAGRAM_BYTES_MAX]);
            while ended.try_recv().is_err() {
                let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
                let now = headwater::proto::Instant::ZERO + start.elapsed().into();
                let payload = &buffer[..bytes];
                let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload };
                let Some(asked) = source.receive(now, &datagram).filter(|asked| asked.wants_reply) else {
                    continue;
                };
                let (path, label, level) = (asked.path, asked.label, asked.level);
                let reply = source.reply(now, &path, label, level, BODY, &mut buffer);
                send(&socket, reply.destination, &buffer[..reply.bytes]);
                answered += 1;
            }
            answered
        });
        Self { address, ends, thread }
    }

    fn end(self) -> u64 {
        self.ends.send(()).expect("it runs");
        self.thread.join().expect("no panic")
    }
}

/// Asks for one reply on each label, at most so many at a time, again with a higher level after 200 ms; the
/// replies that came, all within a minute.
fn ask(source: SocketAddr, relay: SocketAddr, labels: std::ops::Range<u32>, at_a_time: usize) -> u64 {
    let (socket, mut client) = (socket(), Client::new(source, relay).with_words());
    client.bind(Label(0), 0).expect("one");
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (mut next, end) = (labels.clone(), Instant::now() + Duration::from_secs(60));
    let mut waiting: Vec<(Label, Level, Instant)> = Vec::new();
    let mut got = 0;
    socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a timeout");
    while got < u64::from(labels.end - labels.start) {
        assert!(Instant::now() < end, "{got} replies of {}", labels.len());
        while waiting.len() < at_a_time
            && let Some(label) = next.next()
        {
            waiting.push((Label(label), Level::ZERO, Instant::now()));
        }
        for (label, level, due) in waiting.iter_mut().filter(|(_, _, due)| *due <= Instant::now()) {
            *level = level.raised();
            *due = Instant::now() + Duration::from_millis(200);
            let request = client.request(*label, *level, Some(b""), &mut buffer);
            send(&socket, request.destination, &buffer[..request.bytes]);
        }
        let Ok((bytes, from)) = socket.recv_from(&mut buffer) else { continue };
        let payload = &buffer[..bytes];
        let datagram = Datagram { source: from, channel: None, ecn: Ecn::NotCapable, payload };
        let reply = client.receive(&datagram).map(|reply| (reply.label, reply.body.len()));
        if let Some(request) = client.poll_refused(&mut buffer) {
            send(&socket, request.destination, &buffer[..request.bytes]);
        }
        let Some((label, body_bytes)) = reply else { continue };
        assert_eq!(body_bytes, BODY);
        let before = waiting.len();
        waiting.retain(|(waiting, _, _)| *waiting != label);
        got += (before - waiting.len()) as u64;
    }
    got
}

#[test]
fn a_tree_brings_each_receiver_what_it_asks_for_and_holds_equal_requests_back() {
    let source = Answering::start();
    let top = Running::start(any(), RelayOptions::default());
    let leaves = [(); 2].map(|()| Running::start(any(), below(&top)));
    // All ask for the same, each at its own pace.
    let receivers: Vec<_> = (0..6)
        .map(|i| (source.address, leaves[i % 2].address, 20 + i))
        .map(|(source, relay, width)| std::thread::spawn(move || ask(source, relay, 0..400, width)))
        .collect();
    for receiver in receivers {
        assert_eq!(receiver.join().expect("no panic"), 400);
    }
    let [one, other] = leaves.map(|leaf| leaf.end().counters);
    let top = top.end().counters;
    let answered = source.end();
    assert!((400..=6 * 400).contains(&answered));
    assert_eq!(top.router.replies + top.router.dropped.unsolicited, answered);
    for leaf in [one, other] {
        assert!(leaf.router.suppressed > 0, "{leaf:?}");
        assert!(leaf.router.requests >= 3 * 400);
        assert_eq!(leaf.refused.malformed + leaf.refused.no_neighbour + leaf.router.dropped.no_route, 0);
        assert_eq!(leaf.neighbours, 4, "three below, one above");
    }
}

#[test]
fn a_relay_that_was_killed_and_started_again_loses_nothing() {
    let source = Answering::start();
    let top = Running::start(any(), RelayOptions::default());
    let leaf = Running::start(any(), below(&top));
    let (above, at) = (below(&top), leaf.address);
    let (from, asked) = (source.address, leaf.address);
    let receiver = std::thread::spawn(move || ask(from, asked, 0..3_000, 4));
    std::thread::sleep(Duration::from_millis(100));
    leaf.end();
    std::thread::sleep(Duration::from_millis(300));
    let leaf = Running::start(at, above);
    assert_eq!(receiver.join().expect("no panic"), 3_000);
    assert!(leaf.end().counters.router.replies > 0, "it was in time");
    top.end();
    source.end();
}

#[test]
fn a_link_with_a_rate_is_not_faster() {
    let source = Answering::start();
    // 100 replies of 1048 bytes with their headers take 0.84 s.
    let shape = EgressShape { rate: Rate::from_kilobits(1_000), queue: QueueConfig::drop_tail(200) };
    let relay = Running::start(any(), RelayOptions::new(config().with_shape(Some(shape))));
    let start = Instant::now();
    assert_eq!(ask(source.address, relay.address, 0..100, 4), 100);
    assert!(start.elapsed() > Duration::from_millis(750), "{:?}", start.elapsed());
    assert!(relay.end().counters.egress.sent >= 200);
    source.end();
}
