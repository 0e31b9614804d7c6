//! Sender of a session: the symbols of its files in carousel order, with the FDT in between, at the rate of a
//! congestion control.

mod departures;
pub(crate) mod description;
pub(crate) mod farewell;
pub(crate) mod header;
mod inventory;
mod parts;
pub(in crate::delivery) mod roster;

use std::collections::{BTreeSet, VecDeque};

use headwater_wire::PayloadId;
use headwater_wire::extensions::FDT_INSTANCE_ID_MAX;
use headwater_wire::fdt::{PEERS_MAX, Withdrawal};

use self::description::{Description, Due, expires};
use self::farewell::{Farewell, Word};
use self::header::{Header, ObjectHeader, SessionHeader, write_fdt};
use self::inventory::Content;
use self::inventory::Inventory;
use self::parts::{StreamParts, carousel_block};
use self::roster::SessionRoster;
use super::carousel::{Place, Start, Visit, stand_in};
use super::fdt::FdtTooLarge;
use super::object::Digest;
use super::plan::{Orders, SessionPlan};
use super::store::{Source, SourceError};
use crate::auth::{AuthPacket, MANIFEST_BYTES_MAX, PublicKey, Signing, SigningLine};
use crate::control::{Departure, Request, Responder, SenderControl};
use crate::crypt::Encryption;
use crate::layering::{Layering, SentLevels};
use crate::machine::{ChannelId, Input, Machine, Output};
use crate::rng::Seed;
use crate::roster::RosterUpdate;
use crate::time::{Duration, Instant};

/// Time for which a session that is sent on request answers requests with a packet that closes the session.
/// Most receivers request again within this time, and each relay on the path caches an answer for a second.
const DISMISSAL: Duration = Duration::from_secs(4);

/// Condition under which a sender stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Never.
    Never,
    /// After a number of passes over the session: a pass sends as many symbols as the content has, plus a
    /// share of repair symbols in window order.
    Passes(u64),
    /// At an instant.
    At(Instant),
}

/// Configuration of a sender.
#[derive(Clone, Copy, Debug)]
pub struct DeliverySenderConfig {
    tsi: u32,
    end: End,
    ntp_at_zero: u32,
    start: Start,
    next_key: Option<PublicKey>,
}

impl DeliverySenderConfig {
    /// Returns the configuration of a session with transport session identifier `tsi` that is sent until
    /// stopped. The header is shortest for a `tsi` below 2^16.
    pub fn new(tsi: u32) -> Self {
        Self { tsi, end: End::Never, ntp_at_zero: 0, start: Start::First, next_key: None }
    }

    /// Sets the condition to stop. Default: never.
    #[must_use]
    pub fn with_end(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Sets the place in the order of sending at which the session begins. Default: the first source symbols.
    /// A sender that may have sent the same content before draws a place, so that receivers that resume get
    /// few duplicates. A session of one pass always begins with the first source symbols.
    #[must_use]
    pub fn with_start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Announces the key that will sign later sessions of the sender. Default: none.
    #[must_use]
    pub fn with_next_key(mut self, next_key: Option<PublicKey>) -> Self {
        self.next_key = next_key;
        self
    }

    /// Sets the wall-clock time at the driver's zero, in NTP seconds modulo 2^32, from which FDT instances
    /// expire. Default: 0.
    #[must_use]
    pub fn with_ntp_at_zero(mut self, seconds: u32) -> Self {
        self.ntp_at_zero = seconds;
        self
    }
}

/// Event of a sender for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// A pass over the session is complete: the sender has sent [`DeliverySender::pass_symbols`] symbols
    /// since the previous pass.
    PassCompleted(u64),
    /// A file changed or could not be read. The sender withdraws the file and continues with the rest.
    FileWithdrawn {
        /// Index of the file in the session's plan.
        file: usize,
        /// Reason for the withdrawal.
        error: SourceError,
    },
    /// No content is left to send, or the content could not be coded. The session is closed.
    SourceFailed(SourceError),
    /// A receiver reported. Only a sender with a roster has this event.
    Reported(Box<RosterUpdate>),
    /// The session is closed and the sender sends nothing more.
    Finished,
}

/// Counters of a sender.
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

