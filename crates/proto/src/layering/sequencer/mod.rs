//! The sequencer (Lucas et al. 2010): lays a buffer, most important bytes first, onto layers, so that a
//! receiver that holds x % of the rate holds the first x % of the buffer.
//!
//! An application hands over a buffer and the time to send it in, and is told nothing of channels.
//! [`Arrangement`] says which part of it each packet of each level carries, [`Sequencer`] does so for one
//! buffer after the other, and [`Assembler`] puts buffers together again. [`crate::stream`] has both ends of
//! a session of them.

mod arrangement;
mod assembler;
mod pages;
mod sender;

pub use self::arrangement::{Arrangement, Order, Pdu, Reserve, Turn};
pub use self::assembler::{Assembler, AssemblerStats, Delivery, Part, Piece, Received};
pub use self::sender::{BUFFER_TIME_MAX, Buffer, Load, Sequencer, Submission, SubmitError};
