//! Buffers of generated tracks, as receivers of any rate and loss hold them.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "generated tracks are small and sound"
)]

mod generator;
mod ladder;
mod loss;
mod mutated;
