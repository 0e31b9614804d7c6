//! The NAK states of missing packets (RFC 3208, section 6.3).

use std::collections::{BTreeMap, BTreeSet};

use headwater_wire::pgm::{NAK_LIST_MAX, NakList};

use super::config::ReceiverConfig;
use crate::rng::{self, Stream};
use crate::time::{Duration, Instant};

/// Number of SPMRs sent to a source, because an SPMR may be lost; `GREETING_SPACING` is the time between
/// SPMRs.
pub(super) const GREETINGS: u8 = 3;
pub(super) const GREETING_SPACING: Duration = Duration::from_secs(1);

/// Event that a missing packet waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// End of the back-off before a NAK.
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
    /// Number of times that no confirmation came, and that no repair came after a confirmation.
    pub(super) tries: [u8; 2],
}

impl State {
    /// Creates the state of a packet just found missing, with a back-off until `due`.
    pub(super) const fn new(due: Instant) -> Self {
        Self { phase: Phase::BackOff, due, tries: [0; 2] }
    }

    /// Returns the state after a timeout of the present phase; `None` to give up.
    fn step(self, config: &ReceiverConfig, now: Instant, draw: &mut Stream) -> Option<Self> {
        let again = |tries: [u8; 2], draw: &mut Stream| {
            let due = now + back_off(draw, config.back_off);
            Some(Self { phase: Phase::BackOff, due, tries })
        };
        let [ncf, data] = self.tries;
        match self.phase {
            Phase::BackOff => Some(Self { phase: Phase::Ncf, due: now + config.ncf_wait, ..self }),
            Phase::Ncf if ncf < config.ncf_retries => again([ncf + 1, data], draw),
            Phase::Data if data < config.data_retries => again([ncf, data + 1], draw),
            _ => None,
        }
    }
}

/// Draws a back-off uniformly up to `most`.
pub(super) fn back_off(draw: &mut Stream, most: Duration) -> Duration {
    Duration::from_secs_f64(rng::unit(draw) * most.as_secs_f64())
}

/// Missing packets by sequence number and by due time. At most as many as the window has places.
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

    /// Returns a missing packet from `from` up to before `to`, with wrapping numbers.
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

    /// Returns the missing packet with the number furthest behind `to`, with wrapping numbers.
    pub(super) fn furthest_behind(&self, to: u32) -> Option<u32> {
        let above = self.states.range(to..).next();
        above.or_else(|| self.states.first_key_value()).map(|(sequence, _)| *sequence)
    }

    /// Returns the missing packet that is due first, and the due time.
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.due.first().copied()
    }

    /// Advances all missing packets that are due to the next phase. Returns the sequence numbers for a NAK
    /// now, if any.
    pub(super) fn due(
        &mut self,
        now: Instant,
        config: &ReceiverConfig,
        draw: &mut Stream,
    ) -> Option<(u32, NakList)> {
        let (mut first, mut list) = (None, NakList::default());
        while let Some((_, sequence)) = self.first().filter(|(due, _)| *due <= now) {
            let is_full = list.as_slice().len() == NAK_LIST_MAX;
            let Some(next) = self.get(sequence).filter(|_| !is_full) else { break };
            match next.step(config, now, draw) {
                Some(state) => self.set(sequence, state),
                None => self.remove(sequence),
            }
            if next.phase == Phase::BackOff {
                match first {
                    None => first = Some(sequence),
                    Some(_) => _ = list.push(sequence),
                }
            }
        }
        Some((first?, list))
    }
}
