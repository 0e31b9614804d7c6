//! What the tests of the codes share: chance from a seed, and blocks with losses.

use headwater_fec::{BlockCodec, Repair};

/// SplitMix64: the tests need the same numbers on every machine, not good ones.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.next() % u64::from(end)).unwrap()
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[7]).collect()
    }

    /// `count` distinct numbers from `start..end`, ascending.
    pub fn sample(&mut self, start: u32, end: u32, count: usize) -> Vec<u32> {
        let mut numbers = std::collections::BTreeSet::new();
        while numbers.len() < count {
            numbers.insert(start + self.below(end - start));
        }
        numbers.into_iter().collect()
    }
}

/// A block of random bytes.
pub fn source(codec: &dyn BlockCodec, k: u32, seed: u64) -> Vec<u8> {
    Random(seed).bytes(k as usize * codec.symbol_size())
}

/// The repair symbols `esis` of a block.
pub fn symbols(codec: &dyn BlockCodec, k: u32, source: &[u8], esis: &[u32]) -> Vec<(u32, Vec<u8>)> {
    let encoder = codec.encoder(k, source).unwrap();
    let symbol = |&esi: &u32| {
        let mut out = vec![0xEE; codec.symbol_size()];
        encoder.symbol(esi, &mut out).unwrap();
        (esi, out)
    };
    esis.iter().map(symbol).collect()
}

pub fn repairs(symbols: &[(u32, Vec<u8>)]) -> Vec<Repair<'_>> {
    symbols.iter().map(|(esi, data)| Repair { esi: *esi, data }).collect()
}

/// The block with garbage in the missing places.
pub fn with_losses(source: &[u8], symbol_size: usize, missing: &[u32]) -> Vec<u8> {
    let mut block = source.to_vec();
    for &esi in missing {
        let start = esi as usize * symbol_size;
        block[start..start + symbol_size].fill(0xA5);
    }
    block
}