/// Sender of a session.
///
/// Memory, without the roster: 28 bytes a block for the order of sending, 48 over several levels, 32 a block
/// while not all digests of the block's file are known, the FDT, and for LDPC 4 bytes a symbol for each
/// distinct block length. On request, by a code that is not rateless, 28 bytes a block for each of up to 64
/// receivers.
#[derive(Debug)]
pub struct DeliverySender<C, S> {
    config: DeliverySenderConfig,
    control: C,
    source: S,
    objects: Vec<ObjectHeader>,
    blocks: Vec<(u32, u32)>,
    /// Blocks that are holes, and are not sent.
    holes: BTreeSet<u32>,
    orders: Orders,
    content: Content,
    inventory: Inventory,
    /// Symbols of content that count towards passes, without the symbols of withdrawn files.
    symbols_of_passes: u64,
    /// Whether the content starts at a different place than an earlier session's, which receivers may have
    /// received. True from the beginning if the start is drawn.
    has_skipped: bool,
    fdt: Description,
    phase: Phase,
    events: VecDeque<SenderEvent>,
    signing: Option<Box<SigningLine>>,
    encryption: Option<Box<Encryption>>,
    roster: Option<Box<SessionRoster>>,
    parts: Option<Box<StreamParts>>,
    /// Whether repair servers answer with digests as entity tags.
    has_etags: bool,
    /// Whether the content waits for receivers.
    is_held: bool,
    /// Whether the end has not been reported yet.
    has_finished: bool,
    stats: SenderStats,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Sending,
    /// The session closes as soon as the FDT holds everything known of the content.
    Ending,
    Closing(Farewell),
    /// Until the given instant, the sender answers requests with a packet that closes the session.
    Dismissing(Option<Instant>),
    Finished,
}

/// Use of a departure.
enum Next {
    Fdt,
    /// A requested symbol of the FDT.
    Description(u64),
    Symbol(Visit),
    Farewell(Word),
    /// A packet of the session's authentication.
    Auth(AuthPacket),
    /// Skip the departure: this channel has nothing to send, another channel may have.
    Pass,
    /// Keep the departure until there is something to send.
    Wait,
}

impl<C: SenderControl, S: Source> DeliverySender<C, S> {
    /// Creates a sender of the planned files. `digests` holds, for each object, the digests of all blocks or
    /// of the first blocks; [`DeliverySender::add_digests`] adds the rest.
    ///
    /// # Errors
    /// When one FDT cannot describe all files.
    ///
    /// # Panics
    /// When `digests` does not have the shape of the plan.
    pub fn new(
        config: DeliverySenderConfig,
        plan: &SessionPlan,
        digests: &[Vec<Digest>],
        control: C,
        source: S,
    ) -> Result<Self, FdtTooLarge> {
        let mut blocks = Vec::new();
        let mut of_content = Vec::new();
        let mut orders = Orders::default();
        // A single pass sends as many symbols as the content has: in ESI order, exactly the source symbols.
        let is_shuffled = !matches!(config.end, End::Passes(0 | 1));
        let start = if is_shuffled { config.start } else { Start::First };
        for (index, object) in (0..).zip(plan.objects()) {
            for sbn in 0..object.partition.blocks() {
                let symbols = object.partition.block(sbn).expect("below the number of blocks").symbols;
                blocks.push((index, sbn));
                let limit = source.encoding_symbols(index as usize, sbn);
                let block = carousel_block(&*object.codec, symbols, limit);
                orders.push(&*object.codec, block.encoding_symbols, is_shuffled);
                of_content.push(block);
            }
        }
        let symbol_size = plan.objects().first().map_or(1_024, |object| object.partition.symbol_size());
        let mut instance = plan.fdt(digests, expires(config, Instant::ZERO));
        instance.control = control.description();
        instance.next_key = config.next_key;
        let first_id = config.ntp_at_zero & FDT_INSTANCE_ID_MAX;
        let blocks_known: usize = digests.iter().map(Vec::len).sum();
        let digests_missing = (blocks.len() - blocks_known) as u64;
        let fdt = Description::new(instance, first_id, symbol_size, control.levels(), digests_missing)?;
        let holes = inventory::holes(&source, &blocks);
        let mut content = match control.responder().is_some() {
            true => Content::requested(of_content, Seed(config.tsi.into()).stream("turns", 0), start),
            false => Content::new(of_content, control.layering().is_some(), plan.order(), start),
        };
        if !holes.is_empty() {
            content.retain(|block| !holes.contains(&block));
        }
        Ok(Self {
            config,
            control,
            source,
            holes,
            objects: plan.objects().iter().map(ObjectHeader::new).collect(),
            blocks,
            orders,
            content,
            inventory: Inventory::new(plan, digests),
            symbols_of_passes: 0,
            fdt,
            has_skipped: start != Start::First,
            phase: Phase::Sending,
            events: VecDeque::new(),
            signing: None,
            encryption: None,
            roster: None,
            parts: None,
            has_etags: plan.repair().is_some_and(|repair| repair.has_etags),
            is_held: false,
            has_finished: false,
            stats: SenderStats::default(),
        })
    }

