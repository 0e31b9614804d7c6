//! The sums that lead from the symbols of a block to its intermediate symbols: found once for a block on the
//! numbers of its symbols, followed for strips of the symbols' bytes, since codes work on each byte
//! separately.
//!
//! Symbols stand in slots of a pool, a strip of bytes each: a slot for each intermediate symbol, then slots
//! for right sides, and tables of their sums. Following a schedule: steps with inactive symbols at zero;
//! right sides of the left-over equations; the inactive symbols; the steps once more, with all symbols in
//! place.

use super::dense::{Dense, Yielded};
use super::inactivation::Peeled;
use super::structure::{Equations, Structure};
use crate::Kernel;
use crate::bits::Bits;

/// Most bytes of a strip: half of a packet's symbol, which is as fast as whole symbols and takes half of the
/// pool.
pub(super) const STRIP_BYTES_MAX: usize = 704;
/// Symbols added up by a table of all their sums.
const TABLE_BITS: usize = 4;
const TABLE_LEN: usize = 1 << TABLE_BITS;
/// Sums between the one at work and the one whose input is prefetched: inputs stand in no order and are read
/// from memory, most slots from a cache.
const INPUTS_AHEAD: usize = 4;
const NO_INPUT: u32 = u32::MAX;

/// Sums of an input symbol, if any, and of pool slots, each written to a slot.
#[derive(Debug, Default)]
struct Sums {
    heads: Vec<Head>,
    terms: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    target: u32,
    input: u32,
    /// End of the sum's terms.
    end: u32,
}

impl Sums {
    fn with_capacity(heads: usize, terms: usize) -> Self {
        Self { heads: Vec::with_capacity(heads), terms: Vec::with_capacity(terms) }
    }

    fn push(&mut self, target: u32, input: u32, terms: impl IntoIterator<Item = u32>) {
        self.terms.extend(terms);
        self.heads.push(Head { target, input, end: number(self.terms.len()) });
    }

    fn follow<'a>(
        &self,
        kernel: Kernel,
        pool: &mut [u8],
        width: usize,
        input: &impl Fn(u32) -> Option<&'a [u8]>,
    ) {
        let mut start = 0;
        let bytes = |head: &Head| if head.input == NO_INPUT { None } else { input(head.input) };
        for (at, head) in self.heads.iter().enumerate() {
            let end = head.end as usize;
            if let Some(strip) = self.heads.get(at + INPUTS_AHEAD).and_then(bytes) {
                kernel.prefetch(strip);
            }
            kernel.sum_slots(pool, width, head.target, bytes(head), &self.terms[start..end]);
            start = end;
        }
    }

    fn shrink(&mut self) {
        self.heads.shrink_to_fit();
        self.terms.shrink_to_fit();
    }
}

/// Sums that make the intermediate symbols of a block.
#[derive(Debug)]
pub(super) struct Schedule {
    slots: usize,
    /// Steps with inactive symbols at zero, right sides, and the pivots with free symbols at zero.
    forward: Sums,
    heavy: Option<Heavy>,
    /// Pivots, and the steps with all symbols in place.
    backward: Sums,
    /// Slots whose sum is each of the symbols wanted.
    wanted: Equations,
}

/// Equations over GF(2^8), for the free symbols.
#[derive(Debug)]
struct Heavy {
    /// Sums after the HDPC equations' right sides are known: the pivots with free symbols at zero.
    pivots: Sums,
    pivot_slots: Vec<u32>,
    free_slots: Vec<u32>,
    rows: Vec<usize>,
    coefficients: Vec<u8>,
    inverse: Vec<u8>,
}

