//! Signed sessions of files over one link: each control, receivers that know the key, learn the key, or know
//! nothing of signatures.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use headwater_fec::{Order, Scheme};
use headwater_proto::auth::{PublicKey, Signing, SigningConfig, StandIn, VerifyingConfig, signed_bytes};
use headwater_proto::control::SenderControl;
use headwater_proto::controls::{self, Control, Description};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, End, FileToSend,
    MemorySource, MemoryStore, PlanConfig, ReceiverEvent, RelativePath, SessionEvent, SessionPlan, Verifying,
};
use headwater_proto::described::{DescribedReceiver, DescribedReceiverConfig};
use headwater_proto::rng::Stream;
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Duration, Ecn, Input, Instant, Machine, Output,
    Rate, Seed, fixed,
};
use headwater_wire::auth::{Authentication, manifest};
use headwater_wire::lct;
use rand::{Rng, RngExt};

const KEY: PublicKey = [7; 32];
const TSI: u32 = 9;
const STARTED: u32 = 0xE000_0000;
const SYMBOL: u16 = 1_024;

type Sender = DeliverySender<Box<dyn SenderControl + Send>, MemorySource>;
type Receiver = DeliveryReceiver<DescribedReceiver, MemoryStore>;

fn sender(
    control: Box<dyn SenderControl + Send>,
    content: &[u8],
    end: End,
    signing: Option<Signing>,
) -> Sender {
    let file = FileToSend {
        path: RelativePath::new("file").unwrap(),
        bytes: content.len() as u64,
        mode: None,
        modified: None,
    };
    let config =
        PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL, order: Order::Spread { rate: 8_000_000 } };
    let plan = SessionPlan::new(vec![file], config).unwrap();
    let source = MemorySource::new(&plan, &[content]);
    let digests = source.digests();
    let config = DeliverySenderConfig::new(TSI).with_end(end);
    DeliverySender::new(config, &plan, &digests, control, source).unwrap().with_signing(signing)
}

/// Pseudo-random content.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Seed(seed).stream("content", 0).fill_bytes(&mut content);
    content
}

fn signing(key: PublicKey) -> Signing {
    Signing::new(SigningConfig::new(TSI.into(), STARTED, 1, [3; 32]), Box::new(StandIn(key)))
}

fn verifying(config: VerifyingConfig) -> Option<Verifying> {
    Some(Verifying::new(config, Box::new(StandIn([0; 32])), Seed(5)))
}

fn fixed(rate: u64) -> Box<dyn SenderControl + Send> {
    Box::new(fixed::FixedSender::new(Rate::from_kilobits(rate), Instant::ZERO))
}

fn layered(control: &'static Control, base: u64, max: u64) -> Box<dyn SenderControl + Send> {
    let [base, max] = [base, max].map(Rate::from_kilobits);
    Description::new(control).with_rates(1_100, base, max).sender(Instant::ZERO).unwrap()
}

fn trusting() -> VerifyingConfig {
    VerifyingConfig::new(vec![KEY], 256)
}

fn learning() -> VerifyingConfig {
    VerifyingConfig::new(Vec::new(), 256).with_first_key(true).with_unsigned(true)
}

struct Place {
    machine: Receiver,
    begins: Instant,
    loss: f64,
    joined: BTreeSet<ChannelId>,
    events: Vec<ReceiverEvent>,
    ended: Option<Instant>,
}

fn receiver(begins: Instant, loss: f64, verifying: Option<Verifying>) -> Place {
    let control = DescribedReceiver::new(DescribedReceiverConfig::new());
    let store = MemoryStore::new(1 << 28);
    let machine = DeliveryReceiver::new(DeliveryReceiverConfig::default(), control, store, begins);
    let machine = machine.with_verifying(verifying);
    Place { machine, begins, loss, joined: BTreeSet::new(), events: Vec::new(), ended: None }
}

/// Packets sent, and those of them with a signature, a manifest.
#[derive(Debug, Default)]
struct Sent {
    packets: u64,
    bytes: u64,
    signed: u64,
    manifests: u64,
    first: Option<Instant>,
    last: Instant,
}

/// Longest header of a packet of a file, without signature.
const HEADER: usize = 24;
const DELAY: Duration = Duration::from_millis(5);

