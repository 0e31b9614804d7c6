//! The partition against RFC 5052 section 9.1, written out again, and against RFC 6330 section 4.4.1.2.

use headwater_fec::{Order, Partition, PartitionError, blocks_for};
use proptest::prelude::*;

#[test]
fn the_first_blocks_are_one_symbol_longer() {
    // 10 symbols of 100 bytes in blocks of at most 4: 3 blocks of 4, 3 and 3, the last symbol of 1 byte.
    let partition = Partition::new(901, 100, 4).unwrap();
    assert_eq!((partition.symbols(), partition.blocks(), partition.max_block_symbols()), (10, 3, 4));
    let blocks: Vec<_> = (0..3)
        .map(|sbn| partition.block(sbn).unwrap())
        .map(|block| (block.first_symbol, block.symbols, block.offset, block.bytes))
        .collect();
    assert_eq!(blocks, [(0, 4, 0, 400), (4, 3, 400, 300), (7, 3, 700, 201)]);
    assert_eq!(partition.block(3), None);
    assert_eq!(partition.block(u32::MAX), None);
}

#[test]
fn an_empty_object_has_no_blocks() {
    for partition in
        [Partition::new(0, 1408, 10), Partition::with_blocks(0, 1408, 0), Partition::with_blocks(0, 1, 9)]
    {
        let partition = partition.unwrap();
        assert_eq!((partition.symbols(), partition.blocks(), partition.max_block_symbols()), (0, 0, 0));
        assert_eq!(partition.block(0), None);
    }
}

#[test]
fn what_cannot_be_cut_is_an_error() {
    assert_eq!(Partition::new(1, 0, 1), Err(PartitionError::SymbolSize));
    assert_eq!(Partition::with_blocks(0, 0, 0), Err(PartitionError::SymbolSize));
    assert_eq!(Partition::new(1, 1, 0), Err(PartitionError::MaxBlockSymbols));
    let blocks = 1 << 32;
    assert_eq!(Partition::new(blocks, 1, 1), Err(PartitionError::TooManyBlocks { blocks }));
    assert!(Partition::new(blocks - 1, 1, 1).is_ok());
    assert_eq!(Partition::with_blocks(9, 1, 0), Err(PartitionError::BlockCount { symbols: 9, blocks: 0 }));
    assert_eq!(Partition::with_blocks(9, 1, 10), Err(PartitionError::BlockCount { symbols: 9, blocks: 10 }));
    let symbols = 1 << 32;
    assert_eq!(Partition::with_blocks(symbols, 1, 1), Err(PartitionError::BlockCount { symbols, blocks: 1 }));
    assert!(Partition::with_blocks(symbols - 1, 1, 1).is_ok());
}

#[test]
fn the_largest_object_ends_at_its_length() {
    let partition = Partition::new(u64::MAX, u16::MAX, u32::MAX).unwrap();
    let last = partition.block(partition.blocks() - 1).unwrap();
    assert_eq!(last.offset.checked_add(last.bytes), Some(u64::MAX));
    assert_eq!(last.first_symbol + u64::from(last.symbols), partition.symbols());
}

/// An object's length with a symbol size: of every order of magnitude, but of at most 2^20 symbols.
fn object() -> impl Strategy<Value = (u64, u16)> {
    (1..=u16::MAX, 0u64..1 << 20, 1..=u16::MAX).prop_map(|(symbol_size, symbols, last)| {
        let last = u64::from(last.min(symbol_size));
        (symbols * u64::from(symbol_size) + last, symbol_size)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_follow_the_rfc_and_tile_the_object((length, size) in object(), longest in 1000u32..1 << 21) {
        let partition = Partition::new(length, size, longest).unwrap();
        let t = length.div_ceil(size.into());
        let n = t.div_ceil(longest.into());
        let (a_large, a_small) = (t.div_ceil(n), t / n);
        let i = t - a_small * n;
        prop_assert_eq!((partition.symbols(), u64::from(partition.blocks())), (t, n));
        let (mut symbols, mut bytes) = (0, 0);
        for sbn in 0..partition.blocks() {
            let block = partition.block(sbn).unwrap();
            prop_assert_eq!(u64::from(block.symbols), if u64::from(sbn) < i { a_large } else { a_small });
            prop_assert!(block.symbols <= longest);
            prop_assert_eq!((block.sbn, block.first_symbol, block.offset), (sbn, symbols, bytes));
            symbols += u64::from(block.symbols);
            bytes += block.bytes;
        }
        prop_assert_eq!((symbols, bytes), (t, length));
    }

    /// RFC 5052's N = Z gives the blocks of RFC 6330, whose Partition[I, J] is here that of the crate
    /// `raptorq`.
    #[test]
    fn rfc_6330_cuts_the_same_blocks((length, size) in object(), z in 1u32..=255) {
        let symbols = length.div_ceil(size.into());
        prop_assume!(symbols >= z.into());
        let partition = Partition::with_blocks(length, size, z).unwrap();
        let (large, small, large_count, small_count) = raptorq::partition(u32::try_from(symbols).unwrap(), z);
        prop_assert_eq!(partition.blocks(), large_count + small_count);
        for sbn in 0..z {
            let expected = if sbn < large_count { large } else { small };
            prop_assert_eq!(partition.block(sbn).unwrap().symbols, expected);
        }
        let same = Partition::new(length, size, partition.max_block_symbols()).unwrap();
        if same.blocks() == z {
            prop_assert_eq!(same, partition);
        }
    }

    #[test]
    fn the_rules_for_blocks_always_partition((length, size) in object(), rate in 1u64..2_000_000_000) {
        for order in [Order::Spread { rate }, Order::Window] {
            let blocks = blocks_for(length.div_ceil(size.into()), order);
            prop_assert_eq!(Partition::with_blocks(length, size, blocks).map(|p| p.blocks()), Ok(blocks));
        }
    }

    #[test]
    fn no_object_overflows(length: u64, size in 1u16.., longest in 1u32.., blocks: u32, sbn: u32) {
        for partition in [Partition::new(length, size, longest), Partition::with_blocks(length, size, blocks)] {
            let Ok(partition) = partition else { continue };
            for sbn in [0, sbn, partition.blocks().saturating_sub(1)] {
                if let Some(block) = partition.block(sbn) {
                    prop_assert!(block.symbols > 0 && block.bytes > 0);
                    prop_assert!(block.offset + block.bytes <= length);
                }
            }
        }
    }
}
