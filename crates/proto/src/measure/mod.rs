//! Measurements shared by congestion controls.

mod delay;
mod holes;
mod line;
mod meter;
mod overload;
mod tfrc;
mod waits;

pub use delay::RoundTrip;
pub(crate) use delay::seconds;
pub use delay::{DelayStep, JoinLatency, OneWayDelay};
pub use holes::SequenceTracker;
pub use holes::{Found, Holes};
pub(crate) use line::WeightedLine;
pub use meter::RateMeter;
pub(crate) use meter::Tally;
pub use overload::Overload;
pub use tfrc::{LossIntervals, interval_at, throughput, throughput_with_timeout};
pub use waits::Waits;
