//! The signing end: stands behind a sender and decides for each packet between a signature and a tag in
//! manifests.

use core::fmt;
use std::collections::VecDeque;

use headwater_wire::auth::{self, Authentication, DEPTH_MAX, Node, SenderKey, Tag, insert_manifest};
use headwater_wire::lct;

use super::hash::{Message, SessionKeys, key_name, leaf, parent};
use super::pass::{NUMBER_MAX, PassChain};
use super::{SIGNATURE_BYTES, Signer};
use crate::machine::ChannelId;

/// Most packets between two manifests of a channel.
pub const GROUP: usize = 25;
/// Fewest packets between two manifests: with fewer, manifests take as many bytes as signatures.
const GROUP_MIN: usize = 4;
/// Planned slots of a channel that suffice: a manifest, the 50 packets that the manifest lists ahead, and the
/// manifest among these packets.
pub const PLANNED: usize = 2 * GROUP + 2;
/// Most planned slots of a channel.
pub const PLANNED_MAX: usize = 1 << 15;
/// Manifests before a packet that must list the packet; otherwise the packet is signed.
const LISTED_MIN: u8 = 2;

/// Configuration of a [`SigningEnd`].
#[derive(Clone)]
pub struct SigningConfig {
    tsi: u64,
    started: u32,
    channels: u16,
    secret: [u8; 32],
    is_on_request: bool,
    is_ephemeral: bool,
}

impl fmt::Debug for SigningConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningConfig")
            .field("tsi", &self.tsi)
            .field("started", &self.started)
            .field("channels", &self.channels)
            .finish_non_exhaustive()
    }
}

impl SigningConfig {
    /// Signs a session that started at `started`, in seconds of the NTP era, on channels numbered below
    /// `channels`. The passes are derived from `secret`, which is drawn at random for each session.
    pub fn new(tsi: u64, started: u32, channels: u16, secret: [u8; 32]) -> Self {
        Self { tsi, started, channels, secret, is_on_request: false, is_ephemeral: false }
    }

    /// Configures packets sent on request (BCFS): the CCI counts as zero, and signatures carry no pass.
    #[must_use]
    pub fn with_request(mut self, is_on_request: bool) -> Self {
        self.is_on_request = is_on_request;
        self
    }

    /// Sets whether the key is made for this session alone, and receivers must not remember the key.
    #[must_use]
    pub fn with_ephemeral_key(mut self, is_ephemeral: bool) -> Self {
        self.is_ephemeral = is_ephemeral;
        self
    }

    /// Returns the start of the session, in seconds of the NTP era.
    pub(crate) fn started(&self) -> u32 {
        self.started
    }

    /// Whether packets are sent on request.
    pub(crate) fn is_on_request(&self) -> bool {
        self.is_on_request
    }

    /// Sets the number of channels.
    pub(crate) fn set_channels(&mut self, channels: u16) {
        self.channels = channels;
    }
}

/// Kind of the slot that a channel plans next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A packet of the session.
    Packet,
    /// A manifest.
    Manifest,
}

/// Reason why a packet cannot be planned, signed or sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The channel's number is not below the configured number of channels.
    #[error("channel {0:?} is not among the signed channels")]
    Channel(ChannelId),
    /// The channel has [`PLANNED_MAX`] slots already.
    #[error("channel {0:?} has as many planned packets as it may")]
    Full(ChannelId),
    /// The channel has used its numbers: the session must begin anew.
    #[error("channel {0:?} has no number left for a signature: start a new session")]
    Numbers(ChannelId),
    /// The packet cannot carry a signature or a manifest.
    #[error(transparent)]
    Wire(#[from] auth::Error),
}

#[derive(Debug)]
struct Planned {
    bytes: Vec<u8>,
    slot: Slot,
    tag: Tag,
    /// Manifests sent so far that list the packet.
    listed: u8,
    /// Packets that a manifest lists ahead.
    ahead: usize,
    /// The packet closes a session or an object: a signature makes the packet valid by itself.
    must_sign: bool,
    /// The packet has its signature already, as a leaf of a tree.
    is_sealed: bool,
}

#[derive(Debug)]
struct Channel {
    id: ChannelId,
    queue: VecDeque<Planned>,
    /// Buffers of packets that were sent, to be used again.
    spare: Vec<Vec<u8>>,
    /// Tags of the packets sent without a signature since the last manifest, at most [`GROUP`].
    history: VecDeque<Tag>,
    /// Packets between two manifests; 0 if each packet is signed.
    group: usize,
    /// Whether a last manifest is due behind listed packets: receivers that joined late wait for it.
    is_closing: bool,
    /// Packets to plan before the next manifest.
    until_manifest: usize,
    number: u32,
    passes: Option<PassChain>,
}