    /// Signs or lists each packet ([`crate::auth`]). Symbols must leave room for
    /// [`signed_bytes`](crate::auth::signed_bytes) more in each packet. Default: unsigned.
    #[must_use]
    pub fn with_signing(mut self, signing: Option<Signing>) -> Self {
        // A manifest is not longer than a packet of content.
        let is_long = self.objects.iter().any(|object| object.symbol_bytes >= MANIFEST_BYTES_MAX);
        let lead = if is_long { self.control.lead() } else { Duration::ZERO };
        let channels = self.control.channels();
        self.signing = signing.map(|signing| Box::new(SigningLine::new(signing, channels, lead)));
        self
    }

    /// Encrypts the content and the FDT ([`crate::crypt`]). Symbols must leave room for
    /// [`ENCRYPTED_BYTES`](crate::crypt::ENCRYPTED_BYTES) more in each packet. Default: in the clear.
    #[must_use]
    pub fn with_encryption(mut self, encryption: Option<Encryption>) -> Self {
        self.encryption = encryption.map(Box::new);
        self
    }

    /// Adds the digests of an object's next blocks. The next FDT instance carries the new digests.
    ///
    /// # Panics
    /// When the object has fewer blocks.
    pub fn add_digests(&mut self, object: usize, digests: &[Digest]) {
        if self.inventory.is_withdrawn(object) {
            return;
        }
        self.fdt.add_digests(object, digests);
        if let Some(digest) = self.inventory.add(object, digests) {
            let objects = self.inventory.objects_beside(object);
            self.fdt.set_digest(objects, digest, self.has_etags);
        }
        self.fdt.set_complete(self.inventory.is_complete());
        self.update_content();
    }

    /// Names the base URLs of receivers that serve the files, in place of those named before; at most
    /// [`PEERS_MAX`](headwater_wire::fdt::PEERS_MAX). `offset` and `random` spread the requests of receivers
    /// in a session that names no other servers.
    pub fn name_peers(&mut self, urls: Vec<String>, offset: Duration, random: Duration) {
        debug_assert!(urls.len() <= PEERS_MAX, "receivers skip further peers");
        if self.phase == Phase::Sending {
            self.fdt.name_peers(urls, offset, random);
        }
    }

    /// Stops sending a file and announces the withdrawal. The session continues with the remaining files, or
    /// closes if no file remains.
    pub fn withdraw(&mut self, file: usize, why: Withdrawal, error: SourceError) {
        if self.phase != Phase::Sending || !self.inventory.withdraw(file) {
            return;
        }
        // A stream has no use without one of its parts.
        if self.parts.is_some() {
            return self.fail(error);
        }
        self.fdt.withdraw(self.inventory.objects(file), why);
        self.fdt.set_complete(self.inventory.is_complete());
        self.update_content();
        let Self { content, inventory, blocks, holes, .. } = self;
        let is_live = |block: u32| !inventory.is_withdrawn(blocks[block as usize].0 as usize);
        let sent = content.retain(|block| is_live(block) && !holes.contains(&block));
        self.symbols_of_passes = self.symbols_of_passes.saturating_sub(sent);
        if self.inventory.is_empty() {
            self.fail(error);
        } else {
            self.events.push_back(SenderEvent::FileWithdrawn { file, error });
        }
    }

