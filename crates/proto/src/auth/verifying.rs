//! The verifying front: stands before a receiver's control and decoder.

use headwater_wire::auth::{Authentication, SenderKey, Tag, manifest};
use headwater_wire::lct;

use super::Verifier;
use super::budget::{Budget, Interval};
use super::hash::{Message, PublicKey, SessionKeys, key_name};
use super::pass::{Reference, STEPS_MAX};
use super::tags::{TagState, Tags};
use super::waiting::{Dropped, Origin, UNSIGNED_TIME, WAITING_TIME, Waiting, WaitingState};
use super::window::{NumberUse, NumberWindow};
use crate::machine::ChannelId;
use crate::rng::Stream;
use crate::time::{Duration, Instant};

/// Most checks of a signature with a fitting pass for each number. Beyond, the budget decides.
const TRIES_MAX: u8 = 4;
/// Numbers below the highest number in which a manifest still counts: fewer manifests than the tags of a
/// generation belong to, so that a delayed manifest does not open a tag again.
const MANIFEST_NUMBERS: u32 = 8;

/// Silence after which a later session of the same key and identifier replaces the session: the sender
/// restarted.
const RESTART_SILENCE: Duration = Duration::from_secs(5);
/// Most checks of signed packets that waited for the session's key: 4 ms, once in a session.
const AGAIN_MAX: u32 = 128;

/// Configuration of a [`VerifyingFront`].
#[derive(Clone, Debug)]
pub struct VerifyingConfig {
    keys: Vec<PublicKey>,
    takes_first_key: bool,
    takes_unsigned: bool,
    channels: u16,
    started_min: u32,
    is_on_request: bool,
}

impl VerifyingConfig {
    /// Accepts sessions of the holders of these keys, on channels numbered below `channels`. A channel with
    /// manifests takes 19 kB.
    pub fn new(keys: Vec<PublicKey>, channels: u16) -> Self {
        Self {
            keys,
            takes_first_key: false,
            takes_unsigned: false,
            channels,
            started_min: 0,
            is_on_request: false,
        }
    }

    /// Sets whether to accept the first session that proves the key in its packets.
    /// Default: no.
    #[must_use]
    pub fn with_first_key(mut self, takes_first_key: bool) -> Self {
        self.takes_first_key = takes_first_key;
        self
    }

    /// Sets whether to accept an unsigned session, if no packet has been verified within
    /// [`UNSIGNED_TIME`](super::UNSIGNED_TIME) from the first unsigned packet on. Default: no.
    #[must_use]
    pub fn with_unsigned(mut self, takes_unsigned: bool) -> Self {
        self.takes_unsigned = takes_unsigned;
        self
    }

    /// Refuses sessions that started earlier, in seconds of the NTP era. Default: none.
    #[must_use]
    pub fn with_started_min(mut self, started_min: u32) -> Self {
        self.started_min = started_min;
        self
    }

    /// Configures packets sent on request (BCFS): the CCI counts as zero, and signatures carry no pass.
    #[must_use]
    pub fn with_request(mut self, is_on_request: bool) -> Self {
        self.is_on_request = is_on_request;
        self
    }
}

/// Reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// No LCT packet of a known form.
    Malformed,
    /// Packet of another session of a trusted sender.
    Foreign,
    /// Wrong signature, or no packet of the tree whose number the packet claims.
    Forged,
    /// No manifest listed the packet in time.
    Unlisted,
    /// The packet had come before, or is too old.
    Replayed,
    /// Signed with a key that is not trusted.
    Untrusted,
    /// The signature was not checked, for lack of budget.
    OverBudget,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthVerdict {
    /// The packet is genuine and new.
    Verified,
    /// The session is unsigned, and the configuration accepts unsigned sessions.
    Unsigned,
    /// The packet waits for a manifest. [`VerifyingFront::poll_released`] returns it later, or a counter
    /// counts it.
    Waiting,
    /// The packet was dropped and counted.
    Rejected(Rejection),
}