/// Runs until each receiver has ended, or until `limit`.
fn run(sender: &mut Sender, places: &mut [Place], limit: Instant) -> Sent {
    let mut sent = Sent::default();
    let mut chance: Stream = Seed(2).stream("loss", 0);
    let mut flying = BinaryHeap::new();
    let (mut now, mut order) = (Instant::ZERO, 0_u64);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            let Destination::Channel(channel) = transmit.destination else { continue };
            let datagram = buffer[..transmit.bytes].to_vec();
            let packet = lct::Packet::new_checked(datagram.as_slice()).unwrap();
            let longest = usize::from(SYMBOL) + HEADER + signed_bytes(false);
            assert!(datagram.len() <= longest, "{} bytes", datagram.len());
            sent.packets += 1;
            sent.bytes += datagram.len() as u64;
            sent.signed += u64::from(Authentication::find(&packet).unwrap().is_some());
            sent.manifests += u64::from(manifest(&packet).unwrap().is_some());
            sent.first.get_or_insert(now);
            sent.last = now;
            for (index, place) in places.iter().enumerate() {
                let is_lost = chance.random::<f64>() < place.loss;
                if place.joined.contains(&channel) && !is_lost {
                    order += 1;
                    flying.push(Reverse((now + DELAY, order, index, channel, datagram.clone())));
                }
            }
        }
        for place in &mut *places {
            tend(place, now);
        }
        let have_all_ended = !places.is_empty() && places.iter().all(|place| place.ended.is_some());
        if have_all_ended || (sender.is_finished() && flying.is_empty()) {
            return sent;
        }
        let arrival = flying.peek().map(|Reverse((at, ..))| *at);
        let timers = places.iter().filter(|place| place.begins <= now && place.ended.is_none());
        let timers = timers.filter_map(|place| place.machine.poll_timeout());
        let begins = places.iter().map(|place| place.begins).filter(|begins| *begins > now);
        let next = sender.poll_timeout().into_iter().chain(arrival).chain(timers).chain(begins).min();
        let Some(next) = next.filter(|next| *next <= limit) else { return sent };
        now = now.max(next);
        while flying.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, _, index, channel, payload))) = flying.pop() else { break };
            let place = &mut places[index];
            let source = "192.0.2.1:4000".parse().unwrap();
            let datagram =
                Datagram { source, channel: Some(channel), ecn: Ecn::NotCapable, payload: &payload };
            place.machine.handle(now, Input::Datagram(datagram));
            let stats = place.machine.stats();
            assert_eq!(stats.accounted(), stats.packets, "each datagram is in one counter: {stats:?}");
        }
        sender.handle(now, Input::Timeout);
    }
}

fn tend(place: &mut Place, now: Instant) {
    if place.begins > now || place.ended.is_some() {
        return;
    }
    place.machine.handle(now, Input::Timeout);
    while let Some(output) = place.machine.poll_output(now, &mut [0; 2_000]) {
        match output {
            Output::Join(channel) => _ = place.joined.insert(channel),
            Output::Leave(channel) => _ = place.joined.remove(&channel),
            Output::Event(event) => place.events.push(event),
            _ => {}
        }
    }
    if place.machine.is_ended() {
        place.ended = Some(now);
    }
}

fn assert_received(place: &Place, content: &[u8]) {
    let stats = place.machine.stats();
    assert!(place.ended.is_some(), "{:?} {stats:?} {:?}", place.events, place.machine.auth_counters());
    let (_, bytes) = place.machine.store().finished().next().unwrap();
    assert!(bytes == content, "the content differs");
}

/// Whether the receiver reported the sender's key.
fn is_verified(place: &Place) -> bool {
    let is = |event: &ReceiverEvent| {
        matches!(event, ReceiverEvent::Session(SessionEvent::Verified { key, started, .. })
            if *key == KEY && *started == STARTED)
    };
    place.events.iter().filter(|event| is(event)).count() == 1
}

fn seconds(tenths: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(100 * tenths)
}

#[test]
fn each_receiver_of_a_fixed_session_gets_the_content() {
    let content = content(1, 3_000_000);
    let mut places = [
        receiver(Instant::ZERO, 0.0, verifying(trusting())),
        receiver(Instant::ZERO, 0.1, verifying(learning())),
        receiver(seconds(13), 0.1, verifying(learning())),
        receiver(seconds(17), 0.2, verifying(trusting())),
        receiver(seconds(3), 0.1, None),
    ];
    let mut sender = sender(fixed(10_000), &content, End::Never, Some(signing(KEY)));
    let sent = run(&mut sender, &mut places, seconds(300));
    for place in &places {
        assert_received(place, &content);
    }
    assert!(places[..4].iter().all(is_verified));
    for place in &places[..4] {
        let counters = place.machine.auth_counters();
        // The first packets of a late receiver may be too old once the key is known.
        assert_eq!(counters.forged + counters.untrusted, 0, "{counters:?}");
        assert!(counters.replayed <= 20, "{counters:?}");
        assert!(counters.unlisted * 100 <= counters.verified, "{counters:?}");
    }
    // Manifests, keys, and the first packets.
    assert!(sent.signed * 100 <= 9 * sent.packets, "{sent:?}");
    assert!(sent.manifests * 27 >= sent.packets - 150, "{sent:?}");
}

