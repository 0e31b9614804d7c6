//! The aggregation router: a single report per group and request for all of downstream.

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_wire::sim::{Data, Group, SimReport};
use rand::Rng;

use super::collector::Tally;
use super::collector::{Collector, Refused};
use super::schedule::clock;
use super::{ANEW, data_of, is_later};
use super::{RTT_LONGEST, Trust};
use crate::machine::{
    Datagram, Destination, Ecn, Input, InterfaceId, Machine, Output, RouterOutput, Transmit,
};
use crate::rng::Seed;
use crate::time::{Duration, Instant};

/// Maximum wait for reports, in round-trip times of the subtree.
const WAIT: f64 = 2.0;
/// Round-trip time of the subtree before the first report, in seconds.
const RTT_FIRST: f64 = 0.1;
/// Maximum wait caused by late reports, as a fraction of the time between two requests.
const WAIT_OF_GAP: f64 = 0.75;
/// Weight of a shorter round-trip time; a longer round-trip time replaces the old value at once.
const GAIN: f64 = 0.25;

/// Configuration of an [`AggregationRouter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    session: u32,
    groups: u16,
    routers: Vec<InterfaceId>,
    trust: Trust,
    limits_networks: bool,
}

impl RouterConfig {
    /// Creates the configuration for a session with number `session` in feedback and `groups` groups, at most
    /// [`super::GROUPS_MAX`].
    pub fn new(session: u32, groups: u16) -> Self {
        Self {
            session,
            groups: groups.clamp(1, super::GROUPS_MAX),
            routers: Vec::new(),
            trust: Trust::Nobody,
            limits_networks: false,
        }
    }

    /// Whether a network has at most 8 writers of reports. Default: no.
    #[must_use]
    pub const fn with_network_limit(mut self, limits: bool) -> Self {
        self.limits_networks = limits;
        self
    }

    /// Sets the interfaces that lead to other aggregation routers only; reports from these interfaces speak
    /// for many receivers. Default: no interface; each report counts as a single receiver.
    #[must_use]
    pub fn with_routers(mut self, interfaces: Vec<InterfaceId>) -> Self {
        self.routers = interfaces;
        self
    }

    /// Sets the hosts with reports that speak for many receivers, on any interface. Default:
    /// [`Trust::Nobody`].
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }
}

/// Counters of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCounters {
    /// Requests forwarded.
    pub requests: u64,
    /// Reports taken.
    pub taken: u64,
    /// Reports sent.
    pub sent: u64,
    /// Requests settled because all known writers had reported.
    pub complete: u64,
    /// Requests settled because the wait was over.
    pub timeouts: u64,
    /// Reports refused: see [`Refused`].
    pub refused: u64,
    /// Late reports among the refused reports.
    pub late: u64,
}

/// Router that merges the reports of a session from downstream. Data, and any packet other than a report of
/// the session, pass unchanged.
#[derive(Clone, Debug)]
pub struct AggregationRouter {
    config: RouterConfig,
    id: u32,
    collector: Collector,
    /// Destination of reports: upstream interface, and source address of the data.
    upstream: Option<(InterfaceId, SocketAddr)>,
    /// Smoothed round-trip time of the subtree, in seconds.
    rtt: f64,
    /// Longest round-trip time since the request, and longest round-trip time of reports in time, in seconds.
    peak: Option<f64>,
    in_time: Option<f64>,
    timer: Option<Instant>,
    /// ECN codepoint of the datagram under way, which is forwarded.
    passing: Option<Ecn>,
    /// Reports to send.
    leaving: VecDeque<SimReport>,
    counters: RouterCounters,
}

impl AggregationRouter {
    /// Creates a router without children. The router's identifier in reports is drawn from `seed`.
    pub fn new(config: RouterConfig, seed: Seed) -> Self {
        let mut collector = Collector::new(config.session, config.groups);
        if config.limits_networks {
            collector.limit_networks();
        }
        Self {
            id: seed.stream("sim/router", 0).next_u32(),
            collector,
            upstream: None,
            rtt: RTT_FIRST,
            peak: None,
            in_time: None,
            timer: None,
            passing: None,
            leaving: VecDeque::with_capacity(config.groups.into()),
            counters: RouterCounters::default(),
            config,
        }
    }

    /// Round-trip time of the subtree in seconds. A request waits for at most twice this time.
    pub const fn rtt(&self) -> f64 {
        self.rtt
    }

    /// Number of writers of reports remembered.
    pub fn children(&self) -> usize {
        self.collector.children()
    }

    /// Returns the counters.
    pub const fn counters(&self) -> &RouterCounters {
        &self.counters
    }

    fn datagram(&mut self, now: Instant, ingress: InterfaceId, datagram: &Datagram<'_>) {
        if datagram.channel.is_some() {
            self.passing = Some(datagram.ecn);
            if let Some(data) = data_of(datagram.payload) {
                self.data(now, (ingress, datagram.source), &data);
            }
            return;
        }
        match SimReport::parse(datagram.payload) {
            // A report from the sender's side does not come from downstream.
            Ok(report)
                if report.group.session == self.config.session
                    && self.upstream.is_some_and(|(upstream, _)| upstream != ingress) =>
            {
                self.report(now, (ingress, datagram.source), &report);
            }
            _ => self.passing = Some(datagram.ecn),
        }
    }

