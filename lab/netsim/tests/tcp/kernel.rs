//! The kernel's own TCP (Reno) over a token bucket, against the same scenarios simulated.
//!
//! The kernel's numbers are measured by `lab/experiments/validation/kernel_tcp.py`, whose output is read
//! here.

use headwater_netsim::network::LinkConfig;
use headwater_netsim::tcp::{Config, Profile};
use headwater_proto::queue::QueueConfig;
use headwater_proto::{Duration, Rate};

use super::bed::{Bed, assert_between, at};

const MEASURED: &str = include_str!("../../../experiments/validation/kernel_tcp.csv");
const RATES: [u64; 2] = [4_000_000, 40_000_000];
const WARM_UP_SECONDS: f64 = 5.0;
const SEEDS: u64 = 5;

/// What a bucket that holds one frame does with a packet at the head of its queue: it lets it go when its
/// tokens are there, and all of it at once. So one packet fewer is between the ends than on a line, where one
/// is being sent; and a packet is at the far end as soon as it would begin to be sent. A line with room for
/// one packet less holds as many.
const BEING_SENT: usize = 1;

/// Ethernet's header counts in the bucket.
fn config() -> Config {
    let linux = Profile::Linux.config();
    Config { header_bytes: linux.header_bytes + 14, ack_bytes: linux.ack_bytes + 14, ..linux }
}

/// Both connections together, per second.
#[derive(Clone, Copy, Debug)]
struct Totals {
    goodput_bits: f64,
    losses: f64,
}

/// The median over repetitions: the machine may have had other things to do during one.
fn kernel(rate: u64, flows: usize) -> (Totals, usize) {
    let header: Vec<&str> = MEASURED.lines().next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let rows: Vec<Vec<&str>> = MEASURED.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let number = |row: &[&str], name: &str| row[column(name)].parse::<f64>().unwrap();
    let of_scenario = |row: &&Vec<&str>| {
        row[column("rate_bps")] == rate.to_string() && row[column("flows")] == flows.to_string()
    };
    let mut totals: Vec<Totals> = Vec::new();
    let mut queue = 0;
    for row in rows.iter().filter(of_scenario) {
        if row[column("flow")] == "0" {
            totals.push(Totals { goodput_bits: 0.0, losses: number(row, "drops") / number(row, "seconds") });
        }
        totals.last_mut().unwrap().goodput_bits += number(row, "goodput_bps");
        queue = row[column("queue_packets")].parse().unwrap();
    }
    totals.sort_by(|one, other| one.goodput_bits.total_cmp(&other.goodput_bits));
    (totals[totals.len() / 2], queue)
}

fn simulated(seed: u64, rate: u64, flows: usize, queue: usize, seconds: f64) -> Totals {
    let link = LinkConfig::new(Rate::from_bits(rate).unwrap(), Duration::ZERO)
        .with_queue(QueueConfig::drop_tail((queue - BEING_SENT).try_into().unwrap()));
    let mut bed = Bed::new(seed, link, &config(), &vec![Duration::ZERO; flows]);
    let read = |bed: &mut Bed| {
        let acked: u64 = (0..flows).map(|flow| bed.counters(flow).payload_bytes_acked).sum();
        (acked as f64, bed.link().queue_drops() as f64)
    };
    bed.run.run_until(at(WARM_UP_SECONDS));
    let before = read(&mut bed);
    bed.run.run_until(at(WARM_UP_SECONDS + seconds));
    let after = read(&mut bed);
    Totals { goodput_bits: 8.0 * (after.0 - before.0) / seconds, losses: (after.1 - before.1) / seconds }
}

#[test]
fn goodput_is_the_kernels() {
    for rate in RATES {
        for flows in [1, 2] {
            let (kernel, queue) = kernel(rate, flows);
            let runs = (1..=SEEDS).map(|seed| simulated(seed, rate, flows, queue, 30.0));
            let mut ours = Totals { goodput_bits: 0.0, losses: 0.0 };
            for run in runs {
                ours.goodput_bits += run.goodput_bits / SEEDS as f64;
                ours.losses += run.losses / SEEDS as f64;
            }
            let goodput = ours.goodput_bits / kernel.goodput_bits;
            let what = format!("{} Mb/s, {flows} connections", rate / 1_000_000);
            println!(
                "{what}: goodput {:.3} Mb/s simulated, {:.3} in the kernel ({:+.1} %); {:.2} and {:.2} losses/s",
                ours.goodput_bits / 1e6,
                kernel.goodput_bits / 1e6,
                100.0 * (goodput - 1.0),
                ours.losses,
                kernel.losses
            );
            assert_between(&what, "goodput over the kernel's", goodput, 0.95, 1.05);
        }
    }
}
