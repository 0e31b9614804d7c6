//! Reports of gateways' receivers to the senders of their sessions: one maximum for all gateways.
//!
//! A relay forwards reports to a source of packets that the relay receives, and to nobody else: no gateway
//! can have datagrams sent to an address of its choice. Reports of 0.1 s are merged. Receivers hear the
//! sender's echo in the packets that the relay forwards, so the relay repeats nothing.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_wire::rtt::{Demand, LossClass, Message};

use crate::rtt::Reported;
use crate::time::{Duration, Instant};

/// Most senders whose reports a relay merges. Memory: 100 bytes each.
const SENDERS_MAX: usize = 256;
/// Least time between two reports to a sender.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after its last packet for which a sender gets reports. Idle sessions send a packet in 0.1 s.
const HEARD_TIME: Duration = Duration::from_secs(5);
/// Time after the last report for which a sender keeps its place.
const KEPT_TIME: Duration = Duration::from_secs(60);
/// The same for a sender of whom no packet has come.
const UNHEARD_TIME: Duration = Duration::from_secs(5);

/// Reports that wait for a sender.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// Of receivers that start.
    starting: Option<u8>,
    /// Of receivers that lose less than half of the packets.
    sound: Option<Reported>,
    /// Of receivers that lose more.
    lossy: Option<Reported>,
}

impl Pending {
    fn record(&mut self, demand: Demand) {
        if demand.is_starting {
            self.starting = self.starting.max(Some(demand.level));
            return;
        }
        let reported = Reported { level: demand.level.into(), loss: demand.loss };
        let of_kind = if demand.loss.is_heavy() { &mut self.lossy } else { &mut self.sound };
        *of_kind = Some(of_kind.map_or(reported, |former| former.max(reported)));
    }

    const fn is_empty(&self) -> bool {
        self.starting.is_none() && self.sound.is_none() && self.lossy.is_none()
    }

    /// Returns the next report.
    fn pop(&mut self) -> Option<Demand> {
        if let Some(level) = self.starting.take() {
            return Some(Demand { level, is_starting: true, loss: LossClass::default() });
        }
        let Reported { level, loss } = self.sound.take().or_else(|| self.lossy.take())?;
        Some(Demand { level: u8::try_from(level).unwrap_or(u8::MAX), is_starting: false, loss })
    }
}

#[derive(Clone, Copy, Debug)]
struct Sender {
    pending: Pending,
    /// Time of the last packet.
    heard: Option<Instant>,
    reported: Instant,
    /// Time before which no report is sent.
    not_before: Instant,
}

impl Sender {
    fn is_heard(&self, now: Instant) -> bool {
        self.heard.is_some_and(|at| now.since(at) <= HEARD_TIME)
    }

    /// Whether reports can be sent now.
    fn is_due(&self, now: Instant) -> bool {
        !self.pending.is_empty() && self.is_heard(now) && self.not_before <= now
    }
}

/// Reports by sender.
#[derive(Debug, Default)]
pub(super) struct RelayedDemand {
    senders: BTreeMap<SocketAddr, Sender>,
}

impl RelayedDemand {
    /// Records a report. Returns false if there is no room for another sender. A sender of whom no packet
    /// has come makes room, so that no gateway fills the table with addresses.
    pub(super) fn record(&mut self, now: Instant, sender: SocketAddr, demand: Demand) -> bool {
        let place = self.place(now, sender);
        place.is_some_and(|place| {
            place.pending.record(demand);
            true
        })
    }

    /// Whether packets of a sender have come of late. The first question begins to watch for packets.
    pub(super) fn hears(&mut self, now: Instant, sender: SocketAddr) -> bool {
        self.place(now, sender).is_some_and(|place| place.is_heard(now))
    }

    /// Returns the place of a sender, if there is room.
    fn place(&mut self, now: Instant, sender: SocketAddr) -> Option<&mut Sender> {
        if !self.senders.contains_key(&sender) && self.senders.len() >= SENDERS_MAX {
            let unheard = self.senders.iter().find(|(_, sender)| sender.heard.is_none());
            let unheard = unheard.map(|(address, _)| *address)?;
            self.senders.remove(&unheard);
        }
        let fresh =
            Sender { pending: Pending::default(), heard: None, reported: now, not_before: Instant::ZERO };
        let sender = self.senders.entry(sender).or_insert(fresh);
        // Repeated reports keep no place for a sender that is not heard.
        if sender.heard.is_some() {
            sender.reported = now;
        }
        Some(sender)
    }

    /// Notes a packet of a group.
    pub(super) fn on_packet(&mut self, now: Instant, source: SocketAddr) {
        if let Some(sender) = self.senders.get_mut(&source) {
            sender.heard = Some(now);
        }
    }

    /// Forgets senders of which nobody reports, and reports to senders that are heard no more.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.senders.retain(|_, sender| {
            if sender.heard.is_some() && !sender.is_heard(now) {
                sender.pending = Pending::default();
            }
            let kept = if sender.heard.is_some() { KEPT_TIME } else { UNHEARD_TIME };
            now.since(sender.reported) < kept
        });
    }

    /// Returns the next report that is due, and the sender.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(SocketAddr, Message)> {
        let (to, sender) = self.senders.iter_mut().find(|(_, sender)| sender.is_due(now))?;
        let demand = sender.pending.pop()?;
        if sender.pending.is_empty() {
            sender.not_before = now + PAUSE;
        }
        Some((*to, Message::Report(demand)))
    }

    /// Returns the time of the next report to a sender that is heard.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.senders.values().filter(|sender| !sender.pending.is_empty());
        waiting.filter_map(|sender| Some(sender.not_before.max(sender.heard?))).min()
    }

    /// Number of senders.
    pub(super) fn len(&self) -> usize {
        self.senders.len()
    }
}
