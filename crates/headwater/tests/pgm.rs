//! Messages over real multicast on the loopback interface, between spawned sessions.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use headwater::pgm::{
    Framing, LeSbccModule, LeSbccOptions, PgmControl, PgmFeed, PgmFeedError, PgmReceiveOptions,
    PgmReceiveOutcome, PgmReceiveSession, PgmReceiveUpdate, PgmSendOptions, PgmSendOutcome, PgmSendSession,
    PgmSendStarted, PgmSendSummary, PgmSendUpdate,
};
use headwater::{LinkOptions, ListenOptions, Loss, Session, SessionThread};
use headwater_proto::control::Value;
use headwater_wire::pgm::{Body, Options, Packet, PgmReport};

/// A receiver that hears nothing for so long has failed. Long, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A group and port that no other test of this run uses, below those that the system hands out.
fn group() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = u16::try_from(std::process::id() % 120).unwrap();
    format!("239.253.{process}.{}:{}", test, 22_600 + process * 20 + test).parse().unwrap()
}

fn le_sbcc(module: LeSbccModule) -> PgmControl {
    let options = LeSbccOptions::new().with_module(module).with_start_rate(Some("4M".parse().unwrap()));
    PgmControl::LeSbcc(options.with_max_rate("8M".parse().unwrap()))
}

fn send_options(group: SocketAddr, control: PgmControl) -> PgmSendOptions {
    let link = LinkOptions { interface: Some("lo".into()), ..LinkOptions::new(group) };
    PgmSendOptions::new(link, control)
}

fn receive_options(group: SocketAddr) -> PgmReceiveOptions {
    let listen = ListenOptions::new(group);
    let listen = ListenOptions { interface: Some("lo".into()), timeout: Some(PATIENCE), ..listen };
    PgmReceiveOptions::new(listen)
}

/// Sending session on a thread, with its feed.
struct Sender {
    started: PgmSendStarted,
    feed: PgmFeed,
    thread: SessionThread<PgmSendSession>,
}

impl Sender {
    fn start(options: PgmSendOptions) -> Self {
        let session = PgmSendSession::open(options).unwrap();
        let (started, feed) = (session.started(), session.feed());
        Self { started, feed, thread: session.spawn().unwrap() }
    }

    fn send(&self, message: &[u8]) -> Result<(), PgmFeedError> {
        self.feed.send(message)
    }

    fn finish(self) -> PgmSendSummary {
        self.feed.finish();
        self.thread.join().unwrap()
    }
}

type Receiver = SessionThread<PgmReceiveSession>;

/// A receiver that has joined the group.
fn receiver(options: PgmReceiveOptions) -> Receiver {
    let mut thread = PgmReceiveSession::open(options).unwrap().spawn().unwrap();
    assert!(thread.updates().any(|update| update == PgmReceiveUpdate::Joined));
    thread
}

/// The messages up to the end of the session, none of which is lost.
fn messages(receiver: &mut Receiver) -> impl Iterator<Item = Vec<u8>> {
    receiver.updates().filter_map(|update| match update {
        PgmReceiveUpdate::Message(message) => Some(message.into_owned()),
        PgmReceiveUpdate::Lost { packets } => panic!("{packets} packets are lost"),
        _ => None,
    })
}

/// Its number, and bytes up to several packets.
fn message(number: u32) -> Vec<u8> {
    let mut message = number.to_be_bytes().to_vec();
    let bytes = if number.is_multiple_of(50) { 5_000 } else { number as usize * 7 % 300 };
    message.resize(4 + bytes, number.to_le_bytes()[0]);
    message
}

/// The number of the first message received; those behind it must follow without a gap, up to `end`.
fn received(receiver: &mut Receiver, end: u32) -> u32 {
    let mut numbers = Vec::new();
    for got in messages(receiver) {
        let number = u32::from_be_bytes(*got.first_chunk().unwrap());
        assert!(got == message(number), "{number} is not as it was sent");
        numbers.push(number);
    }
    let first = numbers[0];
    assert!(numbers.into_iter().eq(first..end), "in order, each once, up to the end");
    first
}

