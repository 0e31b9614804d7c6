//! Rows of a sender's roster.
//!
//! Rows are ordered by a keyed hash of the receiver's identifier. If the table is full, the rows with the
//! smallest hashes stay: a uniform sample, in which the smallest hash left out estimates the number of
//! receivers (k minimum values: Bar-Yossef et al. 2002; Beyer et al. 2007).

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};

use headwater_wire::roster::{DONE_PPM, ReceiverState, ReportKind, RosterHeader};

use serde::Serialize;

use crate::admission::{AdmissionKey, Limit};
use crate::time::{Duration, Instant};

/// Most rows. With names, a row takes some 300 bytes: 1.3 MB in all.
pub const ROWS_MAX: usize = 4_096;
/// Rows of one host, an IPv4 address or a /64 of IPv6, as of receivers behind a NAT. Further receivers of the
/// host share one row more. Reports with a key are not limited: the receivers of a relay have its address.
pub const IDS_OF_HOST: u16 = 16;
/// Reports of a row: a receiver sends at most two in a second.
const ROW_LIMIT: Limit = Limit::new(4, 8);
/// Intervals without a report after which a receiver counts as silent: two reports in a row were lost.
const SILENT_INTERVALS: u64 = 3;
/// Added to the intervals for delay.
const SILENT_MARGIN: Duration = Duration::from_secs(2);
/// Intervals and time without a report after which a silent receiver loses its row.
const EXPIRED_INTERVALS: u64 = 30;
const EXPIRED_MIN: Duration = Duration::from_secs(600);
/// Least port of HTTP repair that is passed on: lower ports belong to services of the host, to which no
/// receiver leads another.
const REPAIR_PORT_MIN: u16 = 1_024;
/// Reports of receivers outside of the sample, for each report of the budget.
const OUTSIDE_PER_BUDGET: u32 = 4;

/// Receiver that has proven to receive at its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterRow {
    /// Identifier of the receiver.
    pub receiver: u64,
    /// Whether the row is that of all further receivers of a host ([`IDS_OF_HOST`]).
    pub is_shared: bool,
    /// Address of the last report.
    pub address: SocketAddr,
    /// Name that the receiver gives itself, printable. Untrusted.
    pub name: Option<String>,
    /// Time of the first report, or of the first report since the receiver started again.
    pub first: Instant,
    /// Useful bytes at that time.
    pub first_bytes: u64,
    /// Time of the last report.
    pub last: Instant,
    /// Kind of the last report.
    pub kind: ReportKind,
    /// Last reported state.
    pub state: ReceiverState,
    /// Number of the last report.
    sequence: u16,
    /// Interval of reports at the last report.
    interval: Duration,
    /// Time at which the next report conforms to the limit of a row.
    due: Instant,
}

/// News of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// The receiver's state has changed.
    Changed,
    /// The receiver had no row.
    First,
    /// The table is a sample without the receiver: the report may be any but the first.
    Outside,
}

/// State of a receiver at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// The receiver reports.
    UnderWay,
    /// The receiver has everything that is sent.
    Done,
    /// The receiver has everything of an earlier content of the session.
    Outdated,
    /// The receiver has ended without the content, with this exit code.
    Left(u8),
    /// The receiver does not report any more, for so long.
    Silent(Duration),
}

impl RosterRow {
    /// Returns the state at `now`, where `content` is sent and reports have this interval.
    pub(super) fn state_at(&self, now: Instant, content: Option<u32>, interval: Duration) -> RowState {
        match self.kind {
            ReportKind::Done if content == Some(self.state.content) => RowState::Done,
            ReportKind::Done => RowState::Outdated,
            ReportKind::Leaving => RowState::Left(self.state.result),
            ReportKind::Hello | ReportKind::Progress => {
                let silent = now.since(self.last);
                if self.is_silent(now, interval) { RowState::Silent(silent) } else { RowState::UnderWay }
            }
        }
    }

