//! The sending end: sends buffers by the sequencer, interleaved with the FDT, at the rate of a congestion
//! control.

use std::collections::VecDeque;

use headwater_wire::auth::KEY_BYTES;
use headwater_wire::extensions::{FDT_INSTANCE_ID_MAX, Seq};
use headwater_wire::fdt::{File, Instance};
use headwater_wire::{Fti, PayloadId};

use super::{ENCODING, TOI};
use crate::auth::{Signing, SigningLine};
use crate::control::{Departure, SenderControl};
use crate::crypt::Encryption;
use crate::delivery::DeliverySenderConfig as SessionConfig;
use crate::delivery::FdtTooLarge;
use crate::delivery::sender::description::{Description, Due, expires};
use crate::delivery::sender::farewell::{Farewell, Word};
use crate::delivery::sender::header::{Header, write_fdt};
use crate::layering::sequencer::{Buffer, Load, Order, Reserve, Sequencer, Submission, SubmitError};
use crate::layering::spacing::Spacing;
use crate::layering::{Layering, SentLevels};
use crate::machine::{DATAGRAM_BYTES_MAX, Destination, Input, Machine, Output, Transmit};
use crate::time::{Duration, Instant};

/// Headers of a part: LCT with long identifiers, CCI, EXT_SEQ, EXT_FTI, FEC payload id, and room to grow.
const HEADER_BYTES_MAX: u16 = 92;
/// Maximum part of a buffer, in bytes: the maximum datagram without the headers.
#[expect(clippy::cast_possible_truncation, reason = "a datagram is below 2^16 bytes")]
pub const PART_BYTES_MAX: u16 = DATAGRAM_BYTES_MAX as u16 - HEADER_BYTES_MAX;
/// Minimum interval of description packets: at most one base packet in this number carries the session's
/// description.
const RESERVE_MIN: u64 = 4;

/// Configuration of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    session: SessionConfig,
    tsi: u32,
    part_bytes: u16,
    order: Order,
}

impl SenderConfig {
    /// Returns the configuration of a session with transport session identifier `tsi`, whose packets carry
    /// `part_bytes` of a buffer, from 1 to [`PART_BYTES_MAX`].
    pub fn new(tsi: u32, part_bytes: u16) -> Self {
        let part_bytes = part_bytes.clamp(1, PART_BYTES_MAX);
        Self { session: SessionConfig::new(tsi), tsi, part_bytes, order: Order::Tiles }
    }

    /// Sets the order in which packets take parts of a buffer. Default: by tiles.
    #[must_use]
    pub fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the wall-clock time at the driver's zero, in NTP seconds modulo 2^32, used for the expiry of FDT
    /// instances. Default: 0.
    #[must_use]
    pub fn with_ntp_at_zero(mut self, seconds: u32) -> Self {
        self.session = self.session.with_ntp_at_zero(seconds);
        self
    }
}

/// Event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The buffer with this number has begun: the next buffer can be submitted.
    Begun(u16),
    /// The session was closed, and nothing more will be sent.
    Finished,
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets of any kind.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Buffers begun.
    pub buffers: u64,
    /// Packets with parts of buffers.
    pub parts: u64,
    /// Packets with parts that had been sent before.
    pub repeats: u64,
    /// Packets of the FDT.
    pub fdt_packets: u64,
}

/// The sending end of a session of buffers, silent until the first buffer is submitted.
///
/// Memory: the [`Sequencer`]'s, and the FDT.
#[derive(Debug)]
pub struct Sender<C> {
    config: SenderConfig,
    control: C,
    sequencer: Sequencer,
    fdt: Description,
    phase: Phase,
    begun: Option<u16>,
    /// Whether the control gave up overdue packets.
    has_skipped: bool,
    events: VecDeque<SenderEvent>,
    signing: Option<Box<SigningLine>>,
    /// Whether the public key takes the next packet of the description.
    is_key_next: bool,
    encryption: Option<Box<Encryption>>,
    stats: SenderStats,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Sending,
    /// Sending until the time of the last buffer is over.
    Ending,
    Closing(Farewell),
    Finished,
}

