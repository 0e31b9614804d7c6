//! Peeling with inactivation (RFC 6330, section 5.4.2, first phase): which intermediate symbol each equation
//! yields, and in which order, on column numbers alone.

use std::collections::BinaryHeap;

use super::structure::Equations;

const NONE: u32 = u32::MAX;

/// An equation yields an intermediate symbol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) column: u32,
    pub(super) row: u32,
}

/// Result of peeling: every intermediate symbol has a step or is inactive.
///
/// Memory while it is made: 36 bytes for each intermediate symbol and equation, and 4 for each entry.
#[derive(Debug)]
pub(super) struct Peeled {
    /// Steps in an order in which each uses only inactive symbols and symbols yielded before.
    pub(super) steps: Vec<Step>,
    /// Inactive symbols: at first all PI symbols.
    pub(super) inactive: Vec<u32>,
    /// By intermediate symbol: its place in `inactive`.
    inactive_places: Vec<u32>,
}

impl Peeled {
    /// Peels `equations`, over `intermediate` symbols of which those below `lt` may be yielded.
    pub(super) fn new(equations: &Equations, lt: u32, intermediate: u32) -> Self {
        let mut peeling = Peeling::new(equations, lt, intermediate);
        peeling.run();
        peeling.peeled
    }

    /// Place of a symbol in `inactive`.
    pub(super) fn inactive_place(&self, column: u32) -> Option<usize> {
        let place = self.inactive_places[column as usize];
        (place != NONE).then_some(place as usize)
    }
}

struct Peeling<'a> {
    equations: &'a Equations,
    lt: u32,
    by_column: ByColumn,
    is_open: Vec<bool>,
    open: usize,
    /// Open columns of each equation, and the exclusive or of their numbers: with one left, its number.
    left: Vec<u32>,
    sums: Vec<u32>,
    /// Equations with one open column.
    ripe: Vec<u32>,
    components: Components,
    peeled: Peeled,
}

impl<'a> Peeling<'a> {
    fn new(equations: &'a Equations, lt: u32, intermediate: u32) -> Self {
        let mut left = vec![0; equations.len()];
        let mut sums = vec![0; equations.len()];
        for row in 0..equations.len() {
            for column in light(equations, row, lt) {
                left[row] += 1;
                sums[row] ^= column;
            }
        }
        let inactive: Vec<u32> = (lt..intermediate).collect();
        let mut inactive_places = vec![NONE; intermediate as usize];
        (0..).zip(&inactive).for_each(|(place, column)| inactive_places[*column as usize] = place);
        let mut peeling = Self {
            equations,
            lt,
            by_column: ByColumn::new(equations, lt),
            is_open: vec![true; lt as usize],
            open: lt as usize,
            ripe: Vec::new(),
            components: Components::new(lt),
            peeled: Peeled { steps: Vec::with_capacity(lt as usize), inactive, inactive_places },
            left,
            sums,
        };
        for row in (0..equations.len()).rev() {
            peeling.look_at(row);
        }
        peeling
    }

    fn run(&mut self) {
        loop {
            while let Some(row) = self.ripe.pop() {
                if self.left[row as usize] == 1 {
                    let column = self.sums[row as usize];
                    self.peeled.steps.push(Step { column, row });
                    self.close(column);
                }
            }
            if self.open == 0 {
                return;
            }
            let column = self.column_to_inactivate();
            let place = u32::try_from(self.peeled.inactive.len()).expect("below 2^16 columns");
            self.peeled.inactive_places[column as usize] = place;
            self.peeled.inactive.push(column);
            self.close(column);
        }
    }

    /// Equations of two open columns are the edges of a graph: a column of its largest component leads to all
    /// columns of the component. Without an edge the equation with fewest open columns gets one.
    fn column_to_inactivate(&mut self) -> u32 {
        if let Some(column) = self.components.largest(&self.is_open) {
            return column;
        }
        let thinnest =
            (0..self.left.len()).filter(|row| self.left[*row] > 0).min_by_key(|row| self.left[*row]);
        let open = |column: &u32| self.is_open[*column as usize];
        match thinnest {
            Some(row) => light(self.equations, row, self.lt)
                .filter(open)
                .max_by_key(|column| self.by_column.rows(*column).len()),
            None => (0..self.lt).find(open),
        }
        .expect("a column is open")
    }

