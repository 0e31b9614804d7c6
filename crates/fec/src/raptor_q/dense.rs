//! Equations for the inactive symbols: Gauss-Jordan elimination over GF(2), and for the few symbols that
//! these equations leave open, over GF(2^8) by the HDPC equations.

use super::inactivation::Peeled;
use super::structure::{Equations, Structure};
use crate::Kernel;
use crate::bits::{Bits, first, xor};
use crate::gf256;

/// Solution for the inactive symbols.
///
/// An inactive symbol with a pivot is the sum of some left-over equations' right sides and of some free
/// symbols. Free symbols follow from the HDPC equations.
#[derive(Debug)]
pub(super) struct Dense {
    /// Independent equations that no step uses.
    pub(super) rows: Vec<u32>,
    /// Places, among the inactive symbols, of the symbols with pivots: one for each of `rows`.
    pub(super) pivots: Vec<usize>,
    /// By pivot: the right sides in its sum, a bit for each of `rows`.
    pub(super) sums: Bits,
    /// By pivot: the free symbols in its sum, bits of `u16`.
    pub(super) free_sums: Vec<u16>,
    /// Places of the free symbols, at most H.
    pub(super) free: Vec<usize>,
    /// HDPC equations in use, as many as free symbols.
    pub(super) heavy_rows: Vec<usize>,
    /// Their coefficients of the pivots, row by row.
    pub(super) heavy: Vec<u8>,
    /// By free symbol: factors of the right sides of `heavy_rows`.
    pub(super) inverse: Vec<u8>,
}

/// Coefficients of each yielded symbol in the inactive symbols, by column.
pub(super) struct Yielded(Bits);

impl Dense {
    /// Solves for the inactive symbols, or returns `None` if the equations do not determine them.
    pub(super) fn new(
        structure: &Structure,
        equations: &Equations,
        peeled: &Peeled,
        Yielded(yielded): &Yielded,
    ) -> Option<Self> {
        let inactive = peeled.inactive.len();
        let mut reduced = Reduced::new(inactive);
        let mut bits = vec![0; yielded.words()];
        for row in left_over(equations, peeled) {
            if reduced.rows.len() == inactive {
                break;
            }
            sum_of_row(equations.row(row as usize), u32::MAX, peeled, yielded, &mut bits);
            reduced.add(row, &bits);
        }
        let mut has_pivot = vec![false; inactive];
        reduced.pivots.iter().for_each(|pivot| has_pivot[*pivot] = true);
        let free: Vec<usize> = (0..inactive).filter(|place| !has_pivot[*place]).collect();
        if free.len() > structure.numbers.hdpc as usize {
            return None;
        }
        let free_sum = |row: usize| {
            let bits = free.iter().enumerate().filter(|(_, place)| reduced.left.get(row, **place));
            bits.fold(0_u16, |sum, (number, _)| sum | 1 << number)
        };
        let dense = Self {
            free_sums: (0..reduced.rows.len()).map(free_sum).collect(),
            rows: reduced.rows,
            pivots: reduced.pivots,
            sums: reduced.sums,
            free,
            heavy_rows: Vec::new(),
            heavy: Vec::new(),
            inverse: Vec::new(),
        };
        if dense.free.is_empty() { Some(dense) } else { dense.solve_free(structure, peeled, yielded) }
    }

    /// Solves for the free symbols by the HDPC equations, in which sums replace the symbols with pivots.
    fn solve_free(mut self, structure: &Structure, peeled: &Peeled, yielded: &Bits) -> Option<Self> {
        let planes = hdpc_planes(structure, peeled, yielded);
        let size = self.free.len();
        let mut elimination = Elimination::new(size);
        for (number, planes) in planes.iter().enumerate() {
            let mut row: Vec<u8> = self.free.iter().map(|place| planes.byte(*place)).collect();
            let heavy: Vec<u8> = self.pivots.iter().map(|place| planes.byte(*place)).collect();
            for (factor, sum) in heavy.iter().zip(&self.free_sums) {
                (0..size).filter(|free| sum >> free & 1 != 0).for_each(|free| row[free] ^= factor);
            }
            if elimination.add(&row) {
                self.heavy_rows.push(number);
                self.heavy.extend_from_slice(&heavy);
            }
            if self.heavy_rows.len() == size {
                self.inverse = elimination.inverse();
                return Some(self);
            }
        }
        None
    }
}

