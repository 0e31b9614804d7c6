//! Packet-hops per second on one core, on the engine and on a bare loop in the same run.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::{Duration as Time, Instant as Clock};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater_netsim::engine::Run;
use headwater_netsim::speed::{Leaves, bare_dumbbell, bare_star, dumbbell, star};
use headwater_proto::{Duration, Instant};

const LEAVES: u32 = 10_000;
/// Packets of the star in one go: 8 ms each.
const PACKETS: u64 = 20;
/// Of the dumbbell in one go.
const SIMULATED: Duration = Duration::from_secs(2);

/// Lets a run go on by `step` as often as asked, after a second for its start.
fn goes_on(run: &mut Run, step: Duration, times: u64) -> Time {
    if run.now() == Instant::ZERO {
        run.run_until(Instant::ZERO + Duration::from_secs(1));
    }
    let began = Clock::now();
    (0..times).for_each(|_| run.run_until(run.now() + step));
    began.elapsed()
}

/// Hops of a load in one step.
fn hops(mut run: Run, step: Duration) -> u64 {
    goes_on(&mut run, step, 1);
    let before = run.usage().packet_hops;
    goes_on(&mut run, step, 1);
    run.usage().packet_hops - before
}

fn dumbbells(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("17 TCPs over one bottleneck");
    group.throughput(Throughput::Elements(bare_dumbbell(SIMULATED)));
    group.bench_function("bare", |bencher| bencher.iter(|| bare_dumbbell(black_box(SIMULATED))));
    group.throughput(Throughput::Elements(hops(dumbbell(), SIMULATED)));
    let mut run = dumbbell();
    group.bench_function("netsim", |bencher| {
        bencher.iter_custom(|times| goes_on(&mut run, SIMULATED, times));
    });
    group.finish();
}

fn stars(criterion: &mut Criterion) {
    for (name, kind) in [("level", Leaves::Level), ("staggered", Leaves::Staggered)] {
        let mut group = criterion.benchmark_group(format!("star of 10 000 leaves, {name}"));
        group.sample_size(20);
        group.throughput(Throughput::Elements(bare_star(LEAVES, PACKETS, kind)));
        group.bench_function("bare", |bencher| bencher.iter(|| bare_star(LEAVES, black_box(PACKETS), kind)));
        let step = Duration::from_millis(8 * PACKETS);
        group.throughput(Throughput::Elements(hops(star(LEAVES, kind), step)));
        let mut run = star(LEAVES, kind);
        group.bench_function("netsim", |bencher| {
            bencher.iter_custom(|times| goes_on(&mut run, step, times));
        });
        group.finish();
    }
}

criterion_group!(benches, dumbbells, stars);
criterion_main!(benches);
