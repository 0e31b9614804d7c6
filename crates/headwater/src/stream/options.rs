//! How a stream is sent and received: what files have, too, goes by the same names.

use std::net::SocketAddr;

use headwater_proto::stream::{BUFFER_BYTES_MAX, Order};

use crate::congestion_control::CongestionControl;
use crate::receive::{ListenOptions, listen_setters, session_setters};
use crate::send::{SendOptions, link_setters};

/// How a stream is sent.
#[derive(Debug)]
pub struct StreamSendOptions {
    /// Of the session, what files have, too.
    pub(super) session: SendOptions,
    pub(super) order: Order,
}

impl StreamSendOptions {
    /// A stream to `group` (the base channel; further channels count up from it) under a congestion control.
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

    /// Bytes of a buffer in a packet, beside at most 92 bytes of headers. Default: 1408, which fits an MTU of
    /// 1500, or the largest multiple of 64 that fits a smaller MTU of the interface.
    #[must_use]
    pub fn with_part_bytes(mut self, bytes: Option<u16>) -> Self {
        self.session = self.session.with_symbol_size(bytes);
        self
    }

    /// In which order packets take parts of a buffer. Default: [`Order::Tiles`]; [`Order::Exact`] brings up
    /// to a level's share more to receivers whose rate lies within a level, for some ten times the work of
    /// laying it out.
    #[must_use]
    pub fn with_order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

/// How a stream is received.
#[derive(Debug)]
pub struct StreamReceiveOptions {
    /// What files have, too.
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
    /// twice that, then the oldest is lost. Default: [`BUFFER_BYTES_MAX`], 64 MiB.
    #[must_use]
    pub fn with_buffer_bytes_max(mut self, bytes: usize) -> Self {
        self.buffer_bytes_max = bytes;
        self
    }

    /// Whether to give what came of a buffer beyond the first hole, and what came late. Default: no.
    #[must_use]
    pub fn with_pieces(mut self, wanted: bool) -> Self {
        self.wants_pieces = wanted;
        self
    }
}
