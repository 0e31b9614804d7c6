//! How a session is received.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_proto::Rate;

use super::listener::ListenOptions;
use crate::trace::TraceHook;

/// How a session is received.
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

    /// Receive from this address only (source-specific multicast, RFC 4607). Default: from whoever sends first.
    #[must_use]
    pub fn with_source(mut self, source: Option<IpAddr>) -> Self {
        self.listen.source = source;
        self
    }

    /// The interface to receive on, by name or address. Default: where the kernel's route to the group leads, but never
    /// a loopback interface.
    #[must_use]
    pub fn with_interface(mut self, interface: Option<String>) -> Self {
        self.listen.interface = interface;
        self
    }

    /// Only the session with this transport session identifier. Default: the first one heard.
    #[must_use]
    pub fn with_tsi(mut self, tsi: Option<u64>) -> Self {
        self.listen.tsi = tsi;
        self
    }

    /// Give up when nothing needed came for so long. Default: never.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.listen.timeout = timeout;
        self
    }

    /// Most to take of a session in which each receiver has a rate of its own, in bit/s of UDP payload. Default: what the
    /// path fairly carries.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Option<Rate>) -> Self {
        self.listen.max_rate = rate;
        self
    }

    /// The round-trip time to the sender on an idle path, where it is known: by it a receiver is as fast as a TCP would be
    /// although its routers take long to join a group. Default: the sender is asked now and then, by unicast (`docs/wire/rtt.md`); until it
    /// answers, and where it does not, the least that a join took.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Option<Duration>) -> Self {
        self.listen.rtt = rtt;
        self
    }

    /// Drop datagrams on purpose. Default: none.
    #[must_use]
    pub fn with_loss(mut self, loss: Option<Loss>) -> Self {
        self.listen.loss = loss;
        self
    }

    /// Called for each datagram received, dropped on purpose or not. Default: none.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceHook>) -> Self {
        self.listen.trace = trace;
        self
    }
}

impl fmt::Debug for ReceiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listen, out } = self;
        f.debug_struct("ReceiveOptions").field("listen", listen).field("out", out).finish()
    }
}
