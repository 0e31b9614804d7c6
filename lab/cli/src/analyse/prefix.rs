//! Part of a buffer that a receiver of any rate holds: the receiver's share of the packets, and the share
//! that forms the buffer's beginning, as lines of CSV for both orders of the sequencer (experiment M5).
//!
//! | kind | receivers |
//! |---|---|
//! | `boundary` | hold each level while its cumulative rate is at most that of a level when a slot begins |
//! | `between` | the same, at any rate |
//! | `wandering` | join each level when its rate falls to a random target, and hold the level from then on |
//!
//! The target of `wandering` changes at random, by up to a third either way.

use std::io::{self, Write};

use headwater_proto::layering::sequencer::{Arrangement, Order};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, Layering};
use headwater_proto::{Duration, Instant, Rate, Seed};
use rand::RngExt;

/// A packet: level, number of the slot, instant of sending, cumulative rate of the level at that instant, and
/// position in the buffer.
struct Sent {
    level: u16,
    slot: u64,
    at: Instant,
    needs: f64,
    number: u64,
}

fn send(layering: &DynamicChannels, start: Instant, time: Duration, order: Order) -> Vec<Sent> {
    let mut arrangement = Arrangement::default();
    arrangement.lay(layering, start, time, u64::MAX, order, None);
    let (mut sent, mut from) = (Vec::new(), start);
    while from < start + time {
        let to = layering.next_boundary(from).map_or(start + time, |next| next.min(start + time));
        for level in 0..layering.levels() {
            let slot = layering.slot_at(from);
            layering.visit(level, from, to, &mut |at, needs| {
                let number = arrangement.next(level, at).map_or(u64::MAX, |pdu| pdu.number);
                sent.push(Sent { level, slot, at, needs, number });
            });
        }
        from = to;
    }
    sent
}

/// Number of packets held, and length of the prefix of the buffer among these.
fn held<'a>(sent: impl Iterator<Item = &'a Sent>) -> (usize, usize) {
    let mut numbers: Vec<u64> = sent.map(|packet| packet.number).collect();
    numbers.sort_unstable();
    let prefix = numbers.iter().zip(0..).take_while(|(number, place)| *number == place).count();
    (numbers.len(), prefix)
}

/// Packets of a receiver whose target rate is `rate` times a factor that changes each half second. The
/// receiver joins levels by the target rate.
fn wandering(sent: &[Sent], start: Instant, rate: f64, seed: u64) -> (usize, usize) {
    let mut chance = Seed(seed).stream("wandering", 0);
    let factors: Vec<f64> = (0..200).map(|_| chance.random_range(2.0 / 3.0..4.0 / 3.0)).collect();
    let mut order: Vec<&Sent> = sent.iter().collect();
    order.sort_unstable_by_key(|packet| packet.at);
    // By wave: a joined wave is held until quiescent. The base is always held.
    let mut joined = std::collections::BTreeSet::new();
    let held_packets = order.into_iter().filter(|packet| {
        let wave = packet.slot + u64::from(packet.level);
        let step = usize::try_from(packet.at.since(start).as_nanos() / 500_000_000).unwrap_or(0);
        if packet.level > 0 && packet.needs <= rate * factors[step % factors.len()] {
            joined.insert(wave);
        }
        packet.level == 0 || joined.contains(&wave)
    });
    held(held_packets)
}

/// Writes the table as lines of CSV.
pub fn write(out: &mut impl Write) -> io::Result<()> {
    let base = Rate::from_kilobits(115);
    let config = DynamicConfig::new(1_440, Rate::from_kilobits(4_000)).with_base_rate(base);
    let layering = DynamicChannels::new(config, Instant::ZERO).expect("sound numbers");
    let (start, time) = (Instant::ZERO + Duration::from_secs(3), Duration::from_secs(25));
    let most = layering.cumulative_rate(layering.levels() - 1, Instant::ZERO);
    writeln!(out, "order,kind,rate_share,received_packets,prefix_packets,sent_packets")?;
    for order in [Order::Tiles, Order::Exact] {
        let sent = send(&layering, start, time, order);
        let mut line = |kind: &str, rate: f64, (received, prefix): (usize, usize)| {
            writeln!(out, "{order:?},{kind},{:.6},{received},{prefix},{}", rate / most, sent.len())
        };
        let at_rate = |rate: f64| held(sent.iter().filter(|packet| packet.needs <= rate * (1.0 + 1e-12)));
        for level in 0..layering.levels() {
            let rate = layering.cumulative_rate(level, Instant::ZERO);
            line("boundary", rate, at_rate(rate))?;
        }
        for step in 1..=200 {
            let rate = most * f64::from(step) / 200.0;
            line("between", rate, at_rate(rate))?;
        }
        for seed in 0..100 {
            let rate = most * f64::from(u32::try_from(seed).unwrap_or(0) + 1) / 150.0;
            line("wandering", rate, wandering(&sent, start, rate, seed))?;
        }
    }
    Ok(())
}
