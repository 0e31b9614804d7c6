//! The verifying front: stands before a receiver's control and decoder.

use headwater_wire::auth::{Authentication, SenderKey, Tag, manifest};
use headwater_wire::lct;

use super::Verifier;
use super::budget::{Budget, Sample, SampledPacket};
use super::hash::{Message, PublicKey, SessionKeys, key_name};
use super::pass::{Reference, STEPS_MAX};
use super::tags::{TagState, Tags};
use super::verdict::{AuthCounters, AuthVerdict, Rejection, Released};
use super::waiting::{Dropped, Origin, UNSIGNED_TIME, WAITING_TIME, Waiting, WaitingState};
use super::window::{NumberUse, NumberWindow};
use crate::machine::ChannelId;
use crate::rng::Stream;
use crate::time::{Duration, Instant};

/// Most failed checks of signatures with a fitting pass for each number. Beyond, the pass does not count.
const TRIES_MAX: u8 = 4;
/// Time without a verified signature after which a joined channel counts as without any: a receiver that was
/// cut off for longer than [`STEPS_MAX`] signatures knows no fitting pass.
const PROVEN_TIME: Duration = Duration::from_secs(1);
/// Numbers below the highest number in which a manifest still counts: fewer manifests than the tags of a
/// generation belong to, so that a delayed manifest does not open a tag again.
const MANIFEST_NUMBERS: u32 = 8;

/// Silence after which a later session of an accepted key replaces the session: mostly, the sender restarted.
const RESTART_SILENCE: Duration = Duration::from_secs(5);
/// Most checks of signed packets that waited for the session's key: 4 ms, once in a session.
const AGAIN_MAX: usize = 128;
/// Unsigned packets of a session, without a signed one among them, that prove the session unsigned: of a
/// signed session, 20 manifests would be lost in a row.
const UNSIGNED_PACKETS: u32 = 512;

/// Configuration of a [`VerifyingFront`].
#[derive(Clone, Debug)]
pub struct VerifyingConfig {
    /// Accepted keys, each with the earliest start of a session.
    keys: Vec<(PublicKey, u32)>,
    takes_first_key: bool,
    takes_unsigned: bool,
    channels: u16,
    is_on_request: bool,
}

impl VerifyingConfig {
    /// Accepts sessions of the holders of these keys, on channels numbered below `channels`. A channel with
    /// manifests takes 19 kB.
    pub fn new(keys: Vec<PublicKey>, channels: u16) -> Self {
        let keys = keys.into_iter().map(|key| (key, 0)).collect();
        Self { keys, takes_first_key: false, takes_unsigned: false, channels, is_on_request: false }
    }

    /// Sets whether to accept the first session that proves the key in its packets.
    /// Default: no.
    #[must_use]
    pub fn with_first_key(mut self, takes_first_key: bool) -> Self {
        self.takes_first_key = takes_first_key;
        self
    }

    /// Sets whether to accept an unsigned session, if no packet has been verified within
    /// [`UNSIGNED_TIME`](super::UNSIGNED_TIME) from the first unsigned packet on, or within the session's
    /// first 512 packets. Default: no.
    #[must_use]
    pub fn with_unsigned(mut self, takes_unsigned: bool) -> Self {
        self.takes_unsigned = takes_unsigned;
        self
    }

    /// Refuses sessions of `key` that started earlier, in seconds of the NTP era. Default: none.
    #[must_use]
    pub fn with_started_min(mut self, key: &PublicKey, started_min: u32) -> Self {
        for (_, least) in self.keys.iter_mut().filter(|(known, _)| known == key) {
            *least = started_min;
        }
        self
    }

    /// Configures packets sent on request (BCFS): the CCI counts as zero, and signatures carry no pass.
    #[must_use]
    pub fn with_request(mut self, is_on_request: bool) -> Self {
        self.is_on_request = is_on_request;
        self
    }
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

impl Session {
    /// Creates the session that a packet would begin.
    fn new((key, is_ephemeral): (PublicKey, bool), signed: &Signed<'_>, is_on_request: bool) -> Self {
        let Signed { tsi, auth, .. } = *signed;
        let keys = SessionKeys::new(&key, tsi, auth.started, is_on_request);
        Self { key, is_ephemeral, key_name: auth.key, tsi, started: auth.started, keys }
    }
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
    /// Whether the signature may be checked beside the budget.
    is_granted: bool,
}

/// First unsigned session heard.
#[derive(Clone, Copy, Debug)]
struct UnsignedSession {
    tsi: u64,
    since: Instant,
    packets: u32,
}

/// State of a channel.
#[derive(Debug)]
struct Channel {
    is_joined: bool,
    /// Whether a packet has been verified since the join.
    has_begun: bool,
    tags: Option<Box<Tags>>,
    numbers: NumberWindow,
    reference: Option<Reference>,
    /// Time of the last verified signature.
    proven: Option<Instant>,
    /// Failed checks of each of the numbers above the reference, by the number's remainder.
    tries: [u8; STEPS_MAX as usize],
}

impl Channel {
    fn new() -> Self {
        let tries = [0; STEPS_MAX as usize];
        let (tags, reference, proven) = (None, None, None);
        let (is_joined, has_begun) = (false, false);
        Self { is_joined, has_begun, tags, numbers: NumberWindow::new(), reference, proven, tries }
    }

