//! Runs a machine on a socket: one thread, one loop.

use std::io;

use crate::net::{MembershipError, SendError};

/// Why a driver cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A datagram could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A channel could not be joined or left.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// Waiting for datagrams or reading them failed.
    #[error("cannot read from the socket")]
    Read(#[source] io::Error),
}
