//! A block of groups, and the session sent on the block.

use core::net::{IpAddr, SocketAddr};

use super::RelayConfig;
use crate::sim::telling::Teller;
use crate::sim::{AggregationRouter, RouterConfig};
use crate::time::{Duration, Instant};

/// Time without a packet of the session after which another source on the groups is accepted.
const SILENCE: Duration = Duration::from_secs(5);

/// Source and TSI of a session.
#[derive(Clone, Copy, Debug)]
struct Heard {
    from: IpAddr,
    tsi: u64,
    at: Instant,
}

#[derive(Debug)]
pub(super) struct Session {
    heard: Option<Heard>,
    pub router: AggregationRouter,
    pub teller: Teller,
    /// Number of groups joined upstream.
    pub held: u16,
}

impl Session {
    pub fn new(config: &RelayConfig) -> Self {
        Self { heard: None, router: aggregation(config, 0), teller: Teller::new(0), held: 0 }
    }

    /// Returns the session's number in feedback, once a packet has arrived.
    pub fn number(&self) -> Option<u32> {
        self.heard.map(|heard| number(heard.tsi))
    }

    pub fn source(&self) -> Option<IpAddr> {
        self.heard.map(|heard| heard.from)
    }

    /// Returns whether a packet begins a new session on the block; `None` if the packet is not of the block's
    /// session, which is the first session received.
    pub fn takes(&mut self, now: Instant, config: &RelayConfig, from: SocketAddr, tsi: u64) -> Option<bool> {
        let is_same = self.heard.is_some_and(|heard| (heard.from, heard.tsi) == (from.ip(), tsi));
        if !is_same && self.heard.is_some_and(|heard| now.since(heard.at) < SILENCE) {
            return None;
        }
        self.heard = Some(Heard { from: from.ip(), tsi, at: now });
        if !is_same {
            self.router = aggregation(config, number(tsi));
            self.teller = Teller::new(number(tsi));
            self.teller.hold(now, self.held);
        }
        self.teller.heard(now, from);
        Some(!is_same)
    }
}

/// Returns the low 24 bits, as the sender does.
fn number(tsi: u64) -> u32 {
    u32::try_from(tsi & 0x00FF_FFFF).unwrap_or(0)
}

fn aggregation(config: &RelayConfig, number: u32) -> AggregationRouter {
    let router = RouterConfig::new(number, config.groups).with_trust(config.trust.clone());
    AggregationRouter::new(router, config.seed)
}
