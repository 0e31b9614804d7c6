//! What every codec must do, whatever its code.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod common;

use std::sync::Arc;

use common::{Random, repairs, source, symbols, with_losses};
use headwater_fec::{BlockCodec, DecodeError, FecError, LdpcParameters, Parameters, Repair, Scheme, codec};
use proptest::prelude::*;

/// Those that need next to no symbols beyond k.
fn exact_codecs() -> Vec<Arc<dyn BlockCodec>> {
    let mut aligned = Parameters::raptorq(16);
    aligned.alignment = 8;
    [
        Parameters::no_code(16),
        Parameters::reed_solomon(16, 1, 3),
        Parameters::reed_solomon(16, 64, 128),
        Parameters::reed_solomon(1, 200, 255),
        Parameters::reed_solomon(1, 255, 255),
        Parameters::raptorq(16),
        aligned,
    ]
    .into_iter()
    .map(|parameters| codec(parameters).unwrap())
    .collect()
}

/// All of them. What LDPC needs beyond k is proved beside a reference in `ldpc_reference.rs`.
fn codecs() -> Vec<Arc<dyn BlockCodec>> {
    let ldpc = |scheme| codec(Parameters::ldpc(scheme, 16, 300, 1_200, LdpcParameters::new(7))).unwrap();
    let mut codecs = exact_codecs();
    codecs.extend([Scheme::LdpcStaircase, Scheme::LdpcTriangle].map(ldpc));
    codecs
}

/// Lengths of blocks that `codec` can have and that decode in no time: 1, 2, odd ones, and its longest.
fn lengths(codec: &dyn BlockCodec) -> Vec<u32> {
    let mut lengths: Vec<u32> = [1, 2, 3, 17, 101, 254].into_iter().filter(|&k| k < codec.k_max()).collect();
    lengths.push(codec.k_max().min(300));
    lengths
}

fn repair_symbols(codec: &dyn BlockCodec, k: u32) -> usize {
    (codec.encoding_symbols(k) - k) as usize
}

/// Decodes with as many of the repair symbols in the missing places as fit there.
fn decode_in_place(
    codec: &dyn BlockCodec,
    k: u32,
    source: &[u8],
    missing: &[u32],
    symbols: &[(u32, Vec<u8>)],
) -> Result<(), DecodeError> {
    let size = codec.symbol_size();
    let (inside, beside) = symbols.split_at(missing.len());
    let mut block = with_losses(source, size, missing);
    for (at, (_, symbol)) in missing.iter().zip(inside) {
        block[*at as usize * size..][..size].copy_from_slice(symbol);
    }
    let placed: Vec<u32> = inside.iter().map(|(esi, _)| *esi).collect();
    let decoded = codec.decode_in_place(k, &mut block, missing, &placed, &repairs(beside));
    assert!(decoded.is_err() || block == source, "{codec:?} k = {k}: wrong bytes in place");
    decoded
}

/// Decodes with `missing` lost, from as many repair symbols as it takes, in the order of `esis`. Returns how
/// many it took, or `None` where they were too few.
fn decode_growing(codec: &dyn BlockCodec, k: u32, missing: &[u32], esis: &[u32]) -> Option<usize> {
    let source = source(codec, k, k.into());
    let symbols = symbols(codec, k, &source, esis);
    let repairs = repairs(&symbols);
    let mut block = with_losses(&source, codec.symbol_size(), missing);
    let damaged = block.clone();
    for count in missing.len()..=repairs.len() {
        let decoded = codec.decode(k, &mut block, missing, &repairs[..count]);
        let in_place = decode_in_place(codec, k, &source, missing, &symbols[..count]);
        assert_eq!(in_place, decoded, "{codec:?} k = {k}: in place");
        match decoded {
            Ok(()) => {
                assert!(block == source, "{codec:?} k = {k}: wrong bytes");
                return Some(count);
            }
            Err(error) => assert_eq!(error, DecodeError::NeedMore { more: 1 }),
        }
        assert_eq!(
            with_losses(&block, codec.symbol_size(), missing),
            damaged,
            "{codec:?} k = {k}: a received symbol changed"
        );
    }
    None
}

#[test]
fn nothing_lost_needs_nothing() {
    for codec in codecs() {
        for k in lengths(&*codec) {
            assert_eq!(decode_growing(&*codec, k, &[], &[]), Some(0));
        }
    }
}

