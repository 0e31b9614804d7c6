//! The order in which numbers were last used: a list through a vector beside what they are the numbers of.
//!
//! It is apart from the breadcrumbs because what lies before and behind one is touched whenever it is used: 8 bytes of each, eight to a line of a cache, in place of a
//! line each.

use super::slab::NONE;

#[derive(Debug)]
pub(super) struct Order {
    places: Vec<Place>,
    newest: u32,
    oldest: u32,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    older: u32,
    newer: u32,
}

impl Order {
    /// Of numbers below `bound`; room is set aside at once.
    pub(super) fn new(bound: usize) -> Self {
        Self { places: Vec::with_capacity(bound), newest: NONE, oldest: NONE }
    }

    pub(super) const fn oldest(&self) -> Option<u32> {
        if self.oldest == NONE { None } else { Some(self.oldest) }
    }

    /// Puts in a number that is not in: one that was, or the next one that never was.
    pub(super) fn insert(&mut self, number: u32) {
        if self.places.len() <= number as usize {
            self.places.push(Place { older: NONE, newer: NONE });
        }
        self.put_newest(number);
    }

    pub(super) fn touch(&mut self, number: u32) {
        if self.newest != number {
            self.remove(number);
            self.put_newest(number);
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Place { older, newer } = self.places[number as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.places[newer as usize].older = older,
        }
    }

    /// The numbers before and behind, to look at their places.
    pub(super) fn beside(&self, number: u32) -> [u32; 2] {
        self.places.get(number as usize).map_or([NONE; 2], |place| [place.older, place.newer])
    }

    fn put_newest(&mut self, number: u32) {
        let before = core::mem::replace(&mut self.newest, number);
        self.places[number as usize] = Place { older: before, newer: NONE };
        match before {
            NONE => self.oldest = number,
            before => self.places[before as usize].newer = number,
        }
    }
}
