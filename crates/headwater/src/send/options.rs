//! Options of a sending session.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_fec::Scheme;
use headwater_proto::auth::signed_bytes;

use super::link::{LinkOptions, SOURCE_PORT, link_setters};
use crate::congestion_control::{CongestionControl, RainbowOptions};
use crate::keys::SenderKey;

/// Condition on which a sender stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// The sender runs until it is stopped.
    Never,
    /// Number of passes. A pass sends as many symbols as the content has.
    Passes(u64),
    /// Time from the start of the session.
    After(Duration),
}

/// Order in which symbols are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOrder {
    /// All blocks take turns. For receivers that join at any time and for unknown loss.
    Spread,
    /// A few blocks at a time, each with a little repair, then passes of repair. For receivers that start
    /// together and decode one window while the next windows arrive.
    Window,
}

/// Options of a sending session.
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
    pub(crate) signing: Option<SenderKey>,
}

impl SendOptions {
    /// Sends a session to `group` (the base channel; further channels count up from the group) under a
    /// congestion control. A control that sends on request ignores the group.
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
            signing: None,
        }
    }

    /// Sends packets on request, by unicast. Of the link options, only DSCP and trace apply.
    pub fn on_request(options: RainbowOptions) -> Self {
        Self::new((Ipv4Addr::UNSPECIFIED, SOURCE_PORT).into(), options.into())
    }

    /// Addresses at which a sender on request accepts requests: at most one address of each IP version. A
    /// host with several addresses should name the address that receivers and relays use, because receivers
    /// and relays accept replies from no other address. Default: port [`SOURCE_PORT`] of all addresses.
    #[must_use]
    pub fn with_listen(mut self, listen: Vec<SocketAddr>) -> Self {
        self.listen = listen;
        self
    }

    /// Plans a session that is inspected and never runs: opening the session takes no request port. Default:
    /// no.
    #[must_use]
    pub fn with_rehearsal(mut self, is_rehearsal: bool) -> Self {
        self.is_rehearsal = is_rehearsal;
        self
    }

    link_setters!(link);

    /// Erasure code. Default: RaptorQ, which never sends a symbol twice.
    #[must_use]
    pub fn with_scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// Sending order. Default, by the rate: [`SendOrder::Window`] on one channel of 1 Gbit/s or more, where
    /// the decoder limits a receiver, else [`SendOrder::Spread`]; with LDPC always [`SendOrder::Spread`].
    #[must_use]
    pub fn with_order(mut self, order: Option<SendOrder>) -> Self {
        self.order = order;
        self
    }

    /// Bytes of a symbol: each packet carries one symbol and at most 92 bytes of headers. Default: 1408,
    /// which fits an MTU of 1500, or the largest multiple of 64 that fits a smaller MTU of the interface.
    #[must_use]
    pub fn with_symbol_size(mut self, bytes: Option<u16>) -> Self {
        self.symbol_size = bytes;
        self
    }

    /// Transport session identifier, which distinguishes the sessions on a group. Default: 16 random bits,
    /// not 0.
    #[must_use]
    pub fn with_tsi(mut self, tsi: Option<u32>) -> Self {
        self.tsi = tsi;
        self
    }

    /// Condition on which the sender stops. Default: never.
    #[must_use]
    pub fn with_end(mut self, end: SendEnd) -> Self {
        self.end = end;
        self
    }

    /// Maximum bytes of memory for coding. If the coded content does not fit, repair symbols are stored on
    /// disk, as many as source symbols (47 % of them in window order), and are encoded while the content is
    /// being sent. Default: 256 MiB.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: Option<u64>) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Folder for repair symbols that do not fit in memory: as many bytes as the content, in a file without
    /// a name. Default: the system's folder for temporary files, which `TMPDIR` sets.
    #[must_use]
    pub fn with_temporary_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.temporary_folder = folder;
        self
    }

    /// Key that signs the session. Receivers verify each packet; a symbol is 64 bytes shorter. Default: none.
    #[must_use]
    pub fn with_signing(mut self, key: Option<SenderKey>) -> Self {
        self.signing = key;
        self
    }

    /// Bytes by which a signature makes each packet longer. On request, packets of the FDT carry the key,
    /// too.
    pub(super) fn signed_bytes(&self) -> u16 {
        let bytes = signed_bytes(self.congestion_control.is_on_request());
        if self.signing.is_some() { u16::try_from(bytes).unwrap_or(u16::MAX) } else { 0 }
    }
}
