//! Receivers that a session waits for by name or address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use headwater_proto::Instant;
use headwater_proto::roster::{RosterRow, RosterSender, RosterUpdate, RowState};

/// Time after which the session does not wait any more for an expected receiver that is silent, or that has
/// other content and may start again.
const LOST: Duration = Duration::from_secs(15);

/// Expected receiver without everything.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingReceiver {
    /// Name or address, as expected.
    pub expected: String,
    /// Last report and state; `None` for a receiver that never reported.
    pub last: Option<(RosterRow, RowState)>,
}

/// Two receivers at different addresses that claim an expected name. The first claim counts, until its
/// receiver has left or is silent.
#[derive(Clone, Debug, PartialEq)]
pub struct ContestedName {
    /// The name.
    pub name: String,
    /// Last report of the receiver whose claim counts.
    pub first: RosterRow,
    /// Report that does not count.
    pub second: RosterRow,
}

/// Expected receiver.
#[derive(Debug)]
struct Expected {
    wanted: String,
    /// Last report and state of the receiver that the first claim is of.
    last: Option<(RosterRow, RowState)>,
    is_contested: bool,
}

impl Expected {
    /// Takes a report of a receiver of this name or address. Returns the first claim of another receiver.
    fn on_report(&mut self, update: &RosterUpdate) -> Option<ContestedName> {
        let row = &update.row;
        if let Some((first, state)) = &self.last {
            let is_elsewhere = first.address.ip() != row.address.ip();
            let is_free = match state {
                RowState::UnderWay => false,
                // A host that receives once more.
                RowState::Done => !is_elsewhere,
                RowState::Left(_) | RowState::Silent(_) | RowState::Outdated => true,
            };
            if first.receiver != row.receiver && !is_free {
                let is_news = is_elsewhere && !core::mem::replace(&mut self.is_contested, true);
                let (name, first, second) = (self.wanted.clone(), first.clone(), row.clone());
                return is_news.then_some(ContestedName { name, first, second });
            }
        }
        self.last = Some((row.clone(), update.state));
        None
    }

    /// Whether the session does not wait for the receiver at `now`, after `awake` without a pause of this
    /// machine.
    fn is_over(&self, now: Instant, awake: Duration) -> bool {
        let Some((row, state)) = &self.last else { return false };
        match state {
            RowState::Done | RowState::Left(_) => true,
            RowState::Silent(_) | RowState::Outdated => awake.min(now.since(row.last).into()) >= LOST,
            RowState::UnderWay => false,
        }
    }

    fn is_done(&self) -> bool {
        self.last.as_ref().is_some_and(|(_, state)| *state == RowState::Done)
    }
}

/// All expected receivers. The cost of a report does not depend on the number of receivers.
#[derive(Debug, Default)]
pub(super) struct ExpectedReceivers {
    list: Vec<Expected>,
    /// Places in the list.
    names: BTreeMap<String, usize>,
    addresses: BTreeMap<IpAddr, usize>,
}

impl ExpectedReceivers {
    /// Creates a list of names or addresses. Duplicates count once.
    pub(super) fn new(wanted: &[String]) -> Self {
        let mut all = Self::default();
        for wanted in wanted {
            let address = wanted.parse().ok().map(|address: IpAddr| address.to_canonical());
            let is_known = address.is_some_and(|address| all.addresses.contains_key(&address));
            if is_known || all.names.contains_key(wanted) {
                continue;
            }
            all.names.insert(wanted.clone(), all.list.len());
            all.addresses.extend(address.map(|address| (address, all.list.len())));
            all.list.push(Expected { wanted: wanted.clone(), last: None, is_contested: false });
        }
        all
    }

    /// Records a report. Returns the first claim of a name that another receiver has.
    pub(super) fn on_report(&mut self, update: &RosterUpdate) -> Option<ContestedName> {
        let row = &update.row;
        let by_name = row.name.as_ref().and_then(|name| self.names.get(name)).copied();
        let by_address = self.addresses.get(&row.address.ip().to_canonical()).copied();
        let mut contested = None;
        for place in by_name.into_iter().chain(by_address.filter(|_| by_address != by_name)) {
            contested = contested.or(self.list[place].on_report(update));
        }
        contested
    }

    /// Updates the states, which change with time.
    pub(super) fn refresh(&mut self, roster: &RosterSender, now: Instant) {
        for (row, state) in self.list.iter_mut().filter_map(|expected| expected.last.as_mut()) {
            *state = roster.state(now, row);
        }
    }

    /// Whether the session waits for no receiver any more.
    pub(super) fn are_over(&self, now: Instant, awake: Duration) -> bool {
        self.list.iter().all(|expected| expected.is_over(now, awake))
    }

    /// Returns the receivers without everything.
    pub(super) fn missing(&self) -> Vec<MissingReceiver> {
        let missing = self.list.iter().filter(|expected| !expected.is_done());
        missing
            .map(|expected| MissingReceiver {
                expected: expected.wanted.clone(),
                last: expected.last.clone(),
            })
            .collect()
    }
}
