//! Buffers over one congestion control: live content, submitted piece by piece. Each receiver gets the
//! beginning of each piece, as much as the receiver's rate allows.
//!
//! ```text
//! submit(buffer, time) -> Sequencer -> Sender (any SenderControl) ~~ datagrams ~~+
//!                           ^            |                                       |
//!                           +- Layering -+                                       v
//!                                   Received <- Receiver (any ReceiverControl) <-+
//! ```
//!
//! A buffer has its most important byte first, and a time to be sent in. A receiver with x % of the session's
//! rate during that time gets the first x % of the buffer. A receiver that loses packets gets the prefix
//! before the first lost packet, and optionally the pieces beyond. Lost packets are not retransmitted. The
//! time of a buffer begins when the time of the previous buffer ends, and is independent of slots.
//!
//! On the wire (`docs/reference/wire/stream.md`) a part is an ALC packet of object 1 with EXT_SEQ, by Compact
//! No-Code. An FDT with a single entry, encoded as `headwater-buffers`, describes the session, so that
//! receivers of files refuse the entry by that name.
//!
//! Sources: Lucas et al. 2010 for the order, RFC 5775 and RFC 6726 for the packets.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use self::receiver::{BUFFER_BYTES_MAX, Receiver, ReceiverConfig, ReceiverEvent, ReceiverStats};
pub use self::sender::{PART_BYTES_MAX, Sender, SenderConfig, SenderEvent, SenderStats};
pub use crate::layering::sequencer::{
    AssemblerStats, BUFFER_TIME_MAX, Order, Piece, Received, Submission, SubmitError,
};

/// TOI of all parts.
const TOI: u128 = 1;
/// Content encoding in the FDT.
const ENCODING: &str = "headwater-buffers";