    /// The column is yielded or inactive.
    fn close(&mut self, column: u32) {
        self.is_open[column as usize] = false;
        self.open -= 1;
        for at in self.by_column.range(column) {
            let row = self.by_column.rows[at] as usize;
            self.left[row] -= 1;
            self.sums[row] ^= column;
            self.look_at(row);
        }
    }

    fn look_at(&mut self, row: usize) {
        match self.left[row] {
            1 => self.ripe.push(u32::try_from(row).expect("below 2^25 equations")),
            2 => {
                let is_open = |column: &u32| self.is_open[*column as usize];
                let first = light(self.equations, row, self.lt).find(is_open).expect("two are open");
                self.components.join(first, self.sums[row] ^ first);
            }
            _ => {}
        }
    }
}

/// Columns of an equation that may be yielded.
fn light(equations: &Equations, row: usize, lt: u32) -> impl Iterator<Item = u32> {
    equations.row(row).iter().copied().take_while(move |column| *column < lt)
}

/// The equations of each column.
struct ByColumn {
    rows: Vec<u32>,
    starts: Vec<u32>,
}

impl ByColumn {
    fn new(equations: &Equations, lt: u32) -> Self {
        let mut starts = vec![0_u32; lt as usize + 2];
        for row in 0..equations.len() {
            light(equations, row, lt).for_each(|column| starts[column as usize + 2] += 1);
        }
        for column in 2..starts.len() {
            starts[column] += starts[column - 1];
        }
        // Starts are one place further on until the rows are there.
        let mut rows = vec![0; starts[starts.len() - 1] as usize];
        for (number, row) in (0..).zip(0..equations.len()) {
            for column in light(equations, row, lt) {
                let next = &mut starts[column as usize + 1];
                rows[*next as usize] = number;
                *next += 1;
            }
        }
        Self { rows, starts }
    }

    fn range(&self, column: u32) -> std::ops::Range<usize> {
        self.starts[column as usize] as usize..self.starts[column as usize + 1] as usize
    }

    fn rows(&self, column: u32) -> &[u32] {
        &self.rows[self.range(column)]
    }
}

/// Components of the graph of equations with two open columns. A component never splits: once one of its
/// columns is closed, peeling closes all.
struct Components {
    parents: Vec<u32>,
    sizes: Vec<u32>,
    /// Size and root of each component ever joined, the largest first.
    joined: BinaryHeap<(u32, u32)>,
}

impl Components {
    fn new(columns: u32) -> Self {
        let joined = BinaryHeap::with_capacity(columns as usize);
        Self { parents: (0..columns).collect(), sizes: vec![1; columns as usize], joined }
    }

    fn root(&mut self, mut column: u32) -> u32 {
        while self.parents[column as usize] != column {
            let above = self.parents[self.parents[column as usize] as usize];
            self.parents[column as usize] = above;
            column = above;
        }
        column
    }

    fn join(&mut self, a: u32, b: u32) {
        let (mut a, mut b) = (self.root(a), self.root(b));
        if a == b {
            return;
        }
        if self.sizes[a as usize] < self.sizes[b as usize] {
            (a, b) = (b, a);
        }
        self.parents[b as usize] = a;
        self.sizes[a as usize] += self.sizes[b as usize];
        self.joined.push((self.sizes[a as usize], a));
    }

    /// Returns a column of the largest component of open columns that has an edge.
    fn largest(&mut self, is_open: &[bool]) -> Option<u32> {
        // A component that grew, or became part of another, is smaller than its successor, which comes first
        // and is closed as a whole.
        while let Some((_, root)) = self.joined.pop() {
            if is_open[root as usize] {
                return Some(root);
            }
        }
        None
    }
}
