//! What a sender of files says on several channels: the session's description, its end, and nothing when
//! there is nothing to say.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliverySender, DeliverySenderConfig, End, FileToSend, PlanConfig, RelativePath, SessionPlan, Source,
    SourceError,
};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Destination, Duration, Input, Instant, Machine, Output, Rate,
};
use headwater_wire::{alc, fdt};

/// Content that is all zeros.
struct Zeros;

impl Source for Zeros {
    fn read_symbol(&mut self, _: usize, _: u32, _: u32, symbol: &mut [u8]) -> Result<(), SourceError> {
        symbol.fill(0);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A symbol of the FDT: block and number in it.
    Fdt(u32, u32),
    Content,
    Close,
}

struct Packet {
    at: Instant,
    channel: ChannelId,
    kind: Kind,
}

const PACKET_BYTES: u16 = 1_440;

/// So many files of `bytes` on channels of 10 packets/s and up to 4 Mbit/s.
fn sender(files: usize, bytes: u64, end: End) -> DeliverySender<DynamicSender, Zeros> {
    described_sender(files, bytes, end, None)
}

/// The same with what the FDT says of the control.
fn described_sender(
    files: usize,
    bytes: u64,
    end: End,
    description: Option<fdt::ControlAttributes>,
) -> DeliverySender<DynamicSender, Zeros> {
    let file = |index: usize| FileToSend {
        path: RelativePath::new(&format!("dir/file{index}")).unwrap(),
        bytes,
        mode: None,
        modified: None,
    };
    let order = Order::Spread { rate: 4_000_000 };
    let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: 1408, order };
    let plan = SessionPlan::new((0..files).map(file).collect(), config).unwrap();
    let digest = |object: usize| [u8::try_from(object % 251).unwrap(); 32];
    let digests: Vec<_> = plan
        .objects()
        .iter()
        .enumerate()
        .map(|(index, object)| vec![digest(index); object.partition.blocks() as usize])
        .collect();
    let base = Rate::from_bits(u64::from(PACKET_BYTES) * 8 * 10).unwrap();
    let layers = DynamicConfig::new(PACKET_BYTES, Rate::from_kilobits(4_000)).with_base_rate(base);
    let channels = DynamicChannels::new(layers, Instant::ZERO).unwrap();
    let control = DynamicSender::new(channels).with_description(description);
    DeliverySender::new(DeliverySenderConfig::new(7).with_end(end), &plan, &digests, control, Zeros).unwrap()
}

/// Drives a sender until `end`, or until it has finished; how often it was woken up, and what it sent.
fn run(
    sender: &mut DeliverySender<DynamicSender, Zeros>,
    from: Instant,
    end: Instant,
) -> (usize, Vec<Packet>) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut packets = Vec::new();
    let mut wakes = 0;
    let mut now = from;
    loop {
        wakes += 1;
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            let Destination::Channel(channel) = transmit.destination else { panic!("to a channel") };
            let (header, _) = alc::parse(&buffer[..transmit.bytes]).unwrap();
            let kind = match (header.toi, header.payload_id) {
                (Some(0), Some(id)) => Kind::Fdt(id.sbn, id.esi),
                (None, _) if header.close_session => Kind::Close,
                _ => Kind::Content,
            };
            packets.push(Packet { at: now, channel, kind });
        }
        let Some(next) = sender.poll_timeout().filter(|next| *next < end) else { return (wakes, packets) };
        assert!(next > now, "woken up again and again at {now:?}");
        now = next;
        sender.handle(now, Input::Timeout);
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Symbols of the FDT among some packets.
fn described<'a>(packets: impl Iterator<Item = &'a Packet>) -> BTreeSet<(u32, u32)> {
    packets
        .filter_map(|packet| match packet.kind {
            Kind::Fdt(sbn, esi) => Some((sbn, esi)),
            _ => None,
        })
        .collect()
}

#[test]
fn every_channel_tells_of_the_end() {
    let mut sender = sender(40, 100_000, End::Never);
    let (_, before) = run(&mut sender, Instant::ZERO, at(7));
    let whole = described(before.iter());
    sender.close();
    let (_, packets) = run(&mut sender, at(7), at(60));
    assert!(sender.is_finished());
    assert!(packets.iter().all(|packet| packet.kind != Kind::Content), "no content after the close");

    let mut channels: BTreeMap<ChannelId, Vec<&Packet>> = BTreeMap::new();
    for packet in &packets {
        channels.entry(packet.channel).or_default().push(packet);
    }
    assert!(channels.len() > 10, "{} channels", channels.len());
    let base_said = channels[&ChannelId::BASE].len();
    for (channel, said) in &channels {
        assert_eq!(said.len().min(base_said), said.len(), "channel {channel:?} is silent once it is done");
        let closes = said.iter().filter(|packet| packet.kind == Kind::Close).count();
        if said.len() == base_said {
            assert_eq!(described(said.iter().copied()), whole, "channel {channel:?}");
            assert_eq!(closes, 3, "channel {channel:?}");
            assert!(said[said.len() - 3..].iter().all(|packet| packet.kind == Kind::Close));
        }
    }
    let complete = channels.values().filter(|said| said.len() == base_said).count();
    assert!(complete >= channels.len() / 2, "{complete} of {} channels said all", channels.len());
}

