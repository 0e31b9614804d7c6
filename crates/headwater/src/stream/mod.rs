//! Streams of buffers: what an application hands over piece by piece, each receiver has as far as its path
//! carries it.
//!
//! A buffer has its most important byte first, as layered video has, or a progressive image; and a time to be
//! sent in, which follows that of the buffer before. Whoever receives x % of the session's rate meanwhile has
//! the first x % of the buffer. The application is told nothing of channels. Each session runs on a thread of
//! its own.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use headwater::{CongestionControl, LayerOptions, StreamReceiveOptions, StreamReceiver};
//! use headwater::{StreamSendOptions, StreamSender};
//!
//! # fn next_second_of_video() -> Option<Vec<u8>> { None }
//! # fn show(_: &[u8]) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group = "239.255.72.87:7287".parse()?;
//!
//! // On one machine:
//! let options = StreamSendOptions::new(group, CongestionControl::M2c(LayerOptions::new()));
//! let mut sender = StreamSender::open(options)?;
//! while let Some(video) = next_second_of_video() {
//!     sender.submit(video, Duration::from_secs(1))?; // waits until the one before has begun
//! }
//! let summary = sender.finish()?;
//!
//! // On any number of others:
//! let mut receiver = StreamReceiver::open(StreamReceiveOptions::new(group))?;
//! for buffer in receiver.by_ref() {
//!     show(&buffer.prefix);
//! }
//! println!("{:?}", receiver.finish()?.outcome);
//! # Ok(())
//! # }
//! ```

mod inbox;
mod options;
mod outbox;
mod receiver;
mod sender;
mod update;

pub use headwater_proto::stream::{BUFFER_BYTES_MAX, BUFFER_TIME_MAX, Order, Piece, Received, SubmitError};
pub use options::{StreamReceiveOptions, StreamSendOptions};
pub use receiver::StreamReceiver;
pub use sender::StreamSender;
pub use update::{
    StreamDelivery, StreamError, StreamOutcome, StreamReceiveProgress, StreamReceiveSummary,
    StreamSendProgress, StreamSendSummary, StreamStarted,
};
