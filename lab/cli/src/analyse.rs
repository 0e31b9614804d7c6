//! `headwater-lab analyse`: tables computed without a simulation, as lines of CSV.
//!
//! The application scheduler alone (experiment M4): blocks sent before the first duplicate, and buffers until
//! a receiver is done, by the number of levels held, as lines of CSV.
//!
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
//!
//! The table of LE-SBCC's analysis as CSV, in the format of `lab/experiments/le_sbcc/markov/published.csv`:
//! the number of lost packets per loss event, by the probability of loss, for independent and bursty losses.
//!
//! Loss events that pass Max-LPRF in the round model of LE-SBCC's analysis, as CSV: 6000 packets, by the
//! number of receivers, each count with half of its 99 % interval over 40 seeds. The worst receiver loses 10
//! or 20 %, all further receivers 2 %.

use std::collections::BTreeSet;
use std::io;
use std::io::{BufWriter, Error, ErrorKind, Write, stdout};

use headwater_baselines::le_sbcc::{Losses, analyse, passed};
use headwater_cli::exit::{Exit, Failure, OrExit};
use headwater_proto::delivery::{CarouselBlock, Hierarchy, Place};
use headwater_proto::layering::sequencer::{Arrangement, Order};
use headwater_proto::layering::{DynamicChannels, DynamicConfig, Layering};
use headwater_proto::{ChannelId, Duration, Instant, Rate, Seed};
use rand::RngExt;

use crate::args::{AnalyseArgs, Analysis};

/// Writes a table to standard output. A reader that has gone is no error.
pub fn run(args: &AnalyseArgs) -> Result<Exit, Failure> {
    let mut out = BufWriter::new(stdout().lock());
    let written = match args.analysis {
        Analysis::Scheduler => write_scheduler(&mut out),
        Analysis::Prefix => write_prefix(&mut out),
        Analysis::Markov => write_markov(&mut out),
        Analysis::Passed => write_passed(&mut out),
    };
    let is_gone = |error: &Error| error.kind() == ErrorKind::BrokenPipe;
    match written.and_then(|()| out.flush()) {
        Err(error) if is_gone(&error) => Ok(Exit::Ok),
        written => written.or_exit(Exit::Other, "cannot write to standard output").map(|()| Exit::Ok),
    }
}

/// Maximum number of packets in a round trip, chosen to match the paper's figures.
const MOST: usize = 200;
const INDEPENDENT: [f64; 19] = [
    0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9,
];
const BURSTY: [f64; 16] =
    [5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9];

/// Writes the table of the Markov analysis of LE-SBCC.
fn write_markov(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "case,N,p,p_li,mean_packets_per_rtt,le_per_rtt,ratio_pli_over_ple_per_packet")?;
    for (case, losses, probabilities) in
        [("nonbursty", Losses::Independent, &INDEPENDENT[..]), ("bursty", Losses::Bursty, &BURSTY[..])]
    {
        for p in probabilities {
            let found = analyse(losses, MOST, *p);
            writeln!(
                out,
                "{case},{MOST},{p},{:.5},{:.3},{:.4},{:.4}",
                found.indications_per_packet,
                found.packets,
                found.events_per_round_trip,
                found.indications_per_event
            )?;
        }
    }
    Ok(())
}

const RUNS: u64 = 40;
/// Student's t at 99.5 %, for 39 degrees of freedom.
const T: f64 = 2.708;

/// Writes the table of the loss indications that pass LE-SBCC's filters.
fn write_passed(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "worst_loss,receivers,passed,ci99")?;
    for worst in [0.1, 0.2] {
        for others in [0, 10, 100, 1_000, 10_000] {
            let run = |run| f64::from(passed(6_000, worst, others, 0.02, &mut Seed(1).stream("rounds", run)));
            let counts: Vec<f64> = (0..RUNS).map(run).collect();
            let mean = counts.iter().sum::<f64>() / RUNS as f64;
            let squares: f64 = counts.iter().map(|count| (count - mean) * (count - mean)).sum();
            let half = T * libm::sqrt(squares / (RUNS - 1) as f64 / RUNS as f64);
            writeln!(out, "{worst},{},{mean:.1},{half:.1}", others + 1)?;
        }
    }
    Ok(())
}

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
    let mut joined = BTreeSet::new();
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

