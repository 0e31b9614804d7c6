//! `headwater relay --sim`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use headwater::relay::{SimLink, SimRelayError, SimRelayOptions, SimRelayProgress, SimRelaySession};
use headwater_proto::eventlog::{self, Event};
use headwater_proto::queue::{Marking, PriorityConfig, QueueConfig, THRESHOLD_DEFAULT};
use headwater_proto::sim::relay::EgressShape;

use crate::args::{RelayArgs, SimMarking};
use crate::capture::Capture;
use crate::exit::{Exit, Failure};
use crate::screen::{count, rate, time};

use super::{ShownRelay, run_relay};

/// Relays until interrupted.
pub fn run(args: &RelayArgs) -> Result<Exit, Failure> {
    let is_shaped = args.egress_rate.is_some() || args.sim.sim_to.iter().any(|(_, rate)| rate.is_some());
    if !is_shaped && args.sim.sim_marking != SimMarking::Red {
        return Err(Failure::new(
            Exit::Usage,
            "--sim-marking needs links with a rate: add --sim-to IF=RATE, or --egress-rate",
        ));
    }
    run_relay(args, |capture| {
        SimRelaySession::open(options(args, capture)?)
            .map_err(|error| SimRelaySession::failed("cannot relay", error))
    })
}

fn options(args: &RelayArgs, capture: Option<&Capture>) -> Result<SimRelayOptions, Failure> {
    let links = args.sim.sim_to.iter().map(|(interface, rate)| SimLink {
        interface: interface.clone(),
        shape: rate.or(args.egress_rate).map(|rate| EgressShape { rate, queue: queue(args) }),
    });
    // The first group's IP version counts; groups of another version need another relay and are refused.
    let group = args.sim.sim.first().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), SocketAddr::ip);
    let source = args.sim.sim_source.as_ref().map(|source| source.for_option("--sim-source", group));
    let relays = args.sim.sim_relay.iter().map(|relay| relay.for_option("--sim-relay", group));
    Ok(SimRelayOptions {
        groups: args.sim.sim.clone(),
        links: links.collect(),
        upstream: args.sim.sim_from.clone(),
        source: source.transpose()?,
        relays: relays.collect::<Result<_, _>>()?,
        groups_max: args.sim.sim_groups,
        port: args.sim.sim_port,
        ttl: args.ttl,
        dscp: args.dscp,
        trace: capture.map(Capture::hook),
    })
}

fn queue(args: &RelayArgs) -> QueueConfig {
    let priority = PriorityConfig::new(args.queue_packets);
    QueueConfig::Priority(match args.sim.sim_marking {
        SimMarking::Red => priority,
        SimMarking::Threshold => {
            PriorityConfig { marking: Marking::Threshold(THRESHOLD_DEFAULT), ..priority }
        }
        SimMarking::Plain => PriorityConfig { is_priority: false, ..priority },
        SimMarking::None => return QueueConfig::drop_tail(args.queue_packets),
    })
}

impl ShownRelay for SimRelaySession {
    type Progress = SimRelayProgress;

    fn listens(&self) -> Vec<String> {
        self.local_addrs().iter().map(ToString::to_string).collect()
    }

    fn title(_args: &RelayArgs) -> String {
        "relaying SIM, reports".into()
    }

    /// Returns `13 Mbit/s to 3 members, 3 groups held, 12 marks/s`.
    fn line_of(progress: &SimRelayProgress, before: &SimRelayProgress) -> String {
        let (now, then) = (&progress.counters, &before.counters);
        let span = progress.elapsed.saturating_sub(before.elapsed).as_millis().max(1);
        let per_second = |now: u64, then: u64| u128::from(now.saturating_sub(then)) * 1_000 / span;
        let bits = per_second(now.egress.sent_bytes, then.egress.sent_bytes) * 8;
        format!(
            "{} to {}, {} held, {} marks/s",
            rate(u64::try_from(bits).unwrap_or(u64::MAX)),
            count(now.members, "member"),
            count(now.groups.into(), "group"),
            per_second(now.egress.marked, then.egress.marked),
        )
    }

    /// Returns the summary of the relay.
    fn last_line_of(progress: &SimRelayProgress) -> String {
        let SimRelayProgress { elapsed, counters, unsent } = progress;
        let egress = &counters.egress;
        format!(
            "relayed {} packets in {}, {} of them marked; {} reports were made {}; {} packets dropped by queues, {unsent} by the system",
            egress.sent,
            time(*elapsed),
            egress.marked,
            counters.reports,
            counters.merged,
            egress.queue_drops + egress.no_room,
        )
    }

    fn advice(progress: &SimRelayProgress, before: &SimRelayProgress) -> Option<&'static str> {
        (progress.counters.beyond > 0 && before.counters.beyond == 0).then_some(
            "a receiver below has joined more groups than --sim-groups: set --sim-groups to the sender's --groups",
        )
    }

    fn event(progress: &SimRelayProgress, is_end: bool) -> Event<'static> {
        let progress = eventlog::SimRelayProgress { counters: progress.counters, unsent: progress.unsent };
        if is_end { Event::SimRelayEnded(progress) } else { Event::SimRelayProgress(progress) }
    }

    fn failed(tried: &str, error: SimRelayError) -> Failure {
        let exit = match error {
            SimRelayError::Counts
            | SimRelayError::Family
            | SimRelayError::Channels(_)
            | SimRelayError::Queue(_) => Exit::Usage,
            SimRelayError::Interface(_) | SimRelayError::Open(_) | SimRelayError::Driver(_) => Exit::Network,
        };
        Failure::of(exit, anyhow::Error::from(error).context(tried.to_owned()))
    }
}
