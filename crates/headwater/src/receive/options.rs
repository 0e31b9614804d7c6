//! How a session is received.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::listener::{ListenOptions, listen_setters, session_setters};

/// How a session is received.
#[derive(Debug)]
pub struct ReceiveOptions {
    pub(super) listen: ListenOptions,
    pub(super) out: PathBuf,
}

/// Datagrams dropped on purpose as they arrive, to see what loss does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Chance of each datagram to be dropped, from 0 to 1.
    pub probability: f64,
    /// Which datagrams: the same seed drops the same ones.
    pub seed: u64,
}

impl ReceiveOptions {
    /// Receives the first session heard on `group` (its base channel) into the folder `out`, which is made if need be.
    pub fn new(group: SocketAddr, out: impl Into<PathBuf>) -> Self {
        Self { listen: ListenOptions::new(group), out: out.into() }
    }

    listen_setters!();
    session_setters!();
}
