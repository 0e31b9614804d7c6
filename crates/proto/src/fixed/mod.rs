//! The simplest control: a single channel at a rate chosen by the operator. Not fair to other traffic; for
//! private networks.

#[cfg(test)]
mod tests;

use headwater_wire::Cci;
use headwater_wire::cci::WebrcCci;

use crate::auth::lead;
use crate::control::{
    Arrival, Departure, Membership, Overload, ReceiverControl, Reception, SenderControl, Wishes,
};
use crate::machine::{ChannelId, Ecn};
use crate::measure::SequenceTracker;
use crate::pacing::{BURST, Pacer, RateCap};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Bits of a full packet.
const PACKET_BITS: f64 = 11_520.0;

/// Sends at a fixed rate on the base channel.
///
/// If the driver cannot sustain the rate, the sender settles at an even rate somewhat below the driver's, and
/// probes a higher rate from time to time.
///
/// CCI: slot 0, channel 0 and a packet sequence number that counts every packet, modulo 2^16, so that
/// receivers detect losses.
#[derive(Clone, Debug)]
pub struct FixedSender {
    pacer: Pacer,
    sequence: u16,
    cap: RateCap,
}

impl FixedSender {
    /// Returns a sender at `rate`, counted over UDP payload, whose first packet leaves at `start`.
    pub fn new(rate: Rate, start: Instant) -> Self {
        Self { pacer: Pacer::new(rate, BURST, start), sequence: 0, cap: RateCap::new(rate) }
    }

    fn cci(&self) -> Cci {
        let cci = WebrcCci { slot: 0, channel: 0, sequence: self.sequence.into() };
        cci.short().expect("every number is as narrow as its field")
    }
}

impl SenderControl for FixedSender {
    fn channels(&self) -> u16 {
        1
    }

    fn levels(&self) -> u16 {
        1
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.pacer.next())
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        self.pacer.is_due(now).then(|| Departure {
            channel: ChannelId::BASE,
            level: 0,
            at: self.pacer.next(),
            cci: self.cci(),
            ecn: Ecn::NotCapable,
            levels: None,
        })
    }

    fn lead(&self) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
        let bits = self.pacer.rate().as_bits() as f64;
        lead(bits / PACKET_BITS, 1)
    }

    fn departed(&mut self, now: Instant, bytes: usize) {
        let given_up = self.pacer.sent(now, bytes);
        self.sequence = self.sequence.wrapping_add(1);
        if self.cap.departed(now, self.pacer.rate(), given_up) {
            self.pacer.set_rate(now, self.cap.rate());
        }
    }

    fn paused(&mut self, now: Instant) {
        self.pacer.pause(now);
    }

    fn overload(&self) -> Option<Overload> {
        self.cap.overload()
    }
}

/// Subscribes to the base channel from start to stop and counts losses.
#[derive(Clone, Debug, Default)]
pub struct FixedReceiver {
    held: bool,
    wishes: Wishes,
    tracker: SequenceTracker,
    marked: u64,
}

impl FixedReceiver {
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

impl ReceiverControl for FixedReceiver {
    fn start(&mut self, _now: Instant) {
        self.tracker.pause();
        self.hold(true);
    }

    fn stop(&mut self, _now: Instant) {
        self.hold(false);
    }

    fn arrived(&mut self, now: Instant, arrival: &Arrival<'_>) {
        if let Ok(sequence) = arrival.cci.webrc().map(|cci| cci.sequence)
            && let Ok(sequence) = u16::try_from(sequence)
        {
            self.tracker.record(now, sequence);
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
