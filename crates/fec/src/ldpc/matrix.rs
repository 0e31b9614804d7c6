//! The parity check matrix (RFC 5170, sections 5.3 to 5.7) and the generator of chance that makes it.

/// Park and Miller's minimal standard generator: x <- 16807 x mod (2^31 - 1) (RFC 5170, section 5.7).
#[derive(Clone, Copy, Debug)]
pub(super) struct Generator(u64);

const MODULUS: u64 = 0x7FFF_FFFF;

impl Generator {
    /// `None` for a seed outside 1..=2^31 - 2.
    pub(super) fn new(seed: u32) -> Option<Self> {
        (1..MODULUS).contains(&seed.into()).then_some(Self(seed.into()))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0 * 16_807 % MODULUS;
        self.0
    }

    /// Uniform in 0..`limit`, by a quotient of doubles: part of the code, so that both ends draw the same.
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        #[expect(clippy::cast_precision_loss, reason = "31 bits")]
        let x = self.next() as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the limit")]
        let drawn = (f64::from(limit) * x / MODULUS as f64) as u32;
        drawn
    }
}

/// What stands right of the source columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// A double diagonal.
    Staircase,
    /// A double diagonal, and a few entries below it in each row.
    Triangle,
}

/// n - k rows over n columns: each row's entries, whose symbols XOR to zero.
#[derive(Debug)]
pub(super) struct Matrix {
    k: u32,
    entries: Vec<u32>,
    /// Where each row begins in `entries`, and the end.
    starts: Vec<u32>,
}

impl Matrix {
    /// The matrix of a block of k source and n encoding symbols, with `n1` entries in each source column. Both ends of a
    /// session make the same one from the same seed.
    ///
    /// n - k is at least `n1`: the caller has checked it.
    pub(super) fn new(variant: Variant, k: u32, n: u32, n1: u32, mut generator: Generator) -> Self {
        let mut rows = vec![Vec::new(); (n - k) as usize];
        fill_source_columns(&mut rows, k, n1, &mut generator);
        fill_thin_rows(&mut rows, k, &mut generator);
        for (i, row) in (0..).zip(&mut rows) {
            row.push(k + i);
            if i > 0 {
                row.push(k + i - 1);
            }
        }
        if variant == Variant::Triangle {
            fill_triangle(&mut rows, k, &mut generator);
        }
        let mut matrix = Self { k, entries: Vec::new(), starts: vec![0] };
        for mut row in rows {
            row.sort_unstable();
            row.dedup();
            matrix.entries.extend_from_slice(&row);
            matrix.starts.push(u32::try_from(matrix.entries.len()).expect("below 2^32 entries"));
        }
        matrix
    }

    pub(super) fn k(&self) -> u32 {
        self.k
    }

    pub(super) fn n(&self) -> u32 {
        self.k + self.rows()
    }

