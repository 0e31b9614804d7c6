//! Streams of buffers: an application submits buffers, and each receiver gets the part that its path carries.
//!
//! A buffer begins with its most important byte, as in layered video or a progressive image, and has a
//! sending time, which follows the time of the buffer before. A receiver of x % of the session's rate gets
//! the first x % of the buffer. The application knows nothing of channels. Each session runs on a thread of
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

mod receiver;
mod sender;
mod update;

use std::net::SocketAddr;

use crate::congestion_control::CongestionControl;
use crate::receive::{ListenOptions, listen_setters, session_setters};
use crate::send::{SendOptions, link_setters};

pub use headwater_proto::stream::{BUFFER_BYTES_MAX, BUFFER_TIME_MAX, Order, Piece, Received, SubmitError};
pub use receiver::StreamReceiver;
pub use sender::StreamSender;
pub use update::{
    StreamDelivery, StreamError, StreamOutcome, StreamReceiveProgress, StreamReceiveSummary,
    StreamSendProgress, StreamSendSummary, StreamStarted,
};

/// Options of sending a stream.
#[derive(Debug)]
pub struct StreamSendOptions {
    /// Options common to files and streams.
    pub(super) session: SendOptions,
    pub(super) order: Order,
}

impl StreamSendOptions {
    /// Sends a stream to `group` (the base channel; further channels count up) under a congestion control.
    pub fn new(group: SocketAddr, congestion_control: CongestionControl) -> Self {
        Self { session: SendOptions::new(group, congestion_control), order: Order::Tiles }
    }

    link_setters!(session.link);

    /// [`SendOptions::with_tsi`].
    #[must_use]
    pub fn with_tsi(mut self, tsi: Option<u32>) -> Self {
        self.session = self.session.with_tsi(tsi);
        self
    }

    /// [`SendOptions::with_signing`]. Each packet is signed: live content is not there before its departure.
    #[must_use]
    pub fn with_signing(mut self, key: Option<crate::keys::SenderKey>) -> Self {
        self.session = self.session.with_signing(key);
        self
    }

    /// Bytes of a buffer in a packet, beside at most 92 bytes of headers. Default: 1408, which fits an MTU of
    /// 1500, or the largest multiple of 64 that fits a smaller MTU of the interface.
    #[must_use]
    pub fn with_part_bytes(mut self, bytes: Option<u16>) -> Self {
        self.session = self.session.with_symbol_size(bytes);
        self
    }

    /// Order in which packets take parts of a buffer. Default: [`Order::Tiles`]. [`Order::Exact`] brings up
    /// to a level's share more to receivers whose rate lies within a level, for ten times the work of
    /// layout.
    #[must_use]
    pub fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

/// Options of receiving a stream.
#[derive(Debug)]
pub struct StreamReceiveOptions {
    /// Options common to files and streams.
    pub(super) listen: ListenOptions,
    pub(super) buffer_bytes_max: usize,
    pub(super) wants_pieces: bool,
}

impl StreamReceiveOptions {
    /// Receives the first stream heard on `group` (its base channel).
    pub fn new(group: SocketAddr) -> Self {
        let listen = ListenOptions::new(group);
        Self { listen, buffer_bytes_max: BUFFER_BYTES_MAX, wants_pieces: false }
    }

    listen_setters!();
    session_setters!();

    /// Longest buffer in bytes; parts beyond are dropped. Buffers that wait for the application take up to
    /// twice this size; beyond that, the oldest buffer is lost. Default: [`BUFFER_BYTES_MAX`], 64 MiB.
    #[must_use]
    pub fn with_buffer_bytes_max(mut self, bytes: usize) -> Self {
        self.buffer_bytes_max = bytes;
        self
    }

    /// Whether to deliver the pieces of a buffer beyond the first hole, and late pieces. Default: no.
    #[must_use]
    pub fn with_pieces(mut self, wanted: bool) -> Self {
        self.wants_pieces = wanted;
        self
    }
}