#[test]
fn messages_come_whole_and_in_order_to_receivers_that_lose_some() {
    for (framing, module) in [
        (Framing::Messages, LeSbccModule::Aimd),
        (Framing::Zmq, LeSbccModule::Tfrc),
        (Framing::Zmq, LeSbccModule::Aimd),
    ] {
        let group = group();
        let mut receivers = [1, 2].map(|seed| {
            let mut options = receive_options(group);
            options.listen.loss = Some(Loss { probability: 0.05, seed });
            options.wire.framing = framing;
            receiver(options)
        });
        let mut options = send_options(group, le_sbcc(module));
        options.wire.framing = framing;
        let sender = Sender::start(options);
        let count = 600;
        (0..count).for_each(|number| sender.send(&message(number)).unwrap());
        let sent = sender.finish();
        assert_eq!(sent.outcome, PgmSendOutcome::Completed);
        assert_eq!(sent.progress.messages, u64::from(count));
        let feedback = &sent.progress.feedback;
        let stages = ["loss_indications", "loss_events", "passed", "reductions"];
        let stages = stages.map(|stage| feedback.count(stage));
        assert!(stages.is_sorted_by(|before, after| before >= after) && stages[3] > 0, "{feedback:?}");
        assert_eq!(feedback.get("worst"), Some(Value::Address(Ipv4Addr::LOCALHOST.into())));
        for receiver in &mut receivers {
            assert!(received(receiver, count) < 100, "it was there from the beginning, but for a first loss");
        }
        for receiver in receivers {
            let summary = receiver.join().unwrap();
            assert_eq!(summary.outcome, PgmReceiveOutcome::Closed);
            let counters = summary.progress.counters;
            assert_eq!((counters.lost, counters.foreign, counters.malformed.total()), (0, 0, 0));
            assert!(counters.repaired > 0 && counters.naks > 0);
        }
        assert!(sent.progress.counters.repairs > 0 && sent.progress.counters.ncfs > 0);
    }
}

#[test]
fn a_stopped_sender_says_that_it_ended() {
    let group = group();
    let mut receiver = receiver(receive_options(group));
    let sender = Sender::start(send_options(group, PgmControl::Fixed("1M".parse().unwrap())));
    let (stop, feed) = (
        sender.thread.stop_handle(),
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| (0..u32::MAX).find_map(|number| sender.send(&message(number)).err()));
            std::thread::sleep(Duration::from_millis(500));
            sender.thread.stop();
            thread.join().unwrap()
        }),
    );
    assert!(stop.is_stopped());
    assert_eq!(feed, Some(PgmFeedError::Ended), "who waits for room is let go");
    let began = Instant::now();
    let sent = sender.finish();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(sent.outcome, PgmSendOutcome::Interrupted);
    let mut count = 0_u32;
    for received in messages(&mut receiver) {
        assert_eq!(received, message(count));
        count += 1;
    }
    assert!(count > 100);
    assert_eq!(receiver.join().unwrap().outcome, PgmReceiveOutcome::Closed);
}

#[test]
fn a_receiver_says_who_sends_and_ends_by_its_timeout() {
    let group = group();
    let mut options = receive_options(group);
    options.listen.timeout = Some(Duration::from_millis(300));
    let mut nothing = receiver(options);
    assert_eq!(messages(&mut nothing).next(), None);
    assert_eq!(nothing.join().unwrap().outcome, PgmReceiveOutcome::NothingReceived);
    let mut options = receive_options(group);
    options.listen.timeout = Some(Duration::from_secs(2));
    let mut receiver = receiver(options);
    let sender = Sender::start(send_options(group, PgmControl::Fixed("1M".parse().unwrap())));
    sender.send(b"one").unwrap();
    assert_eq!(messages(&mut receiver).next(), Some(b"one".to_vec()));
    let session = (sender.started.source, sender.started.gsi);
    let progress = receiver.updates().find_map(|update| match update {
        PgmReceiveUpdate::Progress(progress) => Some(progress),
        _ => None,
    });
    assert_eq!(progress.unwrap().session, Some(session));
    drop(sender);
    assert_eq!(messages(&mut receiver).next(), None);
    assert_eq!(receiver.join().unwrap().outcome, PgmReceiveOutcome::Closed);
}

