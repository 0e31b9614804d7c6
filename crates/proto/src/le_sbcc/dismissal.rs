//! Dismissal: a receiver that holds the rate at the floor loses its say. The receiver's path cannot carry the
//! session, or its NAKs are forged.

use core::net::IpAddr;

use crate::time::{Duration, Instant};

/// Time at the floor before a dismissal.
const HOLD: Duration = Duration::from_secs(10);
/// Reductions at the floor that show that a receiver holds the rate there.
const REDUCTIONS_MIN: u64 = 3;
/// Duration of a dismissal.
pub(super) const DISMISSED: Duration = Duration::from_secs(300);
/// Maximum number of dismissed receivers; a further receiver takes the place of the one dismissed first.
const DISMISSED_MAX: usize = 256;

/// Receivers dismissed from a session, and how long the rate has been at the floor.
#[derive(Clone, Debug, Default)]
pub(super) struct Dismissals {
    /// Time since which the rate is at the floor, and the number of reductions at that time.
    held: Option<(Instant, u64)>,
    until: Vec<(IpAddr, Instant)>,
}

impl Dismissals {
    /// Records whether the rate is at the floor. Returns whether a receiver has held the rate there for
    /// [`HOLD`].
    pub(super) fn is_due(&mut self, now: Instant, is_at_floor: bool, reductions: u64) -> bool {
        if !is_at_floor {
            self.held = None;
            return false;
        }
        let (since, before) = *self.held.get_or_insert((now, reductions));
        now.since(since) >= HOLD && reductions >= before + REDUCTIONS_MIN
    }

    /// Dismisses a receiver.
    pub(super) fn dismiss(&mut self, now: Instant, receiver: IpAddr) {
        let receiver = receiver.to_canonical();
        self.held = None;
        self.until.retain(|(known, until)| *until > now && *known != receiver);
        if self.until.len() == DISMISSED_MAX {
            self.until.remove(0);
        }
        self.until.push((receiver, now + DISMISSED));
    }

    /// Whether a receiver is dismissed.
    pub(super) fn contains(&self, now: Instant, receiver: IpAddr) -> bool {
        let receiver = receiver.to_canonical();
        self.until.iter().any(|(known, until)| *known == receiver && *until > now)
    }
}
