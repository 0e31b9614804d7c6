//! The receiving end: takes datagrams, delivers buffers, complete or not.

use headwater_wire::alc;
use headwater_wire::fdt::Instance;

use super::{ENCODING, TOI};
use crate::control::ReceiverControl;
use crate::delivery::fdt::{FdtOutcome, FdtReceiver};
use crate::delivery::front::{Classified, Front, Opened, SessionEvent, Wanted, front_views, wanted_setters};
use crate::layering::sequencer::{Assembler, AssemblerStats, Delivery, Part, Piece, Received};
use crate::machine::{Datagram, Input, Machine, Output};
use crate::time::{Duration, Instant};

/// Default maximum length of a buffer: 5 s at 100 Mbit/s.
pub const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Bounds of the time in which late parts count: twice the latency of a join (Lucas et al. 2010).
const GRACE_MIN: Duration = Duration::from_millis(100);
const GRACE_MAX: Duration = Duration::from_secs(5);

/// Configuration of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    wanted: Wanted,
    buffer_bytes_max: usize,
    wants_pieces: bool,
}

impl Default for ReceiverConfig {
    /// Returns the defaults: the first session from any sender; buffers up to [`BUFFER_BYTES_MAX`], prefix
    /// only.
    fn default() -> Self {
        Self { wanted: Wanted::default(), buffer_bytes_max: BUFFER_BYTES_MAX, wants_pieces: false }
    }
}

impl ReceiverConfig {
    wanted_setters!();

    /// Sets the maximum length of a buffer in bytes; parts beyond are dropped. Default: [`BUFFER_BYTES_MAX`].
    #[must_use]
    pub fn with_buffer_bytes_max(mut self, bytes: usize) -> Self {
        self.buffer_bytes_max = bytes;
        self
    }

    /// Sets whether to deliver pieces beyond the first hole, and late pieces. Default: no.
    #[must_use]
    pub fn with_pieces(mut self, wanted: bool) -> Self {
        self.wants_pieces = wanted;
        self
    }
}

/// Event for the application, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// Sessions detected on the group.
    Session(SessionEvent),
    /// The session carries no buffers, but usually files. The receiver has stopped.
    NoBuffers,
    /// The FDT describes a congestion control that the receiver cannot use. The receiver has stopped.
    ControlRefused {
        /// Reason, which may contain text from the peer.
        reason: String,
    },
    /// A buffer: delivered when complete, or when the next buffer begins, or when the buffer's time is over.
    Buffer(Received),
    /// A late piece of the buffer delivered last.
    Late {
        /// Number of the buffer.
        id: u16,
        /// The piece.
        piece: Piece,
    },
    /// The sender closed the session; no further event follows.
    Closed,
}

impl From<SessionEvent> for ReceiverEvent {
    fn from(event: SessionEvent) -> Self {
        Self::Session(event)
    }
}

/// Counters of a receiver. Each datagram passed to a receiver that has not ended is counted in exactly one
/// counter: [`ReceiverStats::accounted`] always equals `packets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Packets of the FDT.
    pub fdt_packets: u64,
    /// Packets without content: packets that close the session, and packets for the congestion control alone.
    pub signalling: u64,
    /// Dropped: not an ALC packet.
    pub malformed: u64,
    /// Dropped: of another session or another source.
    pub foreign: u64,
    /// Dropped: a packet of the FDT without its extensions, or an instance that cannot be read.
    pub bad_fdt: u64,
    /// Dropped: content that is not a part of a buffer.
    pub no_part: u64,
    /// Dropped: not verified. [`Receiver::auth_counters`] has the reasons.
    pub unverified: u64,
    /// Dropped: the content is encrypted and no group key decrypts the content, or, at a receiver with a
    /// group key, is in the clear.
    pub unopened: u64,
    /// Packets that wait for their authentication: each packet then moves to another counter.
    pub waiting: u64,
    /// Counters of parts.
    pub parts: AssemblerStats,
    /// Arrival time of the last part.
    pub last_progress: Instant,
}

impl ReceiverStats {
    /// Returns the sum of the counters that partition `packets`.
    pub fn accounted(&self) -> u64 {
        let AssemblerStats { parts, duplicates, too_late, too_long, .. } = self.parts;
        let Self { fdt_packets, signalling, malformed, foreign, bad_fdt, no_part, .. } = self;
        let dropped = malformed + foreign + bad_fdt + no_part + self.unopened;
        let dropped = dropped + self.unverified + self.waiting;
        parts + duplicates + too_late + too_long + fdt_packets + signalling + dropped
    }
}

/// The receiving end of a session of buffers.
///
/// Memory: the [`Assembler`]'s, for the received bytes of a buffer and of the buffers waiting in the outputs;
/// two FDTs being reassembled; the control's.
#[derive(Debug)]
pub struct Receiver<C> {
    front: Front<C, ReceiverEvent>,
    hearing: FdtReceiver,
    assembler: Assembler,
    ended: bool,
    stats: ReceiverStats,
}

impl<C: ReceiverControl> Receiver<C> {
    /// Returns a receiver that begins to listen at `now`.
    pub fn new(config: ReceiverConfig, control: C, now: Instant) -> Self {
        Self {
            front: Front::new(config.wanted, control, now),
            hearing: FdtReceiver::default(),
            assembler: Assembler::new(config.buffer_bytes_max, GRACE_MIN).with_pieces(config.wants_pieces),
            ended: false,
            stats: ReceiverStats { last_progress: now, ..ReceiverStats::default() },
        }
    }

