//! A block's decoding as steps, each the sum of some symbols: followed for whole symbols or, as bits do not
//! mix, for strips of symbols.

use std::sync::Arc;

use super::dense::{self, Dense};
use super::matrix::Graph;
use super::peeling::{Peeling, Step};
use crate::FecError;
use crate::codec::Recipe;

/// Maximum number of columns set aside in any block: a few seconds on a single core (m^3 / 32 operations on
/// words), 34 MB of bits.
const INACTIVE_MAX: usize = 8_192;
/// Columns that a block of any length may set aside.
const INACTIVE_ANY: usize = 1_024;
/// Right sides that are added up by a table of all their sums.
const TABLE_BITS: usize = 8;
const NOWHERE: u32 = u32::MAX;

/// Columns that may be set aside in a block of n symbols. If a block needs more, the decoder waits for more
/// symbols: with k symbols 6 % are set aside at n = 2k, with 5 % more symbols 2 %.
pub(super) fn inactive_max(n: u32) -> usize {
    INACTIVE_MAX.min(n as usize / 32 + INACTIVE_ANY)
}

/// The steps that decode a block.
#[derive(Debug)]
pub(super) struct Program {
    graph: Arc<Graph>,
    /// Repair symbols that are handed over.
    received: u32,
    /// By ESI - k: place of a repair symbol; received symbols first, then symbols made during decoding.
    places: Vec<u32>,
    made: usize,
    /// Columns set aside, and all steps with these columns at zero.
    dense: Option<(Vec<u32>, Vec<Step>, Dense)>,
    /// The remaining steps, which lead to source symbols.
    steps: Vec<Step>,
}

impl Program {
    /// Returns the steps by which a block's `missing` source symbols follow from the other source symbols and
    /// the repair symbols `repairs`, distinct ESIs. If the symbols do not suffice, returns the minimum number
    /// of further symbols, if known.
    pub(super) fn new(
        graph: Arc<Graph>,
        missing: &[u32],
        repairs: &[u32],
        eliminates: bool,
    ) -> Result<Self, Option<u32>> {
        let matrix = &graph.matrix;
        let k = matrix.k();
        let mut places = vec![NOWHERE; matrix.rows() as usize];
        for (place, esi) in (0..).zip(repairs) {
            places[(esi - k) as usize] = place;
        }
        let received = u32::try_from(repairs.len()).expect("below 2^20 symbols");
        let absent = (k..).zip(&places).filter(|(_, place)| **place == NOWHERE).map(|(esi, _)| esi);
        let unknown = missing.iter().copied().chain(absent);
        let mut peeling = Peeling::new(matrix, &graph.columns, unknown);
        let mut dense = None;
        if !peeling.run() {
            if !eliminates || !peeling.run_with_inactivation(inactive_max(matrix.n())) {
                return Err(None);
            }
            let solved = dense::solve(matrix, &peeling).map_err(Some)?;
            dense = Some((peeling.inactive().to_vec(), peeling.steps().to_vec(), solved));
        }
        let steps = peeling.needed();
        drop(peeling);
        let mut program = Self { received, places, made: 0, dense, steps, graph };
        program.place_symbols();
        Ok(program)
    }

    /// Gives a place to each repair symbol that is made on the way.
    fn place_symbols(&mut self) {
        let k = self.graph.matrix.k();
        let (inactive, all) = match &self.dense {
            Some((inactive, all, _)) => (inactive.as_slice(), all.as_slice()),
            None => (&[][..], &[][..]),
        };
        let steps = all.iter().chain(&self.steps).map(|step| step.column);
        for column in steps.chain(inactive.iter().copied()) {
            if let Some(repair) = column.checked_sub(k) {
                let place = &mut self.places[repair as usize];
                if *place == NOWHERE {
                    *place = self.received + u32::try_from(self.made).expect("below 2^20 symbols");
                    self.made += 1;
                }
            }
        }
    }
}

