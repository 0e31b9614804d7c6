//! M2C: multi-rate multicast congestion control with dynamic channels (Lucas et al. 2009-2018).
//!
//! The sender is [`crate::layering::DynamicSender`]; all the control is in the receivers. Each keeps a congestion window like
//! TCP's, joins the next channel while its cumulative rate is at most window over round-trip time, and slows down by not
//! joining, because every channel's rate falls by itself.
//!
//! What the papers leave open is settled in m2c-webrc.md 2.3-2.6, whose numbers the comments name; where we depart from
//! that too, `docs/errata/layering.md` says so.

mod config;
#[cfg(test)]
mod hostile;
mod receiver;
mod session;
mod start;
#[cfg(test)]
mod tests;

pub use self::config::ReceiverConfig;
pub use self::receiver::{Mode, Receiver, Status};
