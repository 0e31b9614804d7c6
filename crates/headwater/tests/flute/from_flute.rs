//! flute's sender, our receiver.

use std::net::SocketAddr;
use std::time::SystemTime;

use flute::core::lct::Cenc;
use flute::core::{Oti, UDPEndpoint};
use flute::sender::{ObjectDesc, TransferConfig};
use headwater::coding::decode;
use headwater_proto::delivery::{
    BlockJob, BlockVerdict, ContentCoding, DeliveryReceiver, DeliveryReceiverConfig, Encoding, FileIndex,
    FileSpec, HeldBlock, HeldFile, MemoryStore, ObjectIndex, ObjectSpec, ReceiverEvent, Store, StoreError,
    StoreReport, StoredRepair,
};
use headwater_proto::{ChannelId, Datagram, Duration, Ecn, Input, Instant, Machine, Output, fixed};
use md5::{Digest, Md5};

use super::link::{Link, content};
use super::{Named, SYMBOL_SIZE, TSI, files, sorted};

/// Between two packets of flute's.
const INTERVAL: Duration = Duration::from_millis(1);
/// Packets that close a session; some are lost.
const CLOSE_PACKETS: u32 = 5;
/// Instants after which a test gives up.
const INSTANTS_MAX: usize = 100_000;

/// How a session tells that nothing more will come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// `Complete="true"` in the FDT.
    Complete,
    /// A packet with flag A.
    CloseSession,
}

/// A session of flute's.
struct Session {
    oti: Oti,
    fdt_cenc: Cenc,
    content_md5: bool,
    ending: Ending,
    /// Times that every file is sent.
    transfers: u32,
}

impl Session {
    fn new(oti: Oti) -> Self {
        Self { oti, fdt_cenc: Cenc::Null, content_md5: true, ending: Ending::Complete, transfers: 1 }
    }

    fn object(&self, name: &str, bytes: &[u8], cenc: Cenc) -> ObjectDesc {
        let location = format!("file:///{name}").parse().unwrap();
        let config = TransferConfig { max_transfer_count: self.transfers, cenc, ..TransferConfig::default() };
        let kind = "application/octet-stream";
        *ObjectDesc::create_from_buffer(bytes.to_vec(), kind, &location, self.content_md5, config).unwrap()
    }

    fn sender(&self, objects: Vec<ObjectDesc>) -> flute::sender::Sender {
        let config = flute::sender::Config { fdt_cenc: self.fdt_cenc, ..flute::sender::Config::default() };
        let endpoint = UDPEndpoint::new(None, "239.255.0.1".to_owned(), 3_400);
        let mut sender = flute::sender::Sender::new(endpoint, TSI.into(), &self.oti, &config);
        for object in objects {
            sender.add_object(0, Box::new(object)).unwrap();
        }
        if self.ending == Ending::Complete {
            sender.set_complete();
        }
        sender.publish(SystemTime::UNIX_EPOCH).unwrap();
        sender
    }

    /// Sends `files` and asserts that they arrive, with their digests when the session has them.
    fn deliver(&self, files: &[Named]) {
        let objects = files.iter().map(|(name, bytes)| self.object(name, bytes, Cenc::Null)).collect();
        let SessionEnd { machine, events } = self.run(objects);
        assert_eq!(events.last(), Some(&ReceiverEvent::SessionCompleted { refused: 0 }));
        let received = machine.store().memory.finished();
        let received = received.map(|(spec, bytes)| (spec.path.as_str(), bytes.to_vec())).collect();
        assert!(sorted(received) == sorted(files.to_vec()), "names or bytes differ");
        for (spec, bytes) in machine.store().memory.finished() {
            assert_eq!(spec.md5, self.content_md5.then(|| Md5::digest(bytes).into()), "{}", spec.path);
        }
        let dropped = machine.stats().dropped;
        assert_eq!((dropped.malformed, dropped.bad_fdt), (0, 0), "{dropped:?}");
        // What flute sends for an empty file are symbols that it cannot have.
        let has_empty = files.iter().any(|(_, bytes)| bytes.is_empty());
        assert!(has_empty || dropped.bad_symbol == 0, "{dropped:?}");
    }

    /// Runs the session over a bad link until our receiver has ended.
    fn run(&self, objects: Vec<ObjectDesc>) -> SessionEnd {
        self.run_to(objects, SessionEnd::new())
    }