#[test]
fn everything_lost_comes_back_from_repair_symbols_alone() {
    for codec in exact_codecs() {
        for k in lengths(&*codec) {
            let missing: Vec<u32> = (0..k).collect();
            let available = repair_symbols(&*codec, k).min(missing.len() + 2);
            let esis: Vec<u32> = (k..).take(available).collect();
            let used = decode_growing(&*codec, k, &missing, &esis);
            assert_eq!(used.is_some(), available >= missing.len(), "{codec:?} k = {k}");
        }
    }
}

#[test]
fn one_loss_comes_back_from_any_one_repair_symbol() {
    for codec in exact_codecs() {
        for k in lengths(&*codec).into_iter().filter(|&k| repair_symbols(&*codec, k) > 0) {
            let last = codec.encoding_symbols(k) - 1;
            for missing in [0, k / 2, k - 1] {
                for esi in [k, k + (last - k) / 2, last] {
                    assert_eq!(decode_growing(&*codec, k, &[missing], &[esi]), Some(1), "{codec:?} k = {k}");
                }
            }
        }
    }
}

#[test]
fn more_repair_symbols_than_needed_are_welcome() {
    for codec in exact_codecs() {
        for k in lengths(&*codec).into_iter().filter(|&k| repair_symbols(&*codec, k) > 0) {
            let available = u32::try_from(repair_symbols(&*codec, k)).unwrap();
            let missing: Vec<u32> = (0..k.min(available).div_ceil(2)).collect();
            let source = source(&*codec, k, 5);
            let esis: Vec<u32> = (k..k + available.min(k + 40)).collect();
            let symbols = symbols(&*codec, k, &source, &esis);
            for count in missing.len()..=esis.len().min(missing.len() + 40) {
                let mut block = with_losses(&source, codec.symbol_size(), &missing);
                match codec.decode(k, &mut block, &missing, &repairs(&symbols[..count])) {
                    Ok(()) => assert!(block == source, "{codec:?} k = {k} with {count} symbols"),
                    Err(error) => assert!(
                        count < missing.len() + 2 && error == DecodeError::NeedMore { more: 1 },
                        "{codec:?} k = {k} with {count} symbols: {error}"
                    ),
                }
            }
        }
    }
}

#[test]
fn too_few_symbols_are_counted() {
    for codec in codecs() {
        for k in lengths(&*codec) {
            let source = source(&*codec, k, 6);
            let missing: Vec<u32> = (0..k).collect();
            let mut block = source.clone();
            assert_eq!(codec.decode(k, &mut block, &missing, &[]), Err(DecodeError::NeedMore { more: k }));
        }
    }
}

#[test]
fn of_repair_symbols_with_one_esi_the_first_counts() {
    for codec in exact_codecs() {
        for k in lengths(&*codec).into_iter().filter(|&k| k > 2 && repair_symbols(&*codec, k) > 2) {
            let source = source(&*codec, k, 7);
            let symbols = symbols(&*codec, k, &source, &[k + 2, k]);
            let garbage = vec![0x11; codec.symbol_size()];
            let repairs = repairs(&symbols);
            let again = [Repair { data: &garbage, ..repairs[0] }, Repair { data: &garbage, ..repairs[1] }];
            let mut block = with_losses(&source, codec.symbol_size(), &[0, 2]);
            let repeated = [repairs[0], again[0], repairs[0]];
            assert_eq!(
                codec.decode(k, &mut block, &[0, 2], &repeated),
                Err(DecodeError::NeedMore { more: 1 }),
                "{codec:?} k = {k}"
            );
            let enough = [repairs[0], again[0], repairs[1], again[1]];
            assert_eq!(codec.decode(k, &mut block, &[0, 2], &enough), Ok(()), "{codec:?} k = {k}");
            assert!(block == source);
        }
    }
}

#[test]
fn encoders_are_deterministic_and_independent() {
    for codec in codecs() {
        for k in lengths(&*codec) {
            let count = repair_symbols(&*codec, k).min(5);
            let esis: Vec<u32> = (k..).take(count).collect();
            let backwards: Vec<u32> = esis.iter().rev().copied().collect();
            let block = source(&*codec, k, 8);
            let mut once = symbols(&*codec, k, &block, &esis);
            once.reverse();
            assert_eq!(once, symbols(&*codec, k, &block, &backwards));
        }
    }
}

