//! Streams of buffers over real multicast on the loopback interface, between spawned sessions.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use headwater::stream::{
    Received, StreamError, StreamFeed, StreamOutcome, StreamReceiveOptions, StreamReceiveSession,
    StreamReceiveSummary, StreamReceiveUpdate, StreamSendOptions, StreamSendSession, StreamSendSummary,
    StreamStarted, SubmitError,
};
use headwater::{
    CongestionControl, GroupKeys, LayerOptions, LinkOptions, ListenOptions, Loss, SendEnd, SendOptions,
    SendSession, SenderKey, Session, SessionThread, SimOptions, Trust, prepare,
};

/// A receiver that hears nothing for so long has failed. Long, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A group and port that no other test of this run uses, below those that the system hands out.
fn group() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let test = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = u16::try_from(std::process::id() % 120).unwrap();
    format!("239.254.{process}.{}:{}", test, 20_100 + process * 20 + test).parse().unwrap()
}

fn loopback(group: SocketAddr) -> LinkOptions {
    LinkOptions { interface: Some("lo".into()), ..LinkOptions::new(group) }
}

/// Sending session on a thread, with its feed.
struct Sender {
    started: StreamStarted,
    feed: StreamFeed,
    thread: SessionThread<StreamSendSession>,
}

impl Sender {
    fn submit(&self, bytes: Vec<u8>, time: Duration) -> Result<(), StreamError> {
        self.feed.submit(bytes, time)
    }

    fn finish(self) -> StreamSendSummary {
        self.feed.finish();
        self.thread.join().unwrap()
    }
}

fn sender(group: SocketAddr, control: CongestionControl) -> Sender {
    let session = StreamSendSession::open(StreamSendOptions::new(loopback(group), control)).unwrap();
    let (started, feed) = (session.started(), session.feed());
    Sender { started, feed, thread: session.spawn().unwrap() }
}

fn receiver(options: StreamReceiveOptions) -> SessionThread<StreamReceiveSession> {
    StreamReceiveSession::open(options).unwrap().spawn().unwrap()
}

fn buffer(update: StreamReceiveUpdate) -> Option<Received> {
    if let StreamReceiveUpdate::Buffer(received) = update { Some(received) } else { None }
}

/// All buffers up to the end of the stream, and the summary.
fn receive(mut receiver: SessionThread<StreamReceiveSession>) -> (Vec<Received>, StreamReceiveSummary) {
    let buffers = receiver.updates().filter_map(buffer).collect();
    assert_eq!(receiver.lost(), 0);
    (buffers, receiver.join().unwrap())
}

fn m2c(max: &str) -> CongestionControl {
    let layers = LayerOptions::new().with_base_rate("200k".parse().unwrap());
    CongestionControl::M2c(layers.with_max_rate(max.parse().unwrap()))
}

fn receive_options(group: SocketAddr) -> StreamReceiveOptions {
    let listen = ListenOptions::new(group);
    let listen = ListenOptions { interface: Some("lo".into()), timeout: Some(PATIENCE), ..listen };
    StreamReceiveOptions::new(listen)
}

/// A buffer that no other one is like.
fn content(number: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| number.wrapping_mul(37) ^ u8::try_from(at / 11 % 251).unwrap()).collect()
}

fn check(received: &Received, bytes: usize) {
    let whole = content(u8::try_from(received.id).unwrap(), bytes);
    assert_eq!(received.prefix[..], whole[..received.prefix.len()], "buffer {}", received.id);
    assert!(received.prefix.is_empty() || received.length == Some(bytes));
}

/// Two receivers of one M2C session, one of which wants little: both have the beginnings of the buffers, and
/// the other one has more of them.
#[test]
fn receivers_of_two_rates_have_the_beginning_as_far_as_their_rate_goes() {
    let group = group();
    let fast = receiver(receive_options(group));
    let mut slow = receive_options(group);
    slow.listen.max_rate = Some("500k".parse().unwrap());
    let slow = receiver(slow);
    let sender = sender(group, m2c("4M"));
    assert_eq!(sender.started.part_bytes, 1_408);
    assert!(sender.started.channels > 10);
    // All that 4 Mbit/s bring in half a second, eighteen times.
    let (bytes, buffers) = (250_000, 18);
    for number in 0..buffers {
        sender.submit(content(number, bytes), Duration::from_millis(500)).unwrap();
    }
    let sent = sender.finish();
    assert!(sent.is_complete);
    assert_eq!(sent.progress.stats.buffers, u64::from(buffers));
    let prefixes = |receiver| {
        let (buffers, summary) = receive(receiver);
        assert_eq!(summary.outcome, StreamOutcome::Closed);
        assert_eq!(summary.progress.control.name, "m2c");
        buffers.iter().for_each(|received| check(received, bytes));
        buffers.iter().map(|received| received.prefix.len()).collect::<Vec<_>>()
    };
    let (fast, slow) = (prefixes(fast), prefixes(slow));
    assert!(fast.len() >= 17 && slow.len() >= 17, "{fast:?} {slow:?}");
    // Datagrams may be lost on a busy machine, and a receiver may then slow down: the best of the later
    // buffers counts.
    let best = |prefixes: &[usize]| prefixes[6..].iter().copied().max().unwrap();
    assert!(best(&slow) > 8_000, "{slow:?}");
    assert!(best(&slow) < 60_000, "more than 500 kbit/s bring: {slow:?}");
    assert!(best(&fast) > 2 * best(&slow), "{fast:?} {slow:?}");
}

