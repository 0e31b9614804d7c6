//! Chance from the system.

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes, at most 256: so many the system gives whole.
///
/// # Errors
/// When the system has none.
pub(crate) fn random<const N: usize>() -> rustix::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(bytes)
}

/// A number that nobody guesses, or 0 should the system have none: where whoever holds it is known by more than it.
pub(crate) fn number() -> u64 {
    u64::from_ne_bytes(random().unwrap_or_default())
}
