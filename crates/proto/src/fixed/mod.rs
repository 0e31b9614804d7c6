//! The plainest control: one channel at a rate that the operator chose. Fair to nobody; for networks of one's
//! own.

mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use sender::Sender;
