//! Parts of events that several events share, or that are long.

use serde::{Serialize, Serializer};

use super::millis;
use crate::amt;
use crate::bcfs::relay::RelayCounters;
use crate::control::{Counters, PathStatus, RateLimit};
use crate::rate::Rate;
use crate::roster::RosterCounts;
use crate::sim;
use crate::time::Instant;

/// Congestion control of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ControlState {
    /// Name of the control: `fixed`, `m2c` and so on.
    pub name: &'static str,
    /// Channels, each a multicast group.
    pub channels: u16,
    /// Maximum rate over all channels, in bit/s of UDP payload.
    pub rate_max: u64,
}

/// Counters of a relay since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RelayProgress {
    /// Counters of the relay itself.
    #[serde(flatten)]
    pub counters: RelayCounters,
    /// Datagrams that the operating system did not accept.
    pub unsent: u64,
}

/// Counters of a relay of AMT since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AmtRelayProgress {
    /// Counters of the relay itself.
    #[serde(flatten)]
    pub counters: amt::RelayCounters,
    /// Datagrams that the operating system did not accept.
    pub unsent: u64,
}

/// Counters of a relay of SIM since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SimRelayProgress {
    /// Counters of the relay itself.
    #[serde(flatten)]
    pub counters: sim::relay::RelayCounters,
    /// Datagrams that the operating system did not accept.
    pub unsent: u64,
}

/// Status of a receiver's congestion control, and the remaining work.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reception {
    /// Name of the control; `unknown` until the session has described the control.
    pub control: &'static str,
    /// Fair rate as estimated by the control, in bit/s of UDP payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_rate: Option<u64>,
    /// Subscribed channels.
    pub channels: u16,
    /// Round-trip time, queueing included, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<f64>,
    /// Recent mean time from a join to the first packet, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_latency: Option<f64>,
    /// Longest recent join latency, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_latency_max: Option<f64>,
    /// Maximum packets in flight, if each packet is requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u16>,
    /// NAKs sent, if the session uses NAKs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub naks: Option<u64>,
    /// Packets of the FDT.
    pub fdt_packets: u64,
    /// Packets without a symbol: packets that close the session, and packets for the congestion control
    /// alone.
    pub signalling: u64,
    /// Packets kept until the FDT describes their object.
    pub pending: u64,
    /// FDT entries that contradict an earlier entry.
    pub contradictions: u64,
    /// Datagrams of other groups or sources, dropped by the socket layer; not counted in `packets`.
    pub kept_out: u64,
    /// Datagrams that a router marked with congestion experienced.
    pub marked: u64,
    /// Symbols still needed for the announced files.
    pub missing: u64,
    /// Bytes by the path that they came by, a *PathBytes*.
    pub bytes_by_path: PathBytes,
    /// Estimated time for the missing symbols at the rate of the last second, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_left: Option<u64>,
    /// Estimate of the path, a *PathEstimate*, if the control makes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathEstimate>,
}

/// Bytes that a receiver got, by path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathBytes {
    /// UDP payload of packets to the groups.
    pub multicast: u64,
    /// UDP payload of packets to the groups that came through an AMT relay.
    pub amt: u64,
    /// UDP payload of packets on request.
    pub rainbow: u64,
    /// Content from HTTP servers.
    pub http: u64,
}

/// Estimate of a receiver's path: why the transfer is as fast as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PathEstimate {
    /// The other fields as a line of text.
    pub why: String,
    /// Whether no other traffic shares the bottleneck.
    pub alone: bool,
    /// Rate of the bottleneck, in bit/s of UDP payload, once known; after an overload the rate that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<u64>,
    /// Part of the bottleneck that other traffic uses, from 0 to 1, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    /// Queueing delay at which the bottleneck drops packets, in milliseconds, once packets were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_depth: Option<f64>,
    /// Recent part of packets lost by chance, from 0 to 1.
    pub chance: f64,
    /// Packets lost by chance.
    pub chance_losses: u64,
    /// Levels left because most packets did not arrive.
    pub overload_levels_left: u64,
    /// Limit of the rate other than the path: `sender` (no more is sent), `receiver` (its own maximum), or
    /// `host` (reads no more).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'static str>,
}

impl From<&PathStatus> for PathEstimate {
    fn from(path: &PathStatus) -> Self {
        Self {
            why: path.to_string(),
            alone: path.is_alone,
            bottleneck: path.bottleneck.map(Rate::as_bits),
            others: path.others,
            queue_depth: path.queue_depth.map(|depth| millis(Instant::ZERO + depth)),
            chance: path.chance,
            chance_losses: path.chance_losses,
            overload_levels_left: path.levels_left,
            limit: path.limit.map(RateLimit::name),
        }
    }
}

