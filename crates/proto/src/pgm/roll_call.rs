//! A roll call: before the first data, receivers show themselves while all queues are still empty.
//!
//! Who has missed nothing says nothing. A receiver's host then asks for the way to the source (ARP, neighbour
//! discovery) only when packets are lost, that is, when a queue is full, and the answer is lost in that queue
//! as well: it asks again each second, and its first NAK is seconds late. So SPMs say that the first packet
//! was sent before it is. All receivers miss it and ask for it, in their back-off; it follows once they have
//! had time to. To a receiver it looks like a first packet that was lost, which needs nothing of it that RFC
//! 3208 does not ask for.

use super::ahead;
use crate::time::{Duration, Instant};

/// Between the SPMs that begin it: two that tell receivers where to begin, two that call.
const SPACING: Duration = Duration::from_millis(50);
const SPMS: u8 = 2;
/// The first packet waits so long behind the call: back-offs are up to 50 or 100 ms, and hosts ask for their
/// way.
const WAIT: Duration = Duration::from_millis(200);
/// It waits no longer once so many have answered: data suppresses the others' NAKs.
const ANSWERS_MAX: u16 = 64;

/// How far a roll call is.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollCall {
    /// SPMs sent of the present kind.
    spms: u8,
    call: Option<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    /// The first packet.
    sequence: u32,
    at: Instant,
    answers: u16,
}

impl RollCall {
    pub(super) const fn new() -> Self {
        Self { spms: 0, call: None }
    }

    /// When the next SPM is due by it, where the last one left at `last`; `None` where it needs none.
    pub(super) fn spm_due(&self, last: Option<Instant>, has_data: bool) -> Option<Instant> {
        let is_open = self.call.is_none() && has_data || self.call.is_some() && self.spms < SPMS;
        is_open.then(|| last.map_or(Instant::ZERO, |last| last + SPACING))
    }

    /// An SPM leaves at `now`, and the first packet, `next`, waits where there is data: whether it says that
    /// that one was sent.
    pub(super) fn spm(&mut self, now: Instant, next: u32, has_data: bool) -> bool {
        if self.call.is_none() && has_data && self.spms >= SPMS {
            *self = Self { spms: 0, call: Some(Call { sequence: next, at: now, answers: 0 }) };
        }
        // One heard long before the data tells nothing to a receiver that came since.
        self.spms = if has_data || self.call.is_some() { self.spms.saturating_add(1) } else { 0 };
        // Others that follow (SPMR) are for receivers that come now: they begin with the first packet.
        self.is_withheld(next) && self.spms <= SPMS
    }

    /// Whether it was said that `next`, the next packet, was sent.
    pub(super) fn is_withheld(&self, next: u32) -> bool {
        self.call.is_some_and(|call| call.sequence == next)
    }

    /// When the first packet may leave; `None` before the call.
    pub(super) fn ends(&self) -> Option<Instant> {
        let call = self.call?;
        Some(if call.answers < ANSWERS_MAX { call.at + WAIT } else { call.at })
    }

    /// A receiver asks for `sequence`: how long ago the call was that it answers, if it does.
    pub(super) fn answer(&mut self, now: Instant, sequence: u32) -> Option<Duration> {
        let call = self.call.as_mut().filter(|call| ahead(sequence, call.sequence) == 0)?;
        call.answers = call.answers.saturating_add(1);
        Some(now.since(call.at))
    }
}
