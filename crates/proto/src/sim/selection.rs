//! Selective participation: joins of the next group, and leaves of the top group.

use core::net::SocketAddr;

use headwater_wire::sim::Holding;

use super::schedule::duration;
use crate::machine::{Destination, Ecn, Transmit};
use crate::time::{Duration, Instant};

/// Decision on the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Stay,
    Join,
    Leave,
}

/// Number of reports after a congested report in which a fall of the rate is attributed to the same queue.
/// The sender takes a request to decide and another to show the decrease. If the sender left the group
/// unchanged after a decrease, other receivers of the group report the same queue two requests later still.
const OWN: u16 = 4;

/// An uncongested interval may have congested reports up to a fraction of 1/`OTHERWISE`: beside flows that
/// fill queues by themselves, as TCP does, ten consecutive reports without a mark are rare.
const OTHERWISE: u16 = 5;

/// A selection interval: the requests since the last change, or since the last interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// Number of requests in an interval.
    interval: u16,
    /// Relative fall between two reports that counts as a decrease.
    fall: f64,
    reports: u16,
    congested: u16,
    has_fallen: bool,
    /// Whether the rate fell for the sake of other receivers: this receiver was not congested.
    has_yielded: bool,
    /// Number of reports since the last congested report.
    calm: u16,
    /// Cumulative rate of the top group at the first and the latest report.
    first: Option<f64>,
    latest: Option<f64>,
}

impl Selection {
    /// Creates a selection with intervals of `interval` requests, for a sender with the factor `decrease`.
    pub fn new(interval: u16, decrease: f64) -> Self {
        let fall = (1.0 - decrease) / 2.0;
        Self {
            interval,
            fall,
            reports: 0,
            congested: 0,
            has_fallen: false,
            has_yielded: false,
            calm: u16::MAX,
            first: None,
            latest: None,
        }
    }

    /// Discards all observations after a change of the subscription, or at the end of an interval.
    pub fn restart(&mut self) {
        *self = Self { calm: self.calm, ..Self::new(self.interval, 1.0 - 2.0 * self.fall) };
    }

    /// Handles an answered request, given whether the top group is congested, the group's cumulative rate if
    /// known, and the sender's additive step.
    pub fn report(&mut self, is_congested: bool, rate: Option<f64>, step: f64) -> Choice {
        self.reports += 1;
        self.congested += u16::from(is_congested);
        self.calm = if is_congested { 0 } else { self.calm.saturating_add(1) };
        if let Some(rate) = rate {
            let falls = self.latest.is_some_and(|before| rate <= before * (1.0 - self.fall));
            self.has_fallen |= falls;
            self.has_yielded |= falls && self.calm > OWN;
            self.latest = Some(rate);
            self.first.get_or_insert(rate);
        }
        if self.reports < self.interval {
            return Choice::Stay;
        }
        // A constant rate, as under the menu's bounds, brings no relief either. Neither does a rate that too
        // few packets arrive to measure.
        let stands = self.first.zip(self.latest).is_none_or(|(first, latest)| latest > first - step);
        // An uncongested receiver gains nothing more from a constant rate either. A bounded rate follows the
        // groups above: a receiver that waits for a fall stays below receivers with slower links.
        let is_held = self.first.zip(self.latest).is_some_and(|(first, latest)| latest < first + step);
        let has_room = self.has_yielded || is_held && !self.has_fallen;
        let choice = if has_room && OTHERWISE * self.congested <= self.reports {
            Choice::Join
        } else if 2 * self.congested > self.reports && stands && !self.has_fallen {
            Choice::Leave
        } else {
            Choice::Stay
        };
        self.restart();
        choice
    }
}

/// Time after which a change is announced again, because the first announcement may be lost.
const AGAIN: Duration = Duration::from_millis(250);
/// Time between two announcements of an unchanged subscription.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// Time without data of the session after which announcements stop.
const SILENCE: Duration = Duration::from_secs(10);

/// Announcer of the number of subscribed groups to the upstream end. Relays see no joins, and forward by
/// these announcements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Teller {
    session: u32,
    groups: u8,
    /// Source address of the session, and time of the last packet.
    to: Option<SocketAddr>,
    heard: Instant,
    told: Option<Instant>,
    due: Option<Instant>,
    is_repeated: bool,
}

impl Teller {
    /// Creates an announcer without subscribed groups, for the session's number in feedback.
    pub const fn new(session: u32) -> Self {
        let heard = Instant::ZERO;
        Self { session, groups: 0, to: None, heard, told: None, due: None, is_repeated: false }
    }

