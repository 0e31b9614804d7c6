//! Multicast on the loopback interface. What needs routes or devices of its own runs in a network namespace:
//! such a test starts itself again inside one, and is skipped, saying so, where the system forbids that.

#![expect(clippy::unwrap_used, reason = "the helpers of tests panic as tests do")]

mod bed;
mod groups;
mod header;
mod refusals;
mod runs;
