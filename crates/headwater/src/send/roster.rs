//! Roster of a sending session: when the session begins and ends by its receivers' reports.

mod expected;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::control::SenderControl;
use headwater_proto::delivery::{DeliverySender, Digest, Source};
use headwater_proto::roster::{RosterConfig, RosterCounts, RosterRow, RosterSender, RosterUpdate, RowState};

use headwater_wire::fdt::PEERS_MAX;

use self::expected::ExpectedReceivers;
pub use self::expected::{ContestedName, MissingReceiver};
use super::error::SendError;
use super::published::FILES_PATH;
use crate::keys::GroupKeys;
use crate::system;

/// Most receivers that can be expected: 1 MB of names.
pub const EXPECTED_MAX: usize = 16_384;
/// Receivers shown in [`RosterProgress::slowest`].
pub const SLOWEST_MAX: usize = 8;
/// Time without any report after which the observer is told.
const NOBODY: Duration = Duration::from_secs(30);
/// Time between two looks at the rows.
const LOOK: headwater_proto::Duration = headwater_proto::Duration::from_millis(250);
/// Shortest time between two changes of the receivers that the FDT names: each change is a new instance.
const PEERS_TIME: headwater_proto::Duration = headwater_proto::Duration::from_secs(5);
/// Time between two turns of the driver from which the machine has paused. Turns are 0.1 s apart at most.
const PAUSE: headwater_proto::Duration = headwater_proto::Duration::from_secs(1);

/// Options of the roster of a session to groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterOptions {
    /// Reports a second of all receivers together that the session aims to stay below. Default: 500.
    pub report_rate: u32,
    /// Condition on the receivers at which the session ends. Default: none.
    pub until: Option<RosterEnd>,
    /// Number of receivers that the content waits for, and the longest wait. Default: no wait.
    pub start_when: Option<(u64, Duration)>,
    /// Whether the ends of receivers are recorded: receivers then stay at their end until the sender knows,
    /// as with `until`. Default: no.
    pub records_ends: bool,
    /// Keys, of which one authenticates each report that counts. Default: every report counts.
    pub keys: Option<GroupKeys>,
    /// Receivers that serve, which the FDT of a signed session in the clear names. Default: at most
    /// [`REPAIR_PEERS_MAX`](crate::REPAIR_PEERS_MAX).
    pub peers: PeerOptions,
}

/// Receivers that serve the files to other receivers, as servers of repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerOptions {
    /// Most receivers that are named, up to [`REPAIR_PEERS_MAX`](crate::REPAIR_PEERS_MAX).
    pub most: usize,
    /// Time from the end of reception to the earliest request, if the session names no other servers.
    pub offset: Duration,
    /// Time over which receivers then spread first requests.
    pub random: Duration,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self { most: PEERS_MAX, offset: Duration::ZERO, random: Duration::from_secs(10) }
    }
}

impl Default for RosterOptions {
    fn default() -> Self {
        let peers = PeerOptions::default();
        Self { report_rate: 500, until: None, start_when: None, records_ends: false, keys: None, peers }
    }
}

/// Condition on the receivers at which a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterEnd {
    /// So many receivers have everything.
    Done(u64),
    /// No receiver is under way, and none has reported for so long and for two intervals of reports, after a
    /// first report. A receiver without everything is under way until three intervals and 2 s without a
    /// report. Pauses of this machine do not count.
    Idle(Duration),
    /// Each of these receivers, named by the name that the receiver reports or by its address, has
    /// everything, has left, or has been silent or had other content for 15 s. At most [`EXPECTED_MAX`].
    Expected(Vec<String>),
}

/// Progress of the receivers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RosterProgress {
    /// Number of receivers by state.
    pub counts: RosterCounts,
    /// Receivers under way or silent, the one with the least content first; at most [`SLOWEST_MAX`].
    pub slowest: Vec<(RosterRow, RowState)>,
}

/// Receivers at the end of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct RosterSummary {
    /// Number of receivers by state.
    pub counts: RosterCounts,
    /// Whether the session ended by [`RosterOptions::until`].
    pub is_met: bool,
    /// Expected receivers without everything.
    pub missing: Vec<MissingReceiver>,
}

