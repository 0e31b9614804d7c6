//! The run of a network: a single loop over a totally ordered set of events.
//!
//! | file | content |
//! |---|---|
//! | `mod` | packets under way, stored once |
//! | `events` | the pending events and their order, deadlines that move without being cancelled |
//! | `core` | sending and forwarding, joins and leaves |
//! | `run` | arrivals, agents, scheduled changes |
//!
//! Packets under way, by index. A packet is stored once however many copies are on links. The slot and its
//! payload buffer are reused, so that a run allocates nothing per packet once it has reached its peak.

pub(crate) mod core;
pub(crate) mod events;
mod run;

use std::rc::Rc;

use headwater_proto::Instant;

pub use core::Outgoing;
pub(crate) use run::{AgentSlot, State};
pub use run::{Run, Usage};

use crate::network::{AgentId, FlowId, GroupId, NodeId};
use crate::tcp::Segment;

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A single agent, at its node.
    Agent {
        /// The agent.
        agent: AgentId,
        /// Node of the agent.
        node: NodeId,
    },
    /// All members of a group.
    Group(GroupId),
}

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body {
    /// Content that no agent reads, such as constant-rate traffic.
    Filler,
    /// A TCP segment as a typed value: serialised only for a capture file.
    Tcp(Segment),
    /// UDP payload of a hosted machine; the bytes are passed beside the packet.
    Datagram,
}

/// A packet. All copies on all links are equal except for the ECN field.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Flow of the packet.
    pub flow: FlowId,
    /// Agent that sent the packet.
    pub source: AgentId,
    /// Destination of the packet.
    pub destination: Destination,
    /// Bytes on the wire, headers included: determines transmission time and queue space.
    pub wire_bytes: u32,
    /// Bytes without headers; 0 for acknowledgements and other signalling.
    pub payload_bytes: u32,
    /// Number of packets that the flow sent before this packet.
    pub sequence: u64,
    /// Instant of sending.
    pub sent_at: Instant,
    /// Content of the packet.
    pub body: Body,
}

/// A packet's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketIndex(pub(crate) u32);

#[derive(Debug)]
struct Slot {
    packet: Packet,
    /// Shared with an agent while the agent reads the payload; the agent may forward the packet meanwhile.
    payload: Rc<Vec<u8>>,
    copies: u32,
}

/// Maximum number of packet copies under way: some 250 bytes each where every packet has a single copy, 50
/// where packets have many copies.
pub(crate) const COPIES_MAX: usize = 1 << 22;

/// All packets under way. The capacity of links bounds the number, and `copies_max`, at which a run ends.
#[derive(Debug)]
pub(crate) struct Packets {
    slots: Vec<Slot>,
    free: Vec<PacketIndex>,
    copies: usize,
    pub(crate) copies_max: usize,
}

impl Default for Packets {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), copies: 0, copies_max: COPIES_MAX }
    }
}

impl Packets {
    /// Stores a packet with a single copy.
    pub(crate) fn insert(&mut self, packet: Packet, payload: &[u8]) -> PacketIndex {
        self.copies += 1;
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index.0 as usize];
            slot.packet = packet;
            slot.copies = 1;
            let buffer = Rc::make_mut(&mut slot.payload);
            buffer.clear();
            buffer.extend_from_slice(payload);
            return index;
        }
        self.slots.push(Slot { packet, payload: Rc::new(payload.to_vec()), copies: 1 });
        PacketIndex(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 packets under way"))
    }

    pub(crate) fn get(&self, index: PacketIndex) -> &Packet {
        &self.slots[index.0 as usize].packet
    }

    pub(crate) fn payload(&self, index: PacketIndex) -> &[u8] {
        &self.slots[index.0 as usize].payload
    }

    /// Adds a copy of the packet.
    pub(crate) fn add_copy(&mut self, index: PacketIndex) {
        self.copies += 1;
        self.slots[index.0 as usize].copies += 1;
    }

    /// Removes a copy; the last copy frees the slot.
    pub(crate) fn drop_copy(&mut self, index: PacketIndex) {
        self.copies -= 1;
        let slot = &mut self.slots[index.0 as usize];
        slot.copies -= 1;
        if slot.copies == 0 {
            self.free.push(index);
        }
    }

    /// The payload, to be read while the packet is sent on.
    pub(crate) fn shared_payload(&self, index: PacketIndex) -> Rc<Vec<u8>> {
        Rc::clone(&self.slots[index.0 as usize].payload)
    }

    /// Stores a packet that differs from `index` in a single payload bit, chosen by `random`. The caller owns
    /// the only copy.
    pub(crate) fn with_changed_bit(&mut self, index: PacketIndex, random: u64) -> PacketIndex {
        let mut payload = self.payload(index).to_vec();
        let bits = payload.len() as u64 * 8;
        if bits > 0 {
            let bit = usize::try_from(random % bits).unwrap_or_default();
            payload[bit / 8] ^= 1 << (bit % 8);
        }
        self.insert(*self.get(index), &payload)
    }

    /// Whether more copies are under way than there is room for.
    pub(crate) const fn is_overfull(&self) -> bool {
        self.copies > self.copies_max
    }

    /// Slots ever used: the peak of packets under way.
    pub(crate) fn peak(&self) -> usize {
        self.slots.len()
    }

    /// Packets under way now.
    pub(crate) fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