/// A stream is encrypted and signed packet by packet: a member of the group has the buffers, and nobody else.
#[test]
fn an_encrypted_stream_is_for_the_group_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, others] = ["ours", "others"].map(|name| GroupKeys::create(&folder.path().join(name)).unwrap());
    let group = group();
    let receivers = [Some(&ours), Some(&others), None].map(|keys| {
        let mut options = receive_options(group);
        (options.listen.group_key, options.listen.trust) = (keys.cloned(), Trust::First);
        receiver(options)
    });
    let options = StreamSendOptions {
        signing: Some(SenderKey::ephemeral().unwrap()),
        group_key: Some(ours),
        ..StreamSendOptions::new(loopback(group), CongestionControl::Fixed { rate: "4M".parse().unwrap() })
    };
    let session = StreamSendSession::open(options).unwrap();
    let (started, feed) = (session.started(), session.feed());
    let sender = Sender { started, feed, thread: session.spawn().unwrap() };
    let (bytes, buffers) = (20_000, 20);
    for number in 0..buffers {
        sender.submit(content(number, bytes), Duration::from_millis(100)).unwrap();
    }
    assert!(sender.finish().is_complete);
    let whole = receivers.map(|receiver| {
        let (buffers, _) = receive(receiver);
        buffers.iter().for_each(|received| check(received, bytes));
        buffers.iter().filter(|received| received.prefix.len() == bytes).count()
    });
    assert!(whole[0] >= 15, "{whole:?}");
    assert_eq!(whole[1..], [0, 0]);
}

/// Packets with the sender's public key take the place of no part: the last packet of the base channel in a
/// buffer's time is the beginning of the buffer.
#[test]
fn a_receiver_of_the_base_channel_has_the_beginning_of_signed_buffers() {
    let group = group();
    let mut options = receive_options(group);
    options.listen.trust = Trust::First;
    options.listen.max_rate = Some("210k".parse().unwrap());
    let receiver = receiver(options);
    let options = StreamSendOptions {
        signing: Some(SenderKey::ephemeral().unwrap()),
        ..StreamSendOptions::new(loopback(group), m2c("2M"))
    };
    let session = StreamSendSession::open(options).unwrap();
    let (started, feed) = (session.started(), session.feed());
    let sender = Sender { started, feed, thread: session.spawn().unwrap() };
    let buffers = 8;
    for number in 0..buffers {
        sender.submit(content(number, 100_000), Duration::from_millis(500)).unwrap();
    }
    assert!(sender.finish().is_complete);
    let (received, _) = receive(receiver);
    received.iter().for_each(|received| check(received, 100_000));
    let begun = received.iter().filter(|received| received.prefix.len() > 3_000).count();
    assert!(begun + 3 >= usize::from(buffers), "{begun} of {buffers} buffers have a beginning");
}

/// The sequencer lays each buffer on what the groups send when it begins, though reports move them meanwhile.
#[test]
fn buffers_go_as_fast_as_reports_allow_by_sim() {
    let group = group();
    let receiver = receiver(receive_options(group));
    let control = CongestionControl::Sim(SimOptions::new().with_max_rate("4M".parse().unwrap()));
    let sender = sender(group, control);
    let (bytes, buffers) = (100_000, 14);
    for number in 0..buffers {
        sender.submit(content(number, bytes), Duration::from_millis(500)).unwrap();
    }
    assert!(sender.finish().is_complete);
    let (buffers, summary) = receive(receiver);
    buffers.iter().for_each(|received| check(received, bytes));
    let best = buffers.iter().map(|received| received.prefix.len()).max().unwrap_or(0);
    assert_eq!((summary.outcome, summary.progress.control.name), (StreamOutcome::Closed, "sim"));
    // What the initial rate brings in half a second is 7500 bytes.
    assert!(best > 30_000, "{best}");
}

