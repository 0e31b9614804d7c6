//! The NAK states of missing packets (RFC 3208, section 6.3).

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Instant;

/// What a missing packet waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its turn to be asked for.
    BackOff,
    /// The confirmation.
    Ncf,
    /// The repair.
    Data,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) due: Instant,
    /// How often no confirmation came, and how often no repair after one.
    pub(super) tries: [u8; 2],
}

/// Missing packets by number and by when something is due. Never more than the window has places.
#[derive(Clone, Debug, Default)]
pub(super) struct Missing {
    states: BTreeMap<u32, State>,
    due: BTreeSet<(Instant, u32)>,
}

impl Missing {
    pub(super) fn get(&self, sequence: u32) -> Option<State> {
        self.states.get(&sequence).copied()
    }

    pub(super) fn set(&mut self, sequence: u32, state: State) {
        if let Some(before) = self.states.insert(sequence, state) {
            self.due.remove(&(before.due, sequence));
        }
        self.due.insert((state.due, sequence));
    }

    pub(super) fn remove(&mut self, sequence: u32) {
        if let Some(before) = self.states.remove(&sequence) {
            self.due.remove(&(before.due, sequence));
        }
    }

    pub(super) fn clear(&mut self) {
        self.states.clear();
        self.due.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// A missing one that is not before `from` and before `to`, where numbers wrap.
    pub(super) fn before(&self, from: u32, to: u32) -> Option<u32> {
        let first = |from: u32, to: u32| self.states.range(from..to).next().map(|(sequence, _)| *sequence);
        match (super::ahead(to, from) > 0, from <= to) {
            (false, _) => None,
            (true, true) => first(from, to),
            (true, false) => {
                let last = self.states.range(from..).next().map(|(sequence, _)| *sequence);
                last.or_else(|| first(0, to))
            }
        }
    }

    /// The one that is due first, and when.
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.due.first().copied()
    }
}
