//! Order in which numbers were last used: a log of uses, with one bit per record for the last use of its
//! number.
//!
//! A use appends a record and clears the bit of the number's previous record, so it touches the end of the
//! log and two bits. A linked list through the numbers would touch both neighbours of each number, anywhere
//! in memory. The log is a ring of at least four times as many records as numbers. While less than a quarter
//! of the ring is free, each use moves two valid records of the older half up to a position without a valid
//! record. The ring therefore never runs full, and every use takes bounded time.

/// Maximum number of records that one use moves.
const MOVED_AT_ONCE: usize = 2;

#[derive(Debug)]
pub(super) struct Order {
    /// Numbers by position; the length is a power of two.
    numbers: Box<[u32]>,
    last: Marks,
    /// Count of numbers in the order.
    len: usize,
    /// Position of the least recently used number, if any.
    oldest: usize,
    /// Position of the next record.
    next: usize,
    closing: Option<Closing>,
}

/// Compaction of the older half, newest record first: no record between the two positions is valid.
#[derive(Debug, Clone, Copy)]
struct Closing {
    /// End of the records not yet moved.
    read: usize,
    /// Start of the records at their final position.
    written: usize,
}

impl Order {
    /// Creates an order of at most `bound` numbers, at most 2^22. The capacity is reserved at once; the
    /// system provides the memory on first use.
    pub(super) fn new(bound: usize) -> Self {
        let room = (4 * bound).next_power_of_two().max(64);
        Self {
            numbers: vec![0; room].into(),
            last: Marks::new(room),
            len: 0,
            oldest: 0,
            next: 0,
            closing: None,
        }
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.len > 0).then(|| self.numbers[self.oldest])
    }

    /// Inserts a new number as the newest and returns its position. `moved` receives every other number that
    /// changes its position.
    pub(super) fn insert(&mut self, number: u32, moved: impl FnMut(u32, u32)) -> u32 {
        if self.closing.is_some() || self.is_due() {
            self.close(moved);
        }
        let position = self.next;
        debug_assert!(self.len == 0 || self.ring(position + 1) != self.oldest, "there is room");
        if self.len == 0 {
            self.oldest = position;
        }
        self.numbers[position] = number;
        self.last.set(position);
        self.next = self.ring(position + 1);
        self.len += 1;
        small(position)
    }

    /// Makes the number at `position` the newest and returns its new position.
    pub(super) fn touch(&mut self, number: u32, position: u32, moved: impl FnMut(u32, u32)) -> u32 {
        if self.ring(position as usize + 1) == self.next {
            return position;
        }
        self.remove(position);
        self.insert(number, moved)
    }

    pub(super) fn remove(&mut self, position: u32) {
        let position = position as usize;
        self.last.clear(position);
        self.len -= 1;
        if self.len == 0 {
            self.closing = None;
        } else if position == self.oldest {
            let oldest = self.last.next(position).or_else(|| self.last.next(0)).unwrap_or(0);
            if self.closing.is_some_and(|closing| self.behind(closing.read) <= self.behind(oldest)) {
                self.closing = None;
            }
            self.oldest = oldest;
        }
    }

    /// Whether less than a quarter of the ring is free.
    const fn is_due(&self) -> bool {
        self.len > 0 && self.behind(self.next) >= self.numbers.len() / 4 * 3
    }

    /// Moves records up. Not inlined, because most uses move no record.
    #[inline(never)]
    fn close(&mut self, mut moved: impl FnMut(u32, u32)) {
        let room = self.numbers.len();
        if self.closing.is_none() {
            let middle = self.ring(self.oldest + room / 2);
            self.closing = Some(Closing { read: middle, written: middle });
        }
        for _ in 0..MOVED_AT_ONCE {
            let Some(Closing { read, written }) = self.closing else { return };
            // The oldest record is before `read`, so a record is found.
            let from = self.last.previous(read).or_else(|| self.last.previous(room)).unwrap_or(0);
            let to = self.ring(written + room - 1);
            if from != to {
                self.last.clear(from);
                self.last.set(to);
                self.numbers[to] = self.numbers[from];
                moved(self.numbers[to], small(to));
            }
            self.closing = Some(Closing { read: from, written: to });
            if from == self.oldest {
                self.oldest = to;
                self.closing = None;
            }
        }
    }

    /// Distance of a position behind the oldest.
    const fn behind(&self, position: usize) -> usize {
        self.ring(position.wrapping_sub(self.oldest))
    }

    const fn ring(&self, position: usize) -> usize {
        position & (self.numbers.len() - 1)
    }
}

/// Set of positions. In each level but the lowest, a bit says whether a word of the level below is nonzero.
/// The next position is thus found in a constant number of steps.
#[derive(Debug)]
struct Marks {
    /// The highest level is one word.
    levels: [Box<[u64]>; 4],
}

impl Marks {
    fn new(bound: usize) -> Self {
        let mut bits = bound;
        let levels = core::array::from_fn(|_| {
            bits = bits.div_ceil(64);
            vec![0; bits].into()
        });
        Self { levels }
    }

