//! Sessions without content, whose packets carry congestion control information only; and a store for
//! thousands of receivers of the same content, which compares received symbols with the original and keeps
//! no content.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use headwater_fec::DecodeError;
use headwater_proto::control::{Arrival, Membership, ReceiverControl, SenderControl};
use headwater_proto::delivery::{
    BlockHasher, BlockJob, BlockVerdict, Digest, FileIndex, FileSpec, HeldBlock, HeldFile, ObjectIndex,
    ObjectSpec, PlannedObject, SessionPlan, Source, SourceError, Store, StoreError, StoreReport,
    StoredRepair, block_digest,
};
use headwater_proto::{Destination, Duration, Input, Instant, Machine, Output, Transmit};
use headwater_wire::Cci;
use headwater_wire::extensions::Lateness;

/// Sends packets of a fixed length whenever the congestion control allows.
#[derive(Clone, Debug)]
pub struct ControlSender<C> {
    control: C,
    payload_bytes: u16,
}

/// Receives the packets of a [`ControlSender`].
#[derive(Clone, Debug)]
pub struct ControlReceiver<C> {
    control: C,
    cci_bytes: u16,
    /// Length of each presence and absence, and the instant of the next change.
    cycle: Option<(Duration, Instant)>,
    is_away: bool,
    is_started: bool,
}

/// Event type of a machine without events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {}

impl<C> ControlSender<C> {
    /// A sender of packets of `payload_bytes` of UDP payload.
    ///
    /// # Panics
    /// When that is too short for congestion control information: 16 bytes.
    pub fn new(control: C, payload_bytes: u16) -> Self {
        assert!(payload_bytes >= 16, "a packet carries congestion control information");
        Self { control, payload_bytes }
    }

    /// The congestion control.
    pub const fn control(&self) -> &C {
        &self.control
    }
}

