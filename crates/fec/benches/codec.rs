//! Speed of the codes and of their kernels, with BLAKE3 as the yardstick:
//! `cargo bench -p headwater-fec --bench codec`.
//!
//! Times of one machine say little about another; `--bench ratios` compares, interleaved.

mod yardstick;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use headwater_fec::{Kernel, Parameters, Repair, SYMBOL_SIZE_DEFAULT, codec};
use yardstick::{LENGTHS, LOSSES, Received};

fn yardstick(c: &mut Criterion) {
    let block = Received::new(1002, 0).source;
    let mut group = c.benchmark_group("blake3");
    group.throughput(Throughput::Bytes(block.len() as u64));
    group.bench_function("block", |b| b.iter(|| blake3::hash(black_box(&block))));
    group.finish();
}

/// The plan is there; every block is encoded anew.
fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("raptorq encode");
    for k in LENGTHS {
        let Received { codec, source, .. } = Received::new(k, 0);
        group.throughput(Throughput::Bytes(source.len() as u64));
        group.bench_function(k.to_string(), |b| b.iter(|| codec.encoder(k, black_box(&source))));
    }
    group.finish();
}

fn repair_symbol(c: &mut Criterion) {
    let mut group = c.benchmark_group("raptorq repair symbol");
    group.throughput(Throughput::Bytes(SYMBOL_SIZE_DEFAULT.into()));
    for k in LENGTHS {
        let Received { codec, source, .. } = Received::new(k, 0);
        let encoder = codec.encoder(k, &source).expect("k is within bounds");
        let mut out = vec![0; codec.symbol_size()];
        let mut esis = (k..1 << 24).cycle();
        group.bench_function(k.to_string(), |b| {
            b.iter(|| encoder.symbol(esis.next().expect("a cycle has no end"), black_box(&mut out)));
        });
    }
    group.finish();
}

/// As chosen by the codec, and by the crate's decoder alone.
fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("raptorq decode");
    for k in LENGTHS {
        for loss in LOSSES {
            let received = Received::new(k, loss);
            let at = format!("{k} at {} %", f64::from(loss) / 10.0);
            group.throughput(Throughput::Bytes(received.source.len() as u64));
            group.bench_function(BenchmarkId::new("codec", &at), |b| {
                b.iter_batched_ref(
                    || received.block.clone(),
                    |block| received.decode(block),
                    BatchSize::LargeInput,
                );
            });
            group.bench_function(BenchmarkId::new("crate", &at), |b| b.iter(|| received.decode_by_crate()));
        }
    }
    group.finish();
}

/// LDPC-Triangle with n = 2k, from so many symbols beyond k.
fn ldpc(c: &mut Criterion) {
    let mut group = c.benchmark_group("ldpc-triangle");
    for k in [5_008, 34_034] {
        let received = LOSSES.map(|loss| (loss, Received::of_ldpc(k, loss)));
        let Received { codec, source, .. } = &received[0].1;
        group.throughput(Throughput::Bytes(source.len() as u64));
        group.bench_function(format!("encode {k}"), |b| b.iter(|| codec.encoder(k, black_box(source))));
        for (loss, received) in &received {
            let name = format!("decode {k} at {} %, {} more", f64::from(*loss) / 10.0, received.beyond());
            group.bench_function(name, |b| {
                b.iter_batched_ref(
                    || received.block.clone(),
                    |block| received.decode(block),
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

/// 200 source symbols and 55 repair symbols: one of them made, and 20 missing symbols decoded.
fn reed_solomon(c: &mut Criterion) {
    const K: u32 = 200;
    let codec = codec(Parameters::reed_solomon(SYMBOL_SIZE_DEFAULT, K, 255)).expect("200 <= 255");
    let size = codec.symbol_size();
    let source: Vec<u8> = (0..=u8::MAX).cycle().take(K as usize * size).collect();
    let encoder = codec.encoder(K, &source).expect("k is within bounds");
    let missing: Vec<u32> = (0..20).map(|i| i * 10).collect();
    let mut sent = vec![0; missing.len() * size];
    for (esi, out) in (K..).zip(sent.chunks_exact_mut(size)) {
        encoder.symbol(esi, out).expect("the symbol exists");
    }
    let repairs: Vec<_> =
        (K..).zip(sent.chunks_exact(size)).map(|(esi, data)| Repair { esi, data }).collect();
    let mut group = c.benchmark_group("reed-solomon");
    group.throughput(Throughput::Bytes(source.len() as u64));
    let mut out = vec![0; size];
    group.bench_function("repair symbol", |b| b.iter(|| encoder.symbol(K, black_box(&mut out))));
    group.bench_function("decode", |b| {
        b.iter_batched_ref(
            || source.clone(),
            |block| codec.decode(K, block, &missing, &repairs),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn kernels(c: &mut Criterion) {
    let source: Vec<u8> = (0..=u8::MAX).cycle().take(SYMBOL_SIZE_DEFAULT.into()).collect();
    let mut target = source.clone();
    let mut group = c.benchmark_group("kernel");
    group.throughput(Throughput::Bytes(source.len() as u64));
    for kernel in Kernel::available() {
        group.bench_function(kernel.name(), |b| {
            b.iter(|| kernel.mul_add(black_box(&mut target), black_box(&source), black_box(0x53)));
        });
    }
    group.finish();
}

criterion_group!(benches, yardstick, encode, repair_symbol, decode, ldpc, reed_solomon, kernels);
criterion_main!(benches);
