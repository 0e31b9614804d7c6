use crate::control::{Arrival, Membership, ReceiverControl, Reception, Wishes};
use crate::machine::{ChannelId, Ecn};
use crate::measure::SequenceTracker;
use crate::time::Instant;

/// Subscribes to the base channel from start to stop and counts losses.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    held: bool,
    wishes: Wishes,
    tracker: SequenceTracker,
    marked: u64,
}

impl Receiver {
    /// Returns a receiver without any subscription.
    pub fn new() -> Self {
        Self::default()
    }

    fn hold(&mut self, held: bool) {
        if self.held != held {
            self.held = held;
            let channel = ChannelId::BASE;
            self.wishes.push(if held { Membership::Join(channel) } else { Membership::Leave(channel) });
        }
    }
}

impl ReceiverControl for Receiver {
    fn start(&mut self, _now: Instant) {
        self.tracker.pause();
        self.hold(true);
    }

    fn stop(&mut self, _now: Instant) {
        self.hold(false);
    }

    fn arrived(&mut self, _now: Instant, arrival: &Arrival<'_>) {
        if let Ok(sequence) = arrival.cci.webrc().map(|cci| cci.sequence)
            && let Ok(sequence) = u16::try_from(sequence)
        {
            self.tracker.record(sequence);
        }
        self.marked += u64::from(arrival.ecn == Ecn::CongestionExperienced);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.wishes.pop()
    }

    fn reception(&self) -> Reception {
        Reception { packets: self.tracker.received(), lost: self.tracker.lost(), marked: self.marked }
    }
}
