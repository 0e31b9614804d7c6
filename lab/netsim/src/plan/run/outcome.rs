//! The outcome of a run: an object of results, by the definitions of [`crate::measure`].

use std::collections::BTreeMap;

use headwater_proto::{Duration, Instant};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::Assembly;
use super::deploy::{Counted, Deployed, MemberCounted};
use super::series::{Reading, Series};

use crate::measure::jain;
use crate::network::LinkCounters;
use crate::plan::Scenario;
use crate::plan::flow::Member;

/// Results of a run. Rates are bit/s, times are seconds, sizes are bytes. All results are of the window after
/// the warm-up, except `trace`, `hops`, `packets_peak` and the results of sessions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Identity of the run.
    #[serde(flatten)]
    pub which: Which,
    /// Begin and end of measurement.
    pub window: Window,
    /// Results of the flows, in the order of the plan.
    pub flows: Vec<FlowOutcome>,
    /// Reported directions of links: the link's name for the forward direction, the name with `/back` for the
    /// opposite direction.
    pub links: Vec<LinkOutcome>,
    /// Jain's index of the goodputs in each group of two or more flows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub jain: BTreeMap<String, f64>,
    /// Delta-fair convergence time in seconds since the time that the plan gives; `None` if the flows did not
    /// converge, or were not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub convergence: Option<f64>,
    /// Series over time, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Packets that crossed a link.
    pub hops: u64,
    /// Maximum number of packets under way; copies of a packet count once.
    pub packets_peak: usize,
    /// Digest of all that happened.
    pub trace: String,
}

/// Identity of the run that produced the results, in the simulator or on a testbed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Which {
    /// Permanent name of the run: see [`crate::plan::Key`].
    pub key: String,
    /// Name of the plan.
    pub plan: String,
    /// Swept paths and their values.
    pub cell: BTreeMap<String, serde_json::Value>,
    /// The seed.
    pub seed: u64,
    /// The number of the run, from 1.
    pub run: u64,
}

impl Which {
    /// Creates the identity of a scenario with unknown plan, cell and key.
    pub fn of(scenario: &Scenario) -> Self {
        Self { seed: scenario.seed.0, run: scenario.run, ..Self::default() }
    }
}

/// The time that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Seconds since the start.
    pub from: f64,
    /// Seconds since the start.
    pub to: f64,
}

/// Results of a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Name of the flow.
    pub name: String,
    /// Name in the plan.
    pub group: String,
    /// Kind of flow.
    pub kind: &'static str,
    /// Wire bit/s offered.
    pub send_rate: f64,
    /// Wire bit/s delivered; for a multicast group, the mean over the receivers.
    pub throughput: f64,
    /// New payload bit/s; for a multicast group, the mean over the receivers.
    pub goodput: f64,
    /// Packets dropped or lost on the way, over packets delivered, dropped or lost (for a group, copies);
    /// `None` without packets.
    pub loss: Option<f64>,
    /// Coefficient of variation of the throughput in the bins of the series; `None` without a series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation: Option<f64>,
    /// Results of the flow's ends, if the kind of flow has any.
    #[serde(flatten)]
    pub ends: EndResults,
    /// Additional results of a multicast group.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionOutcome>,
    /// Criteria of a complete transfer, over the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criteria: Option<Criteria>,
    /// Each receiver of a session, or of a group under LE-SBCC, TFMCC, PGMCC or Rainbow, with at most
    /// [`MEMBERS_MAX`] receivers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberOutcome>,
}

/// Named results of a flow's ends, in the order of the results: counts, means in seconds, names of nodes. The
/// names are listed in `docs/reference/plans.md`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndResults(Vec<(&'static str, Json)>);

impl EndResults {
    /// Appends a result.
    pub fn push(&mut self, name: &'static str, value: impl Into<Json>) {
        self.0.push((name, value.into()));
    }

