//! How many packets a second the sequencer gives their parts: laying a buffer out and asking for each packet
//! of it.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use headwater_proto::layering::sequencer::{Arrangement, Order};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, Layering};
use headwater_proto::{Duration, Instant, Rate};

/// Levels from 1 Mbit/s up to so many, in packets of 1440 bytes.
fn layers(megabits: u64) -> DynamicChannels {
    let config = DynamicConfig::new(1_440, Rate::from_kilobits(1_000 * megabits))
        .with_base_rate(Rate::from_kilobits(1_000));
    DynamicChannels::new(config, Instant::ZERO).expect("sound numbers")
}

fn sequencer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sequencer");
    group.sample_size(10);
    let (start, time) = (Instant::ZERO + Duration::from_secs(3), Duration::from_secs(10));
    for megabits in [100, 1_000] {
        let layering = layers(megabits);
        let mut arrangement = Arrangement::default();
        arrangement.lay(&layering, start, time, u64::MAX, Order::Tiles, None);
        let packets = arrangement.packets();
        group.throughput(Throughput::Elements(packets));
        for order in [Order::Tiles, Order::Exact] {
            let id = BenchmarkId::new(format!("{order:?}"), packets);
            group.bench_function(id, |bencher| {
                bencher.iter(|| {
                    arrangement.lay(&layering, start, time, u64::MAX, order, None);
                    let boundary = layering.next_boundary(start).expect("slots end");
                    let mut sum = 0;
                    for at in [start, boundary] {
                        for level in 0..layering.levels() {
                            while let Some(pdu) = arrangement.next(level, at) {
                                sum += pdu.number;
                            }
                        }
                    }
                    sum
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, sequencer);
criterion_main!(benches);