    /// Returns the counters of received and dropped datagrams.
    pub fn stats(&self) -> ReceiverStats {
        let auth = self.front.auth_counters();
        let unverified = auth.forged + auth.unlisted + auth.replayed + auth.untrusted + auth.over_budget;
        ReceiverStats {
            parts: self.assembler.stats(),
            waiting: self.front.waiting(),
            unverified,
            ..self.stats
        }
    }

    front_views!(C);

    /// Whether the session ended: closed, refused, or replaced by another session.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Ends the session from this end: delivers the last buffer, complete or not, and leaves every channel.
    pub fn close(&mut self, now: Instant) {
        if !self.ended {
            self.assembler.finish(now);
            self.collect_buffers(now);
            self.ended = true;
            self.front.control.stop(now);
            self.front.collect_memberships();
        }
    }

    fn on_datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        self.stats.packets += 1;
        self.stats.bytes += datagram.payload.len() as u64;
        let opened = self.front.open(now, datagram);
        self.admit_released(now);
        match opened {
            Opened::Packet(opened) => {
                let mut scratch = self.front.take_scratch();
                let classified = self.front.admit(now, &opened, &mut scratch.plain);
                self.on_classified(now, &classified);
                self.front.put_scratch(scratch);
            }
            Opened::Unverified => {}
            Opened::Other(classified) => self.on_classified(now, &classified),
        }
    }

    /// Admits packets that waited for their authentication.
    fn admit_released(&mut self, now: Instant) {
        let mut scratch = self.front.take_scratch();
        while let Some(opened) = self.front.next_released(&mut scratch.packet) {
            let classified = self.front.admit(now, &opened, &mut scratch.plain);
            self.on_classified(now, &classified);
        }
        self.front.put_scratch(scratch);
    }

    fn on_classified(&mut self, now: Instant, classified: &Classified<'_>) {
        match classified {
            Classified::Signalling => self.stats.signalling += 1,
            Classified::Packet(header, payload) => self.on_packet(now, header, payload),
            Classified::Malformed => self.stats.malformed += 1,
            Classified::Unopened => self.stats.unopened += 1,
            Classified::Foreign(replaces) => {
                self.stats.foreign += 1;
                if let Some((tsi, source)) = *replaces {
                    self.close(now);
                    self.front.event(SessionEvent::Superseded { tsi, source });
                }
            }
        }
    }

    fn on_packet(&mut self, now: Instant, header: &alc::Repr, payload: &[u8]) {
        match (header.toi, header.payload_id) {
            (Some(0), Some(id)) => {
                let heard = self.hearing.hear(header, id, payload);
                self.stats.fdt_packets += u64::from(!matches!(heard, FdtOutcome::Bad));
                self.stats.bad_fdt += u64::from(matches!(heard, FdtOutcome::Bad));
                if let FdtOutcome::Whole { instance, .. } = heard {
                    self.on_instance(now, &instance);
                }
            }
            (Some(_), Some(_)) => self.on_part(now, header, payload),
            _ => self.stats.signalling += 1,
        }
    }

    fn on_instance(&mut self, now: Instant, instance: &Instance) {
        let is_stream = |file| instance.content_encoding(file) == Some(ENCODING) && file.toi == TOI;
        if !instance.files.iter().any(is_stream) {
            self.close(now);
            self.front.event(ReceiverEvent::NoBuffers);
        } else if let Err(reason) = self.front.describe(now, instance.control.as_ref()) {
            self.close(now);
            self.front.event(ReceiverEvent::ControlRefused { reason });
        }
    }

    fn on_part(&mut self, now: Instant, header: &alc::Repr, payload: &[u8]) {
        let Some(seq) = header.extensions.seq.filter(|_| header.toi == Some(TOI)) else {
            self.stats.no_part += 1;
            return;
        };
        self.stats.last_progress = now;
        let (id, offset, is_over) = (seq.buffer, seq.offset, header.close_object);
        let length = header.extensions.fti.map(|fti| fti.transfer_length());
        self.assembler.insert(now, &Part { id, offset, length, is_over, payload });
        self.collect_buffers(now);
    }

    fn collect_buffers(&mut self, now: Instant) {
        while let Some(delivery) = self.assembler.poll() {
            let event = match delivery {
                Delivery::Buffer(received) => {
                    let latency = self.front.control.status(now).join_latency;
                    let grace = latency.map_or(GRACE_MIN, |latency| latency.saturating_mul(2));
                    self.assembler.set_grace(grace.clamp(GRACE_MIN, GRACE_MAX));
                    ReceiverEvent::Buffer(received)
                }
                Delivery::Late { id, piece } => ReceiverEvent::Late { id, piece },
            };
            self.front.event(event);
        }
    }
}

impl<C: ReceiverControl> Machine for Receiver<C> {
    type Event = ReceiverEvent;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.ended {
            return;
        }
        match input {
            Input::Timeout => {
                self.front.on_timeout(now);
                self.admit_released(now);
            }
            Input::Datagram(datagram) => self.on_datagram(now, &datagram),
            Input::Routed(..) => {}
        }
        if self.front.listening.close_deadline().is_some_and(|at| at <= now) && !self.ended {
            self.close(now);
            self.front.event(ReceiverEvent::Closed);
        }
        self.front.collect_memberships();
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<ReceiverEvent>> {
        self.front.poll_output(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.ended {
            return None;
        }
        self.front.listening.close_deadline().into_iter().chain(self.front.poll_timeout()).min()
    }
}
