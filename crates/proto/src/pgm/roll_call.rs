//! A roll call: before the first data, all receivers respond while queues are still empty.
//!
//! A receiver without losses sends nothing. The receiver's host therefore resolves the path to the source
//! (ARP, neighbour discovery) only when packets are lost, which means that a queue is full. The answer is
//! then lost in the same queue: the host retries each second, and the first NAK is seconds late.
//!
//! So SPMs announce the first packet as sent before the packet leaves. All receivers miss the packet, and NAK
//! within the back-off. The packet follows once receivers had time to NAK. To a receiver the roll call looks
//! like a lost first packet, which needs nothing beyond RFC 3208.

use super::ahead;
use crate::time::{Duration, Instant};

/// Time between the SPMs of a roll call: two SPMs that announce the first sequence number, two SPMs that
/// call.
const SPACING: Duration = Duration::from_millis(50);
const SPMS: u8 = 2;
/// Wait of the first packet after the call: back-offs are up to 50 or 100 ms, and hosts resolve the path.
const WAIT: Duration = Duration::from_millis(200);
/// Number of answers after which the first packet leaves at once: data suppresses further NAKs.
const ANSWERS_MAX: u16 = 64;

/// Progress of a roll call.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollCall {
    /// Number of SPMs of the present kind sent.
    spms: u8,
    call: Option<Call>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    /// Sequence number of the first packet.
    sequence: u32,
    at: Instant,
    answers: u16,
}

impl RollCall {
    pub(super) const fn new() -> Self {
        Self { spms: 0, call: None }
    }

    /// Returns the time of the next SPM of the roll call, given the time `last` of the last SPM; `None` if no
    /// SPM is needed.
    pub(super) fn spm_due(&self, last: Option<Instant>, has_data: bool) -> Option<Instant> {
        let is_open = self.call.is_none() && has_data || self.call.is_some() && self.spms < SPMS;
        is_open.then(|| last.map_or(Instant::ZERO, |last| last + SPACING))
    }

    /// Handles an SPM that leaves at `now`, while the first packet `next` waits if there is data. Returns
    /// whether the SPM announces the first packet as sent.
    pub(super) fn spm(&mut self, now: Instant, next: u32, has_data: bool) -> bool {
        if self.call.is_none() && has_data && self.spms >= SPMS {
            *self = Self { spms: 0, call: Some(Call { sequence: next, at: now, answers: 0 }) };
        }
        // An SPM long before the data reaches no receiver that starts later.
        self.spms = if has_data || self.call.is_some() { self.spms.saturating_add(1) } else { 0 };
        // Later SPMs (answers to SPMRs) are for receivers that start now, which begin with the first packet.
        self.is_withheld(next) && self.spms <= SPMS
    }

    /// Whether `next`, the next packet, was announced as sent and is withheld.
    pub(super) fn is_withheld(&self, next: u32) -> bool {
        self.call.is_some_and(|call| call.sequence == next)
    }

    /// Returns the earliest departure time of the first packet; `None` before the call.
    pub(super) fn ends(&self) -> Option<Instant> {
        let call = self.call?;
        Some(if call.answers < ANSWERS_MAX { call.at + WAIT } else { call.at })
    }

    /// Handles a NAK for `sequence`. Returns the time since the call, if the NAK answers the call.
    pub(super) fn answer(&mut self, now: Instant, sequence: u32) -> Option<Duration> {
        let call = self.call.as_mut().filter(|call| ahead(sequence, call.sequence) == 0)?;
        call.answers = call.answers.saturating_add(1);
        Some(now.since(call.at))
    }
}