#[test]
fn a_codec_describes_itself() {
    for codec in codecs() {
        for k in lengths(&*codec) {
            let n = codec.encoding_symbols(k);
            assert!(n >= k && (codec.is_rateless() == (n > 1 << 23)));
            assert!(n == k || codec.encoder_bytes(k) > 0);
        }
    }
}

#[test]
fn blocks_of_no_or_too_many_symbols_are_refused() {
    for codec in codecs() {
        let k_max = codec.k_max();
        for k in [0, k_max + 1, u32::MAX] {
            let error = FecError::BlockSymbols { k, k_max };
            assert_eq!(codec.encoder(k, &[]).unwrap_err(), error);
            assert_eq!(codec.decode(k, &mut [], &[], &[]), Err(error.into()));
        }
    }
}

#[test]
fn blocks_of_another_length_are_refused() {
    for codec in codecs() {
        for k in lengths(&*codec) {
            let length = k as usize * codec.symbol_size();
            for actual in [0, length - 1, length + 1] {
                let error = FecError::BlockLength { expected: length as u64, actual };
                assert_eq!(codec.encoder(k, &vec![0; actual]).unwrap_err(), error);
                assert_eq!(codec.decode(k, &mut vec![0; actual], &[], &[]), Err(error.into()));
            }
        }
    }
}

#[test]
fn inconsistent_lists_of_missing_symbols_are_refused() {
    for codec in codecs() {
        for k in lengths(&*codec) {
            let mut block = source(&*codec, k, 10);
            let before = block.clone();
            for missing in [vec![k], vec![u32::MAX], vec![0, 0], vec![0, k], vec![k - 1, 0]] {
                let result = codec.decode(k, &mut block, &missing, &[]);
                assert_eq!(
                    result,
                    Err(FecError::Missing { esi: missing[missing.len() - 1], k }.into()),
                    "{missing:?}"
                );
            }
            assert!(block == before);
        }
    }
}

#[test]
fn repair_symbols_of_other_numbers_or_lengths_are_refused() {
    for codec in codecs() {
        let size = codec.symbol_size();
        for k in lengths(&*codec) {
            let mut block = source(&*codec, k, 11);
            let before = block.clone();
            let encoder = codec.encoder(k, &block).unwrap();
            let is_number_error = |error| matches!(error, FecError::SymbolId { start, .. } if start == k);
            let mut refused =
                |esi, data: &[u8]| match codec.decode(k, &mut block, &[0], &[Repair { esi, data }]) {
                    Err(DecodeError::Invalid(error)) => error,
                    other => panic!("{codec:?} k = {k} esi {esi}: {other:?}"),
                };
            for esi in [0, k - 1, 1 << 24, u32::MAX] {
                assert!(is_number_error(refused(esi, &vec![0; size])));
                assert!(is_number_error(encoder.symbol(esi, &mut vec![0; size]).unwrap_err()));
            }
            assert!(is_number_error(encoder.symbol(codec.esi_end(k), &mut vec![0; size]).unwrap_err()));
            if codec.encoding_symbols(k) > k {
                for actual in [0, size - 1, size + 1] {
                    let error = FecError::SymbolLength { expected: size, actual };
                    assert_eq!(refused(k, &vec![0; actual]), error);
                    assert_eq!(encoder.symbol(k, &mut vec![0; actual]), Err(error));
                }
            }
            assert!(block == before);
        }
    }
}

#[test]
fn the_longest_blocks_decode() {
    for parameters in [Parameters::no_code(1), Parameters::reed_solomon(3, 254, 255), Parameters::raptorq(2)]
    {
        let codec = codec(parameters).unwrap();
        let k = codec.k_max();
        let missing: &[u32] = if codec.encoding_symbols(k) > k { &[k - 1] } else { &[] };
        let used = decode_growing(&*codec, k, missing, &[k][..missing.len()]);
        assert_eq!(used, Some(missing.len()));
    }
}

