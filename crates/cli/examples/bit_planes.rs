//! An array as a stream of buffers, bits of most weight first: each receiver has the array at the precision
//! that its path carries.
//!
//! ```text
//! cargo run --example bit_planes -- encode | headwater stream send --stdin --buffer 1s --interface lo
//! headwater stream receive --interface lo --max-rate 200k --out buffers/
//! cargo run --example bit_planes -- decode buffers/00000003.bin
//! ```
//!
//! A buffer holds the 16 bit planes of 65 536 samples of a moving wave: 8192 bytes each, the highest first.

use std::error::Error;
use std::io::Write;

const SAMPLES: usize = 1 << 16;
const BUFFERS: u32 = 30;
const PLANES: usize = 16;
const PLANE_BYTES: usize = SAMPLES / 8;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["encode"] => {
            let mut out = std::io::stdout().lock();
            for number in 0..BUFFERS {
                let buffer = encode(&wave(number));
                out.write_all(&u32::try_from(buffer.len())?.to_be_bytes())?;
                out.write_all(&buffer)?;
            }
        }
        ["decode", file] => {
            let prefix = std::fs::read(file)?;
            let samples = decode(&prefix);
            let planes = prefix.len() / PLANE_BYTES;
            let middle: Vec<u16> = samples.iter().copied().step_by(SAMPLES / 8).collect();
            println!(
                "{planes} of {PLANES} bit planes: {middle:?}, each within {}",
                1_u32 << (PLANES - planes)
            );
        }
        _ => return Err("usage: bit_planes encode | bit_planes decode FILE".into()),
    }
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a wave from 0 to 65 535"
)]
fn wave(number: u32) -> Vec<u16> {
    let sample = |at: usize| {
        let phase = at as f64 / SAMPLES as f64 + f64::from(number) / f64::from(BUFFERS);
        (32_767.5 * (1.0 + (std::f64::consts::TAU * phase).sin())) as u16
    };
    (0..SAMPLES).map(sample).collect()
}

fn encode(samples: &[u16]) -> Vec<u8> {
    let plane = |bit: usize| {
        let octet = move |eight: &[u16]| {
            eight.iter().fold(0, |octet, sample| octet << 1 | u8::from(sample >> bit & 1 == 1))
        };
        samples.chunks(8).map(octet)
    };
    (0..PLANES).rev().flat_map(plane).collect()
}

/// Bits that did not come are zero.
fn decode(prefix: &[u8]) -> Vec<u16> {
    let mut samples = vec![0; SAMPLES];
    for (plane, octets) in prefix.chunks_exact(PLANE_BYTES).take(PLANES).enumerate() {
        for (at, sample) in samples.iter_mut().enumerate() {
            let bit = octets[at / 8] >> (7 - at % 8) & 1;
            *sample |= u16::from(bit) << (PLANES - 1 - plane);
        }
    }
    samples
}