impl<C: SenderControl> Machine for ControlSender<C> {
    type Event = Silence;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => self.control.timeout(now),
            Input::Datagram(datagram) => self.control.feedback(now, &datagram),
            Input::Routed(..) => {}
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Silence>> {
        if let Some(transmit) = self.control.poll_transmit(now, buffer) {
            return Some(Output::Transmit(transmit));
        }
        let departure = self.control.departure(now)?;
        let bytes = usize::from(self.payload_bytes);
        let cci = departure.cci.as_bytes();
        buffer[..bytes].fill(0);
        buffer[..cci.len()].copy_from_slice(cci);
        if let Some(lateness) = departure.lateness {
            let place = cci.len()..cci.len() + 3;
            buffer[place].copy_from_slice(&lateness.content());
        }
        self.control.departed(now, bytes);
        let destination = Destination::Channel(departure.channel);
        Some(Output::Transmit(Transmit { destination, bytes, ecn: departure.ecn }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.control.next_departure().into_iter().chain(self.control.poll_timeout()).min()
    }
}

impl<C> ControlReceiver<C> {
    /// Creates a receiver of 4-byte congestion control information, which begins when its agent starts.
    pub const fn new(control: C) -> Self {
        Self { control, cci_bytes: 4, cycle: None, is_away: false, is_started: false }
    }

    /// Sets the size of the congestion control information: 4, 8, 12 or 16 bytes.
    #[must_use]
    pub fn with_cci_bytes(mut self, bytes: u16) -> Self {
        self.cci_bytes = bytes;
        self
    }

    /// Lets the receiver alternate between absent and present each `cycle`. The first absence begins one
    /// cycle after the start.
    #[must_use]
    pub fn with_cycle(mut self, cycle: Option<Duration>) -> Self {
        self.cycle = cycle.filter(|cycle| *cycle > Duration::ZERO).map(|cycle| (cycle, Instant::ZERO));
        self
    }

    /// The congestion control.
    pub const fn control(&self) -> &C {
        &self.control
    }
}

impl<C: ReceiverControl> ControlReceiver<C> {
    /// Starts the control, or changes between present and absent.
    fn turn(&mut self, now: Instant) {
        if !self.is_started {
            self.is_started = true;
            self.control.start(now);
            self.cycle = self.cycle.map(|(cycle, _)| (cycle, now + cycle));
        }
        if let Some((cycle, next)) = self.cycle.filter(|(_, next)| *next <= now) {
            self.cycle = Some((cycle, next + cycle));
            self.is_away = !self.is_away;
            match self.is_away {
                true => self.control.stop(now),
                false => self.control.start(now),
            }
        }
    }
}

impl<C: ReceiverControl> Machine for ControlReceiver<C> {
    type Event = Silence;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.turn(now);
        let Input::Datagram(datagram) = input else { return self.control.timeout(now) };
        if datagram.channel.is_none() && self.control.answered(now, &datagram) {
            return;
        }
        let cci = datagram.payload.get(..self.cci_bytes.into()).map(Cci::new);
        if let (Some(channel), Some(Ok(cci))) = (datagram.channel, cci) {
            let (source, ecn, bytes) = (datagram.source, datagram.ecn, datagram.payload.len());
            // Zeros follow the information of a sender that does not stamp its packets.
            let stamp = datagram.payload.get(self.cci_bytes.into()..).and_then(Lateness::parse);
            let lateness = Duration::from_micros(stamp.map_or(0, |lateness| lateness.micros.into()));
            self.control.arrived(now, &Arrival { source, channel, cci: &cci, ecn, bytes, lateness });
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<Silence>> {
        match self.control.poll_membership() {
            Some(Membership::Join(channel)) => Some(Output::Join(channel)),
            Some(Membership::Leave(channel)) => Some(Output::Leave(channel)),
            None => self.control.poll_transmit(now, buffer).map(Output::Transmit),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.control.poll_timeout().into_iter().chain(self.cycle.map(|(_, next)| next)).min()
    }
}

/// Zeros for comparison and hashing, used piecewise.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// The original content, shared by all stores, with the digests of blocks that were asked for.
#[derive(Debug)]
pub struct Originals {
    files: BTreeMap<String, Original>,
    /// Digests by file, offset of the block and length of the block.
    digests: RefCell<BTreeMap<(String, u64, u64), Digest>>,
}

#[derive(Debug)]
enum Original {
    Bytes(Vec<u8>),
    /// A number of zeros, not stored.
    Zeros(u64),
}

impl Original {
    fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeros(bytes) => *bytes,
        }
    }

    /// Returns the requested range, truncated at the end of the file.
    fn part(&self, begin: u64, bytes: u64) -> Cow<'_, [u8]> {
        let index = |at: u64| usize::try_from(at.min(self.bytes())).unwrap_or(usize::MAX);
        let range = index(begin)..index(begin.saturating_add(bytes));
        match self {
            Self::Bytes(content) => Cow::Borrowed(&content[range]),
            Self::Zeros(_) => {
                ZEROS.get(..range.len()).map_or_else(|| Cow::Owned(vec![0; range.len()]), Cow::Borrowed)
            }
        }
    }
}

impl Originals {
    /// Creates originals from file names, as the session gives them, and contents.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Rc<Self> {
        let files = files.into_iter().map(|(name, bytes)| (name, Original::Bytes(bytes)));
        Rc::new(Self { files: files.collect(), digests: RefCell::default() })
    }

    /// Creates one file of `bytes` zeros, as [`ZeroSource`] sends it.
    pub fn zeros(name: &str, bytes: u64) -> Rc<Self> {
        let files = [(name.to_owned(), Original::Zeros(bytes))];
        Rc::new(Self { files: files.into(), digests: RefCell::default() })
    }
}

/// Content of zeros, of any length and without memory: all codes are linear, so that repair symbols are zeros
/// as well.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroSource;

