//! TFMCC and PGMCC in the simulator: beside TCP, with many receivers, with a slow one that joins. What was
//! measured is printed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bed;
mod pgmcc;
mod tfmcc;
