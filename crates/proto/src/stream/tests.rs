//! Both ends over simulated channels: what is received of each buffer is its beginning, at any rate and with
//! any control.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_wire::auth::SenderKey;
use headwater_wire::{Fti, alc, lct};
use proptest::prelude::*;

use super::*;
use crate::auth::{Signing, SigningConfig, StandIn};
use crate::control::{Departure, SenderControl};
use crate::delivery::SessionEvent;
use crate::described::{self, Description};
use crate::fixed;
use crate::flid;
use crate::layering::path::SENDER;
use crate::layering::{DynamicChannels, DynamicConfig, DynamicSender, Shape};
use crate::machine::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Destination, Ecn, Input, Machine, Output, Transmit,
};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

const PART: u16 = 100;
/// UDP payload of a part as long as identifiers are short.
const PACKET: u16 = PART + 24;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn content(id: u16, bytes: usize) -> Arc<[u8]> {
    (0..bytes).map(|at| u8::try_from((at / 7 + at / 1_000 + usize::from(id) * 31) % 251).unwrap()).collect()
}

/// A sender whose application has the next buffer always ready.
struct Source<C> {
    machine: Sender<C>,
    buffers: Vec<(usize, u64)>,
    submitted: usize,
    /// What it said.
    events: Vec<SenderEvent>,
    buffer: Vec<u8>,
}

impl<C: SenderControl> Source<C> {
    fn new(control: C, order: Order, buffers: Vec<(usize, u64)>) -> Self {
        let config = SenderConfig::new(7, PART).with_order(order);
        let machine = Sender::new(config, control).unwrap();
        let mut source =
            Self { machine, buffers, submitted: 0, events: Vec::new(), buffer: vec![0; DATAGRAM_BYTES_MAX] };
        source.submit();
        source
    }

    fn submit(&mut self) {
        while self.machine.wants()
            && let Some((bytes, ms)) = self.buffers.get(self.submitted)
        {
            let bytes = content(u16::try_from(self.submitted).unwrap(), *bytes);
            self.machine.submit(Submission { bytes, time: Duration::from_millis(*ms) }).unwrap();
            self.submitted += 1;
        }
        if self.submitted == self.buffers.len() {
            self.machine.end();
        }
    }

    /// The next packet, and its departure.
    fn next(&mut self) -> Option<(Instant, Departure, Vec<u8>)> {
        while let Some(now) = self.machine.poll_timeout() {
            let departure = self.machine.control().departure(now);
            match self.machine.poll_output(now, &mut self.buffer) {
                Some(Output::Transmit(Transmit { bytes, destination, .. })) => {
                    let departure = departure.unwrap();
                    assert_eq!(destination, Destination::Channel(departure.channel));
                    return Some((now, departure, self.buffer[..bytes].to_vec()));
                }
                Some(Output::Event(event)) => {
                    self.events.push(event);
                    self.submit();
                }
                Some(other) => panic!("{other:?}"),
                None => self.machine.handle(now, Input::Timeout),
            }
        }
        while let Some(Output::Event(event)) = self.machine.poll_output(Instant::ZERO, &mut self.buffer) {
            self.events.push(event);
        }
        None
    }
}

fn give<C: crate::control::ReceiverControl>(
    receiver: &mut Receiver<C>,
    now: Instant,
    channel: ChannelId,
    payload: &[u8],
) -> Vec<ReceiverEvent> {
    let datagram = Datagram { source: SENDER.into(), channel: Some(channel), ecn: Ecn::NotCapable, payload };
    receiver.handle(now, Input::Datagram(datagram));
    let stats = receiver.stats();
    assert_eq!(stats.accounted(), stats.packets, "each datagram is in one counter: {stats:?}");
    events(receiver, now)
}

fn events<C: crate::control::ReceiverControl>(
    receiver: &mut Receiver<C>,
    now: Instant,
) -> Vec<ReceiverEvent> {
    let mut told = Vec::new();
    while let Some(output) = receiver.poll_output(now, &mut [0; 64]) {
        if let Output::Event(event) = output {
            told.push(event);
        }
    }
    told
}

/// Bytes of each buffer that came in packets, and the buffers as they were given.
#[derive(Default)]
struct Outcome {
    came: Vec<BTreeSet<(usize, usize)>>,
    given: Vec<Received>,
    late: usize,
    is_closed: bool,
}