    /// Returns a result by name.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the count of a name, or 0 if no count has the name.
    pub fn count(&self, name: &str) -> u64 {
        self.get(name).and_then(Json::as_u64).unwrap_or(0)
    }

    /// Returns the number of a name; `None` if no number has the name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(Json::as_f64)
    }

    /// Results between two readings of the counters of the same ends.
    pub(super) fn between(before: &[(&'static str, Counter)], after: &[(&'static str, Counter)]) -> Self {
        let mut results = Self::default();
        for ((name, after), (_, before)) in after.iter().zip(before) {
            match (*before, *after) {
                (Counter::Count(before), Counter::Count(after)) => {
                    results.push(name, after.saturating_sub(before));
                }
                (Counter::Mean(before, earlier), Counter::Mean(after, count)) => {
                    results.push(name, mean(after - before, count.saturating_sub(earlier)));
                }
                (Counter::Excess(before, earlier), Counter::Excess(after, count)) => {
                    if let Some(ratio) = mean(after - before, count.saturating_sub(earlier)) {
                        results.push(name, ratio - 1.0);
                    }
                }
                (_, Counter::Last(value)) => results.push(name, value),
                _ => {}
            }
        }
        results
    }
}

impl Serialize for EndResults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Counter of a flow's ends at an instant. The variant says how two readings give a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Counter {
    /// Number of events; the result is the difference.
    Count(u64),
    /// Sum and number of samples; the result is the mean, or null without samples.
    Mean(f64, u64),
    /// As `Mean`; the result is the mean less 1, or absent without samples.
    Excess(f64, u64),
    /// Value at an instant; the result is the later value.
    Last(f64),
}

/// Symbols received by a Rainbow receiver while at least another receiver was receiving, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shared {
    /// Symbols.
    pub packets: u64,
    /// Symbols that another receiver received too.
    pub shared: u64,
}

/// Additional results of a multicast group, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SessionOutcome {
    /// Receivers.
    pub receivers: usize,
    /// Joins of groups, in the window.
    pub joins: u64,
    /// Leaves of groups, in the window.
    pub leaves: u64,
    /// Receivers with all content, verified; `None` for a group without content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<usize>,
    /// Mean time in seconds from a receiver's join until its content was complete, over the complete
    /// receivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_completion: Option<f64>,
    /// Completion time of the slowest complete receiver, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_completion: Option<f64>,
    /// Symbols that receivers had already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<u64>,
}

impl SessionOutcome {
    /// Outcome of a group with the completion times of the complete receivers in seconds.
    pub fn of_completions(receivers: usize, seconds: &[f64]) -> Self {
        Self {
            receivers,
            complete: Some(seconds.len()),
            mean_completion: mean(seconds.iter().sum(), seconds.len() as u64),
            longest_completion: seconds.iter().copied().reduce(f64::max),
            ..Self::default()
        }
    }
}

/// The criteria by which the sequencer's paper compares complete transfers; for a session, the means over the
/// complete receivers. Shares are parts of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Criteria {
    /// Seconds from the coming of the receiver, of TCP from the start, until all had arrived.
    pub time: f64,
    /// Bits of the file over `time`.
    pub gput: f64,
    /// Wire bits on the receiver's last link over `time`.
    pub tput: f64,
    /// Packets lost over packets sent to the receiver, as counted by the control; for TCP, packets dropped
    /// over all packets.
    pub loss: Option<f64>,
    /// Wire bytes on the receiver's last link over the bytes of the file, less 1.
    pub net: f64,
    /// Symbols received over different symbols received, less 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dup: Option<f64>,
    /// Different symbols received over source symbols, less 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sym: Option<f64>,
    /// Bytes of a full packet on the wire over the bytes of its symbol, less 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<f64>,
    /// `time` over the time until the last symbol that was needed had arrived, less 1. Decoding takes no
    /// simulated time: of a testbed only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comp: Option<f64>,
}

