//! SipHash-1-3 (Aumasson, Bernstein 2012): without the key, an attacker cannot choose labels that share a
//! bucket.

use core::net::IpAddr;

/// Hash key, drawn at random by the creator of a router or a source, and secret to the network.
pub(crate) type Key = [u64; 2];

/// Returns the high and the low 64 bits of an address, with IPv4 mapped to IPv6.
pub(crate) fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let low = u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default();
    let high = u64::try_from(bits >> 64).unwrap_or_default();
    [high, low]
}

/// Returns the hash of `words`, concatenated in little-endian form.
pub(crate) fn hash<const N: usize>(key: Key, words: [u64; N]) -> u64 {
    let mut state = [
        key[0] ^ 0x736F_6D65_7073_6575,
        key[1] ^ 0x646F_7261_6E64_6F6D,
        key[0] ^ 0x6C79_6765_6E65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let bytes_mod_256 = (8 * N as u64) << 56;
    for word in words.into_iter().chain([bytes_mod_256]) {
        state[3] ^= word;
        round(&mut state);
        state[0] ^= word;
    }
    state[2] ^= 0xFF;
    (0..3).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

const fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher as _};

    #[test]
    fn it_is_the_one_of_the_standard_library() {
        let words = [0x0123_4567_89AB_CDEF, 42, u64::MAX];
        let mut hasher = DefaultHasher::new();
        for word in words {
            hasher.write(&word.to_le_bytes());
        }
        assert_eq!(super::hash([0, 0], words), hasher.finish());
        assert_ne!(super::hash([0, 1], words), hasher.finish());
        assert_ne!(super::hash([1, 0], words), hasher.finish());
    }
}
