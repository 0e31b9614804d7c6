//! M2C: multi-rate multicast congestion control with dynamic channels (Lucas et al. 2009-2018).
//!
//! The sender is [`crate::layering::DynamicSender`]; all the control is in the receivers. Each keeps a
//! congestion window like TCP's, joins the next channel while its cumulative rate is at most window over
//! round-trip time, and slows down by not joining, because every channel's rate falls by itself.
//!
//! The papers leave much open: `docs/errata/layering.md` has our choices and departures.

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
