//! Sending end of a roster.

use core::net::SocketAddr;

use headwater_wire::extensions::Members;
use headwater_wire::roster::{self as wire, Reply, Report, ReportKind, RosterHeader};

use super::ReportKey;
use super::pace::Pace;
use super::table::{News, RosterCounts, RosterRow, RowState, Table};
use crate::admission::{AdmissionKey, Limit, ReplyQueue, WordAge, Words};
use crate::machine::{Datagram, Destination, Ecn, Transmit};
use crate::time::{Duration, Instant};

/// Default budget in reports a second: with headers 0.4 Mbit/s.
const BUDGET_DEFAULT: u32 = 500;
/// Lifetime of a cookie, for the current and for the next period.
const COOKIE_TIME: Duration = Duration::from_secs(600);
/// Replies to reports without a right cookie.
const CHALLENGES: Limit = Limit::new(500, 100);
/// Rows up to which each report of progress is answered, beyond that each second one: by then, replies take
/// 50 kbit/s with headers.
const ALL_ANSWERED_MAX: usize = 128;
/// Time between two announcements on the base channel.
const ANNOUNCED: Duration = Duration::from_millis(50);
/// Time between two counts of the rows.
const REVIEW: Duration = Duration::from_millis(500);
/// Time from a report that no packets are needed until the rows are searched for a receiver that needs some.
const NEED_CHECK: Duration = Duration::from_millis(50);

/// Configuration of a [`RosterSender`].
#[derive(Clone, Copy, Debug)]
pub struct RosterConfig {
    budget: u32,
    is_awaiting: bool,
    is_quick: bool,
}

impl Default for RosterConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl RosterConfig {
    /// Defaults: 500 reports a second, and no wait for the ends of receivers.
    pub const fn new() -> Self {
        Self { budget: BUDGET_DEFAULT, is_awaiting: false, is_quick: false }
    }

    /// Sets the reports a second of all receivers together that the sender aims to stay below, at least 1.
    #[must_use]
    pub const fn with_budget(mut self, per_second: u32) -> Self {
        self.budget = per_second;
        self
    }

    /// Sets whether the sender waits for the ends of receivers: a receiver that has not reported yet then
    /// stays at its end until the sender knows. Default: no.
    #[must_use]
    pub const fn with_awaiting(mut self, is_awaiting: bool) -> Self {
        self.is_awaiting = is_awaiting;
        self
    }

    /// Sets whether the rate follows the reports ([`crate::fixed`]): receivers report four times as often,
    /// within the same budget, and count their packets. Default: no.
    #[must_use]
    pub const fn with_quick(mut self, is_quick: bool) -> Self {
        self.is_quick = is_quick;
        self
    }
}

/// A report that counts. Beyond [`ROWS_MAX`](super::ROWS_MAX) receivers, those without a row have updates of
/// their ends alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterUpdate {
    /// The receiver.
    pub row: RosterRow,
    /// State of the receiver.
    pub state: RowState,
    /// Whether this is the first report of the receiver in this state; a receiver without a row may repeat
    /// the report of its end.
    pub has_changed: bool,
}

/// Counters of a [`RosterSender`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RosterCounters {
    /// Reports that count.
    pub reports: u64,
    /// Reports without a right cookie that were answered.
    pub challenged: u64,
    /// Reports without the code of a key that the sender asks for.
    pub unauthenticated: u64,
    /// Reports dropped: unreadable, late, or beyond a limit.
    pub dropped: u64,
}

/// Roster of a sender.
///
/// Memory: [`ROWS_MAX`](super::ROWS_MAX) rows, 256 replies, 32 kB of limits by network. No state is kept for
/// an address that has not returned a cookie.
#[derive(Debug)]
pub struct RosterSender {
    config: RosterConfig,
    /// Keys of reports; with none, all reports count.
    keys: Vec<ReportKey>,
    words: Words,
    queue: ReplyQueue<(SocketAddr, Reply)>,
    table: Table,
    pace: Pace,
    content: Option<u32>,
    announce_due: Instant,
    review_due: Instant,
    counts: RosterCounts,
    counters: RosterCounters,
    last: Option<Instant>,
    /// Whether a receiver may need packets.
    needs_packets: bool,
    /// Time of the next search of the rows for a receiver that needs packets.
    need_check_due: Option<Instant>,
}

