//! WEBRC: wave and equation based rate control (RFC 3738).
//!
//! The sender is [`crate::layering::DynamicSender`] over channels of [`crate::layering::Shape::Webrc`]. A
//! receiver measures the loss event rate, and derives the multicast round-trip time from join times. TCP's
//! throughput equation gives the target rate. The receiver joins the next wave if the target rate permits.

mod loss;
mod receiver;
#[cfg(test)]
mod tests;

pub use self::loss::{LossEstimator, equation};
pub use self::receiver::{Receiver, ReceiverConfig, Status};
