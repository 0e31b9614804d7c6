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

struct Bed {
    router: BreadcrumbRouter<InterfaceId>,
    request: Vec<u8>,
    reply: Vec<u8>,
    room: Vec<u8>,
}

impl Bed {
    /// A full table.
    fn new(entries: u32) -> Self {
        let config = RouterConfig::default().with_entries(entries as usize).with_hash_key([3, 4]);
        let source = SocketAddr::from(([192, 0, 2, 1], 7_000));
        let message = |kind, body: usize| {
            let mut bytes = vec![0; 20 + body];
            Header::new(kind, source, Label(0), Level::ONE).emit(&mut bytes).expect("room");
            bytes
        };
        let mut bed = Self {
            router: BreadcrumbRouter::new(config, UPSTREAM),
            request: message(Kind::Request, 8),
            reply: message(Kind::Reply, BODY),
            room: vec![0; DATAGRAM_BYTES_MAX],
        };
        (0..entries).for_each(|label| bed.request(label));
        assert_eq!(bed.router.entries(), entries as usize);
        bed
    }

    fn request(&mut self, label: u32) {
        self.request[4..8].copy_from_slice(&label.to_be_bytes());
        assert_eq!(give(&mut self.router, BELOW, &self.request, &mut self.room), 1);
    }

    /// With level 0 it takes nothing away.
    fn reply(&mut self, label: u32, level: u8) {
        self.reply[4..8].copy_from_slice(&label.to_be_bytes());
        self.reply[9] = level;
        assert_eq!(give(&mut self.router, UPSTREAM, &self.reply, &mut self.room), 1);
    }
}

fn give(
    router: &mut BreadcrumbRouter<InterfaceId>,
    ingress: InterfaceId,
    payload: &[u8],
    room: &mut [u8],
) -> u32 {
    let now = Instant::from_nanos(1_000_000_000);
    let source = SocketAddr::from(([192, 0, 2, 2], 7_000));
    let datagram = Datagram { source, channel: None, ecn: Ecn::NotCapable, payload };
    router.handle(now, ingress, Input::Datagram(datagram));
    let mut outputs = 0;
    while let Some(RouterOutput::Forward { .. } | RouterOutput::Transmit { .. }) =
        router.poll_output(now, room)
    {
        outputs += 1;
    }
    outputs
}

fn router(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bcfs");
    group.throughput(Throughput::Elements(1));
    for entries in [1_000, 65_536, 1_000_000] {
        let mut bed = Bed::new(entries);
        // Any order but that in which they lie in memory.
        let mut label = 0;
        let mut next = || {
            label = (label + 7_368_787) % entries;
            label
        };
        group.bench_function(BenchmarkId::new("reply that leaves the breadcrumb", entries), |bencher| {
            bencher.iter(|| bed.reply(next(), 0));
        });
        group.bench_function(BenchmarkId::new("reply that takes it, and a request", entries), |bencher| {
            bencher.iter(|| {
                let label = next();
                bed.reply(label, 1);
                bed.request(label);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, router);
criterion_main!(benches);
