//! Packets through a receiver of M2C at 1 Gbit/s, by the published and by the revised rules: the revised
//! rules may cost at most a twentieth more.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use headwater_proto::control::{
    Arrival, Departure, Membership, ReceiverControl as _, Rules, SenderControl as _,
};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, DynamicSender};
use headwater_proto::m2c::{Receiver, ReceiverConfig};
use headwater_proto::{Duration, Instant, Rate};

const BYTES: u16 = 1_448;
const LINK: u64 = 1_000_000_000;
/// Longest wait before the link, and propagation time.
const QUEUE: Duration = Duration::from_millis(20);
const DELAY: Duration = Duration::from_millis(5);
/// Time to settle, and time measured: two waves.
const SETTLED_SECONDS: u64 = 10;
const SECONDS: u64 = 10;

/// A sender and a receiver over a link with a drop-tail queue.
struct Path {
    sender: DynamicSender,
    receiver: Receiver,
    subscribed: Vec<bool>,
    free: Instant,
}

impl Path {
    fn new(rules: Rules) -> Self {
        let rate = |bits| Rate::from_bits(bits).expect("above zero");
        let layers = DynamicConfig::fine(BYTES, rate(2 * LINK)).with_base_rate(rate(LINK / 100));
        let channels = DynamicChannels::new(layers, Instant::ZERO).expect("sound layers");
        let sender = DynamicSender::new(channels);
        let receiver = Receiver::new(layers, ReceiverConfig::new().with_rules(rules)).expect("sound layers");
        let subscribed = vec![false; usize::from(channels.dynamic_channels()) + 1];
        let mut path = Self { subscribed, sender, receiver, free: Instant::ZERO };
        path.receiver.start(Instant::ZERO);
        path.apply();
        path
    }

    fn apply(&mut self) {
        while let Some(membership) = self.receiver.poll_membership() {
            let (channel, is_joined) = match membership {
                Membership::Join(channel) => (channel, true),
                Membership::Leave(channel) => (channel, false),
            };
            self.subscribed[usize::from(channel.0)] = is_joined;
        }
    }

    /// Passes packets to the receiver until a second of the session. Returns the packets and their arrivals.
    fn run(&mut self, second: u64) -> Vec<(Instant, Departure)> {
        let (end, mut arrivals) = (Instant::ZERO + Duration::from_secs(second), Vec::new());
        while let Some(now) = self.sender.next_departure().filter(|at| *at < end) {
            let Some(departure) = self.sender.departure(now) else { break };
            self.sender.departed(now, BYTES.into());
            if !self.subscribed[usize::from(departure.channel.0)] || self.free.since(now) > QUEUE {
                continue;
            }
            let time = Duration::from_nanos(u64::from(BYTES + 42) * 8 * 1_000_000_000 / LINK);
            self.free = self.free.max(now) + time;
            let at = self.free + DELAY;
            arrive(&mut self.receiver, at, &departure);
            self.apply();
            arrivals.push((at, departure));
        }
        arrivals
    }
}

fn arrive(receiver: &mut Receiver, at: Instant, departure: &Departure) {
    let Departure { channel, cci, ecn, .. } = departure;
    let source = ([192, 0, 2, 1], 4_242).into();
    receiver.arrived(
        at,
        &Arrival { source, channel: *channel, cci, ecn: *ecn, bytes: BYTES.into(), lateness: Duration::ZERO },
    );
}

fn arrivals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("m2c");
    group.sample_size(10);
    for (name, rules) in [("published", Rules::Published), ("revised", Rules::Revised)] {
        let mut path = Path::new(rules);
        path.run(SETTLED_SECONDS);
        let settled = path.receiver.clone();
        let arrivals = path.run(SETTLED_SECONDS + SECONDS);
        group.throughput(Throughput::Elements(arrivals.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || settled.clone(),
                |mut receiver| {
                    for (at, departure) in &arrivals {
                        arrive(&mut receiver, *at, departure);
                        while receiver.poll_membership().is_some() {}
                    }
                    receiver
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, arrivals);
criterion_main!(benches);