/// Messages of an end that sends or receives messages rather than files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// Messages sent or received.
    pub messages: u64,
    /// Bytes of these messages.
    pub message_bytes: u64,
    /// Repair counters, at a receiver only.
    #[serde(flatten)]
    pub repair: Option<Repair>,
}

/// Repair counters of a receiver of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// Packets detected as missing.
    pub missed: u64,
    /// Missing packets that were retransmitted and arrived.
    pub repaired: u64,
    /// NAKs sent.
    pub naks: u64,
    /// Messages begun that could not be reassembled.
    pub broken: u64,
    /// Packets of other sessions.
    pub foreign: u64,
}

/// Counters of an end since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Datagrams sent or received.
    pub packets: u64,
    /// Bytes of UDP payload sent or received.
    pub bytes: u64,
    /// Rate over the last second, in bit/s of UDP payload.
    pub rate: u64,
    /// Packets lost: holes in the sequence numbers, requests considered lost, or message packets given up.
    /// Always 0 at a sender.
    pub lost: u64,
    /// Content symbols sent, or stored by a receiver.
    pub symbols: u64,
    /// Symbols of the content, as far as known.
    pub symbols_total: u64,
    /// Symbols that a receiver needed on arrival, including symbols needed after a failed decoding.
    pub useful: u64,
    /// Symbols that a receiver kept from an earlier session.
    pub resumed: u64,
    /// Symbols of blocks found on disk: in an older version of a file, or as holes.
    pub reused: u64,
    /// Symbols that a receiver already had on arrival.
    pub duplicates: u64,
    /// Symbols that arrived after a receiver had enough to decode, and before decoding finished.
    pub surplus: u64,
    /// Datagrams that a sender could not send: no room in its queue, or no interface. Always 0 at a receiver.
    pub unsent: u64,
    /// Malformed datagrams and datagrams with another fault, dropped by an end.
    pub dropped: u64,
    /// Reasons of the drops; omitted if there were no drops.
    #[serde(skip_serializing_if = "Reasons::is_empty")]
    pub dropped_for: Reasons,
    /// Datagrams that the kernel dropped before a receiver could read them: not a loss in the network.
    pub kernel_drops: u64,
    /// Reception status, at a receiver only.
    #[serde(flatten)]
    pub reception: Option<Reception>,
    /// Message counters, if the session carries messages rather than files.
    #[serde(flatten)]
    pub messages: Option<Messages>,
    /// Counters of a sender with feedback: [`Source::visit_counters`](crate::pgm::PgmSource::visit_counters).
    #[serde(flatten)]
    pub feedback: Counters,
    /// Counters of a sender that sends on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Counters>,
    /// Receivers by state, at a sender with a roster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receivers: Option<RosterCounts>,
}

/// Report of a receiver to its sender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiverReport<'a> {
    /// Identifier of the receiver, in hexadecimal.
    pub receiver: String,
    /// Name that the receiver gives itself, printable; not to be trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// Address and port of the report.
    pub address: String,
    /// State in one word: `under-way`, `done`, `outdated` (done with other content), `left` or `silent`.
    pub state: &'static str,
    /// Exit code of a receiver that has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<u8>,
    /// First 32 bits of the digest of the content, in hexadecimal; zeros while unknown.
    pub content: String,
    /// Part of the content held, from 0 to 1.
    pub done: f64,
    /// Bytes of needed symbols received.
    pub bytes: u64,
    /// Rate of reception since the last report, in bit/s of UDP payload.
    pub rate: u64,
    /// Fair rate by the receiver's control, in bit/s of UDP payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_rate: Option<u64>,
    /// Part of the packets lost, from 0 to 1.
    pub lost: f64,
    /// Files in place.
    pub files_whole: u32,
    /// Files announced.
    pub files: u32,
    /// Port at which the receiver answers HTTP repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_port: Option<u16>,
}

/// Counts by name, serialized as an object without zero counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(pub [(&'static str, u64); 13]);

impl Reasons {
    fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, count)| *count == 0)
    }
}

impl Serialize for Reasons {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_map(self.0.iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count)))
    }
}

/// A session that could be sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan<'a> {
    /// Group and port of the base channel.
    pub group: String,
    /// Name of the network interface; absent if the interface depends on the requester.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<&'a str>,
    /// Transport session identifier, if fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsi: Option<u64>,
    /// The congestion control: `fixed`, `m2c` and so on.
    pub control: &'static str,
    /// Channels, each a multicast group.
    pub channels: u16,
    /// Rate over all channels, in bit/s of UDP payload.
    pub rate: u64,
    /// The order of sending: `spread` or `window`.
    pub order: &'static str,
    /// Number of files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of objects.
    pub objects: usize,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of source symbols: packets of content in a pass.
    pub symbols: u64,
    /// Bytes of a symbol.
    pub symbol_size: u16,
    /// Approximate time of a pass, in milliseconds.
    pub pass_time: u64,
}
