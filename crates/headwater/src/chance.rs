//! Chance from the system.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::net::OpenError;

/// Random bytes, at most 256: so many the system gives whole.
///
/// # Errors
/// When the system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], OpenError> {
    let mut bytes = [0; N];
    getrandom(&mut bytes[..], GetRandomFlags::empty())
        .map_err(|errno| OpenError::Option { attempt: "give random bits", source: errno.into() })?;
    Ok(bytes)
}

/// A number that nobody guesses, or 0 should the system have none: where whoever holds it is known by more
/// than it.
pub(crate) fn number() -> u64 {
    u64::from_ne_bytes(random().unwrap_or_default())
}
