//! Our sender, flute's receiver.

use std::rc::Rc;
use std::time::SystemTime;

use flute::core::UDPEndpoint;
use flute::receiver::writer::ObjectWriterBufferBuilder;
use headwater::SenderKey;
use headwater_fec::{Order, Scheme};
use headwater_proto::auth::{Signing, SigningConfig};
use headwater_proto::control::SenderControl;
use headwater_proto::delivery::{
    ContentCoding, DeliverySender, DeliverySenderConfig, Encoding, FileToSend, MemorySource, PlanConfig,
    RelativePath, SessionPlan,
};
use headwater_proto::described::Description;
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Destination, Duration, Input, Instant, Machine, Output, Rate, fixed,
};
use headwater_wire::auth::Authentication;
use headwater_wire::lct;

use super::link::{Link, content};
use super::{Named, SYMBOL_SIZE, TSI, files, sorted};

const RATE: Rate = Rate::from_kilobits(8_000);
/// Datagrams after which a test gives up.
const DATAGRAMS_MAX: usize = 400_000;
/// Our virtual zero on flute's clock, in Unix seconds.
const UNIX_AT_ZERO: u64 = 1_800_000_000;
/// From the NTP era to the Unix epoch, in seconds (RFC 5905, figure 4).
const NTP_AT_UNIX_ZERO: u64 = 2_208_988_800;

/// Our sender in virtual time.
struct Datagrams<C: SenderControl> {
    sender: DeliverySender<C, MemorySource>,
    now: Instant,
    buffer: Vec<u8>,
}

impl<C: SenderControl> Datagrams<C> {
    fn new(plan: &SessionPlan, files: &[Named], control: C) -> Self {
        let contents: Vec<_> = files.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        let source = MemorySource::new(plan, &contents);
        let digests = source.digests();
        let ntp = u32::try_from(UNIX_AT_ZERO + NTP_AT_UNIX_ZERO).unwrap();
        let config = DeliverySenderConfig::new(TSI.into()).with_ntp_at_zero(ntp);
        // Receivers that know no signatures skip the signatures.
        let signing = SigningConfig::new(TSI.into(), ntp, 1, [3; 32]);
        let signing = Signing::new(signing, Box::new(SenderKey::ephemeral().unwrap()));
        Self {
            sender: DeliverySender::new(config, plan, &digests, control, source)
                .unwrap()
                .with_signing(Some(signing)),
            now: Instant::ZERO,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
        }
    }

    /// The next datagram of the base channel.
    fn next(&mut self) -> Vec<u8> {
        loop {
            match self.sender.poll_output(self.now, &mut self.buffer) {
                Some(Output::Transmit(transmit))
                    if transmit.destination == Destination::Channel(ChannelId::BASE) =>
                {
                    return self.buffer[..transmit.bytes].to_vec();
                }
                Some(_) => {}
                None => {
                    self.now =
                        self.sender.poll_timeout().expect("an endless session always has a next packet");
                    self.sender.handle(self.now, Input::Timeout);
                }
            }
        }
    }
}

/// flute's receiver, and what it has written.
struct FluteReceiver {
    receiver: flute::receiver::Receiver,
    writer: Rc<ObjectWriterBufferBuilder>,
}

impl FluteReceiver {
    fn new() -> Self {
        let endpoint = UDPEndpoint::new(None, "239.255.0.1".to_owned(), 3_400);
        let writer = Rc::new(ObjectWriterBufferBuilder::new(true));
        let receiver = flute::receiver::Receiver::new(&endpoint, TSI.into(), writer.clone(), None);
        Self { receiver, writer }
    }

    fn push(&mut self, now: Instant, datagram: &[u8]) {
        let since = Duration::from_secs(UNIX_AT_ZERO) + now.since(Instant::ZERO);
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(since.as_nanos());
        self.receiver.push_data(datagram, now).expect("flute takes every packet of ours");
    }

    fn completed(&self) -> usize {
        self.writer.objects.borrow().iter().filter(|object| object.borrow().complete).count()
    }

    /// What was written: Content-Location and bytes, each object once and without an error.
    fn objects(&self) -> Vec<(String, Vec<u8>)> {
        let objects = self.writer.objects.borrow();
        let object = |object: &Rc<std::cell::RefCell<flute::receiver::writer::ObjectWriterBuffer>>| {
            let object = object.borrow();
            assert!(object.complete && !object.error, "{}", object.meta.content_location);
            (object.meta.content_location.clone(), object.data.clone())
        };
        objects.iter().map(object).collect()
    }
}

fn plan(files: &[Named], config: PlanConfig) -> SessionPlan {
    let file = |(name, content): &Named| FileToSend {
        path: RelativePath::new(name).unwrap(),
        bytes: content.len() as u64,
        mode: Some(0o644),
        modified: None,
    };
    SessionPlan::new(files.iter().map(file).collect(), config).unwrap()
}