/// Follows the reports of receivers.
#[derive(Debug)]
pub(super) struct RosterWatch {
    options: RosterOptions,
    expected: ExpectedReceivers,
    next_look: Instant,
    last_turn: Instant,
    /// End of the last pause of this machine, in which reports may have been lost.
    resumed: Instant,
    is_met: bool,
    has_heard: bool,
    has_told_nobody: bool,
    has_told_unauthenticated: bool,
    digest: Option<Digest>,
    progress: RosterProgress,
    peers: Peers,
}

/// Receivers that the FDT names as servers of repair.
#[derive(Debug, Default)]
struct Peers {
    named: Vec<SocketAddr>,
    not_before: Instant,
}

impl Peers {
    /// Replaces receivers that do not serve any more, at most each [`PEERS_TIME`]. Returns whether the list
    /// has changed.
    fn update(&mut self, serving: impl Iterator<Item = SocketAddr>, most: usize, now: Instant) -> bool {
        if now < self.not_before {
            return false;
        }
        let serving: Vec<_> = serving.collect();
        let before = self.named.len();
        self.named.retain(|named| serving.contains(named));
        let left = self.named.len();
        let others: Vec<_> = serving.into_iter().filter(|server| !self.named.contains(server)).collect();
        self.named.extend(others.into_iter().take(most.saturating_sub(left)));
        let has_changed = left < before || left < self.named.len();
        if has_changed {
            self.not_before = now + PEERS_TIME;
        }
        has_changed
    }

    fn urls(&self) -> Vec<String> {
        self.named.iter().map(|server| format!("http://{server}{FILES_PATH}")).collect()
    }
}

impl RosterWatch {
    pub(super) fn new(options: RosterOptions) -> Self {
        let expected = match &options.until {
            Some(RosterEnd::Expected(names)) => ExpectedReceivers::new(names),
            _ => ExpectedReceivers::default(),
        };
        Self {
            options,
            expected,
            next_look: Instant::ZERO,
            last_turn: Instant::ZERO,
            resumed: Instant::ZERO,
            is_met: false,
            has_heard: false,
            has_told_nobody: false,
            has_told_unauthenticated: false,
            digest: None,
            progress: RosterProgress::default(),
            peers: Peers::default(),
        }
    }

