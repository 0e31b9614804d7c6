//! The order of sending that fits the congestion control.

use headwater_fec::Order;

use crate::control::Departure;
use crate::delivery::carousel::{Carousel, CarouselBlock, Hierarchy, Place, Start, Visit};
use crate::layering::Layering;
use crate::rng::Stream;

/// The order of sending.
#[derive(Debug)]
pub(super) enum Content {
    /// To receivers that have every packet.
    Flat(Carousel),
    /// To receivers of any rate.
    Layered(Box<Hierarchy>),
}

impl Content {
    /// Content that is sent on request, of which each receiver gets some: the order is drawn.
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

    /// Goes on where an earlier session of the same content hardly was: [`Carousel::skip`].
    pub(super) fn skip(&mut self) {
        if let Self::Flat(carousel) = self {
            carousel.skip();
        }
    }

    /// Stops sending the blocks that `keeps` refuses, and returns how many symbols of them counted towards
    /// passes.
    pub(super) fn retain(&mut self, keeps: impl Fn(u32) -> bool) -> u64 {
        match self {
            Self::Flat(carousel) => carousel.retain(keeps),
            Self::Layered(hierarchy) => {
                hierarchy.retain(keeps);
                // Passes are counted where receivers have every packet.
                0
            }
        }
    }

    /// Visits that make a pass.
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

    /// The place of a departure in its buffer, also where it carries no content: the schedule counts every
    /// packet.
    pub(super) fn turn(&mut self, layering: Option<&dyn Layering>, departure: &Departure) -> Option<Place> {
        match (self, layering) {
            (Self::Layered(hierarchy), Some(layering)) => {
                Some(hierarchy.place(layering, departure.level, departure.at))
            }
            _ => None,
        }
    }

    /// Whether what a departure would carry can be left out: its block has had its share and more.
    pub(super) fn can_spare(&mut self, turn: Option<Place>) -> bool {
        match (self, turn) {
            (Self::Layered(hierarchy), Some(place)) => hierarchy.can_spare(place),
            _ => true,
        }
    }

    /// What a departure carries; `None` when there is no content at all.
    pub(super) fn next(&mut self, turn: Option<Place>) -> Option<Visit> {
        match (self, turn) {
            (Self::Flat(carousel), _) => carousel.next_visit(),
            (Self::Layered(hierarchy), Some(place)) => hierarchy.visit(place),
            (Self::Layered(_), None) => None,
        }
    }
}