impl Channel {
    fn new(id: ChannelId) -> Self {
        Self {
            id,
            queue: VecDeque::with_capacity(PLANNED),
            spare: Vec::with_capacity(PLANNED),
            history: VecDeque::with_capacity(GROUP + 1),
            group: 0,
            is_closing: false,
            until_manifest: 0,
            number: 0,
            passes: None,
        }
    }

    fn remember(&mut self, tag: Tag) {
        if self.history.len() == GROUP {
            self.history.pop_front();
        }
        self.history.push_back(tag);
    }

    /// Writes the manifest that is due into `buffer`, behind a header of `bytes` bytes. Lists `ahead` packets
    /// that leave later.
    fn write_manifest(
        &mut self,
        buffer: &mut [u8],
        bytes: usize,
        ahead: usize,
    ) -> Result<usize, auth::Error> {
        let mut tags = [[0; auth::TAG_BYTES]; auth::MANIFEST_TAGS_MAX];
        let mut count = 0;
        let later =
            self.queue.iter_mut().filter(|planned| planned.slot == Slot::Packet && !planned.must_sign);
        let later = later.take(ahead).map(|planned| {
            planned.listed += 1;
            planned.tag
        });
        for (place, tag) in tags.iter_mut().zip(self.history.drain(..).chain(later)) {
            *place = tag;
            count += 1;
        }
        if count == 0 {
            return Ok(bytes);
        }
        insert_manifest(buffer, bytes, tags[..count].iter().copied())
    }
}

/// Signs and lists the packets of a session.
///
/// For each channel, plan [`PLANNED`] slots ahead, or more, in the order of departure:
/// [`SigningEnd::next_slot`] tells whether a packet or a manifest comes next. At each departure,
/// [`SigningEnd::send`] writes the datagram. A packet that was planned late, and so is in fewer than two
/// earlier manifests, is signed. Memory: the planned packets, and 6 kB for each channel.
#[derive(Debug)]
pub struct SigningEnd<S> {
    signer: S,
    config: SigningConfig,
    key_name: [u8; 4],
    keys: SessionKeys,
    channels: Vec<Channel>,
    signatures: u64,
}

impl<S: Signer> SigningEnd<S> {
    /// Creates an end that signs each packet of each channel.
    pub fn new(config: SigningConfig, signer: S) -> Self {
        let key = signer.public_key();
        let keys = SessionKeys::new(&key, config.tsi, config.started, config.is_on_request);
        let channels = (0..config.channels).map(|id| Channel::new(ChannelId(id))).collect();
        Self { signer, config, key_name: key_name(&key), keys, channels, signatures: 0 }
    }

    /// Sets the number of packets between two manifests of a channel, at most [`GROUP`]; 0 signs each packet.
    /// A last manifest follows the listed packets.
    ///
    /// # Errors
    /// A channel that is not configured.
    pub fn set_group(&mut self, channel: ChannelId, group: usize) -> Result<(), SigningError> {
        let channel = channel_mut(&mut self.channels, channel)?;
        let is_listed = group > 0;
        if is_listed != (channel.group > 0) {
            channel.until_manifest = 0;
            channel.is_closing = !is_listed;
        }
        channel.group = group.min(GROUP);
        channel.until_manifest = channel.until_manifest.min(channel.group);
        Ok(())
    }

    /// Sets the packets between two manifests by the packets that the channel plans ahead. Nearly all packets
    /// must be in two manifests before they leave: a signed packet is verified before the listed ones that
    /// wait, and a receiver that has just joined takes those for lost.
    pub(crate) fn fit_group(&mut self, channel: ChannelId) {
        let Ok(known) = channel_mut(&mut self.channels, channel) else { return };
        let group = known.queue.len() * 2 / 5;
        // A channel at the bound keeps its manifests.
        let least = if known.group > 0 { GROUP_MIN - 1 } else { GROUP_MIN };
        let group = if group < least { 0 } else { group.clamp(GROUP_MIN, GROUP) };
        let _known = self.set_group(channel, group);
    }

    /// Signs each packet that is planned from now on, on all channels, without a last manifest.
    pub(crate) fn end_manifests(&mut self) {
        for channel in &mut self.channels {
            (channel.group, channel.is_closing) = (0, false);
        }
    }

    /// Whether manifests list the channel's packets.
    pub(crate) fn is_listed(&self, channel: ChannelId) -> bool {
        self.channels.get(usize::from(channel.0)).is_some_and(|channel| channel.group > 0)
    }