    fn set(&mut self, position: usize) {
        let mut at = position;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let had_any = *word != 0;
            *word |= 1 << (at % 64);
            if had_any {
                return;
            }
            at /= 64;
        }
    }

    fn clear(&mut self, position: usize) {
        let mut at = position;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Returns the first position at or after `from`.
    fn next(&self, from: usize) -> Option<usize> {
        let mut at = from;
        for (height, level) in self.levels.iter().enumerate() {
            let bits = level.get(at / 64)? & (u64::MAX << (at % 64));
            if bits != 0 {
                let found = at / 64 * 64 + bits.trailing_zeros() as usize;
                let below = self.levels[..height].iter().rev();
                return Some(
                    below.fold(found, |word, level| word * 64 + level[word].trailing_zeros() as usize),
                );
            }
            at = at / 64 + 1;
        }
        None
    }

    /// Returns the last position before `before`.
    fn previous(&self, before: usize) -> Option<usize> {
        let mut at = before;
        for (height, level) in self.levels.iter().enumerate() {
            let bits = level.get(at / 64).map_or(0, |word| word & !(u64::MAX << (at % 64)));
            if bits != 0 {
                let found = at / 64 * 64 + bits.ilog2() as usize;
                let below = self.levels[..height].iter().rev();
                return Some(below.fold(found, |word, level| word * 64 + level[word].ilog2() as usize));
            }
            at /= 64;
        }
        None
    }
}

#[expect(clippy::cast_possible_truncation, reason = "there are at most 2^24 positions")]
const fn small(position: usize) -> u32 {
    position as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The same by obvious means.
    struct Bed {
        order: Order,
        positions: BTreeMap<u32, u32>,
        oldest_first: Vec<u32>,
    }

    impl Bed {
        fn new(bound: usize) -> Self {
            Self { order: Order::new(bound), positions: BTreeMap::new(), oldest_first: Vec::new() }
        }

        fn use_it(&mut self, number: u32) {
            let Self { order, positions, oldest_first } = self;
            let before = positions.get(&number).copied();
            let mut moves = 0;
            let moved = |other, position| {
                moves += 1;
                positions.insert(other, position);
            };
            let position = match before {
                Some(before) => order.touch(number, before, moved),
                None => order.insert(number, moved),
            };
            assert!(moves <= MOVED_AT_ONCE);
            positions.insert(number, position);
            oldest_first.retain(|other| *other != number);
            oldest_first.push(number);
        }

        fn remove(&mut self, number: u32) {
            if let Some(position) = self.positions.remove(&number) {
                self.order.remove(position);
                self.oldest_first.retain(|other| *other != number);
            }
        }

        fn check(&self) {
            assert_eq!(self.order.oldest(), self.oldest_first.first().copied());
            let at: Vec<_> = self
                .oldest_first
                .iter()
                .map(|number| self.order.behind(self.positions[number] as usize))
                .collect();
            assert!(at.is_sorted_by(|before, behind| before < behind), "{at:?}");
            for (number, position) in &self.positions {
                assert_eq!(self.order.numbers[*position as usize], *number);
            }
        }
    }

    proptest! {
        /// Of few numbers the log goes round often; most uses are of some of them, so that the others are
        /// moved.
        #[test]
        fn is_the_order_of_use(
            steps in prop::collection::vec((0_u32..16, 0_u32..6, 0_u32..20), 1..1500),
        ) {
            let mut bed = Bed::new(16);
            for (number, few, what) in steps {
                match what {
                    0 => bed.remove(number),
                    1 => bed.order.oldest().into_iter().for_each(|oldest| bed.remove(oldest)),
                    2..4 => bed.use_it(number),
                    _ => bed.use_it(few),
                }
                bed.check();
            }
        }
    }

    /// As many as there may be, all but one of which nothing uses: all are moved again and again, and stay in
    /// order.
    #[test]
    fn who_is_not_used_stays_the_oldest() {
        let bound = 4096;
        let mut bed = Bed::new(bound as usize);
        (0..bound).for_each(|number| bed.use_it(number));
        for use_ in 0..bound * 12 {
            // Two in turn: the newest is not moved.
            bed.use_it(bound - 1 - use_ % 2);
        }
        bed.check();
        for number in 0..bound - 2 {
            assert_eq!(bed.order.oldest(), Some(number));
            bed.remove(number);
        }
    }

    #[test]
    fn marks_are_found_from_anywhere() {
        let mut marks = Marks::new(1 << 22);
        let set = [0, 63, 64, 5_000, 300_000, 300_001, (1 << 22) - 1];
        set.iter().for_each(|position| marks.set(*position));
        for from in [0, 1, 62, 63, 64, 65, 4_999, 5_001, 300_000, 300_002, (1 << 22) - 1, 1 << 22] {
            assert_eq!(marks.next(from), set.iter().copied().find(|position| *position >= from));
            assert_eq!(marks.previous(from), set.iter().rev().copied().find(|position| *position < from));
        }
        set.iter().for_each(|position| marks.clear(*position));
        assert!(marks.next(0).is_none() && marks.previous(1 << 22).is_none());
    }
}