impl Schedule {
    /// Solves `equations`: those of the LDPC symbols, then one for each of `inputs`, the numbers of the
    /// encoding symbols' bytes, or [`u32::MAX`] for a symbol of zeros. `None` if the equations do not
    /// suffice.
    ///
    /// Makes the intermediate symbols, or only the `wanted` sums of intermediate symbols.
    pub(super) fn new(
        structure: &Structure,
        equations: &Equations,
        inputs: &[u32],
        wanted: Option<Equations>,
    ) -> Option<Self> {
        let peeled = Peeled::new(equations, structure.numbers.lt, structure.numbers.intermediate);
        let yielded = Yielded::new(structure, equations, &peeled);
        let dense = Dense::new(structure, equations, &peeled, &yielded)?;
        let builder = Builder { structure, equations, inputs, peeled: &peeled, dense: &dense };
        let end = wanted.map_or(End::All, |wanted| builder.end(wanted, &yielded));
        drop(yielded);
        Some(builder.schedule(end))
    }

    /// Slots whose sum is a wanted symbol, once the schedule was followed.
    pub(super) fn wanted(&self, number: usize) -> &[u32] {
        self.wanted.row(number)
    }

    /// Slots of the pool: the intermediate symbols come first, in their order.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Fills the pool of slots of `width` bytes, whatever stands there. `input` returns a strip of an
    /// encoding symbol, or `None` for zeros.
    pub(super) fn follow<'a>(
        &self,
        structure: &Structure,
        pool: &mut [u8],
        width: usize,
        input: impl Fn(u32) -> Option<&'a [u8]>,
    ) {
        let kernel = Kernel::chosen();
        self.forward.follow(kernel, pool, width, &input);
        if let Some(heavy) = &self.heavy {
            heavy.follow(kernel, structure, pool, width);
        }
        self.backward.follow(kernel, pool, width, &input);
    }

    /// Gives back memory that only building took.
    pub(super) fn shrink(&mut self) {
        self.forward.shrink();
        self.backward.shrink();
    }
}

impl Heavy {
    fn follow(&self, kernel: Kernel, structure: &Structure, pool: &mut [u8], width: usize) {
        let mut right = hdpc_sums(kernel, structure, pool, width);
        self.pivots.follow(kernel, pool, width, &|_| None);
        let slot = |slot: u32| slot as usize * width..(slot as usize + 1) * width;
        for (&row, coefficients) in
            self.rows.iter().zip(self.coefficients.chunks_exact(self.pivot_slots.len().max(1)))
        {
            let right = &mut right[row * width..][..width];
            for (&factor, &pivot) in coefficients.iter().zip(&self.pivot_slots) {
                kernel.mul_add(right, &pool[slot(pivot)], factor);
            }
        }
        for (factors, &free) in self.inverse.chunks_exact(self.rows.len()).zip(&self.free_slots) {
            let target = &mut pool[slot(free)];
            for (&factor, &row) in factors.iter().zip(&self.rows) {
                kernel.mul_add(target, &right[row * width..][..width], factor);
            }
        }
    }
}

/// Right sides of the H HDPC equations, with inactive symbols at zero.
fn hdpc_sums(kernel: Kernel, structure: &Structure, pool: &[u8], width: usize) -> Vec<u8> {
    let mut right = vec![0; structure.numbers.hdpc as usize * width];
    let mut sum = [0; STRIP_BYTES_MAX];
    let sum = &mut sum[..width];
    let columns = (structure.numbers.symbols + structure.numbers.ldpc) as usize;
    for (column, symbol) in pool.chunks_exact(width).take(columns).enumerate() {
        kernel.times_alpha_add(sum, symbol);
        if let Some(pair) = structure.hdpc_entries.get(column) {
            pair.iter()
                .for_each(|row| kernel.mul_add(&mut right[usize::from(*row) * width..][..width], sum, 1));
        }
    }
    let zero = vec![0; width];
    for right in right.chunks_exact_mut(width) {
        kernel.mul_add(right, sum, 1);
        kernel.times_alpha_add(sum, &zero);
    }
    right
}

/// Last part of a schedule.
enum End {
    /// The steps once more: all intermediate symbols are wanted.
    All,
    /// The steps that lead to wanted symbols once more.
    Steps { is_needed: Vec<bool>, wanted: Equations },
    /// Tables of the inactive symbols, and the wanted symbols as sums with these.
    Direct(Equations),
}