    /// Handles data from `from`. A new source must receive an announcement, though no sooner than a change is
    /// repeated.
    pub fn heard(&mut self, now: Instant, from: SocketAddr) {
        self.heard = now;
        let is_new = self.to.replace(from) != Some(from);
        if self.groups > 0 && (is_new || self.due.is_none()) {
            self.due = Some(self.told.map_or(now, |told| now.max(told + AGAIN)));
        }
    }

    /// Returns the source of the last data.
    pub const fn source(&self) -> Option<SocketAddr> {
        self.to
    }

    /// Sets the number of subscribed groups.
    pub fn hold(&mut self, now: Instant, groups: u16) {
        let groups = u8::try_from(groups).unwrap_or(u8::MAX);
        if groups != self.groups {
            (self.groups, self.due, self.is_repeated) = (groups, Some(now), false);
        }
    }

    /// Returns the time of the next announcement.
    pub fn due(&self) -> Option<Instant> {
        self.due.filter(|_| self.to.is_some())
    }

    /// Writes the announcement due at `now` to the start of `buffer`.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let to = self.to?;
        if self.due? > now {
            return None;
        }
        let wait = if self.is_repeated { EVERY } else { AGAIN };
        let is_alive = self.groups > 0 && now.since(self.heard) < SILENCE;
        (self.told, self.due, self.is_repeated) = (Some(now), is_alive.then(|| now + wait), true);
        let bytes = Holding { session: self.session, groups: self.groups }.emit();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Some(Transmit { destination: Destination::Unicast(to), bytes: bytes.len(), ecn: Ecn::NotCapable })
    }
}

/// Number of packets due since the last received packet. Above `DOUBTFUL` the group's rate counts as unknown;
/// above `CLOSED` the group counts as closed by the sender.
const DOUBTFUL: f64 = 1.5;
const CLOSED: f64 = 3.0;

/// Packets of a group. Times are the sender's timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// Sequence number and timestamp of the last packet of the previous request, and of the latest packet.
    before: Option<(u32, u32)>,
    latest: Option<(u32, u32)>,
    /// Packets per second, once two packets were received.
    rate: Option<f64>,
    is_doubtful: bool,
}

impl Measured {
    /// Records a received packet.
    pub fn record(&mut self, sequence: u32, stamp: u32) {
        if self.latest.is_none() {
            // The sender reopened the group: the rate must be measured again.
            self.rate = None;
        }
        self.latest = Some((sequence, stamp));
    }

    /// Begins a request, at the timestamp of the first packet of the request on any group.
    pub fn settle(&mut self, stamp: u32) {
        self.is_doubtful = false;
        if let (Some((first, from)), Some((last, to))) = (self.before, self.latest) {
            let (packets, time) = (last.wrapping_sub(first), to.wrapping_sub(from));
            if packets > 0 && time > 0 && packets < 1 << 31 && time < 1 << 31 {
                self.rate = Some(f64::from(packets) / duration(time).as_secs_f64());
            } else if let Some(rate) = self.rate.filter(|_| packets == 0) {
                let silence = u32::try_from(stamp.wrapping_sub(to).cast_signed()).unwrap_or(0);
                let due = rate * duration(silence).as_secs_f64();
                if due > CLOSED {
                    // The sender closed the group: the group above carries the rate now.
                    *self = Self { rate: Some(0.0), ..Self::default() };
                    return;
                }
                self.is_doubtful = due > DOUBTFUL;
            }
        }
        self.before = self.latest;
    }

    /// Whether any packet arrived since the join.
    pub const fn is_heard(&self) -> bool {
        self.latest.is_some() || self.rate.is_some()
    }

