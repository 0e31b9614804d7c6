//! Options of a sending session.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headwater_fec::{Order, Scheme};
use headwater_proto::Instant;
use headwater_proto::delivery::{ContentCoding, End};

use super::bundle::Bundling;
use super::error::SendError;
use super::link::{LinkOptions, SOURCE_PORT};
use super::roster::{self, RosterOptions};
use crate::congestion_control::{CongestionControl, RainbowOptions};
use crate::keys::{GroupKeys, PublicKey, SenderKey};

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

impl From<SendEnd> for End {
    fn from(end: SendEnd) -> Self {
        match end {
            SendEnd::Never => Self::Never,
            SendEnd::Passes(passes) => Self::Passes(passes),
            SendEnd::After(time) => Self::At(Instant::ZERO + time.into()),
        }
    }
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
    /// Group, interface and marking of packets. Of these, only DSCP and trace apply to packets on request.
    pub link: LinkOptions,
    /// Control of the rate.
    pub congestion_control: CongestionControl,
    /// Addresses at which a sender on request accepts requests: at most one address of each IP version. A
    /// host with several addresses should name the address that receivers and relays use, because receivers
    /// and relays accept replies from no other address. Default: port [`SOURCE_PORT`] of all addresses.
    pub listen: Vec<SocketAddr>,
    /// Whether the session is inspected and never runs: opening the session takes no request port. Default:
    /// no.
    pub is_rehearsal: bool,
    /// Whether an earlier session may have sent the same content. If not, and the code is RaptorQ, a session
    /// to groups begins with the source symbols, and a receiver that misses little decodes little. Otherwise
    /// the session begins elsewhere: receivers of the earlier session get other symbols. Default: yes.
    pub is_repeated: bool,
    /// Erasure code. Default: RaptorQ, which never sends a symbol twice.
    pub scheme: Scheme,
    /// Sending order. Default, by the rate: [`SendOrder::Window`] on one channel of 1 Gbit/s or more, where
    /// the decoder limits a receiver, else [`SendOrder::Spread`]; with LDPC always [`SendOrder::Spread`].
    pub order: Option<SendOrder>,
    /// Small files that travel in bundles, which receivers unpack. Default: [`Bundling::Auto`].
    pub bundling: Bundling,
    /// Coding of files and bundles whose content shrinks; has no effect on files with holes and on an input
    /// of unknown length. Receivers of other programs know gzip. Default: none.
    pub compression: Option<ContentCoding>,
    /// Whether blocks that are holes of sparse files are left out: receivers know blocks of zeros by their
    /// digests. Receivers of other programs, and of Headwater before holes, need all blocks. Default: yes.
    pub skips_holes: bool,
    /// Bytes of a symbol: each packet carries one symbol and at most 92 bytes of headers. Default: 1408,
    /// which fits an MTU of 1500, or the largest multiple of 64 that fits a smaller MTU of the interface.
    pub symbol_size: Option<u16>,
    /// Whether a source on request sends the same content: the default size of symbols is then that of such a
    /// source with default options on a path of an MTU of 1500, if this fits. Default: no.
    pub is_beside_requests: bool,
    /// Transport session identifier, which distinguishes the sessions on a group. Default: 16 random bits,
    /// not 0.
    pub tsi: Option<u32>,
    /// Condition on which the sender stops. Default: never.
    pub end: SendEnd,
    /// Maximum bytes of memory for coding. If the coded content does not fit, repair symbols are stored on
    /// disk, as many as source symbols (47 % of them in window order), and are encoded while the content is
    /// being sent. Default: 256 MiB.
    pub memory_limit: Option<u64>,
    /// Folder for repair symbols that do not fit in memory, as many bytes as the content, and for compressed
    /// content, in files without names. Default: the system's folder for temporary files, which `TMPDIR`
    /// sets.
    pub temporary_folder: Option<PathBuf>,
    /// Key that signs the session, so that receivers can verify each packet. A symbol is 64 bytes shorter by
    /// default. Default: none.
    pub signing: Option<SenderKey>,
    /// Public key that will sign later sessions; receivers that remember the sender accept both. Default:
    /// none.
    pub next_key: Option<PublicKey>,
    /// Keys of the group that can read the content; the newest encrypts. A symbol is 64 bytes shorter by
    /// default. Default: content in the clear.
    pub group_key: Option<GroupKeys>,
    /// Roster of receivers by their reports. Default: a roster that neither begins nor ends the session.
    pub roster: Option<RosterOptions>,
}

impl SendOptions {
    /// Sends a session to a group (the base channel; further channels count up from the group) under a
    /// congestion control. A control that sends on request ignores the group.
    pub fn new(link: impl Into<LinkOptions>, congestion_control: CongestionControl) -> Self {
        let mut link = link.into();
        if congestion_control.is_on_request() {
            link.group = (Ipv4Addr::UNSPECIFIED, SOURCE_PORT).into();
        }
        Self {
            link,
            congestion_control,
            listen: Vec::new(),
            is_rehearsal: false,
            is_repeated: true,
            scheme: Scheme::RaptorQ,
            order: None,
            bundling: Bundling::Auto,
            compression: None,
            skips_holes: true,
            symbol_size: None,
            is_beside_requests: false,
            tsi: None,
            end: SendEnd::Never,
            memory_limit: None,
            temporary_folder: None,
            signing: None,
            next_key: None,
            group_key: None,
            roster: Some(RosterOptions::default()),
        }
    }

    /// Sends packets on request, by unicast.
    pub fn on_request(options: RainbowOptions) -> Self {
        let group: SocketAddr = (Ipv4Addr::UNSPECIFIED, SOURCE_PORT).into();
        Self::new(group, options.into())
    }
}

/// Returns the requested order, or else the order that suits the rate and that the code supports.
pub(super) fn order(options: &SendOptions) -> Order {
    let is_ldpc = matches!(options.scheme, Scheme::LdpcStaircase | Scheme::LdpcTriangle);
    let wanted = options.order.or(is_ldpc.then_some(SendOrder::Spread));
    options.congestion_control.order(wanted)
}

/// Refuses orders and ends that only sessions of one rate have, and numbers out of range.
pub(super) fn check(options: &SendOptions) -> Result<(), SendError> {
    let is_multi_rate = options.congestion_control.is_multi_rate();
    if is_multi_rate && options.order == Some(SendOrder::Window) {
        return Err(SendError::NoWindows);
    }
    if is_multi_rate && matches!(options.end, SendEnd::Passes(_)) {
        return Err(SendError::NoPasses);
    }
    options.roster.as_ref().map_or(Ok(()), roster::check)
}
