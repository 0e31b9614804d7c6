//! Common front end of file receivers and buffer receivers: the received session, its congestion control, and
//! the queue of outputs.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use headwater_wire::{Cci, alc, fdt};

use crate::auth::{
    AuthCounters, AuthVerdict, Origin, PublicKey, Rejection, Verifier, VerifyingConfig, VerifyingFront,
};
use crate::control::{Arrival, EnvelopeContent, Membership, ReceiverControl};
use crate::crypt::{ContentOpener, GroupKey, Unopened};
use crate::machine::{ChannelId, Datagram, Output};
use crate::rng::Seed;
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
    /// The first packet of the session was verified: each packet of the session is this sender's.
    Verified {
        /// Transport session identifier.
        tsi: u64,
        /// Public key of the sender.
        key: PublicKey,
        /// Whether the key is made for this session alone.
        is_ephemeral: bool,
        /// Start of the session, in seconds of the NTP era.
        started: u32,
    },
    /// The verified sender announces the key that will sign its later sessions. Reported again if another key
    /// is announced.
    NextKey {
        /// Public key.
        key: PublicKey,
    },
    /// The receiver can verify packets, but the session is unsigned.
    Unsigned {
        /// Transport session identifier.
        tsi: u64,
    },
    /// A session on the group is signed with a key that is not trusted. The receiver ignores its packets.
    /// Reported once.
    Untrusted {
        /// Transport session identifier.
        tsi: u64,
        /// Address of the sender.
        source: SocketAddr,
    },
    /// The content of the session is not taken. Reported once.
    Unopened {
        /// Transport session identifier.
        tsi: u64,
        /// Reason.
        reason: Unopened,
    },
    /// Another session replaces the received session, and this receiver has ended. Either the session has
    /// been silent for [`SILENCE`](super::SILENCE) while an acceptable session is being sent, mostly because
    /// the sender restarted. Or the FDT contradicts the FDT that an earlier receiver kept of the session, or
    /// the earlier FDT of a sender that restarted with the same identifier. A new receiver would receive the
    /// other session.
    Superseded {
        /// Transport session identifier of the other session.
        tsi: u64,
        /// Address of the sender.
        source: SocketAddr,
    },
}

/// Authentication of a received session: the senders to accept, and the check of signatures.
#[derive(Debug)]
pub struct Verifying {
    config: VerifyingConfig,
    verifier: Box<dyn Verifier + Send>,
    seed: Seed,
}

impl Verifying {
    /// Verifies each packet of the session.
    pub fn new(config: VerifyingConfig, verifier: Box<dyn Verifier + Send>, seed: Seed) -> Self {
        Self { config, verifier, seed }
    }
}

/// Session to receive: by default the first session heard, from any source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) tsi: Option<u64>,
    pub(crate) source: Option<IpAddr>,
    /// Session that is not received.
    pub(crate) except: Option<u64>,
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

        /// Never receives the session with this identifier, for example because an earlier receiver has
        /// all of the session. Default: no exception.
        #[must_use]
        pub fn with_except(mut self, tsi: Option<u64>) -> Self {
            self.wanted.except = tsi;
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

        /// Returns since when nothing arrives: of the session or, before a session is found, of the session
        /// that is excepted.
        pub fn quiet_since(&self) -> crate::time::Instant {
            self.front.listening.quiet_since()
        }

        /// Verifies each packet before the control or the content sees the packet. Default: no check.
        #[must_use]
        pub fn with_verifying(mut self, verifying: Option<crate::delivery::Verifying>) -> Self {
            self.front.set_verifying(verifying);
            self
        }

        /// Takes content encrypted by these keys alone, at most
        /// [`GROUP_KEYS_MAX`](crate::crypt::GROUP_KEYS_MAX). Default: content in the clear alone.
        #[must_use]
        pub fn with_group_keys(mut self, keys: Vec<crate::crypt::GroupKey>) -> Self {
            self.front.set_group_keys(keys);
            self
        }

        /// Returns the counts of packets by authentication; zero without a check.
        pub fn auth_counters(&self) -> crate::auth::AuthCounters {
            self.front.auth_counters()
        }
    };
}

pub(crate) use {front_views, wanted_setters};