#[test]
fn one_channel_carries_all_and_the_application_is_one_buffer_ahead() {
    let group = group();
    let mut receiver = receiver(StreamReceiveOptions { wants_pieces: true, ..receive_options(group) });
    let sender = sender(group, CongestionControl::Fixed { rate: "4M".parse().unwrap() });
    let start = Instant::now();
    for number in 0..4 {
        sender.submit(content(number, 30_000), Duration::from_millis(200)).unwrap();
    }
    // The last one is next in line when the third has begun.
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(390), "{waited:?}");
    assert_eq!(
        sender.submit(Vec::new(), Duration::from_secs(1)),
        Err(StreamError::Submit(SubmitError::Empty))
    );
    let first = receiver.updates().find_map(buffer).unwrap();
    assert_eq!(first.id, 0);
    assert!(sender.finish().is_complete);
    let (rest, summary) = receive(receiver);
    for received in std::iter::once(&first).chain(&rest) {
        check(received, 30_000);
        assert!(received.is_whole(), "{} of 30000 bytes", received.prefix.len());
    }
    assert_eq!(rest.iter().map(|received| received.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(summary.outcome, StreamOutcome::Closed);
}

#[test]
fn loss_ends_the_prefix_and_pieces_follow_it() {
    let group = group();
    let mut options = StreamReceiveOptions { wants_pieces: true, ..receive_options(group) };
    options.listen.loss = Some(Loss { probability: 0.2, seed: 3 });
    let receiver = receiver(options);
    let sender = sender(group, CongestionControl::Fixed { rate: "4M".parse().unwrap() });
    // Longer than what goes out in its time, so that nothing comes twice.
    for number in 0..3 {
        sender.submit(content(number, 400_000), Duration::from_millis(500)).unwrap();
    }
    sender.finish();
    let mut pieces = 0;
    for received in receive(receiver).0 {
        check(&received, 400_000);
        let whole = content(u8::try_from(received.id).unwrap(), 400_000);
        for piece in &received.pieces {
            assert_eq!(piece.bytes[..], whole[piece.offset..piece.offset + piece.bytes.len()]);
        }
        pieces += received.pieces.len();
    }
    assert!(pieces > 20, "{pieces} pieces");
}

#[test]
fn a_stream_that_is_stopped_says_so_at_both_ends() {
    let group = group();
    let receiver = receiver(receive_options(group));
    let sender = sender(group, m2c("4M"));
    sender.submit(content(0, 10_000), Duration::from_secs(60)).unwrap();
    sender.thread.stop();
    // The one that follows is never next in line.
    let ended = (0..3).any(|_| sender.submit(content(1, 10_000), Duration::from_secs(60)).is_err());
    assert!(ended);
    assert!(!sender.finish().is_complete);
    receiver.stop();
    let summary = receiver.join().unwrap();
    assert!(matches!(summary.outcome, StreamOutcome::Interrupted | StreamOutcome::Closed));
}

#[test]
fn nothing_and_files_are_told_by_name() {
    let group = group();
    let mut options = receive_options(group);
    options.listen.timeout = Some(Duration::from_millis(200));
    let (buffers, summary) = receive(receiver(options));
    assert_eq!((buffers, summary.outcome), (Vec::new(), StreamOutcome::NothingReceived));

    let receiver = receiver(receive_options(group));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"content").unwrap();
    let files = prepare([folder.path()]).unwrap();
    let control = CongestionControl::Fixed { rate: "1M".parse().unwrap() };
    let mut options = SendOptions::new(loopback(group), control);
    options.end = SendEnd::After(Duration::from_secs(2));
    SendSession::open(files, options).unwrap().run(&mut |_| {}).unwrap();
    let (buffers, summary) = receive(receiver);
    assert_eq!((buffers, summary.outcome), (Vec::new(), StreamOutcome::NoBuffers));
}

#[test]
fn options_out_of_range_are_refused_before_anything_is_sent() {
    let group = group();
    let refused = StreamSendOptions::new(loopback(group), m2c("4M"));
    let refused = StreamSendOptions { part_bytes: Some(8_900), ..refused };
    assert!(StreamSendSession::open(refused).is_err());
    let refused = StreamSendOptions::new(loopback(group), m2c("210k"));
    assert!(StreamSendSession::open(refused).is_err());
    let mut refused = receive_options(group);
    refused.listen.loss = Some(Loss { probability: 2.0, seed: 0 });
    assert!(StreamReceiveSession::open(refused).is_err());
}
