//! Announcements of the number of subscribed groups to the upstream end. Relays see no joins, and forward by
//! these announcements.

use core::net::SocketAddr;

use headwater_wire::sim::Holding;

use crate::machine::{Destination, Ecn, Transmit};
use crate::time::{Duration, Instant};

/// Time after which a change is announced again, because the first announcement may be lost.
const AGAIN: Duration = Duration::from_millis(250);
/// Time between two announcements of an unchanged subscription.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// Time without data of the session after which announcements stop.
const SILENCE: Duration = Duration::from_secs(10);

/// Announcer of a session's subscription.
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

#[cfg(test)]
mod tests {
    use super::*;

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