impl Outcome {
    fn take(&mut self, told: Vec<ReceiverEvent>) {
        for event in told {
            match event {
                ReceiverEvent::Buffer(received) => self.given.push(received),
                ReceiverEvent::Late { .. } => self.late += 1,
                ReceiverEvent::Closed => self.is_closed = true,
                ReceiverEvent::Session(SessionEvent::Found { tsi: 7, .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Bytes of a buffer that came in its time.
    fn bytes(&self, id: u16) -> usize {
        self.came.get(usize::from(id)).map_or(0, |parts| parts.iter().map(|(_, bytes)| bytes).sum())
    }
}

/// Carries a session to a receiver of every packet that `passes`.
fn carry<C: SenderControl>(
    source: &mut Source<C>,
    mut passes: impl FnMut(&C, &Departure) -> bool,
) -> Outcome {
    let config = ReceiverConfig::default().with_pieces(true);
    let mut receiver = Receiver::new(config, fixed::FixedReceiver::new(), Instant::ZERO);
    let mut outcome = Outcome::default();
    outcome.came.resize(source.buffers.len(), BTreeSet::new());
    let mut last = Instant::ZERO;
    while let Some((now, departure, packet)) = source.next() {
        last = now;
        let (header, payload) = alc::parse(&packet).unwrap();
        // The end of the session comes through in any case.
        if !passes(source.machine.control(), &departure) && !header.close_session {
            continue;
        }
        if let Some(seq) = header.extensions.seq {
            let came = &mut outcome.came[usize::from(seq.buffer)];
            came.insert((seq.offset as usize, payload.len()));
        }
        outcome.take(give(&mut receiver, now, departure.channel, &packet));
    }
    receiver.handle(last + Duration::from_secs(2), Input::Timeout);
    outcome.take(events(&mut receiver, last));
    assert!(receiver.is_ended() && outcome.is_closed);
    outcome
}

fn dynamic(config: DynamicConfig) -> DynamicSender {
    DynamicSender::new(DynamicChannels::new(config, Instant::ZERO).unwrap())
}

fn layers(shape: Shape) -> DynamicConfig {
    DynamicConfig::new(PACKET, Rate::from_bits(u64::from(PACKET) * 8 * 300).unwrap())
        .with_base_rate(Rate::from_bits(u64::from(PACKET) * 8 * 12).unwrap())
        .with_shape(shape)
        .with_slot(Duration::from_secs(2))
        .with_quiescent_slots(3)
}

/// What came is given as the beginning of the buffer, all of it.
fn check_prefixes(outcome: &Outcome, buffers: &[(usize, u64)]) -> Result<(), TestCaseError> {
    for received in &outcome.given {
        let bytes = buffers[usize::from(received.id)].0;
        let whole = content(received.id, bytes);
        prop_assert_eq!(&received.prefix[..], &whole[..received.prefix.len()]);
        prop_assert_eq!(received.prefix.len(), outcome.bytes(received.id), "buffer {}", received.id);
        prop_assert!(received.pieces.is_empty(), "{:?}", received.id);
        prop_assert_eq!(received.length, (!received.prefix.is_empty()).then_some(bytes));
    }
    Ok(())
}

fn any_layers() -> impl Strategy<Value = AnyLayers> {
    prop_oneof![
        (any::<bool>(), 1_u64..5, 1_u16..3, 0.5..0.85_f64).prop_map(|(webrc, slot, per_slot, ratio)| {
            let shape = if webrc { Shape::Webrc } else { Shape::Geometric };
            let per_slot = if webrc { 1 } else { per_slot };
            AnyLayers::Dynamic(
                layers(shape)
                    .with_ratio(ratio)
                    .with_slot(Duration::from_secs(slot * u64::from(per_slot)))
                    .with_channels_per_slot(per_slot),
            )
        }),
        (1.2..2.0_f64, 200_u64..3_000, any::<bool>()).prop_map(|(ratio, slot, is_dynamic)| {
            let new =
                if is_dynamic { flid::FlidConfig::dynamic_layers } else { flid::FlidConfig::static_layers };
            let (base, max) = (u64::from(PACKET) * 8 * 12, u64::from(PACKET) * 8 * 200);
            AnyLayers::Flid(
                new(PACKET, Rate::from_bits(max).unwrap())
                    .with_base_rate(Rate::from_bits(base).unwrap())
                    .with_ratio(ratio)
                    .with_slot(Duration::from_millis(slot)),
            )
        }),
    ]
}

#[derive(Clone, Copy, Debug)]
enum AnyLayers {
    Dynamic(DynamicConfig),
    Flid(flid::FlidConfig),
}

/// A session of buffers to a receiver that holds each level while its cumulative rate is at most that of
/// `level` when a slot begins, or `share` of that of all where the order is exact.
fn hold<C: SenderControl>(
    control: C,
    order: Order,
    level: u16,
    share: f64,
    buffers: Vec<(usize, u64)>,
) -> Result<(), TestCaseError> {
    let layering = control.layering().unwrap();
    let boundary = layering.next_boundary(Instant::ZERO).unwrap_or(Instant::ZERO);
    let top = layering.levels() - 1;
    let rate = match order {
        Order::Tiles => layering.cumulative_rate(level % (top + 1), boundary),
        Order::Exact => layering.cumulative_rate(top, boundary) * share,
    };
    let mut source = Source::new(control, order, buffers);
    let outcome = carry(&mut source, |control, departure| {
        let layering = control.layering().unwrap();
        layering.cumulative_rate(departure.level, departure.at) <= rate * (1.0 + 1e-12)
    });
    let buffers = &source.buffers;
    let is_any = rate >= source.machine.control().layering().unwrap().cumulative_rate(0, boundary);
    if is_any && buffers.iter().all(|(_, ms)| *ms >= 1_000) {
        prop_assert_eq!(outcome.given.len(), buffers.len(), "one of each");
    }
    prop_assert_eq!(outcome.late, 0);
    check_prefixes(&outcome, buffers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Through both machines: at rates where tiles end, at any rate in exact order, a receiver has of every
    /// buffer the beginning and nothing else; buffers that are longer than what is sent in their time,
    /// shorter ones, and ones of times that do not fit slots.
    #[test]
    fn what_is_received_is_the_beginning(
        layers in any_layers(),
        is_exact in any::<bool>(),
        level in 0_u16..20,
        share in 0.02..1.0_f64,
        buffers in prop::collection::vec((1_usize..60_000, 300_u64..3_000), 1..5),
    ) {
        let order = if is_exact { Order::Exact } else { Order::Tiles };
        match layers {
            AnyLayers::Dynamic(config) => hold(dynamic(config), order, level, share, buffers)?,
            AnyLayers::Flid(config) => {
                let layers = flid::Layers::new(&config, Instant::ZERO).unwrap();
                hold(flid::FlidSender::new(layers), order, level, share, buffers)?;
            }
        }
    }

    /// Whatever is lost, the prefix ends at the first hole and the pieces are what came beyond.
    #[test]
    fn loss_makes_holes_and_nothing_worse(
        lost in prop::collection::vec(any::<bool>(), 16..64),
        buffers in prop::collection::vec((1_usize..30_000, 300_u64..2_000), 1..4),
    ) {
        let mut source = Source::new(dynamic(layers(Shape::Geometric)), Order::Tiles, buffers);
        let mut count = 0;
        let outcome = carry(&mut source, |_, _| {
            count += 1;
            !lost[count % lost.len()]
        });
        for received in &outcome.given {
            let whole = content(received.id, source.buffers[usize::from(received.id)].0);
            let mut bytes = received.prefix.len();
            prop_assert_eq!(&received.prefix[..], &whole[..bytes]);
            for piece in &received.pieces {
                prop_assert_eq!(&piece.bytes[..], &whole[piece.offset..piece.offset + piece.bytes.len()]);
                bytes += piece.bytes.len();
            }
            // What comes again after the buffer's time was over counts no more.
            let is_last = usize::from(received.id) + 1 == source.buffers.len();
            let came = outcome.bytes(received.id);
            prop_assert!(bytes == came || (is_last && bytes <= came), "{} of {}", bytes, came);
        }
    }

    /// Packets of a session with anything done to them: nothing panics, and no buffer is longer than allowed.
    #[test]
    fn hostile_packets_are_survived(
        edits in prop::collection::vec((0_usize..200, 0_usize..64, any::<u8>(), 0_u8..4), 1..200),
    ) {
        let mut source = Source::new(dynamic(layers(Shape::Geometric)), Order::Tiles, vec![(9_000, 500); 3]);
        let mut packets = Vec::new();
        while let Some((now, departure, packet)) = source.next() {
            packets.push((now, departure.channel, packet));
        }
        let config = ReceiverConfig::default().with_pieces(true).with_buffer_bytes_max(10_000);
        let control = described::DescribedReceiver::new(described::DescribedReceiverConfig::new());
        let mut receiver = Receiver::new(config, control, Instant::ZERO);
        for (step, (which, place, byte, kind)) in edits.into_iter().enumerate() {
            let (_, channel, packet) = &packets[which % packets.len()];
            let mut packet = packet.clone();
            match kind {
                0 => {}
                1 => packet.truncate(place),
                _ => {
                    let place = place % packet.len();
                    packet[place] = byte;
                }
            }
            for event in give(&mut receiver, at(step as u64 * 7), *channel, &packet) {
                if let ReceiverEvent::Buffer(received) = event {
                    prop_assert!(received.prefix.len() <= 10_000);
                    prop_assert!(received.pieces.iter().all(|one| one.offset + one.bytes.len() <= 10_000));
                }
            }
        }
    }
}

#[test]
fn a_receiver_that_comes_late_has_all_from_the_next_buffer_on() {
    let buffers = vec![(10_000, 1_000); 4];
    let mut source = Source::new(dynamic(layers(Shape::Geometric)), Order::Tiles, buffers);
    let outcome = carry(&mut source, |_, departure| departure.at >= at(1_400));
    let first = &outcome.given[0];
    assert!(first.id == 1 && !first.is_whole(), "what came of the one under way");
    assert_eq!(outcome.given.iter().map(|received| received.id).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(outcome.given[1..].iter().all(Received::is_whole));
}

/// A sender that was held up gives up what is far too late: the end of what is being sent, not the beginning.
#[test]
fn a_pause_costs_a_buffer_its_end() {
    // Within an interval between two changes of levels, and across the end of a buffer.
    for (pause, from) in [(2_500, 100), (3_000, 3_500)] {
        let control = dynamic(layers(Shape::Geometric));
        let mut source = Source::new(control, Order::Tiles, vec![(200_000, 5_000); 3]);
        let mut beginnings = Vec::new();
        let mut resumes = None;
        while let Some((now, _, packet)) = source.next() {
            let (header, _) = alc::parse(&packet).unwrap();
            if let Some(seq) = header.extensions.seq.filter(|seq| seq.offset == 0 && !header.close_object) {
                beginnings.push(seq.buffer);
            }
            if resumes.is_none() && now >= at(from) {
                resumes = Some(now + Duration::from_millis(pause));
                source.machine.handle(now + Duration::from_millis(pause), Input::Timeout);
            }
        }
        assert!(resumes.is_some());
        assert_eq!(beginnings, [0, 1, 2], "a pause of {pause} ms from {from} ms");
    }
}

/// Also where a symbol of the description leaves no room for the key.
#[test]
fn each_symbol_of_a_signed_description_leaves_on_the_base() {
    let mut alone = 0;
    for part in (80..=600).step_by(3) {
        let config = layers(Shape::Geometric);
        let control = || dynamic(config).with_description(Description::from(&config).to_fdt());
        let signing = Signing::new(SigningConfig::new(7, 1, 1, [3; 32]), Box::new(StandIn([7; 32])));
        let mut source = Source::new(control(), Order::Tiles, vec![(30_000, 1_000); 12]);
        let machine = Sender::new(SenderConfig::new(7, part), control()).unwrap();
        source.machine = machine.with_signing(Some(signing));
        source.submitted = 0;
        source.submit();
        let (mut sent, mut keys) = (BTreeMap::<_, BTreeSet<u32>>::new(), 0);
        // The end of the session repeats the description.
        while let Some((_, departure, packet)) = source.next().filter(|(now, ..)| *now < at(11_500)) {
            let (header, payload) = alc::parse(&packet).unwrap();
            if departure.channel != ChannelId::BASE {
                continue;
            }
            let is_key = SenderKey::find(&lct::Packet::new_checked(&packet[..]).unwrap()).unwrap().is_some();
            keys += usize::from(is_key);
            match header.payload_id {
                Some(id) if header.toi == Some(0) => {
                    let Some(Fti::NoCode { transfer_length, symbol_size, .. }) = header.extensions.fti else {
                        panic!("{header:?}");
                    };
                    let symbols = transfer_length.div_ceil(symbol_size.into());
                    let instance = header.extensions.fdt.unwrap().instance_id;
                    sent.entry((instance, symbols)).or_default().insert(id.esi);
                }
                _ => alone += usize::from(is_key && payload.is_empty()),
            }
        }
        for ((_, symbols), sent) in &sent {
            assert_eq!(sent.len() as u64, *symbols, "{sent:?} with parts of {part} bytes");
        }
        assert!(keys > 0, "no key with parts of {part} bytes");
    }
    assert!(alone > 0, "each description had room");
}

#[test]
fn one_channel_carries_whole_buffers_and_the_end_comes_after_the_last() {
    let rate = Rate::from_bits(u64::from(PACKET) * 8 * 100).unwrap();
    // 8 000, 9 990 and 20 000 bytes in the time of 100 packets, of which some are the description's.
    let buffers = vec![(8_000, 1_000), (9_400, 1_000), (20_000, 1_000)];
    let mut source = Source::new(fixed::FixedSender::new(rate, Instant::ZERO), Order::Tiles, buffers);
    let outcome = carry(&mut source, |_, _| true);
    let lengths: Vec<(usize, bool)> =
        outcome.given.iter().map(|received| (received.prefix.len(), received.is_whole())).collect();
    assert_eq!(lengths[..2], [(8_000, true), (9_400, true)]);
    let (last, is_whole) = lengths[2];
    assert!(
        !is_whole && (9_300..=10_000).contains(&last),
        "{last} bytes: the beginning, as far as time goes"
    );
    let begun = |id| SenderEvent::Begun(id);
    assert_eq!(source.events, [begun(0), begun(1), begun(2), SenderEvent::Finished]);
    assert!(source.machine.stats().repeats > 0, "a short buffer is sent again from its beginning");
}

/// As an application on M2C sees it: nothing of channels, more of each buffer as the receiver speeds up.
#[test]
fn a_receiver_that_speeds_up_has_more_of_each_buffer() {
    let config = layers(Shape::Geometric);
    let control = dynamic(config).with_description(Description::from(&config).to_fdt());
    let mut source = Source::new(control, Order::Tiles, vec![(30_000, 1_000); 30]);
    let control = described::DescribedReceiver::new(described::DescribedReceiverConfig::new());
    let mut receiver = Receiver::new(ReceiverConfig::default(), control, Instant::ZERO);
    let mut held = BTreeSet::new();
    let mut given: Vec<(u16, usize)> = Vec::new();
    let mut now = Instant::ZERO;
    loop {
        let mut told = Vec::new();
        while let Some(output) = receiver.poll_output(now, &mut [0; DATAGRAM_BYTES_MAX]) {
            match output {
                Output::Join(channel) => assert!(held.insert(channel)),
                Output::Leave(channel) => assert!(held.remove(&channel)),
                Output::Event(event) => told.push(event),
                Output::Router(_) => {}
                Output::Transmit(_) => {}
            }
        }
        for event in told {
            if let ReceiverEvent::Buffer(received) = event {
                let whole = content(received.id, 30_000);
                assert_eq!(received.prefix[..], whole[..received.prefix.len()]);
                given.push((received.id, received.prefix.len()));
            }
        }
        if receiver.is_ended() {
            break;
        }
        match source.next() {
            Some((at, departure, packet)) => {
                now = at;
                receiver.handle(now, Input::Timeout);
                if held.contains(&departure.channel) {
                    let source = SENDER.into();
                    let (channel, ecn) = (Some(departure.channel), Ecn::NotCapable);
                    let datagram = Datagram { source, channel, ecn, payload: &packet };
                    receiver.handle(now, Input::Datagram(datagram));
                    assert_eq!(receiver.stats().accounted(), receiver.stats().packets);
                }
            }
            None => {
                now += Duration::from_secs(2);
                receiver.handle(now, Input::Timeout);
            }
        }
    }
    assert!(held.is_empty(), "left when the session was closed");
    assert_eq!(given.iter().map(|(id, _)| *id).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
    let (first, last) = (given[0].1, given[25].1);
    assert!(first < 5_000 && last > 20_000, "{given:?}");
}

#[test]
fn what_is_no_stream_is_refused_by_name() {
    use headwater_wire::extensions::{Extensions, FdtExtension};
    use headwater_wire::fdt::{File, Instance};
    use headwater_wire::{Cci, PayloadId};

    let file = File { toi: 1, content_location: "file".to_owned(), ..File::default() };
    let xml = Instance { files: vec![file], ..Instance::default() }.to_xml().into_bytes();
    let fti = Fti::NoCode { transfer_length: xml.len() as u64, symbol_size: 1_400, max_block: 1 };
    let header = alc::Repr {
        tsi: 7,
        toi: Some(0),
        close_session: false,
        close_object: false,
        psi: 0,
        codepoint: 0,
        cci: Cci::new(&[0; 4]).unwrap(),
        extensions: Extensions {
            fdt: Some(FdtExtension { version: 2, instance_id: 1 }),
            fti: Some(fti),
            ..Extensions::default()
        },
        payload_id: Some(PayloadId { sbn: 0, esi: 0 }),
    };
    let mut packet = vec![0; 2_000];
    let start = header.emit(&mut packet).unwrap();
    packet.truncate(start);
    packet.extend_from_slice(&xml);
    let mut receiver = Receiver::new(ReceiverConfig::default(), fixed::FixedReceiver::new(), Instant::ZERO);
    let told = give(&mut receiver, at(1), ChannelId::BASE, &packet);
    assert_eq!(told.last(), Some(&ReceiverEvent::NoBuffers));
    assert!(receiver.is_ended());
}
