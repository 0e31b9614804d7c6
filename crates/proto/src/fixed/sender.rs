use headwater_wire::Cci;
use headwater_wire::cci::WebrcCci;

use crate::control::{Departure, Overload, SenderControl};
use crate::machine::{ChannelId, Ecn};
use crate::pacing::{BURST, DriverLoad, Pacer, Retry};
use crate::rate::Rate;
use crate::time::Instant;

/// A driver is overloaded that sends less than this part of what was asked for. What was asked for and is nearly sent stays.
const OVERLOADED: f64 = 0.75;
/// A driver that sends less than this part of what the sender settled at, or tries, has no room for it.
const ROOMY: f64 = 0.95;
/// Part of what the driver sent at which the sender settles.
const SETTLED: f64 = 0.9;
/// Rate over the one before that a sender tries which settled at less than was asked for.
const STEP: f64 = 1.1;

/// Sends at a fixed rate on the base channel.
///
/// If its driver cannot send so much, the sender settles at somewhat less than the driver sends, evenly, and tries more from time to time.
///
/// CCI: slot 0, channel 0 and a packet sequence number that counts every packet, modulo 2^16, so that receivers see
/// what was lost.
#[derive(Clone, Debug)]
pub struct Sender {
    pacer: Pacer,
    sequence: u16,
    /// What was asked for.
    asked: Rate,
    load: DriverLoad,
    /// What was sent in the last window, as a part of the rate, if that was too little: two windows in a row decide.
    share: Option<f64>,
    retry: Retry,
}

impl Sender {
    /// A sender at `rate`, counted over UDP payload, whose first packet leaves at `start`.
    pub fn new(rate: Rate, start: Instant) -> Self {
        Self {
            pacer: Pacer::new(rate, BURST, start),
            sequence: 0,
            asked: rate,
            load: DriverLoad::default(),
            share: None,
            retry: Retry::default(),
        }
    }

    fn cci(&self) -> Cci {
        let cci = WebrcCci { slot: 0, channel: 0, sequence: self.sequence.into() };
        cci.short().expect("every number is as narrow as its field")
    }
}

impl SenderControl for Sender {
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
            ceiling: None,
        })
    }

    fn departed(&mut self, now: Instant, bytes: usize) {
        let given_up = self.pacer.sent(now, bytes);
        self.sequence = self.sequence.wrapping_add(1);
        let rate = self.pacer.rate();
        match self.load.record(now, given_up) {
            Some(sample) if sample.share < if rate < self.asked { ROOMY } else { OVERLOADED } => {
                let share = self.share.replace(sample.share);
                if let Some(before) = share {
                    self.share = None;
                    self.retry.settle(now);
                    self.pacer.set_rate(now, scaled(rate, SETTLED * f64::midpoint(before, sample.share)));
                }
            }
            Some(_) => {
                self.share = None;
                if rate < self.asked && self.retry.is_due(now) {
                    self.pacer.set_rate(now, scaled(rate, STEP).min(self.asked));
                }
            }
            None => {}
        }
    }

    fn overload(&self) -> Option<Overload> {
        let rate = self.pacer.rate();
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = rate.as_bits() as f64 / self.asked.as_bits() as f64;
        (rate < self.asked).then_some(Overload { share, ceiling: None })
    }
}

/// A rate times a factor; 1 bit/s at least.
fn scaled(rate: Rate, factor: f64) -> Rate {
    #[expect(clippy::cast_precision_loss, reason = "a rate inside an equation")]
    let bits = rate.as_bits() as f64 * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let bits = bits as u64;
    Rate::from_bits(bits).unwrap_or(rate)
}
