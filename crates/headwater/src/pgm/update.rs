//! Updates and summaries of sending and receiving messages.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headwater_proto::Rate;
use headwater_proto::control::Counters;
use headwater_proto::pgm::{PgmReceiverCounters, PgmSource, SourceCounters};
use headwater_wire::pgm::Gsi;

use super::options::PgmControl;
use crate::net::LinkChange;
use crate::send::RateLimit;

/// Parameters of a sender at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgmSendStarted {
    /// Group and UDP port.
    pub group: SocketAddr,
    /// Control of the rate.
    pub control: PgmControl,
    /// Address and port that packets are sent from and NAKs are received at.
    pub source: SocketAddr,
    /// Interface of the session.
    pub interface: String,
    /// Global source identifier, which names the session together with the port.
    pub gsi: Gsi,
    /// PGM port of the source.
    pub source_port: u16,
    /// Maximum bytes of messages in a packet.
    pub payload_bytes: u16,
    /// Maximum bytes of a message.
    pub message_bytes_max: usize,
}

/// Progress of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct PgmSendProgress {
    /// Time since the start.
    pub elapsed: Duration,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// Allowed rate.
    pub allowed: Rate,
    /// Counters of the source by name ([`PgmSource::visit_counters`]), with `rtt` under LE-SBCC.
    pub feedback: Counters,
    /// Messages sent or waiting for departure.
    pub messages: u64,
    /// Bytes of the messages.
    pub message_bytes: u64,
    /// Packets sent, and packets of receivers that were refused.
    pub counters: SourceCounters,
    /// Packets lost because the kernel had no room or the interface was missing.
    pub unsent: u64,
}

impl PgmSendProgress {
    /// Returns the progress of a source, without the counters of the session.
    pub(crate) fn of(source: &PgmSource) -> Self {
        let mut feedback = Counters::default();
        source.visit_counters(&mut |name, value| feedback.push(name, value));
        Self {
            elapsed: Duration::ZERO,
            rate_bits: 0,
            allowed: source.rate(),
            feedback,
            messages: 0,
            message_bytes: 0,
            counters: *source.counters(),
            unsent: 0,
        }
    }
}

/// Update of a sender to its observer.
#[derive(Clone, Debug, PartialEq)]
pub enum PgmSendUpdate {
    /// The sender is ready.
    Started(PgmSendStarted),
    /// Progress, ten times a second.
    Progress(PgmSendProgress),
    /// The interface went down, disappeared, or came back.
    LinkChanged(LinkChange),
    /// The share of the requested rate that this machine can send has changed.
    RateLimited(RateLimit),
}

/// Outcome of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgmSendOutcome {
    /// All messages were sent, and no receiver requests repairs any more.
    Completed,
    /// The sender was stopped; waiting messages were dropped.
    Interrupted,
}

/// Summary of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct PgmSendSummary {
    /// Outcome of the session.
    pub outcome: PgmSendOutcome,
    /// Progress at the end.
    pub progress: PgmSendProgress,
}

/// Parameters of a receiver at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgmReceiveStarted {
    /// Group and UDP port.
    pub group: SocketAddr,
    /// Accepted source, if the options name a source.
    pub source: Option<IpAddr>,
    /// Interface of the session.
    pub interface: String,
}

/// Progress of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgmReceiveProgress {
    /// Time since the receiver began to listen.
    pub elapsed: Duration,
    /// Address of the source and name of the session, once a packet has arrived.
    pub session: Option<(SocketAddr, Gsi)>,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// Messages delivered to the application.
    pub messages: u64,
    /// Bytes of the messages.
    pub message_bytes: u64,
    /// Messages and packets that were invalid or cut off by a loss.
    pub broken: u64,
    /// Packets, repairs, losses and, by reason, dropped packets.
    pub counters: PgmReceiverCounters,
    /// Datagrams that the kernel dropped before they were read.
    pub kernel_drops: u64,
}

/// Update of a receiver to its observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgmReceiveUpdate<'a> {
    /// The receiver listens.
    Started(PgmReceiveStarted),
    /// The group is joined.
    Joined,
    /// The first packet of a session arrived; the receiver takes this session.
    Found {
        /// Address of the source.
        source: SocketAddr,
        /// Name of the session.
        gsi: Gsi,
    },
    /// Next message. The session waits for the observer; datagrams wait in the socket's buffer meanwhile.
    Message(Cow<'a, [u8]>),
    /// Packets between the last message and the next one are lost for good.
    Lost {
        /// Number of packets.
        packets: u64,
    },
    /// All messages so far were delivered: time to flush output.
    Settled,
    /// Progress, ten times a second.
    Progress(PgmReceiveProgress),
    /// The interface went down, disappeared, or came back.
    LinkChanged(LinkChange),
}

impl PgmReceiveUpdate<'_> {
    /// Returns the update with a message of its own.
    pub fn into_owned(self) -> PgmReceiveUpdate<'static> {
        match self {
            Self::Started(started) => PgmReceiveUpdate::Started(started),
            Self::Joined => PgmReceiveUpdate::Joined,
            Self::Found { source, gsi } => PgmReceiveUpdate::Found { source, gsi },
            Self::Message(message) => PgmReceiveUpdate::Message(Cow::Owned(message.into_owned())),
            Self::Lost { packets } => PgmReceiveUpdate::Lost { packets },
            Self::Settled => PgmReceiveUpdate::Settled,
            Self::Progress(progress) => PgmReceiveUpdate::Progress(progress),
            Self::LinkChanged(change) => PgmReceiveUpdate::LinkChanged(change),
        }
    }
}

/// Outcome of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgmReceiveOutcome {
    /// The source ended the session, and every message was delivered or given up.
    Closed,
    /// Bytes of a stream are lost for good ([`Framing::Bytes`](super::Framing::Bytes)): all earlier bytes
    /// were delivered.
    BrokenOff,
    /// No packet of a session arrived within the timeout.
    NothingReceived,
    /// The source was silent for as long as the timeout.
    TimedOut,
    /// The receiver was stopped.
    Interrupted,
}

/// Summary of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgmReceiveSummary {
    /// Outcome of the session.
    pub outcome: PgmReceiveOutcome,
    /// Progress at the end.
    pub progress: PgmReceiveProgress,
}