#[test]
fn who_joins_a_slow_base_is_described_soon_and_content_goes_on() {
    for (files, millis) in [(1, 700), (5, 2_200), (40, 4_000)] {
        let mut sender = sender(files, 1_000_000, End::Never);
        let (_, packets) = run(&mut sender, Instant::ZERO, at(60));
        let base: Vec<&Packet> =
            packets.iter().filter(|packet| packet.channel == ChannelId::BASE && packet.at >= at(5)).collect();
        let whole = described(base.iter().copied());
        // Whenever a receiver comes, it has all symbols in that time.
        for (first, packet) in base.iter().enumerate() {
            let end = packet.at + Duration::from_millis(millis);
            if end < at(60) {
                let seen = base[first..].iter().take_while(|packet| packet.at < end).copied();
                assert_eq!(described(seen), whole, "{files} files, from {:?}", packet.at);
            }
        }
        let content = base.iter().filter(|packet| packet.kind == Kind::Content).count();
        assert!(content * 4 >= base.len() * 3 - 4, "{content} of {} packets are content", base.len());
        // The other levels are left alone.
        assert!(
            packets.iter().all(|packet| packet.channel == ChannelId::BASE || packet.kind == Kind::Content)
        );
    }
}

#[test]
fn who_has_just_come_begins_by_the_packet_that_opens_an_epoch() {
    let mut sender = sender(1, 1_000_000, End::Never);
    let (_, packets) = run(&mut sender, Instant::ZERO, at(60));
    let epoch = |packet: &Packet| packet.at.since(Instant::ZERO).as_nanos() / 500_000_000;
    let base: Vec<&Packet> =
        packets.iter().filter(|packet| packet.channel == ChannelId::BASE && packet.at >= at(1)).collect();
    for pair in base.windows(2) {
        let opens = epoch(pair[0]) != epoch(pair[1]);
        assert_eq!(matches!(pair[1].kind, Kind::Fdt(..)), opens, "the packet of {:?}", pair[1].at);
    }
}

#[test]
fn a_long_description_takes_a_share_of_every_level() {
    let mut sender = sender(4_000, 2_000, End::Never);
    let (_, packets) = run(&mut sender, Instant::ZERO, at(90));
    let whole = described(packets.iter());
    assert!(whole.len() > 50, "{} symbols", whole.len());
    // All levels together take a twentieth once each has sent it whole; the base alone takes what the base
    // can.
    let late: Vec<&Packet> = packets.iter().filter(|packet| packet.at >= at(60)).collect();
    let told = late.iter().filter(|packet| matches!(packet.kind, Kind::Fdt(..))).count();
    assert!(told * 15 < late.len(), "{told} of {} packets", late.len());
    assert_eq!(described(late.iter().copied()), whole, "who holds every level is described in 30 s");
    let base = late.iter().filter(|packet| packet.channel == ChannelId::BASE).copied();
    assert!(described(base).len() < whole.len() * 2 / 3, "which the base alone does not bring");
}

/// Receivers begin to choose levels by the control, which would take a minute on the base behind 4000 files.
#[test]
fn a_long_description_has_a_preface_that_describes_the_control() {
    let control: fdt::ControlAttributes = "m2c packet-bytes=1440 base-rate=115200".parse().unwrap();
    // An FDT of many symbols, and an FDT of a few, which the base alone carries.
    for files in [4_000, 80] {
        check_prefaces(described_sender(files, 2_000, End::Never, Some(control.clone())), &control);
    }
}

fn check_prefaces(mut sender: DeliverySender<DynamicSender, Zeros>, control: &fdt::ControlAttributes) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (mut prefaces, mut others) = (Vec::new(), 0);
    while let Some(now) = sender.poll_timeout().filter(|now| *now < at(20)) {
        sender.handle(now, Input::Timeout);
        while let Some(output) = sender.poll_output(now, &mut buffer) {
            let Output::Transmit(transmit) = output else { continue };
            let (header, payload) = alc::parse(&buffer[..transmit.bytes]).unwrap();
            if transmit.destination != Destination::Channel(ChannelId::BASE) || header.toi != Some(0) {
                continue;
            }
            let length = header.extensions.fti.unwrap().transfer_length();
            if length > payload.len() as u64 {
                others += 1;
                continue;
            }
            let mut xml = Vec::new();
            match header.extensions.content_encoding {
                None => xml.extend_from_slice(payload),
                Some(_) => drop(flate2::read::GzDecoder::new(payload).read_to_end(&mut xml).unwrap()),
            }
            let instance = fdt::Instance::parse(&xml).unwrap();
            assert_eq!(instance.control.as_ref(), Some(control));
            assert!(!instance.complete && !instance.files.is_empty());
            prefaces.push(now);
        }
    }
    assert_eq!(prefaces[0], Instant::ZERO, "the session begins with it");
    let late = prefaces.windows(2).find(|pair| pair[1].since(pair[0]) > Duration::from_millis(1_200));
    assert_eq!(late, None, "every second packet of the FDT at least is a preface");
    assert!(
        others * 8 > prefaces.len() * 7,
        "the rest goes on the base as well: {others}, {}",
        prefaces.len()
    );
}

#[test]
fn a_session_without_content_is_silent_between_its_descriptions() {
    let mut sender = sender(1, 0, End::Passes(5));
    let (wakes, packets) = run(&mut sender, Instant::ZERO, at(30));
    assert!(sender.is_finished());
    assert!(wakes < 300, "{wakes} wakes for some 2000 departures");
    let (fdt, closes): (Vec<&Packet>, Vec<&Packet>) =
        packets.iter().partition(|packet| matches!(packet.kind, Kind::Fdt(..)));
    assert!(fdt.len() >= 6 && closes.len() >= 3, "{} and {}", fdt.len(), closes.len());
    let last = packets.last().unwrap().at;
    assert!((at(3)..at(7)).contains(&last), "ended at {last:?}");
}
