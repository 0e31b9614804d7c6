//! The simplest control: a single channel at a rate chosen by the operator. Not fair to other traffic; for
//! private networks.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use sender::Sender;
