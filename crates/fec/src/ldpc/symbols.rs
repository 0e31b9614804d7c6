//! Where the symbols of a block under decoding lie: source symbols in the block, repair symbols received, and those that
//! are made on the way.

use crate::Repair;
use crate::codec::Shape;

pub(super) struct Symbols<'a> {
    shape: Shape,
    block: &'a mut [u8],
    /// Received repair symbols by ascending ESI.
    received: &'a [Repair<'a>],
    /// Repair symbols made on the way: where each begins in `bytes`, by ESI - k; `NOWHERE` for none.
    places: Vec<u32>,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

const NOWHERE: u32 = u32::MAX;

impl<'a> Symbols<'a> {
    pub(super) fn new(shape: Shape, block: &'a mut [u8], received: &'a [Repair<'a>], rows: u32) -> Self {
        Self {
            shape,
            block,
            received,
            places: vec![NOWHERE; rows as usize],
            bytes: Vec::new(),
            scratch: vec![0; shape.symbol_size()],
        }
    }

    /// Makes a symbol of the others in its row.
    pub(super) fn yield_from(&mut self, row: &[u32], column: u32) {
        let mut scratch = core::mem::take(&mut self.scratch);
        self.add_up(row.iter().copied().filter(|other| *other != column), &mut scratch);
        self.set(column, &scratch);
        self.scratch = scratch;
    }

    /// The sum of all symbols of a row.
    pub(super) fn sum(&self, row: &[u32]) -> Vec<u8> {
        let mut sum = vec![0; self.shape.symbol_size()];
        self.add_up(row.iter().copied(), &mut sum);
        sum
    }

    fn add_up(&self, columns: impl Iterator<Item = u32>, sum: &mut [u8]) {
        sum.fill(0);
        for column in columns {
            xor(sum, self.get(column));
        }
    }

    pub(super) fn clear(&mut self, column: u32) {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.fill(0);
        self.set(column, &scratch);
        self.scratch = scratch;
    }

    pub(super) fn set(&mut self, column: u32, symbol: &[u8]) {
        self.place(column).copy_from_slice(symbol);
    }

    fn place(&mut self, column: u32) -> &mut [u8] {
        let Some(repair) = column.checked_sub(self.shape.k()) else {
            return &mut self.block[self.shape.range(column)];
        };
        let size = self.shape.symbol_size();
        let place = &mut self.places[repair as usize];
        if *place == NOWHERE {
            *place = u32::try_from(self.bytes.len() / size).expect("below 2^20 symbols");
            self.bytes.resize(self.bytes.len() + size, 0);
        }
        let start = *place as usize * size;
        &mut self.bytes[start..start + size]
    }

    fn get(&self, column: u32) -> &[u8] {
        let Some(repair) = column.checked_sub(self.shape.k()) else {
            return &self.block[self.shape.range(column)];
        };
        match self.places[repair as usize] {
            NOWHERE => {
                let index = self.received.binary_search_by_key(&column, |received| received.esi);
                self.received[index.expect("a symbol is received or made before it is used")].data
            }
            place => {
                let start = place as usize * self.shape.symbol_size();
                &self.bytes[start..start + self.shape.symbol_size()]
            }
        }
    }
}

/// Adds a symbol to another. The compiler makes vector code of it.
pub(super) fn xor(target: &mut [u8], source: &[u8]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}
