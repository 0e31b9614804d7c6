//! Common front end of file receivers and buffer receivers: the received session, its congestion control, and
//! the queue of outputs.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use headwater_wire::{alc, fdt};

use crate::control::{Arrival, EnvelopeContent, Membership, ReceiverControl};
use crate::machine::{ChannelId, Datagram, Output};
use crate::time::{Duration, Instant};

/// Event about the sessions on the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The first packet of the session came.
    Found {
        /// Transport session identifier.
        tsi: u64,
        /// Address of the sender.
        source: SocketAddr,
    },
    /// Another source, or another session of the same source, sends on the group. The receiver ignores the
    /// packets. Reported once for each of the first [`OTHERS_MAX`](super::OTHERS_MAX) sessions.
    Other {
        /// Transport session identifier of the other session.
        tsi: u64,
        /// Address of the sender.
        source: SocketAddr,
    },
    /// Another session replaces the received session, and this receiver has ended. Either the session has
    /// been silent for [`SILENCE`](super::SILENCE) while an acceptable session is being sent, mostly because
    /// the sender restarted. Or the FDT contradicts the FDT that an earlier receiver kept of the session. A
    /// new receiver would receive the other session.
    Superseded {
        /// Transport session identifier of the other session.
        tsi: u64,
        /// Address of the sender.
        source: SocketAddr,
    },
}

/// Session to receive: by default the first session heard, from any source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) tsi: Option<u64>,
    pub(crate) source: Option<IpAddr>,
}

/// Setters common to every receiver's configuration, for a type with [`Wanted`] in its field `wanted`.
macro_rules! wanted_setters {
    () => {
        /// Receives only the session with this identifier. Default: the first session heard.
        #[must_use]
        pub fn with_tsi(mut self, tsi: Option<u64>) -> Self {
            self.wanted.tsi = tsi;
            self
        }

        /// Receives only from this address. Default: the first sender heard.
        #[must_use]
        pub fn with_source(mut self, source: Option<core::net::IpAddr>) -> Self {
            self.wanted.source = source;
            self
        }
    };
}

/// Accessors of every receiver for control and session, for a type with a [`Front`] in its field `front`.
macro_rules! front_views {
    ($control:ty) => {
        /// Returns the congestion control.
        pub fn control(&self) -> &$control {
            &self.front.control
        }

        /// Returns the measurements of the congestion control.
        pub fn reception(&self) -> crate::control::Reception {
            self.front.control.reception()
        }

        /// Returns the status of the congestion control.
        pub fn control_status(&mut self, now: crate::time::Instant) -> crate::control::Status {
            self.front.control.status(now)
        }

        /// Returns the sender's address and the identifier of the session; `None` before the first packet.
        pub fn session(&self) -> Option<(core::net::IpAddr, u64)> {
            self.front.listening.session()
        }

        /// Returns the arrival time of the session's last packet; `None` before the first packet.
        pub fn last_heard(&self) -> Option<crate::time::Instant> {
            self.front.listening.last_heard()
        }
    };
}

pub(crate) use {front_views, wanted_setters};

/// Classification of a datagram.
pub(crate) enum Classified<'a> {
    /// A packet of the session: header and payload.
    Packet(alc::Repr, &'a [u8]),
    /// Not an ALC packet.
    Malformed,
    /// A packet for the congestion control only: an answer to a request of the control, or a packet of the
    /// control's envelope without content.
    Signalling,
    /// A packet of another session. The identifier and sender are present if the receiver's session is silent
    /// and the other session may replace it.
    Foreign(Option<(u64, SocketAddr)>),
}

/// A congestion control and the session it controls, with the queued outputs of the owning machine.
#[derive(Debug)]
pub(crate) struct Front<C, E> {
    pub(crate) control: C,
    pub(crate) listening: Listening,
    outputs: VecDeque<Output<E>>,
}

impl<C: ReceiverControl, E: From<SessionEvent>> Front<C, E> {
    /// Creates a front end that listens from `now` on.
    pub(crate) fn new(wanted: Wanted, mut control: C, now: Instant) -> Self {
        control.start(now);
        let listening = Listening::new(wanted.tsi, wanted.source, now);
        let mut front = Self { control, listening, outputs: VecDeque::new() };
        front.collect_memberships();
        front
    }

