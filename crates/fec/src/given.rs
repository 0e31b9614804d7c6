//! The repair symbols that a decoder is given: beside the block, or in its missing places.

use std::ops::Range;

use crate::codec::Shape;
use crate::{DecodeError, Repair};

/// A repair symbol and where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) esi: u32,
    place: Place<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    /// In the place of this source symbol.
    Missing(u32),
    Beside(&'a [u8]),
}

impl<'a> Given<'a> {
    /// Its bytes `columns`.
    pub(crate) fn data<'b>(&self, shape: &Shape, block: &'b [u8], columns: Range<usize>) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.place {
            Place::Missing(at) => &block[shape.range(at)][columns],
            Place::Beside(data) => &data[columns],
        }
    }
}

/// The symbols by ascending ESI, of several with one ESI the first, if there are as many as `missing`.
pub(crate) fn enough<'a>(
    missing: &[u32],
    placed: &[u32],
    more: &[Repair<'a>],
) -> Result<Vec<Given<'a>>, DecodeError> {
    let inside = missing.iter().zip(placed).map(|(&at, &esi)| Given { esi, place: Place::Missing(at) });
    let beside = more.iter().map(|repair| Given { esi: repair.esi, place: Place::Beside(repair.data) });
    let mut given: Vec<_> = inside.chain(beside).collect();
    // A stable sort, so that the first of equals stays.
    given.sort_by_key(|given| given.esi);
    given.dedup_by_key(|given| given.esi);
    match missing.len().checked_sub(given.len()) {
        None | Some(0) => Ok(given),
        Some(more) => Err(DecodeError::NeedMore { more: u32::try_from(more).unwrap_or(u32::MAX) }),
    }
}

/// Parts of a symbol's bytes such that a block of them has at most `bytes_max` bytes: what holds of symbols
/// holds of any part of them, since codes work on each byte alone. Multiples of 64 bytes, but for the last
/// one.
pub(crate) fn strips(shape: &Shape, bytes_max: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let size = shape.symbol_size();
    let count = (shape.k() as usize * size).div_ceil(bytes_max).max(1);
    let width = size.div_ceil(count).next_multiple_of(64);
    (0..size).step_by(width).map(move |start| start..(start + width).min(size))
}