/// Sends until flute has `objects` objects; it begins to listen after `missed` packets.
fn deliver(plan: &SessionPlan, files: &[Named], objects: usize, missed: usize) -> FluteReceiver {
    let control = fixed::FixedSender::new(RATE, Instant::ZERO);
    carry(Datagrams::new(plan, files, control), objects, missed)
}

fn is_signed(datagram: &[u8]) -> bool {
    let packet = lct::Packet::new_checked(datagram).unwrap();
    matches!(Authentication::find(&packet), Ok(Some(_)))
}

fn carry<C: SenderControl>(mut datagrams: Datagrams<C>, objects: usize, missed: usize) -> FluteReceiver {
    let mut receiver = FluteReceiver::new();
    let mut link = Link::new("to flute");
    for _ in 0..missed {
        datagrams.next();
    }
    let mut signed = 0;
    for _ in 0..DATAGRAMS_MAX {
        let datagram = datagrams.next();
        signed += u32::from(is_signed(&datagram));
        for datagram in link.carry(datagram) {
            receiver.push(datagrams.now, &datagram);
        }
        if receiver.completed() == objects {
            assert!(link.lost > 0, "the link must have lost something");
            assert!(signed > 0, "the session is signed");
            return receiver;
        }
    }
    panic!("flute has {} of {objects} objects", receiver.completed());
}

fn deliver_files(scheme: Scheme, missed: usize) {
    let config =
        PlanConfig { scheme, symbol_size: SYMBOL_SIZE, order: Order::Spread { rate: RATE.as_bits() } };
    let mut files = files();
    // flute takes note of a file with its first packet, and we send none for an empty one.
    files.insert(2, ("empty", Vec::new()));
    let receiver = deliver(&plan(&files, config), &files, files.len() - 1, missed);
    files.remove(2);
    let location = |name: &str| RelativePath::new(name).unwrap().to_content_location();
    let expected = files.into_iter().map(|(name, bytes)| (location(name), bytes)).collect();
    assert!(sorted(receiver.objects()) == sorted(expected), "names or bytes differ");
}

#[test]
fn flute_receives_files_without_a_code() {
    deliver_files(Scheme::NoCode, 0);
}

#[test]
fn flute_receives_reed_solomon() {
    deliver_files(Scheme::ReedSolomon, 0);
}

#[test]
fn flute_receives_raptorq() {
    deliver_files(Scheme::RaptorQ, 0);
}

/// It knows nothing of the other channels, nor of the attribute that tells of them.
#[test]
fn flute_receives_the_base_channel_of_a_session_of_many_rates() {
    let order = Order::Spread { rate: RATE.as_bits() };
    let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL_SIZE, order };
    let mut files = files();
    files.pop();
    files.push(("larger", content("larger", 200_000)));
    let plan = plan(&files, config);
    let layers = DynamicConfig::new(1_040, RATE).with_base_rate(Rate::from_kilobits(800));
    let channels = DynamicChannels::new(layers, Instant::ZERO).unwrap();
    let description = Description::from(&layers).to_fdt();
    let control = DynamicSender::new(channels).with_description(description);
    let receiver = carry(Datagrams::new(&plan, &files, control), files.len(), 0);
    let location = |name: &str| RelativePath::new(name).unwrap().to_content_location();
    let expected = files.into_iter().map(|(name, bytes)| (location(name), bytes)).collect();
    assert!(sorted(receiver.objects()) == sorted(expected), "names or bytes differ");
}

#[test]
fn flute_may_come_late() {
    for scheme in [Scheme::NoCode, Scheme::ReedSolomon, Scheme::RaptorQ] {
        deliver_files(scheme, 2_500);
    }
}

/// So many files that the FDT is sent compressed.
#[test]
fn flute_reads_a_compressed_fdt() {
    let names = (0..60).map(|index| &*format!("dir/{index:03}").leak());
    let files: Vec<Named> = names.map(|name| (name, content(name, 700))).collect();
    let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: SYMBOL_SIZE, order: Order::Window };
    let receiver = deliver(&plan(&files, config), &files, files.len(), 0);
    let expected = files.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    assert!(sorted(receiver.objects()) == sorted(expected), "names or bytes differ");
}

/// A file of more blocks than RaptorQ's 8 bits can number: flute skips our attributes and takes each segment
/// as a file of its own.
#[test]
fn flute_receives_the_segments_of_a_large_file() {
    const SYMBOL_SIZE: u16 = 8;
    let files: Vec<Named> = vec![("big file", content("big", 2_200_001))];
    let config = PlanConfig { scheme: Scheme::RaptorQ, symbol_size: SYMBOL_SIZE, order: Order::Window };
    let plan = plan(&files, config);
    let blocks: u32 = plan.objects().iter().map(|object| object.partition.blocks()).sum();
    assert!(blocks > 255 && plan.objects().len() == 2, "{blocks} blocks in {} objects", plan.objects().len());

    let receiver = deliver(&plan, &files, plan.objects().len(), 0);
    let segments = sorted(receiver.objects());
    let names: Vec<&str> = segments.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["big%20file.segment-00000", "big%20file.segment-00001"]);
    let whole: Vec<u8> = segments.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert!(whole == files[0].1, "the segments in order are not the file");
}

