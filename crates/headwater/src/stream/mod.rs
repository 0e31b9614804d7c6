//! Streams of buffers: an application submits buffers, and each receiver gets the part that its path carries.
//!
//! A buffer begins with its most important byte, as in layered video or a progressive image, and has a
//! sending time, which follows the time of the buffer before. A receiver of x % of the session's rate gets
//! the first x % of the buffer. The application knows nothing of channels.
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! use headwater::stream::{StreamReceiveOptions, StreamReceiveSession, StreamReceiveUpdate};
//! use headwater::stream::{StreamSendOptions, StreamSendSession};
//! use headwater::{CongestionControl, LayerOptions, Session};
//!
//! # fn next_second_of_video() -> Option<Vec<u8>> { None }
//! # fn show(_: &[u8]) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group: SocketAddr = "239.255.72.87:7287".parse()?;
//!
//! // On one machine:
//! let options = StreamSendOptions::new(group, CongestionControl::M2c(LayerOptions::new()));
//! let session = StreamSendSession::open(options)?;
//! let feed = session.feed();
//! let thread = session.spawn()?;
//! while let Some(video) = next_second_of_video() {
//!     feed.submit(video, Duration::from_secs(1))?; // waits until the one before has begun
//! }
//! feed.finish();
//! let summary = thread.join()?;
//!
//! // On any number of others:
//! let mut thread = StreamReceiveSession::open(StreamReceiveOptions::new(group))?.spawn()?;
//! for update in thread.updates() {
//!     if let StreamReceiveUpdate::Buffer(buffer) = update {
//!         show(&buffer.prefix);
//!     }
//! }
//! println!("{:?}", thread.join()?.outcome);
//! # Ok(())
//! # }
//! ```

mod receiver;
mod sender;
mod update;

use crate::congestion_control::CongestionControl;
use crate::keys::{GroupKeys, SenderKey};
use crate::receive::ListenOptions;
use crate::send::LinkOptions;

pub use headwater_proto::delivery::SessionEvent;
pub use headwater_proto::stream::{BUFFER_BYTES_MAX, BUFFER_TIME_MAX, Order, Piece, Received, SubmitError};
pub use receiver::StreamReceiveSession;
pub use sender::{StreamFeed, StreamSendSession};
pub use update::{
    StreamError, StreamOutcome, StreamReceiveProgress, StreamReceiveSummary, StreamReceiveUpdate,
    StreamSendProgress, StreamSendSummary, StreamSendUpdate, StreamStarted,
};

/// Options of sending a stream.
#[derive(Debug)]
pub struct StreamSendOptions {
    /// Group, interface and marking of packets.
    pub link: LinkOptions,
    /// Control of the rate.
    pub congestion_control: CongestionControl,
    /// Transport session identifier, which distinguishes the sessions on a group. Default: 16 random bits,
    /// not 0.
    pub tsi: Option<u32>,
    /// Bytes of a buffer in a packet, beside at most 92 bytes of headers. Default: 1408, which fits an MTU of
    /// 1500, or the largest multiple of 64 that fits a smaller MTU of the interface.
    pub part_bytes: Option<u16>,
    /// Order in which packets take parts of a buffer. Default: [`Order::Tiles`]. [`Order::Exact`] brings up
    /// to a level's share more to receivers whose rate lies within a level, for ten times the work of
    /// layout.
    pub order: Order,
    /// Key that signs each packet: live content cannot be listed ahead of its departure. Default: none.
    pub signing: Option<SenderKey>,
    /// Keys of the group that can read the content; the newest encrypts. Default: content in the clear.
    pub group_key: Option<GroupKeys>,
}

impl StreamSendOptions {
    /// Sends a stream to a group (the base channel; further channels count up) under a congestion control.
    pub fn new(link: impl Into<LinkOptions>, congestion_control: CongestionControl) -> Self {
        Self {
            link: link.into(),
            congestion_control,
            tsi: None,
            part_bytes: None,
            order: Order::Tiles,
            signing: None,
            group_key: None,
        }
    }
}

/// Options of receiving a stream.
#[derive(Debug)]
pub struct StreamReceiveOptions {
    /// Group, source, interface and limits.
    pub listen: ListenOptions,
    /// Longest buffer in bytes; parts beyond are dropped. Buffers that wait for the application take up to
    /// twice this size; beyond that, the oldest buffer is lost. Default: [`BUFFER_BYTES_MAX`], 64 MiB.
    pub buffer_bytes_max: usize,
    /// Whether to deliver the pieces of a buffer beyond the first hole, and late pieces. Default: no.
    pub wants_pieces: bool,
}

impl StreamReceiveOptions {
    /// Receives the first stream heard on a group (its base channel).
    pub fn new(listen: impl Into<ListenOptions>) -> Self {
        Self { listen: listen.into(), buffer_bytes_max: BUFFER_BYTES_MAX, wants_pieces: false }
    }
}
