//! Common header of Headwater's own datagrams: three bytes that name the format, 4 bits of version and 4 of
//! kind. The first byte reads as LCT version 4, so no LCT receiver takes the datagram for a packet of its
//! session.
//!
//! In probes and round-trip questions the nonce of the question follows, and question and answer have the
//! same length, so an answer never amplifies a request with a forged source. BCFS has neither: replies go to
//! addresses that have returned the word of a challenge, and the driver limits the requests of each peer.

use crate::bytes::{Writer, be};

/// The version of the formats.
pub const VERSION: u8 = 1;

/// Reason for which a datagram does not belong to a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The first three bytes differ from the format's.
    #[error("it begins otherwise")]
    Magic,
    /// A version that this code does not know.
    #[error("version {0}, but only {VERSION} is known")]
    Version(u8),
    /// The length differs from the format's.
    #[error("{0} bytes are not the length of one")]
    Length(usize),
    /// A kind that the format does not have.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// An address family other than IPv4 (4) and IPv6 (6).
    #[error("unknown address family {0}")]
    Family(u8),
}

/// Kind of a datagram that begins with `magic`.
pub fn kind(datagram: &[u8], magic: [u8; 3]) -> Result<u8, ExchangeError> {
    if !datagram.starts_with(&magic) {
        return Err(ExchangeError::Magic);
    }
    let byte = *datagram.get(3).ok_or(ExchangeError::Length(datagram.len()))?;
    if byte >> 4 != VERSION {
        return Err(ExchangeError::Version(byte >> 4));
    }
    Ok(byte & 0x0F)
}

/// Kind and nonce of a datagram that begins with `magic` and has `bytes` bytes, at least 12.
pub(crate) fn parse(datagram: &[u8], magic: [u8; 3], bytes: usize) -> Result<(u8, u64), ExchangeError> {
    let kind = kind(datagram, magic)?;
    if datagram.len() != bytes {
        return Err(ExchangeError::Length(datagram.len()));
    }
    Ok((kind, be(&datagram[4..12])))
}

/// Writes the first four bytes, as [`kind`] reads them.
pub fn emit_kind(writer: &mut Writer<'_>, magic: [u8; 3], kind: u8) {
    writer.put(&magic);
    writer.put(&[VERSION << 4 | kind]);
}

/// Writes the first four bytes and the nonce, as [`parse`] reads them.
pub(crate) fn emit(writer: &mut Writer<'_>, magic: [u8; 3], kind: u8, nonce: u64) {
    emit_kind(writer, magic, kind);
    writer.put(&nonce.to_be_bytes());
}
