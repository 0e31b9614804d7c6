//! Packets under way, by index: a packet is stored once however many copies of it are on links, and its slot
//! (with the buffer of its payload) is used again, so that nothing is allocated per packet once a run has
//! reached its peak.

use std::rc::Rc;

use headwater_proto::Instant;

use crate::network::{AgentId, FlowId, GroupId, NodeId};
use crate::tcp::Segment;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To one agent, at its node.
    Agent {
        /// The agent.
        agent: AgentId,
        /// Where it lives.
        node: NodeId,
    },
    /// To all members of a group.
    Group(GroupId),
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body {
    /// Nothing that anyone reads, as of constant-rate traffic.
    Filler,
    /// A TCP segment, typed: never serialised, but by who writes a capture.
    Tcp(Segment),
    /// UDP payload of a hosted machine; its bytes are handed over beside the packet.
    Datagram,
}

/// A packet. Every copy of it on every link is the same but for its ECN field.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Whose it is.
    pub flow: FlowId,
    /// Who sent it.
    pub source: AgentId,
    /// Where it goes.
    pub destination: Destination,
    /// Bytes on the wire, headers included: what takes link time and queue space.
    pub wire_bytes: u32,
    /// Bytes without headers; 0 for acknowledgements and other signalling.
    pub payload_bytes: u32,
    /// Packets that the flow sent before this one.
    pub sequence: u64,
    /// When it was sent.
    pub sent_at: Instant,
    /// What it carries.
    pub body: Body,
}

/// A packet's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketIndex(pub(crate) u32);

#[derive(Debug)]
struct Slot {
    packet: Packet,
    /// Shared with an agent while that reads it, which may forward the packet meanwhile.
    payload: Rc<Vec<u8>>,
    copies: u32,
}

/// Copies of packets that may be under way at once: some 250 bytes each where every packet has one copy, 50
/// where packets have many.
pub(crate) const COPIES_MAX: usize = 1 << 22;

/// All packets under way; their number is bounded by what links hold, and by `copies_max`, at which a run
/// ends.
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
    /// Stores a packet as one copy.
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

    /// One more copy of the packet is somewhere.
    pub(crate) fn add_copy(&mut self, index: PacketIndex) {
        self.copies += 1;
        self.slots[index.0 as usize].copies += 1;
    }

    /// A copy has come to its end; the last one gives back the slot.
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

    /// Another packet that differs in one bit of its payload, chosen by `random`; the one copy is the
    /// caller's.
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
