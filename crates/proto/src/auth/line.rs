//! Departures of a signed session: packets wait for their departure in the order of the control's schedule.
//!
//! A control whose schedule depends on no receiver runs ahead of time: a packet is generated up to half a
//! second before the packet leaves, at the instant that the schedule sets. So a manifest can list packets
//! that leave later, and no departure is delayed. Packets of any other control are signed one by one.

use std::collections::VecDeque;

use headwater_wire::auth::{AUTH_BYTES, KEY_BYTES, MANIFEST_TAGS_MAX, TAG_BYTES};

use super::Signer;
use super::signing::{PLANNED, PLANNED_MAX, SigningConfig, SigningEnd, Slot};
use crate::machine::{ChannelId, Ecn};
use crate::pacing::BURST;
use crate::time::{Duration, Instant};

/// Longest time between generation and departure of a packet. Below [`LISTED_FROM`] packets in this time,
/// each packet of a channel is signed.
const LEAD_MAX: Duration = Duration::from_millis(500);
/// Most packets that wait for their departure, on all channels: 6 MB of 1472 bytes.
const WAITING_MAX: usize = PLANNED_MAX / 2;
/// Waiting packets that a schedule without many channels aims at: a plan, and some room for rounding.
const WAITING_ONE_CHANNEL: usize = PLANNED + 8;
/// Waiting packets of a channel from which manifests list the channel's packets: with fewer, most packets are
/// in fewer than two manifests before they leave.
const LISTED_FROM: usize = 40;
/// Waiting packets of a channel below which the channel's packets are signed again.
const LISTED_UNTIL: usize = 32;
/// Longest time between two packets with the public key. At the start of a session, each time is twice the
/// time before.
const KEY_INTERVAL: Duration = Duration::from_millis(100);
const KEY_INTERVAL_FIRST: Duration = Duration::from_millis(5);
/// Fewest packets of the base channel between two packets with the public key.
const KEY_PACKETS: u32 = 5;
/// Bytes of the longest manifest's extension.
pub(crate) const MANIFEST_BYTES_MAX: usize = 4 + MANIFEST_TAGS_MAX * TAG_BYTES;
/// Part of the schedule's spacing by which late departures catch up: 1.25 times the rate.
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
}

impl Signing {
    /// Signs a session by this key.
    pub fn new(config: SigningConfig, signer: Box<dyn Signer + Send>) -> Self {
        Self { config, signer }
    }
}

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
    ecn: Ecn,
    at: Instant,
}

/// Signed session of a sender: time of the control, packets that wait, signatures.
///
/// Memory: at most [`WAITING_MAX`] packets.
#[derive(Debug)]
pub(crate) struct SigningLine {
    end: SigningEnd<Box<dyn Signer + Send>>,
    is_on_request: bool,
    lead: Duration,
    /// Time of the control; `None` before the first poll.
    control_time: Option<Instant>,
    /// Whether the control has reached the lead.
    is_ahead: bool,
    waiting: VecDeque<Waiting>,
    /// Time by which departures are late, beyond the burst of a pacer.
    lag: Duration,
    last: Instant,
    key_due: Instant,
    key_interval: Duration,
    since_key: u32,
    channels: u16,
}

