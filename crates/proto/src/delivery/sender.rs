//! The sending end: a session's files in a carousel, its FDT in between, at the pace of a congestion control.

use std::collections::VecDeque;

use headwater_fec::BlockCodec;
use headwater_wire::extensions::{ContentEncoding, Extensions, FDT_INSTANCE_ID_MAX, FdtExtension};
use headwater_wire::fdt::Instance;
use headwater_wire::{Fti, PayloadId, alc};

use super::carousel::{Carousel, CarouselBlock, Visit};
use super::digest::Digest;
use super::fdt::{FdtCarousel, FdtTooLarge};
use super::plan::SessionPlan;
use super::store::{Source, SourceError};
use crate::control::{Departure, SenderControl};
use crate::machine::{ChannelId, Destination, Input, Machine, Output, Transmit};
use crate::time::{Duration, Instant};

/// Least time between two rounds of the FDT.
const FDT_INTERVAL: Duration = Duration::from_secs(1);
/// After its first round an FDT packet is sent for at most each so many packets of content: 5 %.
const FDT_CREDIT_PACKETS: u32 = 20;
/// How long an FDT instance may be used; a new one replaces it half-way.
const FDT_LIFETIME: Duration = Duration::from_secs(3_600);
/// By how much the headers of an FDT packet (EXT_FDT, EXT_FTI, EXT_CENC) are longer than those of content.
const FDT_HEADER_BYTES: u16 = 24;
/// Shortest symbol of the FDT, where those of content are tiny.
const FDT_SYMBOL_BYTES_MIN: u16 = 64;
/// Packets that close the session: any one of them tells a receiver.
const CLOSE_PACKETS: u8 = 3;

/// When a sender stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Never.
    Never,
    /// After so many passes over the session: one pass sends as many symbols as the content has, in window order with a
    /// share of repair symbols.
    Passes(u64),
    /// At an instant.
    At(Instant),
}

/// Configuration of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    tsi: u32,
    end: End,
    ntp_at_zero: u32,
}

impl SenderConfig {
    /// A session with transport session identifier `tsi`, sent until it is stopped. Below 2^16 the header is
    /// shortest.
    pub fn new(tsi: u32) -> Self {
        Self { tsi, end: End::Never, ntp_at_zero: 0 }
    }

    /// When to stop. Default: never.
    #[must_use]
    pub fn with_end(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// What a wall clock shows at the driver's zero, in NTP seconds modulo 2^32; FDT instances expire by it.
    /// Default: 0.
    #[must_use]
    pub fn with_ntp_at_zero(mut self, seconds: u32) -> Self {
        self.ntp_at_zero = seconds;
        self
    }
}

/// What a sender tells its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// A pass over the session is complete: [`Sender::pass_symbols`] were sent since the last one.
    PassCompleted(u64),
    /// The content could not be read; the session was closed.
    SourceFailed(SourceError),
    /// The session was closed and nothing more will be sent.
    Finished,
}

/// What a sender has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets of any kind.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Symbols of content.
    pub symbols: u64,
    /// Packets of the FDT.
    pub fdt_packets: u64,
}

/// The sending end of a session.
///
/// Memory: 16 bytes a block for the order of sending, and the FDT.
#[derive(Debug)]
pub struct Sender<C, S> {
    config: SenderConfig,
    control: C,
    source: S,
    objects: Vec<ObjectHeader>,
    blocks: Vec<(u32, u32)>,
    carousel: Carousel,
    fdt: FdtSchedule,
    phase: Phase,
    /// Whether content could not be read: no more of it is sent.
    has_failed: bool,
    events: VecDeque<SenderEvent>,
    stats: SenderStats,
}