impl ZeroSource {
    /// Returns the digests of each object's blocks, as
    /// [`Sender::new`](headwater_proto::delivery::DeliverySender::new) expects.
    pub fn digests(plan: &SessionPlan) -> Vec<Vec<Digest>> {
        // A file has blocks of two lengths.
        let mut known: BTreeMap<u64, Digest> = BTreeMap::new();
        let mut block = |bytes: u64| *known.entry(bytes).or_insert_with(|| zeros_digest(bytes));
        let object = |object: &PlannedObject| {
            let blocks = (0..object.partition.blocks()).filter_map(|sbn| object.partition.block(sbn));
            blocks.map(|found| block(found.bytes)).collect()
        };
        plan.objects().iter().map(object).collect()
    }
}

impl Source for ZeroSource {
    fn read_symbol(
        &mut self,
        _object: usize,
        _sbn: u32,
        _esi: u32,
        symbol: &mut [u8],
    ) -> Result<(), SourceError> {
        symbol.fill(0);
        Ok(())
    }
}

fn zeros_digest(bytes: u64) -> Digest {
    let mut hasher = BlockHasher::default();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..usize::try_from(part).unwrap_or(ZEROS.len())]);
        left -= part;
    }
    hasher.finish()
}

/// Store that keeps an object's layout and the errors found, never content: a few hundred bytes for a
/// receiver.
///
/// A source symbol is right if it equals the original's; repair symbols count as right. For a code that needs
/// no more than k symbols, any repair symbol replaces a missing source symbol. Whether an LDPC block decodes
/// depends on the symbols received, so for LDPC the store keeps the numbers of repair symbols (4 bytes each)
/// and asks the decoder.
#[derive(Debug)]
pub struct KnownStore {
    originals: Rc<Originals>,
    files: Vec<String>,
    objects: Vec<Rc<ObjectSpec>>,
    /// Blocks with a symbol that differed.
    wrong: BTreeMap<(ObjectIndex, u32), u32>,
    /// ESIs of repair symbols by slot, for codes where decoding depends on the symbols.
    repairs: BTreeMap<(ObjectIndex, u32), Vec<u32>>,
    differing: u64,
    finished: Vec<FileIndex>,
    reports: VecDeque<StoreReport>,
}

impl KnownStore {
    /// A store for content that is known.
    pub fn new(originals: &Rc<Originals>) -> Self {
        Self {
            originals: Rc::clone(originals),
            files: Vec::new(),
            objects: Vec::new(),
            wrong: BTreeMap::new(),
            repairs: BTreeMap::new(),
            differing: 0,
            finished: Vec::new(),
            reports: VecDeque::new(),
        }
    }

    /// Names of the files that are whole and right, in order of completion.
    pub fn finished(&self) -> impl Iterator<Item = &str> {
        self.finished.iter().map(|file| self.files[file.0].as_str())
    }

    /// Source symbols that differed from the original's.
    pub const fn differing(&self) -> u64 {
        self.differing
    }

    /// Returns a range of the original of a file, truncated at its end.
    fn original(&self, file: FileIndex, begin: u64, bytes: u64) -> Cow<'_, [u8]> {
        let content = self.originals.files.get(&self.files[file.0]);
        content.map_or(Cow::Borrowed(&[][..]), |content| content.part(begin, bytes))
    }

    /// Number of further repair symbols that a block needs; 0 when the block decodes.
    fn lacking(&self, spec: &ObjectSpec, BlockJob { object, sbn, missing, repairs }: &BlockJob) -> u32 {
        let needed = u32::try_from(missing.len()).unwrap_or(u32::MAX);
        let Some(held) = self.repairs.get(&(*object, *sbn)) else { return needed.saturating_sub(*repairs) };
        let held = &held[..held.len().min(*repairs as usize)];
        let k = spec.partition.block(*sbn).map_or(0, |block| block.symbols);
        match spec.codec.recipe(k, missing, held) {
            Err(DecodeError::NeedMore { more }) => more,
            Err(DecodeError::Invalid(_)) => 1,
            Ok(_) => 0,
        }
    }

    fn digest(&self, file: FileIndex, begin: u64, bytes: u64) -> Digest {
        let key = (self.files[file.0].clone(), begin, bytes);
        let digest = || block_digest(&self.original(file, begin, bytes));
        *self.originals.digests.borrow_mut().entry(key).or_insert_with(digest)
    }
}

