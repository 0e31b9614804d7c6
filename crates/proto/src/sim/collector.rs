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
/// A writer is forgotten when it missed so many requests in a row: who left, or an aggregator that fell
/// silent.
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
    /// There are [`CHILDREN_MAX`] writers already, or as many reports that stand for other requests than they
    /// answer.
    Crowded,
}

/// Who writes reports: through which interface, from where. The port counts for routers alone: a host may be
/// one beside a receiver.
pub(super) type Writer = (InterfaceId, SocketAddr);

/// Longest time between a request and a packet before it that is echoed, in tenths of a millisecond: twice
/// the longest round-trip time.
const ECHO_MAX: u32 = 40_000;

#[derive(Clone, Copy, Debug, Default)]
struct Child {
    /// It has said all of the request under way.
    is_done: bool,
    /// The latest request that it answered, and the groups that it told of then, a bit each: what comes twice
    /// counts once.
    latest: Option<(u16, u64)>,
    /// Requests that began since it wrote last.
    requests: u8,
}

/// What writers said of earlier requests, and of which group: of each receiver one, of each router one for
/// each group.
type Earlier = BTreeMap<(Writer, u8), (u8, Tally)>;

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    number: u16,
    began: Instant,
    /// Timestamps of the first and the latest packet that carried it.
    first: u32,
    latest: u32,
}

/// Gathers what is reported. What comes too late for the request that it answers stands for its writer in the
/// one that is under way, or in the next one if its group is settled there, until the writer tells anew: who
/// is behind a queue that fills is heard, and so is how long that takes. Each report counts once. Memory: a
/// tally for each group, and at most [`CHILDREN_MAX`] each of writers, of reports that stand in this request,
/// and of those that will in the next: routers may write one for each group.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    session: u32,
    request: Option<Request>,
    /// The request before.
    previous: Option<Request>,
    tallies: Vec<Option<Tally>>,
    /// What stands for writers until they tell anew.
    earlier: Earlier,
    /// What came of groups that were settled: it stands in the next request.
    late: Earlier,
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
            earlier: BTreeMap::new(),
            late: BTreeMap::new(),
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
        if told & group != 0 || !is_router && told != 0 {
            return Err(Refused::Duplicate);
        }
        child.latest = Some((report.request, told | group));
        child.requests = 0;
        // The last one of another request is not the last one of this. Who is late is waited for at the next
        // one all the same, or its answers would come after the end for good.
        let is_of_this = self.request.is_some_and(|request| request.number == report.request);
        let is_done = !is_late && (!is_router || report.is_last && is_of_this);
        self.open -= usize::from(is_done && !child.is_done);
        child.is_done |= is_done;
        Ok(())
    }

    /// How long a report took since the packet that it echoes, but for what it was held. Of requests longer
    /// ago than the last one that is roughly so: if the way here took as long then as for that one.
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

    /// What came of the request, by rank, and what stands for those who have not answered it.
    pub fn tallies(&self) -> Vec<Option<Tally>> {
        let mut tallies = self.tallies.clone();
        for (rank, tally) in self.earlier.values() {
            let of_rank = &mut tallies[usize::from(*rank)];
            *of_rank = Some(of_rank.map_or(*tally, |before| before.merge(*tally)));
        }
        tallies
    }

    /// Whether its time is over: what comes of a group now is settled alone, if the group was not.
    pub const fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The groups that something came of are used, and nothing that comes of them later: what came of those
    /// that were not settled before, by rank.
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
