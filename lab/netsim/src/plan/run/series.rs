//! Series over time: readings at the edges of bins, and rates between readings.

use headwater_proto::{Duration, Instant};
use serde::Serialize;

use super::Assembly;
use super::deploy::{Counted, Deployed};
use crate::network::LinkCounters;
use crate::plan::Scenario;
use crate::plan::flow::{Member, Session};

/// Rates over time. Bin i of each series is from `i * bin` to `(i + 1) * bin`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Width of a bin in seconds.
    pub bin: f64,
    /// In the order of the outcome's flows.
    pub flows: Vec<FlowSeries>,
    /// In the order of the outcome's links.
    pub links: Vec<LinkSeries>,
}

/// Series of a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowSeries {
    /// Name of the flow.
    pub name: String,
    /// Wire bit/s offered.
    pub send_rate: Vec<f64>,
    /// Wire bit/s delivered; for a group, the mean over the receivers.
    pub throughput: Vec<f64>,
    /// New payload bit/s; for a group, the mean over the receivers.
    pub goodput: Vec<f64>,
    /// Packets dropped or lost on the way; of a group, copies.
    pub dropped: Vec<u64>,
    /// Series of the flow's groups by channel, if the receivers form a multicast group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupSeries>,
    /// Symbols that receivers of a session had already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub duplicates: Vec<u64>,
    /// Joins of groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<u64>,
    /// Leaves of groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<u64>,
    /// The source's round-trip time under LE-SBCC, at the end of each bin, in seconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub srtt: Vec<f64>,
    /// Series of each receiver of a session with at most [`super::MEMBERS_MAX`] receivers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberSeries>,
}

/// Series of a receiver. Values of the control are taken at the end of each bin; 0 where the control has no
/// such value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberSeries {
    /// Node of the receiver.
    pub node: String,
    /// Wire bit/s delivered.
    pub throughput: Vec<f64>,
    /// Packets that the control found missing.
    pub lost: Vec<u64>,
    /// Levels held above the base.
    pub level: Vec<u16>,
    /// The control's estimate of its fair share in wire bit/s.
    pub fair_rate: Vec<f64>,
    /// Congestion window in packets.
    pub window: Vec<f64>,
    /// Round-trip time in seconds, as estimated by the control.
    pub rtt: Vec<f64>,
}

/// Series of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupSeries {
    /// Wire bit/s offered.
    pub send_rate: Vec<f64>,
    /// Wire bit/s delivered, the mean over all receivers of the flow, members or not.
    pub throughput: Vec<f64>,
    /// Part of the flow's receivers that are members at the end of each bin.
    pub held: Vec<f64>,
}

/// Series of a direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkSeries {
    /// Name of the direction.
    pub name: String,
    /// Waiting packets, averaged over each bin.
    pub mean_queue: Vec<f64>,
    /// Packets dropped by the queue or lost on the wire.
    pub dropped: Vec<u64>,
}

/// All reported counters at an instant. Events in a window are the difference of two readings.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// In the order of the scenario's flows.
    pub flows: Vec<Counted>,
    /// In the order of the reported links: forward, back.
    pub links: Vec<[LinkCounters; 2]>,
}

impl Reading {
    pub fn take(assembly: &mut Assembly) -> Self {
        let run = &mut assembly.run;
        let links = assembly
            .links
            .iter()
            .map(|(_, link)| [*link, link.reverse()].map(|direction| run.link_counters(direction)))
            .collect();
        Self { flows: assembly.flows.iter().map(|flow| flow.count(run)).collect(), links }
    }
}

/// Takes a reading at the edge of each bin.
pub(super) struct Recorder {
    bin: Duration,
    from: Instant,
    readings: Vec<Reading>,
}

impl Recorder {
    pub fn new(bin: Duration, from: Instant) -> Self {
        Self { bin, from, readings: Vec::new() }
    }

    /// Instant of the next reading.
    pub fn next(&self) -> Instant {
        self.from + self.bin.saturating_mul(self.readings.len() as u64)
    }

    pub fn record(&mut self, now: Instant, assembly: &mut Assembly) {
        if now >= self.next() {
            self.readings.push(Reading::take(assembly));
        }
    }

    /// Goodput of `flows` in each bin.
    pub fn shares(&self, flows: &[usize]) -> Vec<Vec<f64>> {
        flows.iter().map(|flow| self.rates(|reading| reading.flows[*flow].good_bytes)).collect()
    }

