//! Departures of a signed session: packets wait for their departure in the order of the control's schedule.
//!
//! A control whose schedule depends on no receiver runs ahead of time: a packet is generated up to half a
//! second before the packet leaves, at the instant that the schedule sets. So a manifest can list packets
//! that leave later, and no departure is delayed. Packets of any other control are signed one by one.

use std::collections::VecDeque;

use headwater_wire::auth::{AUTH_BYTES, DEPTH_MAX, KEY_BYTES, MANIFEST_TAGS_MAX, Node, TAG_BYTES};
use headwater_wire::extensions::Lateness;
use headwater_wire::lct;

use super::Signer;
use super::signing::{PLANNED, PLANNED_MAX, SigningConfig, SigningEnd, Slot};
use crate::machine::{ChannelId, Destination, Ecn, Transmit};
use crate::pacing::{BURST, lateness};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Longest time between generation and departure of a packet. Below [`LISTED_FROM`] packets in this time,
/// each packet of a channel is signed.
const LEAD_MAX: Duration = Duration::from_millis(500);
/// The same for a sender that follows receivers' reports: a report takes effect after as long. Channels of
/// fewer than 100 packets a second are signed one by one.
pub(crate) const DEMAND_LEAD_MAX: Duration = Duration::from_millis(100);
/// The same while receivers start, whose steps each wait for a report: fewer than 500 packets a second.
pub(crate) const START_LEAD_MAX: Duration = Duration::from_millis(20);
/// Most packets that wait for their departure, on all channels: 6 MB of 1472 bytes.
const WAITING_MAX: usize = PLANNED_MAX / 2;
/// Waiting packets that a schedule without many channels aims at: a plan, and some room for rounding.
const WAITING_ONE_CHANNEL: usize = PLANNED + 8;
/// Waiting packets of a channel from which manifests list the channel's packets.
const LISTED_FROM: usize = 10;
/// Rate of a session of layers from which manifests list most packets.
pub const LISTED_RATE: Rate = Rate::from_kilobits(8_000);
/// Longest time between two packets with the public key. At the start of a session, each time is twice the
/// time before.
const KEY_INTERVAL: Duration = Duration::from_millis(100);
const KEY_INTERVAL_FIRST: Duration = Duration::from_millis(5);
/// Fewest packets of the base channel between two packets with the public key.
const KEY_PACKETS: u32 = 5;
/// Bytes of the longest manifest's extension.
pub(crate) const MANIFEST_BYTES_MAX: usize = 4 + MANIFEST_TAGS_MAX * TAG_BYTES;
/// Longest time by which a late driver delays the control.
const DELAY_MAX: Duration = Duration::from_millis(25);
/// Number of packets of the mean gap, and the largest gap in units of the mean.
const GAPS: u64 = 64;
const GAP_MAX: u64 = 4;
/// Part of the lead by which a packet is generated early, in a turn in which other packets leave: at low
/// rates, timers for generation alone would double the turns.
const EARLY: u64 = 10;
/// Part of the time by which a lead grows.
const LEAD_GROWTH: u64 = 4;
/// Part of the time by which late departures catch up: 1.25 times the rate.
const CATCH_UP: u64 = 5;

/// Returns how long before the departure a packet is generated, for a schedule of `rate` packets a second
/// over `channels` channels. Zero if the channels are too slow for manifests.
pub(crate) fn lead(rate: f64, channels: u16) -> Duration {
    let waiting = if channels == 1 { WAITING_ONE_CHANNEL } else { WAITING_MAX - PLANNED };
    #[expect(clippy::cast_precision_loss, reason = "below 2^13")]
    let (waiting, least) = (waiting as f64, LISTED_FROM as f64);
    if rate * LEAD_MAX.as_secs_f64() < least {
        return Duration::ZERO;
    }
    Duration::from_secs_f64(waiting / rate).min(LEAD_MAX)
}

/// Key and parameters by which a sender signs a session.
#[derive(Debug)]
pub struct Signing {
    config: SigningConfig,
    signer: Box<dyn Signer + Send>,
    has_trees: bool,
}

impl Signing {
    /// Signs a session by this key.
    pub fn new(config: SigningConfig, signer: Box<dyn Signer + Send>) -> Self {
        Self { config, signer, has_trees: false }
    }

    /// Returns the start of the session, in seconds of the NTP era.
    pub fn started(&self) -> u32 {
        self.config.started()
    }

