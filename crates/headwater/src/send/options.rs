//! How a session is sent.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use headwater_fec::Scheme;

use crate::congestion_control::CongestionControl;
use crate::trace::TraceHook;

/// When a sender stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// Never: until it is stopped.
    Never,
    /// After so many passes: one pass sends as many symbols as the content has.
    Passes(u64),
    /// After this time.
    After(Duration),
}

/// The order in which symbols are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOrder {
    /// All blocks take turns: receivers may join at any time, and loss is unknown.
    Spread,
    /// A few blocks at a time, each with a little repair, then passes of repair: receivers that start together and have
    /// decoded one window while the next ones arrive.
    Window,
}

/// How a session is sent.
pub struct SendOptions {
    pub(crate) group: SocketAddr,
    pub(crate) congestion_control: CongestionControl,
    pub(super) interface: Option<String>,
    pub(crate) ttl: u8,
    pub(crate) dscp: u8,
    pub(super) loopback: bool,
    pub(super) scheme: Scheme,
    pub(super) order: Option<SendOrder>,
    pub(super) symbol_size: Option<u16>,
    pub(super) tsi: Option<u32>,
    pub(super) end: SendEnd,
    pub(super) outage_max: Duration,
    pub(super) memory_limit: Option<u64>,
    pub(super) temporary_folder: Option<PathBuf>,
    pub(super) offload: bool,
    pub(crate) trace: Option<TraceHook>,
}

impl SendOptions {
    /// A session to `group` (the base channel; further channels count up from it) under a congestion control.
    pub fn new(group: SocketAddr, congestion_control: CongestionControl) -> Self {
        Self {
            group,
            congestion_control,
            interface: None,
            ttl: 1,
            dscp: 0,
            loopback: true,
            scheme: Scheme::RaptorQ,
            order: None,
            symbol_size: None,
            tsi: None,
            end: SendEnd::Never,
            outage_max: Duration::from_secs(60),
            memory_limit: None,
            temporary_folder: None,
            offload: true,
            trace: None,
        }
    }

    /// The interface to send on, by name or address. Default: where the kernel's route to the group leads, but never a
    /// loopback interface.
    #[must_use]
    pub fn with_interface(mut self, interface: Option<String>) -> Self {
        self.interface = interface;
        self
    }

    /// Routers that a packet may pass, plus 1. Default: 1, so that nothing leaves the link unasked.
    #[must_use]
    pub fn with_ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    /// Differentiated services code point, 0 to 63 (RFC 2474). Default: 0, best effort.
    #[must_use]
    pub fn with_dscp(mut self, dscp: u8) -> Self {
        self.dscp = dscp;
        self
    }

    /// Whether receivers on this machine hear it. Default: yes.
    #[must_use]
    pub fn with_loopback(mut self, loopback: bool) -> Self {
        self.loopback = loopback;
        self
    }

    /// The erasure code. Default: RaptorQ, which never sends a symbol twice.
    #[must_use]
    pub fn with_scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// The order of sending. Default: by the rate, [`SendOrder::Window`] on one channel of 1 Gbit/s or more, where the
    /// decoder limits a receiver, else [`SendOrder::Spread`]; with LDPC always that.
    #[must_use]
    pub fn with_order(mut self, order: Option<SendOrder>) -> Self {
        self.order = order;
        self
    }

    /// Bytes of a symbol: each packet carries one, beside at most 92 bytes of headers. Default: 1408, which fits an MTU
    /// of 1500, or the largest multiple of 64 that fits a smaller MTU of the interface.
    #[must_use]
    pub fn with_symbol_size(mut self, bytes: Option<u16>) -> Self {
        self.symbol_size = bytes;
        self
    }

    /// Transport session identifier, which tells the session from others on the group. Default: 16 random bits, not 0.
    #[must_use]
    pub fn with_tsi(mut self, tsi: Option<u32>) -> Self {
        self.tsi = tsi;
        self
    }

    /// When to stop. Default: never.
    #[must_use]
    pub fn with_end(mut self, end: SendEnd) -> Self {
        self.end = end;
        self
    }

    /// How long the interface may be gone, down or unable to send before the session fails, once it has sent something.
    /// What is not sent meanwhile is lost to all receivers. Default: 60 s.
    #[must_use]
    pub fn with_outage_max(mut self, outage_max: Duration) -> Self {
        self.outage_max = outage_max;
        self
    }

    /// Most bytes of memory for coding. Content whose coded form does not fit has its repair symbols on disk, as many as
    /// source symbols (31 % of them in window order), made while it is being sent. Default: 256 MiB.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: Option<u64>) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Folder for repair symbols that do not fit in memory: as many bytes as the content, in a file without a name.
    /// Default: that of the system for temporary files, which `TMPDIR` sets.
    #[must_use]
    pub fn with_temporary_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.temporary_folder = folder;
        self
    }

    /// Whether the kernel may cut runs of datagrams (segmentation offload), where it can: that saves most of the cost, but
    /// lets each run out as one burst. Default: yes.
    #[must_use]
    pub fn with_offload(mut self, offload: bool) -> Self {
        self.offload = offload;
        self
    }

    /// Called for each datagram sent or received. Default: none.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceHook>) -> Self {
        self.trace = trace;
        self
    }
}

impl fmt::Debug for SendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendOptions")
            .field("group", &self.group)
            .field("congestion_control", &self.congestion_control)
            .field("interface", &self.interface)
            .field("ttl", &self.ttl)
            .field("dscp", &self.dscp)
            .field("scheme", &self.scheme)
            .field("order", &self.order)
            .field("symbol_size", &self.symbol_size)
            .field("tsi", &self.tsi)
            .field("end", &self.end)
            .field("outage_max", &self.outage_max)
            .field("memory_limit", &self.memory_limit)
            .field("temporary_folder", &self.temporary_folder)
            .field("offload", &self.offload)
            .finish_non_exhaustive()
    }
}
