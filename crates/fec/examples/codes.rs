//! Encoding and decoding times of RaptorQ, for `tests/speed/codes.sh`, which runs the drivers of other
//! libraries with the same arguments.
//!
//! Usage: `codes K SYMBOL_BYTES LOST SEED REPEATS`. Prints the median seconds of processor time of encoding
//! and of decoding.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "arguments of the command line")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[expect(dead_code, reason = "helpers of tests, of which this takes some")]
#[path = "../tests/common/mod.rs"]
mod common;

use common::{Random, source};
use headwater_fec::{BlockCodec, Parameters, Repair, codec};
use rustix::time::{ClockId, clock_gettime};

/// Repair symbols beyond the lost ones that a receiver has.
const BEYOND: usize = 1;

fn main() {
    let arguments: Vec<u32> = std::env::args().skip(1).map(|argument| argument.parse().unwrap()).collect();
    let [k, symbol_bytes, lost, seed, repeats] = arguments[..] else {
        panic!("usage: codes K SYMBOL_BYTES LOST SEED REPEATS")
    };
    let codec = codec(Parameters::raptorq(symbol_bytes.try_into().unwrap())).unwrap();
    let source = source(&*codec, k, seed.into());
    let missing = Random(seed.into()).sample(0, k, lost as usize);
    let mut block = vec![0xA5; source.len()];
    let sent = if lost == 0 { 0 } else { lost as usize + BEYOND };
    let mut repairs = vec![0xA5; sent * codec.symbol_size()];
    let mut times = [Vec::new(), Vec::new()];
    // The first repetition is not counted: it makes what all blocks of this length share.
    for repeat in 0..=repeats {
        let start = seconds_now();
        encode(&*codec, k, &source, &mut repairs);
        let encoded = seconds_now();
        decode(&*codec, k, &source, &missing, &repairs, &mut block);
        let decoded = seconds_now();
        assert!(block == source, "decoded something else");
        block.fill(0xA5);
        if repeat > 0 {
            times[0].push(encoded - start);
            times[1].push(decoded - encoded);
        }
    }
    let [encode, decode] = times.map(median);
    println!("{encode:.9} {decode:.9}");
}

/// Makes an encoder of the block, and repair symbols.
fn encode(codec: &dyn BlockCodec, k: u32, source: &[u8], repairs: &mut [u8]) {
    let encoder = codec.encoder(k, source).unwrap();
    for (esi, out) in (k..).zip(repairs.chunks_exact_mut(codec.symbol_size())) {
        encoder.symbol(esi, out).unwrap();
    }
}

/// Copies received symbols to their places, repair symbols to the missing ones, and decodes.
fn decode(codec: &dyn BlockCodec, k: u32, source: &[u8], missing: &[u32], repairs: &[u8], block: &mut [u8]) {
    let size = codec.symbol_size();
    let (mut repairs, mut lost) = ((k..).zip(repairs.chunks_exact(size)), missing.iter().peekable());
    for (esi, (place, received)) in (0..).zip(block.chunks_exact_mut(size).zip(source.chunks_exact(size))) {
        if lost.next_if(|missing| **missing == esi).is_some() {
            place.copy_from_slice(repairs.next().unwrap().1);
        } else {
            place.copy_from_slice(received);
        }
    }
    let placed: Vec<u32> = (k..).take(missing.len()).collect();
    let more: Vec<Repair<'_>> = repairs.map(|(esi, data)| Repair { esi, data }).collect();
    codec.decode_in_place(k, block, missing, &placed, &more).unwrap();
}

/// Processor time of this process, in seconds.
fn seconds_now() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