    /// Creates the machine's roster; `is_quick` if the rate follows the reports.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub(super) fn sender(&self, is_quick: bool) -> Result<RosterSender, SendError> {
        let config = RosterConfig::new()
            .with_quick(is_quick)
            .with_budget(self.options.report_rate)
            .with_awaiting(self.options.until.is_some() || self.options.records_ends);
        let keys = self.options.keys.as_ref().map(GroupKeys::report_keys).unwrap_or_default();
        Ok(RosterSender::new(config, system::random_bytes()?).with_keys(keys))
    }

    /// Whether the content waits for receivers at first.
    pub(super) fn waits(&self) -> bool {
        self.options.start_when.is_some()
    }

    /// Records a report. Returns the digest of the content, and a contested name.
    pub(super) fn on_report(&mut self, update: &RosterUpdate) -> (Option<Digest>, Option<ContestedName>) {
        self.has_heard = true;
        (self.digest, self.expected.on_report(update))
    }

    /// Looks at the rows, a few times a second. Begins the content and ends the session.
    pub(super) fn steer<C: SenderControl, S: Source>(
        &mut self,
        machine: &mut DeliverySender<C, S>,
        now: Instant,
    ) {
        self.digest = machine.content_digest();
        let is_open = machine.awaits_parts();
        if machine.roster().is_none_or(|roster| !self.look(roster, is_open, now)) {
            return;
        }
        let has_strangers = machine.roster().is_some_and(|roster| roster.counters().unauthenticated > 0);
        if has_strangers && !core::mem::replace(&mut self.has_told_unauthenticated, true) {
            tracing::warn!(
                "reports without a key of --roster-key come and do not count; give --roster-key to receivers, too"
            );
        }
        if let Some((count, longest)) = self.options.start_when
            && (self.progress.counts.total() >= count || now.since(Instant::ZERO) >= longest.into())
        {
            self.options.start_when = None;
            machine.hold(false);
        }
        let PeerOptions { most, offset, random } = self.options.peers;
        if let Some(roster) = machine.roster()
            && self.peers.update(roster.repair_servers(now), most, now)
        {
            machine.name_peers(self.peers.urls(), offset.into(), random.into());
        }
        if self.is_met {
            machine.close();
        }
    }

    /// Looks at the rows if a look is due; returns whether a look was due. While the content `is_open`, no
    /// receiver has everything.
    fn look(&mut self, roster: &RosterSender, is_open: bool, now: Instant) -> bool {
        if now.since(core::mem::replace(&mut self.last_turn, now)) >= PAUSE {
            self.resumed = now;
        }
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK;
        self.progress.counts = roster.counts(now);
        self.progress.slowest = slowest(roster, now);
        self.expected.refresh(roster, now);
        self.is_met |= !is_open && self.is_met_at(roster, now);
        true
    }

    fn is_met_at(&self, roster: &RosterSender, now: Instant) -> bool {
        let awake = now.since(self.resumed);
        match &self.options.until {
            None => false,
            Some(RosterEnd::Done(count)) => self.progress.counts.done >= *count,
            Some(RosterEnd::Idle(longest)) => {
                let longest = roster.interval().saturating_mul(2).max((*longest).into());
                let is_idle = |last| awake.min(now.since(last)) >= longest;
                self.progress.counts.under_way == 0 && roster.last_report().is_some_and(is_idle)
            }
            Some(RosterEnd::Expected(_)) => self.expected.are_over(now, awake.into()),
        }
    }

    /// Whether nobody has reported for a while; true once.
    pub(super) fn is_nobody_there(&mut self, now: Instant) -> bool {
        let is_over = now.since(Instant::ZERO) >= NOBODY.into();
        !self.has_heard && is_over && !core::mem::replace(&mut self.has_told_nobody, true)
    }

    /// Returns the latest progress.
    pub(super) fn progress(&self) -> &RosterProgress {
        &self.progress
    }

    pub(super) fn summary(&mut self, roster: &RosterSender, now: Instant) -> RosterSummary {
        self.expected.refresh(roster, now);
        let (counts, missing) = (roster.counts(now), self.expected.missing());
        RosterSummary { counts, is_met: self.is_met, missing }
    }
}

/// Returns the receivers under way or silent that have least.
fn slowest(roster: &RosterSender, now: Instant) -> Vec<(RosterRow, RowState)> {
    let is_shown = |state: RowState| matches!(state, RowState::UnderWay | RowState::Silent(_));
    let mut rows: Vec<_> = roster
        .rows()
        .map(|row| (row, roster.state(now, row)))
        .filter(|(_, state)| is_shown(*state))
        .collect();
    let key = |(row, _): &(&RosterRow, RowState)| (row.state.done_ppm, row.receiver);
    if rows.len() > SLOWEST_MAX {
        rows.select_nth_unstable_by_key(SLOWEST_MAX, key);
        rows.truncate(SLOWEST_MAX);
    }
    rows.sort_unstable_by_key(key);
    rows.into_iter().map(|(row, state)| (row.clone(), state)).collect()
}

/// Checks the options.
///
/// # Errors
/// If a number is out of range.
pub(super) fn check(options: &RosterOptions) -> Result<(), SendError> {
    if options.report_rate == 0 {
        return Err(SendError::Option {
            option: "the rate of reports",
            value: 0,
            range: "at least 1 a second",
        });
    }
    let expected = match &options.until {
        Some(RosterEnd::Expected(names)) => names.len(),
        _ => 1,
    };
    if !(1..=EXPECTED_MAX).contains(&expected) {
        let range = "from 1 to 16384";
        return Err(SendError::Option {
            option: "the number of expected receivers",
            value: expected as u64,
            range,
        });
    }
    Ok(())
}
