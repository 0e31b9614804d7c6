//! Reports of the levels that a receiver needs, to a sender that sends no others
//! ([`crate::layering::demand`]).
//!
//! Receivers wait for a random time before a report, and stay silent if the base channel meanwhile shows that
//! another receiver has reported as much. The exponential distribution of the times keeps the reports few
//! whatever the number of receivers (Nonnenmacher and Biersack 1999). A receiver that has reported its start
//! does not wait during the rest of the start, unless the base channel shows that many receivers start. Nor
//! does a receiver wait whose own report is the highest of the round: few receivers have reported that level.
//! In the next round such a receiver reports early, and so has time to repeat reports that are lost.

use core::net::SocketAddr;

use headwater_wire::extensions::{DemandEcho, Levels};
use headwater_wire::rtt::{Demand, LossClass, Message};

use crate::control::{LevelNeed, Reception};
use crate::layering::demand::ROUND;
use crate::machine::{Destination, Ecn, Transmit};
use crate::rng::{Seed, Stream, crowd_part};
use crate::time::{Duration, Instant};

/// Longest wait for a report without which the receiver waits for packets.
const SOON: Duration = Duration::from_millis(250);
/// The same if the sender has room for many receivers that start.
const AMONG_MANY: Duration = Duration::from_secs(2);
/// Longest wait for a report of a level held.
const KEEP: Duration = Duration::from_secs(6);
/// Shortest time between two reports: a step of a start takes as long.
const SPACING: Duration = Duration::from_millis(20);
/// Times after a report without an echo until the next one: after the first report, and after each later one
/// up to [`TRIES`], behind which a round has one report. A level stops after a whole round without a report:
/// if 30 % of the reports are lost, so are all of a round once in ten thousand rounds.
const RETRY_FIRST: Duration = Duration::from_millis(1_250);
const RETRY: Duration = Duration::from_secs(1);
/// Number of reports in a row without an echo after which the sender counts as out of reach: those of a round
/// if the sender has echoed any report, else fewer, as perhaps all receivers repeat theirs.
const TRIES: usize = 8;
const TRIES_UNKNOWN: usize = 3;
/// The first time during a start.
const START_RETRY: Duration = Duration::from_millis(600);
/// Longest time during a start, which lasts some seconds.
const START_RETRY_MAX: Duration = Duration::from_secs(2);
/// Fewest packets of a round whose loss is told.
const LOSS_PACKETS: u64 = 50;

/// Last report of a round.
#[derive(Clone, Copy, Debug)]
struct Sent {
    round: u8,
    need: LevelNeed,
    /// Highest level that the sender sent before the report.
    ceiling: u8,
    /// Time until which an effect is awaited.
    until: Instant,
}

impl Sent {
    /// Whether levels have come since in the same start: the sender sends them.
    fn rises_to(&self, need: LevelNeed) -> bool {
        need.is_starting && need.level > self.need.level
    }
}

/// Highest levels echoed in a round.
#[derive(Clone, Copy, Debug, Default)]
struct Echoed {
    round: u8,
    /// Of receivers that lose less than half of the packets.
    sound: u8,
    /// Of the others, and the least loss of these.
    lossy: (u8, LossClass),
}

impl Echoed {
    fn record(&mut self, echo: DemandEcho) {
        if echo.round != self.round {
            *self = Self { round: echo.round, ..Self::default() };
        }
        if echo.loss.is_heavy() {
            self.lossy = (echo.level, echo.loss);
        } else {
            self.sound = echo.level;
        }
    }

    /// Whether the sender knows of a receiver that needs a level, and that loses no more.
    fn covers(&self, level: u16, loss: LossClass) -> bool {
        let (lossy, least) = self.lossy;
        let is_known = u16::from(lossy) > level || (u16::from(lossy) == level && least <= loss);
        u16::from(self.sound) >= level || (loss.is_heavy() && is_known)
    }
}

/// Reports of a receiver. Memory: constant.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    stream: Stream,
    sender: Option<SocketAddr>,
    need: LevelNeed,
    /// Highest level that the sender sends.
    ceiling: u8,
    echoed: Echoed,
    /// Whether this receiver has reported its start, and the sender has not echoed its level since.
    leads: bool,
    /// Round and level of this receiver's last report.
    told: (u8, u16),
    /// Whether the last report was the highest of the round before: few receivers have reported that level.
    has_led: bool,
    /// Whether the sender has echoed a report.
    is_reached: bool,
    /// Whether the sender knows the level held, and does not send it.
    is_bounded: bool,
    /// Longest wait, and time, of the next report.
    due: Option<(Duration, Instant)>,
    sent: Option<Sent>,
    /// Earliest time of the next report.
    earliest: Instant,
    /// Number of reports since a report was last needless.
    unheard: usize,
    /// Packets at the beginning of the round, and the loss of the round before.
    before: Reception,
    loss: LossClass,
}

