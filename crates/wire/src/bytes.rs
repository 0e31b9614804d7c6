//! Big-endian fields of any whole number of bytes.

/// Returns the big-endian unsigned integer in `bytes`, at most 8 bytes.
#[inline]
pub fn be(bytes: &[u8]) -> u64 {
    debug_assert!(bytes.len() <= 8, "a field of at most 64 bits");
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The big-endian 16-bit integer at `at`; the caller has checked the length.
#[inline]
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit integer at `at`; the caller has checked the length.
#[inline]
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Fills a buffer from its front. The caller has checked that everything fits.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `buffer` on.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Writer { buffer, at: 0 }
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// The low `len` bytes of `value`, big-endian; `len` is at most 16.
    pub fn put_uint(&mut self, value: u128, len: usize) {
        self.put(&value.to_be_bytes()[16 - len..]);
    }

    /// Bytes written so far.
    pub fn written(&self) -> usize {
        self.at
    }
}
