//! The simplest control: a single channel at a rate chosen by the operator, or at the highest rate that
//! receivers sustain by their reports. Not fair to other traffic; for dedicated networks.

mod search;
#[cfg(test)]
mod tests;

use headwater_wire::Cci;
use headwater_wire::cci::WebrcCci;

use crate::auth::{DEMAND_LEAD_MAX, lead};
use crate::control::{
    Arrival, Departure, Membership, Overload, ReceiverControl, Reception, ReceptionReport, SenderControl,
    Value, Wishes,
};
use crate::machine::{ChannelId, Ecn};
use crate::measure::SequenceTracker;
use crate::pacing::{BURST, Pacer, RateCap};
use crate::rate::Rate;
use crate::time::{Duration, Instant};

use self::search::RateSearch;
pub use self::search::RateSearchConfig;

/// Bits of a full packet.
const PACKET_BITS: f64 = 11_520.0;

/// Sends at one rate on the base channel: a constant rate, or a rate that the sender finds.
///
/// If the driver cannot sustain a constant rate, the sender settles at an even rate somewhat below the
/// driver's, and probes a higher rate from time to time. A rate that is found is the highest rate that
/// receivers and driver sustain; receivers report to the roster ([`crate::roster`]).
///
/// CCI: slot 0, channel 0 and a packet sequence number that counts every packet, modulo 2^16, so that
/// receivers detect losses.
#[derive(Clone, Debug)]
pub struct FixedSender {
    pacer: Pacer,
    sequence: u16,
    limit: RateLimit,
}

/// Choice of the rate.
#[derive(Clone, Debug)]
enum RateLimit {
    /// The constant rate, up to the rate that the driver sends.
    Driver(Box<RateCap>),
    Search(Box<RateSearch>),
}

impl FixedSender {
    /// Returns a sender at `rate`, counted over UDP payload, whose first packet leaves at `start`.
    pub fn new(rate: Rate, start: Instant) -> Self {
        Self::limited(rate, RateLimit::Driver(Box::new(RateCap::new(rate))), start)
    }

    /// Returns a sender that finds its rate, whose first packet leaves at `start`.
    pub fn searching(config: RateSearchConfig, start: Instant) -> Self {
        let search = RateSearch::new(config);
        Self::limited(search.rate(), RateLimit::Search(Box::new(search)), start)
    }

    fn limited(rate: Rate, limit: RateLimit, start: Instant) -> Self {
        Self { pacer: Pacer::new(rate, BURST, start), sequence: 0, limit }
    }

    /// Follows the rate of the search.
    fn follow(&mut self, now: Instant) {
        if let RateLimit::Search(search) = &self.limit
            && search.rate() != self.pacer.rate()
        {
            self.pacer.set_rate(now, search.rate());
        }
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
            tells_levels: false,
            lateness: None,
        })
    }

    fn lead(&self) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
        let packets = |rate: Rate| rate.as_bits() as f64 / PACKET_BITS;
        match &self.limit {
            RateLimit::Driver(_) => lead(packets(self.pacer.rate()), 1),
            // As of many channels: there is room for the waiting packets at any rate.
            RateLimit::Search(search) => lead(packets(search.config().most), 2).min(DEMAND_LEAD_MAX),
        }
    }

    fn departed(&mut self, now: Instant, bytes: usize) {
        let late = now.since(self.pacer.next());
        let given_up = self.pacer.sent(now, bytes);
        self.sequence = self.sequence.wrapping_add(1);
        match &mut self.limit {
            RateLimit::Driver(cap) => {
                if cap.departed(now, self.pacer.rate(), late) {
                    self.pacer.set_rate(now, cap.rate());
                    self.pacer.set_burst(cap.burst());
                }
            }
            RateLimit::Search(search) => {
                search.departed(now, given_up);
                self.follow(now);
            }
        }
    }

    fn paused(&mut self, now: Instant) {
        self.pacer.pause(now);
    }

    fn overload(&self) -> Option<Overload> {
        match &self.limit {
            RateLimit::Driver(cap) => cap.overload(),
            RateLimit::Search(_) => None,
        }
    }

    fn reported(&mut self, now: Instant, report: &ReceptionReport) {
        if let RateLimit::Search(search) = &mut self.limit {
            search.report(now, report);
            self.follow(now);
        }
    }

    fn visit_counters(&self, visit: &mut dyn FnMut(&'static str, Value)) {
        if let RateLimit::Search(search) = &self.limit {
            visit("target_rate", Value::Rate(search.rate()));
            visit("counted_receivers", Value::Count(search.receivers() as u64));
            visit("reductions", Value::Count(search.reductions()));
        }
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
