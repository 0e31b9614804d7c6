//! Block partitioning and erasure codes behind one trait.
//!
//! | scheme | FEC Encoding ID | source | here |
//! |---|---|---|---|
//! | Compact No-Code | 0 | RFC 5445 section 3 | [`Scheme::NoCode`] |
//! | LDPC-Staircase, LDPC-Triangle | 3, 4 | RFC 5170 | [`Scheme::LdpcStaircase`], [`Scheme::LdpcTriangle`] |
//! | Reed-Solomon over GF(2^8) | 5 | RFC 5510 section 8 | [`Scheme::ReedSolomon`] |
//! | RaptorQ | 6 | RFC 6330 | [`Scheme::RaptorQ`] |
//!
//! An object of L bytes is cut into symbols of T bytes, and the symbols into blocks by a [`Partition`]; a
//! [`BlockCodec`] made by [`codec`] then encodes and decodes one block of k symbols at a time. A block's
//! bytes are always k * T: the last symbol of an object is padded with zeros, and the padding is never sent
//! to disk.
//!
//! The crate is pure: no clock, thread, socket or entropy. Nothing that comes from the network may make it
//! panic: a wrong length, count or number is a [`FecError`]. The crate cannot detect a *corrupted* symbol of
//! the right length, which spoils the block silently; check a digest of the decoded bytes.
//!
//! Departures from the RFCs are listed in `docs/errata/fec.md`.

#![deny(unsafe_code)]

mod bits;
mod codec;
mod error;
mod gf256;
mod kernel;
mod ldpc;
mod no_code;
mod partition;
mod raptor_q;
mod reed_solomon;

pub use codec::{BlockCodec, BlockEncoder, LdpcParameters, Parameters, Recipe, Repair, Scheme, codec};
pub use error::{DecodeError, FecError};
pub use kernel::Kernel;
pub use ldpc::sending_order;
pub use partition::{
    Block, K_MAX, Order, Partition, PartitionError, SLOWEST_RATE, SYMBOL_SIZE_DEFAULT, blocks_for,
    ldpc_block_symbols,
};
pub use raptor_q::{PlanBytes, kept_bytes};
