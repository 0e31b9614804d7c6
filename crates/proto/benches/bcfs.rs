//! How many replies a second a router of breadcrumbs forwards, by how many breadcrumbs it holds.

use std::net::SocketAddr;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use headwater_proto::bcfs::{BreadcrumbRouter, Label, Level, RouterConfig};
use headwater_proto::{
    DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, Instant, InterfaceId, Router as _, RouterOutput,
};
use headwater_wire::bcfs::{Header, Kind};

const UPSTREAM: InterfaceId = InterfaceId(0);
const BELOW: InterfaceId = InterfaceId(1);
const BODY: usize = 512;
const SIZES: [u32; 3] = [1_000, 65_536, 1_000_000];

/// Messages that a driver has at once, as from `recvmmsg`.
const BATCH: usize = 32;

struct Bed {
    router: BreadcrumbRouter<InterfaceId>,
    requests: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
    room: Vec<u8>,
    /// Whether the router is told of a batch before it comes.
    expects: bool,
}

impl Bed {
    /// A full table.
    fn new(entries: u32, expects: bool) -> Self {
        let config = RouterConfig::default().with_entries(entries as usize).with_hash_key([3, 4]);
        let source = SocketAddr::from(([192, 0, 2, 1], 7_000));
        let messages = |kind, body: usize| {
            let mut bytes = vec![0; 20 + body];
            Header::new(kind, source, Label(0), Level::ONE).emit(&mut bytes).expect("room");
            vec![bytes; BATCH]
        };
        let mut bed = Self {
            router: BreadcrumbRouter::new(config, UPSTREAM),
            requests: messages(Kind::Request, 8),
            replies: messages(Kind::Reply, BODY),
            room: vec![0; DATAGRAM_BYTES_MAX],
            expects,
        };
        let mut labels = 0..entries;
        for _ in (0..entries).step_by(BATCH) {
            bed.request(|| labels.next().unwrap_or(entries - 1), 1);
        }
        assert_eq!(bed.router.entries(), entries as usize);
        bed
    }

    /// A batch of requests of this level.
    fn request(&mut self, label: impl FnMut() -> u32, level: u8) {
        let Self { router, requests, room, expects, .. } = self;
        give(router, BELOW, requests, label, level, room, *expects);
    }

    /// A batch of replies; with level 0 they take nothing away.
    fn reply(&mut self, label: impl FnMut() -> u32, level: u8) {
        let Self { router, replies, room, expects, .. } = self;
        let sent = give(router, UPSTREAM, replies, label, level, room, *expects);
        assert_eq!(sent, BATCH);
    }
}

/// Hands in a batch; how many messages came out.
fn give(
    router: &mut BreadcrumbRouter<InterfaceId>,
    ingress: InterfaceId,
    messages: &mut [Vec<u8>],
    mut label: impl FnMut() -> u32,
    level: u8,
    room: &mut [u8],
    expects: bool,
) -> usize {
    let now = Instant::from_nanos(1_000_000_000);
    let source = SocketAddr::from(([192, 0, 2, 2], 7_000));
    for message in &mut *messages {
        message[4..8].copy_from_slice(&label().to_be_bytes());
        message[9] = level;
    }
    if expects {
        router.expect(messages.iter().map(Vec::as_slice));
    }
    let mut outputs = 0;
    for payload in messages {
        let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload };
        router.handle(now, ingress, Input::Datagram(datagram));
        while let Some(RouterOutput::Forward { .. } | RouterOutput::Transmit { .. }) =
            router.poll_output(now, room)
        {
            outputs += 1;
        }
    }
    outputs
}

/// Labels in any order but that in which they lie in memory.
fn scattered(entries: u32) -> impl FnMut() -> u32 + Clone {
    let mut label = 0;
    move || {
        label = (label + 7_368_787) % entries;
        label
    }
}

fn router(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bcfs");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (how, expects) in [("", true), (", one by one", false)] {
        for entries in SIZES {
            let mut bed = Bed::new(entries, expects);
            let mut label = scattered(entries);
            let name = format!("reply that leaves the breadcrumb{how}");
            group.bench_function(BenchmarkId::new(name, entries), |bencher| {
                bencher.iter(|| bed.reply(&mut label, 0));
            });
            let name = format!("reply that takes it, and a request{how}");
            group.bench_function(BenchmarkId::new(name, entries), |bencher| {
                bencher.iter(|| {
                    let again = label.clone();
                    bed.reply(&mut label, 1);
                    bed.request(again, 1);
                });
            });
        }
    }
    group.finish();
}

/// What the memory takes for a word of an index and the line that it leads to, in as much memory as the router's table: as many at once as it can wait for, and one
/// after the other.
fn memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    group.throughput(Throughput::Elements(BATCH as u64));
    for entries in SIZES {
        let lines = vec![[1_usize; 8]; entries as usize];
        let slots = (entries + entries / 3 + 1).next_power_of_two();
        // By a generator of full period (Knuth's), of which the high bits are wanted, so that no pattern can be foreseen.
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

criterion_group!(benches, router, memory);
criterion_main!(benches);
