//! EXT_FTI of each scheme, and FEC Payload IDs.
use crate::hex::hex;
use headwater_wire::fti::{EncodingId, Fti, FtiError, LDPC_SEED_MAX, Ldpc};
use headwater_wire::fti::{PayloadId, PayloadIdError};

const LDPC: Ldpc = Ldpc {
    transfer_length: 1_000_000,
    symbol_size: 1408,
    n1_minus3: 4,
    g: 1,
    max_block: 0x92345,
    max_symbols: 0xFABCD,
    seed: 1234,
};
const RAPTORQ: Fti = Fti::RaptorQ {
    transfer_length: 0xD0_0000_0001,
    symbol_size: 65528,
    blocks: 250,
    sub_blocks: 0x0102,
    alignment: 8,
};

/// Content of each EXT_FTI, type and length bytes left out.
fn literals() -> [(Fti, &'static str); 6] {
    let (transfer_length, symbol_size) = (0x0001_0000_0002, 1408);
    [
        // L(48) reserved(16) E(16) B(32)
        (Fti::NoCode { transfer_length: 300, symbol_size, max_block: 64 }, "00000000012C 0000 0580 00000040"),
        // L(48) m(8) G(8) E(16) B(16) max_n(16)
        (
            Fti::ReedSolomonM { transfer_length, symbol_size, m: 8, g: 1, max_block: 223, max_symbols: 255 },
            "000100000002 08 01 0580 00DF 00FF",
        ),
        // L(48) E(16) N1m3(3)=4 G(5)=1 B(20) max_n(20) seed(32)
        (Fti::LdpcStaircase(LDPC), "0000000F4240 0580 81 92345 FABCD 000004D2"),
        (Fti::LdpcTriangle(LDPC), "0000000F4240 0580 81 92345 FABCD 000004D2"),
        // L(48) E(16) B(8) max_n(8)
        (
            Fti::ReedSolomon { transfer_length, symbol_size, max_block: 223, max_symbols: 255 },
            "000100000002 0580 DF FF",
        ),
        // F(40) reserved(8) T(16) Z(8) N(16) Al(8) padding(16)
        (RAPTORQ, "D000000001 00 FFF8 FA 0102 08 0000"),
    ]
}

#[test]
fn literal_extensions_both_ways() {
    for (fti, digits) in literals() {
        let content = hex(digits);
        assert_eq!(Fti::parse(fti.encoding_id(), &content), Ok(fti));
        let mut buffer = vec![0xAA; fti.content_len()];
        assert_eq!(fti.emit(&mut buffer), Ok(content.len()));
        assert_eq!(buffer, content);
    }
}

#[test]
fn other_lengths_are_refused() {
    for (fti, digits) in literals() {
        let mut content = hex(digits);
        content.extend([0; 4]);
        for have in (0..=content.len()).filter(|&len| len != fti.content_len()) {
            let error = FtiError::Length { encoding_id: fti.encoding_id(), need: fti.content_len(), have };
            assert_eq!(Fti::parse(fti.encoding_id(), &content[..have]), Err(error));
        }
    }
}

#[test]
fn zero_m_and_g_are_the_defaults() {
    let fti = Fti::parse(EncodingId::ReedSolomonM, &hex("000000000064 00 00 0010 0004 0008")).unwrap();
    assert!(matches!(fti, Fti::ReedSolomonM { m: 8, g: 1, .. }));
}

#[test]
fn reserved_and_padding_are_ignored() {
    let fti = Fti::parse(EncodingId::RaptorQ, &hex("D000000001 FF FFF8 FA 0102 08 FFFF"));
    assert_eq!(fti, Ok(RAPTORQ));
}

/// The field that is refused.
fn refused(fti: Fti) -> &'static str {
    match fti.validate() {
        Err(FtiError::Range { field, .. }) => field,
        Err(FtiError::Alignment { .. }) => "alignment rule",
        Err(FtiError::Blocks { .. }) => "blocks",
        other => panic!("{fti:?}: {other:?}"),
    }
}

#[test]
fn no_code_limits() {
    let no_code =
        |transfer_length, symbol_size, max_block| Fti::NoCode { transfer_length, symbol_size, max_block };
    assert_eq!(refused(no_code(1, 0, 1)), "symbol size");
    assert_eq!(refused(no_code(1 << 48, 1, 1)), "transfer length");
    assert_eq!(refused(no_code(1, 1, 0)), "maximum source block length");
    // 2^16 blocks of 2^16 symbols are the most that 16+16 bits number.
    assert_eq!(no_code(1 << 32, 1, 1 << 16).validate(), Ok(()));
    assert_eq!(refused(no_code((1 << 32) + 1, 1, 1 << 16)), "blocks");
    assert_eq!(refused(no_code(1 << 32, 1, (1 << 16) + 1)), "source block length");
    // A maximum that the object does not reach harms nobody.
    assert_eq!(no_code(1000, 1, u32::MAX).validate(), Ok(()));
    assert_eq!(no_code(0, 1, 1).validate(), Ok(()));
}