/// What the packets of an object have in common.
#[derive(Clone, Copy, Debug)]
struct ObjectHeader {
    toi: u128,
    codepoint: u8,
    symbol_bytes: usize,
    /// Without a code the last symbol travels without its padding (RFC 5445, section 3.1).
    short_last: bool,
    last_symbol: (PayloadId, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Sending,
    /// A last round of the FDT, whole, for receivers that came after the previous one.
    Describing {
        left: u64,
    },
    Closing {
        left: u8,
    },
    Finished,
}

/// When the FDT goes out, and what of it.
#[derive(Debug)]
struct FdtSchedule {
    instance: Instance,
    carousel: FdtCarousel,
    instance_id: u32,
    is_alone: bool,
    symbol_size: u16,
    next_round: Instant,
    renew: Instant,
    /// Packets of content since the last one of the FDT, up to [`FDT_CREDIT_PACKETS`].
    credit: u32,
    rounds: u64,
    round_began: Option<Instant>,
}

/// What the next packet is.
enum Next {
    Fdt,
    Symbol(Visit),
    Close,
}

impl<C: SenderControl, S: Source> Sender<C, S> {
    /// A sender of the planned files. `digests` holds the digests of each object's blocks.
    ///
    /// # Errors
    /// When the files are too many for one FDT.
    pub fn new(
        config: SenderConfig,
        plan: &SessionPlan,
        digests: &[Vec<Digest>],
        control: C,
        source: S,
    ) -> Result<Self, FdtTooLarge> {
        let mut blocks = Vec::new();
        let mut carousel = Vec::new();
        for (index, object) in (0..).zip(plan.objects()) {
            for sbn in 0..object.partition.blocks() {
                let symbols = object.partition.block(sbn).expect("below the number of blocks").symbols;
                blocks.push((index, sbn));
                let limit = source.encoding_symbols(index as usize, sbn);
                carousel.push(carousel_block(&*object.codec, symbols, limit));
            }
        }
        let symbol_size = plan.objects().first().map_or(1_024, |object| object.partition.symbol_size());
        // No packet is longer than one of content: what fits the path fits it always.
        let symbol_size = symbol_size.saturating_sub(FDT_HEADER_BYTES).max(FDT_SYMBOL_BYTES_MIN);
        let mut instance = plan.fdt(digests, expires(config, Instant::ZERO));
        instance.control = control.description();
        let fdt = FdtSchedule::new(instance, config.ntp_at_zero & FDT_INSTANCE_ID_MAX, symbol_size)?;
        let levels = usize::from(control.levels());
        Ok(Self {
            config,
            control,
            source,
            objects: plan.objects().iter().map(ObjectHeader::new).collect(),
            blocks,
            carousel: Carousel::new(carousel, levels, plan.order()),
            fdt,
            phase: Phase::Sending,
            has_failed: false,
            events: VecDeque::new(),
            stats: SenderStats::default(),
        })
    }

    /// Ends the session: it is described once more and closed with a few last packets.
    pub fn close(&mut self) {
        if self.phase == Phase::Sending {
            self.phase = Phase::Describing { left: self.fdt.carousel.symbols() };
        }
    }

    /// What was sent so far.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Symbols that one pass sends: the source symbols of the session, in window order with a share of repair.
    pub fn pass_symbols(&self) -> u64 {
        self.carousel.pass_symbols()
    }

    /// Whether the session is closed and all is sent.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// The congestion control.
    pub fn control(&self) -> &C {
        &self.control
    }

    fn ended(&self, now: Instant) -> bool {
        match self.config.end {
            End::Never => false,
            End::At(at) => at <= now,
            End::Passes(passes) if self.carousel.pass_symbols() == 0 => self.fdt.rounds >= passes,
            End::Passes(passes) => self.stats.symbols >= passes.saturating_mul(self.carousel.pass_symbols()),
        }
    }

    /// What to send in a departure; `None` when there is nothing to say now.
    fn next(&mut self, now: Instant, departure: &Departure) -> Option<Next> {
        if self.phase == Phase::Sending && self.ended(now) {
            self.close();
        }
        // What all receivers must hear goes where all of them listen.
        let is_base = departure.channel == ChannelId::BASE;
        match self.phase {
            Phase::Finished => None,
            Phase::Describing { .. } if is_base => Some(Next::Fdt),
            Phase::Closing { .. } if is_base => Some(Next::Close),
            Phase::Sending if is_base && self.fdt.is_due(now) => Some(Next::Fdt),
            _ if self.has_failed => None,
            _ => self.carousel.next(usize::from(departure.level)).map(Next::Symbol),
        }
    }

    fn write(
        &mut self,
        now: Instant,
        next: &Next,
        departure: &Departure,
        buffer: &mut [u8],
    ) -> Option<usize> {
        match next {
            Next::Fdt => Some(self.write_fdt(now, departure, buffer)),
            Next::Symbol(visit) => self.write_symbol(*visit, departure, buffer),
            Next::Close => Some(self.write_close(departure, buffer)),
        }
    }

    fn write_fdt(&mut self, now: Instant, departure: &Departure, buffer: &mut [u8]) -> usize {
        self.fdt.renew(now, self.config);
        let symbol = self.fdt.carousel.next();
        let header = fdt_header(self.config.tsi, departure, symbol.extension, symbol.fti, symbol.encoding)
            .with_payload_id(symbol.payload_id);
        let start = header.emit(buffer);
        buffer[start..start + symbol.payload.len()].copy_from_slice(symbol.payload);
        let (bytes, last) = (start + symbol.payload.len(), symbol.last);
        self.fdt.sent(now, last);
        self.stats.fdt_packets += 1;
        if let Phase::Describing { left } = &mut self.phase {
            *left -= 1;
            if *left == 0 {
                self.phase = Phase::Closing { left: CLOSE_PACKETS };
            }
        }
        bytes
    }

