//! How a session is received.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::listener::{ListenOptions, listen_setters, session_setters};

/// How a session is received.
#[derive(Debug)]
pub struct ReceiveOptions {
    pub(super) listen: ListenOptions,
    pub(super) out: PathBuf,
    pub(super) ask: Option<Ask>,
}

/// By what way to ask a source, whose address stands in place of the group, for packets.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Whom requests go to.
    pub(super) upstream: SocketAddr,
    /// A group by which replies may come, and the interface that it is joined on.
    pub(super) group: Option<(SocketAddr, Option<String>)>,
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
    /// Receives the first session heard on `group` (its base channel) into the folder `out`, which is made if
    /// need be.
    pub fn new(group: SocketAddr, out: impl Into<PathBuf>) -> Self {
        Self { listen: ListenOptions::new(group), out: out.into(), ask: None }
    }

    /// Asks a source for its session, packet by packet, by way of a relay or directly, and receives it into
    /// the folder `out`. Of the options of what listens TSI, timeout, loss and trace alone count; a source to
    /// receive from must be the one that is asked.
    pub fn asking(source: SocketAddr, via: Option<SocketAddr>, out: impl Into<PathBuf>) -> Self {
        let ask = Ask { upstream: via.unwrap_or(source), group: None };
        Self { ask: Some(ask), ..Self::new(source, out) }
    }

    /// A group by which the relay replies to all on this network, where it does
    /// ([`RelayGroup`](crate::relay::RelayGroup)), and the interface to join it on: by default where the
    /// kernel's route to it leads. Nothing comes of it where no source is asked.
    #[must_use]
    pub fn with_replies_to(mut self, group: SocketAddr, interface: Option<String>) -> Self {
        if let Some(ask) = &mut self.ask {
            ask.group = Some((group, interface));
        }
        self
    }

    listen_setters!();
    session_setters!();
}
