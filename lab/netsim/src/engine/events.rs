//! Pending events in a total order: by instant, then by [`Class`], then by the order of scheduling.
//!
//! The set stays small: a link has at most a single pending event however many packets it holds, and an agent
//! seldom has more. Consecutively scheduled events of the same instant and class (the copies that a multicast
//! packet leaves on the links of a star) are coupled into a train: a single heap entry, whose targets are
//! processed in order.
//!
//! Deadlines that move lazily: no event is ever cancelled.
//!
//! An agent's deadline moves with nearly every packet. While an event is pending at or before the deadline,
//! the engine schedules nothing; an event that fires too early checks the deadline again.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use headwater_proto::Instant;

use crate::network::{AgentId, LinkId};

/// Order of events at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The timetable: a capacity that changes at t applies to a packet that arrives at t, and an agent that
    /// stops at t does not receive the packet.
    Change,
    /// Packets and group membership messages at the end of a hop.
    Arrival,
    /// Deadlines of agents: an acknowledgement that arrives exactly at a timeout prevents the timeout.
    Timer,
}

/// Subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The first packet on a link reaches the far end.
    Link(LinkId),
    /// A packet outside a link arrives: index among the deliveries.
    DirectDelivery(u32),
    /// A group membership message: its index.
    Membership(u32),
    /// A deadline of an agent, which may have moved since.
    Timer(AgentId),
    /// A line of the timetable.
    Change(u32),
    /// Several targets: index of the train.
    Train(u32),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at: Instant,
    /// Class in the high byte, order of scheduling below.
    order: u64,
    target: Target,
}

const CLASS_SHIFT: u32 = 56;

impl Event {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }

    const fn is_with(&self, at: Instant, class: Class) -> bool {
        self.at.as_nanos() == at.as_nanos() && self.order >> CLASS_SHIFT == class as u64
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The pending events. The events' sources bound the number: an event per link, up to
/// [`crate::engine::events::PENDING_MAX`] tracked events per agent, and an event per packet that an
/// impairment delays.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<Event>>,
    /// Event scheduled last, kept out of the heap so that later events can be coupled to it.
    last: Option<Event>,
    /// Trains in progress, each with the number of targets already processed. The last train runs; the
    /// earlier trains are of a lower class and wait. At most a single train of each class.
    running: Vec<(Event, usize)>,
    trains: Vec<Vec<Target>>,
    free_trains: Vec<u32>,
    scheduled: u64,
}

impl EventQueue {
    /// Adds an event. `at` is never before the event that was taken last.
    pub(crate) fn schedule(&mut self, at: Instant, class: Class, target: Target) {
        if let Some(last) = self.last.filter(|last| last.is_with(at, class)) {
            return self.couple(last, target);
        }
        let order = (class as u64) << CLASS_SHIFT | self.scheduled;
        self.scheduled += 1;
        if let Some(previous) = self.last.replace(Event { at, order, target }) {
            self.heap.push(Reverse(previous));
        }
    }

    /// Takes the first event, unless it comes after `until`.
    pub(crate) fn take(&mut self, until: Instant) -> Option<(Instant, Target)> {
        let top = self.heap.peek().map(|Reverse(event)| *event);
        let first = match (self.last, top) {
            (Some(last), Some(top)) => Some(last.min(top)),
            (last, top) => last.or(top),
        };
        if let Some((train, _)) = self.running.last().copied()
            && first.is_none_or(|event| train < event)
        {
            return Some((train.at, self.next_of_train()));
        }
        let event = first.filter(|event| event.at <= until)?;
        if self.last.is_some_and(|last| last.order == event.order) {
            self.last = None;
        } else {
            self.heap.pop();
        }
        match event.target {
            Target::Train(_) => {
                self.running.push((event, 0));
                Some((event.at, self.next_of_train()))
            }
            target => Some((event.at, target)),
        }
    }

    /// Couples `target` to `last`, the event scheduled last.
    fn couple(&mut self, last: Event, target: Target) {
        if let Target::Train(train) = last.target {
            return self.trains[train as usize].push(target);
        }
        let train = self.free_trains.pop().unwrap_or_else(|| {
            self.trains.push(Vec::new());
            u32::try_from(self.trains.len() - 1).expect("fewer trains than events")
        });
        self.trains[train as usize].extend([last.target, target]);
        self.last = Some(Event { target: Target::Train(train), ..last });
    }

    fn next_of_train(&mut self) -> Target {
        let Some((Event { target: Target::Train(train), .. }, taken)) = self.running.last_mut() else {
            unreachable!("asked for only while a train runs");
        };
        let targets = &mut self.trains[*train as usize];
        let target = targets[*taken];
        *taken += 1;
        if *taken == targets.len() {
            targets.clear();
            self.free_trains.push(*train);
            self.running.pop();
        }
        target
    }
}

/// Pending events that are remembered for an agent. A deadline may come nearer that often before the farthest
/// event is forgotten, which then fires in vain.
pub(crate) const PENDING_MAX: usize = 3;