/// Classification of a datagram.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each packet")]
pub(crate) enum Classified<'a> {
    /// A packet of the session: header and payload.
    Packet(alc::Repr, &'a [u8]),
    /// Not an ALC packet.
    Malformed,
    /// A packet of the session whose content is not taken.
    Unopened,
    /// A packet for the congestion control only: an answer to a request of the control, or a packet of the
    /// control's envelope without content.
    Signalling,
    /// A packet of another session. The identifier and sender are present if the receiver's session is silent
    /// and the other session may replace it.
    Foreign(Option<(u64, SocketAddr)>),
}

/// First step of a datagram: authentication.
pub(crate) enum Opened<'a> {
    /// A packet to admit.
    Packet(OpenedPacket<'a>),
    /// The packet waits for authentication, or was dropped for the lack of authentication. The counters
    /// of [`Front::auth_counters`] have the packet.
    Unverified,
    /// Any other datagram.
    Other(Classified<'a>),
}

/// Time of a packet's admission.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timing {
    /// At the arrival.
    InTime,
    /// Later.
    Late,
    /// The packet arrived before the session was known: the content counts, but the control begins with the
    /// session.
    Before,
}

/// Packet of an unverified session, or a verified packet.
#[derive(Clone, Copy)]
pub(crate) struct OpenedPacket<'a> {
    arrived: Instant,
    channel: ChannelId,
    origin: Origin,
    is_verified: bool,
    timing: Timing,
    packet: &'a [u8],
}

impl OpenedPacket<'_> {
    /// Bytes of UDP payload.
    pub(crate) fn bytes(&self) -> u64 {
        self.origin.bytes as u64
    }

    /// Address of the packet's sender, and bytes of UDP payload.
    pub(crate) fn source_and_bytes(&self) -> (SocketAddr, u64) {
        (self.origin.source, self.bytes())
    }
}

/// Buffers for packets that are not taken from the datagram as they are.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Packet that waited.
    pub(crate) packet: Vec<u8>,
    /// Decrypted content.
    pub(crate) plain: Vec<u8>,
}

/// A congestion control and the session it controls, with the queued outputs of the owning machine.
#[derive(Debug)]
pub(crate) struct Front<C, E> {
    pub(crate) control: C,
    pub(crate) listening: Listening,
    auth: Option<Box<VerifyingFront<Box<dyn Verifier + Send>>>>,
    /// Whether the session's authentication was reported.
    has_told: bool,
    /// Announced key that was reported.
    next_key: Option<PublicKey>,
    /// Whether an untrusted session was reported.
    has_told_untrusted: bool,
    opener: ContentOpener,
    /// Whether content that is not taken was reported.
    has_told_unopened: bool,
    /// Arrival of the session's first packet.
    began: Option<Instant>,
    scratch: Scratch,
    outputs: VecDeque<Output<E>>,
}

impl<C: ReceiverControl, E: From<SessionEvent>> Front<C, E> {
    /// Creates a front end that listens from `now` on.
    pub(crate) fn new(wanted: Wanted, mut control: C, now: Instant) -> Self {
        control.start(now);
        let listening = Listening::new(wanted, now);
        let mut front = Self {
            control,
            listening,
            auth: None,
            has_told: false,
            next_key: None,
            has_told_untrusted: false,
            opener: ContentOpener::default(),
            has_told_unopened: false,
            began: None,
            scratch: Scratch::default(),
            outputs: VecDeque::new(),
        };
        front.collect_memberships();
        front
    }

    /// Sets the authentication of packets.
    pub(crate) fn set_verifying(&mut self, verifying: Option<Verifying>) {
        self.auth = verifying.map(|Verifying { config, verifier, seed }| {
            let rng = seed.stream("verifying", 0);
            let mut auth = VerifyingFront::new(config, verifier, rng);
            // Each control begins with the base channel.
            auth.join(ChannelId::BASE);
            Box::new(auth)
        });
    }

    /// Sets the keys of encrypted content.
    pub(crate) fn set_group_keys(&mut self, keys: Vec<GroupKey>) {
        self.opener = ContentOpener::new(keys);
    }

    /// Returns the counts of packets by authentication.
    pub(crate) fn auth_counters(&self) -> AuthCounters {
        self.auth.as_ref().map_or_else(AuthCounters::default, |auth| auth.counters())
    }

