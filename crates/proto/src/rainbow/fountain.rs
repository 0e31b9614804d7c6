//! Interface between a transfer and its content, at the source and at receivers.

use crate::time::Instant;

/// Endless supply of symbols.
pub trait Fountain {
    /// Writes the next symbol, with its identification, at the start of `room` and returns the length.
    /// Returns `None` if no symbol is available; the request then stays unanswered.
    fn next(&mut self, now: Instant, room: &mut [u8]) -> Option<usize>;
}

/// Consumer of symbols, until complete.
pub trait Basin {
    /// Processes a received symbol, possibly forged.
    fn take(&mut self, now: Instant, body: &[u8]);

    /// Whether the content is complete; the receiver then stops its requests.
    fn is_full(&self) -> bool;
}