impl RosterSender {
    /// Creates an empty roster. `key` must be secret.
    pub fn new(config: RosterConfig, key: AdmissionKey) -> Self {
        let hash_key = blake3::derive_key("headwater 2026 roster rows", &key);
        Self {
            words: Words::lasting(key, COOKIE_TIME),
            queue: ReplyQueue::new(key, CHALLENGES),
            table: Table::new(hash_key, config.budget),
            pace: Pace::new(config.budget, config.is_quick),
            content: None,
            announce_due: Instant::ZERO,
            review_due: Instant::ZERO,
            counts: RosterCounts::default(),
            counters: RosterCounters::default(),
            last: None,
            needs_packets: true,
            need_check_due: None,
            keys: Vec::new(),
            config,
        }
    }

    /// Sets keys, of which one authenticates each report that counts; all receivers of a host then have rows.
    /// Default: every report counts.
    #[must_use]
    pub fn with_keys(mut self, keys: Vec<ReportKey>) -> Self {
        if !keys.is_empty() {
            self.table.trust_hosts();
        }
        self.keys = keys;
        self
    }

    /// Sets the content that is sent; `None` while unknown. A receiver counts as done with this content
    /// alone.
    pub fn set_content(&mut self, content: Option<u32>) {
        self.needs_packets |= content != self.content;
        self.content = content;
    }

    /// Handles a datagram to the sender. Returns the update of a report that counts.
    pub fn on_datagram(&mut self, now: Instant, datagram: &Datagram<'_>) -> Option<RosterUpdate> {
        let Ok(Report { header, state, name }) = Report::parse(datagram.payload) else {
            self.counters.dropped += 1;
            return None;
        };
        let source = datagram.source;
        let cookie = header.cookie.to_be_bytes();
        let age = state.and_then(|_| self.words.check_of(now, source, header.receiver, &cookie));
        let (Some(age), Some(state)) = (age, state) else {
            self.challenge(now, source, header);
            return None;
        };
        if !self.keys.is_empty() && !self.keys.iter().any(|key| key.is_right(datagram.payload)) {
            // The reply keeps the receiver from asking for a new cookie.
            self.counters.unauthenticated += 1;
            self.reply(source, header, false);
            return None;
        }
        let interval = self.pace.interval();
        let Some((row, news)) = self.table.report(now, interval, source, &header, (&state, name)) else {
            self.counters.dropped += 1;
            return None;
        };
        self.counters.reports += 1;
        if row.needs_packets(self.content) {
            (self.needs_packets, self.need_check_due) = (true, None);
        } else if self.needs_packets {
            self.need_check_due.get_or_insert(now + NEED_CHECK);
        }
        // A receiver that serves the content is no sign of receivers under way.
        let is_serving = header.kind == ReportKind::Done && state.repair_port.is_some();
        self.last = if is_serving { self.last } else { Some(now) };
        let may_be_first = matches!(news, News::First | News::Outside);
        self.pace.count(now, may_be_first, self.table.receivers());
        let cookie = match age {
            WordAge::Current => header.cookie,
            WordAge::Previous => self.cookie(now, source, header.receiver),
        };
        // Replies to a crowd behind one slow link load that link. If the rate follows the reports, each is
        // answered: paths may be overloaded.
        let is_passed_over = header.kind == ReportKind::Progress
            && age == WordAge::Current
            && self.table.rows().len() > ALL_ANSWERED_MAX
            && !self.config.is_quick
            && !header.sequence.is_multiple_of(2);
        if !is_passed_over {
            self.reply(source, RosterHeader { cookie, ..header }, true);
        }
        // Of receivers outside of the sample, only ends are worth an update.
        let is_end = matches!(header.kind, ReportKind::Done | ReportKind::Leaving) && !is_serving;
        let has_changed = news != News::None;
        (news != News::Outside || is_end).then(|| RosterUpdate {
            state: self.state(now, &row),
            row,
            has_changed,
        })
    }

