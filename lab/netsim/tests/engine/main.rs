//! The engine against what its documentation promises, to the nanosecond.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agents;
mod captures;
mod delivery;
mod links;
mod multicast;
mod router;
mod script;
mod traces;