    /// Sets whether one signature serves all packets of a channel that leave together, at most 16. Worth
    /// while from [`TREES_RATE`] on, for controls whose packets are not planned. Packets need room for
    /// [`TREE_BYTES`] more. An envelope must not depend on the packet's length. Default: no.
    #[must_use]
    pub fn with_trees(mut self, has_trees: bool) -> Self {
        self.has_trees = has_trees;
        self
    }
}

/// Rate from which a signature for each packet takes a fifth of the sender's processor.
pub const TREES_RATE: Rate = Rate::from_kilobits(100_000);
/// Most packets of a tree.
const LEAVES_MAX: usize = 1 << DEPTH_MAX;
/// Bytes by which a tree makes a signed packet longer, at most.
pub const TREE_BYTES: usize = DEPTH_MAX * size_of::<Node>();

/// Packet without content that a channel sends for authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthPacket {
    /// Manifest: the packet leaves with tags of other packets.
    Manifest,
    /// Packet with the public key.
    Key,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    channel: ChannelId,
    destination: Destination,
    ecn: Ecn,
    at: Instant,
    /// Time from which the packet's lateness counts, if the packet tells its lateness.
    scheduled: Option<Instant>,
    /// Bytes of the envelope around the packet.
    envelope: usize,
}

/// Signed session of a sender: time of the control, packets that wait, signatures.
///
/// Memory: at most [`WAITING_MAX`] packets.
#[derive(Debug)]
pub(crate) struct SigningLine {
    end: SigningEnd<Box<dyn Signer + Send>>,
    is_on_request: bool,
    /// Most packets that are signed together; 0 if packets are not signed by trees.
    leaves_max: usize,
    /// Whether the waiting packets have signatures.
    is_sealed: bool,
    lead: Duration,
    /// Begin of the last turn.
    polled: Instant,
    /// Time of the control; `None` before the first poll.
    control_time: Option<Instant>,
    /// Whether the control has reached the lead.
    is_ahead: bool,
    /// Last turn in which a packet was generated early.
    early: Instant,
    waiting: VecDeque<Waiting>,
    /// Envelopes of waiting packets.
    envelopes: VecDeque<u8>,
    /// Earliest time of the next departure: a driver that was away sends a pacer's burst, and the rest at
    /// 1.25 times the rate of the schedule.
    earliest: Instant,
    /// Time by which the control is delayed, because departures are late: else the control would run into the
    /// bound of waiting packets, and would give up time that the driver only needs to catch up.
    delay: Duration,
    /// Waiting packets due before this time are late by more than a pacer's burst.
    late_before: Instant,
    /// Whether a packet has left since one was generated.
    has_left: bool,
    /// Mean time between packets.
    gap_mean: Duration,
    /// Time by which the control is behind the lead.
    shift: Duration,
    key_due: Instant,
    key_interval: Duration,
    since_key: u32,
    channels: u16,
}

impl SigningLine {
    pub(crate) fn new(signing: Signing, channels: u16, lead: Duration) -> Self {
        let Signing { mut config, signer, has_trees } = signing;
        config.set_channels(channels);
        Self {
            is_on_request: config.is_on_request(),
            leaves_max: if has_trees && lead == Duration::ZERO { LEAVES_MAX } else { 0 },
            is_sealed: false,
            end: SigningEnd::new(config, signer),
            lead,
            polled: Instant::ZERO,
            control_time: None,
            is_ahead: lead == Duration::ZERO,
            early: Instant::ZERO,
            waiting: VecDeque::new(),
            envelopes: VecDeque::new(),
            earliest: Instant::ZERO,
            delay: Duration::ZERO,
            late_before: Instant::ZERO,
            has_left: false,
            gap_mean: Duration::ZERO,
            shift: Duration::ZERO,
            key_due: Instant::ZERO,
            key_interval: KEY_INTERVAL_FIRST,
            since_key: KEY_PACKETS,
            channels,
        }
    }

    /// Whether packets are generated ahead of time.
    pub(crate) fn plans(&self) -> bool {
        self.lead > Duration::ZERO
    }

    /// Whether packets wait for their departure: planned packets, and packets that are signed together.
    pub(crate) fn queues(&self) -> bool {
        self.plans() || self.leaves_max > 0
    }

    /// Whether no packet waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether `now` begins a turn, in which the lead may change.
    pub(crate) fn begins_turn(&self, now: Instant) -> bool {
        self.plans() && now > self.polled
    }

