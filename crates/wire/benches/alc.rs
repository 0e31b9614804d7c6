//! What the header of a packet costs: written, and read.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use headwater_wire::alc::{self, Repr};
use headwater_wire::extensions::{Extensions, FdtExtension, Seq};
use headwater_wire::{Cci, Fti, PayloadId};

const PAYLOAD_BYTES: usize = 1_408;

/// A symbol of a file, a part of a buffer, and the first packet of an FDT.
fn headers() -> [(&'static str, Repr); 3] {
    let symbol = Repr {
        tsi: 0x1234,
        toi: Some(7),
        close_session: false,
        close_object: false,
        psi: 0,
        codepoint: 6,
        cci: Cci::new(&[0x2A, 3, 0x01, 0x02]).expect("four bytes"),
        extensions: Extensions::default(),
        payload_id: Some(PayloadId { sbn: 1, esi: 0x203 }),
    };
    let part = Extensions { seq: Some(Seq { buffer: 9, offset: 0x5800 }), ..Extensions::default() };
    let fdt = Extensions {
        fdt: Some(FdtExtension { version: 2, instance_id: 5 }),
        fti: Some(Fti::NoCode { transfer_length: 300, symbol_size: 1_408, max_block: 64 }),
        ..Extensions::default()
    };
    [
        ("symbol", symbol),
        ("part", Repr { extensions: part, ..symbol }),
        ("fdt", Repr { toi: Some(0), codepoint: 0, extensions: fdt, ..symbol }),
    ]
}

fn alc(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("alc");
    group.throughput(Throughput::Elements(1));
    for (name, repr) in headers() {
        let length = repr.buffer_len();
        let mut buffer = vec![0; length + PAYLOAD_BYTES];
        group.bench_function(BenchmarkId::new("emit", name), |bencher| {
            bencher.iter(|| black_box(&repr).emit(&mut buffer[..length]).expect("there is room"));
        });
        group.bench_function(BenchmarkId::new("parse", name), |bencher| {
            bencher.iter(|| alc::parse(black_box(&buffer)).expect("what was written is read").1.len());
        });
    }
    group.finish();
}

criterion_group!(benches, alc);
criterion_main!(benches);
