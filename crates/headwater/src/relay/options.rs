//! What a relay is told.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_proto::bcfs::RouterConfig;
use headwater_proto::bcfs::relay::{MulticastLink, RelayConfig};
use headwater_proto::{ChannelId, Seed};

use crate::trace::TraceHook;

/// UDP port that relays listen at unless told otherwise.
pub const RELAY_PORT: u16 = 7_289;

/// The options of all relays.
macro_rules! relay_setters {
    () => {
        /// Differentiated services code point of what it sends, 0 to 63. Default: 0.
        #[must_use]
        pub const fn with_dscp(mut self, dscp: u8) -> Self {
            self.dscp = dscp;
            self
        }

        /// Shows each packet sent and received.
        #[must_use]
        pub fn with_trace(mut self, trace: Option<TraceHook>) -> Self {
            self.trace = trace;
            self
        }
    };
}
pub(super) use relay_setters;

/// A link with many receivers, which get replies by multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayGroup {
    /// The group and its port.
    pub group: SocketAddr,
    /// Name or address of the interface that it is sent on.
    pub interface: String,
    /// An address of the link's network, of the group's IP version, and how many of its bits all addresses
    /// share.
    pub network: (IpAddr, u8),
    /// Time to live.
    pub ttl: u8,
}

/// How a relay is run.
pub struct RelayOptions {
    relay: RelayConfig,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) group: Option<RelayGroup>,
    pub(super) dscp: u8,
    pub(super) trace: Option<TraceHook>,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new(RelayConfig::new(RouterConfig::default(), Seed(0)))
    }
}

impl RelayOptions {
    /// A relay with this configuration, but for its chance, which is the system's, and its links with many
    /// receivers: see [`RelayOptions::with_group`].
    pub fn new(relay: RelayConfig) -> Self {
        Self {
            relay,
            listen: vec![
                (Ipv4Addr::UNSPECIFIED, RELAY_PORT).into(),
                (Ipv6Addr::UNSPECIFIED, RELAY_PORT).into(),
            ],
            group: None,
            dscp: 0,
            trace: None,
        }
    }

    /// Addresses to listen at, at least one, and at most one of each IP version. A host of several addresses
    /// on one link should name the one that receivers use: they take replies from no other. Default: port
    /// [`RELAY_PORT`] of all addresses.
    #[must_use]
    pub fn with_listen(mut self, listen: Vec<SocketAddr>) -> Self {
        self.listen = listen;
        self
    }

    /// A link that is served by multicast. Default: none.
    #[must_use]
    pub fn with_group(mut self, group: Option<RelayGroup>) -> Self {
        self.group = group;
        self
    }

    relay_setters!();

    /// The machine's, with a key that nobody knows.
    pub(super) fn config(&self, hash_key: [u64; 2], seed: u64) -> RelayConfig {
        let link = |group: &RelayGroup| {
            let (network, prefix) = group.network;
            MulticastLink { network, prefix, channel: ChannelId::BASE }
        };
        let links = self.group.iter().map(link).collect();
        self.relay.clone().with_links(links).with_chance(hash_key, Seed(seed))
    }
}

impl fmt::Debug for RelayOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayOptions")
            .field("listen", &self.listen)
            .field("relay", &self.relay)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