    fn write_symbol(&mut self, visit: Visit, departure: &Departure, buffer: &mut [u8]) -> Option<usize> {
        let bytes = match self.read_symbol(visit, departure, buffer) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.events.push_back(SenderEvent::SourceFailed(error));
                self.has_failed = true;
                self.close();
                return None;
            }
        };
        self.fdt.credit = (self.fdt.credit + 1).min(FDT_CREDIT_PACKETS);
        self.stats.symbols += 1;
        let pass = self.carousel.pass_symbols();
        if self.stats.symbols.is_multiple_of(pass) {
            self.events.push_back(SenderEvent::PassCompleted(self.stats.symbols / pass));
        }
        Some(bytes)
    }

    /// Writes a packet with the symbol of a visit, or a source symbol in its place while that is not made yet, and says
    /// how long the packet is.
    fn read_symbol(
        &mut self,
        visit: Visit,
        departure: &Departure,
        buffer: &mut [u8],
    ) -> Result<usize, SourceError> {
        let (object, sbn) = self.blocks[visit.block as usize];
        let index = object as usize;
        let is_ready = self.source.is_ready(index, sbn, visit.esi)?;
        let esi = if is_ready { visit.esi } else { visit.esi % self.carousel.block(visit.block).symbols };
        let header = self.objects[index];
        let payload_id = PayloadId { sbn, esi };
        let start = Header::new(self.config.tsi, Some(header.toi), header.codepoint, departure)
            .with_payload_id(payload_id)
            .emit(buffer);
        let symbol = &mut buffer[start..start + header.symbol_bytes];
        self.source.read_symbol(index, sbn, esi, symbol)?;
        Ok(start + header.payload_bytes(payload_id))
    }

    fn write_close(&mut self, departure: &Departure, buffer: &mut [u8]) -> usize {
        if let Phase::Closing { left } = &mut self.phase {
            *left -= 1;
            if *left == 0 {
                self.phase = Phase::Finished;
                self.events.push_back(SenderEvent::Finished);
            }
        }
        let mut header = Header::new(self.config.tsi, None, 0, departure);
        header.0.close_session = true;
        header.emit(buffer)
    }
}

impl<C: SenderControl, S: Source> Machine for Sender<C, S> {
    type Event = SenderEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => self.control.timeout(now),
            Input::Datagram(datagram) => self.control.feedback(now, &datagram),
        }
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<SenderEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Output::Event(event));
            }
            if let Some(transmit) = self.control.poll_transmit(now, buffer) {
                return Some(Output::Transmit(transmit));
            }
            let departure = self.control.departure(now)?;
            let Some(next) = self.next(now, &departure) else {
                if departure.channel == ChannelId::BASE || self.is_finished() {
                    return None;
                }
                // Without content the other channels are silent, and the base goes on.
                self.control.departed(now, 0);
                continue;
            };
            // Content that failed leaves an event behind and its departure to the packets that close the session.
            let Some(bytes) = self.write(now, &next, &departure, buffer) else { continue };
            self.control.departed(now, bytes);
            self.stats.packets += 1;
            self.stats.bytes += bytes as u64;
            let destination = Destination::Channel(departure.channel);
            return Some(Output::Transmit(Transmit { destination, bytes, ecn: departure.ecn }));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let departure = match self.phase {
            Phase::Finished => return None,
            // Without content there is nothing to send between two rounds of the FDT.
            Phase::Sending if self.carousel.pass_symbols() == 0 => {
                let next = match self.config.end {
                    End::At(at) => self.fdt.next_round.min(at),
                    End::Never | End::Passes(_) => self.fdt.next_round,
                };
                self.control.next_departure().map(|departure| departure.max(next))
            }
            _ => self.control.next_departure(),
        };
        departure.into_iter().chain(self.control.poll_timeout()).min()
    }
}

/// A block of k source symbols whose source has `limit` encoding symbols of it, or all that the code gives.
fn carousel_block(codec: &dyn BlockCodec, k: u32, limit: Option<u32>) -> CarouselBlock {
    let n = codec.encoding_symbols(k);
    CarouselBlock {
        symbols: k,
        encoding_symbols: limit.map_or(n, |limit| limit.clamp(k, n)),
        rateless: codec.is_rateless() && limit.is_none(),
    }
}

