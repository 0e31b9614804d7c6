//! Round-trip time between a receiver and its sender, by unicast questions: `docs/wire/rtt.md`.
//!
//! A receiver that joins a channel also waits for the routers, unlike a competing TCP. On many networks that
//! wait is much longer than the round trip. The receiver therefore asks the sender from time to time, and
//! works without answers if there are none.
//!
//! Both ends are parts of a congestion control: [`Prober`] of a receiving control, [`Answers`] of a sending
//! control. Each end limits its own rate, regardless of the number of peers.

mod answers;
mod prober;

pub use self::answers::Answers;
pub use self::prober::{Prober, ProberConfig};