    fn data(&mut self, now: Instant, from: (InterfaceId, SocketAddr), data: &Data) {
        let is_new = self.collector.request().is_none_or(|(request, began)| {
            is_later(data.request, request) || data.request != request && now.since(began) > ANEW
        });
        if is_new {
            self.upstream = Some(from);
            self.smooth();
            let wait = self.wait(now, data.request);
            self.timer = Some(now + wait);
            self.collector.begin(now, data.request, data.timestamp);
            self.leaving.clear();
            self.counters.requests += 1;
        }
        self.collector.passes(data.request, data.timestamp);
    }

    /// Returns the wait for reports on a request: `WAIT` round-trip times of the subtree, but at most
    /// `WAIT_OF_GAP` of the time between two requests, or `WAIT` times the longest round-trip time of reports
    /// in time for the last request. The first bound holds against late reports: reports not sent before the
    /// next request are lost. The second bound lets the delay double while a queue grows: the sender receives
    /// reports that were in time, and makes the next request at least twice the reports' round-trip time
    /// later.
    fn wait(&mut self, now: Instant, request: u16) -> Duration {
        let in_time = self.in_time.take().filter(|_| self.timer.is_none()).unwrap_or(0.0);
        let gap =
            self.collector.request().filter(|(before, _)| is_later(request, *before)).map(
                |(before, began)| now.since(began).as_secs_f64() / f64::from(request.wrapping_sub(before)),
            );
        let most = gap.map_or(f64::INFINITY, |gap| (WAIT_OF_GAP * gap).max(WAIT * in_time));
        Duration::from_secs_f64(most.min(WAIT * self.rtt))
    }

    fn report(&mut self, now: Instant, writer: (InterfaceId, SocketAddr), report: &SimReport) {
        let (interface, from) = writer;
        let is_router = self.config.routers.contains(&interface) || self.config.trust.holds(from.ip());
        // A report that goes on alone after the wait may reach the sender after the next request. The wait
        // must not grow to twice the round-trip time of the report.
        let is_in_time = !self.collector.is_settled();
        let taken = self.collector.take(now, writer, is_router, report);
        match taken {
            Ok(()) => {
                self.counters.taken += 1;
                let took = self.measure(now, report);
                // At most the time since the request, regardless of the echo.
                let request = self.collector.request().filter(|(number, _)| *number == report.request);
                let since = request.map(|(_, began)| now.since(began).as_secs_f64());
                let took = took.zip(since).filter(|_| is_in_time);
                self.in_time = longer(self.in_time, took.map(|(took, since)| took.min(since)));
            }
            Err(refused) => {
                self.counters.refused += 1;
                // Late reports extend the next wait.
                if refused == Refused::Late {
                    self.counters.late += 1;
                    _ = self.measure(now, report);
                }
            }
        }
        if self.collector.is_complete() {
            self.counters.complete += 1;
            self.settle(now);
        } else if taken.is_ok() && self.collector.is_settled() {
            // The first report on a group after the wait goes on at once, alone. So a report that is late at
            // this router does not miss another request at each router upstream. Routers without known
            // children all wait equally long, and still forward the report.
            self.settle(now);
        }
    }

    /// Returns the round-trip time of a report, in seconds.
    fn measure(&mut self, now: Instant, report: &SimReport) -> Option<f64> {
        let took = self.collector.took(now, report)?.as_secs_f64().min(RTT_LONGEST.as_secs_f64());
        self.peak = longer(self.peak, Some(took));
        Some(took)
    }

    fn smooth(&mut self) {
        if let Some(peak) = self.peak.take() {
            self.rtt = peak.max(self.rtt + GAIN * (peak - self.rtt));
        }
    }

    /// Makes a report for each group that was reported and not yet settled for this request.
    fn settle(&mut self, now: Instant) {
        self.timer = None;
        let Some((request, _)) = self.collector.request() else { return };
        let (session, source) = (self.config.session, self.id);
        let report = |(rank, tally): (u8, Option<Tally>)| {
            let tally = tally?;
            let group = Group { session, rank };
            let head = SimReport {
                is_last: false,
                request,
                source,
                group,
                reports: 0,
                congested: 0,
                population: 0,
                min_rate: 0,
                max_rate: 0,
                echo: 0,
                hold: 0,
            };
            Some(tally.report(clock(now), head))
        };
        self.leaving.extend((0..).zip(self.collector.settle()).filter_map(report));
        if let Some(last) = self.leaving.back_mut() {
            last.is_last = true;
        }
    }
}

/// Returns the longer of two optional times.
fn longer(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

impl Machine for AggregationRouter {
    type Event = core::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        if self.timer.is_some_and(|timer| timer <= now) {
            self.counters.timeouts += 1;
            self.settle(now);
        }
        if let Input::Routed(ingress, datagram) = input {
            self.datagram(now, ingress, &datagram);
        }
    }

    fn poll_output(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<Output<Self::Event>> {
        if let Some(ecn) = self.passing.take() {
            return Some(Output::Router(RouterOutput::Pass { ecn }));
        }
        let (egress, to) = self.upstream?;
        let bytes = self.leaving.pop_front()?.emit();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.counters.sent += 1;
        let transmit =
            Transmit { destination: Destination::Unicast(to), bytes: bytes.len(), ecn: Ecn::NotCapable };
        Some(Output::Router(RouterOutput::Transmit { egress, transmit }))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }
}