#[test]
fn reed_solomon_limits() {
    let rs = |max_block, max_symbols| Fti::ReedSolomon {
        transfer_length: 9,
        symbol_size: 1,
        max_block,
        max_symbols,
    };
    assert_eq!(rs(255, 255).validate(), Ok(()));
    assert_eq!(refused(rs(0, 1)), "maximum source block length");
    assert_eq!(refused(rs(5, 4)), "maximum source block length");
    let rs_m = |m, g, max_symbols| Fti::ReedSolomonM {
        transfer_length: 9,
        symbol_size: 1,
        m,
        g,
        max_block: 4,
        max_symbols,
    };
    assert_eq!(refused(rs_m(16, 1, 8)), "field element size m");
    assert_eq!(refused(rs_m(8, 0, 8)), "group size G");
    assert_eq!(refused(rs_m(8, 1, 256)), "maximum number of encoding symbols");
}

#[test]
fn ldpc_limits() {
    assert_eq!(Fti::LdpcStaircase(Ldpc { seed: LDPC_SEED_MAX, ..LDPC }).validate(), Ok(()));
    for (ldpc, field) in [
        (Ldpc { n1_minus3: 8, ..LDPC }, "N1m3"),
        (Ldpc { g: 0, ..LDPC }, "group size G"),
        (Ldpc { g: 32, ..LDPC }, "group size G"),
        (Ldpc { seed: 0, ..LDPC }, "seed"),
        (Ldpc { seed: LDPC_SEED_MAX + 1, ..LDPC }, "seed"),
        (Ldpc { max_symbols: 1 << 20, ..LDPC }, "maximum number of encoding symbols"),
        (Ldpc { max_block: LDPC.max_symbols + 1, ..LDPC }, "maximum source block length"),
        (Ldpc { transfer_length: 4097, symbol_size: 1, max_block: 1, ..LDPC }, "blocks"),
    ] {
        assert_eq!(refused(Fti::LdpcTriangle(ldpc)), field);
    }
}

#[test]
fn raptorq_limits() {
    let raptorq = |transfer_length, symbol_size, blocks, sub_blocks, alignment| Fti::RaptorQ {
        transfer_length,
        symbol_size,
        blocks,
        sub_blocks,
        alignment,
    };
    assert_eq!(refused(raptorq(946_270_874_881, 65535, 255, 1, 1)), "transfer length");
    assert_eq!(refused(raptorq(100, 16, 1, 1, 0)), "alignment");
    assert_eq!(refused(raptorq(100, 16, 1, 1, 17)), "alignment");
    assert_eq!(refused(raptorq(100, 18, 1, 1, 4)), "alignment rule");
    assert_eq!(refused(raptorq(100, 16, 1, 0, 4)), "number of sub-blocks");
    assert_eq!(refused(raptorq(100, 16, 1, 5, 4)), "number of sub-blocks");
    assert_eq!(refused(raptorq(100, 16, 0, 1, 4)), "number of source blocks");
    // 100 bytes are 7 symbols: no more than 7 blocks.
    assert_eq!(raptorq(100, 16, 7, 4, 4).validate(), Ok(()));
    assert_eq!(refused(raptorq(100, 16, 8, 1, 4)), "number of source blocks");
    assert_eq!(raptorq(56_403 * 16, 16, 1, 1, 4).validate(), Ok(()));
    assert_eq!(refused(raptorq(56_403 * 16 + 1, 16, 1, 1, 4)), "source block length");
    assert_eq!(raptorq(0, 16, 1, 1, 4).validate(), Ok(()));
}

#[test]
fn invalid_parameters_are_not_written() {
    let fti = Fti::NoCode { transfer_length: 1 << 48, symbol_size: 1, max_block: 1 };
    assert!(matches!(fti.emit(&mut [0; 14]), Err(FtiError::Range { .. })));
}

#[test]
fn payload_ids_split_by_scheme() {
    let bytes = [0x12, 0x34, 0x56, 0x78];
    for (encoding_id, sbn, esi) in [
        (EncodingId::NoCode, 0x1234, 0x5678),
        (EncodingId::ReedSolomonM, 0x12_3456, 0x78),
        (EncodingId::LdpcStaircase, 0x123, 0x4_5678),
        (EncodingId::LdpcTriangle, 0x123, 0x4_5678),
        (EncodingId::ReedSolomon, 0x12_3456, 0x78),
        (EncodingId::RaptorQ, 0x12, 0x34_5678),
    ] {
        let id = PayloadId { sbn, esi };
        assert_eq!(PayloadId::parse(encoding_id, bytes), id);
        assert_eq!(id.emit(encoding_id), Ok(bytes));
        let (sbn_bits, esi_bits) = (encoding_id.sbn_bits(), encoding_id.esi_bits());
        let wide = PayloadId { sbn: 1 << sbn_bits, esi };
        assert!(matches!(wide.emit(encoding_id), Err(PayloadIdError::Sbn { bits, .. }) if bits == sbn_bits));
        let wide = PayloadId { sbn, esi: 1 << esi_bits };
        assert!(matches!(wide.emit(encoding_id), Err(PayloadIdError::Esi { bits, .. }) if bits == esi_bits));
    }
}

#[test]
fn codepoints_are_encoding_ids() {
    let known: Vec<u8> =
        (0..=255).filter(|&codepoint| EncodingId::from_codepoint(codepoint).is_some()).collect();
    assert_eq!(known, [0, 2, 3, 4, 5, 6]);
    for codepoint in known {
        assert_eq!(EncodingId::from_codepoint(codepoint).map(EncodingId::codepoint), Some(codepoint));
    }
}
