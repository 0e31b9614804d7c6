//! What sending and receiving messages tells.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use headwater_proto::Rate;
use headwater_proto::control::Counters;
use headwater_proto::pgm::{ReceiverCounters, Source, SourceCounters};
use headwater_wire::pgm::Gsi;

use super::options::PgmControl;
use crate::net::LinkChange;
use crate::send::RateLimit;

/// A sender as it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgmSendStarted {
    /// Group and UDP port.
    pub group: SocketAddr,
    /// What finds its rate.
    pub control: PgmControl,
    /// Address and port that it sends from, and hears NAKs at.
    pub source: SocketAddr,
    /// The interface.
    pub interface: String,
    /// Names the session, together with the port.
    pub gsi: Gsi,
    /// PGM port of the source.
    pub source_port: u16,
    /// Bytes of messages in a packet.
    pub payload_bytes: u16,
    /// Most bytes of a message.
    pub message_bytes_max: usize,
}

/// How far a sender is.
#[derive(Clone, Debug, PartialEq)]
pub struct PgmSendProgress {
    /// Time since it began to run.
    pub elapsed: Duration,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// What may be sent.
    pub allowed: Rate,
    /// Counters of the source by their names ([`Source::visit_counters`]); with `rtt` among them where
    /// LE-SBCC finds the rate.
    pub feedback: Counters,
    /// Messages handed to the network, or waiting for their departure.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Packets sent, and those of receivers that were refused.
    pub counters: SourceCounters,
    /// Packets that the kernel had no room for, or no interface.
    pub unsent: u64,
}

impl PgmSendProgress {
    /// Of a source; what is counted elsewhere is 0.
    pub(crate) fn of(source: &Source) -> Self {
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

/// What a sender tells as it goes.
#[derive(Clone, Debug, PartialEq)]
pub enum PgmSendUpdate {
    /// It is ready.
    Started(PgmSendStarted),
    /// Ten times a second.
    Progress(PgmSendProgress),
    /// The interface went down, away, or came back.
    LinkChanged(LinkChange),
    /// This machine cannot send the fixed or highest rate that was asked for, or sends another part of it
    /// than before, or all again.
    RateLimited(RateLimit),
}

/// How a sender ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgmSendOutcome {
    /// All messages were sent, and nobody asks any more.
    Completed,
    /// It was stopped: messages that waited were dropped.
    Interrupted,
}

/// A sender's session in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct PgmSendSummary {
    /// How it ended.
    pub outcome: PgmSendOutcome,
    /// The last state.
    pub progress: PgmSendProgress,
}

/// A receiver as it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgmReceiveStarted {
    /// Group and UDP port.
    pub group: SocketAddr,
    /// The only source taken, if one was named.
    pub source: Option<IpAddr>,
    /// The interface.
    pub interface: String,
}

/// How far a receiver is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgmReceiveProgress {
    /// Time since it began to listen.
    pub elapsed: Duration,
    /// Who sends, and the session's name, once a packet of it has come.
    pub session: Option<(SocketAddr, Gsi)>,
    /// bit/s of UDP payload over the last second.
    pub rate_bits: u64,
    /// Messages given to the application.
    pub messages: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// Messages and packets that made no sense, or were cut off by a loss.
    pub broken: u64,
    /// Packets, repairs, losses, and what was dropped and why.
    pub counters: ReceiverCounters,
    /// Datagrams that the kernel dropped before they were read.
    pub kernel_drops: u64,
}

/// What a receiver tells as it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgmReceiveUpdate<'a> {
    /// It listens.
    Started(PgmReceiveStarted),
    /// The group is joined.
    Joined,
    /// The first packet of a session came; that session is received.
    Found {
        /// Who sends it.
        source: SocketAddr,
        /// Its name.
        gsi: Gsi,
    },
    /// The next message. What the application does with it holds the session up: datagrams wait in the
    /// socket's buffer meanwhile.
    Message(&'a [u8]),
    /// Packets between the last message and the next one are lost for good.
    Lost {
        /// So many.
        packets: u64,
    },
    /// All messages that came so far were given: the time to write out what is gathered.
    Settled,
    /// Ten times a second.
    Progress(PgmReceiveProgress),
    /// The interface went down, away, or came back.
    LinkChanged(LinkChange),
}

/// How a receiver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgmReceiveOutcome {
    /// The source said that it ended, and all was delivered or given up.
    Closed,
    /// Bytes of a stream are lost for good ([`Framing::Bytes`](super::Framing::Bytes)): all before them came.
    BrokenOff,
    /// No packet of a session came within the timeout.
    NothingReceived,
    /// The source was silent for as long as the timeout.
    TimedOut,
    /// It was stopped.
    Interrupted,
}

/// A receiver's session in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgmReceiveSummary {
    /// How it ended.
    pub outcome: PgmReceiveOutcome,
    /// The last state.
    pub progress: PgmReceiveProgress,
}

/// What a [`super::PgmReceiver`] gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgmReceived {
    /// The next message.
    Message(Vec<u8>),
    /// Packets between the last message and the next one are lost for good.
    Lost {
        /// So many.
        packets: u64,
    },
}