    fn run_to(&self, objects: Vec<ObjectDesc>, mut end: SessionEnd) -> SessionEnd {
        let mut sender = self.sender(objects);
        let mut link = Link::new("from flute");
        let mut now = Instant::ZERO;
        let mut closes = 0..CLOSE_PACKETS;
        for _ in 0..INSTANTS_MAX {
            now += INTERVAL;
            let time =
                SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(now.since(Instant::ZERO).as_nanos());
            let packet = match self.ending {
                Ending::CloseSession if sender.get_objects_in_fdt().is_empty() => {
                    closes.next().map(|_| sender.read_close_session(time))
                }
                _ => sender.read(time),
            };
            for packet in packet.map(|packet| link.carry(packet)).unwrap_or_default() {
                end.take(now, &packet);
            }
            end.machine.handle(now, Input::Timeout);
            if end.settle(now) {
                assert!(link.lost > 0, "the link must have lost something");
                return end;
            }
        }
        panic!("the session did not end: {:?} {:?}", end.machine.stats(), end.events);
    }
}

/// Our end of a session.
struct SessionEnd {
    machine: DeliveryReceiver<fixed::FixedReceiver, Md5Store>,
    events: Vec<ReceiverEvent>,
}

impl SessionEnd {
    fn new() -> Self {
        let store = Md5Store { memory: MemoryStore::new(1 << 24), md5: Vec::new(), decoded: None };
        let config = DeliveryReceiverConfig::default().with_tsi(Some(TSI.into()));
        Self {
            machine: DeliveryReceiver::new(config, fixed::FixedReceiver::new(), store, Instant::ZERO),
            events: Vec::new(),
        }
    }

    /// With a store that decodes gzip.
    fn decoding() -> Self {
        let store =
            Md5Store { memory: MemoryStore::new(1 << 24), md5: Vec::new(), decoded: Some(Vec::new()) };
        let config = DeliveryReceiverConfig::default().with_tsi(Some(TSI.into()));
        let machine = DeliveryReceiver::new(config, fixed::FixedReceiver::new(), store, Instant::ZERO);
        Self { machine, events: Vec::new() }
    }

    fn take(&mut self, now: Instant, payload: &[u8]) {
        let source: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let datagram = Datagram { source, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload };
        self.machine.handle(now, Input::Datagram(datagram));
    }

    /// Drains the machine; whether it has ended.
    fn settle(&mut self, now: Instant) -> bool {
        while let Some(output) = self.machine.poll_output(now, &mut []) {
            if let Output::Event(event) = output {
                self.events.push(event);
            }
        }
        self.machine.is_ended()
    }
}

/// A store in memory that checks Content-MD5, as the one on disk does.
struct Md5Store {
    memory: MemoryStore,
    md5: Vec<Option<[u8; 16]>>,
    /// Decoded files, if the store decodes.
    decoded: Option<Vec<(String, Vec<u8>)>>,
}

impl Store for Md5Store {
    fn create_file(&mut self, file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        self.md5.push(spec.md5);
        self.memory.create_file(file, spec)
    }

    fn decodes(&self, coding: ContentCoding) -> bool {
        self.decoded.is_some() && coding == ContentCoding::Gzip
    }

    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock> {
        self.memory.create_object(object, spec)
    }

    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        self.memory.write_source(object, sbn, esi, symbol)
    }

    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        self.memory.write_repair(object, sbn, repair, symbol)
    }

    fn finish_block(&mut self, job: BlockJob) {
        self.memory.finish_block(job);
    }

    fn judge_block(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        verdict: BlockVerdict,
    ) -> Result<(), StoreError> {
        self.memory.judge_block(object, sbn, verdict)
    }

    fn finish_file(&mut self, file: FileIndex) {
        self.memory.finish_file(file);
    }

    fn discard_file(&mut self, file: FileIndex) -> Result<(), StoreError> {
        self.memory.discard_file(file)
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        let report = self.memory.poll_report()?;
        let StoreReport::FileDone(file) = report else { return Some(report) };
        let (spec, bytes) = self.memory.finished().last().expect("the file that was finished last");
        let mut content = Vec::new();
        let bytes = match spec.encoding {
            Some(Encoding { coding, bytes: length, .. }) => {
                let sink = |chunk: &[u8]| {
                    content.extend_from_slice(chunk);
                    Ok(())
                };
                decode(coding, bytes, length, sink).unwrap();
                &content[..]
            }
            None => bytes,
        };
        let name = spec.path.as_str().to_owned();
        self.decoded.iter_mut().for_each(|decoded| decoded.push((name.clone(), bytes.to_vec())));
        let matches = self.md5[file.0].is_none_or(|md5| md5 == Md5::digest(bytes)[..]);
        Some(if matches { report } else { StoreReport::FileMismatch(file) })
    }
}

fn no_code() -> Session {
    Session { transfers: 6, ..Session::new(Oti::new_no_code(SYMBOL_SIZE, 64)) }
}