    pub(super) fn rows(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).expect("below 2^20 rows")
    }

    /// Columns of a row in ascending order; the last is the symbol that it makes.
    pub(super) fn row(&self, row: u32) -> &[u32] {
        let row = row as usize;
        &self.entries[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// The same by columns: which rows each symbol is in.
    pub(super) fn columns(&self) -> Columns {
        let mut starts = vec![0_u32; self.n() as usize + 1];
        for column in &self.entries {
            starts[*column as usize + 1] += 1;
        }
        for column in 1..starts.len() {
            starts[column] += starts[column - 1];
        }
        let mut next = starts.clone();
        let mut rows = vec![0; self.entries.len()];
        for row in 0..self.rows() {
            for column in self.row(row) {
                let place = &mut next[*column as usize];
                rows[*place as usize] = row;
                *place += 1;
            }
        }
        Columns { starts, rows }
    }
}

/// A matrix by columns.
#[derive(Debug)]
pub(super) struct Columns {
    starts: Vec<u32>,
    rows: Vec<u32>,
}

impl Columns {
    pub(super) fn rows(&self, column: u32) -> &[u32] {
        let column = column as usize;
        &self.rows[self.starts[column] as usize..self.starts[column + 1] as usize]
    }
}

/// `n1` entries in each source column, spread so that rows fill up evenly (section 5.4).
fn fill_source_columns(rows: &mut [Vec<u32>], k: u32, n1: u32, generator: &mut Generator) {
    let height = u32::try_from(rows.len()).expect("below 2^20 rows");
    let mut urn: Vec<u32> = (0..n1 * k).map(|place| place % height).collect();
    let mut taken = 0;
    let mut column = Vec::with_capacity(n1 as usize);
    for j in 0..k {
        column.clear();
        for _ in 0..n1 {
            let left = &urn[taken as usize..];
            let row = if left.iter().any(|row| !column.contains(row)) {
                let place = loop {
                    let place = taken + generator.below(n1 * k - taken);
                    if !column.contains(&urn[place as usize]) {
                        break place as usize;
                    }
                };
                let row = urn[place];
                urn[place] = urn[taken as usize];
                taken += 1;
                row
            } else {
                loop {
                    let row = generator.below(height);
                    if !column.contains(&row) {
                        break row;
                    }
                }
            };
            column.push(row);
            rows[row as usize].push(j);
        }
    }
}

/// No row with fewer than two source symbols.
fn fill_thin_rows(rows: &mut [Vec<u32>], k: u32, generator: &mut Generator) {
    for row in rows {
        if row.is_empty() {
            row.push(generator.below(k));
        }
        // With one source symbol there is no second one.
        if row.len() == 1 && k > 1 {
            let column = loop {
                let column = generator.below(k);
                if column != row[0] {
                    break column;
                }
            };
            row.push(column);
        }
    }
}

/// Section 5.6 of RFC 5170: the bound of the draws shrinks inside the loop.
fn fill_triangle(rows: &mut [Vec<u32>], k: u32, generator: &mut Generator) {
    for (i, row) in (0_u32..).zip(rows).skip(1) {
        let mut j = i - 1;
        let mut drawn = 0;
        while drawn < j {
            j = generator.below(j);
            row.push(k + j);
            drawn += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_minimal_standard_one() {
        let mut generator = Generator::new(1).unwrap();
        let first: Vec<u64> = (0..5).map(|_| generator.next()).collect();
        assert_eq!(first, [16_807, 282_475_249, 1_622_650_073, 984_943_658, 1_144_108_930]);
        // RFC 5170, section 5.7: the 10 000th number from seed 1.
        let last = (5..10_000).map(|_| generator.next()).last();
        assert_eq!(last, Some(1_043_618_065));
        let mut generator = Generator::new(1).unwrap();
        let below: Vec<u32> = (0..10).map(|_| generator.below(10)).collect();
        assert_eq!(below, [0, 1, 7, 4, 5, 2, 0, 6, 6, 9]);
        assert!(Generator::new(0).is_none() && Generator::new(0x7FFF_FFFF).is_none());
    }

    fn matrix(variant: Variant, k: u32, n: u32, seed: u32) -> Vec<Vec<u32>> {
        let matrix = Matrix::new(variant, k, n, 3, Generator::new(seed).unwrap());
        (0..matrix.rows()).map(|row| matrix.row(row).to_vec()).collect()
    }

    /// wire-formats.md 2.1.
    #[test]
    fn the_published_matrices() {
        let staircase: [&[u32]; 5] =
            [&[0, 2, 4, 5], &[0, 2, 3, 5, 6], &[0, 1, 2, 6, 7], &[1, 3, 4, 7, 8], &[1, 3, 4, 8, 9]];
        assert_eq!(matrix(Variant::Staircase, 5, 10, 1), staircase);
        let triangle: [&[u32]; 5] =
            [&[0, 2, 4, 5], &[0, 2, 3, 5, 6], &[0, 1, 2, 5, 6, 7], &[1, 3, 4, 6, 7, 8], &[1, 3, 4, 5, 8, 9]];
        assert_eq!(matrix(Variant::Triangle, 5, 10, 1), triangle);
        let larger: [&[u32]; 10] = [
            &[0, 4, 6, 10],
            &[5, 8, 9, 10, 11],
            &[2, 3, 5, 10, 11, 12],
            &[0, 2, 3, 9, 11, 12, 13],
            &[1, 4, 6, 11, 13, 14],
            &[4, 7, 8, 11, 14, 15],
            &[1, 9, 10, 15, 16],
            &[2, 6, 8, 11, 14, 16, 17],
            &[3, 5, 7, 13, 14, 16, 17, 18],
            &[0, 1, 7, 12, 13, 18, 19],
        ];
        assert_eq!(matrix(Variant::Triangle, 10, 20, 1_234), larger);
    }

    #[test]
    fn columns_are_the_rows_turned() {
        let matrix = Matrix::new(Variant::Triangle, 50, 100, 3, Generator::new(7).unwrap());
        let columns = matrix.columns();
        for column in 0..matrix.n() {
            for row in 0..matrix.rows() {
                assert_eq!(columns.rows(column).contains(&row), matrix.row(row).contains(&column));
            }
        }
    }
}
