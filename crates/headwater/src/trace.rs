//! What every datagram that a session sends or receives looked like, for captures.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::Ecn;

/// Which way a datagram went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This end sent it.
    Sent,
    /// This end received it.
    Received,
}

/// A datagram as it passed the socket.
#[derive(Clone, Copy, Debug)]
pub struct PacketTrace<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// Time since the session began to run.
    pub elapsed: Duration,
    /// Who sent it: address and port.
    pub source: SocketAddr,
    /// Where it was sent to: a group and its port, or one end.
    pub destination: SocketAddr,
    /// The ECN field.
    pub ecn: Ecn,
    /// Differentiated services code point, 0 to 63; `None` where it is not known (datagrams received).
    pub dscp: Option<u8>,
    /// Time to live or hop limit; `None` where it is not known (datagrams received).
    pub ttl: Option<u8>,
    /// UDP payload.
    pub payload: &'a [u8],
}

/// Called for each datagram on the thread that runs the session: what it does delays the session.
pub type TraceHook = Box<dyn FnMut(&PacketTrace<'_>) + Send>;
