//! Layered video in buffers of a stream: each buffer holds one group of pictures (GOP) as several independent
//! encodings, the rungs of a ladder, smallest first.
//!
//! ```text
//! encoder of each track -> Splitter -> Packer -> bytes of a buffer ~~ stream ~~> Cutter -> best whole rung
//! ```
//!
//! A receiver with a part of the session's rate holds the beginning of each buffer, and plays the highest
//! rung that is whole. Reed-Solomon symbols behind each rung repair single lost packets.
//!
//! | file | contents |
//! |---|---|
//! | `boxes` | boxes of fragmented MP4 (ISO/IEC 14496-12): init segments, fragments, times, codec strings |
//! | `index` | header of a buffer and the description of the tracks |
//! | `layout` | places of source and repair symbols in a buffer |
//! | `packer` | tracks of the encoder to buffers, and the time in which a buffer is sent |
//! | `cut` | received parts of a buffer to the best whole rung |
//!
//! The format is described in `docs/reference/wire/video.md`, the reasons in `docs/design/video.md`. The
//! crate is pure: no socket, clock, thread or entropy. Bytes from the network never panic and allocate at
//! most a small multiple of the received bytes, plus [`DESCRIPTION_BYTES_MAX`].

#![deny(unsafe_code)]

mod boxes;
mod cut;
mod index;
mod layout;
mod packer;

pub use boxes::{BOX_BYTES_MAX, BoxError, Fragment, Init, Piece, Splitter};
pub use cut::{Cut, CutError, Cutter, ReceivedBuffer};
pub use index::{
    DESCRIPTION_BYTES_MAX, Description, DescriptionError, INDEX_BYTES, Index, IndexError, MAGIC, RUNGS_MAX,
    Rung, TRACKS_MAX,
};
pub use layout::{FIRST_BLOCK_MAX, PROTECTION_MAX, Protection, SYMBOL_BYTES_MAX, SYMBOL_BYTES_MIN};
pub use packer::{Ladder, LadderError, PackError, Packed, Packer, Planned, Submitted, submission_time};
