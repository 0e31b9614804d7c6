//! Signed and encrypted sessions of files over one link: each control, receivers that know the key, learn the
//! key, or know nothing of signatures.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use headwater_fec::{Order, Scheme};
use headwater_proto::auth::{
    PublicKey, Signing, SigningConfig, StandIn, TREE_BYTES, VerifyingConfig, signed_bytes,
};
use headwater_proto::control::{DemandRates, Departure, SenderControl};
use headwater_proto::controls::{self, Control, Description};
use headwater_proto::crypt::{ENCRYPTED_BYTES, Encryption, GroupKey, Unopened};
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
use headwater_wire::crypt::Crypt;
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
    sender_of(DeliverySenderConfig::new(TSI).with_end(end), control, content, signing)
}

fn sender_of(
    config: DeliverySenderConfig,
    control: Box<dyn SenderControl + Send>,
    content: &[u8],
    signing: Option<Signing>,
) -> Sender {
    let file = FileToSend {
        path: RelativePath::new("file").unwrap(),
        bytes: content.len() as u64,
        mode: None,
        modified: None,
    };
    let of_plan =
        PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL, order: Order::Spread { rate: 8_000_000 } };
    let plan = SessionPlan::new(vec![file], of_plan).unwrap();
    let source = MemorySource::new(&plan, &[content]);
    let digests = source.digests();
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
    /// Whether a stranger sends an earlier packet of any channel again with each packet.
    has_replays: bool,
    joined: BTreeSet<ChannelId>,
    events: Vec<ReceiverEvent>,
    ended: Option<Instant>,
}

fn receiver(begins: Instant, loss: f64, verifying: Option<Verifying>) -> Place {
    let control = DescribedReceiver::new(DescribedReceiverConfig::new());
    let store = MemoryStore::new(1 << 28);
    let machine = DeliveryReceiver::new(DeliveryReceiverConfig::default(), control, store, begins);
    let machine = machine.with_verifying(verifying);
    let (joined, events, has_replays, ended) = (BTreeSet::new(), Vec::new(), false, None);
    Place { machine, begins, loss, has_replays, joined, events, ended }
}

/// Packets sent, and those of them with content in the clear, a signature, a tree, a manifest; signatures
/// on the base channel.
#[derive(Debug, Default)]
struct Sent {
    packets: u64,
    bytes: u64,
    clear: u64,
    signed: u64,
    in_trees: u64,
    signatures: u32,
    manifests: u64,
    first: Option<Instant>,
    last: Instant,
}

/// Longest header of a packet of a file, without signature.
const HEADER: usize = 24;
const DELAY: Duration = Duration::from_millis(5);
/// Packets that a stranger has heard and sends again.
const HEARD: usize = 4_096;

/// Runs until each receiver has ended, or until `limit`.
fn run(sender: &mut Sender, places: &mut [Place], limit: Instant) -> Sent {
    run_with_timers(sender, places, limit, Duration::from_nanos(1))
}

