//! The ratios of speed that the codes are held to, on one core:
//! `cargo bench -p headwater-fec --bench ratios`.
//!
//! What is compared takes turns, so that a machine that others use slows both alike; the median of the rounds
//! counts. Prints a verdict per ratio, and fails nobody.

mod yardstick;

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, WallTime};
use headwater_fec::Kernel;
use yardstick::{LENGTHS, LOSSES, Received};

/// Enough for a median; a round takes as long as all that it compares.
const ROUNDS: usize = 15;

fn main() {
    println!("kernel: {}, {ROUNDS} rounds", Kernel::chosen().name());
    against_crate();
    against_blake3();
    kernels_against_scalar();
    ldpc_beside_raptorq();
}

/// Gain of the codec over the decoder of the crate `raptorq`.
fn against_crate() {
    for k in LENGTHS {
        for loss in LOSSES {
            let received = Received::new(k, loss);
            let mut block = Vec::new();
            let [ours, crates] = medians([
                &mut |stopwatch| {
                    block.clone_from(&received.block);
                    stopwatch(&mut || received.decode(&mut block));
                },
                &mut |stopwatch| stopwatch(&mut || drop(black_box(received.decode_by_crate()))),
            ]);
            assert!(block == received.source, "decoded something else");
            let least = if k > 2_000 { 1.0 } else { 2.0 };
            let what = format!("decode over the crate's, K = {k}, loss {} %", f64::from(loss) / 10.0);
            verdict(&what, crates / ours, least);
        }
    }
}

/// Speeds of RaptorQ at K = 1002 over that of BLAKE3.
fn against_blake3() {
    let received = Received::new(1002, 100);
    let mut block = received.block.clone();
    let [hash, decode, encode] = medians([
        &mut |stopwatch| {
            stopwatch(&mut || {
                black_box(blake3::hash(&received.source));
            });
        },
        // What was decoded stands in places that count as missing.
        &mut |stopwatch| stopwatch(&mut || received.decode(&mut block)),
        &mut |stopwatch| {
            stopwatch(&mut || drop(black_box(received.codec.encoder(received.k, &received.source))));
        },
    ]);
    verdict("decode over BLAKE3, K = 1002, loss 10 %", hash / decode, 0.08);
    verdict("encode over BLAKE3, K = 1002", hash / encode, 0.16);
}

/// Speeds of LDPC-Triangle over those of RaptorQ at K = 5008: shown, not judged.
fn ldpc_beside_raptorq() {
    for (k, loss) in [(5_008, 10), (5_008, 100), (34_034, 10), (34_034, 100)] {
        let (raptorq, ldpc) = (Received::new(5_008, loss), Received::of_ldpc(k, loss));
        let mut blocks = [raptorq.block.clone(), ldpc.block.clone()];
        let [first, second] = &mut blocks;
        let [decode, ldpc_decode, encode, ldpc_encode] = medians([
            // What was decoded stands in places that count as missing.
            &mut |stopwatch| stopwatch(&mut || raptorq.decode(first)),
            &mut |stopwatch| stopwatch(&mut || ldpc.decode(second)),
            &mut |stopwatch| {
                stopwatch(&mut || drop(black_box(raptorq.codec.encoder(raptorq.k, &raptorq.source))));
            },
            &mut |stopwatch| stopwatch(&mut || drop(black_box(ldpc.codec.encoder(ldpc.k, &ldpc.source)))),
        ]);
        assert!(blocks[1] == ldpc.source, "decoded something else");
        let bytes = ldpc.source.len() as f64 / raptorq.source.len() as f64;
        let percent = f64::from(loss) / 10.0;
        println!(
            "shown  LDPC-Triangle over RaptorQ, K = {k} over 5008, loss {percent} %, {} symbols beyond K: decode {:.2}, encode {:.2}",
            ldpc.beyond(),
            bytes * decode / ldpc_decode,
            bytes * encode / ldpc_encode
        );
    }
}

/// Speeds of the kernels, 1408 bytes a thousand times, over that of the scalar one.
fn kernels_against_scalar() {
    let source: Vec<u8> = (0..=u8::MAX).cycle().take(1408).collect();
    let mut target = source.clone();
    let mut time = |kernel: Kernel| {
        let [median] = medians([&mut |stopwatch| {
            stopwatch(&mut || {
                (0..1000).for_each(|_| kernel.mul_add(black_box(&mut target), &source, black_box(0x53)));
            });
        }]);
        median
    };
    let mut kernels = Kernel::available();
    let scalar = time(kernels.next().expect("the scalar kernel is always there"));
    for kernel in kernels {
        verdict(&format!("kernel {} over scalar", kernel.name()), scalar / time(kernel), 8.0);
    }
}

/// Runs the closure given to it and takes its time.
type Stopwatch<'a> = &'a mut dyn FnMut(&mut dyn FnMut());

/// The median times in seconds of things that take turns. Each prepares, then hands its work to the
/// stopwatch.
fn medians<const N: usize>(mut things: [&mut dyn FnMut(Stopwatch<'_>); N]) -> [f64; N] {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (thing, times) in things.iter_mut().zip(&mut times) {
            thing(&mut |work| {
                let start = WallTime.start();
                work();
                times.push(WallTime.end(start));
            });
        }
    }
    times.map(|mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    })
}

fn verdict(what: &str, ratio: f64, least: f64) {
    let verdict = if ratio >= least { "held" } else { "MISSED" };
    println!("{verdict:6} {ratio:6.2} (at least {least:.2})  {what}");
}