#[test]
fn a_signed_session_leaves_at_the_times_of_an_unsigned_one() {
    let content = content(1, 1_000_000);
    for rate in [100, 1_000, 8_000, 100_000] {
        let end = End::At(seconds(20));
        let [unsigned, signed] = [None, Some(signing(KEY))].map(|signing| {
            let mut sender = sender(fixed(rate), &content, end, signing);
            run(&mut sender, &mut [], seconds(100))
        });
        assert_eq!((unsigned.first, signed.first), (Some(Instant::ZERO), Some(Instant::ZERO)));
        let apart = signed.last.since(unsigned.last).max(unsigned.last.since(signed.last));
        assert!(apart <= Duration::from_millis(500), "{rate}: {unsigned:?} {signed:?}");
        let bytes = signed.bytes.abs_diff(unsigned.bytes) as f64 / unsigned.bytes as f64;
        assert!(bytes < 0.02, "{rate}: {unsigned:?} {signed:?}");
    }
}

#[test]
fn layers_are_listed_and_joined_at_any_time() {
    let content = content(2, 2_000_000);
    for control in [&controls::M2C, &controls::FLID_DL, &controls::WEBRC] {
        let mut times = Vec::new();
        for signing in [None, Some(signing(KEY))] {
            let is_signed = signing.is_some();
            let with = |config| is_signed.then(|| verifying(config)).flatten();
            let mut places = [
                receiver(Instant::ZERO, 0.0, with(trusting())),
                receiver(seconds(23), 0.0, with(learning())),
                receiver(seconds(11), 0.0, None),
            ];
            let mut sender = sender(layered(control, 120, 20_000), &content, End::Never, signing);
            let sent = run(&mut sender, &mut places, seconds(1_200));
            for place in &places {
                assert_received(place, &content);
                assert!(place.machine.auth_counters().forged == 0);
            }
            if is_signed {
                assert!(places[..2].iter().all(is_verified));
                assert!(sent.signed * 2 <= sent.packets, "{} {sent:?}", control.name);
            }
            times.push(places.each_ref().map(|place| place.ended.unwrap().since(place.begins).as_secs_f64()));
            println!("{} {sent:?} {:?}", control.name, times.last());
        }
        for (unsigned, signed) in times[0].iter().zip(times[1]) {
            assert!(signed <= 1.15 * unsigned + 1.0, "{}: {signed} s, unsigned {unsigned} s", control.name);
        }
    }
}

#[test]
fn an_unsigned_session_is_received_only_where_no_key_is_asked_for() {
    let content = content(1, 500_000);
    let mut places = [
        receiver(Instant::ZERO, 0.0, verifying(learning())),
        receiver(Instant::ZERO, 0.0, verifying(trusting())),
    ];
    let mut sender = sender(fixed(4_000), &content, End::At(seconds(40)), None);
    run(&mut sender, &mut places, seconds(100));
    assert_received(&places[0], &content);
    let is_unsigned = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Session(SessionEvent::Unsigned { tsi }) if *tsi == u64::from(TSI));
    assert!(places[0].events.iter().any(is_unsigned));
    let stats = places[1].machine.stats();
    assert!(places[1].events.is_empty() && stats.useful == 0, "{:?}", places[1].events);
    assert_eq!(stats.dropped.unlisted + stats.waiting, stats.packets);
}

#[test]
fn another_key_is_refused() {
    let content = content(1, 100_000);
    let mut places = [receiver(Instant::ZERO, 0.0, verifying(trusting()))];
    let mut sender = sender(fixed(4_000), &content, End::At(seconds(20)), Some(signing([8; 32])));
    run(&mut sender, &mut places, seconds(100));
    let stats = places[0].machine.stats();
    assert!(stats.dropped.untrusted > 0 && stats.useful == 0, "{stats:?}");
    let is_told =
        |event: &ReceiverEvent| matches!(event, ReceiverEvent::Session(SessionEvent::Untrusted { .. }));
    assert!(matches!(&places[0].events[..], [event] if is_told(event)), "{:?}", places[0].events);
}

#[test]
fn the_session_ends_when_its_last_packet_has_left() {
    let content = content(1, 200_000);
    let mut places = [receiver(Instant::ZERO, 0.0, verifying(trusting()))];
    let mut sender = sender(fixed(4_000), &content, End::Passes(1), Some(signing(KEY)));
    run(&mut sender, &mut places, seconds(100));
    assert_received(&places[0], &content);
    assert!(signed_bytes(true) > signed_bytes(false));
}