struct Builder<'a> {
    structure: &'a Structure,
    equations: &'a Equations,
    inputs: &'a [u32],
    peeled: &'a Peeled,
    dense: &'a Dense,
}

impl Builder<'_> {
    fn schedule(&self, end: End) -> Schedule {
        let (first_right, first_table) = (self.structure.numbers.intermediate, self.first_table());
        // Rows, or all inactive symbols.
        let tables = self.peeled.inactive.len().div_ceil(TABLE_BITS);
        let mut forward = Sums::with_capacity(
            self.peeled.steps.len() + self.dense.rows.len(),
            self.equations.columns_len(),
        );
        self.add_first_steps(&mut forward);
        for (slot, row) in (first_right..).zip(&self.dense.rows) {
            let terms = self.row(*row).filter(|column| self.is_yielded(*column));
            forward.push(slot, self.input(*row), terms);
        }
        // The HDPC equations take inactive symbols as zero, so these get their values later.
        self.peeled.inactive.iter().for_each(|column| forward.push(*column, NO_INPUT, []));
        let mut pivots = Sums::default();
        let mut backward = Sums::with_capacity(self.peeled.steps.len(), self.equations.columns_len());
        add_tables(&mut pivots, first_table, &(first_right..first_table).collect::<Vec<_>>());
        for (pivot, slot) in self.pivot_slots().enumerate() {
            pivots.push(
                slot,
                NO_INPUT,
                table_slots(
                    first_table,
                    |table| nibble(&self.dense.sums, pivot, table),
                    self.dense.rows.len(),
                ),
            );
        }
        let heavy = (!self.dense.free.is_empty()).then(|| {
            let free: Vec<u32> = self.dense.free.iter().map(|place| self.peeled.inactive[*place]).collect();
            add_tables(&mut backward, first_table, &free);
            for (slot, sum) in self.pivot_slots().zip(&self.dense.free_sums) {
                let terms = table_slots(
                    first_table,
                    |table| usize::from(sum >> (TABLE_BITS * table)) % TABLE_LEN,
                    free.len(),
                );
                backward.push(slot, NO_INPUT, std::iter::once(slot).chain(terms));
            }
            Heavy {
                pivots: std::mem::take(&mut pivots),
                pivot_slots: self.pivot_slots().collect(),
                free_slots: free,
                rows: self.dense.heavy_rows.clone(),
                coefficients: self.dense.heavy.clone(),
                inverse: self.dense.inverse.clone(),
            }
        });
        if heavy.is_none() {
            backward = pivots;
        }
        let wanted = match end {
            End::All => {
                self.add_last_steps(&mut backward, |_| true);
                Equations::with_capacity(0, 0)
            }
            End::Steps { is_needed, wanted } => {
                self.add_last_steps(&mut backward, |column| is_needed[column as usize]);
                wanted
            }
            End::Direct(wanted) => {
                add_tables(&mut backward, first_table, &self.peeled.inactive);
                wanted
            }
        };
        Schedule { slots: first_table as usize + tables * TABLE_LEN, forward, heavy, backward, wanted }
    }

    /// Chooses the way to the wanted symbols that has fewer terms.
    fn end(&self, wanted: Equations, yielded: &Yielded) -> End {
        let is_needed = self.needed_columns(&wanted);
        let steps = self.peeled.steps.iter().filter(|step| is_needed[step.column as usize]);
        let terms_of_steps: usize = steps.map(|step| self.equations.row(step.row as usize).len()).sum();
        let tables = self.peeled.inactive.len().div_ceil(TABLE_BITS);
        if 2 * tables * TABLE_LEN + wanted.len() * tables < terms_of_steps {
            End::Direct(self.direct(&wanted, yielded))
        } else {
            End::Steps { is_needed, wanted }
        }
    }

    /// The wanted symbols as sums of symbols with inactive symbols at zero, and of tables of the inactive
    /// symbols.
    fn direct(&self, wanted: &Equations, yielded: &Yielded) -> Equations {
        let coefficients = yielded.coefficients(wanted, self.peeled);
        let inactive = self.peeled.inactive.len();
        let mut direct = Equations::with_capacity(wanted.len(), wanted.len() * (8 + inactive / TABLE_BITS));
        let mut slots = Vec::new();
        for sum in 0..wanted.len() {
            slots.clear();
            slots.extend(wanted.row(sum).iter().filter(|column| self.is_yielded(**column)));
            let nibble = |table| nibble(&coefficients, sum, table);
            slots.extend(table_slots(self.first_table(), nibble, inactive));
            direct.push(&slots);
        }
        direct
    }

    /// Slot of the first table, behind intermediate symbols and right sides.
    fn first_table(&self) -> u32 {
        self.structure.numbers.intermediate + number(self.dense.rows.len())
    }

    fn add_first_steps(&self, sums: &mut Sums) {
        for step in &self.peeled.steps {
            let terms =
                self.row(step.row).filter(|column| *column != step.column && self.is_yielded(*column));
            sums.push(step.column, self.input(step.row), terms);
        }
    }

    /// The symbols that lead to a wanted symbol, by column.
    fn needed_columns(&self, wanted: &Equations) -> Vec<bool> {
        let mut is_needed = vec![false; self.structure.numbers.intermediate as usize];
        wanted.columns().iter().for_each(|column| is_needed[*column as usize] = true);
        for step in self.peeled.steps.iter().rev() {
            if is_needed[step.column as usize] {
                self.row(step.row).for_each(|column| is_needed[column as usize] = true);
            }
        }
        is_needed
    }

    fn add_last_steps(&self, sums: &mut Sums, is_needed: impl Fn(u32) -> bool) {
        for step in self.peeled.steps.iter().filter(|step| is_needed(step.column)) {
            let terms = self.row(step.row).filter(|column| *column != step.column);
            sums.push(step.column, self.input(step.row), terms);
        }
    }

    fn row(&self, row: u32) -> impl Iterator<Item = u32> {
        self.equations.row(row as usize).iter().copied()
    }

    fn is_yielded(&self, column: u32) -> bool {
        self.peeled.inactive_place(column).is_none()
    }

    fn pivot_slots(&self) -> impl Iterator<Item = u32> {
        self.dense.pivots.iter().map(|place| self.peeled.inactive[*place])
    }

    /// Input of an equation: LDPC equations have none.
    fn input(&self, row: u32) -> u32 {
        row.checked_sub(self.structure.numbers.ldpc)
            .map_or(NO_INPUT, |encoding| self.inputs[encoding as usize])
    }
}

