//! Digest of a run: equal for equal traces, on every machine and in every build.
//!
//! Every link and every agent has a running hash of its events. The digest is BLAKE3 over these hashes, each
//! with the element's name, in the order of names. So the digest does not depend on the order in which
//! independent elements were declared.

use headwater_proto::Instant;

use super::{AgentEvent, LinkEvent, Observer, OnLink};
use crate::network::{AgentId, Drop, Names};

#[derive(Debug)]
pub(crate) struct Digest {
    links: Vec<u64>,
    agents: Vec<u64>,
    /// Hashes of the names of flows and groups, used in place of indices.
    flows: Vec<u64>,
    groups: Vec<u64>,
}

impl Digest {
    pub(crate) fn new(names: &Names) -> Self {
        let hash =
            |name: &str| mix(0, u64::from_le_bytes(first_bytes(blake3::hash(name.as_bytes()).as_bytes())));
        Self {
            links: vec![0; names.links.len()],
            agents: vec![0; names.agents.len()],
            flows: names.flows.iter().map(|name| hash(name)).collect(),
            groups: names.groups.iter().map(|name| hash(name)).collect(),
        }
    }

    pub(crate) fn finish(&self, names: &Names) -> [u8; 32] {
        let of = |kind: u8, names: &[Box<str>], hashes: &[u64]| -> Vec<(u8, Box<str>, u64)> {
            names.iter().zip(hashes).map(|(name, hash)| (kind, name.clone(), *hash)).collect()
        };
        let mut elements = of(0, &names.links, &self.links);
        elements.extend(of(1, &names.agents, &self.agents));
        elements.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for (kind, name, hash) in elements {
            hasher.update(&[kind]);
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&hash.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

impl Observer for Digest {
    fn on_link(&mut self, at: Instant, what: &OnLink<'_>) {
        let OnLink { link, event, packet, payload, ecn } = *what;
        let code = match event {
            LinkEvent::Taken => 1,
            LinkEvent::Marked => 2,
            LinkEvent::Delivered => 3,
            LinkEvent::Dropped(drop) => 16 + drop_code(drop),
        };
        // The payload is hashed once per packet.
        let content = if event == LinkEvent::Taken { fold(payload) } else { 0 };
        let hash = &mut self.links[link.index()];
        *hash = mix(*hash, at.as_nanos());
        *hash = mix(*hash, self.flows[packet.flow.index()] ^ packet.sequence);
        *hash = mix(*hash, code << 8 | ecn as u64);
        *hash = mix(*hash, u64::from(packet.wire_bytes) ^ content);
    }

    fn on_agent(&mut self, at: Instant, agent: AgentId, event: AgentEvent<'_>) {
        let (what, whom) = match event {
            AgentEvent::Received(packet, ecn) => {
                (4 << 8 | ecn as u64, self.flows[packet.flow.index()] ^ packet.sequence)
            }
            AgentEvent::Joined(group) => (5 << 8, self.groups[group.index()]),
            AgentEvent::Left(group) => (6 << 8, self.groups[group.index()]),
        };
        let hash = &mut self.agents[agent.index()];
        *hash = mix(*hash, at.as_nanos());
        *hash = mix(*hash, what);
        *hash = mix(*hash, whom);
    }
}

const fn drop_code(drop: Drop) -> u64 {
    use headwater_proto::queue::DropReason;
    match drop {
        Drop::Queue(DropReason::Full) => 0,
        Drop::Queue(DropReason::Early) => 1,
        Drop::Queue(DropReason::Forced) => 2,
        Drop::Lost => 3,
        Drop::Corrupted => 4,
        Drop::Down => 5,
    }
}

/// A step of the running hash: the finalizer of SplitMix64 over state and value.
const fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.rotate_left(23) ^ value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn fold(payload: &[u8]) -> u64 {
    payload.chunks(8).fold(0, |hash, chunk| mix(hash, u64::from_le_bytes(first_bytes(chunk))))
}

/// The first 8 bytes, zeros behind.
fn first_bytes(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(bytes) {
        *to = *from;
    }
    first
}