const NONE: Instant = Instant::from_nanos(u64::MAX);

/// The instants of an agent's pending events, nearest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending([Instant; PENDING_MAX]);

impl Default for Pending {
    fn default() -> Self {
        Self([NONE; PENDING_MAX])
    }
}

impl Pending {
    /// Whether an event must be scheduled so that some event fires by `deadline`; if so, records the event.
    pub(crate) fn wants(&mut self, deadline: Instant) -> bool {
        if self.0[0] <= deadline {
            return false;
        }
        self.0.copy_within(..PENDING_MAX - 1, 1);
        self.0[0] = deadline;
        true
    }

    /// Records that an event fired at `at`. Returns whether the event was tracked.
    pub(crate) fn fired(&mut self, at: Instant) -> bool {
        if self.0[0] != at {
            return false;
        }
        self.0.copy_within(1.., 0);
        self.0[PENDING_MAX - 1] = NONE;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREVER: Instant = Instant::from_nanos(u64::MAX);

    fn timer(index: u32) -> Target {
        Target::Timer(AgentId(index))
    }

    /// What a plain sort by (instant, class, order of scheduling) gives.
    #[test]
    fn the_order_is_total_and_first_in_first_out() {
        let mut events = EventQueue::default();
        let mut expected = Vec::new();
        for index in 0..2_000_u32 {
            // Runs of equal keys, so that trains form, between keys that jump about.
            let run = u64::from(index / 5);
            let when = at(run * 7_919 % 13);
            let class = [Class::Timer, Class::Arrival, Class::Change][usize::try_from(run % 3).unwrap()];
            events.schedule(when, class, timer(index));
            expected.push((when, class, index));
        }
        expected.sort();
        for (when, _, index) in expected {
            assert_eq!(events.take(FOREVER), Some((when, timer(index))));
        }
        assert_eq!(events.take(FOREVER), None);
    }

    #[test]
    fn a_lower_class_scheduled_meanwhile_goes_before_the_rest_of_a_train() {
        let mut events = EventQueue::default();
        (0..3).for_each(|index| events.schedule(at(5), Class::Timer, timer(index)));
        assert_eq!(events.take(FOREVER), Some((at(5), timer(0))));
        events.schedule(at(5), Class::Arrival, timer(9));
        events.schedule(at(5), Class::Timer, timer(3));
        let rest: Vec<_> = std::iter::from_fn(|| events.take(FOREVER)).map(|(_, target)| target).collect();
        assert_eq!(rest, [9, 1, 2, 3].map(timer));
    }

    #[test]
    fn a_train_of_a_lower_class_goes_before_the_rest_of_a_train() {
        let mut events = EventQueue::default();
        (0..3).for_each(|index| events.schedule(at(5), Class::Timer, timer(index)));
        assert_eq!(events.take(FOREVER), Some((at(5), timer(0))));
        (10..13).for_each(|index| events.schedule(at(5), Class::Arrival, timer(index)));
        assert_eq!(events.take(FOREVER), Some((at(5), timer(10))));
        (20..22).for_each(|index| events.schedule(at(5), Class::Change, timer(index)));
        let rest: Vec<_> = std::iter::from_fn(|| events.take(FOREVER)).map(|(_, target)| target).collect();
        assert_eq!(rest, [20, 21, 11, 12, 1, 2].map(timer));
    }

    #[test]
    fn nothing_after_the_limit_is_taken() {
        let mut events = EventQueue::default();
        events.schedule(at(5), Class::Timer, timer(0));
        events.schedule(at(7), Class::Timer, timer(1));
        assert_eq!(events.take(at(4)), None);
        assert_eq!(events.take(at(5)), Some((at(5), timer(0))));
        assert_eq!(events.take(at(6)), None);
        assert_eq!(events.take(at(7)), Some((at(7), timer(1))));
    }

    #[test]
    fn an_event_is_small() {
        assert_eq!(size_of::<Event>(), 24);
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_later_deadline_waits_for_the_pending_event() {
        let mut pending = Pending::default();
        assert!(pending.wants(at(10)));
        assert!(!pending.wants(at(20)));
        assert!(pending.fired(at(10)));
        assert!(pending.wants(at(20)));
    }

    #[test]
    fn a_deadline_that_comes_and_goes_leaves_no_events_behind() {
        let mut pending = Pending::default();
        assert!(pending.wants(at(1_000)));
        for near in 1..1_000 {
            assert!(pending.wants(at(near)), "nearer than all");
            assert!(pending.fired(at(near)));
            assert!(!pending.wants(at(1_000)), "the far one is still there");
        }
    }

    #[test]
    fn the_farthest_is_forgotten_and_fires_in_vain() {
        let mut pending = Pending::default();
        for near in [40, 30, 20, 10] {
            assert!(pending.wants(at(near)));
        }
        for near in [10, 20, 30] {
            assert!(pending.fired(at(near)));
        }
        assert!(!pending.fired(at(40)));
    }
}
