//! EXT_CRYPT (our own): the payload of the packet is encrypted. Meaning and reasons of each field:
//! `docs/reference/wire/crypt.md`.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |    HET=98     |     HEL=5     |     Epoch     |       0       |
//! |                           Salt (64)                           |
//! |                       Packet number (64)                      |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
use core::ops::Range;

use crate::auth::{Error, find, make_room};
use crate::bytes::{Writer, be};
use crate::extensions::{ExtensionError, HET_CRYPT};
use crate::lct;

/// Bytes of the extension.
pub const CRYPT_BYTES: usize = 20;
/// Bytes of the authentication tag behind an encrypted payload.
pub const SEAL_BYTES: usize = 16;

const WORDS: u8 = 5;
const CONTENT_BYTES: usize = CRYPT_BYTES - 2;

/// Content of an EXT_CRYPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Crypt {
    /// Number of the group key.
    pub epoch: u8,
    /// Random number that the sender draws for each session.
    pub salt: u64,
    /// Number of the packet, unique under a salt.
    pub number: u64,
}

impl Crypt {
    pub(crate) fn parse(content: &[u8]) -> Result<Self, ExtensionError> {
        let &[epoch, _, ref numbers @ ..] = content else { return Err(length(content)) };
        let ([salt, number], []) = numbers.as_chunks::<8>() else { return Err(length(content)) };
        Ok(Self { epoch, salt: be(salt), number: be(number) })
    }

    /// Finds the extension of a packet, and its place in the datagram.
    ///
    /// # Errors
    /// A malformed extension, or two extensions of the type.
    pub fn find(packet: &lct::Packet<&[u8]>) -> Result<Option<(Self, Range<usize>)>, Error> {
        let Some((content, range)) = find(packet, HET_CRYPT)? else { return Ok(None) };
        let crypt = Self::parse(content);
        let crypt = crypt.map_err(|_| Error::Length { het: HET_CRYPT, have: content.len() })?;
        Ok(Some((crypt, range)))
    }

    /// Inserts the extension as the last one into a packet, the first `bytes` bytes of `buffer`. Returns the
    /// extension's place.
    ///
    /// # Errors
    /// No LCT header, or no room.
    pub fn insert(&self, buffer: &mut [u8], bytes: usize) -> Result<Range<usize>, Error> {
        let range = make_room(buffer, bytes, CRYPT_BYTES)?;
        let mut out = Writer::new(&mut buffer[range.clone()]);
        out.put(&[HET_CRYPT, WORDS, self.epoch, 0]);
        out.put(&self.salt.to_be_bytes());
        out.put(&self.number.to_be_bytes());
        Ok(range)
    }
}

fn length(content: &[u8]) -> ExtensionError {
    ExtensionError::Length { het: HET_CRYPT, need: CONTENT_BYTES, have: content.len() }
}