/// Writes the table of the prefixes of the sequencer.
fn write_prefix(out: &mut impl Write) -> io::Result<()> {
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

/// A carousel over `k` blocks; over `n` symbols of which any k do, where there is a code.
fn carousel(k: u32, n: u32) -> Hierarchy {
    // A block without a code is equivalent to a block of a single symbol: the ring is the same.
    let block = |symbols, encoding_symbols| CarouselBlock { symbols, encoding_symbols, rateless: false };
    Hierarchy::new(if n > k { vec![block(k, n)] } else { vec![block(1, 1); k as usize] })
}

/// Symbols of a buffer that a receiver of `levels` levels gets.
fn buffer(hierarchy: &mut Hierarchy, number: u64, levels: u64) -> Vec<u32> {
    let visits = (0..levels)
        .filter_map(|index| hierarchy.visit(Place { buffer: number, index, channel: ChannelId::BASE }));
    visits.map(|visit| visit.block + visit.esi).collect()
}

/// Number of different symbols before the first buffer that contains a duplicate.
fn before_a_duplicate(mut hierarchy: Hierarchy, levels: u64) -> usize {
    let mut seen = BTreeSet::new();
    for number in 0.. {
        let had = seen.len();
        let visits = buffer(&mut hierarchy, number, levels);
        seen.extend(visits.iter().copied());
        if seen.len() < had + visits.len() {
            return had;
        }
    }
    0
}

/// Number of buffers until `wanted` different symbols have arrived.
fn until(mut hierarchy: Hierarchy, levels: u64, wanted: usize) -> u64 {
    let mut seen = BTreeSet::new();
    let mut buffers = 0;
    while seen.len() < wanted {
        seen.extend(buffer(&mut hierarchy, buffers, levels));
        buffers += 1;
    }
    buffers
}

/// Writes the table of the order of the carousel.
fn write_scheduler(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "levels_received,before_duplicate,without_code,with_code")?;
    for levels in 1..=32 {
        writeln!(
            out,
            "{levels},{},{},{}",
            before_a_duplicate(carousel(8_000, 8_000), levels),
            until(carousel(4_000, 4_000), levels, 4_000),
            until(carousel(4_000, 8_000), levels, 4_000),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of it: blocks of 8000 sent before the first duplicate, buffers until 4000 blocks without a code,
    /// and until 4000 of 8000 symbols with one.
    #[test]
    fn blocks_and_buffers_as_derived() {
        let rows = [
            (1, 8000, 4000, 4000),
            (2, 8000, 2000, 2000),
            (3, 6000, 2000, 1334),
            (4, 8000, 1000, 1000),
            (5, 5000, 1000, 800),
            (6, 6000, 1000, 667),
            (7, 7000, 1000, 572),
            (8, 8000, 500, 500),
            (9, 4500, 500, 445),
            (10, 5000, 500, 400),
            (11, 5500, 500, 364),
            (12, 6000, 500, 334),
            (13, 6500, 500, 308),
            (14, 7000, 500, 286),
            (15, 7500, 500, 267),
            (16, 8000, 250, 250),
            (17, 4250, 250, 236),
            (18, 4500, 250, 223),
            (19, 4750, 250, 211),
            (20, 5000, 250, 200),
            (21, 5250, 250, 191),
            (22, 5500, 250, 182),
            (23, 5750, 250, 174),
            (24, 6000, 250, 167),
            (25, 6250, 250, 160),
            (26, 6500, 250, 154),
            (27, 6750, 250, 149),
            (28, 7000, 250, 143),
            (29, 7250, 250, 138),
            (30, 7500, 250, 134),
            (31, 7750, 250, 130),
            (32, 8000, 125, 125),
        ];
        for (levels, before, without_code, with_code) in rows {
            assert_eq!(
                before_a_duplicate(carousel(8_000, 8_000), levels),
                before,
                "{levels} levels: before a duplicate"
            );
            assert_eq!(
                until(carousel(4_000, 4_000), levels, 4_000),
                without_code,
                "{levels} levels, no code"
            );
            assert_eq!(until(carousel(4_000, 8_000), levels, 4_000), with_code, "{levels} levels, n = 2k");
        }
    }
}