/// What came while the application took its time is read late: the source was not silent meanwhile. The
/// timeout is longer than a busy machine keeps the sender waiting.
#[test]
fn an_application_that_takes_longer_than_the_timeout_makes_no_silence() {
    let (group, timeout) = (group(), Duration::from_millis(1_500));
    let mut options = receive_options(group);
    options.listen.timeout = Some(timeout);
    let mut session = PgmReceiveSession::open(options).unwrap();
    let (joined, has_joined) = std::sync::mpsc::channel();
    let (mut messages, mut pauses) = (0, 0);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            has_joined.recv().unwrap();
            let options = send_options(group, PgmControl::Fixed("4M".parse().unwrap()));
            let sender = Sender::start(options);
            // Some three seconds, of more packets than a turn reads.
            (0..12_000).for_each(|_| sender.send(&[7; 80]).unwrap());
            sender.finish();
        });
        let summary = session.run_borrowing(&mut |update| match update {
            PgmReceiveUpdate::Joined => joined.send(()).unwrap(),
            PgmReceiveUpdate::Message(_) => {
                messages += 1;
                if messages % 4_000 == 100 {
                    pauses += 1;
                    std::thread::sleep(timeout + timeout / 2);
                }
            }
            _ => {}
        });
        summary.unwrap().outcome
    });
    assert_eq!((outcome, messages, pauses), (PgmReceiveOutcome::Closed, 12_000, 3));
}

#[test]
fn packets_of_more_than_1500_bytes_come_to_who_takes_them() {
    let group = group();
    let open = |payload_bytes| receiver(PgmReceiveOptions { payload_bytes, ..receive_options(group) });
    let (mut takes, refuses) = (open(8_000), open(7_999));
    let options = send_options(group, PgmControl::Fixed("8M".parse().unwrap()));
    let sender = Sender::start(PgmSendOptions { payload_bytes: Some(8_000), ..options });
    let sent: Vec<_> = (0..5_u8).map(|number| vec![number; 20_000]).collect();
    sent.iter().for_each(|message| sender.send(message).unwrap());
    assert!(messages(&mut takes).take(5).eq(sent));
    // It would ask on and on.
    refuses.stop();
    assert!(refuses.join().unwrap().progress.counters.malformed.contradictory > 0);
    sender.finish();
    assert_eq!(messages(&mut takes).next(), None);
    assert_eq!(takes.join().unwrap().outcome, PgmReceiveOutcome::Closed);
}

/// An end that is told once is lost as any packet may be.
#[test]
fn an_end_is_told_several_times_however_short_the_linger() {
    let options = send_options(group(), PgmControl::Fixed("1M".parse().unwrap()));
    let sender = Sender::start(PgmSendOptions { linger: Duration::ZERO, ..options });
    sender.send(b"one").unwrap();
    let spms = sender.finish().progress.counters.spms;
    assert!(spms >= 3, "{spms}");
}

