//! Which part of a buffer a receiver of any rate holds: its share of the packets, and the share that is the buffer's beginning,
//! as lines of CSV for both orders of the sequencer.
//!
//! ```text
//! cargo run --release -p headwater-proto --example prefix > prefix.csv
//! ```

use headwater_proto::layering::sequencer::{Arrangement, Order};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, Layering};
use headwater_proto::{Duration, Instant, Rate};

/// A packet: the cumulative rate of its level when it leaves, and its part of the buffer.
type Sent = (f64, u64);

fn send(layering: &DynamicChannels, start: Instant, time: Duration, order: Order) -> Vec<Sent> {
    let mut arrangement = Arrangement::default();
    arrangement.lay(layering, start, time, u64::MAX, order);
    let (mut sent, mut from) = (Vec::new(), start);
    while from < start + time {
        let to = layering.next_boundary(from).map_or(start + time, |next| next.min(start + time));
        for level in 0..layering.levels() {
            for n in 0..layering.packets(level, from, to) {
                let at = layering.departure(level, from, n);
                let number = arrangement.next(level, at).map_or(u64::MAX, |pdu| pdu.number);
                sent.push((layering.cumulative_rate(level, at), number));
            }
        }
        from = to;
    }
    sent
}

fn main() {
    let base = Rate::from_kilobits(115);
    let config = DynamicConfig::new(1_440, Rate::from_kilobits(4_000)).with_base_rate(base);
    let Ok(layering) = DynamicChannels::new(config, Instant::ZERO) else { return };
    let (start, time) = (Instant::ZERO + Duration::from_secs(3), Duration::from_secs(25));
    let most = layering.cumulative_rate(layering.levels() - 1, Instant::ZERO);
    println!("order,rate_share,received_share,prefix_share");
    for order in [Order::Tiles, Order::Exact] {
        let sent = send(&layering, start, time, order);
        for step in 1..=200 {
            let rate = most * f64::from(step) / 200.0;
            let held = sent.iter().filter(|(needs, _)| *needs <= rate * (1.0 + 1e-12));
            let mut numbers: Vec<u64> = held.map(|(_, number)| *number).collect();
            numbers.sort_unstable();
            let prefix = numbers.iter().zip(0..).take_while(|(number, place)| *number == place).count();
            let share = |packets: usize| packets as f64 / sent.len() as f64;
            println!("{order:?},{},{:.4},{:.4}", rate / most, share(numbers.len()), share(prefix));
        }
    }
}
