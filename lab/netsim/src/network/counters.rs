//! Counters that every run keeps. A measurement over a window is the difference of two readings.

use headwater_proto::queue::DropReason;

use super::link::Drop;

/// Counters of a direction of a link since the start. Bytes are on the wire, headers included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that arrived at the queue.
    pub offered_packets: u64,
    /// Bytes that arrived at the queue.
    pub offered_bytes: u64,
    /// Packets with transmission begun.
    pub sent_packets: u64,
    /// Bytes of packets with transmission begun.
    pub sent_bytes: u64,
    /// Packets that reached the far end.
    pub delivered_packets: u64,
    /// Bytes that reached the far end.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_full: u64,
    /// Packets that RED drew.
    pub dropped_early: u64,
    /// Packets that RED dropped without drawing.
    pub dropped_forced: u64,
    /// Packets that the wire lost.
    pub lost: u64,
    /// Packets with a changed bit that a checksum noticed.
    pub corrupted: u64,
    /// Packets lost because the link was down.
    pub dropped_down: u64,
    /// Packets that this link marked "congestion experienced".
    pub marked: u64,
    /// Maximum number of waiting packets.
    pub waiting_peak: u64,
    /// Integral of the number of waiting packets over time, in packet nanoseconds.
    pub waiting_packet_nanos: u128,
    /// Integral of the bytes of waiting packets over time, in byte nanoseconds.
    pub waiting_byte_nanos: u128,
}

impl LinkCounters {
    /// Packets that the queue dropped. Loss at a queue is this number over [`Self::offered_packets`].
    pub const fn queue_drops(&self) -> u64 {
        self.dropped_full + self.dropped_early + self.dropped_forced
    }

    pub(crate) const fn count(&mut self, drop: Drop) {
        let counter = match drop {
            Drop::Queue(DropReason::Full) => &mut self.dropped_full,
            Drop::Queue(DropReason::Early) => &mut self.dropped_early,
            Drop::Queue(DropReason::Forced) => &mut self.dropped_forced,
            Drop::Lost => &mut self.lost,
            Drop::Corrupted => &mut self.corrupted,
            Drop::Down => &mut self.dropped_down,
        };
        *counter += 1;
    }
}

/// Counters of a flow since the start, over all receivers: a multicast packet counts once when sent, and once
/// for each agent that receives a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent, headers included.
    pub sent_wire_bytes: u64,
    /// Payload bytes sent.
    pub sent_payload_bytes: u64,
    /// Packets that reached an agent.
    pub delivered_packets: u64,
    /// Bytes that reached an agent, headers included.
    pub delivered_wire_bytes: u64,
    /// Payload bytes that reached an agent, duplicates included.
    pub delivered_payload_bytes: u64,
    /// Copies that a link dropped or lost.
    pub dropped_packets: u64,
}

impl FlowCounters {
    pub(crate) fn sent(&mut self, wire_bytes: u32, payload_bytes: u32) {
        self.sent_packets += 1;
        self.sent_wire_bytes += u64::from(wire_bytes);
        self.sent_payload_bytes += u64::from(payload_bytes);
    }

    pub(crate) fn delivered(&mut self, wire_bytes: u32, payload_bytes: u32) {
        self.delivered_packets += 1;
        self.delivered_wire_bytes += u64::from(wire_bytes);
        self.delivered_payload_bytes += u64::from(payload_bytes);
    }
}

/// Counters of an agent since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounters {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received, headers included.
    pub received_wire_bytes: u64,
    /// Payload bytes received, duplicates included.
    pub received_payload_bytes: u64,
    /// Packets that arrived while the agent was paused, stopped or not started.
    pub missed_packets: u64,
    /// Number of group joins.
    pub joins: u64,
    /// Number of group leaves.
    pub leaves: u64,
}
