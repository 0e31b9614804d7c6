//! Measurements shared by congestion controls.

mod delay;
mod holes;
mod meter;
mod round_trip;
mod sequence;
mod tfrc;

pub(crate) use delay::seconds;
pub use delay::{JoinLatency, OneWayDelay};
pub use holes::{Found, Holes};
pub use meter::RateMeter;
pub use round_trip::RoundTrip;
pub use sequence::SequenceTracker;
pub use tfrc::{LossIntervals, interval_at, throughput, throughput_with_timeout};
