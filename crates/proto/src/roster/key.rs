//! Keys that authenticate reports, for ends that share a secret.

use core::fmt;

use headwater_wire::roster::{ReportMac, put_mac, split_mac};
use zeroize::Zeroizing;

/// Key of the reports of receivers that share a secret with the sender. Strangers cannot forge reports; each
/// holder of the secret can forge those of all receivers. The key is wiped from memory.
#[derive(Clone)]
pub struct ReportKey(Zeroizing<[u8; 32]>);

impl ReportKey {
    /// Derives the key from a secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(Zeroizing::new(blake3::derive_key("headwater 2026 roster report", secret)))
    }

    fn mac(&self, bytes: &[u8]) -> ReportMac {
        *blake3::keyed_hash(&self.0, bytes).as_bytes().first_chunk().expect("a hash has 32 bytes")
    }

    /// Appends the code of a report of `length` bytes in `buffer`. Returns the new length.
    pub(super) fn authenticate(&self, buffer: &mut [u8], length: usize) -> usize {
        let mac = self.mac(&buffer[..length]);
        put_mac(buffer, length, mac)
    }

    /// Whether a report ends with the code of this key.
    pub(super) fn is_right(&self, report: &[u8]) -> bool {
        split_mac(report).is_some_and(|(bytes, found)| {
            // In constant time: the time of a comparison that stops early tells how much is right.
            let pairs = self.mac(bytes).into_iter().zip(found);
            pairs.fold(0, |different, (right, found)| different | (right ^ found)) == 0
        })
    }
}

impl fmt::Debug for ReportKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReportKey(..)")
    }
}
