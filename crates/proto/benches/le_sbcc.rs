//! Loss indications of very many receivers through the whole chain: must do far more than 100 000 a second on
//! one core.

use core::hint::black_box;
use core::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater_proto::le_sbcc::{Chain, Indication, LeSbccConfig};
use headwater_proto::{Duration, Instant, Seed};

fn indications(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("le_sbcc");
    group.throughput(Throughput::Elements(1));
    for receivers in [1_u32, 10_000, 1_000_000] {
        let config = LeSbccConfig::new(1_400).with_receivers_max(receivers);
        let mut chain = Chain::new(config, Seed(1).stream("le-sbcc", 0), Instant::ZERO);
        let (mut now, mut number) = (Instant::ZERO + Duration::from_secs(1), 0_u32);
        let mut indicate = |chain: &mut Chain| {
            now += Duration::from_micros(10);
            // Far apart in memory, each in its turn.
            number = number.wrapping_add(0x9E37_79B1);
            let receiver = IpAddr::V4(Ipv4Addr::from_bits(1 + number % receivers));
            let sent = now - Duration::from_millis(100);
            if chain.poll_timeout() <= now {
                chain.timeout(now);
            }
            chain.indication(now, &Indication { receiver, sent, noticed: Some(sent) })
        };
        for _ in 0..2 * receivers {
            black_box(indicate(&mut chain));
        }
        group.bench_function(format!("{receivers} receivers"), |bencher| {
            bencher.iter(|| black_box(indicate(&mut chain)));
        });
    }
    group.finish();
}

criterion_group!(benches, indications);
criterion_main!(benches);