impl Recipe for Program {
    fn fill(&self, width: usize, block: &mut [u8], repairs: &[&[u8]]) -> Result<(), FecError> {
        let expected = u64::from(self.graph.matrix.k()) * width as u64;
        if block.len() as u64 != expected || repairs.len() != self.received as usize {
            return Err(FecError::BlockLength { expected, actual: block.len() });
        }
        if let Some(wrong) = repairs.iter().find(|repair| repair.len() != width) {
            return Err(FecError::SymbolLength { expected: width, actual: wrong.len() });
        }
        let made = vec![0; self.made * width];
        let mut symbols = Symbols { program: self, width, block, repairs, made, scratch: vec![0; width] };
        if let Some((inactive, steps, dense)) = &self.dense {
            symbols.solve(inactive, steps, dense);
        }
        symbols.follow(&self.steps);
        Ok(())
    }
}

/// The symbols of a block under decoding, or a strip of each.
struct Symbols<'a> {
    program: &'a Program,
    width: usize,
    block: &'a mut [u8],
    repairs: &'a [&'a [u8]],
    made: Vec<u8>,
    scratch: Vec<u8>,
}

impl Symbols<'_> {
    /// Makes the symbol of each step from the other symbols in its row.
    fn follow(&mut self, steps: &[Step]) {
        let matrix = &self.program.graph.matrix;
        let mut scratch = core::mem::take(&mut self.scratch);
        for step in steps {
            self.add_up(matrix.row(step.row), step.column, &mut scratch);
            self.place(step.column).copy_from_slice(&scratch);
        }
        self.scratch = scratch;
    }

    /// Solves for the columns set aside.
    fn solve(&mut self, inactive: &[u32], steps: &[Step], dense: &Dense) {
        for column in inactive {
            self.place(*column).fill(0);
        }
        self.follow(steps);
        // With the columns set aside at zero, the sum of a row is the right side for these columns.
        let matrix = &self.program.graph.matrix;
        let mut right = vec![0; dense.rows.len() * self.width];
        for (row, right) in dense.rows.iter().zip(right.chunks_exact_mut(self.width)) {
            self.add_up(matrix.row(*row), u32::MAX, right);
        }
        let mut table = vec![0; self.width << TABLE_BITS];
        for (byte, right) in right.chunks(TABLE_BITS * self.width).enumerate() {
            fill_table(&mut table, right, self.width);
            for (number, column) in inactive.iter().enumerate() {
                let sum = usize::from(dense.sums.byte(number, byte)) * self.width;
                let sum = &table[sum..sum + self.width];
                xor(self.place(*column), sum);
            }
        }
    }

    /// The sum of the symbols of a row, except `but`.
    fn add_up(&self, row: &[u32], but: u32, sum: &mut [u8]) {
        sum.fill(0);
        for column in row.iter().filter(|column| **column != but) {
            xor(sum, self.get(*column));
        }
    }

    fn get(&self, column: u32) -> &[u8] {
        match self.locate(column) {
            SymbolLocation::Source(start) => &self.block[start..start + self.width],
            SymbolLocation::Received(index) => self.repairs[index],
            SymbolLocation::Made(start) => &self.made[start..start + self.width],
        }
    }

    /// Returns the place to write the symbol of `column`.
    fn place(&mut self, column: u32) -> &mut [u8] {
        match self.locate(column) {
            SymbolLocation::Source(start) => &mut self.block[start..start + self.width],
            SymbolLocation::Made(start) => &mut self.made[start..start + self.width],
            SymbolLocation::Received(_) => unreachable!("steps make what was not received"),
        }
    }

    fn locate(&self, column: u32) -> SymbolLocation {
        let Program { graph, received, places, .. } = self.program;
        let Some(repair) = column.checked_sub(graph.matrix.k()) else {
            return SymbolLocation::Source(column as usize * self.width);
        };
        let place = places[repair as usize];
        match place.checked_sub(*received) {
            None => SymbolLocation::Received(place as usize),
            Some(made) => SymbolLocation::Made(made as usize * self.width),
        }
    }
}

enum SymbolLocation {
    Source(usize),
    Received(usize),
    Made(usize),
}

/// All sums of up to eight symbols, indexed by the set of symbols in the sum.
fn fill_table(table: &mut [u8], symbols: &[u8], width: usize) {
    for (bit, symbol) in symbols.chunks_exact(width).enumerate() {
        let (without, with) = table.split_at_mut(width << bit);
        let with = &mut with[..width << bit];
        with.copy_from_slice(without);
        for sum in with.chunks_exact_mut(width) {
            xor(sum, symbol);
        }
    }
}

/// Adds a symbol to another. The compiler vectorizes this loop.
pub(super) fn xor(target: &mut [u8], source: &[u8]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}
