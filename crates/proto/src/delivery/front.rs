//! What receiving files and receiving buffers begin with: the session listened to, its control, and what is
//! to come out.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use headwater_wire::{alc, fdt};

use super::session::{Listening, Whose};
use crate::control::{Arrival, EnvelopeContent, Membership, ReceiverControl};
use crate::machine::{ChannelId, Datagram, Output};
use crate::time::Instant;

/// Who was heard on the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The first packet of the session came.
    Found {
        /// Transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// Somebody else sends on the group: another source, or another session of the same one. It is not
    /// received. Told once of each of the first [`OTHERS_MAX`](super::OTHERS_MAX).
    Other {
        /// Its transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
    /// The session has been silent for [`SILENCE`](super::SILENCE) while another one that the receiver would
    /// have taken is being sent: its sender was started again, mostly. Or the FDT says that the session is
    /// another one than what an earlier receiver kept of it made believe. This receiver has ended; another
    /// one would receive the other session.
    Superseded {
        /// The other one's transport session identifier.
        tsi: u64,
        /// Who sends it.
        source: SocketAddr,
    },
}

/// Which session to listen to: the first one heard, from anyone, unless told otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) tsi: Option<u64>,
    pub(crate) source: Option<IpAddr>,
}

/// The options of every receiver's configuration, for a type with [`Wanted`] in its field `wanted`.
macro_rules! wanted_setters {
    () => {
        /// Only the session with this identifier. Default: the first one heard.
        #[must_use]
        pub fn with_tsi(mut self, tsi: Option<u64>) -> Self {
            self.wanted.tsi = tsi;
            self
        }

        /// Only from this address. Default: whoever sends the session first.
        #[must_use]
        pub fn with_source(mut self, source: Option<core::net::IpAddr>) -> Self {
            self.wanted.source = source;
            self
        }
    };
}

/// What every receiver tells of its control and session, for a type with a [`Front`] in its field `front`.
macro_rules! front_views {
    ($control:ty) => {
        /// The congestion control.
        pub fn control(&self) -> &$control {
            &self.front.control
        }

        /// What the congestion control has measured.
        pub fn reception(&self) -> crate::control::Reception {
            self.front.control.reception()
        }

        /// What the congestion control shows.
        pub fn control_status(&mut self, now: crate::time::Instant) -> crate::control::Status {
            self.front.control.status(now)
        }

        /// Who sends the session that is received, once a packet of it has come, and its identifier.
        pub fn session(&self) -> Option<(core::net::IpAddr, u64)> {
            self.front.listening.session()
        }

        /// When a packet of the session came last, once one has come.
        pub fn last_heard(&self) -> Option<crate::time::Instant> {
            self.front.listening.last_heard()
        }
    };
}

pub(crate) use {front_views, wanted_setters};

/// What a datagram was.
pub(crate) enum Taken<'a> {
    /// A packet of the session: its header and what it carries.
    Packet(alc::Repr, &'a [u8]),
    /// No ALC packet.
    Malformed,
    /// For the control alone: an answer to a request of its own, or a packet of its carrier without content.
    Signalling,
    /// Of another session: with its identifier and sender if the receiver's own has fallen silent, and it
    /// would be taken instead.
    Foreign(Option<(u64, SocketAddr)>),
}

/// A control and the session that it is for, with the outputs of the machine that owns it.
#[derive(Debug)]
pub(crate) struct Front<C, E> {
    pub(crate) control: C,
    pub(crate) listening: Listening,
    outputs: VecDeque<Output<E>>,
}

impl<C: ReceiverControl, E: From<SessionEvent>> Front<C, E> {
    /// Begins to listen at `now`.
    pub(crate) fn new(wanted: Wanted, mut control: C, now: Instant) -> Self {
        control.start(now);
        let listening = Listening::new(wanted.tsi, wanted.source, now);
        let mut front = Self { control, listening, outputs: VecDeque::new() };
        front.collect_memberships();
        front
    }

    /// Tells the control of a datagram, and says what it is.
    pub(crate) fn take<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> Taken<'a> {
        if datagram.channel.is_none() && self.control.answered(now, datagram) {
            return Taken::Signalling;
        }
        let (source, packet) = match self.control.envelope() {
            None => (datagram.source, datagram.payload),
            Some(envelope) => match envelope.open(now, datagram) {
                EnvelopeContent::Packet { source, packet } => (source, packet),
                EnvelopeContent::Signal => return Taken::Signalling,
                EnvelopeContent::Malformed => return Taken::Malformed,
            },
        };
        let Ok((header, payload)) = alc::parse(packet) else { return Taken::Malformed };
        let tsi = header.tsi;
        match self.listening.hear(now, source, tsi) {
            Whose::Ours { is_first } => {
                if is_first {
                    self.event(SessionEvent::Found { tsi, source });
                }
            }
            Whose::Other { is_news, replaces } => {
                if is_news {
                    self.event(SessionEvent::Other { tsi, source });
                }
                return Taken::Foreign(replaces.then_some((tsi, source)));
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
        Taken::Packet(header, payload)
    }

    /// Tells the control of the session's description; returns the reason, for people, if the session cannot
    /// be received.
    pub(crate) fn describe(&mut self, now: Instant, control: Option<&fdt::Control>) -> Result<(), String> {
        self.control.described().map_or(Ok(()), |described| described.on_description(now, control))
    }

    /// Puts an event behind what else is to come out.
    pub(crate) fn event(&mut self, event: impl Into<E>) {
        self.outputs.push_back(Output::Event(event.into()));
    }

    /// Puts the control's joins and leaves there.
    pub(crate) fn collect_memberships(&mut self) {
        while let Some(membership) = self.control.poll_membership() {
            self.outputs.push_back(match membership {
                Membership::Join(channel) => Output::Join(channel),
                Membership::Leave(channel) => Output::Leave(channel),
            });
        }
    }

    /// What is to come out next; what the control sends comes after all else.
    pub(crate) fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output<E>> {
        let waiting = self.outputs.pop_front();
        waiting.or_else(|| self.control.poll_transmit(now, buffer).map(Output::Transmit))
    }
}