    /// Whether the session is signed and a packet was verified.
    pub(crate) fn is_verified(&self) -> bool {
        self.auth.as_ref().is_some_and(|auth| auth.session().is_some())
    }

    /// Number of packets that wait for authentication.
    pub(crate) fn waiting(&self) -> u64 {
        self.auth.as_ref().map_or(0, |auth| auth.waiting())
    }

    /// Opens a datagram and verifies the packet inside. Before the packet is admitted,
    /// [`Front::next_released`] has earlier packets that can be admitted now.
    pub(crate) fn open<'a>(&mut self, now: Instant, datagram: &Datagram<'a>) -> Opened<'a> {
        if datagram.channel.is_none() && self.control.answered(now, datagram) {
            return Opened::Other(Classified::Signalling);
        }
        let (source, packet) = match self.control.envelope() {
            None => (datagram.source, datagram.payload),
            Some(envelope) => match envelope.open(now, datagram) {
                EnvelopeContent::Packet { source, packet } => (source, packet),
                EnvelopeContent::Signal => return Opened::Other(Classified::Signalling),
                EnvelopeContent::Malformed => return Opened::Other(Classified::Malformed),
            },
        };
        let channel = datagram.channel.unwrap_or(ChannelId::BASE);
        let origin = Origin { source, ecn: datagram.ecn, bytes: datagram.payload.len() };
        let (timing, is_verified) = (Timing::InTime, false);
        let mut opened = OpenedPacket { arrived: now, channel, origin, is_verified, timing, packet };
        let Some(auth) = &mut self.auth else { return Opened::Packet(opened) };
        let Ok(packet) = headwater_wire::lct::Packet::new_checked(packet) else {
            return Opened::Other(Classified::Malformed);
        };
        let Some(tsi) = packet.tsi() else { return Opened::Other(Classified::Malformed) };
        if !self.listening.would_take(source, tsi) {
            return Opened::Other(self.on_foreign(now, source, tsi, true));
        }
        let is_stale = |cci: &[u8]| Cci::new(cci).is_ok_and(|cci| self.control.is_stale(now, &cci));
        if auth.session().is_some() && !auth.has_begun(channel) && is_stale(packet.cci()) {
            auth.on_stale_packet();
            return Opened::Unverified;
        }
        match auth.on_packet_from(now, channel, origin, opened.packet) {
            AuthVerdict::Verified | AuthVerdict::Unsigned => {
                opened.is_verified = !auth.is_unsigned();
                self.began.get_or_insert(now);
            }
            AuthVerdict::Rejected(Rejection::Malformed) => return Opened::Other(Classified::Malformed),
            AuthVerdict::Rejected(Rejection::Successor) => {
                return Opened::Other(self.on_foreign(now, source, tsi, true));
            }
            // A stranger's packet replaces no session.
            AuthVerdict::Rejected(Rejection::Foreign) => {
                return Opened::Other(self.on_foreign(now, source, tsi, false));
            }
            AuthVerdict::Waiting => {
                self.control.unverified(now, channel);
                return Opened::Unverified;
            }
            AuthVerdict::Rejected(reason) => {
                if reason == Rejection::Untrusted && !core::mem::replace(&mut self.has_told_untrusted, true) {
                    self.event(SessionEvent::Untrusted { tsi, source });
                }
                return Opened::Unverified;
            }
        }
        Opened::Packet(opened)
    }

    /// Handles timeouts of the authentication; [`Front::next_released`] follows.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        self.control.timeout(now);
        self.auth.iter_mut().for_each(|auth| auth.on_timeout(now));
    }

    /// Returns when [`Front::on_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let auth = self.auth.as_ref().and_then(|auth| auth.poll_timeout());
        self.control.poll_timeout().into_iter().chain(auth).min()
    }

    /// Copies the next packet that waited and can be admitted now into `bytes`, and returns the packet.
    pub(crate) fn next_released<'a>(&mut self, bytes: &'a mut Vec<u8>) -> Option<OpenedPacket<'a>> {
        let auth = self.auth.as_mut()?;
        let is_verified = !auth.is_unsigned();
        let released = auth.poll_released()?;
        bytes.clear();
        bytes.extend_from_slice(released.bytes);
        let (arrived, channel, origin) = (released.arrived, released.channel, released.origin);
        let is_before = self.began.is_none_or(|began| arrived < began);
        let timing = if is_before { Timing::Before } else { Timing::Late };
        Some(OpenedPacket { arrived, channel, origin, is_verified, timing, packet: bytes })
    }

    /// Takes the buffers for [`Front::next_released`] and [`Front::admit`].
    pub(crate) fn take_scratch(&mut self) -> Scratch {
        core::mem::take(&mut self.scratch)
    }

    /// Returns the buffers.
    #[inline]
    pub(crate) fn put_scratch(&mut self, scratch: Scratch) {
        self.scratch = scratch;
    }

    /// Passes a packet to the control and classifies the packet. A packet that waited arrives with the time
    /// of arrival, which may be earlier than the time of packets before. Encrypted content is decrypted into
    /// `plain`.
    pub(crate) fn admit<'a>(
        &mut self,
        now: Instant,
        opened: &OpenedPacket<'a>,
        plain: &'a mut Vec<u8>,
    ) -> Classified<'a> {
        let OpenedPacket { arrived, channel, origin, is_verified, timing, packet } = *opened;
        let Ok((header, payload)) = alc::parse(packet) else { return Classified::Malformed };
        let (tsi, Origin { source, ecn, bytes }) = (header.tsi, origin);
        match self.listening.hear(now, source, tsi, is_verified) {
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
        self.tell_authentication(tsi);
        let (levels, lateness) = (header.extensions.levels, header.extensions.lateness);
        // Of other channels, a packet that waited may be older than the last announcement.
        let is_latest = levels.is_some() && timing == Timing::InTime;
        if is_latest || (channel == ChannelId::BASE && timing != Timing::Before) {
            self.control.limited(now, levels);
        }
        let lateness = Duration::from_micros(lateness.map_or(0, |lateness| lateness.micros).into());
        let arrival = Arrival { source, channel, cci: &header.cci, ecn, bytes, lateness };
        match timing {
            Timing::InTime => self.control.arrived(arrived, &arrival),
            Timing::Late => self.control.arrived_late(arrived, &arrival),
            Timing::Before => {}
        }
        self.listening.close(header.close_session);
        if header.close_session
            && let Some(requester) = self.control.requester()
        {
            requester.on_close(now);
        }
        let public = self.auth.as_ref().and_then(|auth| auth.session()).map(|(public, ..)| public);
        match self.opener.open(public, &header, packet, payload, plain) {
            Ok(Ok((payload_id, symbols))) => Classified::Packet(alc::Repr { payload_id, ..header }, symbols),
            Ok(Err(_)) => Classified::Malformed,
            Err(reason) => {
                if !core::mem::replace(&mut self.has_told_unopened, true) {
                    self.event(SessionEvent::Unopened { tsi, reason });
                }
                Classified::Unopened
            }
        }
    }

    /// Reports the session's authentication once.
    fn tell_authentication(&mut self, tsi: u64) {
        let Some(auth) = self.auth.as_ref().filter(|_| !self.has_told) else { return };
        let event = match auth.session() {
            Some((&key, tsi, started)) => {
                SessionEvent::Verified { tsi, key, is_ephemeral: auth.is_ephemeral(), started }
            }
            None => SessionEvent::Unsigned { tsi },
        };
        self.has_told = true;
        self.event(event);
    }

    /// Reports the key that a verified sender announces.
    pub(crate) fn announce_next_key(&mut self, next_key: Option<PublicKey>) {
        let is_verified = self.auth.as_ref().is_some_and(|auth| auth.session().is_some());
        if let Some(key) = next_key.filter(|key| is_verified && self.next_key != Some(*key)) {
            self.next_key = Some(key);
            self.event(SessionEvent::NextKey { key });
        }
    }

    /// Handles a packet of another session, which may replace this session or not.
    fn on_foreign<'a>(
        &mut self,
        now: Instant,
        source: SocketAddr,
        tsi: u64,
        may_replace: bool,
    ) -> Classified<'a> {
        let (is_news, replaces) = self.listening.hear_other(now, source, tsi);
        let replaces = replaces && may_replace;
        if is_news {
            self.event(SessionEvent::Other { tsi, source });
        }
        Classified::Foreign(replaces.then_some((tsi, source)))
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
    #[inline]
    pub(crate) fn collect_memberships(&mut self) {
        while let Some(membership) = self.control.poll_membership() {
            if let Some(auth) = &mut self.auth {
                match membership {
                    Membership::Join(channel) => auth.join(channel),
                    Membership::Leave(channel) => auth.leave(channel),
                }
            }
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
    wanted: Wanted,
    session: Option<(IpAddr, u64)>,
    /// Source address of the session's first packet.
    sender: Option<SocketAddr>,
    /// Other sessions that were reported, at most [`OTHERS_MAX`].
    others: Vec<(IpAddr, u64)>,
    /// Whether a packet that closes the session arrived. The session ends only if silence follows: a corrupt
    /// or forged packet does not end a session that continues.
    is_closed: bool,
    last_heard: Instant,
    /// Source address of the session's last packet.
    source: Option<SocketAddr>,
    /// Arrival of the last packet from `sender`.
    sender_heard: Instant,
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
    /// Listens for the wanted session and source.
    pub(crate) fn new(wanted: Wanted, now: Instant) -> Self {
        let (session, sender, source, others) = (None, None, None, Vec::new());
        Self { wanted, session, sender, others, is_closed: false, last_heard: now, source, sender_heard: now }
    }

    /// Whether the session and the source are among those to receive.
    pub(crate) fn would_take(&self, source: SocketAddr, tsi: u64) -> bool {
        let Wanted { tsi: wanted, source: from, except } = self.wanted;
        wanted.is_none_or(|wanted| wanted == tsi)
            && except != Some(tsi)
            && from.is_none_or(|wanted| wanted == source.ip())
    }

    /// Records a packet and returns the session of the packet. A verified packet is of the session with any
    /// address: anybody can send a copy.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        source: SocketAddr,
        tsi: u64,
        is_verified: bool,
    ) -> SessionMatch {
        let this = (source.ip(), tsi);
        let is_ours = self.session.is_some_and(|session| session == this || is_verified && session.1 == tsi);
        if is_ours || (self.session.is_none() && self.would_take(source, tsi)) {
            let is_first = self.session.is_none();
            self.session.get_or_insert(this);
            let sender = *self.sender.get_or_insert(source);
            (self.last_heard, self.source) = (now, Some(source));
            if source == sender {
                self.sender_heard = now;
            }
            return SessionMatch::Ours { is_first };
        }
        let (is_news, replaces) = self.hear_other(now, source, tsi);
        SessionMatch::Other { is_news, replaces }
    }

    /// Records a packet of another session. Returns whether it is the first packet of that session, and
    /// whether the session replaces the received session, which is silent.
    pub(crate) fn hear_other(&mut self, now: Instant, source: SocketAddr, tsi: u64) -> (bool, bool) {
        let this = (source.ip(), tsi);
        let is_excepted = self.wanted.except == Some(tsi);
        if is_excepted && self.session.is_none() {
            self.last_heard = now;
        }
        let is_known = is_excepted || self.others.contains(&this);
        let is_news = self.others.len() < OTHERS_MAX && !is_known;
        if is_news {
            self.others.push(this);
        }
        let is_silent = self.session.is_some() && now >= self.last_heard + SILENCE;
        (is_news, is_silent && self.would_take(source, tsi))
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

    /// Returns since when neither the session nor, before a session is found, the excepted session is heard.
    pub(crate) fn quiet_since(&self) -> Instant {
        self.last_heard
    }

    /// Returns the source address of the session's first packet.
    pub(crate) fn sender(&self) -> Option<SocketAddr> {
        self.sender
    }

    /// Returns the address that sends the session now, if the address of the first packet has been silent for
    /// [`SILENCE`]: mostly, the sender was started again with the same identifier.
    pub(crate) fn restarted_at(&self, now: Instant) -> Option<SocketAddr> {
        self.source.filter(|source| Some(*source) != self.sender && now >= self.sender_heard + SILENCE)
    }

    /// Returns the time at which a closed session ends unless another packet arrives.
    pub(crate) fn close_deadline(&self) -> Option<Instant> {
        self.is_closed.then(|| self.last_heard + CLOSE_GRACE)
    }
}