impl Reporter {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            stream: seed.stream("demand/reporter", 0),
            sender: None,
            need: LevelNeed { level: 0, next: 0, is_starting: false },
            ceiling: 0,
            echoed: Echoed::default(),
            leads: false,
            told: (0, 0),
            has_led: false,
            is_reached: false,
            is_bounded: false,
            due: None,
            sent: None,
            earliest: Instant::ZERO,
            unheard: 0,
            before: Reception::default(),
            loss: LossClass::default(),
        }
    }

    /// Handles a packet that announces the sender's levels, or is the first of a level, with the levels
    /// announced last, the levels the receiver needs now, and the packets received so far.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        sender: SocketAddr,
        levels: Option<Levels>,
        need: LevelNeed,
        reception: Reception,
    ) {
        if self.sender.replace(sender) != Some(sender) {
            // What another sender has echoed, and the loss of its packets, tell nothing of this one.
            self.reset();
            (self.echoed, self.leads, self.is_bounded) = (Echoed::default(), false, false);
            (self.told, self.has_led, self.is_reached) = ((0, 0), false, false);
            (self.before, self.loss) = (reception, LossClass::default());
        }
        self.need = need;
        let Some((levels, echo)) = levels.and_then(|levels| Some((levels, levels.demand?))) else {
            self.reset();
            return;
        };
        if echo.round != self.echoed.round {
            self.judge_loss(reception);
            self.has_led = self.is_highest();
            // The numbers of rounds repeat.
            self.told = (0, 0);
        }
        self.echoed.record(echo);
        self.is_reached |= echo.level > 0;
        self.ceiling = levels.ceiling;
        if self.sent.is_some_and(|sent| levels.ceiling > sent.ceiling) {
            // The sender makes room, though not yet enough.
            self.unheard = self.unheard.min(1);
        }
        let Some(longest) = self.longest_wait(levels.ceiling, echo.is_open) else {
            self.reset();
            return;
        };
        let sent = self.sent.filter(|sent| sent.round == echo.round);
        let is_same = |sent: Sent| sent.need == need || (self.unheard > 1 && !sent.rises_to(need));
        let is_waiting = sent.is_some_and(|sent| now < sent.until && is_same(sent));
        // A report without effect, also of the round before, is lost.
        let is_lost = sent.is_some() || (1..self.tries()).contains(&self.unheard);
        let longest = if is_lost { longest.min(SOON) } else { longest };
        if !is_waiting && self.due.is_none_or(|(due, _)| longest != due) {
            let wait = longest.as_secs_f64() * crowd_part(&mut self.stream);
            self.due = Some((longest, (now + Duration::from_secs_f64(wait)).max(self.earliest)));
        }
    }

    /// Forgets reports: none is necessary.
    fn reset(&mut self) {
        (self.due, self.sent, self.unheard) = (None, None, 0);
    }

    /// Returns the longest wait before a report; `None` if no report is necessary.
    fn longest_wait(&mut self, ceiling: u8, is_open: bool) -> Option<Duration> {
        let LevelNeed { level, next, is_starting } = self.need;
        self.leads &= !is_open;
        let exceeds = next > ceiling.into();
        let urgent = match (self.leads || (self.is_highest() && !is_open), is_open) {
            (true, _) => Duration::ZERO,
            (false, true) => AMONG_MANY,
            (false, false) => SOON,
        };
        if is_starting {
            return exceeds.then_some(urgent);
        }
        // The sender bounds the levels of receivers that lose most packets, of which this is one.
        let is_bounded = level > ceiling.into() && u16::from(self.echoed.lossy.0) >= level;
        self.is_bounded = is_bounded || (self.is_bounded && level > ceiling.into());
        if is_bounded || self.echoed.covers(level, self.loss) {
            self.leads = false;
            return None;
        }
        // The room for a start ends with a report of the level at which the start ended.
        let is_urgent = self.leads || (exceeds && !self.loss.is_heavy() && !self.is_bounded);
        Some(match is_urgent {
            true => urgent,
            false if self.has_led => SOON,
            false => KEEP,
        })
    }

    /// Returns the number of reports in a row without an echo that are repeated soon.
    const fn tries(&self) -> usize {
        if self.is_reached { TRIES } else { TRIES_UNKNOWN }
    }

    /// Whether the last report is the highest of the round.
    fn is_highest(&self) -> bool {
        self.told.1 > 0 && self.told == (self.echoed.round, self.echoed.sound.into())
    }

    /// Computes the loss of the round that has ended.
    fn judge_loss(&mut self, reception: Reception) {
        let before = core::mem::replace(&mut self.before, reception);
        let lost = reception.lost.saturating_sub(before.lost);
        let sent = reception.packets.saturating_sub(before.packets) + lost;
        #[expect(clippy::cast_precision_loss, reason = "packets of a round")]
        let part = lost as f64 / sent.max(1) as f64;
        self.loss = if sent < LOSS_PACKETS { LossClass::default() } else { LossClass::of(part) };
    }

    /// Stops the reports until the next packet.
    pub(super) fn stop(&mut self) {
        self.reset();
        (self.sender, self.leads) = (None, false);
    }

    /// Returns the sender if the sender does not react to reports.
    pub(super) fn unheard(&self) -> Option<SocketAddr> {
        self.sender.filter(|_| self.unheard > self.tries())
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due.map(|(_, at)| at)
    }

    /// Returns the report due at `now`, if any, written at the start of `buffer`.
    pub(super) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.due.take_if(|(_, at)| *at <= now)?;
        let destination = Destination::Unicast(self.sender?);
        let LevelNeed { level, is_starting, .. } = self.need;
        if self.sent.is_some_and(|sent| sent.rises_to(self.need)) {
            self.unheard = 0;
        }
        let retry = match (is_starting, self.unheard) {
            (true, 0) => START_RETRY,
            (false, 0) => RETRY_FIRST,
            (_, tried) if tried + 1 < self.tries() => RETRY,
            (true, _) => START_RETRY_MAX,
            (false, _) => ROUND,
        };
        self.unheard += 1;
        self.earliest = now + SPACING;
        let (round, need, ceiling) = (self.echoed.round, self.need, self.ceiling);
        self.sent = Some(Sent { round, need, ceiling, until: now + retry });
        self.leads |= is_starting;
        self.told = (round, level);
        let level = u8::try_from(level).unwrap_or(u8::MAX);
        let report = Message::Report(Demand { level, is_starting, loss: self.loss }).emit();
        buffer[..report.len()].copy_from_slice(&report);
        Some(Transmit { destination, bytes: report.len(), ecn: Ecn::NotCapable })
    }
}

#[cfg(test)]
mod tests;
