//! The parity check matrix (RFC 5170, sections 5.3 to 5.7) and the random number generator for the matrix.
//!
//! The graph of a matrix, and the cache of graphs.

use std::sync::{Arc, Mutex, PoisonError};

/// Park and Miller's minimal standard generator: x <- 16807 x mod (2^31 - 1) (RFC 5170, section 5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Structure right of the source columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// A double diagonal.
    Staircase,
    /// A double diagonal, and a few entries below it in each row.
    Triangle,
}

/// n - k rows over n columns: each row's entries, whose symbols XOR to zero.
///
/// Memory: 4 bytes per entry and per row; during construction 12 bytes more for each entry of a source
/// column. A row has N1 k / (n - k) entries in source columns and two of the staircase, in the triangle about
/// log2(n - k) / 2 more.
#[derive(Debug)]
pub(super) struct Matrix {
    k: u32,
    entries: Vec<u32>,
    /// Start of each row in `entries`, and the end.
    starts: Vec<u32>,
}

impl Matrix {
    /// The matrix of a block of k source and n encoding symbols, with `n1` entries in each source column.
    /// Both ends of a session make the same matrix from the same seed.
    ///
    /// n - k is at least `n1`: the caller has checked this.
    pub(super) fn new(variant: Variant, k: u32, n: u32, n1: u32, mut generator: Generator) -> Self {
        let height = n - k;
        let source = Source::new(k, height, n1, &mut generator);
        // Drawn for all rows before anything of the triangle is.
        let added: Vec<(u32, u32)> = source.thin_rows(k, &mut generator);
        let mut added = added.into_iter().peekable();
        let mut matrix = Self { k, entries: Vec::with_capacity(source.columns.len()), starts: vec![0] };
        for i in 0..height {
            let first = matrix.entries.len();
            matrix.entries.extend_from_slice(source.row(i));
            while let Some((_, column)) = added.next_if(|(row, _)| *row == i) {
                matrix.entries.push(column);
            }
            matrix.entries.push(k + i);
            if i > 0 {
                matrix.entries.push(k + i - 1);
                if variant == Variant::Triangle {
                    draw_triangle(i, &mut generator, |j| matrix.entries.push(k + j));
                }
            }
            matrix.end_row(first);
        }
        matrix
    }

    /// The entries from `first` on become a row: in order, without duplicates.
    fn end_row(&mut self, first: usize) {
        self.entries[first..].sort_unstable();
        let mut kept = first + 1;
        for at in first + 1..self.entries.len() {
            if self.entries[at] != self.entries[kept - 1] {
                self.entries[kept] = self.entries[at];
                kept += 1;
            }
        }
        self.entries.truncate(kept);
        self.starts.push(u32::try_from(kept).expect("below 2^32 entries"));
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

    /// Memory of the matrix and its columns, in bytes.
    pub(super) fn bytes(&self) -> usize {
        4 * (2 * self.entries.capacity() + 2 * self.starts.len() + self.k as usize)
    }

    /// Columns of a row in ascending order; the last is the symbol that the row makes.
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

/// The entries in source columns, by rows.
struct Source {
    columns: Vec<u32>,
    /// Start of each row in `columns`, and the end.
    starts: Vec<u32>,
}

impl Source {
    /// `n1` entries in each of `k` columns, spread so that rows fill up evenly (section 5.4).
    fn new(k: u32, height: u32, n1: u32, generator: &mut Generator) -> Self {
        let rows = draw_source_columns(k, height, n1, generator);
        let mut starts = vec![0_u32; height as usize + 1];
        for row in &rows {
            starts[*row as usize + 1] += 1;
        }
        for row in 1..starts.len() {
            starts[row] += starts[row - 1];
        }
        let mut next = starts.clone();
        let mut columns = vec![0; rows.len()];
        for (column, rows) in (0..k).zip(rows.chunks_exact(n1 as usize)) {
            for row in rows {
                let place = &mut next[*row as usize];
                columns[*place as usize] = column;
                *place += 1;
            }
        }
        Self { columns, starts }
    }

    fn row(&self, row: u32) -> &[u32] {
        let row = row as usize;
        &self.columns[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// Entries added to rows with fewer than two source symbols, as row and column, by ascending row.
    fn thin_rows(&self, k: u32, generator: &mut Generator) -> Vec<(u32, u32)> {
        let mut added = Vec::new();
        let height = u32::try_from(self.starts.len() - 1).expect("below 2^20 rows");
        for i in 0..height {
            let mut only = match *self.row(i) {
                [] => None,
                [column] => Some(column),
                _ => continue,
            };
            if only.is_none() {
                let column = generator.below(k);
                added.push((i, column));
                only = Some(column);
            }
            // With a single source symbol there is no second.
            if k > 1 {
                let column = loop {
                    let column = generator.below(k);
                    if Some(column) != only {
                        break column;
                    }
                };
                added.push((i, column));
            }
        }
        added
    }
}

/// The rows of each source column's entries, column by column.
fn draw_source_columns(k: u32, height: u32, n1: u32, generator: &mut Generator) -> Vec<u32> {
    let mut urn: Vec<u32> = (0..n1 * k).map(|place| place % height).collect();
    let mut rows = Vec::with_capacity(urn.len());
    let mut taken = 0;
    for _ in 0..k {
        let first = rows.len();
        for _ in 0..n1 {
            let column = &rows[first..];
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
            rows.push(row);
        }
    }
    rows
}

/// Row `i` of the triangle (section 5.6): the bound of the draws shrinks inside the loop.
fn draw_triangle(i: u32, generator: &mut Generator, mut set: impl FnMut(u32)) {
    let mut j = i - 1;
    let mut drawn = 0;
    while drawn < j {
        j = generator.below(j);
        set(j);
        drawn += 1;
    }
}

/// Matrices kept, in bytes, by all codecs of a process together: blocks of an object have two lengths, and
/// objects take turns. Matrices of long blocks are made again each time, which costs little compared with
/// coding the blocks. The cache is shared because a session may have any number of codecs.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// The matrices used last, the latest at the end.
static KEPT: Mutex<Vec<(Key, Arc<Graph>)>> = Mutex::new(Vec::new());

/// Parameters that determine a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) variant: Variant,
    pub(super) k: u32,
    pub(super) n: u32,
    pub(super) n1: u32,
    pub(super) generator: Generator,
}

/// A matrix both ways.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) matrix: Matrix,
    pub(super) columns: Columns,
}

impl Graph {
    /// Returns the graph of this key, from the cache or new. Both have the same content.
    pub(super) fn of(key: Key) -> Arc<Self> {
        // A panic of another thread cannot leave the list half changed.
        let lock = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut kept = lock();
            if let Some(position) = kept.iter().position(|(of, _)| *of == key) {
                let found = kept.remove(position);
                let graph = Arc::clone(&found.1);
                kept.push(found);
                return graph;
            }
        }
        // Made outside the lock: two threads may make the same graph.
        let matrix = Matrix::new(key.variant, key.k, key.n, key.n1, key.generator);
        let graph = Arc::new(Self { columns: matrix.columns(), matrix });
        if graph.matrix.bytes() <= KEPT_BYTES_MAX {
            let mut kept = lock();
            kept.push((key, Arc::clone(&graph)));
            while kept.iter().map(|(_, graph)| graph.matrix.bytes()).sum::<usize>() > KEPT_BYTES_MAX {
                kept.remove(0);
            }
        }
        graph
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

    /// RFC 5170, section 5.4.
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