    /// Whether the receiver has not ended, and lacks symbols of `content`.
    pub(super) fn needs_packets(&self, content: Option<u32>) -> bool {
        match self.kind {
            ReportKind::Done | ReportKind::Leaving => false,
            ReportKind::Progress => self.state.done_ppm < DONE_PPM || content != Some(self.state.content),
            ReportKind::Hello => true,
        }
    }

    fn is_silent(&self, now: Instant, interval: Duration) -> bool {
        let most = self.interval.max(interval).saturating_mul(SILENT_INTERVALS) + SILENT_MARGIN;
        now.since(self.last) > most
    }

    /// Returns the address at which a receiver that has everything, and reports so again and again, answers
    /// HTTP repair. The host is that of the verified report: a receiver can name no other.
    pub(super) fn repair_server(
        &self,
        now: Instant,
        content: Option<u32>,
        interval: Duration,
    ) -> Option<SocketAddr> {
        let is_done = self.state_at(now, content, interval) == RowState::Done;
        let port = self.state.repair_port.filter(|port| *port >= REPAIR_PORT_MIN);
        let ip = self.address.ip().to_canonical();
        let is_named = match ip {
            // A URL has no place for the interface of a link-local address.
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
            IpAddr::V4(_) => true,
        };
        let is_possible = is_done && is_named && !self.is_silent(now, interval);
        port.filter(|_| is_possible).map(|port| SocketAddr::new(ip, port))
    }
}

/// Numbers of receivers by state. Above [`ROWS_MAX`] receivers these are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RosterCounts {
    /// Receivers that report.
    pub under_way: u64,
    /// Receivers that have everything that is sent.
    pub done: u64,
    /// Receivers that have everything of an earlier content.
    pub outdated: u64,
    /// Receivers that have ended without the content.
    pub left: u64,
    /// Receivers that do not report any more.
    pub silent: u64,
    /// Standard error of the total, as a part of the total; `None` if the numbers are exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
}

impl RosterCounts {
    /// Returns the number of all receivers.
    pub fn total(&self) -> u64 {
        self.under_way + self.done + self.outdated + self.left + self.silent
    }
}

/// Rows by hash.
#[derive(Clone, Debug)]
pub(super) struct Table {
    key: AdmissionKey,
    rows: BTreeMap<u64, RosterRow>,
    /// Rows by host. Receivers with a row that move to a host may exceed [`IDS_OF_HOST`].
    hosts: BTreeMap<IpAddr, u16>,
    /// Rows of one host.
    rows_of_host: u16,
    /// Smallest hash that was left out: the table has every row below, and none above.
    bound: Option<u64>,
    /// Time of the last rise of the bound.
    widened: Instant,
    /// Limit of reports outside of the sample, and time at which the next of these conforms.
    outside: (Limit, Instant),
}

impl Table {
    /// Creates an empty table for a `budget` of reports a second.
    pub(super) fn new(key: AdmissionKey, budget: u32) -> Self {
        let outside = budget.saturating_mul(OUTSIDE_PER_BUDGET).min(1_000_000_000);
        Self {
            key,
            rows: BTreeMap::new(),
            hosts: BTreeMap::new(),
            rows_of_host: IDS_OF_HOST,
            bound: None,
            widened: Instant::ZERO,
            outside: (Limit::new(outside, outside), Instant::ZERO),
        }
    }

    /// Gives each receiver of a host a row: all reports are authenticated.
    pub(super) fn trust_hosts(&mut self) {
        self.rows_of_host = u16::MAX;
    }

    /// Whether a receiver needs packets, or may need packets because several receivers share a row or have no
    /// row.
    pub(super) fn needs_packets(&self, content: Option<u32>) -> bool {
        self.bound.is_some() || self.rows().any(|row| row.is_shared || row.needs_packets(content))
    }

    pub(super) fn rows(&self) -> impl ExactSizeIterator<Item = &RosterRow> {
        self.rows.values()
    }