    /// Returns the kind of the slot that the channel plans next.
    pub fn next_slot(&self, channel: ChannelId) -> Slot {
        match self.channels.get(usize::from(channel.0)) {
            Some(channel) if (channel.group > 0 || channel.is_closing) && channel.until_manifest == 0 => {
                Slot::Manifest
            }
            _ => Slot::Packet,
        }
    }

    /// Returns the number of the channel's planned slots.
    pub fn planned(&self, channel: ChannelId) -> usize {
        self.channels.get(usize::from(channel.0)).map_or(0, |channel| channel.queue.len())
    }

    /// Returns the number of signatures made so far.
    pub fn signatures(&self) -> u64 {
        self.signatures
    }

    /// Plans the channel's next slot, of the kind that [`SigningEnd::next_slot`] returns. The bytes are the
    /// whole packet, or of a manifest the LCT header without TOI. Nothing in the packet changes later.
    ///
    /// # Errors
    /// No LCT packet, or no room in the plan.
    pub fn plan(&mut self, channel: ChannelId, bytes: &[u8]) -> Result<(), SigningError> {
        let slot = self.next_slot(channel);
        let channel = channel_mut(&mut self.channels, channel)?;
        if channel.queue.len() == PLANNED_MAX {
            return Err(SigningError::Full(channel.id));
        }
        let packet = lct::Packet::new_checked(bytes).map_err(auth::Error::from)?;
        // A packet with a key is for receivers that cannot verify a manifest yet.
        let has_key = SenderKey::find(&packet)?.is_some();
        let must_sign = packet.close_session() || packet.close_object() || has_key;
        let tag = if slot == Slot::Packet && channel.group > 0 && !must_sign {
            self.keys.tag(&packet, bytes)
        } else {
            Tag::default()
        };
        let mut stored = channel.spare.pop().unwrap_or_default();
        stored.clear();
        stored.extend_from_slice(bytes);
        let must_sign = must_sign || channel.group == 0;
        let ahead = 2 * channel.group;
        channel.queue.push_back(Planned {
            bytes: stored,
            slot,
            tag,
            listed: 0,
            ahead,
            must_sign,
            is_sealed: false,
        });
        channel.until_manifest = match slot {
            Slot::Manifest => {
                channel.is_closing = false;
                channel.group
            }
            Slot::Packet => channel.until_manifest.saturating_sub(1),
        };
        Ok(())
    }

    /// Discards the channel's next slot: the packet is shed, and nothing else changes. Returns whether a slot
    /// was planned.
    pub fn shed(&mut self, channel: ChannelId) -> bool {
        let Ok(channel) = channel_mut(&mut self.channels, channel) else { return false };
        let shed = channel.queue.pop_front();
        let is_planned = shed.is_some();
        channel.spare.extend(shed.map(|planned| planned.bytes));
        is_planned
    }

    /// Writes the channel's next slot into `buffer`, which has room for a datagram. Returns the datagram's
    /// length; `None` if nothing is planned.
    ///
    /// # Errors
    /// A channel without numbers, or a datagram without room for its signature. The slot is lost.
    pub fn send(&mut self, channel: ChannelId, buffer: &mut [u8]) -> Result<Option<usize>, SigningError> {
        let channel = channel_mut(&mut self.channels, channel)?;
        let Some(planned) = channel.queue.pop_front() else { return Ok(None) };
        let bytes = planned.bytes.len();
        let room = buffer.get_mut(..bytes).ok_or(auth::Error::Room(bytes))?;
        room.copy_from_slice(&planned.bytes);
        channel.spare.push(planned.bytes);
        if planned.is_sealed {
            return Ok(Some(bytes));
        }
        let bytes = match planned.slot {
            Slot::Manifest => channel.write_manifest(buffer, bytes, planned.ahead)?,
            Slot::Packet if planned.must_sign || planned.listed < LISTED_MIN => bytes,
            Slot::Packet => {
                channel.remember(planned.tag);
                return Ok(Some(bytes));
            }
        };
        let id = channel.id;
        self.sign(id, buffer, bytes).map(Some)
    }

    /// Signs a packet that was not planned, the first `bytes` bytes of `buffer`. Returns the packet's new
    /// length.
    ///
    /// # Errors
    /// A channel without numbers, or a packet without room for its signature.
    pub fn sign(
        &mut self,
        channel: ChannelId,
        buffer: &mut [u8],
        bytes: usize,
    ) -> Result<usize, SigningError> {
        let channel = channel_mut(&mut self.channels, channel)?;
        let blank = blank(&self.config, self.key_name, &self.keys, channel)?;
        let place = blank.insert(buffer, bytes)?;
        let bytes = bytes + place.len();
        let packet = lct::Packet::new_checked(&buffer[..bytes]).map_err(auth::Error::from)?;
        let digest = self.keys.digest(&packet, &buffer[..bytes], place.clone());
        let signature = self.signer.sign(Message::new(channel.id, &digest).as_bytes());
        self.signatures += 1;
        Authentication::complete(&mut buffer[place], &signature, &[]);
        Ok(bytes)
    }