impl Store for KnownStore {
    fn create_file(&mut self, _file: FileIndex, spec: &FileSpec) -> Result<HeldFile, StoreError> {
        let name = spec.path.as_str();
        self.files.push(name.to_owned());
        match self.originals.files.get(name).map(Original::bytes) {
            Some(bytes) if bytes == spec.bytes => Ok(HeldFile::default()),
            Some(bytes) => Err(StoreError(format!("{name} has {} bytes, the original {bytes}", spec.bytes))),
            None => Err(StoreError(format!("{name} is no original"))),
        }
    }

    fn create_object(&mut self, object: ObjectIndex, spec: &ObjectSpec) -> Vec<HeldBlock> {
        // Objects of refused files are never announced: fill the gap.
        let spec = Rc::new(spec.clone());
        self.objects.resize_with(object.0 + 1, || Rc::clone(&spec));
        Vec::new()
    }

    fn write_source(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        esi: u32,
        symbol: &[u8],
    ) -> Result<(), StoreError> {
        let spec = Rc::clone(&self.objects[object.0]);
        let Some(block) = spec.partition.block(sbn) else { return Ok(()) };
        let size = u64::from(spec.partition.symbol_size());
        let within = u64::from(esi) * size;
        let bytes = size.min(block.bytes.saturating_sub(within));
        let original = self.original(spec.file, spec.offset + block.offset + within, bytes);
        if original.len() as u64 != bytes || symbol.get(..original.len()) != Some(&*original) {
            self.differing += 1;
            *self.wrong.entry((object, sbn)).or_default() += 1;
        }
        Ok(())
    }

    fn write_repair(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        repair: StoredRepair,
        _symbol: &[u8],
    ) -> Result<(), StoreError> {
        if self.objects[object.0].codec.decodes_in_strips() {
            let held = self.repairs.entry((object, sbn)).or_default();
            held.truncate(repair.slot as usize);
            held.push(repair.esi);
        }
        Ok(())
    }

    fn finish_block(&mut self, job: BlockJob) {
        let BlockJob { object, sbn, .. } = job;
        let spec = Rc::clone(&self.objects[object.0]);
        let lacking = self.lacking(&spec, &job);
        self.reports.push_back(match spec.partition.block(sbn).filter(|_| lacking == 0) {
            Some(block) => {
                let mut digest = self.digest(spec.file, spec.offset + block.offset, block.bytes);
                if self.wrong.contains_key(&(object, sbn)) {
                    digest[0] ^= 1;
                }
                StoreReport::BlockDone { object, sbn, digest }
            }
            None => StoreReport::BlockNeedsMore { object, sbn, more: lacking.max(1) },
        });
    }

    fn judge_block(
        &mut self,
        object: ObjectIndex,
        sbn: u32,
        verdict: BlockVerdict,
    ) -> Result<(), StoreError> {
        self.repairs.remove(&(object, sbn));
        if verdict == BlockVerdict::AllDropped {
            self.wrong.remove(&(object, sbn));
        }
        Ok(())
    }

    fn finish_file(&mut self, file: FileIndex) {
        self.finished.push(file);
        self.reports.push_back(StoreReport::FileDone(file));
    }

    fn discard_file(&mut self, _file: FileIndex) -> Result<(), StoreError> {
        Ok(())
    }

    fn poll_report(&mut self) -> Option<StoreReport> {
        self.reports.pop_front()
    }
}