/// Packets by their end: each packet is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthCounters {
    /// Genuine packets, manifests included.
    pub verified: u64,
    /// Packets of a session that is received unsigned.
    pub unsigned: u64,
    /// See [`Rejection::Malformed`].
    pub malformed: u64,
    /// See [`Rejection::Foreign`].
    pub foreign: u64,
    /// See [`Rejection::Forged`].
    pub forged: u64,
    /// See [`Rejection::Unlisted`].
    pub unlisted: u64,
    /// See [`Rejection::Replayed`].
    pub replayed: u64,
    /// See [`Rejection::Untrusted`].
    pub untrusted: u64,
    /// See [`Rejection::OverBudget`].
    pub over_budget: u64,
}

/// Packet that waited and is verified now.
#[derive(Clone, Copy, Debug)]
pub struct Released<'a> {
    /// Channel of the packet.
    pub channel: ChannelId,
    /// Time of arrival, earlier than the time of release.
    pub arrived: Instant,
    /// Datagram of the packet.
    pub origin: Origin,
    /// The packet.
    pub bytes: &'a [u8],
}

/// Session of the first verified packet.
#[derive(Debug)]
struct Session {
    key: PublicKey,
    is_ephemeral: bool,
    key_name: [u8; 4],
    tsi: u64,
    started: u32,
    keys: SessionKeys,
}

/// Parts of a signed packet.
struct Signed<'a> {
    tsi: u64,
    packet: &'a lct::Packet<&'a [u8]>,
    bytes: &'a [u8],
    auth: &'a Authentication,
    range: core::ops::Range<usize>,
    key: Option<SenderKey>,
    is_manifest: bool,
}

/// State of a channel.
#[derive(Debug)]
struct Channel {
    is_joined: bool,
    tags: Option<Box<Tags>>,
    numbers: NumberWindow,
    reference: Option<Reference>,
    /// Failed checks of each of the numbers above the reference, by the number's remainder.
    tries: [u8; STEPS_MAX as usize],
}

impl Channel {
    fn new() -> Self {
        let tries = [0; STEPS_MAX as usize];
        Self { is_joined: false, tags: None, numbers: NumberWindow::new(), reference: None, tries }
    }

    fn advance(&mut self, later: Reference) {
        let before = self.reference.map_or(0, |reference| reference.number);
        if later.number > before {
            for number in (before + 1..=later.number).rev().take(STEPS_MAX as usize) {
                self.tries[(number % STEPS_MAX) as usize] = 0;
            }
            self.reference = Some(later);
        }
    }
}

/// Verifies each packet before a control or a decoder sees the packet.
///
/// Pass each datagram to [`VerifyingFront::on_packet`], then drain [`VerifyingFront::poll_released`]. Memory:
/// [`WAITING_BYTES_MAX`](super::WAITING_BYTES_MAX), and 19 kB for each channel with manifests.
#[derive(Debug)]
pub struct VerifyingFront<V> {
    verifier: V,
    config: VerifyingConfig,
    session: Option<Session>,
    /// Identifier of the first unsigned session heard, and the time of the first packet.
    unsigned: Option<(u64, Instant)>,
    /// Whether an unsigned session is received.
    is_unsigned: bool,
    /// Identifier of the last signed session heard.
    signed: Option<u64>,
    channels: Vec<Option<Box<Channel>>>,
    /// Joined channels without a verified signature.
    unproven: usize,
    waiting: Waiting,
    budget: Budget,
    failures: Budget,
    counters: AuthCounters,
    last_verified: Instant,
    checks: u64,
}

impl<V: Verifier> VerifyingFront<V> {
    /// Creates a front that has heard nothing.
    pub fn new(config: VerifyingConfig, verifier: V, rng: Stream) -> Self {
        let channels = (0..config.channels).map(|_| None).collect();
        Self {
            verifier,
            config,
            session: None,
            unsigned: None,
            is_unsigned: false,
            signed: None,
            channels,
            unproven: 0,
            waiting: Waiting::default(),
            budget: Budget::new(rng.clone()),
            failures: Budget::new(rng),
            counters: AuthCounters::default(),
            last_verified: Instant::ZERO,
            checks: 0,
        }
    }