    /// Passes a datagram to the control and classifies the datagram.
    pub(crate) fn take<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> Classified<'a> {
        if datagram.channel.is_none() && self.control.answered(now, datagram) {
            return Classified::Signalling;
        }
        let (source, packet) = match self.control.envelope() {
            None => (datagram.source, datagram.payload),
            Some(envelope) => match envelope.open(now, datagram) {
                EnvelopeContent::Packet { source, packet } => (source, packet),
                EnvelopeContent::Signal => return Classified::Signalling,
                EnvelopeContent::Malformed => return Classified::Malformed,
            },
        };
        let Ok((header, payload)) = alc::parse(packet) else { return Classified::Malformed };
        let tsi = header.tsi;
        match self.listening.hear(now, source, tsi) {
            SessionMatch::Ours { is_first } => {
                if is_first {
                    self.event(SessionEvent::Found { tsi, source });
                }
            }
            SessionMatch::Other { is_news, replaces } => {
                if is_news {
                    self.event(SessionEvent::Other { tsi, source });
                }
                return Classified::Foreign(replaces.then_some((tsi, source)));
            }
        }
        let channel = datagram.channel.unwrap_or(ChannelId::BASE);
        let (ecn, bytes) = (datagram.ecn, datagram.payload.len());
        if channel == ChannelId::BASE {
            self.control.limited(now, header.extensions.levels.map(|levels| levels.ceiling.into()));
        }
        self.control.arrived(now, &Arrival { source, channel, cci: &header.cci, ecn, bytes });
        self.listening.close(header.close_session);
        if header.close_session
            && let Some(requester) = self.control.requester()
        {
            requester.on_close(now);
        }
        Classified::Packet(header, payload)
    }

    /// Passes the session's description to the control. Returns the reason, for people, if the session cannot
    /// be received.
    pub(crate) fn describe(
        &mut self,
        now: Instant,
        control: Option<&fdt::ControlAttributes>,
    ) -> Result<(), String> {
        self.control.described().map_or(Ok(()), |described| described.on_description(now, control))
    }

    /// Queues an event as the last output.
    pub(crate) fn event(&mut self, event: impl Into<E>) {
        self.outputs.push_back(Output::Event(event.into()));
    }

    /// Queues the control's joins and leaves.
    pub(crate) fn collect_memberships(&mut self) {
        while let Some(membership) = self.control.poll_membership() {
            self.outputs.push_back(match membership {
                Membership::Join(channel) => Output::Join(channel),
                Membership::Leave(channel) => Output::Leave(channel),
            });
        }
    }

    /// Returns the next queued output, or else the next packet of the control.
    pub(crate) fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<E>> {
        let waiting = self.outputs.pop_front();
        waiting.or_else(|| self.control.poll_transmit(now, buffer).map(Output::Transmit))
    }
}

/// Silence after which another session on the group may replace the received session. Long enough for an
/// interface or a route that recovers, and for a sender of any rate except LE-SBCC's floor, a packet in up to
/// 10 to 15 s.
pub const SILENCE: Duration = Duration::from_secs(5);
/// Maximum number of other sessions on the group that are reported.
pub const OTHERS_MAX: usize = 16;
/// Silence after which a closed session ends.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// The session that a receiver receives: the first acceptable session heard.
#[derive(Debug)]
pub(crate) struct Listening {
    tsi: Option<u64>,
    source: Option<IpAddr>,
    session: Option<(IpAddr, u64)>,
    /// Source address of the session's first packet.
    sender: Option<SocketAddr>,
    /// Other sessions that were reported, at most [`OTHERS_MAX`].
    others: Vec<(IpAddr, u64)>,
    /// Whether a packet that closes the session arrived. The session ends only if silence follows: a corrupt
    /// or forged packet does not end a session that continues.
    is_closed: bool,
    last_heard: Instant,
}

/// Session of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionMatch {
    /// The packet belongs to the received session; perhaps the first packet.
    Ours { is_first: bool },
    /// The packet belongs to another session: perhaps the first packet of that session, and perhaps a session
    /// that replaces the received session, which is silent.
    Other { is_news: bool, replaces: bool },
}

impl Listening {
    /// Listens for the wanted session and source; `None` accepts any.
    pub(crate) fn new(tsi: Option<u64>, source: Option<IpAddr>, now: Instant) -> Self {
        let (session, sender, others) = (None, None, Vec::new());
        Self { tsi, source, session, sender, others, is_closed: false, last_heard: now }
    }

    /// Records a packet and returns the session of the packet.
    pub(crate) fn hear(&mut self, now: Instant, source: SocketAddr, tsi: u64) -> SessionMatch {
        let would_take = self.tsi.is_none_or(|wanted| wanted == tsi)
            && self.source.is_none_or(|wanted| wanted == source.ip());
        let this = (source.ip(), tsi);
        if self.session == Some(this) || (self.session.is_none() && would_take) {
            let is_first = self.session.replace(this).is_none();
            self.sender.get_or_insert(source);
            self.last_heard = now;
            return SessionMatch::Ours { is_first };
        }
        let is_news = self.others.len() < OTHERS_MAX && !self.others.contains(&this);
        if is_news {
            self.others.push(this);
        }
        let is_silent = self.session.is_some() && now >= self.last_heard + SILENCE;
        SessionMatch::Other { is_news, replaces: is_silent && would_take }
    }

    /// Records whether the session's last packet closes the session.
    pub(crate) fn close(&mut self, closes: bool) {
        self.is_closed |= closes;
    }

    /// Returns the sender's address and the session's identifier; `None` before the first packet.
    pub(crate) fn session(&self) -> Option<(IpAddr, u64)> {
        self.session
    }

    /// Returns the arrival time of the session's last packet; `None` before the first packet.
    pub(crate) fn last_heard(&self) -> Option<Instant> {
        self.session.map(|_| self.last_heard)
    }

    /// Returns the source address of the session's first packet.
    pub(crate) fn sender(&self) -> Option<SocketAddr> {
        self.sender
    }

    /// Returns the time at which a closed session ends unless another packet arrives.
    pub(crate) fn close_deadline(&self) -> Option<Instant> {
        self.is_closed.then(|| self.last_heard + CLOSE_GRACE)
    }
}
