//! Transport of the FDT: cut into symbols at the sender, reassembled at the receiver.

mod assembly;
mod carousel;
mod hearing;

pub(crate) use carousel::FdtSymbol;
pub use carousel::FdtTooLarge;
pub(super) use carousel::{FdtCarousel, check_room};
pub(crate) use hearing::{Heard, Hearing};

/// Maximum length of an FDT instance in bytes, compressed or not, at both ends.
pub const FDT_BYTES_MAX: usize = headwater_wire::fdt::DOCUMENT_LEN_MAX;