impl ObjectHeader {
    fn new(object: &super::plan::PlannedObject) -> Self {
        let partition = object.partition;
        let size = usize::from(partition.symbol_size());
        let last = partition.blocks().checked_sub(1).and_then(|sbn| partition.block(sbn));
        let last_symbol = last.map_or((PayloadId { sbn: 0, esi: 0 }, size), |block| {
            let esi = block.symbols - 1;
            let bytes = block.bytes - u64::from(esi) * size as u64;
            (PayloadId { sbn: block.sbn, esi }, usize::try_from(bytes).expect("no longer than a symbol"))
        });
        Self {
            toi: object.toi,
            codepoint: object.fti.encoding_id().codepoint(),
            symbol_bytes: size,
            short_last: matches!(object.fti, Fti::NoCode { .. }),
            last_symbol,
        }
    }

    fn payload_bytes(&self, id: PayloadId) -> usize {
        let (last, bytes) = self.last_symbol;
        if self.short_last && id == last { bytes } else { self.symbol_bytes }
    }
}

impl FdtSchedule {
    /// `instance_id` is the first one. An instance may not be numbered like one of an earlier session that receivers may
    /// still know, so it goes with the time of day.
    fn new(instance: Instance, instance_id: u32, symbol_size: u16) -> Result<Self, FdtTooLarge> {
        Ok(Self {
            // Alone: there is no content to share the channel with.
            is_alone: instance.files.iter().all(|file| file.transfer_length.unwrap_or(0) == 0),
            carousel: FdtCarousel::new(&instance, instance_id, symbol_size)?,
            instance,
            instance_id,
            symbol_size,
            next_round: Instant::ZERO,
            renew: Instant::ZERO + Duration::from_nanos(FDT_LIFETIME.as_nanos() / 2),
            credit: 0,
            rounds: 0,
            round_began: None,
        })
    }

    fn is_due(&self, now: Instant) -> bool {
        // The first round comes whole and before all else; later ones take their share of the packets.
        self.next_round <= now && (self.rounds == 0 || self.credit >= FDT_CREDIT_PACKETS || self.is_alone)
    }

    fn sent(&mut self, now: Instant, last: bool) {
        self.credit = 0;
        let began = *self.round_began.get_or_insert(now);
        if last {
            self.rounds += 1;
            self.round_began = None;
            self.next_round = began + FDT_INTERVAL;
        }
    }

    /// Between two rounds: a new instance, with a new time of expiry, when the old one has had half of its life.
    fn renew(&mut self, now: Instant, config: SenderConfig) {
        if now < self.renew || self.round_began.is_some() {
            return;
        }
        self.renew = now + Duration::from_nanos(FDT_LIFETIME.as_nanos() / 2);
        self.instance.expires = expires(config, now);
        self.instance_id = (self.instance_id + 1) & FDT_INSTANCE_ID_MAX;
        if let Ok(carousel) = FdtCarousel::new(&self.instance, self.instance_id, self.symbol_size) {
            self.carousel = carousel;
        }
    }
}

fn expires(config: SenderConfig, now: Instant) -> u32 {
    let seconds =
        now.since(Instant::ZERO).as_nanos() / 1_000_000_000 + FDT_LIFETIME.as_nanos() / 1_000_000_000;
    // NTP's era wraps in 2036; receivers compare modulo 2^32.
    config.ntp_at_zero.wrapping_add(u32::try_from(seconds & u64::from(u32::MAX)).expect("32 bits are left"))
}

/// A header under construction.
struct Header(alc::Repr);

impl Header {
    fn new(tsi: u32, toi: Option<u128>, codepoint: u8, departure: &Departure) -> Self {
        Self(alc::Repr {
            tsi: tsi.into(),
            toi,
            close_session: false,
            close_object: false,
            psi: 0,
            codepoint,
            cci: departure.cci,
            extensions: Extensions::default(),
            payload_id: None,
        })
    }

    fn with_payload_id(mut self, id: PayloadId) -> Self {
        self.0.payload_id = Some(id);
        self
    }

    fn emit(&self, buffer: &mut [u8]) -> usize {
        self.0.emit(buffer).expect("the plan numbers blocks and objects so that every field holds them")
    }
}

fn fdt_header(
    tsi: u32,
    departure: &Departure,
    fdt: FdtExtension,
    fti: Fti,
    content_encoding: Option<ContentEncoding>,
) -> Header {
    let mut header = Header::new(tsi, Some(0), fti.encoding_id().codepoint(), departure);
    header.0.extensions =
        Extensions { fdt: Some(fdt), fti: Some(fti), content_encoding, ..Extensions::default() };
    header
}
