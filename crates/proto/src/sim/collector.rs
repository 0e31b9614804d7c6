//! Reports of one request, from the receivers and routers next to a sender or a router.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_wire::sim::Report;

use super::clock::{clock, duration, tenths};
use super::tally::Tally;
use crate::machine::InterfaceId;
use crate::time::{Duration, Instant};

/// Writers of reports that are remembered; reports of others are refused.
pub const CHILDREN_MAX: usize = 1 << 16;
/// A writer is forgotten when it missed so many requests in a row: who left, or an aggregator that fell silent.
const MISSED_MAX: u8 = 4;

/// Why a report was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Of another session, or a group that the session has not.
    Foreign,
    /// To a request that is over, or was never made.
    Stale,
    /// To the last request, but after it was settled.
    Late,
    /// Its writer had said that, or all.
    Duplicate,
    /// It echoes a packet that was not sent since the request, or was held for longer.
    Absurd,
    /// There are [`CHILDREN_MAX`] writers already.
    Crowded,
}

/// Who writes reports: through which interface, from where. The port counts for routers alone: a host may be one beside a receiver.
pub(super) type Writer = (InterfaceId, SocketAddr);

#[derive(Clone, Copy, Debug, Default)]
struct Child {
    /// Groups that it reported of, a bit each, in the present request.
    groups: u64,
    is_done: bool,
    missed: u8,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    number: u16,
    began: Instant,
    /// Timestamps of the first and the latest packet that carried it.
    first: u32,
    latest: u32,
}

/// Gathers what is reported. Memory: a tally for each group, and [`CHILDREN_MAX`] writers at most.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    session: u32,
    request: Option<Request>,
    /// The request before.
    previous: Option<Request>,
    tallies: Vec<Option<Tally>>,
    children: BTreeMap<Writer, Child>,
    /// Children that have not said all.
    open: usize,
    /// Whether there were children when the request began.
    is_expecting: bool,
    is_settled: bool,
}

impl Collector {
    pub fn new(session: u32, groups: u16) -> Self {
        Self {
            session,
            request: None,
            previous: None,
            tallies: vec![None; groups.into()],
            children: BTreeMap::new(),
            open: 0,
            is_expecting: false,
            is_settled: false,
        }
    }

    /// The request under way, and when it began.
    pub fn request(&self) -> Option<(u16, Instant)> {
        self.request.map(|request| (request.number, request.began))
    }

    /// A request begins with a packet of this timestamp.
    pub fn begin(&mut self, now: Instant, number: u16, stamp: u32) {
        self.previous = self.request;
        self.request = Some(Request { number, began: now, first: stamp, latest: stamp });
        self.tallies.fill(None);
        self.children.retain(|_, child| {
            child.missed = if child.is_done { 0 } else { child.missed + 1 };
            (child.groups, child.is_done) = (0, false);
            child.missed < MISSED_MAX
        });
        self.open = self.children.len();
        (self.is_expecting, self.is_settled) = (self.open > 0, false);
    }

    /// A packet of the request passes.
    pub fn passes(&mut self, number: u16, stamp: u32) {
        if let Some(request) = self.request.as_mut().filter(|request| request.number == number) {
            let ahead = stamp.wrapping_sub(request.latest).cast_signed();
            request.latest = if ahead > 0 { stamp } else { request.latest };
        }
    }

    /// A report came. One that speaks for many counts as one receiver unless `is_router`.
    pub fn take(
        &mut self,
        now: Instant,
        writer: Writer,
        is_router: bool,
        report: &Report,
    ) -> Result<(), Refused> {
        let Some(request) = self.request else { return Err(Refused::Stale) };
        let rank = usize::from(report.group.rank);
        if report.group.session != self.session || rank >= self.tallies.len() {
            return Err(Refused::Foreign);
        }
        if report.request != request.number {
            return Err(Refused::Stale);
        }
        if !request.may_hold(now, report) {
            return Err(Refused::Absurd);
        }
        let (interface, from) = writer;
        let port = if is_router { from.port() } else { 0 };
        self.note((interface, SocketAddr::new(from.ip(), port)), is_router, report)?;
        if self.is_settled {
            return Err(Refused::Late);
        }
        let report = if is_router { *report } else { of_one(report) };
        let tally = Tally::of(&report, clock(now));
        let merged = self.tallies[rank].map_or(tally, |before| before.merge(tally));
        self.tallies[rank] = Some(merged);
        Ok(())
    }

    /// Notes who wrote, though what was written may come too late.
    fn note(&mut self, writer: Writer, is_router: bool, report: &Report) -> Result<(), Refused> {
        if !self.children.contains_key(&writer) {
            if self.children.len() == CHILDREN_MAX {
                return Err(Refused::Crowded);
            }
            self.children.insert(writer, Child::default());
            self.open += 1;
        }
        let Some(child) = self.children.get_mut(&writer) else { return Err(Refused::Crowded) };
        let group = 1 << report.group.rank;
        if child.is_done || child.groups & group != 0 {
            return Err(Refused::Duplicate);
        }
        child.groups |= group;
        if !is_router || report.is_last {
            child.is_done = true;
            self.open -= 1;
        }
        Ok(())
    }

    /// How long a report took since the packet that it echoes, but for what it was held; of the request before as well.
    pub fn took(&self, now: Instant, report: &Report) -> Option<Duration> {
        let requests = [self.request, self.previous];
        let request = requests.into_iter().flatten().find(|request| request.number == report.request)?;
        let took = now.since(request.began).as_nanos();
        let waited = duration(report.echo.wrapping_sub(request.first)).as_nanos();
        let held = duration(report.hold).as_nanos();
        took.checked_sub(waited.saturating_add(held)).map(Duration::from_nanos)
    }

    /// Whether all who reported before have, and something came.
    pub fn is_complete(&self) -> bool {
        self.is_expecting && !self.is_settled && self.open == 0
    }

    /// What came of the request is used, and nothing that comes later.
    pub fn settle(&mut self) -> &[Option<Tally>] {
        self.is_settled = true;
        &self.tallies
    }

    /// Writers that are remembered.
    pub fn children(&self) -> usize {
        self.children.len()
    }
}

impl Request {
    /// Whether a report can be true of this request.
    fn may_hold(&self, now: Instant, report: &Report) -> bool {
        let echoed = report.echo.wrapping_sub(self.first);
        echoed <= self.latest.wrapping_sub(self.first) && report.hold <= tenths(now.since(self.began))
    }
}

/// What a receiver says of itself alone, whatever it says.
fn of_one(report: &Report) -> Report {
    Report {
        reports: 1,
        congested: report.congested.min(1),
        population: 1,
        min_rate: report.max_rate,
        ..*report
    }
}
