//! M2C: multi-rate multicast congestion control with dynamic channels (Lucas et al. 2009-2018).
//!
//! The sender is [`crate::layering::DynamicSender`]; all control is in the receivers. Each receiver keeps a
//! congestion window like TCP's, and joins the next channel while the cumulative rate is at most window over
//! round-trip time. A receiver slows down by not joining, because the rate of every channel falls over time.
//!
//! The papers leave many details open: `docs/errata/layering.md` lists our choices and departures.

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