impl SigningLine {
    pub(crate) fn new(signing: Signing, channels: u16, lead: Duration) -> Self {
        let Signing { mut config, signer } = signing;
        config.set_channels(channels);
        Self {
            is_on_request: config.is_on_request(),
            end: SigningEnd::new(config, signer),
            lead,
            control_time: None,
            is_ahead: lead == Duration::ZERO,
            waiting: VecDeque::new(),
            lag: Duration::ZERO,
            last: Instant::ZERO,
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

    /// Whether no packet waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the time of the control at `now`.
    pub(crate) fn control_time(&mut self, now: Instant) -> Instant {
        let least = if self.is_ahead { now + self.lead } else { now };
        let time = self.control_time.map_or(least, |time| time.max(least));
        self.control_time = Some(time);
        time
    }

    /// Returns the time at which a timeout of the control is due.
    pub(crate) fn real_time(&self, at: Instant) -> Instant {
        at - self.lead
    }

    /// Advances a control that has not reached the lead: to the next departure, or to the lead. Returns
    /// whether the time has moved.
    pub(crate) fn step(&mut self, now: Instant, next: Option<Instant>) -> bool {
        if self.is_ahead {
            return false;
        }
        let (time, horizon) = (self.control_time.unwrap_or(now), now + self.lead);
        let next = next.filter(|next| *next > time && *next < horizon);
        self.is_ahead = next.is_none();
        self.control_time = Some(next.unwrap_or(horizon).max(time));
        true
    }

    /// Whether another packet may be generated.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Returns the packet that the channel sends in place of the next packet of content, if any.
    pub(crate) fn next_auth_packet(&mut self, time: Instant, channel: ChannelId) -> Option<AuthPacket> {
        if channel == ChannelId::BASE && !self.is_on_request {
            self.since_key = self.since_key.saturating_add(1);
            if self.since_key > KEY_PACKETS && time >= self.key_due {
                (self.since_key, self.key_due) = (0, time + self.key_interval);
                self.key_interval = self.key_interval.saturating_mul(2).min(KEY_INTERVAL);
                return Some(AuthPacket::Key);
            }
        }
        if !self.plans() {
            return None;
        }
        let planned = self.end.planned(channel);
        if planned >= LISTED_FROM {
            let _known = self.end.set_listed(channel, true);
        } else if planned < LISTED_UNTIL {
            let _known = self.end.set_listed(channel, false);
        }
        (self.end.next_slot(channel) == Slot::Manifest).then_some(AuthPacket::Manifest)
    }

    /// Signs each packet that is generated from now on: the session ends.
    pub(crate) fn end_manifests(&mut self) {
        for channel in 0..self.channels {
            let _known = self.end.set_listed(ChannelId(channel), false);
        }
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

    /// Queues a packet, or the header of a manifest, that leaves at `at`. Returns the length with which the
    /// packet is expected to leave.
    pub(crate) fn plan(&mut self, channel: ChannelId, ecn: Ecn, at: Instant, packet: &[u8]) -> usize {
        let slot = self.end.next_slot(channel);
        let is_listed = self.end.is_listed(channel);
        if self.end.plan(channel, packet).is_ok() {
            let at = self.waiting.back().map_or(at, |last| at.max(last.at));
            self.waiting.push_back(Waiting { channel, ecn, at });
        }
        match slot {
            Slot::Manifest => packet.len() + MANIFEST_BYTES_MAX + AUTH_BYTES,
            Slot::Packet if is_listed => packet.len(),
            Slot::Packet => packet.len() + AUTH_BYTES,
        }
    }

    /// Returns when the next packet leaves.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|next| next.at + self.lag)
    }

    /// Writes the next packet, if due. A driver that was away sends the packets that are overdue by more than
    /// a pacer's burst at 1.25 times the rate of the schedule.
    pub(crate) fn depart(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(ChannelId, Ecn, usize)> {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            let Waiting { channel, ecn, at } = self.waiting.pop_front()?;
            let late = now.since(at + self.lag);
            if late > BURST {
                self.lag = now.since(at + BURST);
            } else {
                let caught_up = at.since(self.last).as_nanos() / CATCH_UP;
                self.lag = Duration::from_nanos(self.lag.as_nanos().saturating_sub(caught_up));
            }
            self.last = at;
            // A packet that cannot be signed does not leave: a receiver would drop the packet.
            if let Ok(Some(bytes)) = self.end.send(channel, buffer) {
                return Some((channel, ecn, bytes));
            }
        }
        None
    }
}

/// Bytes by which a signature makes a packet longer, at most; `with_key` if the packet carries the key, too.
pub const fn signed_bytes(with_key: bool) -> usize {
    AUTH_BYTES + if with_key { KEY_BYTES } else { 0 }
}
