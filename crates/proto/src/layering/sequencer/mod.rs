//! The sequencer (Lucas et al. 2010): maps a buffer, most important bytes first, onto layers, so that a
//! receiver with x % of the rate gets the first x % of the buffer.
//!
//! An application passes in a buffer and the time to send the buffer in, without knowledge of channels.
//! [`Arrangement`] assigns a part of the buffer to each packet of each level. [`Sequencer`] does this for a
//! sequence of buffers, and [`Assembler`] reassembles buffers. [`crate::stream`] has both ends of a session
//! of buffers.

mod arrangement;
mod assembler;
mod pages;
mod sender;

pub use self::arrangement::{Arrangement, Order, Pdu, Reserve, Turn};
pub use self::assembler::{Assembler, AssemblerStats, Delivery, Part, Piece, Received};
pub use self::sender::{BUFFER_TIME_MAX, Buffer, Load, Sequencer, Submission, SubmitError};
