//! The round-trip time between a receiver and its sender, by unicast questions: `docs/wire/rtt.md`.
//!
//! A receiver that joins a channel waits for the routers too, which a TCP beside it does not: on many
//! networks that is much longer than the round trip. So it asks now and then, and works without when nobody
//! answers.
//!
//! Both ends are parts of a congestion control: [`Prober`] of a receiving one, [`Answers`] of a sending one.
//! Neither says more than it may, however many there are of the other.

mod answers;
mod prober;

pub use self::answers::Answers;
pub use self::prober::{Prober, ProberConfig};
