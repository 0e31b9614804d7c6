//! The run of a network: a single loop over a totally ordered set of events.
//!
//! | file | content |
//! |---|---|
//! | `events` | the pending events and their order |
//! | `packets` | packets under way, stored once |
//! | `timers` | deadlines that move without being cancelled |
//! | `core` | sending and forwarding |
//! | `membership` | joins and leaves |

pub(crate) mod core;
pub(crate) mod events;
mod membership;
pub(crate) mod packets;
mod run;
pub(crate) mod timers;

pub use self::core::Outgoing;
pub use packets::{Body, Destination, Packet};
pub(crate) use run::{Resident, State};
pub use run::{Run, Usage};
