//! The order of sending: neighbouring repair symbols say much the same, so that a receiver of few levels,
//! which gets runs of them, needs up to a third more than k symbols; in a random order each symbol says
//! something new.

use std::sync::Arc;

use super::matrix::Generator;

/// What a seed of a matrix is turned into one of an order by.
const TURN: u32 = 0x5EED;

/// The ESIs 0..n in the order in which a sender sends them: symbol ESI stands at pi(ESI), where pi is a
/// Fisher-Yates shuffle drawn from the code's own generator, seeded with the seed of the matrix XOR 0x5EED,
/// modulo 2^31 - 1 and not 0 (our choice: receivers need nothing of it).
///
/// Memory: 4 bytes a symbol.
pub fn sending_order(seed: u32, n: u32) -> Arc<[u32]> {
    let mut places: Vec<u32> = (0..n).collect();
    let mut generator =
        Generator::new((seed ^ TURN) % 0x7FFF_FFFF).or(Generator::new(1)).expect("1 is a seed");
    for last in (1..n).rev() {
        let other = generator.below(last + 1);
        places.swap(last as usize, other as usize);
    }
    let mut order = vec![0; places.len()];
    for (esi, place) in (0..n).zip(places) {
        order[place as usize] = esi;
    }
    order.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_every_symbol_once_and_depends_on_seed_and_length_alone() {
        for (seed, n) in [(1, 0), (1, 1), (1, 2), (42, 1_000), (0x5EED, 77), (0x5EED ^ 0x7FFF_FFFF, 77)] {
            let order = sending_order(seed, n);
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            assert_eq!(order, sending_order(seed, n));
        }
        assert_ne!(sending_order(1, 1_000), sending_order(2, 1_000));
    }

    /// Drawn by hand from the generator's first numbers: seed 1 XOR 0x5EED is 24300, n = 4.
    #[test]
    fn symbol_esi_stands_at_its_place() {
        let mut x = 24_300_u64;
        let mut draw = |limit: u64| {
            x = x * 16_807 % 0x7FFF_FFFF;
            usize::try_from(limit * x / 0x7FFF_FFFF).unwrap()
        };
        let mut places = [0_u32, 1, 2, 3];
        for last in [3, 2, 1] {
            places.swap(last, draw(last as u64 + 1));
        }
        let order = sending_order(1, 4);
        for (esi, place) in (0..).zip(places) {
            assert_eq!(order[place as usize], esi);
        }
    }
}