    /// Whether the channel is joined, and no signature has been verified for some time.
    fn is_unproven(&self, now: Instant) -> bool {
        self.is_joined && self.proven.is_none_or(|at| now >= at + PROVEN_TIME)
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
/// [`WAITING_BYTES_MAX`](super::WAITING_BYTES_MAX), 1.8 MB of signed packets beyond the budget, and 19 kB for
/// each channel with manifests.
#[derive(Debug)]
pub struct VerifyingFront<V> {
    verifier: V,
    config: VerifyingConfig,
    session: Option<Session>,
    /// Identifier of a verified session that may replace the silent session.
    successor: Option<u64>,
    unsigned: Option<UnsignedSession>,
    /// Whether an unsigned session is received.
    is_unsigned: bool,
    /// Identifier of the last signed session heard.
    signed: Option<u64>,
    channels: Vec<Option<Box<Channel>>>,
    waiting: Waiting,
    budget: Budget,
    sample: Sample,
    counters: AuthCounters,
    last_verified: Instant,
    checks: u64,
}

impl<V: Verifier> VerifyingFront<V> {
    /// Creates a front that has heard nothing.
    pub fn new(config: VerifyingConfig, verifier: V, rng: Stream) -> Self {
        let channels = (0..config.channels).map(|_| None).collect();
        Self {
            budget: Budget::new(config.is_on_request),
            sample: Sample::new(rng),
            verifier,
            config,
            session: None,
            successor: None,
            unsigned: None,
            is_unsigned: false,
            signed: None,
            channels,
            waiting: Waiting::default(),
            counters: AuthCounters::default(),
            last_verified: Instant::ZERO,
            checks: 0,
        }
    }

    /// Records that a channel was joined. Packets of a channel that was never joined are dropped as unlisted.
    pub fn join(&mut self, channel: ChannelId) {
        let Some(place) = self.channels.get_mut(usize::from(channel.0)) else { return };
        let channel = place.get_or_insert_with(|| Box::new(Channel::new()));
        (channel.is_joined, channel.has_begun) = (true, false);
    }

    /// Whether a packet has been verified on a channel since the channel's join. Until then, the age of a
    /// packet tells a replay from before the join. Later, a replay is behind the packets that have come, and
    /// the age tells nothing: a host that is late reads the packets of several channels out of order.
    pub fn has_begun(&self, channel: ChannelId) -> bool {
        self.channels
            .get(usize::from(channel.0))
            .is_some_and(|place| place.as_ref().is_some_and(|channel| channel.has_begun))
    }

    /// Records that a channel was left. Numbers are kept, so that a packet does not count twice after another
    /// join.
    pub fn leave(&mut self, channel: ChannelId) {
        if let Some(channel) = self.channel(channel) {
            channel.is_joined = false;
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
        (self.waiting.len() + self.sample.len()) as u64
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
        let verdict = self.judge(now, channel, origin, bytes, false);
        match verdict {
            AuthVerdict::Verified => {
                self.counters.verified += 1;
                self.last_verified = now;
                if let Some(channel) = self.channel(channel) {
                    channel.has_begun = true;
                }
            }
            AuthVerdict::Unsigned => self.counters.unsigned += 1,
            AuthVerdict::Waiting => {}
            AuthVerdict::Rejected(reason) => *self.counter(reason) += 1,
        }
        verdict
    }

    /// Counts a packet that left long before other packets of the session: a replay.
    pub fn on_stale_packet(&mut self) {
        self.counters.replayed += 1;
    }

    /// Drops packets that waited too long, checks a sample of the signatures beyond the budget, and decides
    /// on an unsigned session.
    pub fn on_timeout(&mut self, now: Instant) {
        for sampled in self.sample.take(now) {
            self.judge_sampled(now, &sampled);
        }
        let is_due = |unsigned: &UnsignedSession| {
            unsigned.since + UNSIGNED_TIME <= now || unsigned.packets >= UNSIGNED_PACKETS
        };
        if self.session.is_none()
            && !self.is_unsigned
            && let Some(UnsignedSession { tsi, .. }) = self.unsigned.filter(is_due)
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
        let unsigned = self.unsigned.filter(|_| is_undecided).map(|unsigned| unsigned.since + UNSIGNED_TIME);
        let waiting = self.waiting.deadline(self.waiting_time());
        waiting.into_iter().chain(unsigned).chain(self.sample.deadline()).min()
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
            let channel = self.channels.get_mut(usize::from(packet.channel.0));
            if let Some(channel) = channel.and_then(Option::as_deref_mut) {
                channel.has_begun = true;
            }
        }
        Some(Released { channel: packet.channel, arrived: packet.arrived, origin: packet.origin, bytes })
    }

    /// Returns the bytes of memory that packets can move: the waiting packets, the sample, and the channels.
    pub fn memory_bytes(&self) -> usize {
        let channel_bytes = |channel: &Channel| {
            size_of::<Channel>() + channel.tags.as_ref().map_or(0, |tags| tags.memory_bytes())
        };
        self.waiting.memory_bytes()
            + self.sample.memory_bytes()
            + self.channels.iter().flatten().map(|one| channel_bytes(one)).sum::<usize>()
    }

    fn counter(&mut self, reason: Rejection) -> &mut u64 {
        match reason {
            Rejection::Malformed => &mut self.counters.malformed,
            Rejection::Foreign | Rejection::Successor => &mut self.counters.foreign,
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

    fn judge(
        &mut self,
        now: Instant,
        channel: ChannelId,
        origin: Origin,
        bytes: &[u8],
        is_granted: bool,
    ) -> AuthVerdict {
        let malformed = AuthVerdict::Rejected(Rejection::Malformed);
        let Ok(packet) = lct::Packet::new_checked(bytes) else { return malformed };
        if self.is_unsigned {
            return AuthVerdict::Unsigned;
        }
        let (Ok(auth), Some(tsi)) = (Authentication::find(&packet), packet.tsi()) else { return malformed };
        let is_foreign = self.session.as_ref().is_some_and(|session| session.tsi != tsi);
        if is_foreign && self.successor == Some(tsi) {
            return AuthVerdict::Rejected(Rejection::Successor);
        }
        if is_foreign && (auth.is_none() || now < self.last_verified + RESTART_SILENCE) {
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
        let is_manifest = tags.is_some();
        let parts = Signed { tsi, packet: &packet, bytes, auth: &auth, range, key, is_manifest, is_granted };
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
            Err(Rejection::OverBudget) => {
                let is_open = || self.channels.iter().flatten().any(|channel| channel.is_unproven(now));
                let is_dropped = self.sample.offer(is_open, now, (channel, origin, bytes));
                self.counters.over_budget += u64::from(is_dropped);
                AuthVerdict::Waiting
            }
            Err(reason) => AuthVerdict::Rejected(reason),
        }
    }

    /// Judges a packet of the sample.
    fn judge_sampled(&mut self, now: Instant, sampled: &SampledPacket) {
        let SampledPacket { channel, arrived, origin, ref bytes } = *sampled;
        match self.judge(now, channel, origin, bytes, true) {
            AuthVerdict::Verified | AuthVerdict::Unsigned => {
                self.last_verified = now;
                let dropped = self.waiting.push_verified(channel, arrived, origin, bytes);
                self.count_dropped(dropped);
            }
            AuthVerdict::Rejected(reason) => *self.counter(reason) += 1,
            AuthVerdict::Waiting => {}
        }
    }

    fn hear_unsigned(&mut self, now: Instant, tsi: u64) {
        if self.config.takes_unsigned && self.session.is_none() && self.signed != Some(tsi) {
            let first = UnsignedSession { tsi, since: now, packets: 0 };
            let unsigned = self.unsigned.get_or_insert(first);
            unsigned.packets += u32::from(unsigned.tsi == tsi);
        }
    }

    /// Records a signed session: packets of the session without a signature are no unsigned session.
    fn hear_signed(&mut self, tsi: u64) {
        self.signed = Some(tsi);
        if self.unsigned.is_some_and(|unsigned| unsigned.tsi == tsi) {
            self.unsigned = None;
        }
    }

    /// Judges the signed packets that waited for the session's key: once in a session, and at most
    /// [`AGAIN_MAX`] beside the budget.
    fn judge_again(&mut self, now: Instant) {
        let (mut from, mut judged_before) = (0, 0);
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
                is_granted: judged_before < AGAIN_MAX,
            };
            judged_before += 1;
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
        let Signed { packet, bytes, auth, ref range, is_manifest, is_granted, .. } = *signed;
        let candidate = self.candidate(now, signed)?;
        let channel = self.channels.get_mut(usize::from(id.0)).and_then(Option::as_deref_mut);
        let channel = channel.ok_or(Rejection::Unlisted)?;
        // No pass fits. The budget comes before any hash.
        if candidate.is_some() && !is_granted && !self.budget.take(now) {
            return Err(Rejection::OverBudget);
        }
        let candidate = candidate.map(|key| Session::new(key, signed, self.config.is_on_request));
        let session = candidate.as_ref().or(self.session.as_ref()).ok_or(Rejection::Untrusted)?;
        let keys = &session.keys;
        if is_manifest
            && candidate.is_none()
            && channel.numbers.highest().saturating_sub(auth.number) >= MANIFEST_NUMBERS
        {
            return Err(Rejection::Replayed);
        }
        let message = Message::of(id, auth, &keys.digest(packet, bytes, range.clone()));
        let restarts = candidate.is_some() && self.session.is_some();
        let number_use = if restarts {
            NumberUse::New
        } else if !self.config.is_on_request {
            channel.numbers.classify(auth, &message)
        } else if channel.numbers.is_leaf(auth, &message) {
            return Ok(());
        } else {
            NumberUse::New
        };
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
            && *tries < TRIES_MAX
            && channel.reference.is_some_and(|reference| reference.fits(keys, id, &later));
        if candidate.is_none() && !fits && !is_granted && !self.budget.take(now) {
            return Err(Rejection::OverBudget);
        }
        self.checks += 1;
        if !self.verifier.verify(&session.key, message.as_bytes(), &auth.signature) {
            *tries += u8::from(fits);
            return Err(Rejection::Forged);
        }
        if self.session.as_ref().is_some_and(|session| session.tsi != signed.tsi) {
            self.successor = Some(signed.tsi);
            return Err(Rejection::Successor);
        }
        if restarts {
            self.forget_channels();
        }
        if let Some(session) = candidate {
            self.begin(session);
        }
        let Some(channel) = self.channels[usize::from(id.0)].as_deref_mut() else { return Ok(()) };
        channel.proven = Some(now);
        if self.config.is_on_request {
            channel.numbers.record_tree(auth, &message);
        } else {
            channel.numbers.record(auth, &message);
            channel.advance(later);
        }
        Ok(())
    }

    /// Forgets numbers and tags of an earlier session.
    fn forget_channels(&mut self) {
        for channel in self.channels.iter_mut().flatten() {
            let Channel { is_joined, has_begun, .. } = **channel;
            **channel = Channel { is_joined, has_begun, ..Channel::new() };
        }
    }

    /// Checks key and start of a signed packet. Returns the key of the session that the packet would begin,
    /// and whether the key is ephemeral: the first session, or a session that replaces a silent one.
    fn candidate(&self, now: Instant, signed: &Signed<'_>) -> Result<Option<(PublicKey, bool)>, Rejection> {
        let Signed { tsi, auth, key: carried, .. } = *signed;
        let current = self.session.as_ref();
        if let Some(session) = current.filter(|session| session.tsi == tsi) {
            match auth.started.cmp(&session.started) {
                _ if auth.key != session.key_name => return Err(Rejection::Untrusted),
                core::cmp::Ordering::Less => return Err(Rejection::Replayed),
                core::cmp::Ordering::Equal => return Ok(None),
                core::cmp::Ordering::Greater if now < self.last_verified + RESTART_SILENCE => {
                    return Err(Rejection::Foreign);
                }
                core::cmp::Ordering::Greater => {}
            }
        }
        let known = self.config.keys.iter().copied().chain(current.map(|session| (session.key, 0)));
        let trusted = known.into_iter().find(|(key, _)| key_name(key) == auth.key);
        let first = carried.filter(|key| self.config.takes_first_key && key_name(&key.public) == auth.key);
        let unknown = if current.is_some() { Rejection::Foreign } else { Rejection::Untrusted };
        let (key, started_min) = trusted.or(first.map(|key| (key.public, 0))).ok_or(unknown)?;
        let is_replay = current.is_some_and(|session| session.key == key && auth.started <= session.started);
        if auth.started < started_min || is_replay {
            return Err(Rejection::Replayed);
        }
        let is_ephemeral = carried.map_or_else(|| self.is_ephemeral(), |key| key.is_ephemeral);
        Ok(Some((key, is_ephemeral)))
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
