//! Buffers over one congestion control: live content, handed over piece by piece, of which each receiver has
//! the beginning of each piece, as far as its rate goes.
//!
//! ```text
//! submit(buffer, time) -> Sequencer -> Sender (any SenderControl) ~~ datagrams ~~> Receiver (any ReceiverControl) -> Received
//!                           ^            |
//!                           +- Layering -+
//! ```
//!
//! A buffer has its most important byte first, and a time to be sent in. A receiver that holds x % of the
//! session's rate while it lasts has its first x %; one that loses packets has what is before the first of
//! them, and the pieces beyond if it wants them. Nothing is sent again for those who lost it. A time that
//! follows another begins when that one ends, and is independent of slots.
//!
//! On the wire (`docs/wire/stream.md`) a part is an ALC packet of object 1 with EXT_SEQ, by Compact No-Code;
//! the session is described by an FDT whose one entry is encoded as `headwater-buffers`, so that receivers of
//! files refuse it by that name.
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

/// The object that parts are of.
const TOI: u128 = 1;
/// What the FDT calls its encoding.
const ENCODING: &str = "headwater-buffers";
