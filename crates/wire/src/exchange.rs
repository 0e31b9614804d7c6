//! What our own datagrams have in common. They begin with three bytes that tell the format, 4 bits of version
//! and 4 of kind. The first byte reads as LCT version 4, which no LCT receiver takes for a packet of its
//! session.
//!
//! In probes and round-trip questions the question's nonce follows, and both have the same length, so an
//! answer never amplifies what a forged source asks for. BCFS has neither: whoever drives its ends and
//! routers limits what one peer may ask.

use crate::bytes::{Writer, be};

/// The version of the formats.
pub const VERSION: u8 = 1;

/// Why a datagram is none of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not begin as they do.
    #[error("it begins otherwise")]
    Magic,
    /// A version that this code does not know.
    #[error("version {0}, but only {VERSION} is known")]
    Version(u8),
    /// Its length is another one.
    #[error("{0} bytes are not the length of one")]
    Length(usize),
    /// None of the format's.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// None of IPv4 (4) and IPv6 (6).
    #[error("unknown address family {0}")]
    Family(u8),
}

/// Kind of a datagram that begins with `magic`.
pub fn kind(datagram: &[u8], magic: [u8; 3]) -> Result<u8, Error> {
    if !datagram.starts_with(&magic) {
        return Err(Error::Magic);
    }
    let byte = *datagram.get(3).ok_or(Error::Length(datagram.len()))?;
    if byte >> 4 != VERSION {
        return Err(Error::Version(byte >> 4));
    }
    Ok(byte & 0x0F)
}

/// Kind and nonce of a datagram that begins with `magic` and has `bytes` bytes, at least 12.
pub(crate) fn parse(datagram: &[u8], magic: [u8; 3], bytes: usize) -> Result<(u8, u64), Error> {
    let kind = kind(datagram, magic)?;
    if datagram.len() != bytes {
        return Err(Error::Length(datagram.len()));
    }
    Ok((kind, be(&datagram[4..12])))
}

/// Writes what [`kind`] reads.
pub fn emit_kind(writer: &mut Writer<'_>, magic: [u8; 3], kind: u8) {
    writer.put(&magic);
    writer.put(&[VERSION << 4 | kind]);
}

/// Writes what [`parse`] reads.
pub(crate) fn emit(writer: &mut Writer<'_>, magic: [u8; 3], kind: u8, nonce: u64) {
    emit_kind(writer, magic, kind);
    writer.put(&nonce.to_be_bytes());
}
