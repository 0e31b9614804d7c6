//! Reports of one request, from the receivers and routers next to a sender or a router.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_wire::sim::Report;

use super::clock::{clock, duration, tenths};
use super::is_later;
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
    /// To a request that was never made.
    Stale,
    /// It came after its group was settled: it counts for the next request.
    Late,
    /// Its writer had said that, or all.
    Duplicate,
    /// It echoes a packet that was not sent, or seconds ago, or was held for longer.
    Absurd,
    /// There are [`CHILDREN_MAX`] writers already.
    Crowded,
}

/// Who writes reports: through which interface, from where. The port counts for routers alone: a host may be one beside a receiver.
pub(super) type Writer = (InterfaceId, SocketAddr);

/// Longest time between a request and a packet before it that is echoed, in tenths of a millisecond: twice the longest round-trip time.
const ECHO_MAX: u32 = 40_000;

/// What a child has said to a request.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Groups that it reported of, a bit each.
    groups: u64,
    is_done: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Child {
    said: Said,
    /// Of groups that were settled: what counts for the next one.
    late: Said,
    /// The latest request that it answered, and the groups that it told of then: what comes twice counts once.
    latest: Option<(u16, u64)>,
    /// Requests that began since it wrote last.
    requests: u8,
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

/// Gathers what is reported. What comes too late for the request that it answers counts for the one that is under way, or for the next one if its group
/// is settled there: who is behind a queue that fills is heard, and so is how long that takes. Of each writer one report counts for a request and group, whichever
/// comes first, and each report once. Memory: two tallies for each group, and [`CHILDREN_MAX`] writers at most.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    session: u32,
    request: Option<Request>,
    /// The request before.
    previous: Option<Request>,
    tallies: Vec<Option<Tally>>,
    /// What came of groups that were settled.
    late: Vec<Option<Tally>>,
    children: BTreeMap<Writer, Child>,
    /// Children that have not said all.
    open: usize,
    /// Whether there were children when the request began.
    is_expecting: bool,
    is_settled: bool,
    /// Groups that something had come of when it was settled, a bit each: the others stay open.
    settled: u64,
}

impl Collector {
    pub fn new(session: u32, groups: u16) -> Self {
        Self {
            session,
            request: None,
            previous: None,
            tallies: vec![None; groups.into()],
            late: vec![None; groups.into()],
            children: BTreeMap::new(),
            open: 0,
            is_expecting: false,
            is_settled: false,
            settled: 0,
        }
    }

    /// The request under way, and when it began.
    pub fn request(&self) -> Option<(u16, Instant)> {
        self.request.map(|request| (request.number, request.began))
    }

    /// A request begins with a packet of this timestamp.
    pub fn begin(&mut self, now: Instant, number: u16, stamp: u32) {
        self.previous = self.request;
        let is_anew = self.previous.is_some_and(|before| !is_later(number, before.number));
        self.request = Some(Request { number, began: now, first: stamp, latest: stamp });
        core::mem::swap(&mut self.tallies, &mut self.late);
        self.late.fill(None);
        self.children.retain(|_, child| {
            // That stands for it. It is waited for all the same, or its answers would come after the end for good.
            child.said = Said { is_done: false, ..core::mem::take(&mut child.late) };
            child.latest = child.latest.filter(|_| !is_anew);
            child.requests += 1;
            child.requests <= MISSED_MAX
        });
        self.open = self.children.len();
        (self.is_expecting, self.is_settled, self.settled) = (self.open > 0, false, 0);
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
        if is_later(report.request, request.number) {
            return Err(Refused::Stale);
        }
        if !request.may_hold(now, report) {
            return Err(Refused::Absurd);
        }
        let (interface, from) = writer;
        let port = if is_router { from.port() } else { 0 };
        let is_late = self.settled >> rank & 1 == 1;
        self.note((interface, SocketAddr::new(from.ip(), port)), is_router, is_late, report)?;
        let report = if is_router { *report } else { of_one(report) };
        let tally = Tally::of(&report, clock(now));
        let tallies = if is_late { &mut self.late } else { &mut self.tallies };
        tallies[rank] = Some(tallies[rank].map_or(tally, |before| before.merge(tally)));
        if is_late { Err(Refused::Late) } else { Ok(()) }
    }

    /// Notes who wrote.
    fn note(
        &mut self,
        writer: Writer,
        is_router: bool,
        is_late: bool,
        report: &Report,
    ) -> Result<(), Refused> {
        if !self.children.contains_key(&writer) {
            if self.children.len() == CHILDREN_MAX {
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
        let said = if is_late { &mut child.late } else { &mut child.said };
        if told & group != 0 || !is_router && (told != 0 || said.is_done) {
            return Err(Refused::Duplicate);
        }
        child.latest = Some((report.request, told | group));
        child.requests = 0;
        // The last one of another request is not the last one of this.
        let is_of_this = !is_late && self.request.is_some_and(|request| request.number == report.request);
        let is_done = !is_router || report.is_last && is_of_this;
        self.open -= usize::from(is_done && !said.is_done && !is_late);
        said.is_done |= is_done;
        // What came late may stand for it already: of a receiver, in whatever group.
        if said.groups & group != 0 || !is_router && said.groups != 0 {
            return Err(Refused::Duplicate);
        }
        said.groups |= group;
        Ok(())
    }

    /// How long a report took since the packet that it echoes, but for what it was held. Of requests longer ago than the last one that is roughly so: if
    /// the way here took as long then as for that one.
    pub fn took(&self, now: Instant, report: &Report) -> Option<Duration> {
        let known = [self.request, self.previous];
        let is_since = |request: &Request| report.echo.wrapping_sub(request.first).cast_signed() >= 0;
        let request = known.into_iter().flatten().find(is_since).or(self.previous).or(self.request)?;
        let waited = i64::from(report.echo.wrapping_sub(request.first).cast_signed());
        let took = i64::from(tenths(now.since(request.began))) - waited - i64::from(report.hold);
        u32::try_from(took).ok().map(duration)
    }

    /// Whether all who reported before have, and something came.
    pub fn is_complete(&self) -> bool {
        self.is_expecting && !self.is_settled && self.open == 0
    }

    /// What came of the request, by rank.
    pub fn tallies(&self) -> &[Option<Tally>] {
        &self.tallies
    }

    /// Whether its time is over: what comes of a group now is settled alone, if the group was not.
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The groups that something came of are used, and nothing that comes of them later: a bit for each that was not settled before.
    pub fn settle(&mut self) -> u64 {
        let heard = (0..).zip(&self.tallies).filter(|(_, tally)| tally.is_some());
        let heard = heard.fold(0, |bits, (rank, _): (u32, _)| bits | 1 << rank);
        let fresh = heard & !self.settled;
        (self.is_settled, self.settled) = (true, self.settled | heard);
        fresh
    }

    /// Writers that are remembered.
    pub fn children(&self) -> usize {
        self.children.len()
    }
}

impl Request {
    /// Whether a report can be true of this request, or of one before.
    fn may_hold(&self, now: Instant, report: &Report) -> bool {
        let before = self.latest.wrapping_sub(report.echo);
        let longest = self.latest.wrapping_sub(self.first).saturating_add(ECHO_MAX);
        let since = u32::try_from(self.first.wrapping_sub(report.echo).cast_signed()).unwrap_or(0);
        before <= longest && report.hold <= tenths(now.since(self.began)).saturating_add(since)
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
