//! What a stream tells its application.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::control::{Reception, Status};
use headwater_proto::stream::{Piece, Received, ReceiverStats, SenderStats, SubmitError};

use crate::congestion_control::CongestionControl;
use crate::send::RateLimit;

/// A stream as it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStarted {
    /// Transport session identifier.
    pub tsi: u32,
    /// Group and port of the base channel.
    pub group: SocketAddr,
    /// Channels, counting up from the group.
    pub channels: u16,
    /// How fast they are sent.
    pub congestion_control: CongestionControl,
    /// Address and port it sends from.
    pub source: SocketAddr,
    /// The interface it sends on.
    pub interface: String,
    /// Bytes of a buffer in a packet.
    pub part_bytes: u16,
}

/// How far a sender is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamSendProgress {
    /// Time since the first buffer was submitted.
    pub elapsed: Duration,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// What was sent.
    pub stats: SenderStats,
    /// Packets that the kernel had no room for, or no interface: lost to all receivers.
    pub unsent: u64,
    /// Rate that is sent while this machine cannot send the fixed or highest rate that was asked for.
    pub limit: Option<RateLimit>,
}

/// A sender's stream in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamSendSummary {
    /// Whether the time of every buffer came to its end. If not, it was stopped.
    pub is_complete: bool,
    /// The last state.
    pub progress: StreamSendProgress,
}

/// Why a buffer was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It makes no sense.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The session is over: it was stopped, or the network failed, which `finish` tells.
    #[error("the stream has ended")]
    Ended,
}

/// What a receiver gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamDelivery {
    /// A buffer: when it is whole, or the next one has begun, or its time is over.
    Buffer(Received),
    /// A piece of the buffer given last, which came late. Only if pieces are wanted.
    Late {
        /// The buffer's number.
        id: u16,
        /// The piece.
        piece: Piece,
    },
}

/// How far a receiver is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamReceiveProgress {
    /// Time since it began to listen.
    pub elapsed: Duration,
    /// Who sends the stream and its transport session identifier, once a packet of it has come.
    pub session: Option<(SocketAddr, u64)>,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// What was received, and what was dropped and why.
    pub stats: ReceiverStats,
    /// Packets received, and those missing in the channels' sequence numbers.
    pub reception: Reception,
    /// The congestion control: what it holds to be fair, channels, join latency.
    pub control: Status,
    /// Datagrams that the kernel dropped, mostly because the receive buffer was full.
    pub kernel_drops: u64,
    /// Deliveries lost because the application did not come for them.
    pub lost: u64,
}

/// How a receiver's stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOutcome {
    /// The sender closed it.
    Closed,
    /// No packet of a stream came within the timeout.
    NothingReceived,
    /// No part of a buffer came for as long as the timeout.
    TimedOut,
    /// The session on the group carries files, not buffers.
    NoBuffers,
    /// The session's congestion control cannot be followed; why.
    ControlRefused(String),
    /// It was stopped.
    Interrupted,
}

/// A receiver's stream in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamReceiveSummary {
    /// How it ended.
    pub outcome: StreamOutcome,
    /// The last state.
    pub progress: StreamReceiveProgress,
}