    /// Inserts the public key into a packet, the first `bytes` bytes of `buffer`. The packet must be signed.
    /// Returns the packet's new length.
    ///
    /// # Errors
    /// A packet without room for the key.
    pub fn insert_key(&self, buffer: &mut [u8], bytes: usize) -> Result<usize, SigningError> {
        let key = SenderKey { public: self.signer.public_key(), is_ephemeral: self.config.is_ephemeral };
        Ok(key.insert(buffer, bytes)?)
    }

    /// Signs the channel's next packets, at most 16, by one signature of a tree. Returns the number of signed
    /// packets: the packets up to a manifest or the end of the plan, and 0 for fewer than two.
    ///
    /// # Errors
    /// A channel without numbers, or a packet without room for signature and path.
    pub fn sign_tree(&mut self, channel: ChannelId) -> Result<usize, SigningError> {
        let channel = channel_mut(&mut self.channels, channel)?;
        let is_open = |planned: &&Planned| planned.slot == Slot::Packet && !planned.is_sealed;
        let count = channel.queue.iter().take_while(is_open).take(1 << DEPTH_MAX).count();
        if count < 2 {
            return Ok(0);
        }
        let depth = count.next_power_of_two().trailing_zeros() as usize;
        let mut auth = blank(&self.config, self.key_name, &self.keys, channel)?;
        auth.depth = u8::try_from(depth).expect("at most 4");
        // Level 0 holds the leaves; a missing leaf is zero.
        let mut levels = [[Node::default(); 1 << DEPTH_MAX]; DEPTH_MAX + 1];
        let mut starts = [0; 1 << DEPTH_MAX];
        for (at, planned) in channel.queue.iter_mut().take(count).enumerate() {
            let bytes = planned.bytes.len();
            planned.bytes.resize(bytes + auth.buffer_len(), 0);
            auth.leaf = u8::try_from(at).expect("below 16");
            let place = auth.insert(&mut planned.bytes, bytes)?;
            let packet = lct::Packet::new_checked(planned.bytes.as_slice()).map_err(auth::Error::from)?;
            levels[0][at] = leaf(&self.keys.digest(&packet, &planned.bytes, place.clone()));
            planned.is_sealed = true;
            planned.must_sign = true;
            starts[at] = place.start;
        }
        for level in 0..depth {
            for at in 0..1 << (depth - level - 1) {
                levels[level + 1][at] = parent(levels[level][2 * at], levels[level][2 * at + 1]);
            }
        }
        let signature = self.signer.sign(Message::new(channel.id, &levels[depth][0]).as_bytes());
        self.signatures += 1;
        for (at, planned) in channel.queue.iter_mut().take(count).enumerate() {
            let mut path = [Node::default(); DEPTH_MAX];
            for level in 0..depth {
                path[level] = levels[level][at >> level ^ 1];
            }
            let extension = &mut planned.bytes[starts[at]..starts[at] + auth.buffer_len()];
            Authentication::complete(extension, &signature, &path[..depth]);
        }
        Ok(count)
    }
}

fn channel_mut(channels: &mut [Channel], channel: ChannelId) -> Result<&mut Channel, SigningError> {
    channels.get_mut(usize::from(channel.0)).ok_or(SigningError::Channel(channel))
}

/// Returns an EXT_AUTH of the channel's next number, without a signature.
fn blank(
    config: &SigningConfig,
    key: [u8; 4],
    keys: &SessionKeys,
    channel: &mut Channel,
) -> Result<Authentication, SigningError> {
    if channel.number == NUMBER_MAX {
        return Err(SigningError::Numbers(channel.id));
    }
    channel.number += 1;
    let (pass, next_pass) = if config.is_on_request {
        Default::default()
    } else {
        let id = channel.id;
        let passes = channel.passes.get_or_insert_with(|| PassChain::new(keys, config.secret, id));
        passes.pass(keys, channel.number)
    };
    Ok(Authentication {
        depth: 0,
        leaf: 0,
        started: config.started,
        number: channel.number,
        key,
        pass,
        next_pass,
        signature: [0; SIGNATURE_BYTES],
        path: [Node::default(); DEPTH_MAX],
    })
}
