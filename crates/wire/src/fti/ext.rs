//! The fields of each scheme's EXT_FTI, behind its type and length bytes.
use super::{EncodingId, Fti, Ldpc};
use crate::bytes::{Writer, be, be16, be32};

/// Length of an EXT_FTI less its type and length bytes.
pub(super) fn content_len(encoding_id: EncodingId) -> usize {
    match encoding_id {
        EncodingId::NoCode | EncodingId::ReedSolomonM | EncodingId::RaptorQ => 14,
        EncodingId::LdpcStaircase | EncodingId::LdpcTriangle => 18,
        EncodingId::ReedSolomon => 10,
    }
}

/// The fields of `content`, whose length fits the scheme.
pub(super) fn read(encoding_id: EncodingId, content: &[u8]) -> Fti {
    let transfer_length = be(&content[..6]);
    match encoding_id {
        EncodingId::NoCode => {
            Fti::NoCode { transfer_length, symbol_size: be16(content, 8), max_block: be32(content, 10) }
        }
        EncodingId::ReedSolomonM => Fti::ReedSolomonM {
            transfer_length,
            // RFC 5510 section 4.2.4: 0 stands for the default.
            m: if content[6] == 0 { 8 } else { content[6] },
            g: content[7].max(1),
            symbol_size: be16(content, 8),
            max_block: be16(content, 10),
            max_symbols: be16(content, 12),
        },
        EncodingId::LdpcStaircase => Fti::LdpcStaircase(read_ldpc(transfer_length, content)),
        EncodingId::LdpcTriangle => Fti::LdpcTriangle(read_ldpc(transfer_length, content)),
        EncodingId::ReedSolomon => Fti::ReedSolomon {
            transfer_length,
            symbol_size: be16(content, 6),
            max_block: content[8],
            max_symbols: content[9],
        },
        EncodingId::RaptorQ => Fti::RaptorQ {
            transfer_length: be(&content[..5]),
            symbol_size: be16(content, 6),
            blocks: content[8],
            sub_blocks: be16(content, 9),
            alignment: content[11],
        },
    }
}

fn read_ldpc(transfer_length: u64, content: &[u8]) -> Ldpc {
    Ldpc {
        transfer_length,
        symbol_size: be16(content, 6),
        n1_minus3: content[8] >> 5,
        g: content[8] & 0x1F,
        // B and max_n share five bytes, 20 bits each.
        max_block: be32(content, 8) >> 4 & 0xF_FFFF,
        max_symbols: be32(content, 10) & 0xF_FFFF,
        seed: be32(content, 14),
    }
}

/// Writes fields that have been validated.
pub(super) fn write(fti: &Fti, out: &mut Writer<'_>) {
    let length_len = if fti.encoding_id() == EncodingId::RaptorQ { 5 } else { 6 };
    out.put_uint(fti.transfer_length().into(), length_len);
    let symbol_size = fti.symbol_size().to_be_bytes();
    match *fti {
        Fti::NoCode { max_block, .. } => {
            out.put(&[0, 0]);
            out.put(&symbol_size);
            out.put(&max_block.to_be_bytes());
        }
        Fti::ReedSolomonM { m, g, max_block, max_symbols, .. } => {
            out.put(&[m, g]);
            out.put(&symbol_size);
            out.put(&max_block.to_be_bytes());
            out.put(&max_symbols.to_be_bytes());
        }
        Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => {
            out.put(&symbol_size);
            out.put(&[ldpc.n1_minus3 << 5 | ldpc.g]);
            out.put_uint(u128::from(ldpc.max_block) << 20 | u128::from(ldpc.max_symbols), 5);
            out.put(&ldpc.seed.to_be_bytes());
        }
        Fti::ReedSolomon { max_block, max_symbols, .. } => {
            out.put(&symbol_size);
            out.put(&[max_block, max_symbols]);
        }
        Fti::RaptorQ { blocks, sub_blocks, alignment, .. } => {
            out.put(&[0]);
            out.put(&symbol_size);
            out.put(&[blocks]);
            out.put(&sub_blocks.to_be_bytes());
            out.put(&[alignment, 0, 0]);
        }
    }
}
