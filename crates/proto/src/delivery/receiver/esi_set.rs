//! Set of a block's repair ESIs.

/// Number of ESIs per entry.
const RUN: u32 = 256;
/// Number of 64-bit words per entry.
const WORDS: usize = (RUN / 64) as usize;

/// Set of ESIs. Memory: 40 bytes for each run of 256 ESIs with a member, and up to a quarter of spare
/// capacity. Senders count up, so a run holds all of 256 except the lost symbols.
#[derive(Clone, Debug, Default)]
pub struct EsiSet(Vec<(u32, [u64; WORDS])>);

impl EsiSet {
    /// Memory of the first ESI, in bytes.
    #[cfg(test)]
    pub const BYTES_OF_ONE: usize = size_of::<(u32, [u64; WORDS])>();

    pub fn contains(&self, esi: u32) -> bool {
        let (word, bit) = place(esi);
        self.find(esi).is_ok_and(|index| self.0[index].1[word] & bit != 0)
    }

    /// Adds an ESI. Returns false if the set already has the ESI.
    pub fn insert(&mut self, esi: u32) -> bool {
        let (word, bit) = place(esi);
        let index = self.find(esi).unwrap_or_else(|index| {
            if self.0.len() == self.0.capacity() {
                self.0.reserve_exact(self.growth());
            }
            self.0.insert(index, (esi / RUN, [0; WORDS]));
            index
        });
        let word = &mut self.0[index].1[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Memory of the set, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u32, [u64; WORDS])>()
    }

    /// Additional memory for an ESI, in bytes.
    pub fn bytes_to_insert(&self, esi: u32) -> usize {
        let is_full = self.0.len() == self.0.capacity();
        if is_full && self.find(esi).is_err() { self.growth() * size_of::<(u32, [u64; WORDS])>() } else { 0 }
    }

    fn growth(&self) -> usize {
        1 + self.0.len() / 4
    }

    /// Finds the entry of an ESI. ESIs mostly arrive in ascending order, so the last entry is checked first.
    fn find(&self, esi: u32) -> Result<usize, usize> {
        let run = esi / RUN;
        match self.0.last() {
            Some((last, _)) if *last == run => Ok(self.0.len() - 1),
            Some((last, _)) if *last > run => self.0.binary_search_by_key(&run, |(run, _)| *run),
            _ => Err(self.0.len()),
        }
    }
}

fn place(esi: u32) -> (usize, u64) {
    ((esi % RUN / 64) as usize, 1 << (esi % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_set_that_knows_its_memory() {
        let (mut set, mut model) = (EsiSet::default(), BTreeSet::new());
        for number in 0..3_000_u32 {
            let esi = number.wrapping_mul(0x9E37_79B9) % 5_000;
            let bytes = set.bytes() + set.bytes_to_insert(esi);
            assert_eq!(set.contains(esi), model.contains(&esi));
            assert_eq!(set.insert(esi), model.insert(esi));
            assert_eq!(set.bytes(), bytes);
        }
        assert!((0..5_000).all(|esi| set.contains(esi) == model.contains(&esi)));
        assert!(set.bytes() <= (5_000 / 256 + 1) * 40 * 5 / 4, "{}", set.bytes());
    }
}
