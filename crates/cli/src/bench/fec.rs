//! `headwater bench fec`: encoding, repair symbols and decoding on one core, beside BLAKE3.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use headwater_fec::{
    BlockCodec, Kernel, LdpcParameters, Parameters, Repair, SYMBOL_SIZE_DEFAULT, Scheme, codec, sending_order,
};

use super::report::{BenchReport, speed};
use super::{take_turns, timed};
use crate::args::MeasureArgs;
use crate::exit::{Exit, Failure, OrExit};

/// Codes and lengths of blocks: a small file, window order, spread order; for LDPC a file of a single block.
/// Reed-Solomon's blocks end at 255.
const BLOCKS: [(&str, u32); 7] = [
    ("RaptorQ", 64),
    ("RaptorQ", 1_002),
    ("RaptorQ", 5_008),
    ("RS", 64),
    ("LDPC-Triangle", 5_008),
    ("LDPC-Triangle", 34_034),
    ("LDPC-Staircase", 34_034),
];
/// Losses in percent. A block without losses is not decoded.
const LOSSES: [u32; 2] = [1, 10];
/// Symbols beyond k, in thousandths, that LDPC takes to decode by substitution alone, and with elimination.
/// The sending order is random: a receiver has about half of the source and half of the repair symbols.
const LDPC_EXTRA_PERMILLE: [u32; 2] = [120, 100];
/// Maximum symbols of a Reed-Solomon block.
const RS_SYMBOLS_MAX: u32 = 255;
/// Symbols beyond K with which decoding practically never fails.
const EXTRA_SYMBOLS: u32 = 1;

/// Measures every code, beside the hash of the same block.
pub fn run(args: &MeasureArgs, report: &BenchReport) -> Result<(), Failure> {
    report.title(&format!(
        "symbols of {SYMBOL_SIZE_DEFAULT} bytes, one core, kernel {}",
        Kernel::chosen().name()
    ));
    for (name, k) in BLOCKS {
        let codec = codec(parameters(name, k)).or_exit(Exit::Other, "cannot make a codec")?;
        measure(name, k, &codec, args.time, report).or_exit(Exit::Other, format!("{name}, K = {k}"))?;
    }
    Ok(())
}

fn parameters(name: &str, k: u32) -> Parameters {
    let ldpc = |scheme| Parameters::ldpc(scheme, SYMBOL_SIZE_DEFAULT, k, 2 * k, LdpcParameters::new(1));
    match name {
        "RS" => Parameters::reed_solomon(SYMBOL_SIZE_DEFAULT, k, RS_SYMBOLS_MAX),
        "LDPC-Triangle" => ldpc(Scheme::LdpcTriangle),
        "LDPC-Staircase" => ldpc(Scheme::LdpcStaircase),
        _ => Parameters::raptorq(SYMBOL_SIZE_DEFAULT),
    }
}

