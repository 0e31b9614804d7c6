//! The columns set aside, solved for by the rows that are left over: Gaussian elimination over GF(2).

use super::matrix::Matrix;
use super::peeling::{Peeling, State};
use super::symbols::Symbols;

/// Rows over the columns set aside, in words of 64.
struct Bits {
    words: usize,
    rows: Vec<u64>,
}

impl Bits {
    fn new(rows: usize, columns: usize) -> Self {
        let words = columns.div_ceil(64);
        Self { words, rows: vec![0; rows * words] }
    }

    fn row(&self, row: usize) -> &[u64] {
        &self.rows[row * self.words..(row + 1) * self.words]
    }

    fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.rows[row * self.words..(row + 1) * self.words]
    }
}

/// Solves for the columns set aside and writes them to `symbols`. `false` when the rows do not determine them.
///
/// Memory: a bit for each symbol that was yielded and each column set aside.
pub(super) fn solve(matrix: &Matrix, peeling: &Peeling<'_>, symbols: &mut Symbols<'_>) -> bool {
    let inactive = peeling.inactive();
    if inactive.is_empty() {
        return true;
    }
    let mut bits = coefficients(matrix, peeling);
    let Some(equations) = independent(matrix, peeling, &mut bits) else { return false };
    drop(bits);

    // With the columns set aside at zero, what is missing for a row to hold is what they must add up to.
    for column in inactive {
        symbols.clear(*column);
    }
    for step in peeling.steps() {
        symbols.yield_from(matrix.row(step.row), step.column);
    }
    let mut right: Vec<Vec<u8>> = equations.iter().map(|(row, ..)| symbols.sum(matrix.row(*row))).collect();
    let mut bits: Vec<Vec<u64>> = equations.into_iter().map(|(_, bits)| bits).collect();
    eliminate(&mut bits, &mut right);
    for (bits, value) in bits.iter().zip(right) {
        let number = first(bits).expect("a pivot in each row");
        symbols.set(inactive[number], &value);
    }
    true
}

/// What each yielded symbol is in terms of the columns set aside, by step; and one row more, to work in.
fn coefficients(matrix: &Matrix, peeling: &Peeling<'_>) -> Bits {
    let steps = peeling.steps();
    let mut bits = Bits::new(steps.len() + 1, peeling.inactive().len());
    let scratch = steps.len();
    for (index, step) in steps.iter().enumerate() {
        combine(&mut bits, scratch, matrix.row(step.row), step.column, peeling);
        let (before, last) = bits.rows.split_at_mut(scratch * bits.words);
        before[index * bits.words..(index + 1) * bits.words].copy_from_slice(last);
    }
    bits
}

/// The last row of `bits` becomes what the columns of a matrix row, but for one, are together.
fn combine(bits: &mut Bits, scratch: usize, row: &[u32], but: u32, peeling: &Peeling<'_>) {
    bits.row_mut(scratch).fill(0);
    for column in row.iter().filter(|column| **column != but) {
        match peeling.state(*column) {
            State::Known | State::Unknown => {}
            State::Inactive(number) => flip(bits.row_mut(scratch), number as usize),
            State::Solved(step) => {
                let words = bits.words;
                let (before, last) = bits.rows.split_at_mut(scratch * words);
                xor(last, &before[step as usize * words..(step as usize + 1) * words]);
            }
        }
    }
}

/// As many spare rows as there are columns set aside, none of them a sum of others; `None` if there are too few. Each with
/// its bits as they are in the matrix.
fn independent(matrix: &Matrix, peeling: &Peeling<'_>, bits: &mut Bits) -> Option<Vec<(u32, Vec<u64>)>> {
    let wanted = peeling.inactive().len();
    let scratch = peeling.steps().len();
    // By pivot: the reduced row that begins there.
    let mut reduced: Vec<Option<Vec<u64>>> = vec![None; wanted];
    let mut found = Vec::with_capacity(wanted);
    for row in peeling.spare_rows() {
        combine(bits, scratch, matrix.row(row), u32::MAX, peeling);
        let whole = bits.row(scratch).to_vec();
        let mut rest = whole.clone();
        while let Some(pivot) = first(&rest) {
            match &reduced[pivot] {
                Some(other) => xor(&mut rest, other),
                None => {
                    reduced[pivot] = Some(rest);
                    found.push((row, whole));
                    break;
                }
            }
        }
        if found.len() == wanted {
            return Some(found);
        }
    }
    None
}

/// Gauss-Jordan: afterwards row i has one bit, and `right` its symbol.
fn eliminate(bits: &mut [Vec<u64>], right: &mut [Vec<u8>]) {
    for pivot in 0..bits.len() {
        let (word, bit) = (pivot / 64, 1_u64 << (pivot % 64));
        let row = (pivot..bits.len()).find(|row| bits[*row][word] & bit != 0).expect("independent rows");
        bits.swap(pivot, row);
        right.swap(pivot, row);
        let (chosen, symbol) = (core::mem::take(&mut bits[pivot]), core::mem::take(&mut right[pivot]));
        for (other, value) in bits.iter_mut().zip(right.iter_mut()) {
            if other.get(word).is_some_and(|found| found & bit != 0) {
                xor(other, &chosen);
                super::symbols::xor(value, &symbol);
            }
        }
        (bits[pivot], right[pivot]) = (chosen, symbol);
    }
}

fn flip(bits: &mut [u64], number: usize) {
    bits[number / 64] ^= 1 << (number % 64);
}

fn first(bits: &[u64]) -> Option<usize> {
    let word = bits.iter().position(|word| *word != 0)?;
    Some(word * 64 + bits[word].trailing_zeros() as usize)
}

fn xor(target: &mut [u64], source: &[u64]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}