impl Criteria {
    /// Criteria of a transfer of `bytes` that took `time` seconds and `link_bytes` on the wire; `losses` are
    /// the numbers of packets lost and delivered.
    pub fn of_transfer(time: f64, bytes: u64, link_bytes: u64, losses: (u64, u64)) -> Self {
        Self {
            time,
            gput: 8.0 * bytes as f64 / time,
            tput: 8.0 * link_bytes as f64 / time,
            loss: share(losses.0, losses.0 + losses.1),
            net: link_bytes as f64 / bytes as f64 - 1.0,
            ..Self::default()
        }
    }

    /// Means of the criteria; the mean of an optional criterion is over the transfers with a value.
    pub fn mean(each: &[Self]) -> Option<Self> {
        let of = |value: fn(&Self) -> Option<f64>| {
            let values: Vec<f64> = each.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Some(Self {
            time: of(|one| Some(one.time))?,
            gput: of(|one| Some(one.gput))?,
            tput: of(|one| Some(one.tput))?,
            loss: of(|one| one.loss),
            net: of(|one| Some(one.net))?,
            dup: of(|one| one.dup),
            sym: of(|one| one.sym),
            head: of(|one| one.head),
            comp: of(|one| one.comp),
        })
    }
}

/// Maximum number of receivers of a session with individual results.
pub const MEMBERS_MAX: usize = 64;

/// Results of a receiver of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberOutcome {
    /// Node of the receiver.
    pub node: String,
    /// Wire bit/s delivered.
    pub throughput: f64,
    /// New payload bit/s.
    pub goodput: f64,
    /// Packets that the control found missing, over missing plus received packets; `None` without packets.
    pub loss: Option<f64>,
    /// Joins of groups.
    pub joins: u64,
    /// Leaves of groups.
    pub leaves: u64,
    /// Mean seconds from joining a group to the group's first packet, over the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_latency: Option<f64>,
    /// Seconds from the receiver's join until its content was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<f64>,
    /// Duplicate symbols received.
    pub duplicates: u64,
    /// Shared symbols of a Rainbow receiver.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub rainbow: Option<Shared>,
}

/// Results of a direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkOutcome {
    /// Name of the direction.
    pub name: String,
    /// Packets that arrived at the queue.
    pub arrivals: u64,
    /// Packets that the queue dropped.
    pub drops: u64,
    /// `drops / arrivals`; `None` without arrivals.
    pub loss: Option<f64>,
    /// Packets lost behind the queue.
    pub lost: u64,
    /// Packets marked.
    pub marks: u64,
    /// Wire bit/s that were sent.
    pub throughput: f64,
    /// Waiting packets, averaged over time.
    pub mean_queue: f64,
    /// Waiting bytes, averaged over time.
    pub mean_queue_bytes: f64,
}

