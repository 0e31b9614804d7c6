//! The columns set aside, solved for by the rows that are left over: Gaussian elimination over GF(2), on bits
//! alone.

use super::matrix::Matrix;
use super::peeling::{Peeling, State};
use crate::bits::{Bits, first, xor};

/// Words of 64 columns processed at a time, so that memory is a few bytes for each yielded symbol, not a bit
/// per yielded symbol and column set aside.
const STRIP_WORDS: usize = 4;
/// Rows tried beyond the number of columns set aside, before dependent rows among the tried rows are dropped.
const SPARE_ROWS: usize = 64;

/// Solution for the columns set aside, as sums of rows.
#[derive(Debug)]
pub(super) struct Dense {
    /// Independent rows of the matrix: as many as columns set aside.
    pub(super) rows: Vec<u32>,
    /// By column set aside, a bit for each of `rows`: set if the row's right side is part of the column's
    /// sum.
    pub(super) sums: Bits,
}

/// Solves for the columns set aside. If the rows do not determine the columns, returns the number of rows
/// short.
///
/// Memory: for m columns set aside m^2 / 2 bytes, and 32 bytes for each symbol yielded. Time: up to m^3 / 32
/// operations on words, when few rows are dependent.
pub(super) fn solve(matrix: &Matrix, peeling: &Peeling<'_>) -> Result<Dense, u32> {
    let wanted = peeling.inactive().len();
    let mut echelon = Echelon::new(wanted);
    let spare: Vec<u32> = peeling.spare_rows().collect();
    for rows in spare.chunks(wanted + SPARE_ROWS) {
        let coefficients = coefficients(matrix, peeling, rows);
        for (index, row) in rows.iter().enumerate() {
            echelon.take(*row, coefficients.row(index));
            if echelon.rows.len() == wanted {
                return Ok(echelon.solved());
            }
        }
    }
    Err(u32::try_from(wanted - echelon.rows.len()).expect("below 2^20 columns"))
}

/// Coefficients of each of `rows` in the columns set aside, after yielded symbols are expressed in these
/// columns.
fn coefficients(matrix: &Matrix, peeling: &Peeling<'_>, rows: &[u32]) -> Bits {
    let steps = peeling.steps();
    let mut bits = Bits::new(rows.len(), peeling.inactive().len());
    let mut yielded = vec![[0_u64; STRIP_WORDS]; steps.len()];
    for first in (0..bits.words()).step_by(STRIP_WORDS) {
        for (index, step) in steps.iter().enumerate() {
            yielded[index] = strip(matrix.row(step.row), step.column, first, peeling, &yielded);
        }
        let width = STRIP_WORDS.min(bits.words() - first);
        for (index, row) in rows.iter().enumerate() {
            let strip = strip(matrix.row(*row), u32::MAX, first, peeling, &yielded);
            bits.row_mut(index)[first..first + width].copy_from_slice(&strip[..width]);
        }
    }
    bits
}

/// Sum of the columns of a matrix row except `but`: the words from `first` on.
fn strip(
    row: &[u32],
    but: u32,
    first: usize,
    peeling: &Peeling<'_>,
    yielded: &[[u64; STRIP_WORDS]],
) -> [u64; STRIP_WORDS] {
    let mut sum = [0; STRIP_WORDS];
    for column in row.iter().filter(|column| **column != but) {
        match peeling.state(*column) {
            State::Known | State::Unknown => {}
            State::Inactive(number) => {
                let word = (number / 64) as usize;
                if let Some(place) = word.checked_sub(first).and_then(|word| sum.get_mut(word)) {
                    *place ^= 1 << (number % 64);
                }
            }
            State::Solved(step) => xor(&mut sum, &yielded[step as usize]),
        }
    }
    sum
}

/// Rows in echelon form, and which of the rows taken each is the sum of.
struct Echelon {
    /// By pivot: the row that begins there, in `left` and `sums`.
    by_pivot: Vec<Option<u32>>,
    /// One row more than there are columns, to work in.
    left: Bits,
    sums: Bits,
    /// Rows of the matrix taken.
    rows: Vec<u32>,
}

impl Echelon {
    fn new(columns: usize) -> Self {
        let (left, sums) = (Bits::new(columns + 1, columns), Bits::new(columns + 1, columns));
        Self { by_pivot: vec![None; columns], left, sums, rows: Vec::new() }
    }

    /// Takes a row, unless the row is a sum of rows taken before.
    fn take(&mut self, row: u32, bits: &[u64]) {
        let new = self.rows.len();
        self.left.row_mut(new).copy_from_slice(bits);
        self.sums.row_mut(new).fill(0);
        let mut word = 0;
        while let Some(pivot) = first(self.left.row(new), &mut word) {
            let Some(other) = self.by_pivot[pivot] else {
                self.sums.flip(new, new);
                self.by_pivot[pivot] = Some(u32::try_from(new).expect("below 2^20 rows"));
                self.rows.push(row);
                return;
            };
            self.left.add(other as usize, new);
            self.sums.add(other as usize, new);
        }
    }

    /// With a row for each pivot: every column as a sum of right sides.
    fn solved(mut self) -> Dense {
        let place = |pivot: Option<u32>| pivot.expect("a row for each pivot") as usize;
        let order: Vec<usize> = self.by_pivot.iter().copied().map(place).collect();
        for (pivot, row) in order.iter().enumerate().rev() {
            // Rows of later pivots have only their own bit by now.
            for (later, known) in order.iter().enumerate().skip(pivot + 1) {
                if self.left.get(*row, later) {
                    self.sums.add(*known, *row);
                }
            }
        }
        let mut sums = Bits::new(order.len(), order.len());
        for (pivot, row) in order.iter().enumerate() {
            sums.row_mut(pivot).copy_from_slice(self.sums.row(*row));
        }
        Dense { rows: self.rows, sums }
    }
}