impl<C: SenderControl> Sender<C> {
    /// Returns a sender without a buffer.
    ///
    /// # Errors
    /// Returns an error if the control's description is too long for an FDT.
    pub fn new(config: SenderConfig, control: C) -> Result<Self, FdtTooLarge> {
        let instance = Instance {
            expires: expires(config.session, Instant::ZERO),
            complete: true,
            control: control.description(),
            files: vec![File {
                toi: TOI,
                content_location: ENCODING.to_owned(),
                content_encoding: Some(ENCODING.to_owned()),
                ..File::default()
            }],
            ..Instance::default()
        };
        let first_id = expires(config.session, Instant::ZERO) & FDT_INSTANCE_ID_MAX;
        let fdt = Description::new(instance, first_id, config.part_bytes, control.levels(), 0)?;
        let reserve = control.layering().map(|layering| reserve(layering, fdt.symbols()));
        Ok(Self {
            config,
            control,
            sequencer: Sequencer::new(config.part_bytes, config.order).with_reserve(reserve),
            fdt,
            phase: Phase::Sending,
            begun: None,
            has_skipped: false,
            events: VecDeque::new(),
            signing: None,
            is_key_next: false,
            encryption: None,
            stats: SenderStats::default(),
        })
    }

    /// Signs each packet ([`crate::auth`]). Parts must leave room for
    /// [`signed_bytes`](crate::auth::signed_bytes) more in each packet. Live content is not there before its
    /// departure, so that no manifest can list a packet ahead. Default: unsigned.
    #[must_use]
    pub fn with_signing(mut self, signing: Option<Signing>) -> Self {
        let channels = self.control.channels();
        self.signing = signing.map(|signing| Box::new(SigningLine::new(signing, channels, Duration::ZERO)));
        self
    }

    /// Encrypts the content and the FDT ([`crate::crypt`]). Parts must leave room for
    /// [`ENCRYPTED_BYTES`](crate::crypt::ENCRYPTED_BYTES) more in each packet. Default: in the clear.
    #[must_use]
    pub fn with_encryption(mut self, encryption: Option<Encryption>) -> Self {
        self.encryption = encryption.map(Box::new);
        self
    }

    /// Whether the next buffer can be submitted.
    pub fn wants(&self) -> bool {
        self.phase == Phase::Sending && self.sequencer.wants()
    }

    /// Queues the next buffer, which begins when the current buffer's time is over.
    ///
    /// # Errors
    /// Returns an error if the buffer is invalid, the queue is full, or the session is over.
    pub fn submit(&mut self, submission: Submission) -> Result<(), SubmitError> {
        if self.phase == Phase::Sending { self.sequencer.submit(submission) } else { Err(SubmitError::Full) }
    }

    /// Ends the session when the time of the last buffer is over.
    pub fn end(&mut self) {
        if self.phase == Phase::Sending {
            self.phase = Phase::Ending;
        }
        if self.sequencer.is_idle() {
            self.close();
        }
    }