/// A bundle of 40 files for a receiver that knows no bundles.
fn bundle() -> (SessionPlan, Named) {
    use headwater_proto::delivery::{BundleLayout, BundleMember, BundlePart, FileTime, MemberCheck};

    let content = |member: usize| content(&format!("member {member}"), member * 37);
    let member = |member: usize| BundleMember {
        path: RelativePath::new(&format!("folder/file {member}")).unwrap(),
        bytes: u32::try_from(content(member).len()).unwrap(),
        mode: 0o644,
        modified: FileTime::new(1_763_971_200, 5).unwrap(),
    };
    let layout = BundleLayout::new((0..40).map(member).collect()).unwrap();
    let check = |member| MemberCheck { crc32: crc32fast::hash(&content(member)), digest: [0; 16] };
    let mut bytes = Vec::new();
    while let Some(part) = layout.part(u32::try_from(bytes.len()).unwrap()) {
        match part {
            BundlePart::Header { member, .. } => bytes.extend(layout.local_header(member, check(member))),
            BundlePart::Content { member, .. } => bytes.extend(content(member)),
            BundlePart::Entry { member, .. } => bytes.extend(layout.entry(member, check(member))),
            BundlePart::End { .. } => bytes.extend(layout.end_record()),
        }
    }
    let path = RelativePath::new("bundle-00000000.zip").unwrap();
    let file = FileToSend { path, bytes: bytes.len() as u64, mode: None, modified: None };
    let order = Order::Spread { rate: RATE.as_bits() };
    let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: SYMBOL_SIZE, order };
    let plan = SessionPlan::new(vec![file], config).unwrap().with_bundles([0].into());
    (plan, ("bundle-00000000.zip", bytes))
}

#[test]
fn flute_keeps_a_bundle_as_a_zip() {
    let (plan, file) = bundle();
    let files = [file];
    let mut datagrams = Datagrams::new(&plan, &files, fixed::FixedSender::new(RATE, Instant::ZERO));
    let mut flute = FluteReceiver::new();
    for _ in 0..DATAGRAMS_MAX {
        if flute.completed() > 0 {
            break;
        }
        let datagram = datagrams.next();
        flute.push(datagrams.now, &datagram);
    }
    assert_eq!(flute.objects().len(), 1);
    let (_, bytes) = &flute.objects()[0];
    assert_eq!(*bytes, files[0].1);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.zip"), bytes).unwrap();
    let tested = std::process::Command::new("unzip").arg("-tqq").arg(folder.path().join("a.zip")).status();
    // `unzip` is no part of every system; tests/interop/bundle.sh needs it.
    assert!(tested.is_err() || tested.is_ok_and(|status| status.success()));
}

/// Content as `send --compress=gzip` encodes it: flute yields the content, and a bundle as a zip.
#[test]
fn flute_decodes_gzip() {
    let text: Vec<u8> =
        (0..40_000_u32).flat_map(|line| format!("line {line} of a text\n").into_bytes()).collect();
    let (_, (zip_name, zip)) = bundle();
    let contents = [(zip_name, zip), ("text", text)];
    let gzip = |content: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        std::io::Write::write_all(&mut encoder, content).unwrap();
        encoder.finish().unwrap()
    };
    for scheme in [Scheme::NoCode, Scheme::RaptorQ] {
        let order = Order::Spread { rate: RATE.as_bits() };
        let config = PlanConfig { scheme, symbol_size: SYMBOL_SIZE, order };
        let mut files: Vec<Named> = contents.iter().map(|(name, content)| (*name, gzip(content))).collect();
        files.push(("plain", content("plain", 20_000)));
        let encoding = |(index, (_, content)): (usize, &Named)| {
            let digest = Some(*blake3::hash(content).as_bytes());
            (index, Encoding { coding: ContentCoding::Gzip, bytes: content.len() as u64, digest })
        };
        let encodings = contents.iter().enumerate().map(encoding).collect();
        let plan = plan(&files, config).with_bundles([0].into()).with_encodings(encodings);
        let receiver = deliver(&plan, &files, files.len(), 0);
        let mut expected: Vec<_> =
            contents.iter().map(|(name, content)| ((*name).to_owned(), content.clone())).collect();
        expected.push(("plain".to_owned(), content("plain", 20_000)));
        assert!(sorted(receiver.objects()) == sorted(expected), "{scheme:?}: names or bytes differ");
    }
}
