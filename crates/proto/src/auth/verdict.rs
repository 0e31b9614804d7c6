//! Fates of packets at a receiver that verifies: verdicts, reasons for drops, counters.

use super::waiting::Origin;
use crate::machine::ChannelId;
use crate::time::Instant;

/// Reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// No LCT packet of a known form.
    Malformed,
    /// Packet of another session.
    Foreign,
    /// Packet of another session, which is of an accepted key and may replace the silent session. Counted as
    /// foreign.
    Successor,
    /// Wrong signature, or no packet of the tree whose number the packet claims.
    Forged,
    /// No manifest listed the packet in time.
    Unlisted,
    /// The packet had come before, or is too old.
    Replayed,
    /// Signed with a key that is not trusted.
    Untrusted,
    /// The signature was not checked, for lack of budget.
    OverBudget,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthVerdict {
    /// The packet is genuine and new.
    Verified,
    /// The session is unsigned, and the configuration accepts unsigned sessions.
    Unsigned,
    /// The packet waits for a manifest. Later [`poll_released`](super::VerifyingFront::poll_released) returns
    /// the packet, or a counter counts it.
    Waiting,
    /// The packet was dropped and counted.
    Rejected(Rejection),
}

/// Packets by their end: each packet is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthCounters {
    /// Genuine packets, manifests included.
    pub verified: u64,
    /// Packets of a session that is received unsigned.
    pub unsigned: u64,
    /// See [`Rejection::Malformed`].
    pub malformed: u64,
    /// See [`Rejection::Foreign`].
    pub foreign: u64,
    /// See [`Rejection::Forged`].
    pub forged: u64,
    /// See [`Rejection::Unlisted`].
    pub unlisted: u64,
    /// See [`Rejection::Replayed`].
    pub replayed: u64,
    /// See [`Rejection::Untrusted`].
    pub untrusted: u64,
    /// See [`Rejection::OverBudget`].
    pub over_budget: u64,
}

impl AuthCounters {
    /// Returns the number of packets that have ended: all that came but those that wait.
    pub fn ended(&self) -> u64 {
        let Self {
            verified,
            unsigned,
            malformed,
            foreign,
            forged,
            unlisted,
            replayed,
            untrusted,
            over_budget,
        } = *self;
        verified + unsigned + malformed + foreign + forged + unlisted + replayed + untrusted + over_budget
    }
}

/// Packet that waited and is verified now.
#[derive(Clone, Copy, Debug)]
pub struct Released<'a> {
    /// Channel of the packet.
    pub channel: ChannelId,
    /// Time of arrival, earlier than the time of release.
    pub arrived: Instant,
    /// Datagram of the packet.
    pub origin: Origin,
    /// The packet.
    pub bytes: &'a [u8],
}
