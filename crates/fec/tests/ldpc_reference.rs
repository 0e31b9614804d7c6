//! LDPC beside a plain reference: the matrix made entry by entry as RFC 5170 tells it, and rank by Gaussian
//! elimination over all of it. What the reference's rank says can be decoded is decoded, nothing else is, and
//! to the same bytes.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[expect(dead_code, reason = "other tests need more of it")]
mod common;

use std::sync::Arc;

use common::{Random, source};
use headwater_fec::{
    BlockCodec, DecodeError, LdpcParameters, Parameters, Repair, Scheme, codec, sending_order,
};
use proptest::prelude::*;

/// Bits of a row, by column.
#[derive(Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, column: u32) -> bool {
        self.0[column as usize / 64] >> (column % 64) & 1 == 1
    }

    fn set(&mut self, column: u32) {
        self.0[column as usize / 64] |= 1 << (column % 64);
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(bits, other)| *bits ^= other);
    }
}

/// The parity check matrix, (n - k) rows of n bits.
struct Reference {
    k: u32,
    n: u32,
    rows: Vec<Bits>,
}

/// RFC 5170, 5.7, by whole numbers: m x / (2^31 - 1) is no whole number but for x = 0, which does not come,
/// and far enough from one for doubles to tell.
struct Chance(u64);

impl Chance {
    fn below(&mut self, m: u32) -> u32 {
        self.0 = self.0 * 16_807 % 0x7FFF_FFFF;
        u32::try_from(u64::from(m) * self.0 / 0x7FFF_FFFF).unwrap()
    }
}

impl Reference {
    fn new(scheme: Scheme, k: u32, n: u32, n1: u32, seed: u32) -> Self {
        let height = n - k;
        let mut rows = vec![Bits(vec![0; (n as usize).div_ceil(64)]); height as usize];
        let mut chance = Chance(seed.into());
        let mut u: Vec<u32> = (0..n1 * k).map(|h| h % height).collect();
        let mut t = 0;
        for j in 0..k {
            for _ in 0..n1 {
                if (t..n1 * k).any(|i| !rows[u[i as usize] as usize].has(j)) {
                    let i = loop {
                        let i = t + chance.below(n1 * k - t);
                        if !rows[u[i as usize] as usize].has(j) {
                            break i;
                        }
                    };
                    rows[u[i as usize] as usize].set(j);
                    u[i as usize] = u[t as usize];
                    t += 1;
                } else {
                    let i = loop {
                        let i = chance.below(height);
                        if !rows[i as usize].has(j) {
                            break i;
                        }
                    };
                    rows[i as usize].set(j);
                }
            }
        }
        for row in &mut rows {
            let degree = |row: &Bits| (0..k).filter(|j| row.has(*j)).count();
            if degree(row) == 0 {
                row.set(chance.below(k));
            }
            // With one source symbol there is no second one: the RFC's loop would not end.
            while degree(row) == 1 && k > 1 {
                let j = chance.below(k);
                row.set(j);
            }
        }
        for i in 0..height {
            rows[i as usize].set(k + i);
            if i > 0 {
                rows[i as usize].set(k + i - 1);
            }
        }
        if scheme == Scheme::LdpcTriangle {
            for i in 1..height {
                let (mut j, mut l) = (i - 1, 0);
                while l < j {
                    j = chance.below(j);
                    rows[i as usize].set(k + j);
                    l += 1;
                }
            }
        }
        Self { k, n, rows }
    }

    /// All n symbols of a block.
    fn encode(&self, source: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut symbols: Vec<Vec<u8>> = source.chunks_exact(size).map(<[u8]>::to_vec).collect();
        for (i, row) in (0..).zip(&self.rows) {
            let mut sum = vec![0; size];
            for j in (0..self.k + i).filter(|j| row.has(*j)) {
                sum.iter_mut().zip(&symbols[j as usize]).for_each(|(sum, byte)| *sum ^= byte);
            }
            symbols.push(sum);
        }
        symbols
    }

    /// Whether all symbols follow from those received.
    fn determines(&self, received: &[u32]) -> bool {
        let mut unknown = Bits(vec![u64::MAX; (self.n as usize).div_ceil(64)]);
        for esi in received {
            unknown.0[*esi as usize / 64] &= !(1 << (esi % 64));
        }
        let wanted = self.n as usize - received.len();
        let mut by_pivot: Vec<Option<Bits>> = vec![None; self.n as usize];
        let mut rank = 0;
        for row in &self.rows {
            let mut rest = row.clone();
            rest.0.iter_mut().zip(&unknown.0).for_each(|(bits, unknown)| *bits &= unknown);
            while let Some(word) = rest.0.iter().position(|word| *word != 0) {
                let pivot = word * 64 + rest.0[word].trailing_zeros() as usize;
                match &by_pivot[pivot] {
                    Some(other) => rest.add(other),
                    None => {
                        by_pivot[pivot] = Some(rest);
                        rank += 1;
                        break;
                    }
                }
            }
        }
        rank == wanted
    }
}

struct Case {
    codec: Arc<dyn BlockCodec>,
    reference: Reference,
    source: Vec<u8>,
    symbols: Vec<Vec<u8>>,
}

impl Case {
    fn new(scheme: Scheme, k: u32, n: u32, n1: u8, seed: u32, size: u16) -> Self {
        let ldpc = LdpcParameters { n1, ..LdpcParameters::new(seed) };
        let codec = codec(Parameters::ldpc(scheme, size, k, n, ldpc)).unwrap();
        let reference = Reference::new(scheme, k, n, n1.into(), seed);
        let source = source(&*codec, k, u64::from(k) + u64::from(seed));
        let symbols = reference.encode(&source, size.into());
        Self { codec, reference, source, symbols }
    }

