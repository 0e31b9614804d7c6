//! What LDPC-Triangle with n = 2k needs beyond k, in percent, by substitution alone and with elimination: by
//! the length of the block, by the entries of a source column (N1), and by how many of the symbols that come
//! are source symbols.
//!
//! ```text
//! cargo run --release -p headwater-fec --example ldpc_overhead
//! ```
#![expect(clippy::unwrap_used, reason = "an example that cannot go on ends")]

use headwater_fec::{BlockCodec, DecodeError, LdpcParameters, Parameters, Repair, Scheme, codec};

/// The paper's files in symbols of 1448 bytes.
const LENGTHS: [u32; 3] = [3_005, 34_034, 71_644];
const SHARES: [u64; 5] = [30, 40, 50, 60, 70];

fn main() {
    println!("      k  N1  source %   substitution  elimination");
    for k in LENGTHS {
        for (n1, share) in SHARES.map(|share| (3, share)).into_iter().chain([4, 5, 7].map(|n1| (n1, 50))) {
            let [plain, exact] = [false, true].map(|eliminates| {
                let ldpc = LdpcParameters { eliminates, n1, ..LdpcParameters::new(42) };
                let codec = codec(Parameters::ldpc(Scheme::LdpcTriangle, 1, k, 2 * k, ldpc)).unwrap();
                let seeds = if k < 10_000 { 8 } else { 1 };
                let sum: f64 = (0..seeds).map(|seed| overhead(&*codec, k, &arrivals(k, share, seed))).sum();
                100.0 * sum / seeds as f64
            });
            println!("{k:7} {n1:3} {share:9}   {plain:12.2} {exact:12.2}");
        }
    }
}

/// SplitMix64.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Distinct symbols in random order, of which `share` in a hundred are source symbols as long as there are
/// any.
fn arrivals(k: u32, share: u64, mut seed: u64) -> Vec<u32> {
    let mut shuffled = |from: u32| {
        let mut esis: Vec<u32> = (from..from + k).collect();
        for last in (1..esis.len()).rev() {
            esis.swap(last, usize::try_from(next(&mut seed) % (last as u64 + 1)).unwrap());
        }
        esis
    };
    let (mut source, mut repair) = (shuffled(0), shuffled(k));
    let mut seed = u64::from(k) + share;
    let pick = |_| {
        let (first, second) = if next(&mut seed) % 100 < share {
            (&mut source, &mut repair)
        } else {
            (&mut repair, &mut source)
        };
        first.pop().or_else(|| second.pop()).unwrap()
    };
    (0..2 * k).map(pick).collect()
}

/// The part of k beyond k after which the symbols in this order are enough. All symbols are zeros: what
/// matters are the equations.
fn overhead(codec: &dyn BlockCodec, k: u32, order: &[u32]) -> f64 {
    let mut enough = k as usize;
    loop {
        let here = &order[..enough];
        let mut is_missing = vec![true; k as usize];
        here.iter().filter(|esi| **esi < k).for_each(|esi| is_missing[*esi as usize] = false);
        let missing: Vec<u32> = (0..k).filter(|esi| is_missing[*esi as usize]).collect();
        let repairs: Vec<Repair<'_>> =
            here.iter().filter(|esi| **esi >= k).map(|esi| Repair { esi: *esi, data: &[0] }).collect();
        match codec.decode(k, &mut vec![0; k as usize], &missing, &repairs) {
            Ok(()) => return enough as f64 / f64::from(k) - 1.0,
            Err(DecodeError::NeedMore { more }) => enough = (enough + more as usize).min(order.len()),
            Err(error) => panic!("{error}"),
        }
    }
}
