//! Progress, deliveries and summaries of streams.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::control::{Reception, Status};
use headwater_proto::delivery::SessionEvent;
use headwater_proto::stream::{Piece, Received, ReceiverStats, SenderStats, SubmitError};

use crate::congestion_control::CongestionControl;
use crate::net::LinkChange;
use crate::send::RateLimit;

/// Parameters of a sending stream at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStarted {
    /// Transport session identifier.
    pub tsi: u32,
    /// Group and port of the base channel.
    pub group: SocketAddr,
    /// Channels, counting up from the group.
    pub channels: u16,
    /// Congestion control that sets the rate of the channels.
    pub congestion_control: CongestionControl,
    /// Address and port that packets are sent from.
    pub source: SocketAddr,
    /// Interface that packets are sent on.
    pub interface: String,
    /// Bytes of a buffer in a packet.
    pub part_bytes: u16,
}

/// Progress of a sending stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamSendProgress {
    /// Time since the first buffer was submitted.
    pub elapsed: Duration,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// Counters of sent packets.
    pub stats: SenderStats,
    /// Packets lost to all receivers because the kernel had no room or the interface was missing.
    pub unsent: u64,
    /// Sent rate, while this machine cannot send the requested fixed or highest rate.
    pub limit: Option<RateLimit>,
}

/// Update of a sending stream to its observer.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamSendUpdate {
    /// Progress, about ten times a second.
    Progress(StreamSendProgress),
    /// The interface went down, disappeared, or came back.
    LinkChanged(LinkChange),
    /// The share of the requested rate that this machine can send has changed.
    RateLimited(RateLimit),
}

/// Summary of a sending stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamSendSummary {
    /// Whether the time of every buffer ended. Otherwise the stream was stopped.
    pub is_complete: bool,
    /// Progress at the end.
    pub progress: StreamSendProgress,
}

/// Error of submitting a buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The buffer is invalid.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The stream was stopped, or the network failed; the end of the session returns the error.
    #[error("the stream has ended")]
    Ended,
}

/// Update of a receiving stream to its observer.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamReceiveUpdate {
    /// Buffer that is whole, whose time is over, or whose successor has begun.
    Buffer(Received),
    /// Late piece of the buffer delivered last. Only if pieces are wanted.
    Late {
        /// Number of the buffer.
        id: u16,
        /// Piece of the buffer.
        piece: Piece,
    },
    /// Sessions detected on the group, and the verified sender.
    Session(SessionEvent),
    /// Progress, about ten times a second.
    Progress(Box<StreamReceiveProgress>),
    /// The interface went down, disappeared, or came back.
    LinkChanged(LinkChange),
}

/// Progress of a receiving stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamReceiveProgress {
    /// Time since the receiver began to listen.
    pub elapsed: Duration,
    /// Address of the sender and transport session identifier, once a packet has arrived.
    pub session: Option<(SocketAddr, u64)>,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// Counters of received packets and, by reason, of dropped packets.
    pub stats: ReceiverStats,
    /// Packets received, and packets missing in the channels' sequence numbers.
    pub reception: Reception,
    /// State of the congestion control: fair rate, channels, join latency.
    pub control: Status,
    /// Datagrams that the kernel dropped, mostly because the receive buffer was full.
    pub kernel_drops: u64,
}

/// Outcome of a receiving stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamOutcome {
    /// The sender closed the stream.
    Closed,
    /// No packet of a stream arrived within the timeout.
    NothingReceived,
    /// No part of a buffer arrived within the timeout.
    TimedOut,
    /// The session on the group carries files, not buffers.
    NoBuffers,
    /// The receiver cannot follow the session's congestion control, for this reason.
    ControlRefused(String),
    /// The stream was stopped.
    Interrupted,
}

/// Summary of a receiving stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamReceiveSummary {
    /// Outcome of the stream.
    pub outcome: StreamOutcome,
    /// Progress at the end.
    pub progress: StreamReceiveProgress,
}