    /// The codec makes the reference's symbols.
    fn check_encoding(&self) {
        let encoder = self.codec.encoder(self.reference.k, &self.source).unwrap();
        let mut symbol = vec![0; self.codec.symbol_size()];
        for esi in self.reference.k..self.reference.n {
            encoder.symbol(esi, &mut symbol).unwrap();
            assert_eq!(symbol, self.symbols[esi as usize], "symbol {esi}");
        }
    }

    /// Decodes from these symbols alone, whole and in strips; both come to the same.
    fn decode(&self, received: &[u32]) -> Result<(), DecodeError> {
        let (k, size) = (self.reference.k, self.codec.symbol_size());
        let mut block = vec![0xA5; self.source.len()];
        let mut has = vec![false; k as usize];
        let mut repairs = Vec::new();
        for esi in received {
            let data = &self.symbols[*esi as usize];
            if *esi < k {
                block[*esi as usize * size..][..size].copy_from_slice(data);
                has[*esi as usize] = true;
            } else {
                repairs.push(Repair { esi: *esi, data });
            }
        }
        let missing: Vec<u32> = (0..k).filter(|esi| !has[*esi as usize]).collect();
        let damaged = block.clone();
        let whole = self.codec.decode(k, &mut block, &missing, &repairs);
        if whole.is_ok() {
            assert!(block == self.source, "decoded to something else");
        }
        let esis: Vec<u32> = repairs.iter().map(|repair| repair.esi).collect();
        match self.codec.recipe(k, &missing, &esis) {
            Err(error) => assert_eq!(whole, Err(error)),
            Ok(recipe) => {
                assert_eq!(whole, Ok(()));
                for at in (0..size).step_by(2) {
                    let width = 2.min(size - at);
                    let strip = |symbol: &[u8]| symbol[at..at + width].to_vec();
                    let mut block: Vec<u8> = damaged.chunks_exact(size).flat_map(strip).collect();
                    let repairs: Vec<&[u8]> =
                        repairs.iter().map(|repair| &repair.data[at..at + width]).collect();
                    recipe.fill(width, &mut block, &repairs).unwrap();
                    assert!(block == self.source.chunks_exact(size).flat_map(strip).collect::<Vec<_>>());
                }
            }
        }
        whole
    }

    /// Decodes exactly what the reference says, and asks for no more than it takes.
    fn check(&self, received: &[u32]) {
        match self.decode(received) {
            Ok(()) => assert!(self.reference.determines(received)),
            Err(DecodeError::NeedMore { more }) => {
                assert!(!self.reference.determines(received), "{} symbols are enough", received.len());
                assert!(more > 0);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Any so many of the symbols.
fn some(n: u32, count: u32, seed: u64) -> Vec<u32> {
    Random(seed).sample(0, n, count as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Around k symbols, where decoding may go either way; the numbers of the code are any.
    #[test]
    fn what_the_rank_says_is_decoded(
        k in 1_u32..160,
        repair in 3_u32..200,
        n1 in 3_u8..=10,
        seed in 1_u32..0x7FFF_FFFF,
        beyond in 0_u32..12,
        chance: u64,
        triangle: bool,
    ) {
        let scheme = if triangle { Scheme::LdpcTriangle } else { Scheme::LdpcStaircase };
        let n = k + repair.max(n1.into());
        let case = Case::new(scheme, k, n, n1, seed, 5);
        case.check_encoding();
        for more in [0, beyond] {
            case.check(&some(n, (k + more).min(n), chance.wrapping_add(more.into())));
        }
        // Never from fewer than k.
        prop_assert!(case.decode(&some(n, k - 1, chance)).is_err());
        prop_assert_eq!(case.decode(&(0..n).collect::<Vec<_>>()), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6) })]

    /// Blocks of up to 5000 symbols at n = 2k, as our own senders send them, from an end of the carousel on.
    #[test]
    fn long_blocks_decode_as_the_rank_says(
        k in 1_u32..=5_000,
        seed in 1_u32..0x7FFF_FFFF,
        start in 0_u32..5_000,
        thousandths in 0_u32..8,
        triangle: bool,
    ) {
        let scheme = if triangle { Scheme::LdpcTriangle } else { Scheme::LdpcStaircase };
        let n = (2 * k).max(k + 3);
        let case = Case::new(scheme, k, n, 3, seed, 3);
        case.check_encoding();
        let order = sending_order(seed, n);
        let count = (k + k * thousandths / 1_000) as usize;
        let received: Vec<u32> =
            order.iter().cycle().skip(start as usize).take(count.min(n as usize)).copied().collect();
        case.check(&received);
        let received: Vec<u32> = order.iter().copied().take((k + k / 50 + 12).min(n) as usize).collect();
        case.check(&received);
    }
}

/// Blocks of one symbol and of few: n is at least k + 3 there.
#[test]
fn the_shortest_blocks() {
    for scheme in [Scheme::LdpcStaircase, Scheme::LdpcTriangle] {
        for k in 1..=3 {
            let n = (2 * k).max(k + 3);
            let case = Case::new(scheme, k, n, 3, 1, 4);
            case.check_encoding();
            for subset in 0_u32..1 << n {
                case.check_subset(subset);
            }
        }
    }
}

impl Case {
    fn check_subset(&self, subset: u32) {
        let received: Vec<u32> = (0..self.reference.n).filter(|esi| subset >> esi & 1 == 1).collect();
        self.check(&received);
    }
}