    /// Records that a channel was joined. Packets of a channel that was never joined are dropped as unlisted.
    pub fn join(&mut self, channel: ChannelId) {
        let Some(place) = self.channels.get_mut(usize::from(channel.0)) else { return };
        let channel = place.get_or_insert_with(|| Box::new(Channel::new()));
        self.unproven += usize::from(!channel.is_joined && channel.reference.is_none());
        channel.is_joined = true;
    }

    /// Records that a channel was left. Numbers are kept, so that a packet does not count twice after another
    /// join.
    pub fn leave(&mut self, channel: ChannelId) {
        if let Some(channel) = self.channel(channel) {
            let was_unproven = channel.is_joined && channel.reference.is_none();
            channel.is_joined = false;
            self.unproven -= usize::from(was_unproven);
        }
    }

    /// Returns the packets by their end so far.
    pub fn counters(&self) -> AuthCounters {
        self.counters
    }

    /// Returns the number of signatures checked so far.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// Returns the sender's key, the session's identifier and its start; `None` before the first verified
    /// packet.
    pub fn session(&self) -> Option<(&PublicKey, u64, u32)> {
        self.session.as_ref().map(|session| (&session.key, session.tsi, session.started))
    }

    /// Whether the sender's key is made for this session alone.
    pub fn is_ephemeral(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_ephemeral)
    }

    /// Whether an unsigned session is received.
    pub fn is_unsigned(&self) -> bool {
        self.is_unsigned
    }

    /// Number of packets that wait.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Handles a packet from the network.
    pub fn on_packet(&mut self, now: Instant, channel: ChannelId, bytes: &[u8]) -> AuthVerdict {
        self.on_packet_from(now, channel, Origin::default(), bytes)
    }

    /// Handles a packet that came in this datagram.
    pub fn on_packet_from(
        &mut self,
        now: Instant,
        channel: ChannelId,
        origin: Origin,
        bytes: &[u8],
    ) -> AuthVerdict {
        self.on_timeout(now);
        let verdict = self.judge(now, channel, origin, bytes);
        match verdict {
            AuthVerdict::Verified => {
                self.counters.verified += 1;
                self.last_verified = now;
            }
            AuthVerdict::Unsigned => self.counters.unsigned += 1,
            AuthVerdict::Waiting => {}
            AuthVerdict::Rejected(reason) => *self.counter(reason) += 1,
        }
        verdict
    }

    /// Drops packets that waited too long, and decides on an unsigned session.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.session.is_none()
            && !self.is_unsigned
            && let Some((tsi, _)) = self.unsigned.filter(|(_, since)| *since + UNSIGNED_TIME <= now)
        {
            self.is_unsigned = true;
            self.waiting.visit(|waiting, bytes| {
                let packet = lct::Packet::new_checked(bytes).ok();
                let is_of_session = packet.and_then(|packet| packet.tsi()) == Some(tsi);
                if waiting.state == WaitingState::Waiting && is_of_session {
                    waiting.state = WaitingState::Verified;
                }
            });
        }
        let dropped = self.waiting.expire(now, self.waiting_time());
        self.count_dropped(dropped);
    }

    /// Returns when [`VerifyingFront::on_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let is_undecided = self.session.is_none() && !self.is_unsigned;
        let unsigned = self.unsigned.filter(|_| is_undecided).map(|(_, since)| since + UNSIGNED_TIME);
        self.waiting.deadline(self.waiting_time()).into_iter().chain(unsigned).min()
    }

    /// Longest wait of a packet: while the session's key is unknown, packets wait for the key.
    fn waiting_time(&self) -> Duration {
        if self.session.is_none() && self.config.takes_first_key {
            UNSIGNED_TIME + WAITING_TIME
        } else {
            WAITING_TIME
        }
    }

    /// Returns the next packet that waited and may be used now, in order of arrival.
    pub fn poll_released(&mut self) -> Option<Released<'_>> {
        let (packet, bytes) = self.waiting.take()?;
        if self.is_unsigned {
            self.counters.unsigned += 1;
        } else {
            self.counters.verified += 1;
        }
        Some(Released { channel: packet.channel, arrived: packet.arrived, origin: packet.origin, bytes })
    }

    /// Returns the bytes of memory that packets can move: the waiting packets and the channels.
    pub fn memory_bytes(&self) -> usize {
        let channel_bytes = |channel: &Channel| {
            size_of::<Channel>() + channel.tags.as_ref().map_or(0, |tags| tags.memory_bytes())
        };
        self.waiting.memory_bytes()
            + self.channels.iter().flatten().map(|one| channel_bytes(one)).sum::<usize>()
    }

    fn counter(&mut self, reason: Rejection) -> &mut u64 {
        match reason {
            Rejection::Malformed => &mut self.counters.malformed,
            Rejection::Foreign => &mut self.counters.foreign,
            Rejection::Forged => &mut self.counters.forged,
            Rejection::Unlisted => &mut self.counters.unlisted,
            Rejection::Replayed => &mut self.counters.replayed,
            Rejection::Untrusted => &mut self.counters.untrusted,
            Rejection::OverBudget => &mut self.counters.over_budget,
        }
    }

    fn channel(&mut self, channel: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(usize::from(channel.0))?.as_deref_mut()
    }

    fn count_dropped(&mut self, dropped: Dropped) {
        self.counters.unlisted += dropped.unlisted;
        self.counters.untrusted += dropped.untrusted;
    }

    fn judge(&mut self, now: Instant, channel: ChannelId, origin: Origin, bytes: &[u8]) -> AuthVerdict {
        let malformed = AuthVerdict::Rejected(Rejection::Malformed);
        let Ok(packet) = lct::Packet::new_checked(bytes) else { return malformed };
        if self.is_unsigned {
            return AuthVerdict::Unsigned;
        }
        let (Ok(auth), Some(tsi)) = (Authentication::find(&packet), packet.tsi()) else { return malformed };
        if self.session.as_ref().is_some_and(|session| session.tsi != tsi) {
            return AuthVerdict::Rejected(Rejection::Foreign);
        }
        let Some((auth, range)) = auth else {
            self.hear_unsigned(now, tsi);
            return self.judge_listed(now, channel, origin, &packet, bytes);
        };
        let (Ok(tags), Ok(key)) = (manifest(&packet), SenderKey::find(&packet)) else { return malformed };
        if auth.number == 0 {
            return malformed;
        }
        self.hear_signed(tsi);
        let had_session = self.session.is_some();
        let parts =
            Signed { tsi, packet: &packet, bytes, auth: &auth, range, key, is_manifest: tags.is_some() };
        match self.judge_signed(now, channel, &parts) {
            Ok(()) => {
                self.open_tags(channel, tags.unwrap_or_default());
                if !had_session {
                    self.judge_again(now);
                }
                AuthVerdict::Verified
            }
            // The key may be on its way.
            Err(Rejection::Untrusted) if !had_session && self.config.takes_first_key && key.is_none() => {
                let dropped = self.waiting.push(channel, now, origin, None, true, bytes);
                self.count_dropped(dropped);
                AuthVerdict::Waiting
            }
            Err(reason) => AuthVerdict::Rejected(reason),
        }
    }

    fn hear_unsigned(&mut self, now: Instant, tsi: u64) {
        if self.config.takes_unsigned && self.session.is_none() && self.signed != Some(tsi) {
            self.unsigned.get_or_insert((tsi, now));
        }
    }

    /// Records a signed session: packets of the session without a signature are no unsigned session.
    fn hear_signed(&mut self, tsi: u64) {
        self.signed = Some(tsi);
        if self.unsigned.is_some_and(|(unsigned, _)| unsigned == tsi) {
            self.unsigned = None;
        }
    }

    /// Judges the signed packets that waited for the session's key: once in a session, and at most
    /// [`AGAIN_MAX`] beside the budget.
    fn judge_again(&mut self, now: Instant) {
        let mut from = 0;
        self.budget.grant(AGAIN_MAX);
        while let Some((index, waiting, bytes)) = self.waiting.signed(from) {
            let (bytes, channel) = (bytes.to_vec(), waiting.channel);
            from = index + 1;
            let Ok(packet) = lct::Packet::new_checked(bytes.as_slice()) else { continue };
            let (Ok(Some((auth, range))), Some(tsi)) = (Authentication::find(&packet), packet.tsi()) else {
                continue;
            };
            let tags = manifest(&packet).ok().flatten();
            let is_ours = self.session.as_ref().is_some_and(|session| session.tsi == tsi);
            // No tag has been dropped yet, so that no late manifest opens a tag again.
            let parts = Signed {
                tsi,
                packet: &packet,
                bytes: &bytes,
                auth: &auth,
                range,
                key: None,
                is_manifest: false,
            };
            let judged =
                if is_ours { self.judge_signed(now, channel, &parts) } else { Err(Rejection::Foreign) };
            match judged {
                Ok(()) => self.open_tags(channel, tags.unwrap_or_default()),
                Err(reason) => *self.counter(reason) += 1,
            }
            self.waiting.settle(index, judged.is_ok());
        }
    }

    fn judge_listed(
        &mut self,
        now: Instant,
        channel: ChannelId,
        origin: Origin,
        packet: &lct::Packet<&[u8]>,
        bytes: &[u8],
    ) -> AuthVerdict {
        let tag = self.session.as_ref().map(|session| session.keys.tag(packet, bytes));
        let Some(known) = self.channel(channel) else { return AuthVerdict::Rejected(Rejection::Unlisted) };
        match known.tags.as_mut().zip(tag).map_or(TagState::Unlisted, |(tags, tag)| tags.see(&tag)) {
            TagState::Open => AuthVerdict::Verified,
            TagState::Seen => AuthVerdict::Rejected(Rejection::Replayed),
            TagState::Unlisted => {
                let dropped = self.waiting.push(channel, now, origin, tag, false, bytes);
                self.count_dropped(dropped);
                AuthVerdict::Waiting
            }
        }
    }

    fn judge_signed(&mut self, now: Instant, id: ChannelId, signed: &Signed<'_>) -> Result<(), Rejection> {
        let Signed { packet, bytes, auth, ref range, is_manifest, .. } = *signed;
        let candidate = self.candidate(now, signed)?;
        let keys = match (&self.session, &candidate) {
            (_, Some(session)) | (Some(session), None) => session.keys,
            (None, None) => return Err(Rejection::Untrusted),
        };
        let is_open = self.config.is_on_request || self.unproven > 0;
        let channel = self.channels.get_mut(usize::from(id.0)).and_then(Option::as_deref_mut);
        let channel = channel.ok_or(Rejection::Unlisted)?;
        if is_manifest
            && candidate.is_none()
            && channel.numbers.highest().saturating_sub(auth.number) >= MANIFEST_NUMBERS
        {
            return Err(Rejection::Replayed);
        }
        let message = Message::of(id, auth, &keys.digest(bytes, packet.cci_range(), range.clone()));
        let restarts = candidate.is_some() && self.session.is_some();
        let is_new = self.config.is_on_request || restarts;
        let number_use = if is_new { NumberUse::New } else { channel.numbers.classify(auth, &message) };
        match number_use {
            NumberUse::Replay => return Err(Rejection::Replayed),
            NumberUse::Contradiction => return Err(Rejection::Forged),
            NumberUse::Leaf => {
                channel.numbers.record(auth, &message);
                return Ok(());
            }
            NumberUse::New => {}
        }
        let later = Reference { number: auth.number, pass: auth.pass, next_pass: auth.next_pass };
        let tries = &mut channel.tries[(auth.number % STEPS_MAX) as usize];
        let fits = !restarts
            && channel.reference.is_some_and(|reference| reference.fits(&keys, id, &later))
            && (*tries < TRIES_MAX || self.failures.has(now, Interval::Fitting));
        if !fits && !self.budget.take(now, if is_open { Interval::Open } else { Interval::Narrow }) {
            return Err(Rejection::OverBudget);
        }
        self.checks += 1;
        let session = candidate.as_ref().or(self.session.as_ref()).ok_or(Rejection::Untrusted)?;
        if !self.verifier.verify(&session.key, message.as_bytes(), &auth.signature) {
            if fits && *tries >= TRIES_MAX {
                self.failures.take(now, Interval::Fitting);
            }
            *tries = tries.saturating_add(u8::from(fits));
            return Err(Rejection::Forged);
        }
        if restarts {
            self.forget_channels();
        }
        if let Some(session) = candidate {
            self.begin(session);
        }
        if !self.config.is_on_request
            && let Some(channel) = self.channels[usize::from(id.0)].as_deref_mut()
        {
            channel.numbers.record(auth, &message);
            self.unproven -= usize::from(channel.is_joined && channel.reference.is_none());
            channel.advance(later);
        }
        Ok(())
    }

    /// Forgets numbers and tags of an earlier session.
    fn forget_channels(&mut self) {
        self.unproven = 0;
        for channel in self.channels.iter_mut().flatten() {
            **channel = Channel { is_joined: channel.is_joined, ..Channel::new() };
            self.unproven += usize::from(channel.is_joined);
        }
    }

    /// Checks key and start of a signed packet. Returns the session that the packet would begin, if no
    /// session has begun.
    fn candidate(&self, now: Instant, signed: &Signed<'_>) -> Result<Option<Session>, Rejection> {
        let Signed { tsi, auth, key: carried, .. } = *signed;
        if let Some(session) = &self.session {
            return match auth.started.cmp(&session.started) {
                _ if auth.key != session.key_name => Err(Rejection::Untrusted),
                core::cmp::Ordering::Less => Err(Rejection::Replayed),
                core::cmp::Ordering::Greater if now >= self.last_verified + RESTART_SILENCE => {
                    let (key, started) = (session.key, auth.started);
                    let keys = SessionKeys::new(&key, tsi, started, self.config.is_on_request);
                    Ok(Some(Session { started, keys, ..*session }))
                }
                core::cmp::Ordering::Greater => Err(Rejection::Foreign),
                core::cmp::Ordering::Equal => Ok(None),
            };
        }
        let trusted = self.config.keys.iter().copied().find(|key| key_name(key) == auth.key);
        let first = carried.filter(|key| self.config.takes_first_key && key_name(&key.public) == auth.key);
        let key = trusted.or(first.map(|key| key.public)).ok_or(Rejection::Untrusted)?;
        if auth.started < self.config.started_min {
            return Err(Rejection::Replayed);
        }
        let is_ephemeral = carried.is_some_and(|key| key.is_ephemeral);
        let keys = SessionKeys::new(&key, tsi, auth.started, self.config.is_on_request);
        Ok(Some(Session { key, is_ephemeral, key_name: auth.key, tsi, started: auth.started, keys }))
    }

    /// Begins the session of the first verified packet: waiting packets get their tags.
    fn begin(&mut self, session: Session) {
        self.waiting.visit(|waiting, bytes| {
            if let Ok(packet) = lct::Packet::new_checked(bytes) {
                let is_of_session = packet.tsi() == Some(session.tsi) && !waiting.is_signed;
                waiting.tag = is_of_session.then(|| session.keys.tag(&packet, bytes));
            }
        });
        self.session = Some(session);
    }

    fn open_tags(&mut self, id: ChannelId, listed: &[Tag]) {
        if listed.is_empty() {
            return;
        }
        let Some(channel) = self.channels[usize::from(id.0)].as_deref_mut() else { return };
        let tags = channel.tags.get_or_insert_with(|| Box::new(Tags::new()));
        listed.iter().for_each(|&tag| tags.open(tag));
        let mut replayed = 0;
        self.waiting.visit(|packet, _| {
            let Some(tag) = packet.tag else { return };
            if packet.channel != id || packet.state != WaitingState::Waiting {
                return;
            }
            match tags.see(&tag) {
                TagState::Unlisted => {}
                TagState::Open => packet.state = WaitingState::Verified,
                TagState::Seen => {
                    packet.state = WaitingState::Done;
                    replayed += 1;
                }
            }
        });
        self.counters.replayed += replayed;
    }
}