/// Equations that yield no symbol.
fn left_over(equations: &Equations, peeled: &Peeled) -> impl Iterator<Item = u32> {
    let mut is_used = vec![false; equations.len()];
    peeled.steps.iter().for_each(|step| is_used[step.row as usize] = true);
    (0..).zip(is_used).filter(|(_, is_used)| !is_used).map(|(row, _)| row)
}

impl Yielded {
    pub(super) fn new(structure: &Structure, equations: &Equations, peeled: &Peeled) -> Self {
        let mut yielded = Bits::new(structure.numbers.lt as usize, peeled.inactive.len());
        let mut bits = vec![0; yielded.words()];
        for step in &peeled.steps {
            sum_of_row(equations.row(step.row as usize), step.column, peeled, &yielded, &mut bits);
            yielded.row_mut(step.column as usize).copy_from_slice(&bits);
        }
        Self(yielded)
    }

    /// Coefficients of sums of symbols in the inactive symbols.
    pub(super) fn coefficients(&self, sums: &Equations, peeled: &Peeled) -> Bits {
        let mut coefficients = Bits::new(sums.len(), peeled.inactive.len());
        for sum in 0..sums.len() {
            sum_of_row(sums.row(sum), u32::MAX, peeled, &self.0, coefficients.row_mut(sum));
        }
        coefficients
    }
}

/// Sum of the coefficients of an equation's symbols except `but`.
fn sum_of_row(columns: &[u32], but: u32, peeled: &Peeled, yielded: &Bits, bits: &mut [u64]) {
    bits.fill(0);
    for column in columns.iter().filter(|column| **column != but) {
        match peeled.inactive_place(*column) {
            Some(place) => bits[place / 64] ^= 1 << (place % 64),
            None => xor(bits, yielded.row(*column as usize)),
        }
    }
}

/// A row over GF(2^8) as eight rows of bits, the lowest bits first: alpha times the row moves the rows.
#[derive(Clone)]
struct Planes {
    words: usize,
    bits: Vec<u64>,
}

impl Planes {
    fn new(words: usize) -> Self {
        Self { words, bits: vec![0; 8 * words] }
    }

    fn byte(&self, place: usize) -> u8 {
        let bit = |plane: &[u64]| plane[place / 64] >> (place % 64) & 1 != 0;
        self.bits.chunks_exact(self.words).rev().fold(0, |byte, plane| byte << 1 | u8::from(bit(plane)))
    }

    /// alpha^8 = alpha^4 + alpha^3 + alpha^2 + 1.
    fn times_alpha(&mut self) {
        self.bits.rotate_right(self.words);
        let (lowest, others) = self.bits.split_at_mut(self.words);
        others.chunks_exact_mut(self.words).skip(1).take(3).for_each(|plane| xor(plane, lowest));
    }

    fn lowest(&mut self) -> &mut [u64] {
        &mut self.bits[..self.words]
    }

    fn add(&mut self, other: &Self) {
        xor(&mut self.bits, &other.bits);
    }
}

/// Coefficients of the H HDPC equations in the inactive symbols (RFC 6330, section 5.3.3.3): MT times the
/// powers of alpha, by Horner's rule, and the identity.
fn hdpc_planes(structure: &Structure, peeled: &Peeled, yielded: &Bits) -> Vec<Planes> {
    let words = yielded.words();
    let mut rows = vec![Planes::new(words); structure.numbers.hdpc as usize];
    let mut sum = Planes::new(words);
    let last = structure.numbers.symbols + structure.numbers.ldpc - 1;
    for column in 0..=last {
        sum.times_alpha();
        match peeled.inactive_place(column) {
            Some(place) => sum.lowest()[place / 64] ^= 1 << (place % 64),
            None => xor(sum.lowest(), yielded.row(column as usize)),
        }
        if let Some(pair) = structure.hdpc_entries.get(column as usize) {
            pair.iter().for_each(|row| rows[usize::from(*row)].add(&sum));
        }
    }
    for (column, row) in (last + 1..).zip(&mut rows) {
        row.add(&sum);
        sum.times_alpha();
        let place = peeled.inactive_place(column).expect("the last H symbols are PI symbols");
        row.lowest()[place / 64] ^= 1 << (place % 64);
    }
    rows
}