    /// Takes a report from an address that has proven to receive, at an interval of reports. Returns the
    /// row, and what is new; `None` for a report that is late or too frequent.
    pub(super) fn report(
        &mut self,
        now: Instant,
        interval: Duration,
        address: SocketAddr,
        header: &RosterHeader,
        (state, name): (&ReceiverState, Option<&str>),
    ) -> Option<(RosterRow, News)> {
        let place = self.place(header.receiver, address.ip());
        let before = self.rows.get(&place);
        let is_outside = before.is_none() && self.bound.is_some_and(|bound| place >= bound);
        let is_late = before.is_some_and(|row| is_before(header.sequence, row.sequence));
        let mut due = before.map_or(now, |row| row.due);
        let (limit, due_outside) = &mut self.outside;
        let is_admitted =
            if is_outside { limit.admits(now, due_outside) } else { ROW_LIMIT.admits(now, &mut due) };
        if is_late || !is_admitted {
            return None;
        }
        let mut row = RosterRow {
            receiver: header.receiver,
            is_shared: place != self.hash(&header.receiver.to_be_bytes()),
            address,
            name: name.map(str::to_owned),
            first: before.map_or(now, |row| row.first),
            first_bytes: before.map_or(state.useful_bytes, |row| row.first_bytes),
            last: now,
            kind: header.kind,
            state: *state,
            sequence: header.sequence,
            interval,
            due,
        };
        let identity = |row: &RosterRow| (row.kind, row.state.result, row.state.content);
        let news = match before {
            None if is_outside => News::Outside,
            None => News::First,
            Some(before) if identity(before) != identity(&row) => News::Changed,
            Some(_) => News::None,
        };
        // A receiver that starts again after its end is timed anew.
        if before.is_some_and(|row| row.kind != ReportKind::Progress) && row.kind == ReportKind::Progress {
            (row.first, row.first_bytes) = (now, state.useful_bytes);
        }
        if !is_outside {
            self.put(place, row.clone());
        }
        Some((row, news))
    }

    /// Removes the rows of receivers that have been silent for long, and of receivers that ended without the
    /// content before a later receiver of the same address and name: a receiver that keeps no identifier was
    /// started again. A receiver that is done stays, since a host may have several, unless it had nothing to
    /// receive: it was started again after its end.
    pub(super) fn prune(&mut self, now: Instant, content: Option<u32>, interval: Duration) {
        let mut latest = BTreeMap::new();
        for row in self.rows.values().filter(|row| row.name.is_some()) {
            let first = latest.entry((row.address.ip(), &row.name)).or_insert(row.first);
            *first = row.first.max(*first);
        }
        let received = |row: &&RosterRow| row.kind == ReportKind::Done && row.state.useful_bytes > 0;
        let received: BTreeSet<_> =
            self.rows.values().filter(received).map(|row| (row.address.ip(), &row.name)).collect();
        let is_over = |row: &RosterRow| match row.state_at(now, content, interval) {
            RowState::UnderWay => false,
            RowState::Done | RowState::Outdated => {
                row.state.useful_bytes == 0
                    && row.name.is_some()
                    && received.contains(&(row.address.ip(), &row.name))
            }
            RowState::Silent(lasted)
                if lasted
                    >= interval.max(row.interval).saturating_mul(EXPIRED_INTERVALS).max(EXPIRED_MIN) =>
            {
                true
            }
            _ => latest.get(&(row.address.ip(), &row.name)).is_some_and(|first| *first > row.last),
        };
        let over = self.rows.iter().filter(|(_, row)| is_over(row)).map(|(place, _)| *place);
        for place in over.collect::<Vec<_>>() {
            if let Some(row) = self.rows.remove(&place) {
                self.release(row.address.ip());
            }
        }
        // With half of the rows free, the sample takes twice the receivers, which report within an interval.
        if self.rows.len() < ROWS_MAX / 2 && now >= self.widened + interval {
            (self.bound, self.widened) = (self.bound.and_then(|bound| bound.checked_mul(2)), now);
        }
    }