    /// Begins a turn with the control's lead. A shorter lead takes effect as the planned packets leave, a
    /// longer one while packets are planned at 1.25 times their rate.
    pub(crate) fn begin_turn(&mut self, now: Instant, lead: Duration) {
        let growth = Duration::from_nanos(now.since(self.polled).as_nanos() / LEAD_GROWTH);
        self.lead = lead.min(self.lead + growth);
        self.polled = now;
    }

    /// Returns the time of the control at `now`.
    pub(crate) fn control_time(&mut self, now: Instant) -> Instant {
        self.judge_driver(now);
        let least = if self.is_ahead { now + self.lead - self.delay } else { now };
        let time = self.control_time.map_or(least, |time| time.max(least));
        self.control_time = Some(time);
        // Time never goes back: a delay that has just begun has no effect yet.
        self.shift = if self.is_ahead { (now + self.lead).since(time) } else { Duration::ZERO };
        time
    }

    /// Returns the time at which a timeout of the control is due.
    pub(crate) fn real_time(&self, at: Instant) -> Instant {
        at + self.delay - self.lead
    }

    /// Delays the control by the time that a late driver gives up.
    fn judge_driver(&mut self, now: Instant) {
        let given_up = self.poll_timeout().map_or(Duration::ZERO, |due| now.since(due + BURST));
        self.late_before = now - BURST;
        if self.plans() && given_up > Duration::ZERO {
            self.earliest = now - BURST;
            self.delay = (self.delay + given_up).min(DELAY_MAX);
        }
    }

    /// Advances a control that has not reached the lead: to the next departure, or to the lead. Returns
    /// whether the time has moved.
    pub(crate) fn step(&mut self, now: Instant, next: Option<Instant>) -> bool {
        if self.is_ahead {
            return next.is_some_and(|next| self.step_early(now, next));
        }
        let (time, horizon) = (self.control_time.unwrap_or(now), now + self.lead);
        let next = next.filter(|next| *next > time && *next < horizon);
        self.is_ahead = next.is_none();
        self.control_time = Some(next.unwrap_or(horizon).max(time));
        true
    }

    /// Advances a control on time to a departure that comes soon after the lead, once a turn.
    fn step_early(&mut self, now: Instant, next: Instant) -> bool {
        let until = now + self.lead + Duration::from_nanos(self.lead.as_nanos() / EARLY);
        let is_on_time = self.plans() && self.delay == Duration::ZERO && self.early < now;
        let is_soon = self.control_time.is_some_and(|time| time < next) && next <= until;
        if is_on_time && is_soon {
            (self.control_time, self.early) = (Some(next), now);
        }
        is_on_time && is_soon
    }

    /// Whether another packet may be generated. For a late driver, as many packets are generated as leave:
    /// the control is late, too, and decides which of its packets give way, and the plan keeps its length.
    /// With an empty plan, no packet would be listed.
    pub(crate) fn has_room(&self) -> bool {
        if self.leaves_max > 0 {
            !self.is_sealed && self.waiting.len() < self.leaves_max
        } else {
            let is_late = self.waiting.front().is_some_and(|next| next.at < self.late_before);
            self.waiting.len() < WAITING_MAX && (!is_late || self.has_left)
        }
    }

    /// Returns the packet that the channel sends in place of the next packet of content, if any.
    pub(crate) fn next_auth_packet(&mut self, time: Instant, channel: ChannelId) -> Option<AuthPacket> {
        if self.plans() {
            self.end.fit_group(channel);
            if self.end.next_slot(channel) == Slot::Manifest {
                return Some(AuthPacket::Manifest);
            }
        }
        if channel != ChannelId::BASE || self.is_on_request {
            return None;
        }
        self.since_key = self.since_key.saturating_add(1);
        if self.since_key <= KEY_PACKETS || time < self.key_due {
            return None;
        }
        (self.since_key, self.key_due) = (0, time + self.key_interval);
        self.key_interval = self.key_interval.saturating_mul(2).min(KEY_INTERVAL);
        Some(AuthPacket::Key)
    }

    /// Signs each packet that is generated from now on: the session ends.
    pub(crate) fn end_manifests(&mut self) {
        self.end.end_manifests();
    }

    /// Inserts the public key into a packet. Returns the packet's new length.
    pub(crate) fn insert_key(&self, buffer: &mut [u8], bytes: usize) -> usize {
        self.end.insert_key(buffer, bytes).unwrap_or(bytes)
    }

    /// Whether descriptions carry the key: on request, no packet leaves without a request.
    pub(crate) fn describes_key(&self) -> bool {
        self.is_on_request
    }

