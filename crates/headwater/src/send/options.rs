//! How a session is sent.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_fec::Scheme;

use super::link::{LinkOptions, SOURCE_PORT, link_setters};
use crate::congestion_control::{CongestionControl, RainbowOptions};

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
    /// A few blocks at a time, each with a little repair, then passes of repair: receivers that start
    /// together and have decoded one window while the next ones arrive.
    Window,
}

/// How a session is sent.
#[derive(Debug)]
pub struct SendOptions {
    pub(crate) link: LinkOptions,
    pub(crate) congestion_control: CongestionControl,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) is_rehearsal: bool,
    pub(super) scheme: Scheme,
    pub(super) order: Option<SendOrder>,
    pub(super) symbol_size: Option<u16>,
    pub(super) tsi: Option<u32>,
    pub(super) end: SendEnd,
    pub(super) memory_limit: Option<u64>,
    pub(super) temporary_folder: Option<PathBuf>,
}

impl SendOptions {
    /// A session to `group` (the base channel; further channels count up from it) under a congestion control.
    /// A control that sends on request has no use for the group.
    pub fn new(group: SocketAddr, congestion_control: CongestionControl) -> Self {
        let no_group = (Ipv4Addr::UNSPECIFIED, SOURCE_PORT).into();
        let group = if congestion_control.is_on_request() { no_group } else { group };
        Self {
            link: LinkOptions::new(group),
            congestion_control,
            listen: Vec::new(),
            is_rehearsal: false,
            scheme: Scheme::RaptorQ,
            order: None,
            symbol_size: None,
            tsi: None,
            end: SendEnd::Never,
            memory_limit: None,
            temporary_folder: None,
        }
    }

    /// A session whose packets are sent to those who ask for them, by unicast. Of the options of links DSCP
    /// and trace alone count.
    pub fn on_request(options: RainbowOptions) -> Self {
        Self::new((Ipv4Addr::UNSPECIFIED, SOURCE_PORT).into(), options.into())
    }

    /// Addresses at which it is asked, where it is: at most one of each IP version. A host of several
    /// addresses should name the one that receivers and relays use, as they take replies from no other.
    /// Default: port [`SOURCE_PORT`] of all.
    #[must_use]
    pub fn with_listen(mut self, listen: Vec<SocketAddr>) -> Self {
        self.listen = listen;
        self
    }

    /// A session that is planned and looked at, and never runs: it takes no port at which others are asked.
    /// Default: no.
    #[must_use]
    pub fn with_rehearsal(mut self, is_rehearsal: bool) -> Self {
        self.is_rehearsal = is_rehearsal;
        self
    }

    link_setters!(link);

    /// The erasure code. Default: RaptorQ, which never sends a symbol twice.
    #[must_use]
    pub fn with_scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// The order of sending. Default: by the rate, [`SendOrder::Window`] on one channel of 1 Gbit/s or more,
    /// where the decoder limits a receiver, else [`SendOrder::Spread`]; with LDPC always that.
    #[must_use]
    pub fn with_order(mut self, order: Option<SendOrder>) -> Self {
        self.order = order;
        self
    }

    /// Bytes of a symbol: each packet carries one, beside at most 92 bytes of headers. Default: 1408, which
    /// fits an MTU of 1500, or the largest multiple of 64 that fits a smaller MTU of the interface.
    #[must_use]
    pub fn with_symbol_size(mut self, bytes: Option<u16>) -> Self {
        self.symbol_size = bytes;
        self
    }

    /// Transport session identifier, which tells the session from others on the group. Default: 16 random
    /// bits, not 0.
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

    /// Most bytes of memory for coding. Content whose coded form does not fit has its repair symbols on disk,
    /// as many as source symbols (47 % of them in window order), made while it is being sent. Default: 256
    /// MiB.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: Option<u64>) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Folder for repair symbols that do not fit in memory: as many bytes as the content, in a file without a
    /// name. Default: that of the system for temporary files, which `TMPDIR` sets.
    #[must_use]
    pub fn with_temporary_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.temporary_folder = folder;
        self
    }
}
