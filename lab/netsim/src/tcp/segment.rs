//! Segments between TCP ends: typed values, never serialised.

use headwater_proto::Ecn;

/// Maximum number of SACK blocks in an acknowledgement: the number that fits beside the timestamp option (RFC
/// 2018, section 3).
pub const SACK_BLOCKS: usize = 3;

/// Segments `start..end` that were received out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlock {
    /// First segment of the block.
    pub start: u32,
    /// Segment after the last segment of the block.
    pub end: u32,
}

/// The SACK option: up to [`SACK_BLOCKS`] blocks, the most recently changed block first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [SackBlock; SACK_BLOCKS],
    count: u8,
}

impl SackBlocks {
    /// The first [`SACK_BLOCKS`] of `blocks`.
    pub fn first_of(blocks: &[SackBlock]) -> Self {
        let mut sack = Self::default();
        for (slot, block) in sack.blocks.iter_mut().zip(blocks) {
            *slot = *block;
            sack.count += 1;
        }
        sack
    }

    /// The blocks, the most recently changed block first.
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.count)]
    }
}

/// A TCP segment. The segment takes [`Config::wire_bytes`](super::Config::wire_bytes) on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Number of the connection between two hosts, in place of port numbers. The ends ignore the number.
    pub connection: u32,
    /// Number of this data segment, from 0; meaningless without payload.
    pub sequence: u32,
    /// Segment that the sender of this segment expects next; meaningless unless `acknowledges`.
    pub ack: u32,
    /// SACK option.
    pub sack: SackBlocks,
    /// Payload in bytes; 0 for SYN and for pure acknowledgements.
    pub payload_bytes: u16,
    /// SYN flag: opens the connection, or answers the opening.
    pub syn: bool,
    /// ACK flag.
    pub acknowledges: bool,
    /// ECN-Echo flag (RFC 3168, section 6.1.3).
    pub echo: bool,
    /// Congestion Window Reduced flag (RFC 3168, section 6.1.2).
    pub cwr: bool,
}

/// A segment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The segment.
    pub segment: Segment,
    /// ECN field of the packet that carries the segment.
    pub ecn: Ecn,
}