#[test]
fn parameters_beyond_a_scheme_are_refused() {
    let refused = |parameters| codec(parameters).unwrap_err();
    assert_eq!(refused(Parameters::no_code(0)), FecError::SymbolSize);
    assert_eq!(refused(Parameters::raptorq(0)), FecError::SymbolSize);
    for (max_block_symbols, max_symbols) in [(0, 255), (1, 0), (11, 10), (100, 256), (u32::MAX, u32::MAX)] {
        assert_eq!(
            refused(Parameters::reed_solomon(16, max_block_symbols, max_symbols)),
            FecError::ReedSolomonLimits { max_block_symbols, max_symbols }
        );
    }
    let mut raptorq = Parameters::raptorq(1408);
    raptorq.sub_blocks = 2;
    assert_eq!(refused(raptorq), FecError::SubBlocks(2));
    raptorq.sub_blocks = 1;
    for alignment in [0, 3] {
        raptorq.alignment = alignment;
        assert_eq!(refused(raptorq), FecError::Alignment { symbol_size: 1408, alignment });
    }
}

/// A recipe is what `decode` does; a code without any says so.
#[test]
fn strips_of_symbols_decode_where_a_code_has_recipes() {
    for codec in codecs() {
        let size = codec.symbol_size();
        for k in lengths(&*codec).into_iter().filter(|&k| repair_symbols(&*codec, k) > 0) {
            let missing = [k / 2];
            let esis: Vec<u32> = (k..codec.encoding_symbols(k).min(4 * k)).collect();
            let recipe = codec.recipe(k, &missing, &esis);
            if !codec.decodes_in_strips() {
                assert_eq!(recipe.unwrap_err(), FecError::Strips(codec.scheme()).into());
                continue;
            }
            let source = source(&*codec, k, 12);
            let symbols = symbols(&*codec, k, &source, &esis);
            let repairs: Vec<&[u8]> = symbols.iter().map(|(_, data)| data.as_slice()).collect();
            let mut block = with_losses(&source, size, &missing);
            let recipe = recipe.unwrap();
            recipe.fill(size, &mut block, &repairs).unwrap();
            assert!(block == source);
            let error = recipe.fill(size + 1, &mut block, &repairs).unwrap_err();
            assert!(matches!(error, FecError::BlockLength { .. }));
            assert!(recipe.fill(size, &mut block, &repairs[1..]).is_err());
            let repeated = codec.recipe(k, &missing, &[k, k]).unwrap_err();
            assert_eq!(repeated, FecError::Repeated(k).into());
            assert!(codec.recipe(k, &[k], &esis).is_err() && codec.recipe(k, &missing, &[0]).is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    /// Any losses, any repair symbols: at most two more than are missing are needed, none where the code is
    /// maximum distance separable.
    #[test]
    fn any_losses_come_back(seed: u64, length in 1u32..150, percent in 0u32..=100) {
        for codec in exact_codecs() {
            let mut random = Random(seed);
            let k = length.min(codec.k_max());
            let n = codec.encoding_symbols(k);
            let lost = (k.min(n - k) * percent).div_ceil(100) as usize;
            let missing = random.sample(0, k, lost);
            let esis = if n == k { vec![] } else { random.sample(k, n, repair_symbols(&*codec, k).min(lost + 2)) };
            let used = decode_growing(&*codec, k, &missing, &esis);
            let most = if codec.is_rateless() { lost + 2 } else { lost };
            prop_assert!(used.is_some_and(|used| used <= most), "{codec:?} k = {k}: {used:?} for {lost}");
        }
    }

    /// Nothing that a packet can say makes a decoder panic.
    #[test]
    fn nonsense_is_an_error(
        k in 0u32..12,
        length in 0usize..200,
        missing in proptest::collection::vec(0u32..14, 0..5),
        repairs in proptest::collection::vec((0u32..30, 0usize..20), 0..8),
    ) {
        let bytes = [0x5A; 20];
        let repairs: Vec<_> =
            repairs.into_iter().map(|(esi, length)| Repair { esi, data: &bytes[..length] }).collect();
        for codec in codecs() {
            let exact = k as usize * codec.symbol_size();
            for length in [length, exact] {
                let mut block = vec![0; length];
                let result = codec.decode(k, &mut block, &missing, &repairs);
                prop_assert!(length == exact || matches!(result, Err(DecodeError::Invalid(_))));
            }
        }
    }
}
