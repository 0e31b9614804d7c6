//! Order of sending for the session's congestion control.

use headwater_fec::Order;

use crate::control::Departure;
use crate::delivery::carousel::{Carousel, CarouselBlock, Hierarchy, Place, Start, Visit};
use crate::layering::Layering;
use crate::rng::Stream;

/// Order of sending.
#[derive(Debug)]
pub(super) enum Content {
    /// For receivers that receive every packet.
    Flat(Carousel),
    /// For receivers of any rate.
    Layered(Box<Hierarchy>),
}

impl Content {
    /// Creates a random order for content sent on request, of which each receiver gets a part.
    pub(super) fn mixed(blocks: Vec<CarouselBlock>, draw: Stream, start: Start) -> Self {
        Self::Flat(Carousel::mixed(blocks, draw, start))
    }

    pub(super) fn new(blocks: Vec<CarouselBlock>, is_layered: bool, order: Order, start: Start) -> Self {
        if is_layered {
            Self::Layered(Box::new(Hierarchy::starting(blocks, start)))
        } else {
            Self::Flat(Carousel::starting(blocks, order, start))
        }
    }

    /// Continues at a place that an earlier session of the same content is unlikely to have sent:
    /// [`Carousel::skip`].
    pub(super) fn skip(&mut self) {
        if let Self::Flat(carousel) = self {
            carousel.skip();
        }
    }

    /// Stops sending the blocks that `keeps` rejects. Returns the number of symbols of rejected blocks that
    /// counted towards passes.
    pub(super) fn retain(&mut self, keeps: impl Fn(u32) -> bool) -> u64 {
        match self {
            Self::Flat(carousel) => carousel.retain(keeps),
            Self::Layered(hierarchy) => {
                hierarchy.retain(keeps);
                // Passes are counted only if receivers receive every packet.
                0
            }
        }
    }

    /// Number of visits in a pass.
    pub(super) fn pass_symbols(&self) -> u64 {
        match self {
            Self::Flat(carousel) => carousel.pass_symbols(),
            Self::Layered(hierarchy) => hierarchy.pass_symbols(),
        }
    }

    pub(super) fn block(&self, block: u32) -> CarouselBlock {
        match self {
            Self::Flat(carousel) => carousel.block(block),
            Self::Layered(hierarchy) => hierarchy.block(block),
        }
    }

    /// Returns the place of a departure in the buffer, also for a departure without content: the schedule
    /// counts every packet.
    pub(super) fn turn(&mut self, layering: Option<&dyn Layering>, departure: &Departure) -> Option<Place> {
        match (self, layering) {
            (Self::Layered(hierarchy), Some(layering)) => {
                Some(hierarchy.place(layering, departure.level, departure.at))
            }
            _ => None,
        }
    }

    /// Whether the content of a departure may be omitted: its block has received more than its share.
    pub(super) fn can_spare(&mut self, turn: Option<Place>) -> bool {
        match (self, turn) {
            (Self::Layered(hierarchy), Some(place)) => hierarchy.can_spare(place),
            _ => true,
        }
    }

    /// Returns the content of a departure; `None` if there is no content.
    pub(super) fn next(&mut self, turn: Option<Place>) -> Option<Visit> {
        match (self, turn) {
            (Self::Flat(carousel), _) => carousel.next_visit(),
            (Self::Layered(hierarchy), Some(place)) => hierarchy.visit(place),
            (Self::Layered(_), None) => None,
        }
    }
}
