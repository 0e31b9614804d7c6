//! Measurements that congestion controls share.

mod sequence;

pub use sequence::SequenceTracker;
