//! The receiving end: datagrams in, buffers out, each as far as it came.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use headwater_wire::alc;
use headwater_wire::fdt::Instance;

use super::{ENCODING, TOI};
use crate::control::{Arrival, Membership, ReceiverControl, Reception, Status};
use crate::delivery::fdt::{Heard, Hearing};
use crate::delivery::session::{Listening, Whose};
use crate::layering::sequencer::{Assembler, AssemblerStats, Delivery, Part, Piece, Received};
use crate::machine::{ChannelId, Datagram, Input, Machine, Output};
use crate::time::{Duration, Instant};

/// Longest buffer that a receiver takes unless told otherwise: 5 s at 100 Mbit/s.
pub const BUFFER_BYTES_MAX: usize = 64 << 20;
/// How long late parts count: twice the latency of a join (sequencer.md 3), within these bounds.
const GRACE_MIN: Duration = Duration::from_millis(100);
const GRACE_MAX: Duration = Duration::from_secs(5);

/// Configuration of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    tsi: Option<u64>,
    source: Option<IpAddr>,
    buffer_bytes_max: usize,
    wants_pieces: bool,
}

impl Default for ReceiverConfig {
    /// The first session heard, from anyone; buffers of [`BUFFER_BYTES_MAX`], and of those the prefix alone.
    fn default() -> Self {
        Self { tsi: None, source: None, buffer_bytes_max: BUFFER_BYTES_MAX, wants_pieces: false }
    }
}

impl ReceiverConfig {
    /// Only the session with this identifier. Default: the first one heard.
    #[must_use]
    pub fn with_tsi(mut self, tsi: Option<u64>) -> Self {
        self.tsi = tsi;
        self
    }

    /// Only from this address. Default: whoever sends the session first.
    #[must_use]
    pub fn with_source(mut self, source: Option<IpAddr>) -> Self {
        self.source = source;
        self
    }

    /// Longest buffer in bytes; parts beyond are dropped. Default: [`BUFFER_BYTES_MAX`].
    #[must_use]
    pub fn with_buffer_bytes_max(mut self, bytes: usize) -> Self {
        self.buffer_bytes_max = bytes;
        self
    }

    /// Whether to give what came beyond the first hole, and what came late. Default: no.
    #[must_use]
    pub fn with_pieces(mut self, wanted: bool) -> Self {
        self.wants_pieces = wanted;
        self
    }
}

