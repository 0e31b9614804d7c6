//! Measurements shared by congestion controls.

mod delay;
mod holes;
mod meter;
mod overload;
mod tfrc;

pub use delay::RoundTrip;
pub(crate) use delay::seconds;
pub use delay::{JoinLatency, OneWayDelay};
pub use holes::SequenceTracker;
pub use holes::{Found, Holes};
pub use meter::RateMeter;
pub use overload::Overload;
pub use tfrc::{LossIntervals, interval_at, throughput, throughput_with_timeout};
