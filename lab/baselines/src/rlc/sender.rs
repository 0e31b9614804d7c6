//! RLC sender: all layers, with bursts.

use headwater_wire::cci::RlcCci;

use super::layers::Layers;
use headwater_proto::control::{Departure, SenderControl};
use headwater_proto::layering::Layering;
use headwater_proto::layering::turns::{Schedule, Turns};
use headwater_proto::machine::{ChannelId, Ecn};
use headwater_proto::time::Instant;

/// Sends on [`Layers`] by schedule. The schedule determines each packet's number, so packets skipped by a
/// late sender look lost. Time per packet: O(layers).
#[derive(Clone, Debug)]
pub struct Sender(Turns<Layers>);

impl Sender {
    /// Creates a sender that starts with `layers`.
    pub fn new(layers: Layers) -> Self {
        Self(Turns::new(layers))
    }

    /// Returns the layers, for queries of the schedule.
    pub fn layers(&self) -> &Layers {
        self.0.schedule()
    }
}

impl SenderControl for Sender {
    fn channels(&self) -> u16 {
        self.levels()
    }

    fn levels(&self) -> u16 {
        self.layers().level_count()
    }

    fn layering(&self) -> Option<&dyn Layering> {
        Some(self.layers())
    }

    fn next_departure(&self) -> Option<Instant> {
        Some(self.0.due())
    }

    fn departure(&self, now: Instant) -> Option<Departure> {
        let (level, number) = (self.0.level(), self.0.number());
        #[expect(clippy::cast_possible_truncation, reason = "numbers wrap, and layers are at most 24")]
        let cci = RlcCci {
            synchronization_point: self.layers().is_point(level, number),
            layer: level as u8,
            sequence: number as u16,
        };
        let (channel, ecn) = (ChannelId(level), Ecn::NotCapable);
        (self.0.due() <= now).then(|| Departure {
            channel,
            level,
            at: self.0.at(),
            cci: cci.into(),
            ecn,
            ceiling: None,
        })
    }

    fn departed(&mut self, now: Instant, _bytes: usize) {
        self.0.departed(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.0.give_up(now);
    }
}
