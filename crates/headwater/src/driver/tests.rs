//! What a machine is told, on the loopback interface: when, and of what comes next.

use std::io::{self, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use headwater_proto::control::Membership;
use headwater_proto::{
    ChannelId, Destination, EXPECTED_MAX, Ecn, Input, Instant, InterfaceId, Machine, Output, Transmit,
};

use super::reading::ReadPace;
use super::{Application, Hooks, Port, drive};
use crate::clock::Clock;
use crate::net::{
    BorrowedFd, Channels, Interface, LinkChange, MembershipError, Poller, ReceiverOptions, ReceiverSocket,
    RecvBatch, Run, SendError, SocketLayer,
};

/// How late each turn reads.
const LATE: Duration = Duration::from_millis(30);
/// What a datagram may take over the loopback interface.
const SLACK: Duration = Duration::from_millis(5);

/// Writes down when it was told what.
#[derive(Default)]
struct Diary {
    times: Vec<Instant>,
    heard: Vec<(Instant, u8)>,
    /// Of each call, and after how many datagrams it came.
    expected: Vec<(usize, Vec<u8>)>,
    /// It looks at the first of each call only.
    is_hasty: bool,
    /// Datagrams that are ready to be sent to an address, and the time given for each that was sent.
    ready: Option<(usize, SocketAddr)>,
    spoken: Vec<Instant>,
}

impl Machine for Diary {
    type Event = ();

    fn expect(&mut self, payloads: &mut dyn Iterator<Item = &[u8]>) {
        let most = if self.is_hasty { 1 } else { usize::MAX };
        self.expected.push((self.heard.len(), payloads.map(|payload| payload[0]).take(most).collect()));
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.times.push(now);
        if let Input::Datagram(datagram) = input {
            self.heard.push((now, datagram.payload[0]));
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<()>> {
        let (count, to) = self.ready.as_mut().filter(|(count, _)| *count > 0)?;
        *count -= 1;
        let (destination, bytes, ecn) = (Destination::Unicast(*to), 1_400, Ecn::NotCapable);
        buffer[..bytes].fill(0);
        self.spoken.push(now);
        Some(Output::Transmit(Transmit { destination, bytes, ecn }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Application that only acts at each turn of the driver, until it gives no next turn.
trait Script {
    fn step(&mut self, diary: &mut Diary, now: Instant) -> Option<Instant>;
}

/// Runs a script as an application.
struct Scripted<'a, S>(&'a mut S);

impl<S: Script> Application<Diary, ReceiverSocket> for Scripted<'_, S> {
    fn event(&mut self, (): ()) {}

    fn membership(&mut self, _membership: Membership) {}

    fn link(&mut self, _change: LinkChange) {}

    fn observe(
        &mut self,
        diary: &mut Diary,
        _port: &ReceiverSocket,
        _unsent: u64,
        now: Instant,
    ) -> Option<Instant> {
        self.0.step(diary, now)
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

impl Script for Slow {
    fn step(&mut self, _machine: &mut Diary, now: Instant) -> Option<Instant> {
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

/// Sends all at once, and waits until it was heard.
struct Burst {
    from: UdpSocket,
    to: SocketAddr,
    is_sent: bool,
}

impl Burst {
    const DATAGRAMS: u8 = 100;
}

impl Script for Burst {
    fn step(&mut self, diary: &mut Diary, now: Instant) -> Option<Instant> {
        if !std::mem::replace(&mut self.is_sent, true) {
            for number in 0..Self::DATAGRAMS {
                self.from.send_to(&[number], self.to).expect("there is room");
            }
        }
        (diary.heard.len() < Self::DATAGRAMS.into()).then(|| now + Duration::from_secs(1).into())
    }
}

/// Sends single datagrams until the kernel notes when they came, then more at once than one turn reads, and
/// is late for them.
struct Crowd {
    from: UdpSocket,
    to: SocketAddr,
    clock: Clock,
    /// When the last datagram of its kind had been sent: single ones, then the crowd.
    single: Option<Instant>,
    crowd: Option<Instant>,
}

impl Crowd {
    const DATAGRAMS: usize = 400;
    const SINGLE: u8 = 0;
    const ONE_OF_MANY: u8 = 1;

    fn send(&self, kind: u8) -> Instant {
        self.from.send_to(&[kind], self.to).expect("there is room");
        self.clock.now()
    }
}

impl Script for Crowd {
    fn step(&mut self, diary: &mut Diary, now: Instant) -> Option<Instant> {
        let heard = diary.heard.iter().filter(|(_, kind)| *kind == Self::ONE_OF_MANY).count();
        if self.crowd.is_none() {
            let is_timed = |sent| diary.heard.last().is_some_and(|(at, _)| *at < sent + SLACK.into());
            if self.single.is_some_and(is_timed) {
                let crowd: Vec<_> = (0..Self::DATAGRAMS).map(|_| self.send(Self::ONE_OF_MANY)).collect();
                self.crowd = crowd.last().copied();
            } else {
                self.single = Some(self.send(Self::SINGLE));
            }
            thread::sleep(LATE);
        }
        (heard < Self::DATAGRAMS).then(|| now + Duration::from_secs(1).into())
    }
}

/// Waits until all that is ready was sent, without a deadline before.
struct Patient;

impl Script for Patient {
    fn step(&mut self, diary: &mut Diary, now: Instant) -> Option<Instant> {
        diary.ready.filter(|(count, _)| *count > 0).map(|_| now + Duration::from_secs(60).into())
    }
}

/// A socket that hears a group on the loopback interface, and one that speaks to it.
fn loopback(to: SocketAddr) -> (ReceiverSocket, UdpSocket) {
    let channels = Channels::new(to, 1).unwrap();
    let interface = Some(Interface::find("lo").unwrap());
    let options = ReceiverOptions { interface, ..ReceiverOptions::default() };
    let mut port = ReceiverSocket::open(&channels, &options).unwrap();
    port.join(ChannelId::BASE).unwrap();
    let from = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    from.set_multicast_if_v4(&std::net::Ipv4Addr::LOCALHOST).unwrap();
    (port, from.into())
}

const HOOKS: Hooks<'static> = Hooks { trace: None, loss: None, dscp: 0, ttl: 0 };

/// What a machine noted of a burst of datagrams that it was told of before they came, in the order in which
/// they came.
fn told_of_a_burst(to: &str, mut diary: Diary) -> Diary {
    let to: SocketAddr = to.parse().unwrap();
    let (mut port, from) = loopback(to);
    let mut burst = Burst { from, to, is_sent: false };
    drive(
        &mut diary,
        &mut port,
        &mut Poller::new().unwrap(),
        Clock::start(),
        HOOKS,
        &mut Scripted(&mut burst),
    )
    .unwrap();
    diary
}

#[test]
fn a_machine_is_told_of_each_datagram_before_it_comes() {
    let diary = told_of_a_burst("239.77.250.2:19878", Diary::default());

    let heard: Vec<u8> = diary.heard.iter().map(|(_, number)| *number).collect();
    let expected = |(before, numbers): &(usize, Vec<u8>)| {
        assert!(
            numbers.len() <= EXPECTED_MAX && heard[*before..].starts_with(numbers),
            "{numbers:?} at {before}"
        );
        numbers.clone()
    };
    assert_eq!(diary.expected.iter().flat_map(expected).collect::<Vec<_>>(), heard);
}

#[test]
fn a_machine_that_does_not_look_at_all_that_it_is_told_of_is_told_of_the_next_all_the_same() {
    let hasty = Diary { is_hasty: true, ..Diary::default() };
    let diary = told_of_a_burst("239.77.250.3:19879", hasty);

    assert!(diary.expected.len() > 1, "a burst is more than one batch");
    for (before, numbers) in diary.expected {
        assert_eq!(numbers, [diary.heard[before].1]);
    }
}

/// More than one buffer of datagrams: the machine is told the time anew, and nothing waits for a deadline.
#[test]
fn datagrams_beyond_a_buffer_leave_in_turns_of_their_own_without_a_wait() {
    let (mut port, _) = loopback("239.77.250.5:19881".parse().unwrap());
    let mut diary = Diary { ready: Some((600, "127.0.0.1:9".parse().unwrap())), ..Diary::default() };
    let clock = Clock::start();
    let mut poller = Poller::new().unwrap();
    drive(&mut diary, &mut port, &mut poller, clock, HOOKS, &mut Scripted(&mut Patient)).unwrap();

    assert_eq!(diary.spoken.len(), 600);
    assert!(clock.now() < Instant::ZERO + Duration::from_secs(30).into());
    let mut times = diary.spoken;
    times.dedup();
    assert!(times.len() >= 3 && times.is_sorted(), "{times:?}");
}

/// Whether the kernel notes when datagrams come; says so aloud where it does not.
fn notes_arrivals() -> bool {
    let notes = SocketLayer::current() != SocketLayer::Portable;
    if !notes {
        // Past the capture of passed tests' output.
        let why = b"not run: the portable layer reads no times of arrival\n";
        io::stderr().write_all(why).unwrap();
    }
    notes
}

#[test]
fn a_machine_is_told_when_a_datagram_came_not_when_it_was_read() {
    if !notes_arrivals() {
        return;
    }
    let to: SocketAddr = "239.77.250.1:19877".parse().unwrap();
    let (mut port, from) = loopback(to);
    let clock = Clock::start();
    let mut slow = Slow { from, to, clock, sent: Vec::new() };
    let mut diary = Diary::default();
    drive(&mut diary, &mut port, &mut Poller::new().unwrap(), clock, HOOKS, &mut Scripted(&mut slow))
        .unwrap();

    assert!(diary.times.is_sorted(), "time never goes back");
    let heard: Vec<_> = diary.heard.iter().map(|(_, number)| usize::from(*number)).collect();
    assert!(heard.is_sorted() && heard.len() + 1 >= Slow::TURNS, "{heard:?}");
    // A busy machine may hold the sending up; the kernel takes the time only some moments after it was first
    // asked to.
    let soon = diary.heard.iter().filter(|(at, number)| {
        let sent = slow.sent[usize::from(*number)];
        (sent..sent + SLACK.into()).contains(at)
    });
    assert!(soon.count() * 2 > heard.len(), "{:?} sent at {:?}", diary.heard, slow.sent);
}

#[test]
fn datagrams_that_wait_for_the_next_turn_keep_the_time_when_they_came() {
    if !notes_arrivals() {
        return;
    }
    let to: SocketAddr = "239.77.250.4:19880".parse().unwrap();
    let (mut port, from) = loopback(to);
    let clock = Clock::start();
    let mut crowd = Crowd { from, to, clock, single: None, crowd: None };
    let mut diary = Diary::default();
    drive(&mut diary, &mut port, &mut Poller::new().unwrap(), clock, HOOKS, &mut Scripted(&mut crowd))
        .unwrap();

    let sent = crowd.crowd.expect("the kernel notes times");
    let of_crowd = diary.heard.iter().filter(|(_, kind)| *kind == Crowd::ONE_OF_MANY);
    let late = of_crowd.filter(|(at, _)| *at > sent + SLACK.into()).count();
    assert_eq!(late, 0, "datagrams of {} were told of as of the time when they were read", Crowd::DATAGRAMS);
}

/// Machine with a timeout each millisecond.
struct Ticker {
    next: Instant,
    slack: headwater_proto::Duration,
    heard: Vec<u8>,
    /// Turns from which the thread was away, which read.
    late: usize,
}

impl Ticker {
    const EVERY: headwater_proto::Duration = headwater_proto::Duration::from_millis(1);
    const TICKS: u64 = 200;

    fn is_over(&self) -> bool {
        self.next > Instant::ZERO + Self::EVERY.saturating_mul(Self::TICKS)
    }
}

impl Machine for Ticker {
    type Event = ();

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.late += usize::from(now >= self.next + headwater_proto::Duration::from_micros(400));
        while self.next <= now {
            self.next += Self::EVERY;
        }
        if let Input::Datagram(datagram) = input {
            self.heard.push(datagram.payload[0]);
        }
    }

    fn poll_output(&mut self, _now: Instant, _buffer: &mut [u8]) -> Option<Output<()>> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn slack(&self) -> headwater_proto::Duration {
        self.slack
    }
}

/// Socket that counts how often the driver reads.
struct CountingPort {
    socket: ReceiverSocket,
    reads: usize,
    pace: ReadPace,
}

impl Port for CountingPort {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.socket.fds()
    }

    fn receive(&mut self, batch: &mut RecvBatch) -> io::Result<usize> {
        self.reads += 1;
        self.socket.recv(batch)
    }

    fn has_all(&self, batch: &RecvBatch) -> bool {
        batch.is_all()
    }

    fn read_pace(&self) -> ReadPace {
        self.pace
    }

    fn change(&mut self, membership: Membership) -> Result<(), MembershipError> {
        Port::change(&mut self.socket, membership)
    }

    fn address(&self, channel: ChannelId) -> Option<SocketAddr> {
        Port::address(&self.socket, channel)
    }

    fn local(&self, interface: InterfaceId, peer: SocketAddr) -> SocketAddr {
        Port::local(&self.socket, interface, peer)
    }

    fn send(&mut self, egress: InterfaceId, runs: &[Run<'_>]) -> Result<u64, SendError> {
        Port::send(&mut self.socket, egress, runs)
    }

    fn inspect_link(&mut self) -> Option<LinkChange> {
        Port::inspect_link(&mut self.socket)
    }
}

/// Counts turns, and sends a datagram at the half.
struct Turns {
    from: UdpSocket,
    to: SocketAddr,
    turns: u64,
    is_sent: bool,
}

impl Application<Ticker, CountingPort> for Turns {
    fn event(&mut self, (): ()) {}

    fn observe(&mut self, ticker: &mut Ticker, _: &CountingPort, _: u64, now: Instant) -> Option<Instant> {
        self.turns += 1;
        let half = Instant::ZERO + Ticker::EVERY.saturating_mul(Ticker::TICKS / 2);
        if now >= half && !std::mem::replace(&mut self.is_sent, true) {
            self.from.send_to(&[7], self.to).expect("there is room");
        }
        (!ticker.is_over()).then(|| now + Duration::from_secs(60).into())
    }
}

/// Turns and reads of a ticker with a slack, and what the ticker heard.
fn ticks(to: &str, slack: headwater_proto::Duration) -> (u64, usize, Ticker) {
    let to: SocketAddr = to.parse().unwrap();
    let (socket, from) = loopback(to);
    let mut ticker = Ticker { next: Instant::ZERO, slack, heard: Vec::new(), late: 0 };
    let mut port = CountingPort { socket, reads: 0, pace: ReadPace::DATA };
    let mut turns = Turns { from, to, turns: 0, is_sent: false };
    drive(&mut ticker, &mut port, &mut Poller::new().unwrap(), Clock::start(), HOOKS, &mut turns).unwrap();
    (turns.turns, port.reads, ticker)
}

#[test]
fn timeouts_within_the_slack_of_a_machine_share_a_turn() {
    let slack = Ticker::EVERY.saturating_mul(20);
    let (turns, _, ticker) = ticks("239.77.250.6:19882", slack);
    assert!(turns <= Ticker::TICKS / 20 + 4, "{turns} turns");
    assert_eq!(ticker.heard, [7], "a datagram ends the wait");
}

#[test]
fn turns_of_timers_read_nothing() {
    let (turns, reads, ticker) = ticks("239.77.250.7:19883", headwater_proto::Duration::ZERO);
    // Other programs' datagrams to the port end waits, too.
    assert!(reads <= 20 + ticker.late && turns > 20, "{reads} reads in {turns} turns, {} late", ticker.late);
    assert_eq!(ticker.heard, [7]);
}

/// Ends once a flood of datagrams is over.
struct Flood {
    is_over: Arc<AtomicBool>,
    turns: usize,
}

impl Application<Ticker, CountingPort> for Flood {
    fn event(&mut self, (): ()) {}

    fn observe(&mut self, _: &mut Ticker, _: &CountingPort, _: u64, now: Instant) -> Option<Instant> {
        self.turns += 1;
        (!self.is_over.load(Ordering::Relaxed)).then(|| now + Duration::from_millis(10).into())
    }
}

#[test]
fn a_sender_reads_a_bounded_part_of_a_flood() {
    let to: SocketAddr = "239.77.250.8:19884".parse().unwrap();
    let (socket, from) = loopback(to);
    let is_over = Arc::new(AtomicBool::new(false));
    let flood = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let began = std::time::Instant::now();
            let mut sent = 0_u32;
            while began.elapsed() < Duration::from_millis(200) {
                from.send_to(&[1], to).expect("there is room");
                sent += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            sent
        }
    });
    let mut ticker = Ticker { next: Instant::ZERO, slack: Ticker::EVERY, heard: Vec::new(), late: 0 };
    let mut port = CountingPort { socket, reads: 0, pace: ReadPace::REPORTS };
    let (clock, mut application) = (Clock::start(), Flood { is_over, turns: 0 });
    drive(&mut ticker, &mut port, &mut Poller::new().unwrap(), clock, HOOKS, &mut application).unwrap();

    let (milliseconds, sent) = (clock.now().as_nanos() / 1_000_000, flood.join().unwrap());
    let bound = 64 * (usize::try_from(milliseconds).unwrap() * 4 / 5 + 4);
    assert!(!ticker.heard.is_empty() && ticker.heard.len() <= bound, "{} of {sent}", ticker.heard.len());
    assert!(port.reads <= 2 * application.turns, "{} reads in {} turns", port.reads, application.turns);
}
