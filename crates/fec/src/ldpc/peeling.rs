//! Which unknown symbol each row yields, and in which order: on column numbers alone, before any byte is
//! touched.
//!
//! The order of sending: neighbouring repair symbols carry similar information, so a receiver of few levels,
//! which gets runs of such symbols, needs up to a third more than k symbols; in a random order each symbol
//! adds information.

use std::sync::Arc;

use super::matrix::{Columns, Generator, Matrix};

/// A row with a single unknown yields the unknown symbol; another row may then have a single unknown; and so
/// on.
pub(super) struct Peeling<'m> {
    matrix: &'m Matrix,
    columns: &'m Columns,
    states: Vec<State>,
    /// Unknown columns of each row, and the exclusive or of the column numbers: with a single column left,
    /// its number.
    unknown: Vec<u32>,
    sums: Vec<u32>,
    /// Rows with a single unknown.
    ripe: Vec<u32>,
    /// Rows by their number of unknowns, some out of date; filled when first needed.
    by_unknown: Vec<Vec<u32>>,
    steps: Vec<Step>,
    inactive: Vec<u32>,
    sources_left: usize,
    left: usize,
}

/// State of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Received.
    Known,
    Unknown,
    /// Yielded by this step.
    Solved(u32),
    /// Set aside, to be solved for at the end: index among the columns set aside.
    Inactive(u32),
}

/// A row yields a symbol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) column: u32,
    pub(super) row: u32,
}

impl<'m> Peeling<'m> {
    pub(super) fn new(
        matrix: &'m Matrix,
        columns: &'m Columns,
        unknown_columns: impl Iterator<Item = u32>,
    ) -> Self {
        let rows = matrix.rows() as usize;
        let mut peeling = Self {
            matrix,
            columns,
            states: vec![State::Known; matrix.n() as usize],
            unknown: vec![0; rows],
            sums: vec![0; rows],
            ripe: Vec::new(),
            by_unknown: Vec::new(),
            steps: Vec::new(),
            inactive: Vec::new(),
            sources_left: 0,
            left: 0,
        };
        for column in unknown_columns {
            peeling.states[column as usize] = State::Unknown;
            peeling.sources_left += usize::from(column < matrix.k());
            peeling.left += 1;
            for row in columns.rows(column) {
                peeling.unknown[*row as usize] += 1;
                peeling.sums[*row as usize] ^= column;
            }
        }
        peeling.ripe = (0..matrix.rows()).rev().filter(|row| peeling.unknown[*row as usize] == 1).collect();
        peeling
    }

    /// Peels until every source symbol has its step, or no row has a single unknown.
    pub(super) fn run(&mut self) -> bool {
        while self.sources_left > 0
            && let Some(row) = self.ripe.pop()
        {
            if self.unknown[row as usize] == 1 {
                let column = self.sums[row as usize];
                let step = u32::try_from(self.steps.len()).expect("below 2^20 columns");
                self.steps.push(Step { column, row });
                self.settle(column, State::Solved(step));
            }
        }
        self.sources_left == 0
    }

    /// Goes on to the end by setting columns aside wherever no row is ripe. Rows with fewest unknowns first,
    /// so that few columns are set aside (inactivation, as in RFC 6330, section 5.4.2). `false` if more than
    /// `inactive_max` would be.
    pub(super) fn run_with_inactivation(&mut self, inactive_max: usize) -> bool {
        self.sort_rows();
        // Rows' coefficients in the columns set aside are needed in full: no symbol is left out.
        self.sources_left = self.left;
        while !self.run() {
            let Some(row) = self.thinnest_row() else { return false };
            let mut open: Vec<u32> = self.open_columns(row).collect();
            // The column that is in fewest rows stays: setting the rest aside makes the most rows thinner.
            open.sort_by_key(|column| self.columns.rows(*column).len());
            for column in &open[1..] {
                let number = u32::try_from(self.inactive.len()).expect("below 2^20 columns");
                self.inactive.push(*column);
                self.settle(*column, State::Inactive(number));
            }
            if self.inactive.len() > inactive_max {
                return false;
            }
        }
        true
    }

    fn open_columns(&self, row: u32) -> impl Iterator<Item = u32> {
        let states = &self.states;
        self.matrix.row(row).iter().copied().filter(move |column| states[*column as usize] == State::Unknown)
    }

