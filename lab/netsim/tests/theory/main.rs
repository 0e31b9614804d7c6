//! The engine against what queueing theory and statistics say it must do
//! (`lab/notebook/netsim-validation.md`).
//!
//! Quick forms run with all tests. Long ones make the numbers of `lab/notebook/netsim-validation.md`:
//! `cargo test --release -p headwater-netsim --test theory queues_are -- --nocapture` with `HEADWATER_LONG=1` (`./ci.sh long`)

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ecn;
mod loss;
mod queueing;
mod red;
mod sources;
mod statistics;