    /// Sends the right cookie, within the limits of all networks and of the network of the address.
    fn challenge(&mut self, now: Instant, source: SocketAddr, header: RosterHeader) {
        if !self.queue.admits(now, source.ip()) {
            self.counters.dropped += 1;
            return;
        }
        self.counters.challenged += 1;
        let cookie = self.cookie(now, source, header.receiver);
        self.reply(source, RosterHeader { cookie, ..header }, false);
    }

    fn cookie(&self, now: Instant, address: SocketAddr, receiver: u64) -> u64 {
        u64::from_be_bytes(self.words.word_of(now, address, receiver))
    }

    fn reply(&mut self, to: SocketAddr, header: RosterHeader, is_counted: bool) {
        self.queue.push((to, Reply { header, exponent: self.pace.exponent(), is_counted }));
    }

    /// Returns the next reply, written at the start of `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (to, reply) = self.queue.pop()?;
        buffer.get_mut(..wire::REPLY_BYTES)?.copy_from_slice(&reply.emit());
        let bytes = wire::REPLY_BYTES;
        Some(Transmit { destination: Destination::Unicast(to), bytes, ecn: Ecn::NotCapable })
    }

    /// Counts the rows and adapts the interval, twice a second at most. Called before packets leave.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.need_check_due.is_some_and(|at| at <= now) {
            self.need_check_due = None;
            // Receivers of a crowd say hello late.
            self.needs_packets = self.pace.exponent() > 0 || self.table.needs_packets(self.content);
        }
        if now < self.review_due {
            return;
        }
        self.review_due = now + REVIEW;
        self.table.prune(now, self.content, self.pace.interval());
        self.counts = self.table.counts(now, self.content, self.pace.interval());
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let receivers = (self.counts.under_way + self.table.serving(now, self.pace.interval())) as f64;
        self.pace.estimate(now, receivers);
    }

    /// Whether a receiver may need packets. False only if the interval of reports is the shortest, each
    /// receiver has a row, and each row is of a receiver that has ended or needs no more packets.
    pub const fn needs_packets(&self) -> bool {
        self.needs_packets
    }

    /// Returns the announcement for a packet of the base channel, if one is due. `time` never goes back, and
    /// may be ahead of the time of other calls.
    pub fn announcement(&mut self, time: Instant) -> Option<Members> {
        if time < self.announce_due {
            return None;
        }
        self.announce_due = time + ANNOUNCED;
        let count = Members::rounded(self.counts.under_way);
        let RosterConfig { is_awaiting, is_quick, .. } = self.config;
        Some(Members { exponent: self.pace.exponent(), is_awaiting, is_quick, count })
    }

    /// Returns the rows, in no useful order.
    pub fn rows(&self) -> impl Iterator<Item = &RosterRow> {
        self.table.rows()
    }

    /// Returns the state of a row.
    pub fn state(&self, now: Instant, row: &RosterRow) -> RowState {
        row.state_at(now, self.content, self.pace.interval())
    }

    /// Returns the addresses at which receivers with everything answer HTTP repair, one of a host (an IPv4
    /// address, a /64), in random order that stays. Each has proven to receive at its address.
    pub fn repair_servers(&self, now: Instant) -> impl Iterator<Item = SocketAddr> {
        self.table.repair_servers(now, self.content, self.interval())
    }

    /// Returns the number of receivers by state.
    pub fn counts(&self, now: Instant) -> RosterCounts {
        self.table.counts(now, self.content, self.pace.interval())
    }

    /// Returns the interval that is announced.
    pub fn interval(&self) -> Duration {
        self.pace.interval()
    }

    /// Returns the time of the last report that counts.
    pub fn last_report(&self) -> Option<Instant> {
        self.last
    }

    /// Returns the counters.
    pub fn counters(&self) -> RosterCounters {
        self.counters
    }
}
