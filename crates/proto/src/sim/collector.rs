//! Reports on a request, from the receivers and routers adjacent to a sender or a router.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_wire::sim::SimReport;

use super::is_later;
use super::schedule::{clock, duration, tenths};
use crate::admission::network;
use crate::machine::InterfaceId;
use crate::time::{Duration, Instant};

/// Maximum number of writers of reports that are remembered; reports of further writers are refused.
pub const CHILDREN_MAX: usize = 1 << 16;
/// Maximum number of writers of a network (/24 of IPv4, /56 of IPv6), if writers are limited: a host with
/// many addresses counts as few receivers.
pub const NETWORK_WRITERS_MAX: usize = 8;
/// Number of consecutive missed requests after which a writer is forgotten: a receiver that left, or an
/// aggregator that fell silent.
const MISSED_MAX: u8 = 4;

/// Reason for refusing a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The report belongs to another session, or to a group that the session does not have.
    Foreign,
    /// The report answers a request that was never made.
    Stale,
    /// The report arrived after the settlement of the report's group, and counts for the next request.
    Late,
    /// The writer already reported the group (a receiver: any group) for the request, or answered a later
    /// request.
    Duplicate,
    /// The report echoes a packet that was never sent or was sent more than 4 s before the request, or claims
    /// a longer hold than the time since the echoed packet.
    Absurd,
    /// There are already [`CHILDREN_MAX`] writers, or [`NETWORK_WRITERS_MAX`] of the writer's network, or
    /// [`CHILDREN_MAX`] reports that stand for another request than the answered request.
    Crowded,
}

/// Writer of a report: interface and source address. The port counts for routers alone, because a host may
/// run a router beside a receiver.
pub(super) type Writer = (InterfaceId, SocketAddr);

/// Maximum time between an echoed packet and the request after the packet, in tenths of a millisecond: twice
/// the longest round-trip time.
const ECHO_MAX: u32 = 40_000;

#[derive(Clone, Copy, Debug, Default)]
struct Child {
    /// Whether the child has reported all groups for the request under way.
    is_done: bool,
    /// Latest request that the child answered, and a bit for each reported group, so that a repeated report
    /// counts once.
    latest: Option<(u16, u64)>,
    /// Number of requests since the child's last report.
    requests: u8,
}

/// Reports on earlier requests, with the reported group: a single report of each receiver, and a report per
/// group of each router.
type Earlier = BTreeMap<(Writer, u8), (u8, Tally)>;

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    number: u16,
    began: Instant,
    /// Timestamps of the first and the latest packet that carried the request.
    first: u32,
    latest: u32,
}

/// Collector of reports. A report that is too late for the answered request stands for the writer in the
/// request under way, or in the next request if the group is already settled, until the writer reports again.
/// So receivers behind a filling queue are heard, and the delay is measured. Each report counts once.
///
/// Memory: a tally for each group, and at most [`CHILDREN_MAX`] each of writers, of reports that stand in
/// this request, and of reports for the next request. Routers may write a report for each group.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    session: u32,
    /// Whether a network has at most [`NETWORK_WRITERS_MAX`] writers.
    limits_networks: bool,
    request: Option<Request>,
    /// The previous request.
    previous: Option<Request>,
    tallies: Vec<Option<Tally>>,
    /// Reports that stand for writers until the writers report again.
    earlier: Earlier,
    /// Reports on settled groups, which stand in the next request.
    late: Earlier,
    children: BTreeMap<Writer, Child>,
    /// Number of children that have not reported all groups.
    open: usize,
    /// Whether there were children at the beginning of the request.
    is_expecting: bool,
    is_settled: bool,
    /// Groups with reports at settlement, a bit each; all other groups stay open.
    settled: u64,
}

impl Collector {
    pub fn new(session: u32, groups: u16) -> Self {
        Self {
            session,
            limits_networks: false,
            request: None,
            previous: None,
            tallies: vec![None; groups.into()],
            earlier: BTreeMap::new(),
            late: BTreeMap::new(),
            children: BTreeMap::new(),
            open: 0,
            is_expecting: false,
            is_settled: false,
            settled: 0,
        }
    }

    /// Limits the writers of a network to [`NETWORK_WRITERS_MAX`]. Default: no limit, as in simulations.
    pub fn limit_networks(&mut self) {
        self.limits_networks = true;
    }

    /// Whether the network of a new writer has as many writers as it may have. Writers of an interface are
    /// in the order of their addresses.
    fn is_network_full(&self, (interface, from): Writer) -> bool {
        let [first, last] = network(from.ip());
        let range = (interface, SocketAddr::new(first, 0))..=(interface, SocketAddr::new(last, u16::MAX));
        self.limits_networks && self.children.range(range).nth(NETWORK_WRITERS_MAX - 1).is_some()
    }

    /// Returns the number and the start of the request under way.
    pub fn request(&self) -> Option<(u16, Instant)> {
        self.request.map(|request| (request.number, request.began))
    }

