//! What a source sends and what receivers make of it: the seam to content.

use crate::time::Instant;

/// Gives symbols without end.
pub trait Fountain {
    /// Writes the next symbol, with all that tells which one it is, at the start of `room`; its length.
    /// `None` while there is nothing to give: the request goes unanswered.
    fn next(&mut self, now: Instant, room: &mut [u8]) -> Option<usize>;
}

/// Takes symbols until it has enough.
pub trait Basin {
    /// A symbol came, or bytes that somebody gave out for one.
    fn take(&mut self, now: Instant, body: &[u8]);

    /// Whether it has all that it wants: nothing more is asked for.
    fn is_full(&self) -> bool;
}
