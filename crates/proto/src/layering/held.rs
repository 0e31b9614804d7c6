//! State a receiver of dynamic channels keeps about the subscribed channels.

use crate::measure::Holes;
use crate::time::Instant;

/// A subscribed wave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Number of the wave, counted over the whole session.
    pub(crate) number: u64,
    pub(crate) holes: Holes,
}

/// Joins under way: no packet of the joined waves has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joining {
    pub(crate) since: Instant,
    /// Time at which the join is given up.
    pub(crate) until: Instant,
    /// Number of waves in the join, counted from the highest wave.
    pub(crate) levels: usize,
}