    /// Begins a request with a packet of timestamp `stamp`.
    pub fn begin(&mut self, now: Instant, number: u16, stamp: u32) {
        self.previous = self.request;
        let is_anew = self.previous.is_some_and(|before| !is_later(number, before.number));
        self.request = Some(Request { number, began: now, first: stamp, latest: stamp });
        self.tallies.fill(None);
        self.earlier = core::mem::take(&mut self.late);
        self.children.retain(|_, child| {
            child.is_done = false;
            child.latest = child.latest.filter(|_| !is_anew);
            child.requests += 1;
            child.requests <= MISSED_MAX
        });
        self.open = self.children.len();
        (self.is_expecting, self.is_settled, self.settled) = (self.open > 0, false, 0);
    }

    /// Records a packet that carries request `number`.
    pub fn passes(&mut self, number: u16, stamp: u32) {
        if let Some(request) = self.request.as_mut().filter(|request| request.number == number) {
            let ahead = stamp.wrapping_sub(request.latest).cast_signed();
            request.latest = if ahead > 0 { stamp } else { request.latest };
        }
    }

    /// Takes a report. Unless `is_router`, a report that speaks for many receivers counts as a single
    /// receiver.
    pub fn take(
        &mut self,
        now: Instant,
        writer: Writer,
        is_router: bool,
        report: &SimReport,
    ) -> Result<(), Refused> {
        let Some(request) = self.request else { return Err(Refused::Stale) };
        let rank = usize::from(report.group.rank);
        if report.group.session != self.session || rank >= self.tallies.len() {
            return Err(Refused::Foreign);
        }
        if is_later(report.request, request.number) {
            return Err(Refused::Stale);
        }
        if !request.may_hold(now, report) {
            return Err(Refused::Absurd);
        }
        let (interface, from) = writer;
        let writer = (interface, SocketAddr::new(from.ip(), if is_router { from.port() } else { 0 }));
        let key = (writer, if is_router { report.group.rank } else { 0 });
        let is_settled = |rank: u8| self.settled >> rank & 1 == 1;
        let has_stood = self.earlier.get(&key).is_some_and(|(rank, _)| is_settled(*rank));
        let is_late = has_stood || is_settled(report.group.rank);
        let is_of_this = report.request == request.number;
        let standing = if is_late { &self.late } else { &self.earlier };
        let is_kept = is_late || !is_of_this;
        if is_kept && standing.len() >= CHILDREN_MAX && !standing.contains_key(&key) {
            return Err(Refused::Crowded);
        }
        self.note(writer, is_router, is_late, report)?;
        let tally = Tally::of(&if is_router { *report } else { of_one(report) }, clock(now));
        if is_late {
            self.late.insert(key, (report.group.rank, tally));
            return Err(Refused::Late);
        }
        if is_of_this {
            self.earlier.remove(&key);
            self.tallies[rank] = Some(self.tallies[rank].map_or(tally, |before| before.merge(tally)));
        } else {
            self.earlier.insert(key, (report.group.rank, tally));
        }
        Ok(())
    }

    /// Records the writer of a report.
    fn note(
        &mut self,
        writer: Writer,
        is_router: bool,
        is_late: bool,
        report: &SimReport,
    ) -> Result<(), Refused> {
        if !self.children.contains_key(&writer) {
            if self.children.len() == CHILDREN_MAX || !is_router && self.is_network_full(writer) {
                return Err(Refused::Crowded);
            }
            self.children.insert(writer, Child::default());
            self.open += 1;
        }
        let Some(child) = self.children.get_mut(&writer) else { return Err(Refused::Crowded) };
        let group = 1 << report.group.rank;
        let told = match child.latest {
            Some((request, groups)) if request == report.request => groups,
            Some((request, _)) if is_later(request, report.request) => return Err(Refused::Duplicate),
            _ => 0,
        };
        if told & group != 0 || !is_router && told != 0 {
            return Err(Refused::Duplicate);
        }
        child.latest = Some((report.request, told | group));
        child.requests = 0;
        // The last report on another request is not the last on this request. The next request waits for a
        // late child all the same; otherwise the child's answers would stay late for good.
        let is_of_this = self.request.is_some_and(|request| request.number == report.request);
        let is_done = !is_late && (!is_router || report.is_last && is_of_this);
        self.open -= usize::from(is_done && !child.is_done);
        child.is_done |= is_done;
        Ok(())
    }

    /// Returns the time from the echoed packet to the report, less the report's hold time. The time is
    /// approximate if the packet preceded the previous request: the estimate then assumes that the delay from
    /// the sender to this end has not changed.
    pub fn took(&self, now: Instant, report: &SimReport) -> Option<Duration> {
        let known = [self.request, self.previous];
        let is_since = |request: &Request| report.echo.wrapping_sub(request.first).cast_signed() >= 0;
        let request = known.into_iter().flatten().find(is_since).or(self.previous).or(self.request)?;
        let waited = i64::from(report.echo.wrapping_sub(request.first).cast_signed());
        let took = i64::from(tenths(now.since(request.began))) - waited - i64::from(report.hold);
        u32::try_from(took).ok().map(duration)
    }

