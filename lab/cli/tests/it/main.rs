//! `headwater-lab` as its users meet it: one process per run.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod bench;
mod command;
mod help;
mod simulate;
