//! Columns with the names of Wireshark 4.0's dissectors `alc`, `rmt-lct` and `rmt-fec`, in the format of
//! `tshark -T fields`.
//!
//! The columns contain more than stock tshark reads: FEC payload ID and EXT_FTI of every scheme.
//! `tests/interop/tshark.sh` compares all other columns.

use headwater_wire::extensions::{HET_CENC, HET_FDT, HET_FTI};
use headwater_wire::{Extensions, Fti};

use super::packet::{AlcPacket, Extension, hex};

/// Column: name, and value for a packet; empty if the packet has no such field.
type Column = (&'static str, fn(&AlcPacket<'_>) -> String);

const COLUMNS: [Column; 33] = [
    ("rmt-lct.version", |_| headwater_wire::lct::VERSION.to_string()),
    ("rmt-lct.fsize.cci", |packet| packet.field_sizes().cci.to_string()),
    ("rmt-lct.fsize.tsi", |packet| packet.field_sizes().tsi.to_string()),
    ("rmt-lct.fsize.toi", |packet| packet.field_sizes().toi.to_string()),
    ("rmt-lct.flags", |packet| format!("0x{:04x}", packet.flags())),
    ("rmt-lct.flags.close_session", |packet| u8::from(packet.lct.close_session()).to_string()),
    ("rmt-lct.flags.close_object", |packet| u8::from(packet.lct.close_object()).to_string()),
    ("rmt-lct.hlen", |packet| packet.lct.header_len().to_string()),
    ("rmt-lct.codepoint", |packet| packet.lct.codepoint().to_string()),
    ("rmt-lct.cci", |packet| hex(packet.lct.cci())),
    ("rmt-lct.tsi", |packet| shown(packet.lct.tsi().filter(|_| packet.field_sizes().tsi <= 4))),
    ("rmt-lct.tsi64", |packet| shown(packet.lct.tsi().filter(|_| packet.field_sizes().tsi > 4))),
    ("rmt-lct.toi", |packet| shown(packet.lct.toi().filter(|_| packet.field_sizes().toi <= 4))),
    ("rmt-lct.toi64", |packet| {
        shown(packet.lct.toi().filter(|_| packet.field_sizes().toi > 4).map(|toi| toi & u128::from(u64::MAX)))
    }),
    ("rmt-lct.toi_extended", |packet| {
        shown(packet.lct.toi().filter(|_| packet.field_sizes().toi > 8).map(|toi| toi >> 64))
    }),
    ("rmt-lct.ext", |packet| match packet.extensions().count() {
        0 => String::new(),
        count => count.to_string(),
    }),
    ("rmt-lct.hec.type", |packet| listed(packet.extensions().map(|extension| extension.het.to_string()))),
    ("rmt-lct.hec.len", |packet| {
        listed(packet.extensions().filter_map(|extension| extension.words).map(|words| words.to_string()))
    }),
    ("rmt-lct.hec.data", |packet| {
        listed(packet.extensions().filter(is_opaque).map(|extension| hex(extension.content)))
    }),
    ("rmt-lct.cenc", |packet| extension(packet, |found| found.content_encoding.map(|cenc| cenc.code()))),
    ("rmt-lct.flute_version", |packet| extension(packet, |found| found.fdt.map(|fdt| fdt.version))),
    ("rmt-lct.fdt_instance_id", |packet| extension(packet, |found| found.fdt.map(|fdt| fdt.instance_id))),
    ("rmt-fec.encoding_id", |packet| {
        shown((!packet.lct.payload().is_empty()).then(|| packet.lct.codepoint()))
    }),
    ("rmt-fec.sbn", |packet| shown(payload_id(packet).map(|id| id.sbn))),
    ("rmt-fec.esi", |packet| payload_id(packet).map_or_else(String::new, |id| format!("0x{:08x}", id.esi))),
    ("rmt-fec.fti.transfer_length", |packet| fti(packet, |fti| Some(fti.transfer_length()))),
    ("rmt-fec.fti.encoding_symbol_length", |packet| fti(packet, |fti| Some(fti.symbol_size()))),
    ("rmt-fec.fti.max_source_block_length", |packet| fti(packet, max_block)),
    ("rmt-fec.fti.max_number_encoding_symbols", |packet| fti(packet, max_symbols)),
    ("rmt-fec.fti.num_blocks", |packet| {
        fti(packet, |fti| if let Fti::RaptorQ { blocks, .. } = fti { Some(blocks) } else { None })
    }),
    ("rmt-fec.fti.num_subblocks", |packet| {
        fti(packet, |fti| if let Fti::RaptorQ { sub_blocks, .. } = fti { Some(sub_blocks) } else { None })
    }),
    ("rmt-fec.fti.alignment", |packet| {
        fti(packet, |fti| if let Fti::RaptorQ { alignment, .. } = fti { Some(alignment) } else { None })
    }),
    ("alc.payload", |packet| hex(packet.symbols)),
];

/// Returns the header line.
pub fn header() -> String {
    let names = COLUMNS.iter().map(|(name, _)| *name);
    ["frame.number", "udp.length"].into_iter().chain(names).collect::<Vec<_>>().join("\t")
}

/// Returns the line of a frame; only the number for a frame without a UDP datagram or LCT packet.
pub fn row(frame: u64, udp_length: Option<u16>, packet: Option<&AlcPacket<'_>>) -> String {
    let mut cells = vec![frame.to_string(), shown(udp_length)];
    cells.extend(COLUMNS.iter().map(|(_, cell)| packet.map(cell).unwrap_or_default()));
    cells.join("\t")
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Joins the values of a field by commas.
fn listed(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(",")
}

/// Extensions that tshark dissects have no data field.
fn is_opaque(extension: &Extension<'_>) -> bool {
    !matches!(extension.het, HET_FTI | HET_FDT | HET_CENC)
}

fn extension<T: ToString>(packet: &AlcPacket<'_>, field: impl Fn(&Extensions) -> Option<T>) -> String {
    shown(packet.alc.as_ref().ok().and_then(|alc| field(&alc.extensions)))
}

fn payload_id(packet: &AlcPacket<'_>) -> Option<headwater_wire::PayloadId> {
    packet.alc.as_ref().ok().and_then(|alc| alc.payload_id)
}

fn fti<T: ToString>(packet: &AlcPacket<'_>, field: impl Fn(Fti) -> Option<T>) -> String {
    extension(packet, |found| found.fti.and_then(&field))
}

fn max_block(fti: Fti) -> Option<u32> {
    match fti {
        Fti::NoCode { max_block, .. } => Some(max_block),
        Fti::ReedSolomonM { max_block, .. } => Some(max_block.into()),
        Fti::ReedSolomon { max_block, .. } => Some(max_block.into()),
        Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => Some(ldpc.max_block),
        Fti::RaptorQ { .. } => None,
    }
}

fn max_symbols(fti: Fti) -> Option<u32> {
    match fti {
        Fti::NoCode { .. } | Fti::RaptorQ { .. } => None,
        Fti::ReedSolomonM { max_symbols, .. } => Some(max_symbols.into()),
        Fti::ReedSolomon { max_symbols, .. } => Some(max_symbols.into()),
        Fti::LdpcStaircase(ldpc) | Fti::LdpcTriangle(ldpc) => Some(ldpc.max_symbols),
    }
}