fn measure(
    name: &str,
    k: u32,
    codec: &Arc<dyn BlockCodec>,
    time: Duration,
    report: &BenchReport,
) -> Result<(), headwater_fec::DecodeError> {
    let source: Vec<u8> = (0..=u8::MAX).cycle().take(k as usize * codec.symbol_size()).collect();
    let encoder = codec.encoder(k, &source)?;
    let bytes = source.len() as u64;
    let mut symbol = vec![0; codec.symbol_size()];
    let repairs = (k..codec.encoding_symbols(k)).cycle();
    let substituting = ldpc_without_elimination(name, k)?;
    let mut losses = Vec::new();
    for at in 0..LOSSES.len() {
        let lost = match (codec.sending_seed(), &substituting) {
            (Some(seed), Some(substituting)) => {
                let codec = [substituting, codec][at];
                Lost::half(codec, k, seed, LDPC_EXTRA_PERMILLE[at], &source)?
            }
            _ => Lost::new(codec, k, LOSSES[at], &source)?,
        };
        lost.decode(&mut source.clone())?;
        losses.push(lost);
    }
    let [first, second] = match substituting {
        Some(_) => ["decode half lost, substitution", "decode half lost, elimination"],
        None => ["decode 1 % loss", "decode 10 % loss"],
    };
    let mut block = source.clone();
    let mut other = source.clone();
    let [hash, encode, repair, few, many] = take_turns(
        time,
        [
            &mut || {
                timed(|| {
                    black_box(blake3::hash(&source));
                })
            },
            &mut || timed(|| drop(black_box(codec.encoder(k, &source)))),
            &mut || {
                timed(|| {
                    for esi in repairs.clone().take(k as usize) {
                        encoder.symbol(esi, &mut symbol).expect("a symbol of the code");
                    }
                })
            },
            &mut || timed(|| losses[0].decode(&mut block).expect("it was decoded before")),
            &mut || timed(|| losses[1].decode(&mut other).expect("it was decoded before")),
        ],
    );
    let bare = speed(bytes, hash);
    report.row("fec", &format!("BLAKE3, K = {k}"), bare, None);
    for (what, seconds) in [("encode", encode), ("repair symbols", repair), (first, few), (second, many)] {
        report.row("fec", &format!("{name} {what}, K = {k}"), speed(bytes, seconds), Some(("BLAKE3", bare)));
    }
    Ok(())
}

/// Creates the LDPC codec of a receiver that decodes by substitution only.
fn ldpc_without_elimination(
    name: &str,
    k: u32,
) -> Result<Option<Arc<dyn BlockCodec>>, headwater_fec::FecError> {
    if !name.starts_with("LDPC") {
        return Ok(None);
    }
    let mut parameters = parameters(name, k);
    parameters.ldpc.eliminates = false;
    codec(parameters).map(Some)
}

/// Block with lost symbols, and the received repair symbols.
struct Lost<'a> {
    codec: &'a Arc<dyn BlockCodec>,
    k: u32,
    missing: Vec<u32>,
    sent: Vec<(u32, Vec<u8>)>,
}

impl<'a> Lost<'a> {
    fn new(
        codec: &'a Arc<dyn BlockCodec>,
        k: u32,
        percent: u32,
        source: &[u8],
    ) -> Result<Self, headwater_fec::DecodeError> {
        let count = (k * percent / 100).max(1);
        let encoder = codec.encoder(k, source)?;
        let mut sent = Vec::new();
        for esi in k..k + count + EXTRA_SYMBOLS {
            let mut symbol = vec![0; codec.symbol_size()];
            encoder.symbol(esi, &mut symbol)?;
            sent.push((esi, symbol));
        }
        let missing = (0..count).map(|i| i * k / count).collect();
        Ok(Self { codec, k, missing, sent })
    }

    /// Creates a block of the first k symbols in the order of sending, and some more.
    fn half(
        codec: &'a Arc<dyn BlockCodec>,
        k: u32,
        seed: u32,
        extra_permille: u32,
        source: &[u8],
    ) -> Result<Self, headwater_fec::DecodeError> {
        let order = sending_order(seed, codec.encoding_symbols(k));
        let received = &order[..(k + k * extra_permille / 1_000) as usize];
        let encoder = codec.encoder(k, source)?;
        let mut is_missing = vec![true; k as usize];
        let mut sent = Vec::new();
        for esi in received {
            if let Some(is_missing) = is_missing.get_mut(*esi as usize) {
                *is_missing = false;
                continue;
            }
            let mut symbol = vec![0; codec.symbol_size()];
            encoder.symbol(*esi, &mut symbol)?;
            sent.push((*esi, symbol));
        }
        let missing = (0..k).filter(|esi| is_missing[*esi as usize]).collect();
        Ok(Self { codec, k, missing, sent })
    }

    /// Decodes the block. The places of missing symbols hold the result of the previous decoding.
    fn decode(&self, block: &mut [u8]) -> Result<(), headwater_fec::DecodeError> {
        let repairs: Vec<_> = self.sent.iter().map(|(esi, data)| Repair { esi: *esi, data }).collect();
        self.codec.decode(self.k, block, &self.missing, &repairs)
    }
}