    /// Ends the session now: sends the description once more and closes every channel. The session is over
    /// when the base channel has sent these packets.
    pub fn close(&mut self) {
        if matches!(self.phase, Phase::Sending | Phase::Ending) {
            self.phase = Phase::Closing(Farewell::new(self.control.channels(), self.fdt.symbols()));
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Whether the session is closed and all packets are sent.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// The congestion control.
    pub fn control(&self) -> &C {
        &self.control
    }

    /// Writes the packet of a departure and returns the length; 0 if the channel has nothing to send.
    fn write(&mut self, now: Instant, departure: &Departure, buffer: &mut [u8]) -> usize {
        let Self { config, control, sequencer, fdt, stats, .. } = self;
        let layering = SentLevels::of(control.layering(), departure.levels);
        let layering = layering.as_ref().map(|sent| sent as &dyn Layering);
        if core::mem::take(&mut self.has_skipped) {
            sequencer.skip_to(layering, departure.at);
        }
        // Without layers no packet is reserved, so the FDT is interleaved as in a file session.
        let is_described = layering.is_none() && fdt.due(now, departure.level, None) == Due::Now;
        let load = if is_described {
            Load::Reserved
        } else {
            sequencer.load(layering, departure.level, departure.at)
        };
        match load {
            // The departure is used for the end of the session.
            Load::Part(part) if part.is_over && self.phase == Phase::Ending => 0,
            Load::Part(part) => {
                fdt.content_sent(departure.level);
                stats.parts += 1;
                stats.repeats += u64::from(part.is_repeat);
                if !part.is_over && self.begun.replace(part.id) != Some(part.id) {
                    stats.buffers += 1;
                    self.events.push_back(SenderEvent::Begun(part.id));
                }
                write_part(*config, departure, &part, buffer)
            }
            Load::Reserved => self.write_description(now, departure, buffer),
            Load::Nothing => 0,
        }
    }

    /// Writes a packet of the description, with the public key of a signed session: with layers, a packet
    /// with the key alone would take the place of a part, and the parts left out are the most important.
    fn write_description(&mut self, now: Instant, departure: &Departure, buffer: &mut [u8]) -> usize {
        if let Some(line) = self.signing.as_ref().filter(|_| core::mem::take(&mut self.is_key_next)) {
            let bytes = Header::new(self.config.tsi, None, 0, departure).emit(buffer);
            return line.insert_key(buffer, bytes);
        }
        self.stats.fdt_packets += 1;
        let symbol = self.fdt.send(now, departure.level);
        let bytes = write_fdt(self.config.tsi, departure, &symbol, buffer);
        let Some(line) = &self.signing else { return bytes };
        if bytes + KEY_BYTES <= usize::from(self.config.part_bytes) {
            return line.insert_key(buffer, bytes);
        }
        // A symbol without room for the key leaves the next packet to the key.
        self.is_key_next = true;
        bytes
    }

    /// Writes a packet with the public key alone, if due, and returns the length; 0 otherwise. With layers,
    /// descriptions carry the key.
    fn write_key(&mut self, now: Instant, departure: &Departure, buffer: &mut [u8]) -> usize {
        if SentLevels::of(self.control.layering(), departure.levels).is_some() {
            return 0;
        }
        let Some(line) = &mut self.signing else { return 0 };
        if line.next_auth_packet(now, departure.channel).is_none() {
            return 0;
        }
        let bytes = Header::new(self.config.tsi, None, 0, departure).emit(buffer);
        line.insert_key(buffer, bytes)
    }

    fn write_farewell(&mut self, now: Instant, departure: &Departure, buffer: &mut [u8]) -> usize {
        let Phase::Closing(farewell) = &mut self.phase else { return 0 };
        match farewell.next(now, departure.channel) {
            Word::Describe(number) => {
                self.stats.fdt_packets += 1;
                write_fdt(self.config.tsi, departure, &self.fdt.symbol(number), buffer)
            }
            Word::Close => {
                let bytes = Header::closing(self.config.tsi, departure).emit(buffer);
                self.signing.as_ref().map_or(bytes, |line| line.insert_key(buffer, bytes))
            }
            Word::Silence => 0,
        }
    }

    /// Handles timeouts.
    fn settle(&mut self, now: Instant) {
        let is_over = match &mut self.phase {
            Phase::Closing(farewell) => farewell.is_over(now),
            Phase::Sending | Phase::Ending => {
                self.fdt.refresh(now, self.config.session);
                false
            }
            Phase::Finished => false,
        };
        if is_over {
            self.phase = Phase::Finished;
            self.events.push_back(SenderEvent::Finished);
        }
    }
}

/// Reserves one round of the description per second, but at most one packet in four.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn reserve(layering: &dyn Layering, symbols: u64) -> Reserve {
    let packets = layering.cumulative_rate(0, Instant::ZERO) as u64;
    Reserve::each((packets / symbols.max(1)).max(RESERVE_MIN))
}

fn write_part(config: SenderConfig, departure: &Departure, part: &Buffer<'_>, buffer: &mut [u8]) -> usize {
    let seq = Seq { buffer: part.id, offset: part.offset };
    let payload_id = PayloadId { sbn: part.id.into(), esi: part.part & u32::from(u16::MAX) };
    // A receiver with any part of the prefix thereby knows the length of the whole buffer.
    let fti = (part.offset == 0).then_some(Fti::NoCode {
        transfer_length: part.length.into(),
        symbol_size: config.part_bytes,
        max_block: u16::MAX.into(),
    });
    let start = Header::new(config.tsi, Some(TOI), 0, departure)
        .with_payload_id(payload_id)
        .with_part(seq, fti, part.is_over)
        .emit(buffer);
    let end = start + part.payload.len();
    buffer[start..end].copy_from_slice(part.payload);
    end
}

impl<C: SenderControl> Machine for Sender<C> {
    type Event = SenderEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => {
                // Checked before the control gives up overdue packets.
                let next = self.control.departure(now);
                self.has_skipped |= next.is_some_and(|next| next.at < Spacing::given_up_before(now));
                self.control.timeout(now);
            }
            Input::Datagram(datagram) => self.control.feedback(now, &datagram),
            Input::Routed(..) => {}
        }
    }

    fn on_full_link(&mut self, packets_per_second: f64) {
        self.control.on_full_link(packets_per_second);
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<SenderEvent>> {
        loop {
            self.settle(now);
            if let Some(event) = self.events.pop_front() {
                return Some(Output::Event(event));
            }
            if let Some(transmit) = self.control.poll_transmit(now, buffer) {
                return Some(Output::Transmit(transmit));
            }
            let is_silent = matches!(self.phase, Phase::Sending) && self.sequencer.is_idle();
            if is_silent || self.is_finished() {
                return None;
            }
            let departure = self.control.departure(now)?;
            let envelope = self.control.envelope().map_or(0, |envelope| envelope.bytes());
            let room = &mut buffer[envelope..];
            let mut bytes = match self.phase {
                Phase::Closing(_) => self.write_farewell(now, &departure, room),
                _ => self.write_key(now, &departure, room),
            };
            if bytes == 0 && !matches!(self.phase, Phase::Closing(_)) {
                bytes = self.write(now, &departure, room);
            }
            if let Some(encryption) = self.encryption.as_mut().filter(|_| bytes > 0) {
                bytes = encryption.seal(room, bytes).unwrap_or(0);
            }
            if let Some(line) = self.signing.as_mut().filter(|_| bytes > 0) {
                // A packet that cannot be signed does not leave: a receiver would drop the packet.
                bytes = line.sign(departure.channel, room, bytes).unwrap_or(0);
            }
            if self.phase == Phase::Ending && self.sequencer.is_over() {
                // The packet written is a repetition: the departure is used for the end of the session.
                self.close();
                continue;
            }
            self.has_skipped |= departure.at < Spacing::given_up_before(now);
            if bytes > 0 {
                bytes += envelope;
                if let Some(envelope) = self.control.envelope() {
                    envelope.seal(now, &mut buffer[..bytes]);
                }
            }
            self.control.departed(now, bytes);
            if bytes > 0 {
                self.stats.packets += 1;
                self.stats.bytes += bytes as u64;
                let destination = Destination::Channel(departure.channel);
                return Some(Output::Transmit(Transmit { destination, bytes, ecn: departure.ecn }));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let is_silent = matches!(self.phase, Phase::Sending) && self.sequencer.is_idle();
        let departure = match &self.phase {
            Phase::Finished => return None,
            _ if is_silent => None,
            Phase::Closing(farewell) => {
                self.control.next_departure().into_iter().chain(farewell.deadline()).min()
            }
            _ => self.control.next_departure(),
        };
        departure.into_iter().chain(self.control.poll_timeout()).min()
    }
}
