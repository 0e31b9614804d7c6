//! How a session is received.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_proto::Rate;

use crate::trace::TraceHook;

/// How a session is received.
pub struct ReceiveOptions {
    pub(super) group: SocketAddr,
    pub(super) out: PathBuf,
    pub(super) source: Option<IpAddr>,
    pub(super) interface: Option<String>,
    pub(super) tsi: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) max_rate: Option<Rate>,
    pub(super) rtt: Option<Duration>,
    pub(super) loss: Option<Loss>,
    pub(super) trace: Option<TraceHook>,
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
        Self {
            group,
            out: out.into(),
            source: None,
            interface: None,
            tsi: None,
            timeout: None,
            max_rate: None,
            rtt: None,
            loss: None,
            trace: None,
        }
    }

    /// Receive from this address only (source-specific multicast, RFC 4607). Default: from whoever sends first.
    #[must_use]
    pub fn with_source(mut self, source: Option<IpAddr>) -> Self {
        self.source = source;
        self
    }

    /// The interface to receive on, by name or address. Default: where the kernel's route to the group leads, but never
    /// a loopback interface.
    #[must_use]
    pub fn with_interface(mut self, interface: Option<String>) -> Self {
        self.interface = interface;
        self
    }

    /// Only the session with this transport session identifier. Default: the first one heard.
    #[must_use]
    pub fn with_tsi(mut self, tsi: Option<u64>) -> Self {
        self.tsi = tsi;
        self
    }

    /// Give up when nothing needed came for so long. Default: never.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Most to take of a session in which each receiver has a rate of its own, in bit/s of UDP payload. Default: what the
    /// path fairly carries.
    #[must_use]
    pub fn with_max_rate(mut self, rate: Option<Rate>) -> Self {
        self.max_rate = rate;
        self
    }

    /// The round-trip time to the sender on an idle path, where it is known: by it a receiver is as fast as a TCP would be
    /// although its routers take long to join a group. Default: the sender is asked now and then, by unicast (`docs/wire/rtt.md`); until it
    /// answers, and where it does not, the least that a join took.
    #[must_use]
    pub fn with_rtt(mut self, rtt: Option<Duration>) -> Self {
        self.rtt = rtt;
        self
    }

    /// Drop datagrams on purpose. Default: none.
    #[must_use]
    pub fn with_loss(mut self, loss: Option<Loss>) -> Self {
        self.loss = loss;
        self
    }

    /// Called for each datagram received, dropped on purpose or not. Default: none.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceHook>) -> Self {
        self.trace = trace;
        self
    }
}

impl fmt::Debug for ReceiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveOptions")
            .field("group", &self.group)
            .field("out", &self.out)
            .field("source", &self.source)
            .field("interface", &self.interface)
            .field("tsi", &self.tsi)
            .field("timeout", &self.timeout)
            .field("max_rate", &self.max_rate)
            .field("rtt", &self.rtt)
            .field("loss", &self.loss)
            .finish_non_exhaustive()
    }
}