/// Equations over GF(2) in reduced form: each has a 1 in its own pivot's column, and 0 in those of the
/// others.
struct Reduced {
    left: Bits,
    /// The equations added that each is the sum of.
    sums: Bits,
    pivots: Vec<usize>,
    rows: Vec<u32>,
}

impl Reduced {
    fn new(columns: usize) -> Self {
        let (left, sums) = (Bits::new(columns, columns), Bits::new(columns, columns));
        Self { left, sums, pivots: Vec::with_capacity(columns), rows: Vec::with_capacity(columns) }
    }

    /// Adds an equation, unless it depends on the equations added before. There is room.
    fn add(&mut self, row: u32, bits: &[u64]) {
        let new = self.rows.len();
        self.left.row_mut(new).copy_from_slice(bits);
        self.sums.row_mut(new).fill(0);
        for (other, pivot) in self.pivots.iter().enumerate() {
            if self.left.get(new, *pivot) {
                self.left.add(other, new);
                self.sums.add(other, new);
            }
        }
        let Some(pivot) = first(self.left.row(new), &mut 0) else { return };
        self.sums.flip(new, new);
        for other in 0..new {
            if self.left.get(other, pivot) {
                self.left.add(new, other);
                self.sums.add(new, other);
            }
        }
        self.pivots.push(pivot);
        self.rows.push(row);
    }
}

/// Gauss-Jordan elimination of a square matrix over GF(2^8) whose rows are added in sequence.
struct Elimination {
    size: usize,
    kernel: Kernel,
    /// Rows of 2 * `size` bytes: the reduced form of an added row, then its combination of the added rows.
    /// Each row has a 1 in its own pivot column, and 0 in the other pivot columns.
    rows: Vec<u8>,
    /// Pivot column of each row.
    pivots: Vec<usize>,
}

impl Elimination {
    fn new(size: usize) -> Self {
        Self { size, kernel: Kernel::chosen(), rows: Vec::with_capacity(2 * size * size), pivots: Vec::new() }
    }

    /// Adds a row. Returns false if the row depends on rows added before, and does not add the row.
    fn add(&mut self, row: &[u8]) -> bool {
        let width = 2 * self.size;
        let mut new = vec![0; width];
        new[..self.size].copy_from_slice(row);
        new[self.size + self.pivots.len()] = 1;
        for (row, &pivot) in self.rows.chunks_exact(width).zip(&self.pivots) {
            let factor = new[pivot];
            self.kernel.mul_add(&mut new, row, factor);
        }
        let Some(pivot) = new[..self.size].iter().position(|&byte| byte != 0) else { return false };
        let scale = gf256::inverse(new[pivot]);
        new.iter_mut().for_each(|byte| *byte = gf256::mul(scale, *byte));
        for row in self.rows.chunks_exact_mut(width) {
            let factor = row[pivot];
            self.kernel.mul_add(row, &new, factor);
        }
        self.rows.append(&mut new);
        self.pivots.push(pivot);
        true
    }

    /// The inverse, row by row. All rows have been added.
    fn inverse(&self) -> Vec<u8> {
        let size = self.size;
        let mut inverse = vec![0; size * size];
        for (row, &pivot) in self.rows.chunks_exact(2 * size).zip(&self.pivots) {
            inverse[pivot * size..][..size].copy_from_slice(&row[size..]);
        }
        inverse
    }
}

#[cfg(test)]
mod tests {
    use super::Elimination;
    use crate::gf256::mul;

    #[test]
    fn elimination_skips_dependent_rows_and_inverts_the_others() {
        let rows: [[u8; 3]; 5] = [[0, 2, 7], [0, 4, 14], [1, 0, 9], [1, 2, 14], [200, 3, 0]];
        let mut elimination = Elimination::new(3);
        let added = rows.map(|row| elimination.add(&row));
        assert_eq!(added, [true, false, true, false, true]);
        let inverse = elimination.inverse();
        for (i, row) in inverse.chunks_exact(3).enumerate() {
            let mut product = [0; 3];
            for (&factor, added) in row.iter().zip([rows[0], rows[2], rows[4]]) {
                product.iter_mut().zip(added).for_each(|(sum, byte)| *sum ^= mul(factor, byte));
            }
            let mut unit = [0; 3];
            unit[i] = 1;
            assert_eq!(product, unit);
        }
    }
}