/// Runs with timers that fire at multiples of `tick`.
fn run_with_timers(sender: &mut Sender, places: &mut [Place], limit: Instant, tick: Duration) -> Sent {
    let mut sent = Sent::default();
    let mut chance: Stream = Seed(2).stream("loss", 0);
    let mut flying = BinaryHeap::new();
    let mut heard: VecDeque<(ChannelId, Vec<u8>)> = VecDeque::new();
    let (mut now, mut order) = (Instant::ZERO, 0_u64);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            let Destination::Channel(channel) = transmit.destination else { continue };
            let datagram = buffer[..transmit.bytes].to_vec();
            let packet = lct::Packet::new_checked(datagram.as_slice()).unwrap();
            let is_encrypted = Crypt::find(&packet).unwrap().is_some();
            let added = signed_bytes(false) + TREE_BYTES + if is_encrypted { ENCRYPTED_BYTES } else { 0 };
            let longest = usize::from(SYMBOL) + HEADER + added;
            assert!(datagram.len() <= longest, "{} bytes", datagram.len());
            sent.packets += 1;
            sent.bytes += datagram.len() as u64;
            sent.clear += u64::from(!is_encrypted && !packet.payload().is_empty());
            if let Some((auth, _)) = Authentication::find(&packet).unwrap() {
                sent.signed += 1;
                sent.in_trees += u64::from(auth.depth > 0);
                sent.signatures = sent.signatures.max(auth.number);
            }
            sent.manifests += u64::from(manifest(&packet).unwrap().is_some());
            sent.first.get_or_insert(now);
            sent.last = now;
            for (index, place) in places.iter().enumerate() {
                let is_lost = chance.random::<f64>() < place.loss;
                if place.joined.contains(&channel) && !is_lost {
                    order += 1;
                    flying.push(Reverse((now + DELAY, order, index, channel, datagram.clone())));
                }
                if place.has_replays && !heard.is_empty() {
                    let (channel, datagram) = &heard[chance.random_range(0..heard.len())];
                    if place.joined.contains(channel) {
                        order += 1;
                        flying.push(Reverse((now, order, index, *channel, datagram.clone())));
                    }
                }
            }
            heard.truncate(HEARD - 1);
            heard.push_front((channel, datagram));
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
        let ticks = |at: Instant| at.since(Instant::ZERO).as_nanos().div_ceil(tick.as_nanos());
        let due = sender.poll_timeout().map(|at| Instant::ZERO + tick.saturating_mul(ticks(at)));
        let next = due.into_iter().chain(arrival).chain(timers).chain(begins).min();
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
fn without_loss_no_packet_is_lost_for_want_of_a_manifest() {
    let content = content(1, 20_000_000);
    for rate in [1_000, 20_000] {
        let mut places = [receiver(Instant::ZERO, 0.0, verifying(trusting()))];
        let mut sender = sender(fixed(rate), &content, End::Never, Some(signing(KEY)));
        run(&mut sender, &mut places, seconds(60));
        let (counters, reception) = (places[0].machine.auth_counters(), places[0].machine.reception());
        assert_eq!((counters.unlisted, counters.replayed, reception.lost), (0, 0, 0), "{rate}: {counters:?}");
    }
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

/// A fixed rate whose packets cannot be planned, like those that follow feedback.
#[derive(Debug)]
struct Unplanned(fixed::FixedSender);

impl SenderControl for Unplanned {
    fn channels(&self) -> u16 {
        self.0.channels()
    }

    fn levels(&self) -> u16 {
        self.0.levels()
    }

    fn next_departure(&self) -> Option<Instant> {
        self.0.next_departure()
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        self.0.departure(now)
    }

    fn departed(&mut self, now: Instant, bytes: usize) {
        self.0.departed(now, bytes);
    }
}

#[test]
fn packets_that_leave_together_share_a_signature() {
    let content = content(1, 3_000_000);
    let mut places = [0.0, 0.2].map(|loss| receiver(Instant::ZERO, loss, verifying(learning())));
    let control = fixed::FixedSender::new(Rate::from_kilobits(200_000), Instant::ZERO);
    let trees = signing(KEY).with_trees(true);
    let mut sender = sender(Box::new(Unplanned(control)), &content, End::Never, Some(trees));
    let sent = run_with_timers(&mut sender, &mut places, seconds(50), Duration::from_micros(500));
    for place in &places {
        assert_received(place, &content);
        assert!(is_verified(place));
        let counters = place.machine.auth_counters();
        // Packets that wait for the key beyond the bound, once in a session.
        assert_eq!(
            counters.forged + counters.untrusted + counters.replayed + counters.unlisted,
            0,
            "{counters:?}"
        );
    }
    assert_eq!(sent.signed, sent.packets);
    // About eleven packets leave at each tick.
    assert!(sent.in_trees * 10 >= 9 * sent.packets, "{sent:?}");
    assert!(u64::from(sent.signatures) * 8 <= sent.packets, "{sent:?}");
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

/// A replay from before the join of a channel is no gap in the channel's numbers, and no late packet; the
/// clock starts anew if a replay started the clock. Each start counts.
#[test]
fn replays_cost_next_to_no_time() {
    let content = content(2, 5_000_000);
    let (m2c, flid, webrc) = (&controls::M2C, &controls::FLID_DL, &controls::WEBRC);
    // Packets of files by M2C tell how late they leave, those of live content do not.
    for (control, is_stamped, starts) in
        [(m2c, true, 20), (m2c, false, 20), (flid, false, 5), (webrc, false, 20)]
    {
        let [clean, attacked] = [false, true].map(|has_replays| {
            let times: Vec<_> = (13..13 + starts)
                .map(|begins| {
                    let place =
                        Place { has_replays, ..receiver(seconds(begins), 0.0, verifying(trusting())) };
                    let mut places = [place];
                    let mut control = layered(control, 120, 20_000);
                    if is_stamped {
                        control.stamp_departures();
                    }
                    let mut sender = sender(control, &content, End::Never, Some(signing(KEY)));
                    run(&mut sender, &mut places, seconds(1_200));
                    assert_received(&places[0], &content);
                    let replayed = places[0].machine.auth_counters().replayed;
                    assert_eq!(replayed > 1_000, has_replays, "{replayed}");
                    places[0].ended.unwrap().since(places[0].begins).as_secs_f64()
                })
                .collect();
            println!("{}, replays {has_replays}: {times:.2?} s", control.name);
            times.into_iter().fold(0.0, f64::max)
        });
        assert!(attacked <= 1.1 * clean + 1.0, "{}: {attacked} s, without {clean} s", control.name);
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

fn group_key(epoch: u8, secret: u8) -> GroupKey {
    GroupKey::new(epoch, [secret; 32].into())
}

fn encryption(public: Option<PublicKey>) -> Option<Encryption> {
    Some(Encryption::new(group_key(4, 1), public, 77))
}

impl Place {
    fn with_group_keys(mut self, keys: Vec<GroupKey>) -> Self {
        self.machine = self.machine.with_group_keys(keys);
        self
    }

    /// Reasons reported for content that is not taken.
    fn unopened(&self) -> Vec<Unopened> {
        let reason = |event: &ReceiverEvent| match event {
            ReceiverEvent::Session(SessionEvent::Unopened { tsi, reason }) if *tsi == u64::from(TSI) => {
                Some(*reason)
            }
            _ => None,
        };
        self.events.iter().filter_map(reason).collect()
    }
}

/// A member of the group; a late member with the next key, too; no key; a wrong key.
fn members(with: impl Fn() -> Option<Verifying>) -> [Place; 4] {
    let place = |tenths| receiver(seconds(tenths), 0.1, with());
    [
        place(0).with_group_keys(vec![group_key(4, 1)]),
        place(9).with_group_keys(vec![group_key(5, 2), group_key(4, 1)]),
        place(0),
        place(0).with_group_keys(vec![group_key(4, 2)]),
    ]
}

fn assert_members_alone_receive(places: &[Place; 4], sent: &Sent, content: &[u8]) {
    assert_eq!(sent.clear, 0, "{sent:?}");
    for member in &places[..2] {
        assert_received(member, content);
        assert_eq!((member.unopened(), member.machine.stats().dropped.unopened), (vec![], 0));
    }
    assert_eq!(places[2].unopened(), [Unopened::NoKey { epoch: 4 }]);
    assert_eq!(places[3].unopened(), [Unopened::WrongKey { epoch: 4 }]);
    for stranger in &places[2..] {
        let stats = stranger.machine.stats();
        assert!(stats.dropped.unopened > 100 && stats.fdt_packets + stats.useful == 0, "{stats:?}");
        assert!(stranger.ended.is_none());
    }
}

#[test]
fn an_encrypted_session_is_received_by_the_group_alone() {
    let content = content(1, 1_000_000);
    for (signing, public) in [(Some(signing(KEY)), Some(KEY)), (None, None)] {
        let is_signed = signing.is_some();
        let mut places = members(|| verifying(learning()));
        let mut sender = sender(fixed(10_000), &content, End::At(seconds(60)), signing)
            .with_encryption(encryption(public));
        let sent = run(&mut sender, &mut places, seconds(58));
        assert_members_alone_receive(&places, &sent, &content);
        // The authentication needs no group key.
        assert!(!is_signed || places.iter().all(is_verified));
        assert!(!is_signed || sent.signed * 100 <= 15 * sent.packets, "{sent:?}");
    }
}

#[test]
fn layers_are_encrypted() {
    let content = content(2, 200_000);
    for control in [&controls::M2C, &controls::FLID_DL, &controls::WEBRC] {
        let mut places = members(|| verifying(trusting()));
        let control = layered(control, 120, 4_000);
        let mut sender =
            sender(control, &content, End::Never, Some(signing(KEY))).with_encryption(encryption(Some(KEY)));
        let sent = run(&mut sender, &mut places, seconds(400));
        assert_members_alone_receive(&places, &sent, &content);
    }
}

#[test]
fn content_in_the_clear_is_not_taken_by_a_member() {
    let content = content(1, 200_000);
    for signing in [Some(signing(KEY)), None] {
        let mut places = members(|| verifying(learning()));
        let mut sender = sender(fixed(4_000), &content, End::At(seconds(30)), signing);
        run(&mut sender, &mut places, seconds(100));
        for member in [&places[0], &places[1], &places[3]] {
            assert_eq!(member.unopened(), [Unopened::Clear]);
            assert_eq!(member.machine.stats().useful, 0);
        }
        assert_received(&places[2], &content);
    }
}

#[test]
fn a_verified_sender_announces_its_next_key() {
    let content = content(1, 200_000);
    for signing in [Some(signing(KEY)), None] {
        let is_signed = signing.is_some();
        let mut places = [receiver(Instant::ZERO, 0.0, verifying(learning()))];
        let mut sender = sender_of(
            DeliverySenderConfig::new(TSI).with_end(End::At(seconds(30))).with_next_key(Some([9; 32])),
            fixed(4_000),
            &content,
            signing,
        );
        run(&mut sender, &mut places, seconds(100));
        assert_received(&places[0], &content);
        let is_news = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::Session(SessionEvent::NextKey { key }) if *key == [9; 32]);
        assert_eq!(places[0].events.iter().filter(is_news).count(), usize::from(is_signed));
    }
}

/// Packets a second that a driver sends from the second second to the sixth. A turn takes 0.2 ms, or `cost`
/// for each packet, and the next one begins when the sender asks for it. Each 100 ms the driver pauses.
fn sent_by_a_busy_driver(sender: &mut Sender, cost: Duration, pause: Duration) -> f64 {
    let (mut now, mut packets, mut pauses) = (Instant::ZERO, 0_u32, 0);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    while now < seconds(60) {
        sender.handle(now, Input::Timeout);
        let mut sent = 0;
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            sent += u32::from(matches!(output, Output::Transmit(_)));
        }
        packets += if now >= seconds(20) { sent } else { 0 };
        now += cost.saturating_mul(sent.into()).max(Duration::from_micros(200));
        now = now.max(sender.poll_timeout().unwrap());
        if now >= Instant::ZERO + Duration::from_millis(100 * (pauses + 1)) {
            (now, pauses) = (now + pause, pauses + 1);
        }
    }
    f64::from(packets) / 4.0
}

#[test]
fn a_signed_session_of_layers_keeps_the_rate_of_an_unsigned_one_behind_a_busy_driver() {
    let content = content(1, 100_000);
    for (megabits, cost, pause) in
        [(500, 0, 0), (500, 0, 40), (2_000, 0, 20), (2_000, 10, 0), (2_000, 10, 20)]
    {
        let [unsigned, signed] = [None, Some(signing(KEY))].map(|signing| {
            let control = layered(&controls::M2C, 120, 1_000 * megabits);
            let mut sender = sender(control, &content, End::At(seconds(80)), signing);
            sent_by_a_busy_driver(&mut sender, Duration::from_micros(cost), Duration::from_millis(pause))
        });
        assert!(signed >= 0.9 * unsigned, "{megabits} Mbit/s, {cost} us, {pause} ms: {signed} of {unsigned}");
    }
}

/// Content per byte on the wire (Ethernet, IPv4, UDP) of a signed session, over that of an unsigned session.
/// Symbols of files are 1344 bytes long, 1408 without signatures.
fn goodput_signed(control: &'static Control, megabits: u64, follows_reports: bool) -> f64 {
    const WIRE: f64 = 42.0;
    let content = content(1, 2_000_000);
    let [unsigned, signed] = [(None, 1_408.0), (Some(signing(KEY)), 1_344.0)].map(|(signing, symbol)| {
        let mut control = layered(control, 120, 1_000 * megabits);
        if follows_reports {
            // All levels are sent.
            control.follow_demand(DemandRates { idle: 1e9, start: 1e9 });
        }
        let mut sender = sender(control, &content, End::At(seconds(100)), signing);
        let sent = run(&mut sender, &mut [], seconds(100));
        let [packets, content] = [sent.packets, sent.clear].map(|count| count as f64);
        let bytes = sent.bytes as f64 + WIRE * packets - f64::from(SYMBOL) * content;
        symbol * content / (symbol * content + bytes)
    });
    signed / unsigned
}

#[test]
fn signatures_of_layers_take_few_bytes() {
    for control in [&controls::M2C, &controls::WEBRC, &controls::FLID_DL] {
        for (megabits, least) in [(8, 0.93), (20, 0.95), (100, 0.96)] {
            for follows_reports in [false, true] {
                let goodput = goodput_signed(control, megabits, follows_reports);
                let named = format!("{} at {megabits} Mbit/s, by reports {follows_reports}", control.name);
                println!("{named}: {goodput:.4}");
                assert!(goodput >= least, "{named}: {goodput:.3}");
            }
        }
    }
}

/// Turns of a driver that each send a packet cost a sender for nobody most of its processor time.
#[test]
fn a_signed_sender_of_few_packets_takes_few_turns_that_send_none() {
    let content = content(1, 2_000_000);
    for control in [&controls::M2C, &controls::WEBRC, &controls::FLID_DL] {
        let name = control.name;
        let mut control = layered(control, 120, 100_000);
        // 1.2 Mbit/s.
        control.follow_demand(DemandRates { idle: 136.0, start: 1e4 });
        let mut sender = sender(control, &content, End::Never, Some(signing(KEY)));
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let (mut turns, mut sent) = (0, 0);
        while let Some(now) = sender.poll_timeout().filter(|due| *due < seconds(300)) {
            sender.handle(now, Input::Timeout);
            while let Some(output) = sender.poll_output(now, &mut buffer) {
                sent += u32::from(matches!(output, Output::Transmit(_)) && now >= seconds(100));
            }
            turns += u32::from(now >= seconds(100));
        }
        println!("{name}: {turns} turns for {sent} packets");
        assert!(sent > 1_500 && turns <= sent + sent / 4, "{name}: {turns} turns for {sent} packets");
    }
}