#[test]
fn who_waits_for_a_session_that_never_runs_is_let_go() {
    let session =
        PgmSendSession::open(send_options(group(), PgmControl::Fixed("1M".parse().unwrap()))).unwrap();
    let feed = session.feed();
    feed.send(&[0; 60_000]).unwrap();
    let waits = std::thread::spawn(move || feed.send(&[0; 60_000]));
    drop(session);
    assert_eq!(waits.join().unwrap(), Err(PgmFeedError::Ended));
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let fixed = PgmControl::Fixed("1M".parse().unwrap());
    for (bytes, hint) in [(15, "from 16 to 8192"), (9_000, "from 16 to 8192")] {
        let options = PgmSendOptions { payload_bytes: Some(bytes), ..send_options(group(), fixed) };
        let error = PgmSendSession::open(options).unwrap_err();
        assert!(error.to_string().contains(hint), "{error}");
    }
    let error = PgmSendSession::open(send_options("10.0.0.1:7287".parse().unwrap(), fixed)).unwrap_err();
    assert!(error.to_string().contains("not a multicast address"), "{error}");
    for framing in [Framing::Messages, Framing::Zmq] {
        let mut options = send_options(group(), fixed);
        (options.window_packets, options.payload_bytes) = (64, Some(100));
        options.wire.framing = framing;
        let sender = Sender::start(options);
        let most = sender.started.message_bytes_max;
        let too_long = sender.send(&vec![0; most + 1]);
        assert_eq!(too_long, Err(PgmFeedError::TooLong { bytes: most + 1, max: most }));
        // The longest goes, behind any other.
        sender.send(b"short").unwrap();
        sender.send(&vec![0; most]).unwrap();
        assert_eq!(sender.finish().progress.messages, 2);
    }
}

/// What anyone may send to a sender's port: nonsense, NAKs for what never was, and NAKs of hundreds
/// of addresses for all that was sent.
#[test]
fn hostile_datagrams_are_counted_and_what_they_do_is_bounded() {
    let group = group();
    let mut receiver = receiver(receive_options(group));
    let sender = Sender::start(send_options(group, le_sbcc(LeSbccModule::Aimd)));
    for number in 0..300 {
        sender.send(&message(number)).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    let sent = || match sender.thread.progress() {
        Some(PgmSendUpdate::Progress(progress)) => progress.counters.originals,
        _ => 0,
    };
    while sent() < 30 {
        assert!(Instant::now() < until, "it sends");
        std::thread::sleep(Duration::from_millis(20));
    }
    let started = sender.started.clone();
    let nak = |port, sequences: std::ops::Range<u32>| {
        let mut options = Options::default();
        sequences.clone().skip(1).for_each(|number| assert!(options.nak_list.push(number)));
        let report = PgmReport { sequence: sequences.start, source: started.source.ip(), group: group.ip() };
        let packet = Packet { options, ..Packet::new(group.port(), port, started.gsi, Body::Nak(report)) };
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes).unwrap();
        bytes
    };
    let plausible = nak(started.source_port, 0..30);
    let future = nak(started.source_port, 1 << 30..(1 << 30) + 5);
    let foreign = nak(started.source_port ^ 4, 3..4);
    let (mut wrong, mut unknown) = (foreign.clone(), foreign.clone());
    wrong[6] ^= 0xFF;
    unknown[4] = 0x55;
    for number in 0..300_u32 {
        let [_, _, high, low] = (number + 2).to_be_bytes();
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 100 + high, low), 0)).unwrap();
        for bytes in [&[][..], &[0; 9], &wrong, &unknown, &foreign, &future, &plausible] {
            socket.send_to(bytes, started.source).unwrap();
        }
        // The socket's buffer holds those of some seventy addresses, and a busy machine lets it fill up.
        if number % 10 == 9 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let sent = sender.finish();
    let (counters, feedback) = (sent.progress.counters, sent.progress.feedback);
    let refused = counters.refused;
    assert!(refused.foreign > 100 && refused.future > 100 && refused.malformed.length > 100, "{refused:?}");
    assert!(refused.malformed.checksum > 100 && refused.malformed.unknown_type > 100, "{refused:?}");
    assert!(feedback.count("loss_indications") > 1_000, "{feedback:?}");
    assert!((1..=301).contains(&feedback.count("receivers")), "{feedback:?}");
    assert!(feedback.count("reductions") < 20, "one each round trip and a half: {feedback:?}");
    // 300 addresses asked 30 times each.
    assert!(counters.repairs < 600 && counters.ncfs < 600, "no amplifier: {counters:?}");
    assert_eq!(received(&mut receiver, 300), 0);
}