    fn settle(&mut self, column: u32, state: State) {
        self.states[column as usize] = state;
        self.left -= 1;
        let counts_all = !self.by_unknown.is_empty();
        self.sources_left -= usize::from(counts_all || column < self.matrix.k());
        for row in self.columns.rows(column) {
            let unknown = &mut self.unknown[*row as usize];
            *unknown -= 1;
            self.sums[*row as usize] ^= column;
            if *unknown == 1 {
                self.ripe.push(*row);
            } else if counts_all && *unknown > 1 {
                self.by_unknown[*unknown as usize].push(*row);
            }
        }
    }

    fn sort_rows(&mut self) {
        let most = self.unknown.iter().copied().max().unwrap_or(0) as usize;
        self.by_unknown = vec![Vec::new(); most.max(2) + 1];
        for row in 0..self.matrix.rows() {
            self.by_unknown[self.unknown[row as usize] as usize].push(row);
        }
    }

    /// A row with fewest unknowns, at least two.
    fn thinnest_row(&mut self) -> Option<u32> {
        for count in 2..self.by_unknown.len() {
            while let Some(row) = self.by_unknown[count].pop() {
                if self.unknown[row as usize] as usize == count {
                    return Some(row);
                }
            }
        }
        None
    }

    /// The steps in an order in which each uses only symbols known before it.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Columns that were set aside.
    pub(super) fn inactive(&self) -> &[u32] {
        &self.inactive
    }

    pub(super) fn state(&self, column: u32) -> State {
        self.states[column as usize]
    }

    /// Rows that yield no symbol: their equations must hold as well.
    pub(super) fn spare_rows(&self) -> impl Iterator<Item = u32> {
        let mut used = vec![false; self.matrix.rows() as usize];
        for step in &self.steps {
            used[step.row as usize] = true;
        }
        (0..self.matrix.rows()).filter(move |row| !used[*row as usize])
    }

    /// The steps that lead to a source symbol, in their order; other steps are left out.
    pub(super) fn needed(&self) -> Vec<Step> {
        let mut is_needed = vec![false; self.matrix.n() as usize];
        let mut needed = Vec::with_capacity(self.steps.len());
        for step in self.steps.iter().rev() {
            if step.column < self.matrix.k() || is_needed[step.column as usize] {
                for column in self.matrix.row(step.row) {
                    is_needed[*column as usize] = true;
                }
                needed.push(*step);
            }
        }
        needed.reverse();
        needed
    }
}

/// Constant combined by XOR with the seed of a matrix to seed the sending order.
const TURN: u32 = 0x5EED;

/// Returns the ESIs 0..n in the order in which a sender sends the symbols: symbol ESI stands at pi(ESI),
/// where pi is a Fisher-Yates shuffle drawn from the code's own generator, seeded with the seed of the matrix
/// XOR 0x5EED, modulo 2^31 - 1 and not 0 (our choice: receivers do not need the order).
///
/// Memory: 4 bytes a symbol.
pub fn sending_order(seed: u32, n: u32) -> Arc<[u32]> {
    let mut places: Vec<u32> = (0..n).collect();
    let mut generator =
        Generator::new((seed ^ TURN) % 0x7FFF_FFFF).or(Generator::new(1)).expect("1 is a seed");
    for last in (1..n).rev() {
        let other = generator.below(last + 1);
        places.swap(last as usize, other as usize);
    }
    let mut order = vec![0; places.len()];
    for (esi, place) in (0..n).zip(places) {
        order[place as usize] = esi;
    }
    order.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_symbol_once_and_depends_on_seed_and_length_alone() {
        for (seed, n) in [(1, 0), (1, 1), (1, 2), (42, 1_000), (0x5EED, 77), (0x5EED ^ 0x7FFF_FFFF, 77)] {
            let order = sending_order(seed, n);
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            assert_eq!(order, sending_order(seed, n));
        }
        assert_ne!(sending_order(1, 1_000), sending_order(2, 1_000));
    }

    /// Drawn by hand from the generator's first numbers: seed 1 XOR 0x5EED is 24300, n = 4.
    #[test]
    fn symbol_esi_stands_at_its_place() {
        let mut x = 24_300_u64;
        let mut draw = |limit: u64| {
            x = x * 16_807 % 0x7FFF_FFFF;
            usize::try_from(limit * x / 0x7FFF_FFFF).unwrap()
        };
        let mut places = [0_u32, 1, 2, 3];
        for last in [3, 2, 1] {
            places.swap(last, draw(last as u64 + 1));
        }
        let order = sending_order(1, 4);
        for (esi, place) in (0..).zip(places) {
            assert_eq!(order[place as usize], esi);
        }
    }
}