/// What a receiver tells its application, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The first packet of the session came.
    SessionFound {
        /// Transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// Somebody else sends on the group; it is not received. Told once of each of the first
    /// [`OTHERS_MAX`](crate::delivery::OTHERS_MAX).
    OtherSession {
        /// Its transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// The session has been silent for [`SILENCE`](crate::delivery::SILENCE) while another one that the receiver would
    /// have taken is being sent. This receiver has ended; another one would receive the other session.
    Superseded {
        /// The other one's transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// The session carries no buffers: files, mostly. Nothing more is received.
    NoBuffers,
    /// The FDT describes a congestion control that cannot be followed. Nothing more is received.
    ControlRefused {
        /// Why: what it names may be a peer's word.
        reason: String,
    },
    /// A buffer: when it is whole, or the next one has begun, or its time is over.
    Buffer(Received),
    /// A piece of the buffer given last, which came late.
    Late {
        /// The buffer's number.
        id: u16,
        /// The piece.
        piece: Piece,
    },
    /// The sender closed the session: there is nothing more to come.
    Closed,
}

/// What was received and what was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Datagrams.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Packets of the FDT.
    pub fdt_packets: u64,
    /// Dropped: no ALC packet.
    pub malformed: u64,
    /// Dropped: of another session or another source.
    pub foreign: u64,
    /// Dropped: a packet of the FDT without its extensions, or an instance that cannot be read.
    pub bad_fdt: u64,
    /// Dropped: content that is no part of a buffer.
    pub no_part: u64,
    /// What became of parts.
    pub parts: AssemblerStats,
    /// When a part came last.
    pub last_progress: Instant,
}

/// The receiving end of a session of buffers.
///
/// Memory: that of its [`Assembler`], which goes with what came of one buffer and of those that wait in the outputs; two FDTs
/// being put together; the control's.
#[derive(Debug)]
pub struct Receiver<C> {
    control: C,
    listening: Listening,
    hearing: Hearing,
    assembler: Assembler,
    ended: bool,
    outputs: VecDeque<Output<ReceiverEvent>>,
    stats: ReceiverStats,
}

impl<C: ReceiverControl> Receiver<C> {
    /// A receiver that begins to listen at `now`.
    pub fn new(config: ReceiverConfig, mut control: C, now: Instant) -> Self {
        control.start(now);
        let assembler = Assembler::new(config.buffer_bytes_max, GRACE_MIN).with_pieces(config.wants_pieces);
        let mut receiver = Self {
            control,
            listening: Listening::new(config.tsi, config.source, now),
            hearing: Hearing::default(),
            assembler,
            ended: false,
            outputs: VecDeque::new(),
            stats: ReceiverStats { last_progress: now, ..ReceiverStats::default() },
        };
        receiver.collect_memberships();
        receiver
    }

    /// What was received and what was dropped, and why.
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats { parts: self.assembler.stats(), ..self.stats }
    }

    /// The congestion control.
    pub fn control(&self) -> &C {
        &self.control
    }

    /// What the congestion control has measured.
    pub fn reception(&self) -> Reception {
        self.control.reception()
    }

    /// What the congestion control shows.
    pub fn control_status(&mut self, now: Instant) -> Status {
        self.control.status(now)
    }

    /// Who sends the session that is received, once a packet of it has come, and its identifier.
    pub fn session(&self) -> Option<(IpAddr, u64)> {
        self.listening.session()
    }

    /// Whether the session ended: it was closed, cannot be received, or another one has come in its place.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Ends the session from this end: gives the last buffer as far as it came, and leaves every channel.
    pub fn close(&mut self, now: Instant) {
        if !self.ended {
            self.assembler.finish(now);
            self.collect_buffers(now);
            self.ended = true;
            self.control.stop(now);
            self.collect_memberships();
        }
    }

    fn on_datagram(&mut self, now: Instant, datagram: &Datagram<'_>) {
        if datagram.channel.is_none() && self.control.answered(now, datagram) {
            return;
        }
        self.stats.packets += 1;
        self.stats.bytes += datagram.payload.len() as u64;
        let Ok((header, payload)) = alc::parse(datagram.payload) else {
            self.stats.malformed += 1;
            return;
        };
        if !self.is_ours(now, datagram.source, header.tsi) {
            self.stats.foreign += 1;
            return;
        }
        let channel = datagram.channel.unwrap_or(ChannelId::BASE);
        let (source, ecn, bytes) = (datagram.source, datagram.ecn, datagram.payload.len());
        self.control.arrived(now, &Arrival { source, channel, cci: &header.cci, ecn, bytes });
        self.listening.close(header.close_session);
        match (header.toi, header.payload_id) {
            (Some(0), Some(id)) => {
                let heard = self.hearing.hear(&header, id, payload);
                self.stats.fdt_packets += u64::from(!matches!(heard, Heard::Bad));
                self.stats.bad_fdt += u64::from(matches!(heard, Heard::Bad));
                if let Heard::Whole { instance, .. } = heard {
                    self.on_instance(now, &instance);
                }
            }
            (Some(_), Some(_)) => self.on_part(now, &header, payload),
            _ => {}
        }
    }

    fn is_ours(&mut self, now: Instant, source: SocketAddr, tsi: u64) -> bool {
        let event = match self.listening.hear(now, source, tsi) {
            Whose::Ours { is_first } => {
                if is_first {
                    self.event(ReceiverEvent::SessionFound { tsi, source });
                }
                return true;
            }
            Whose::Other { replaces: true, .. } => {
                self.close(now);
                ReceiverEvent::Superseded { tsi, source }
            }
            Whose::Other { is_news: true, .. } => ReceiverEvent::OtherSession { tsi, source },
            Whose::Other { .. } => return false,
        };
        self.event(event);
        false
    }

    fn on_instance(&mut self, now: Instant, instance: &Instance) {
        let is_stream = |file| instance.content_encoding(file) == Some(ENCODING) && file.toi == TOI;
        if !instance.files.iter().any(is_stream) {
            self.close(now);
            self.event(ReceiverEvent::NoBuffers);
        } else if let Err(error) = self.control.describe(now, instance.control.as_ref()) {
            self.close(now);
            self.event(ReceiverEvent::ControlRefused { reason: error.to_string() });
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
                    let latency = self.control.status(now).join_latency;
                    let grace = latency.map_or(GRACE_MIN, |latency| latency.saturating_mul(2));
                    self.assembler.set_grace(grace.clamp(GRACE_MIN, GRACE_MAX));
                    ReceiverEvent::Buffer(received)
                }
                Delivery::Late { id, piece } => ReceiverEvent::Late { id, piece },
            };
            self.event(event);
        }
    }

    fn event(&mut self, event: ReceiverEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    fn collect_memberships(&mut self) {
        while let Some(membership) = self.control.poll_membership() {
            self.outputs.push_back(match membership {
                Membership::Join(channel) => Output::Join(channel),
                Membership::Leave(channel) => Output::Leave(channel),
            });
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
            Input::Timeout => self.control.timeout(now),
            Input::Datagram(datagram) => self.on_datagram(now, &datagram),
        }
        if self.listening.close_deadline().is_some_and(|at| at <= now) && !self.ended {
            self.close(now);
            self.event(ReceiverEvent::Closed);
        }
        self.collect_memberships();
    }

    fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<ReceiverEvent>> {
        let waiting = self.outputs.pop_front();
        waiting.or_else(|| self.control.poll_transmit(now, buffer).map(Output::Transmit))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.ended {
            return None;
        }
        self.listening.close_deadline().into_iter().chain(self.control.poll_timeout()).min()
    }
}