    /// Closes the session because the content cannot be sent.
    pub fn fail(&mut self, error: SourceError) {
        if self.phase != Phase::Sending {
            return;
        }
        self.events.push_back(SenderEvent::SourceFailed(error));
        self.close();
    }

    /// Closes the session: each channel sends the FDT once more, for at most a second, and then a few packets
    /// that close the session. The session is over when the base channel has sent these packets, at the
    /// latest after 2 s. A session that is sent on request is over after 4 s, in which each request is
    /// answered with a packet that closes the session.
    pub fn close(&mut self) {
        if self.phase == Phase::Sending {
            self.phase = match self.control.responder().is_some() {
                true => Phase::Dismissing(None),
                false => Phase::Ending,
            };
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Number of symbols in a pass: the source symbols of the session, plus a share of repair symbols in
    /// window order.
    pub fn pass_symbols(&self) -> u64 {
        self.parts.as_ref().map_or_else(|| self.content.pass_symbols(), |parts| parts.symbols())
    }

    /// Returns the number of the FDT's newest instance, and whether the instance holds all digests. Either
    /// changes with each change of the FDT that is worth telling elsewhere.
    pub fn fdt_revision(&self) -> (u32, bool) {
        self.fdt.revision()
    }

    /// Returns everything known of the session as an FDT instance in XML.
    pub fn fdt_xml(&self) -> String {
        self.fdt.to_xml()
    }

    /// Whether the session is closed and all packets are sent.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished && self.signing.as_ref().is_none_or(|line| line.is_empty())
    }

    /// Returns the congestion control.
    pub fn control(&self) -> &C {
        &self.control
    }

    fn ended(&self, now: Instant) -> bool {
        match self.config.end {
            _ if self.awaits_parts() => false,
            End::Never => false,
            End::At(at) => at <= now,
            End::Passes(passes) if self.pass_symbols() == 0 => self.fdt.rounds() >= passes,
            // A receiver that has every symbol still needs all digests to verify the content.
            End::Passes(_) => self.has_sent_passes() && self.fdt.is_told() && self.inventory.is_complete(),
        }
    }

    /// Whether all configured passes are sent.
    fn has_sent_passes(&self) -> bool {
        let pass = self.pass_symbols();
        let is_open = self.awaits_parts();
        matches!(self.config.end, End::Passes(passes) if !is_open && pass > 0 && self.symbols_of_passes >= passes.saturating_mul(pass))
    }

    /// Whether only the FDT is left to send, in rounds: a layering sends on in its schedule.
    fn is_without_content(&self) -> bool {
        let is_waiting = self.is_held && self.control.layering().is_none();
        self.phase == Phase::Sending
            && (self.content.pass_symbols() == 0 || self.has_sent_passes() || is_waiting)
    }

    /// Changes the phase if a deadline or end condition is met.
    fn settle(&mut self, now: Instant) {
        if self.phase == Phase::Sending {
            self.fdt.refresh(now, self.config);
            self.turn_parts();
            if self.ended(now) {
                self.close();
            }
        }
        if self.phase == Phase::Ending {
            self.fdt.bring_up_to_date(now, self.config);
            if let Some(line) = &mut self.signing {
                line.end_manifests();
            }
            self.phase = Phase::Closing(Farewell::new(self.control.channels(), self.fdt.symbols()));
        }
        let is_over = match &mut self.phase {
            Phase::Dismissing(until) => *until.get_or_insert(now + DISMISSAL) <= now,
            Phase::Closing(farewell) => farewell.is_over(now),
            Phase::Sending | Phase::Ending | Phase::Finished => false,
        };
        if is_over {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Finished;
        self.has_finished = true;
    }

    /// Chooses the content of a departure.
    fn next(&mut self, now: Instant, departure: &Departure) -> Next {
        let has_sent_passes = self.has_sent_passes();
        match &mut self.phase {
            Phase::Finished | Phase::Ending => Next::Wait,
            Phase::Sending if self.is_held && self.control.layering().is_some() => {
                if departure.channel == ChannelId::BASE { Next::Fdt } else { Next::Pass }
            }
            // While digests are missing after the last pass, only the FDT is left to send.
            Phase::Sending if has_sent_passes || self.is_held => match self.fdt.next_round() <= now {
                true => Next::Fdt,
                false => Next::Wait,
            },
            Phase::Dismissing(_) => Next::Farewell(Word::Close),
            Phase::Closing(farewell) => match farewell.next(now, departure.channel) {
                Word::Silence => Next::Pass,
                word => Next::Farewell(word),
            },
            Phase::Sending => {
                if let Some(request) = self.request() {
                    return self.answer(&request);
                }
                let layering = SentLevels::of(self.control.layering(), departure.levels);
                let layering = layering.as_ref().map(|sent| sent as &dyn Layering);
                let turn = self.content.turn(layering, departure);
                let epoch = layering.and_then(|layering| layering.epoch(departure.at));
                match self.fdt.due(now, departure.level, epoch) {
                    Due::Now => return Next::Fdt,
                    Due::Soon if self.content.can_spare(turn) => return Next::Fdt,
                    Due::Soon | Due::No => {}
                }
                match self.content.next(turn) {
                    Some(visit) => Next::Symbol(visit),
                    None if departure.channel == ChannelId::BASE => Next::Wait,
                    None => Next::Pass,
                }
            }
        }
    }

    /// Returns the place of a departure in the buffer, also for a departure without content.
    fn turn(&mut self, departure: &Departure) -> Option<Place> {
        let layering = SentLevels::of(self.control.layering(), departure.levels);
        let layering = layering.as_ref().map(|sent| sent as &dyn Layering);
        self.content.turn(layering, departure)
    }

    /// Returns the request that the due departure answers.
    fn request(&self) -> Option<Request> {
        self.control.responder().and_then(Responder::request)
    }

    /// Chooses the answer to a request.
    fn answer(&mut self, request: &Request) -> Next {
        // Skips once, and only at the start of the session: any receiver can set this flag.
        if request.follows_another && !self.has_skipped && self.stats.symbols < self.content.pass_symbols() {
            self.has_skipped = true;
            self.content.skip();
        }
        match request.description.filter(|number| *number < self.fdt.symbols()) {
            Some(number) => Next::Description(number),
            // Receivers request the FDT instance announced first; a new instance is sent without a request.
            None if self.fdt.has_news() => Next::Fdt,
            // A session without content sends only the FDT.
            None => self.content_for(request),
        }
    }

    /// Writes the packet. Returns `None` if the content could not be read.
    fn write(
        &mut self,
        now: Instant,
        next: &Next,
        departure: &Departure,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let session = self.session_header(now, departure);
        match next {
            Next::Fdt => {
                self.stats.fdt_packets += 1;
                let symbol = self.fdt.send(now, departure.level);
                Some(write_fdt(session, departure, &symbol, buffer))
            }
            Next::Description(number) => {
                self.stats.fdt_packets += 1;
                let symbol = self.fdt.symbol(*number);
                Some(write_fdt(session, departure, &symbol, buffer))
            }
            Next::Symbol(visit) => self.write_symbol(*visit, session, departure, buffer),
            Next::Farewell(word) => Some(self.write_farewell(*word, session, departure, buffer)),
            Next::Auth(packet) => Some(self.write_auth(*packet, session, departure, buffer)),
            Next::Pass | Next::Wait => None,
        }
    }

    fn write_symbol(
        &mut self,
        visit: Visit,
        session: SessionHeader,
        departure: &Departure,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let bytes = match self.read_symbol(visit, session, departure, buffer) {
            Ok(bytes) => bytes,
            Err(SourceError::File { file, why, message }) => {
                // The order of sending counts the symbol as sent.
                self.symbols_of_passes += 1;
                self.withdraw(file, why, SourceError::File { file, why, message });
                return None;
            }
            Err(error) => {
                self.fail(error);
                return None;
            }
        };
        self.fdt.content_sent(departure.level);
        self.stats.symbols += 1;
        self.symbols_of_passes += 1;
        self.count_part_symbol();
        let pass = self.pass_symbols();
        if !self.awaits_parts() && self.symbols_of_passes.is_multiple_of(pass) {
            self.events.push_back(SenderEvent::PassCompleted(self.symbols_of_passes / pass));
        }
        Some(bytes)
    }

    /// Writes a packet with the symbol of a visit and returns the length of the packet. If a repair symbol is
    /// not ready, the packet carries a source symbol of the same block instead.
    fn read_symbol(
        &mut self,
        visit: Visit,
        session: SessionHeader,
        departure: &Departure,
        buffer: &mut [u8],
    ) -> Result<usize, SourceError> {
        let (object, sbn) = self.blocks[visit.block as usize];
        let index = object as usize;
        let esi = self.orders.esi(visit.block, visit.esi);
        let is_ready = self.source.is_ready(index, sbn, esi)?;
        let esi = if is_ready { esi } else { stand_in(esi, self.content.block(visit.block).symbols) };
        let header = self.objects[index];
        let payload_id = PayloadId { sbn, esi };
        let start = Header::new(session, Some(header.toi), header.codepoint, departure)
            .with_payload_id(payload_id)
            .emit(buffer);
        let symbol = &mut buffer[start..start + header.symbol_bytes];
        self.source.read_symbol(index, sbn, esi, symbol)?;
        Ok(start + header.payload_bytes(payload_id))
    }

    fn write_farewell(
        &mut self,
        word: Word,
        session: SessionHeader,
        departure: &Departure,
        buffer: &mut [u8],
    ) -> usize {
        match word {
            Word::Describe(number) => {
                self.stats.fdt_packets += 1;
                write_fdt(session, departure, &self.fdt.symbol(number), buffer)
            }
            Word::Close | Word::Silence => {
                let bytes = Header::closing(session, departure).emit(buffer);
                // A short session may be over before a receiver has the key.
                self.signing.as_ref().map_or(bytes, |line| line.insert_key(buffer, bytes))
            }
        }
    }
}

impl<C: SenderControl, S: Source> DeliverySender<C, S> {
    /// Returns when the phase or the control needs a poll, in the time of the control.
    fn control_timeout(&self) -> Option<Instant> {
        let departure = match &self.phase {
            Phase::Finished => return None,
            // Waiting receivers get an answer, too.
            Phase::Dismissing(until) => {
                let until = until.unwrap_or(Instant::ZERO);
                Some(self.control.next_departure().map_or(until, |next| next.min(until)))
            }
            Phase::Sending if self.control.responder().is_some() => {
                let end = match self.config.end {
                    End::At(at) => Some(at),
                    End::Never | End::Passes(_) => None,
                };
                self.control.next_departure().into_iter().chain(end).min()
            }
            // Without content there is nothing to send between two rounds of the FDT.
            Phase::Sending if self.is_without_content() => {
                let rounds = [Some(self.fdt.next_round()), self.fdt.next_parts()];
                let round = rounds.into_iter().flatten().min()?;
                let next = match self.config.end {
                    End::At(at) => round.min(at),
                    End::Never | End::Passes(_) => round,
                };
                self.control.next_departure().map(|departure| departure.max(next))
            }
            Phase::Closing(farewell) => {
                self.control.next_departure().into_iter().chain(farewell.deadline()).min()
            }
            Phase::Sending | Phase::Ending => self.control.next_departure(),
        };
        departure.into_iter().chain(self.control.poll_timeout()).min()
    }
}

impl<C: SenderControl, S: Source> Machine for DeliverySender<C, S> {
    type Event = SenderEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        let time = self.control_time(now);
        match input {
            Input::Timeout => {
                if let Some(roster) = &mut self.roster {
                    roster.sender.on_timeout(now);
                    self.control.set_packets_needed(time, roster.sender.needs_packets());
                }
                self.control.timeout(time);
            }
            Input::Datagram(datagram) if self.on_report(now, time, &datagram) => {}
            Input::Datagram(datagram) => self.control.feedback(time, &datagram),
            Input::Routed(..) => {}
        }
    }

    fn on_full_link(&mut self, packets_per_second: f64) {
        self.control.on_full_link(packets_per_second);
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<SenderEvent>> {
        self.next_output(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.real_timeout(self.control_timeout())
    }

    fn slack(&self) -> Duration {
        if self.phase == Phase::Sending { self.control.slack() } else { Duration::ZERO }
    }
}
