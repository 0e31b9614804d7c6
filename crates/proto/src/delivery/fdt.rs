//! The FDT on the way: cut into symbols at the sender, put together again at the receiver.

mod assembly;
mod carousel;

pub(super) use assembly::{Assembly, Progress};
pub use carousel::FdtTooLarge;
pub(super) use carousel::{FdtCarousel, FdtSymbol};

/// Longest FDT instance in bytes, compressed or not, at both ends.
pub const FDT_BYTES_MAX: usize = headwater_wire::fdt::DOCUMENT_LEN_MAX;