    fn put(&mut self, place: u64, row: RosterRow) {
        let count = self.hosts.entry(host(row.address.ip())).or_insert(0);
        *count = count.saturating_add(1);
        if let Some(before) = self.rows.insert(place, row) {
            self.release(before.address.ip());
        } else if self.rows.len() > ROWS_MAX
            && let Some((bound, last)) = self.rows.pop_last()
        {
            self.bound = Some(bound);
            self.release(last.address.ip());
        }
    }

    fn release(&mut self, ip: IpAddr) {
        if let Some(count) = self.hosts.get_mut(&host(ip)) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.hosts.remove(&host(ip));
            }
        }
    }

    /// Returns the place of a receiver: by its identifier, or by its host if the host has too many rows.
    fn place(&self, receiver: u64, ip: IpAddr) -> u64 {
        let place = self.hash(&receiver.to_be_bytes());
        let host = host(ip);
        let is_crowded = self.hosts.get(&host).is_some_and(|count| *count >= self.rows_of_host);
        if !is_crowded || self.rows.contains_key(&place) {
            return place;
        }
        // 16 bytes are no identifier of a receiver.
        self.hash(&match host {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        })
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        u64::from_be_bytes(*blake3::keyed_hash(&self.key, bytes).as_bytes().first_chunk().expect("32 bytes"))
    }

    /// Returns the number of receivers that a row stands for.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn weight(&self) -> f64 {
        self.bound.map_or(1.0, |bound| u64::MAX as f64 / bound as f64)
    }

    /// Returns the number of receivers that serve the content, about.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    pub(super) fn serving(&self, now: Instant, interval: Duration) -> u64 {
        let is_serving = |row: &&RosterRow| {
            let is_end = row.kind == ReportKind::Done && row.state.repair_port.is_some();
            is_end && !row.is_silent(now, interval)
        };
        libm::round(self.rows().filter(is_serving).count() as f64 * self.weight()) as u64
    }

    /// Returns the servers of HTTP repair, one of a host, in the random order of the table.
    pub(super) fn repair_servers(
        &self,
        now: Instant,
        content: Option<u32>,
        interval: Duration,
    ) -> impl Iterator<Item = SocketAddr> {
        let mut hosts = BTreeSet::new();
        let found = self.rows().filter_map(move |row| row.repair_server(now, content, interval));
        found.filter(move |server| hosts.insert(host(server.ip())))
    }

    /// Returns the number of receivers in any state.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn receivers(&self) -> f64 {
        self.rows.len() as f64 * self.weight()
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    pub(super) fn counts(&self, now: Instant, content: Option<u32>, interval: Duration) -> RosterCounts {
        let mut counts = RosterCounts::default();
        for row in self.rows() {
            *match row.state_at(now, content, interval) {
                RowState::UnderWay => &mut counts.under_way,
                RowState::Done => &mut counts.done,
                RowState::Outdated => &mut counts.outdated,
                RowState::Left(_) => &mut counts.left,
                RowState::Silent(_) => &mut counts.silent,
            } += 1;
        }
        if self.bound.is_none() {
            return counts;
        }
        let weight = self.weight();
        let scaled = |count: u64| libm::round(count as f64 * weight) as u64;
        RosterCounts {
            under_way: scaled(counts.under_way),
            done: scaled(counts.done),
            outdated: scaled(counts.outdated),
            left: scaled(counts.left),
            silent: scaled(counts.silent),
            // Beyer et al. 2007, equation 4, for k rows.
            standard_error: Some(1.0 / libm::sqrt((self.rows.len() as f64 - 2.0).max(1.0))),
        }
    }
}

/// Returns the host of an address, for the limit of rows: a host of IPv6 takes any address of its /64.
fn host(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        ip => ip,
    }
}

/// Whether a report has a slightly smaller number than another: it was overtaken. A receiver that starts
/// again begins with any number.
fn is_before(sequence: u16, other: u16) -> bool {
    (1..=OVERTAKEN_MAX).contains(&other.wrapping_sub(sequence))
}

/// Most numbers by which a report is overtaken.
const OVERTAKEN_MAX: u16 = 8;
