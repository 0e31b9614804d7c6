//! How many replies a second follow breadcrumbs, by how many of those there are: in the router alone, and in
//! a whole relay but its sockets.

mod breadcrumbs;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use headwater_proto::InterfaceId;
use headwater_proto::bcfs::BreadcrumbRouter;
use headwater_proto::bcfs::relay::Relay;

use breadcrumbs::{BATCH, Bed, Forwards, Labels};

const SIZES: [u32; 3] = [1_000, 65_536, 1_000_000];

fn router(criterion: &mut Criterion) {
    type Router = BreadcrumbRouter<InterfaceId>;
    forwards::<Router>(criterion, "router", Labels::scattered, true);
    forwards::<Router>(criterion, "router, labels in sequence", Labels::in_sequence, true);
    forwards::<Router>(criterion, "router, told of no batch", Labels::scattered, false);
}

fn relay(criterion: &mut Criterion) {
    forwards::<Relay>(criterion, "relay", Labels::scattered, true);
}

fn forwards<F: Forwards>(criterion: &mut Criterion, name: &str, labels: fn(u32) -> Labels, expects: bool) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(BATCH as u64));
    for entries in SIZES {
        let (mut bed, mut labels) = (Bed::<F>::new(entries, expects), labels(entries));
        // All that a table sets aside is in use once it has been gone round as often as its log of uses has
        // room for.
        for _ in (0..5 * entries as usize).step_by(BATCH) {
            bed.replies(&mut labels);
        }
        group.bench_function(BenchmarkId::new("reply that leaves the breadcrumb", entries), |bencher| {
            bencher.iter(|| bed.replies(&mut labels));
        });
        group.bench_function(BenchmarkId::new("reply that takes it, and a request", entries), |bencher| {
            bencher.iter(|| bed.pairs(&mut labels));
        });
    }
    group.finish();
}

/// What the memory takes for a word of an index and the line that it leads to, in as much memory as the
/// router's table: as many at once as it can wait for, and one after the other.
fn memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    group.throughput(Throughput::Elements(BATCH as u64));
    for entries in SIZES {
        let lines = vec![[1_usize; 8]; entries as usize];
        let slots = (entries + entries / 3 + 1).next_power_of_two();
        // By a generator of full period (Knuth's), of which the high bits are wanted, so that no pattern can
        // be foreseen.
        let mut state = 1_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as usize
        };
        let index: Vec<usize> = (0..slots).map(|_| draw() % entries as usize).collect();
        let mut next = || draw() & (slots as usize - 1);
        group.bench_function(BenchmarkId::new("at once", entries), |bencher| {
            bencher.iter(|| (0..BATCH).fold(0, |read, _| read ^ lines[index[next()]][0]));
        });
        group.bench_function(BenchmarkId::new("one after the other", entries), |bencher| {
            bencher.iter(|| {
                // Each read is 1, which the compiler does not know: the next one waits for it.
                (0..BATCH).fold(1, |one, _| lines[index[next() * one]][0])
            });
        });
    }
    group.finish();
}

criterion_group!(benches, router, relay, memory);
criterion_main!(benches);
