//! Receiver that learns its congestion control from the session's FDT, so that receivers need no options.
//!
//! A sender's control writes a [`Description`] into the FDT; a [`Receiver`] holds the base channel until the
//! FDT is there, then runs the control that the FDT names. Without the attribute a session has one channel at
//! a rate of its sender's choice.

mod receiver;
#[cfg(test)]
mod tests;

pub use self::receiver::{Receiver, ReceiverConfig};
pub use crate::controls::{Description, DescriptionError};