    pub fn finish(&self, scenario: &Scenario, assembly: &Assembly) -> Series {
        let flows =
            scenario.flows.iter().zip(&assembly.flows).enumerate().map(|(flow, (planned, deployed))| {
                let receivers = deployed.receivers.len() as f64;
                let per_receiver = |rates: Vec<f64>| -> Vec<f64> {
                    rates.into_iter().map(|rate| rate / receivers).collect()
                };
                let groups = self.readings.first().map_or(0, |reading| reading.flows[flow].groups.len());
                let group = |group: usize| {
                    let rates = |way: usize| self.rates(|reading| reading.flows[flow].groups[group][way]);
                    let members = self.readings.iter().skip(1);
                    let held = members.map(|reading| reading.flows[flow].groups[group][2] as f64 / receivers);
                    let held = held.collect();
                    GroupSeries { send_rate: rates(0), throughput: per_receiver(rates(1)), held }
                };
                let moves = |count: fn(&Counted) -> u64| {
                    if deployed.is_group() {
                        self.counts(|reading| count(&reading.flows[flow]))
                    } else {
                        Vec::new()
                    }
                };
                let session = deployed.ends.session().into_iter();
                let members = session.flat_map(|session| self.members(scenario, flow, session, deployed));
                let later = self.readings.iter().skip(1);
                let srtt = later.filter_map(|reading| reading.flows[flow].last("srtt")).collect();
                FlowSeries {
                    srtt,
                    members: members.collect(),
                    name: planned.name.clone(),
                    send_rate: self.rates(|reading| reading.flows[flow].sent_bytes),
                    throughput: per_receiver(self.rates(|reading| reading.flows[flow].delivered_bytes)),
                    goodput: per_receiver(self.rates(|reading| reading.flows[flow].good_bytes)),
                    dropped: self.counts(|reading| reading.flows[flow].dropped),
                    groups: (0..groups).map(group).collect(),
                    duplicates: moves(|counted| counted.duplicates),
                    joins: moves(|counted| counted.joins),
                    leaves: moves(|counted| counted.leaves),
                }
            });
        let links = assembly.links.iter().enumerate().flat_map(|(index, (link, _))| {
            let name = &scenario.topology.links[*link].name;
            [(0, name.clone()), (1, format!("{name}/back"))].map(|(side, name)| self.link(index, side, name))
        });
        Series { bin: self.bin.as_secs_f64(), flows: flows.collect(), links: links.collect() }
    }

    /// Series of the receivers of a session, as far as individual counters exist.
    fn members(
        &self,
        scenario: &Scenario,
        flow: usize,
        session: &Session,
        deployed: &Deployed,
    ) -> Vec<MemberSeries> {
        let wire_bytes = f64::from(session.parameters.packet_bytes) + f64::from(session.header_bytes);
        let counted = self.readings.first().map_or(0, |reading| reading.flows[flow].members.len());
        let series = |(index, member): (usize, &Member)| {
            let of = |reading: &Reading| reading.flows[flow].members[index];
            let views = || self.readings.iter().skip(1).map(|reading| of(reading).view);
            MemberSeries {
                node: scenario.topology.nodes[member.node].clone(),
                throughput: self.rates(|reading| of(reading).wire_bytes),
                lost: self.counts(|reading| of(reading).reception.lost),
                level: views().map(|view| view.level).collect(),
                fair_rate: views().map(|view| 8.0 * wire_bytes * view.fair_rate.unwrap_or(0.0)).collect(),
                window: views().map(|view| view.window.unwrap_or(0.0)).collect(),
                rtt: views().map(|view| view.rtt.unwrap_or(0.0)).collect(),
            }
        };
        deployed.members().iter().enumerate().take(counted).map(series).collect()
    }

    fn link(&self, index: usize, side: usize, name: String) -> LinkSeries {
        let nanos = self.bin.as_nanos() as f64;
        let pairs =
            self.readings.windows(2).map(|pair| (&pair[0].links[index][side], &pair[1].links[index][side]));
        let mean_queue = pairs.map(|(a, b)| (b.waiting_packet_nanos - a.waiting_packet_nanos) as f64 / nanos);
        LinkSeries {
            name,
            mean_queue: mean_queue.collect(),
            dropped: self.counts(|reading| {
                let link = &reading.links[index][side];
                link.queue_drops() + link.lost + link.corrupted + link.dropped_down
            }),
        }
    }

    /// bit/s in each bin, of a counter of bytes.
    fn rates(&self, bytes: impl Fn(&Reading) -> u64) -> Vec<f64> {
        let seconds = self.bin.as_secs_f64();
        self.counts(bytes).into_iter().map(|bytes| 8.0 * bytes as f64 / seconds).collect()
    }

    fn counts(&self, counter: impl Fn(&Reading) -> u64) -> Vec<u64> {
        self.readings.windows(2).map(|pair| counter(&pair[1]).saturating_sub(counter(&pair[0]))).collect()
    }
}