/// Computes the outcome from two readings.
pub(super) fn outcome(
    scenario: &Scenario,
    assembly: &Assembly,
    before: &Reading,
    after: &Reading,
) -> Outcome {
    let end = assembly.run.now();
    let window = end.since(Instant::ZERO + scenario.warm_up);
    let flows: Vec<FlowOutcome> = scenario
        .flows
        .iter()
        .zip(&assembly.flows)
        .zip(before.flows.iter().zip(&after.flows))
        .map(|((planned, deployed), (before, after))| {
            let receivers = deployed.receivers.len() as f64;
            let of = |counter: fn(&Counted) -> u64| counter(after).saturating_sub(counter(before));
            let (dropped, delivered) = (of(|flow| flow.dropped), of(|flow| flow.delivered));
            let session = || SessionOutcome {
                joins: of(|flow| flow.joins),
                leaves: of(|flow| flow.leaves),
                ..deployed.session(&assembly.run)
            };
            FlowOutcome {
                name: planned.name.clone(),
                group: planned.group.clone(),
                kind: planned.kind.name(),
                send_rate: rate(of(|flow| flow.sent_bytes), window),
                throughput: rate(of(|flow| flow.delivered_bytes), window) / receivers,
                goodput: rate(of(|flow| flow.good_bytes), window) / receivers,
                loss: share(dropped, dropped + delivered),
                variation: None,
                ends: deployed.results(&assembly.run, before, after),
                session: deployed.is_group().then(session),
                criteria: deployed.criteria(&assembly.run),
                members: members(scenario, assembly, deployed, (before, after), window),
            }
        })
        .collect();
    let links = assembly.links.iter().zip(before.links.iter().zip(&after.links)).flat_map(
        |((link, _), (before, after))| {
            let name = &scenario.topology.links[*link].name;
            let names = [name.clone(), format!("{name}/back")];
            let sides = names.into_iter().zip(before).zip(after);
            sides.map(|((name, before), after)| direction(name, before, after, window)).collect::<Vec<_>>()
        },
    );
    let trace = assembly.run.digest().unwrap_or_default();
    Outcome {
        which: Which::of(scenario),
        window: Window { from: scenario.warm_up.as_secs_f64(), to: end.since(Instant::ZERO).as_secs_f64() },
        links: links.collect(),
        jain: fairness(&flows),
        flows,
        convergence: None,
        series: None,
        hops: assembly.run.usage().packet_hops,
        packets_peak: assembly.run.usage().packets_peak,
        trace: trace.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn members(
    scenario: &Scenario,
    assembly: &Assembly,
    deployed: &Deployed,
    (before, after): (&Counted, &Counted),
    window: Duration,
) -> Vec<MemberOutcome> {
    let shared = deployed.ends.shared(&assembly.run, &deployed.receivers);
    let counted = before.members.iter().zip(&after.members);
    let member =
        |(index, (member, (before, after))): (usize, (&Member, (&MemberCounted, &MemberCounted)))| {
            let of = |counter: fn(&MemberCounted) -> u64| counter(after).saturating_sub(counter(before));
            let (lost, came) = (of(|member| member.reception.lost), of(|member| member.reception.packets));
            MemberOutcome {
                node: scenario.topology.nodes[member.node].clone(),
                throughput: rate(of(|member| member.wire_bytes), window),
                goodput: rate(of(|member| member.good_bytes), window),
                loss: share(lost, lost + came),
                joins: of(|member| member.joins),
                leaves: of(|member| member.leaves),
                join_latency: after.join_latency,
                completion: after.completion,
                duplicates: of(|member| member.duplicates),
                rainbow: shared.get(index).copied(),
            }
        };
    deployed.members().iter().zip(counted).enumerate().map(member).collect()
}

fn direction(name: String, before: &LinkCounters, after: &LinkCounters, window: Duration) -> LinkOutcome {
    let of = |counter: fn(&LinkCounters) -> u64| counter(after).saturating_sub(counter(before));
    let mean = |counter: fn(&LinkCounters) -> u128| {
        counter(after).saturating_sub(counter(before)) as f64 / window.as_nanos() as f64
    };
    let (arrivals, drops) = (of(|link| link.offered_packets), of(LinkCounters::queue_drops));
    LinkOutcome {
        name,
        arrivals,
        drops,
        loss: share(drops, arrivals),
        lost: of(|link| link.lost + link.corrupted + link.dropped_down),
        marks: of(|link| link.marked),
        throughput: rate(of(|link| link.sent_bytes), window),
        mean_queue: mean(|link| link.waiting_packet_nanos),
        mean_queue_bytes: mean(|link| link.waiting_byte_nanos),
    }
}

/// Jain's index of the goodputs in each group of several flows.
pub fn fairness(flows: &[FlowOutcome]) -> BTreeMap<String, f64> {
    let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for flow in flows {
        groups.entry(&flow.group).or_default().push(flow.goodput);
    }
    let several = groups.into_iter().filter(|(_, goodputs)| goodputs.len() > 1);
    several.filter_map(|(group, goodputs)| Some((group.to_owned(), jain(&goodputs)?))).collect()
}

fn rate(bytes: u64, window: Duration) -> f64 {
    8.0 * bytes as f64 / window.as_secs_f64()
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
