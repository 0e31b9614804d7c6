//! Faults of a wire behind the queue: losses, and for fault tests delays, duplicates and changed bits.

use headwater_proto::Duration;
use headwater_proto::queue::ParameterError;

use super::Loss;
use headwater_proto::rng::{Coin, Stream};

use crate::chance::uniform_duration;

/// Packets that are subject to a loss model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossFilter {
    /// All packets.
    #[default]
    All,
    /// Packets with payload: acknowledgements and requests pass.
    Data,
}

/// Faults behind the losses, each a probability for each packet. All zero is a perfect wire.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairments {
    /// Share of packets that arrive late, behind later packets.
    pub reordered: f64,
    /// Extra delay of a late packet: uniform on (0, `reordered_by`].
    pub reordered_by: Duration,
    /// Share of packets that arrive twice, the copy at once after the first.
    pub duplicated: f64,
    /// Share of packets with a changed bit. A datagram arrives with a single bit of its UDP payload changed,
    /// as if the checksum had missed the change; any other packet is dropped at the far end, because its
    /// checksum notices.
    pub corrupted: f64,
    /// As `corrupted`, but noticed by the checksum always.
    pub damaged: f64,
}

impl Impairments {
    /// A perfect wire.
    pub const NONE: Self =
        Self { reordered: 0.0, reordered_by: Duration::ZERO, duplicated: 0.0, corrupted: 0.0, damaged: 0.0 };

    pub(crate) fn check(&self) -> Result<(), ParameterError> {
        let named = [
            ("reordered", self.reordered),
            ("duplicated", self.duplicated),
            ("corrupted", self.corrupted),
            ("damaged", self.damaged),
        ];
        match named.into_iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            Some((parameter, value)) => {
                Err(ParameterError { parameter, value, requirement: "a probability, in [0, 1]" })
            }
            None => Ok(()),
        }
    }
}

/// Faults of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) late_by: Option<Duration>,
    pub(crate) doubled: bool,
    /// A random number to choose the changed bit by.
    pub(crate) changed: Option<u64>,
    pub(crate) damaged: bool,
}

#[derive(Debug)]
struct Faults {
    reordered: Coin,
    reordered_by: Duration,
    duplicated: Coin,
    corrupted: Coin,
    damaged: Coin,
    stream: Stream,
}

#[derive(Debug)]
struct Losses {
    model: Loss,
    filter: LossFilter,
    stream: Stream,
}

/// The wire of a direction of a link.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    losses: Option<Box<Losses>>,
    faults: Option<Box<Faults>>,
}

impl Wire {
    pub(crate) fn with_loss(mut self, model: Loss, filter: LossFilter, stream: Stream) -> Self {
        self.losses = Some(Box::new(Losses { model, filter, stream }));
        self
    }

    /// `impairments` have been checked.
    pub(crate) fn with_faults(mut self, impairments: Impairments, stream: Stream) -> Self {
        self.faults = Some(Box::new(Faults {
            reordered: Coin::new(impairments.reordered),
            reordered_by: impairments.reordered_by,
            duplicated: Coin::new(impairments.duplicated),
            corrupted: Coin::new(impairments.corrupted),
            damaged: Coin::new(impairments.damaged),
            stream,
        }));
        self
    }

    /// Replaces the loss model. An existing random stream continues; otherwise `stream` begins.
    pub(crate) fn set_loss(&mut self, model: Loss, filter: LossFilter, stream: impl FnOnce() -> Stream) {
        match &mut self.losses {
            Some(losses) => (losses.model, losses.filter) = (model, filter),
            None => self.losses = Some(Box::new(Losses { model, filter, stream: stream() })),
        }
    }

    /// Whether the wire loses the next packet.
    pub(crate) fn loses(&mut self, is_data: bool) -> bool {
        let Some(losses) = &mut self.losses else { return false };
        (is_data || losses.filter == LossFilter::All) && losses.model.takes(&mut losses.stream)
    }

    /// Draws the faults of the next packet at the far end. Every packet draws all values, so that a fault
    /// does not shift the random numbers of another fault.
    pub(crate) fn fault(&mut self) -> Option<Fault> {
        let faults = self.faults.as_deref_mut()?;
        let stream = &mut faults.stream;
        let late = (faults.reordered.toss(stream), uniform_duration(stream, faults.reordered_by));
        let doubled = faults.duplicated.toss(stream);
        let changed = (faults.corrupted.toss(stream), rand::Rng::next_u64(stream));
        let damaged = faults.damaged.toss(stream);
        Some(Fault {
            late_by: late.0.then_some(late.1 + Duration::from_nanos(1)),
            doubled,
            changed: changed.0.then_some(changed.1),
            damaged,
        })
    }
}