/// All sums of each four symbols, a table of slots each.
fn add_tables(sums: &mut Sums, first: u32, symbols: &[u32]) {
    for (table, symbols) in symbols.chunks(TABLE_BITS).enumerate() {
        let table = first + number(table * TABLE_LEN);
        for place in 1..1_u32 << symbols.len() {
            let lowest = symbols[place.trailing_zeros() as usize];
            let without = place & (place - 1);
            let rest = (without != 0).then_some(table + without);
            sums.push(table + place, NO_INPUT, std::iter::once(lowest).chain(rest));
        }
    }
}

/// Slots of the tables' sums that a sum of `count` symbols is made of.
fn table_slots(first: u32, nibble: impl Fn(usize) -> usize, count: usize) -> impl Iterator<Item = u32> {
    let nibbles = (0..count.div_ceil(TABLE_BITS)).map(move |table| (table, nibble(table)));
    nibbles
        .filter(|(_, nibble)| *nibble != 0)
        .map(move |(table, nibble)| first + number(table * TABLE_LEN + nibble))
}

/// Four bits of a row.
fn nibble(bits: &Bits, row: usize, table: usize) -> usize {
    usize::from(bits.byte(row, table / 2) >> (TABLE_BITS * (table % 2))) % TABLE_LEN
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("below 2^32")
}