    /// Packets per second up to the last request: 0 for a closed group, `None` while the rate is unknown.
    pub fn rate(&self) -> Option<f64> {
        self.rate.filter(|_| !self.is_doubtful)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ten reports come to: whether each says congestion, and the rate.
    fn choice(reports: &[(bool, f64)]) -> Choice {
        let mut selection = Selection::new(10, 0.875);
        let all = reports.iter().map(|(congested, rate)| selection.report(*congested, Some(*rate), 1.0));
        all.last().unwrap_or(Choice::Stay)
    }

    fn interval(congested: &[u8], rate: impl Fn(u8) -> f64) -> Choice {
        let reports: Vec<_> = (0..10).map(|report| (congested.contains(&report), rate(report))).collect();
        choice(&reports)
    }

    #[test]
    fn joins_when_others_make_the_rate_fall() {
        let falls = |report: u8| if report < 6 { 100.0 } else { 87.5 };
        assert_eq!(interval(&[], falls), Choice::Join);
        assert_eq!(interval(&[0, 9], falls), Choice::Join, "a mark now and then is no congestion");
        assert_eq!(interval(&[0, 1, 9], falls), Choice::Stay);
        assert_eq!(interval(&[4], falls), Choice::Stay, "that may be the answer to its own");
        let falls_at = |place: u8| interval(&[1], |report| if report < place { 100.0 } else { 87.5 });
        assert_eq!((falls_at(5), falls_at(6)), (Choice::Stay, Choice::Join), "of one queue for four reports");
        assert_eq!(interval(&[], |report| 100.0 + f64::from(report)), Choice::Stay, "nobody yields");
    }

    #[test]
    fn joins_when_a_bound_holds_the_rate() {
        assert_eq!(interval(&[], |_| 100.0), Choice::Join);
        assert_eq!(
            interval(&[3], |report| 100.0 - 0.2 * f64::from(report)),
            Choice::Join,
            "it follows what it is made of"
        );
        assert_eq!(interval(&[], |report| 100.0 + f64::from(report / 5)), Choice::Stay, "it rises");
        assert_eq!(interval(&[1, 4, 7], |_| 100.0), Choice::Stay, "there is no room");
        let mut selection = Selection::new(10, 0.875);
        let last = (0..10).map(|_| selection.report(false, None, 1.0)).last();
        assert_eq!(last, Some(Choice::Stay), "nothing is known of the rate");
    }

    #[test]
    fn leaves_when_the_rate_does_not_fall() {
        let most = [0, 1, 2, 3, 7, 9];
        assert_eq!(interval(&most, |report| 100.0 + 2.0 * f64::from(report)), Choice::Leave);
        assert_eq!(interval(&most, |_| 100.0), Choice::Leave, "a bound holds it: nothing will change");
        assert_eq!(interval(&most, |report| if report < 6 { 100.0 } else { 87.5 }), Choice::Stay);
        assert_eq!(interval(&most[1..], |_| 100.0), Choice::Stay, "half is not most");
        let mut selection = Selection::new(10, 0.875);
        let last = (0..10).map(|_| selection.report(true, None, 1.0)).last();
        assert_eq!(last, Some(Choice::Leave), "so little comes that nothing is known of the rate");
    }

    const RELAY: ([u8; 4], u16) = ([10, 0, 0, 1], 7_291);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// What is told up to an instant, and when.
    fn told(teller: &mut Teller, until: Instant) -> Vec<(Instant, u8)> {
        let mut told = Vec::new();
        while let Some(due) = teller.due().filter(|due| *due <= until) {
            let mut buffer = [0; 64];
            let transmit = teller.poll_transmit(due, &mut buffer).unwrap();
            told.push((due, Holding::parse(&buffer[..transmit.bytes]).unwrap().groups));
        }
        told
    }

    #[test]
    fn a_change_is_told_twice_then_now_and_then_until_the_session_falls_silent() {
        let mut teller = Teller::new(7);
        teller.hold(at(0), 1);
        assert_eq!(told(&mut teller, at(10)), [], "nobody was heard");
        teller.heard(at(20), RELAY.into());
        assert_eq!(told(&mut teller, at(4_300)), [(at(20), 1), (at(270), 1), (at(2_270), 1), (at(4_270), 1)]);
        teller.hold(at(4_300), 3);
        let after: Vec<_> = told(&mut teller, at(60_000));
        assert_eq!(after[..3], [(at(4_300), 3), (at(4_550), 3), (at(6_550), 3)]);
        assert!(after.last().unwrap().0 <= at(13_000), "{after:?}");
        teller.heard(at(70_000), RELAY.into());
        assert_eq!(told(&mut teller, at(70_000)), [(at(70_000), 3)]);
        teller.hold(at(70_001), 0);
        assert_eq!(told(&mut teller, at(90_000)), [(at(70_001), 0)], "what is left needs no repetition");
    }

    #[test]
    fn who_sends_from_ever_other_ports_is_told_no_faster_than_changes() {
        let mut teller = Teller::new(7);
        teller.hold(at(0), 1);
        let mut count = 0;
        for ms in 0..1_000_u16 {
            teller.heard(at(ms.into()), ([10, 0, 0, 1], 1_000 + ms).into());
            count += told(&mut teller, at(ms.into())).len();
        }
        assert!(count <= 5, "{count}");
    }
}
