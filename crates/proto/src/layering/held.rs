//! What a receiver of dynamic channels remembers of those that it holds.

use crate::measure::Holes;
use crate::time::Instant;

/// A wave that was joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Its number, of all that there ever were.
    pub(crate) number: u64,
    pub(crate) holes: Holes,
}

/// Joins under way: no packet of theirs has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    pub(crate) since: Instant,
    /// When it is given up.
    pub(crate) until: Instant,
    /// How many of the highest waves they are of.
    pub(crate) levels: usize,
}
