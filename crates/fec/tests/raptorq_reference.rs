//! RaptorQ beside an independent implementation, the crate `raptorq`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod common;

use common::{Random, repairs, source, symbols, with_losses};
use headwater_fec::{DecodeError, Parameters, codec};
use proptest::prelude::*;
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder,
    SourceBlockEncodingPlan, extended_source_block_symbols,
};

/// Repair symbols by the crate, which counts them from K' on.
fn reference_symbols(k: u32, size: u16, source: &[u8], esis: &[u32]) -> Vec<Vec<u8>> {
    let extended = extended_source_block_symbols(k);
    let mut padded = source.to_vec();
    padded.resize(extended as usize * usize::from(size), 0);
    let information = ObjectTransmissionInformation::new(0, size, 0, 1, 1);
    let plan = SourceBlockEncodingPlan::generate(u16::try_from(extended).unwrap());
    let encoder = SourceBlockEncoder::with_encoding_plan(0, &information, &padded, &plan);
    esis.iter().map(|esi| encoder.repair_packets(esi - k, 1)[0].data().to_vec()).collect()
}

/// Whether the crate decodes a block from these symbols and no others.
fn reference_decodes(k: u32, size: u16, block: &[u8], missing: &[u32], sent: &[(u32, Vec<u8>)]) -> bool {
    let information = ObjectTransmissionInformation::new(0, size, 0, 1, 1);
    let mut decoder = SourceBlockDecoder::new(0, &information, block.len() as u64);
    let packet = |esi, data: &[u8]| EncodingPacket::new(PayloadId::new(0, esi), data.to_vec());
    let received = (0..k).zip(block.chunks_exact(size.into()));
    let received = received.filter(|(esi, _)| missing.binary_search(esi).is_err());
    let repairs = sent.iter().map(|(esi, data)| packet(*esi, data));
    let packets: Vec<_> = received.map(|(esi, data)| packet(esi, data)).chain(repairs).collect();
    decoder.decode(packets).is_some()
}

#[test]
fn repair_symbols_are_those_of_another_implementation() {
    let lengths = (1..130).chain([500, 641, 1_002, 1_003, 2_345, 5_008, 10_017, 20_152, 56_403]);
    for (number, k) in lengths.enumerate() {
        let size = [1, 7, 64, 130, 321][number % 5];
        let codec = codec(Parameters::raptorq(size)).unwrap();
        let source = source(&*codec, k, 3);
        let esis: Vec<u32> = (k..k + 20).chain([70_000, 1_000_000, (1 << 24) - 1_025]).collect();
        let ours: Vec<Vec<u8>> =
            symbols(&*codec, k, &source, &esis).into_iter().map(|(_, symbol)| symbol).collect();
        assert!(ours == reference_symbols(k, size, &source, &esis), "k = {k}");
    }
}

#[test]
fn long_blocks_are_decoded_from_few_symbols_beyond_k() {
    for (k, lost, beyond) in [(5_008, 501, 1), (10_017, 10_017, 1), (20_152, 2_000, 30), (56_403, 28_000, 2)]
    {
        let codec = codec(Parameters::raptorq(64)).unwrap();
        let source = source(&*codec, k, 5);
        let missing = Random(u64::from(lost)).sample(0, k, lost as usize);
        let esis: Vec<u32> = (k..k + lost + beyond).collect();
        let sent = symbols(&*codec, k, &source, &esis);
        let mut block = with_losses(&source, 64, &missing);
        codec.decode(k, &mut block, &missing, &repairs(&sent)).unwrap();
        assert!(block == source, "k = {k}");
    }
}

/// About one block in 200 cannot be decoded from K symbols: both implementations say so of the same blocks.
#[test]
fn blocks_fail_together() {
    let (k, size) = (10, 2);
    let codec = codec(Parameters::raptorq(size)).unwrap();
    let source = source(&*codec, k, 1);
    let missing: Vec<u32> = (0..k).collect();
    let failed = (0..2_000).filter(|first| {
        let esis: Vec<u32> = (0..k).map(|i| k + (first * k + i) * 97).collect();
        let sent = symbols(&*codec, k, &source, &esis);
        let mut block = with_losses(&source, size.into(), &missing);
        let outcome = codec.decode(k, &mut block, &missing, &repairs(&sent));
        let decoded = outcome.is_ok();
        assert!(decoded || matches!(outcome, Err(DecodeError::NeedMore { more: 1 })));
        assert!(!decoded || block == source);
        assert_eq!(decoded, reference_decodes(k, size, &source, &missing, &sent), "from {esis:?}");
        !decoded
    });
    let failed = failed.count();
    assert!((1..=20).contains(&failed), "{failed} of 2000 failed");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// From one loss to all, with just enough repair symbols or more than needed, beside the block or in its
    /// missing places.
    #[test]
    fn decoding_agrees_with_the_other_implementation(
        (k, missing) in (1u32..400).prop_flat_map(|k| {
            (Just(k), proptest::sample::subsequence((0..k).collect::<Vec<_>>(), 1..=k as usize))
        }),
        extra in 0usize..30,
        first in 0u32..(1 << 24) - 2000,
        step in 1u32..4,
        size in 1u16..700,
    ) {
        let esis: Vec<u32> = (0..).map(|i| k + first + i * step).take(missing.len() + extra).collect();
        let codec = codec(Parameters::raptorq(size)).unwrap();
        let source = source(&*codec, k, u64::from(first));
        let sent = symbols(&*codec, k, &source, &esis);
        let decodes = reference_decodes(k, size, &source, &missing, &sent);
        let mut block = with_losses(&source, size.into(), &missing);
        prop_assert_eq!(codec.decode(k, &mut block, &missing, &repairs(&sent)).is_ok(), decodes);
        let mut placed = with_losses(&source, size.into(), &missing);
        for (at, symbol) in missing.iter().zip(&sent) {
            placed[*at as usize * usize::from(size)..][..size.into()].copy_from_slice(&symbol.1);
        }
        let more = repairs(&sent[missing.len()..]);
        let outcome = codec.decode_in_place(k, &mut placed, &missing, &esis[..missing.len()], &more);
        prop_assert_eq!(outcome.is_ok(), decodes);
        prop_assert!(!decodes || (block == source && placed == source));
    }
}