    /// Whether there were known writers when the request began, all writers have reported, and the request is
    /// not settled.
    pub fn is_complete(&self) -> bool {
        self.is_expecting && !self.is_settled && self.open == 0
    }

    /// Returns the reports on the request by rank, including reports that stand for writers without an
    /// answer.
    pub fn tallies(&self) -> Vec<Option<Tally>> {
        let mut tallies = self.tallies.clone();
        for (rank, tally) in self.earlier.values() {
            let of_rank = &mut tallies[usize::from(*rank)];
            *of_rank = Some(of_rank.map_or(*tally, |before| before.merge(*tally)));
        }
        tallies
    }

    /// Whether the request's time is over. A later report on an unsettled group is settled alone.
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Settles all groups with reports, and returns the reports on groups that were not settled before, by
    /// rank. Later reports on a settled group do not count.
    pub fn settle(&mut self) -> Vec<Option<Tally>> {
        let mut tallies = self.tallies();
        self.is_settled = true;
        for (rank, tally) in tallies.iter_mut().enumerate().filter(|(_, tally)| tally.is_some()) {
            if self.settled >> rank & 1 == 1 {
                *tally = None;
            }
            self.settled |= 1 << rank;
        }
        tallies
    }

    /// Number of writers remembered.
    pub fn children(&self) -> usize {
        self.children.len()
    }
}

impl Request {
    /// Whether a report can be true of this request or of an earlier request.
    fn may_hold(&self, now: Instant, report: &SimReport) -> bool {
        let before = self.latest.wrapping_sub(report.echo);
        let longest = self.latest.wrapping_sub(self.first).saturating_add(ECHO_MAX);
        let since = u32::try_from(self.first.wrapping_sub(report.echo).cast_signed()).unwrap_or(0);
        before <= longest && report.hold <= tenths(now.since(self.began)).saturating_add(since)
    }
}

/// Returns the part of a report that concerns the writer alone, regardless of the report's claims.
fn of_one(report: &SimReport) -> SimReport {
    SimReport {
        reports: 1,
        congested: report.congested.min(1),
        population: 1,
        min_rate: report.max_rate,
        ..*report
    }
}

/// Merged reports. Merging is associative and commutative, except for the choice between two equally old
/// echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Number of receivers that reported, of congested receivers, and of all receivers. Sums saturate.
    pub reports: u32,
    pub congested: u32,
    pub population: u32,
    /// Received rates, hundreds of bit/s.
    pub min_rate: u32,
    pub max_rate: u32,
    /// Echo and hold of the report with the longest round-trip time.
    echo: u32,
    hold: u32,
    /// Arrival of the report with the longest round-trip time, by the merger's clock.
    arrived: u32,
}

impl Tally {
    /// Tallies a single report, which arrived when the merger's clock showed `arrived`.
    pub fn of(report: &SimReport, arrived: u32) -> Self {
        Self {
            reports: report.reports,
            congested: report.congested,
            population: report.population,
            min_rate: report.min_rate,
            max_rate: report.max_rate,
            echo: report.echo,
            hold: report.hold,
            arrived,
        }
    }

    /// Merges two tallies.
    pub fn merge(self, other: Self) -> Self {
        let is_longer = other.age().wrapping_sub(self.age()).cast_signed() > 0;
        let longest = if is_longer { other } else { self };
        Self {
            reports: self.reports.saturating_add(other.reports),
            congested: self.congested.saturating_add(other.congested),
            population: self.population.saturating_add(other.population),
            min_rate: self.min_rate.min(other.min_rate),
            max_rate: self.max_rate.max(other.max_rate),
            ..longest
        }
    }

    /// Returns the time from the echoed packet to the arrival of the report, less the hold time. Ages of
    /// several reports are comparable, because clocks differ by a constant.
    pub fn age(&self) -> u32 {
        self.arrived.wrapping_sub(self.echo).wrapping_sub(self.hold)
    }

    /// Returns the longest round-trip time, in seconds, if the merger's clock is also the clock of the
    /// echoes.
    pub fn rtt(&self) -> Option<f64> {
        let tenths = u32::try_from(self.age().cast_signed()).ok()?;
        Some(duration(tenths).as_secs_f64())
    }

    /// Returns the report to send when the merger's clock shows `now`. `head` provides the other fields.
    pub fn report(&self, now: u32, head: SimReport) -> SimReport {
        SimReport {
            reports: self.reports,
            congested: self.congested,
            population: self.population,
            min_rate: self.min_rate,
            max_rate: self.max_rate,
            echo: self.echo,
            hold: self.hold.saturating_add(now.wrapping_sub(self.arrived)),
            ..head
        }
    }
}
