//! What a packet costs both ends of a session beside disk and network: a sender whose content is all zeros,
//! and a receiver whose store keeps nothing.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use headwater_fec::{Order, Scheme};
use headwater_proto::delivery::{
    DeliveryReceiver, DeliveryReceiverConfig, DeliverySender, DeliverySenderConfig, FileToSend, PlanConfig,
    RelativePath, SessionPlan, Source, SourceError,
};
use headwater_proto::{
    ChannelId, DATAGRAM_BYTES_MAX, Datagram, Ecn, Input, Instant, Machine, Output, Rate, fixed,
};

#[path = "../tests/counter/mod.rs"]
mod counter;

use counter::Counter;

const SYMBOLS: u64 = 20_000;
const SYMBOL_BYTES: u16 = 1_408;

struct Zeros;

impl Source for Zeros {
    fn read_symbol(&mut self, _: usize, _: u32, _: u32, symbol: &mut [u8]) -> Result<(), SourceError> {
        symbol.fill(0);
        Ok(())
    }
}

fn sender(order: Order) -> DeliverySender<fixed::FixedSender, Zeros> {
    let path = RelativePath::new("file").expect("a name");
    let file = FileToSend { path, bytes: SYMBOLS * u64::from(SYMBOL_BYTES), mode: None, modified: None };
    let config = PlanConfig { scheme: Scheme::NoCode, symbol_size: SYMBOL_BYTES, order };
    let plan = SessionPlan::new(vec![file], config).expect("a sound plan");
    let blocks = |partition: headwater_fec::Partition| vec![[0; 32]; partition.blocks() as usize];
    let digests: Vec<_> = plan.objects().iter().map(|object| blocks(object.partition)).collect();
    let control = fixed::FixedSender::new(Rate::from_kilobits(10_000_000), Instant::ZERO);
    DeliverySender::new(DeliverySenderConfig::new(7), &plan, &digests, control, Zeros)
        .expect("a sound session")
}

/// The next packet, and when it leaves.
fn next(sender: &mut DeliverySender<fixed::FixedSender, Zeros>, buffer: &mut [u8]) -> (Instant, usize) {
    loop {
        let now = sender.poll_timeout().expect("it goes on");
        sender.handle(now, Input::Timeout);
        if let Some(Output::Transmit(transmit)) = sender.poll_output(now, buffer) {
            return (now, transmit.bytes);
        }
    }
}

fn delivery(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("delivery");
    group.throughput(Throughput::Elements(SYMBOLS)).sample_size(20);
    for (name, order) in [("window", Order::Window), ("spread", Order::Spread { rate: 10_000_000_000 })] {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        group.bench_function(BenchmarkId::new("send", name), |bencher| {
            let mut sender = sender(order);
            bencher.iter(|| (0..SYMBOLS).map(|_| next(&mut sender, &mut buffer).1).sum::<usize>());
        });
        let mut sender = sender(order);
        let packets: Vec<_> = (0..SYMBOLS)
            .map(|_| {
                let (now, bytes) = next(&mut sender, &mut buffer);
                (now, buffer[..bytes].to_vec())
            })
            .collect();
        group.bench_function(BenchmarkId::new("receive", name), |bencher| {
            let control = fixed::FixedReceiver::new;
            let receiver = || {
                DeliveryReceiver::new(
                    DeliveryReceiverConfig::default(),
                    control(),
                    Counter::default(),
                    Instant::ZERO,
                )
            };
            bencher.iter_batched(
                receiver,
                |mut receiver| take(&mut receiver, &packets),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn take(
    receiver: &mut DeliveryReceiver<fixed::FixedReceiver, Counter>,
    packets: &[(Instant, Vec<u8>)],
) -> u64 {
    let source = ([192, 0, 2, 1], 7).into();
    for (now, payload) in packets {
        let datagram = Datagram { source, channel: Some(ChannelId::BASE), ecn: Ecn::NotCapable, payload };
        receiver.handle(*now, Input::Datagram(datagram));
        while receiver.poll_output(*now, &mut []).is_some() {}
    }
    receiver.store().symbols
}

criterion_group!(benches, delivery);
criterion_main!(benches);