    /// Signs a packet that leaves now. Returns the packet's new length; `None` if the packet cannot be signed
    /// and must not leave.
    pub(crate) fn sign(&mut self, channel: ChannelId, buffer: &mut [u8], bytes: usize) -> Option<usize> {
        self.end.sign(channel, buffer, bytes).ok()
    }

    /// Queues a packet, or the header of a manifest, that leaves at `at` in an envelope. A packet that tells
    /// its lateness has a scheduled time. Returns the length with which the packet is expected to leave.
    pub(crate) fn plan(
        &mut self,
        channel: ChannelId,
        destination: Destination,
        ecn: Ecn,
        (at, scheduled): (Instant, Option<Instant>),
        envelope: &[u8],
        packet: &[u8],
    ) -> usize {
        let slot = self.end.next_slot(channel);
        let is_listed = self.end.is_listed(channel);
        self.has_left = false;
        if self.end.plan(channel, packet).is_ok() {
            let at = at + self.shift;
            let at = self.waiting.back().map_or(at, |last| at.max(last.at));
            self.envelopes.extend(envelope);
            let envelope = envelope.len();
            self.waiting.push_back(Waiting { channel, destination, ecn, at, scheduled, envelope });
        }
        if self.leaves_max > 0 {
            return envelope.len() + packet.len() + AUTH_BYTES + TREE_BYTES;
        }
        match slot {
            Slot::Manifest => packet.len() + MANIFEST_BYTES_MAX + AUTH_BYTES,
            Slot::Packet if is_listed => packet.len(),
            Slot::Packet => packet.len() + AUTH_BYTES,
        }
    }

    /// Returns when the next packet leaves.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|next| next.at.max(self.earliest))
    }

    /// Writes the next packet, if due.
    pub(crate) fn depart(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if self.leaves_max > 0 && !self.is_sealed {
            self.seal();
        }
        while let Some(due) = self.poll_timeout().filter(|due| *due <= now) {
            let Waiting { channel, destination, ecn, at, scheduled, envelope } = self.waiting.pop_front()?;
            self.is_sealed &= !self.waiting.is_empty();
            self.has_left = true;
            self.envelopes.drain(..envelope).zip(&mut *buffer).for_each(|(byte, place)| *place = byte);
            self.space(due, self.waiting.front().map_or(at, |next| next.at).since(at));
            // A packet that cannot be signed does not leave: a receiver would drop the packet.
            if let Ok(Some(bytes)) = self.end.send(channel, &mut buffer[envelope..]) {
                if let Some(scheduled) = scheduled {
                    stamp(&mut buffer[envelope..envelope + bytes], lateness(now, scheduled));
                }
                return Some(Transmit { destination, bytes: envelope + bytes, ecn });
            }
        }
        None
    }

    /// Spaces the packet after a packet that left at `due`, `gap` later in the schedule. Late packets leave
    /// at 1.25 times the mean rate: gaps of time that the control gave up are no reason to wait.
    fn space(&mut self, due: Instant, gap: Duration) {
        let mean = self.gap_mean.as_nanos();
        let gap = if mean == 0 { gap.as_nanos() } else { gap.as_nanos().min(GAP_MAX * mean) };
        self.gap_mean = Duration::from_nanos((mean * (GAPS - 1) + gap) / GAPS);
        let caught_up = gap / CATCH_UP;
        self.earliest = due + Duration::from_nanos(gap - caught_up);
        self.delay = Duration::from_nanos(self.delay.as_nanos().saturating_sub(caught_up));
    }

    /// Signs the waiting packets, by a tree for each channel. A packet that no tree can sign is signed as it
    /// leaves.
    fn seal(&mut self) {
        for channel in (0..self.channels).map(ChannelId) {
            let _signed = self.end.sign_tree(channel);
        }
        self.is_sealed = !self.waiting.is_empty();
    }
}

/// Writes the lateness into a packet that tells its lateness.
fn stamp(packet: &mut [u8], lateness: Lateness) {
    let place = lct::Packet::new_checked(&*packet).ok().and_then(|packet| Lateness::place(&packet));
    if let Some(place) = place {
        packet[place].copy_from_slice(&lateness.content());
    }
}

/// Bytes by which a signature makes a packet longer, at most; `with_key` if the packet carries the key, too.
pub const fn signed_bytes(with_key: bool) -> usize {
    AUTH_BYTES + if with_key { KEY_BYTES } else { 0 }
}