fn reed_solomon() -> Session {
    Session { transfers: 3, ..Session::new(Oti::new_reed_solomon_rs28(SYMBOL_SIZE, 60, 20).unwrap()) }
}

fn raptorq() -> Session {
    Session { transfers: 3, ..Session::new(Oti::new_raptorq(SYMBOL_SIZE, 300, 60, 1, 4).unwrap()) }
}

#[test]
fn a_session_without_a_code_arrives() {
    no_code().deliver(&files());
}

#[test]
fn a_reed_solomon_session_arrives() {
    reed_solomon().deliver(&files());
}

#[test]
fn a_raptorq_session_arrives() {
    raptorq().deliver(&files());
}

/// FEC parameters in the FDT only, instead of in every packet.
#[test]
fn parameters_may_be_in_the_fdt_only() {
    for mut session in [no_code(), reed_solomon(), raptorq()] {
        session.oti.inband_fti = false;
        session.deliver(&files());
    }
}

#[test]
fn the_fdt_may_be_compressed() {
    for fdt_cenc in [Cenc::Zlib, Cenc::Deflate, Cenc::Gzip] {
        Session { fdt_cenc, ..reed_solomon() }.deliver(&files()[..4]);
    }
}

#[test]
fn content_md5_may_be_missing() {
    Session { content_md5: false, ..reed_solomon() }.deliver(&files());
}

/// Without `Complete` in the FDT, the flag that closes the session says that all was there.
#[test]
fn closing_ends_a_session() {
    Session { ending: Ending::CloseSession, ..raptorq() }.deliver(&files());
}

/// flute announces a file of 0 bytes like any other, and sends packets for it that we need not have.
#[test]
fn empty_files_arrive() {
    for session in [no_code(), reed_solomon(), raptorq()] {
        session.deliver(&[("empty", Vec::new()), ("more", content("more", 40_000))]);
    }
}

#[test]
fn a_wrong_content_md5_is_found() {
    let session = reed_solomon();
    let mut spoilt = session.object("spoilt", &content("spoilt", 9_000), Cenc::Null);
    spoilt.md5 = session.object("other", b"other", Cenc::Null).md5;
    let good = content("good", 9_000);
    let end = session.run(vec![spoilt, session.object("good", &good, Cenc::Null)]);
    let announced = |wanted: &str| {
        let index = |event: &ReceiverEvent| match event {
            ReceiverEvent::FileAnnounced { file, path, .. } if path.as_str() == wanted => Some(*file),
            _ => None,
        };
        end.events.iter().find_map(index).unwrap()
    };
    assert!(end.events.contains(&ReceiverEvent::FileMismatch { file: announced("spoilt") }));
    assert!(end.events.contains(&ReceiverEvent::FileCompleted {
        file: announced("good"),
        digest: None,
        is_present: false
    }));
}

/// Files with Content-Encoding gzip, with the MD5 of the content before encoding, beside a plain file.
#[test]
fn gzip_files_arrive() {
    for inband_fti in [true, false] {
        let mut session = reed_solomon();
        session.oti.inband_fti = inband_fti;
        let text: Vec<u8> = (0..9_000_u32).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
        let files = [("encoded", text, Cenc::Gzip), ("plain", content("plain", 9_000), Cenc::Null)];
        let objects = files.iter().map(|(name, bytes, cenc)| session.object(name, bytes, *cenc)).collect();
        let end = session.run_to(objects, SessionEnd::decoding());
        assert_eq!(
            end.events.last(),
            Some(&ReceiverEvent::SessionCompleted { refused: 0 }),
            "{:?}",
            end.events
        );
        let decoded = end.machine.store().decoded.clone().unwrap();
        let expected = files.map(|(name, bytes, _)| (name.to_owned(), bytes));
        assert!(sorted(decoded) == expected, "inband_fti {inband_fti}");
    }
}

/// A store that does not decode, and codings of flute's that nobody else has: such a file is refused by name.
#[test]
fn encoded_files_are_refused_and_the_others_arrive() {
    let session = reed_solomon();
    let plain = content("plain", 9_000);
    let objects = vec![
        session.object("encoded", &content("encoded", 9_000), Cenc::Gzip),
        session.object("plain", &plain, Cenc::Null),
    ];
    let end = session.run(objects);
    assert_eq!(end.events.last(), Some(&ReceiverEvent::SessionCompleted { refused: 1 }));
    let refused = |event: &ReceiverEvent| matches!(event, ReceiverEvent::FileRefused { location, reason } if location == "file:///encoded" && reason.contains("gzip"));
    assert_eq!(end.events.iter().filter(|event| refused(event)).count(), 1, "{:?}", end.events);
    assert_eq!(end.machine.store().memory.finished().map(|(_, bytes)| bytes).collect::<Vec<_>>(), [plain]);
}
