//! Packets that arrived before earlier packets.

use std::collections::{BTreeMap, BTreeSet};

use headwater_wire::pgm::{Fragment, NAK_LIST_MAX, NakList};

use super::ahead;
use super::config::PgmReceiverConfig;
use crate::rng;
use crate::rng::Stream;
use crate::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Length and place in a message; `None` while the packet is missing.
    held: Option<(u16, Option<Fragment>)>,
}

/// A ring of packets by sequence number, from the next packet to deliver. The size is fixed.
#[derive(Clone, Debug)]
pub(super) struct ReceiveWindow {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    payload_bytes: usize,
    /// Sequence number of the next packet to deliver.
    next: u32,
    /// Sequence number after the last known packet.
    end: u32,
}

impl ReceiveWindow {
    pub(super) fn new(packets: u32, payload_bytes: u16, first: u32) -> Self {
        let slots = packets.next_power_of_two() as usize;
        let payload_bytes = usize::from(payload_bytes);
        Self {
            slots: vec![Slot::default(); slots],
            bytes: vec![0; slots * payload_bytes],
            payload_bytes,
            next: first,
            end: first,
        }
    }

    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    pub(super) const fn end(&self) -> u32 {
        self.end
    }

    /// Whether a sequence number has a place: neither delivered nor too far ahead.
    pub(super) fn holds(&self, sequence: u32) -> bool {
        usize::try_from(ahead(sequence, self.next)).is_ok_and(|place| place < self.slots.len())
    }

    /// Marks all packets up to `sequence`, which has a place, as known.
    pub(super) fn extend(&mut self, sequence: u32) {
        let end = sequence.wrapping_add(1);
        if ahead(end, self.end) > 0 {
            self.end = end;
        }
    }

    /// Number of packets that the window has places for.
    pub(super) const fn packets(&self) -> usize {
        self.slots.len()
    }

    /// Stores a packet that has a place. Returns false if the packet is already present, or too long.
    pub(super) fn put(&mut self, sequence: u32, data: &[u8], fragment: Option<Fragment>) -> bool {
        let index = self.index(sequence);
        let Some(len) = u16::try_from(data.len()).ok().filter(|_| data.len() <= self.payload_bytes) else {
            return false;
        };
        if self.slots[index].held.is_some() {
            return false;
        }
        self.slots[index].held = Some((len, fragment));
        self.bytes[index * self.payload_bytes..][..data.len()].copy_from_slice(data);
        true
    }

    /// Takes the next packet, if present.
    pub(super) fn take(&mut self) -> Option<(&[u8], Option<Fragment>)> {
        let index = self.index(self.next);
        let (len, fragment) = self.slots[index].held.take()?;
        self.next = self.next.wrapping_add(1);
        Some((&self.bytes[index * self.payload_bytes..][..usize::from(len)], fragment))
    }

    /// Gives up the next packet, which is known.
    pub(super) fn skip(&mut self) {
        let index = self.index(self.next);
        self.slots[index].held = None;
        self.next = self.next.wrapping_add(1);
    }

    /// Gives up all packets before `sequence`, which is beyond the end.
    pub(super) fn restart(&mut self, sequence: u32) {
        self.slots.fill(Slot::default());
        (self.next, self.end) = (sequence, sequence);
    }

    fn index(&self, sequence: u32) -> usize {
        sequence as usize & (self.slots.len() - 1)
    }
}

/// A message under way, of at most `bytes_max` bytes.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    message: Vec<u8>,
    /// Fragment option of the message's first packet.
    whole: Option<Fragment>,
    bytes_max: u32,
    /// Number of messages that could not be reassembled.
    broken: u64,
}

impl Assembly {
    pub(super) fn new(bytes_max: u32) -> Self {
        Self { message: Vec::new(), whole: None, bytes_max, broken: 0 }
    }

    pub(super) const fn broken(&self) -> u64 {
        self.broken
    }

    /// Records a lost packet, which breaks the message under way.
    pub(super) fn lost(&mut self) {
        self.broken += u64::from(self.whole.take().is_some());
    }

    /// Takes the next packet, and returns the message that the packet completes, if any.
    pub(super) fn packet<'a>(&'a mut self, data: &'a [u8], fragment: Option<Fragment>) -> Option<&'a [u8]> {
        let Some(fragment) = fragment else {
            self.lost();
            return Some(data);
        };
        if fragment.offset == 0 {
            self.lost();
            self.message.clear();
            if fragment.length > self.bytes_max {
                self.broken += 1;
                return None;
            }
            self.whole = Some(fragment);
        }
        // Without a beginning there is no message to extend: a late receiver, or a loss already counted.
        let whole = self.whole?;
        let bytes = self.message.len() + data.len();
        let is_next = (fragment.first, fragment.length) == (whole.first, whole.length)
            && fragment.offset as usize == self.message.len()
            && bytes <= whole.length as usize;
        if !is_next {
            self.lost();
            return None;
        }
        self.message.extend_from_slice(data);
        if bytes < whole.length as usize {
            return None;
        }
        self.whole = None;
        Some(&self.message)
    }
}

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
    fn step(self, config: &PgmReceiverConfig, now: Instant, draw: &mut Stream) -> Option<Self> {
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
        match (ahead(to, from) > 0, from <= to) {
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
        config: &PgmReceiverConfig,
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
