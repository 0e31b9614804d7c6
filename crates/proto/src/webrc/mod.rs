//! WEBRC: wave and equation based rate control (RFC 3738).
//!
//! The sender is [`crate::layering::DynamicSender`] over channels of [`crate::layering::Shape::Webrc`]. A
//! receiver measures its loss event rate and, by how long joins take, its multicast round-trip time; a TCP's
//! equation gives its target rate; it joins the next wave when the target would bear it.

mod loss;
mod receiver;
#[cfg(test)]
mod tests;

pub use self::loss::{LossEstimator, equation};
pub use self::receiver::{Receiver, ReceiverConfig, Status};
