//! `headwater-lab bench netsim`: packet-hops of the simulator per processor second, beside a bare loop.

use std::hint::black_box;
use std::time::Duration as Time;

use headwater_cli::bench::{take_turns, thread_cpu};
use headwater_cli::exit::Exit;
use headwater_netsim::engine::Run;
use headwater_netsim::speed::{Leaves, bare_dumbbell, bare_star, dumbbell, star};
use headwater_proto::{Duration, Instant};
use serde::Serialize;

use crate::args::NetsimArgs;

const LEAVES: u32 = 10_000;
/// Packets of a star in a step; a packet leaves every 8 ms.
const PACKETS: u64 = 10;
const STAR_TIME: Duration = Duration::from_millis(8 * PACKETS);
/// Simulated time of a step of the dumbbell.
const DUMBBELL_TIME: Duration = Duration::from_secs(1);
/// Simulated time after which a load is past its start.
const BEGUN: Duration = Duration::from_secs(1);
const BARE: &str = "bare loop";

/// Measures each load and its bare loop.
pub fn run(args: &NetsimArgs) -> Exit {
    let report = &Report { json: args.json };
    report.title("packet-hops per second on one core");
    let bare = || bare_dumbbell(DUMBBELL_TIME);
    measure("17 TCPs over one bottleneck", dumbbell(), DUMBBELL_TIME, &bare, args.time, report);
    for (what, kind) in
        [("star of 10000 leaves", Leaves::Level), ("star of 10000 unequal leaves", Leaves::Staggered)]
    {
        let bare = || bare_star(LEAVES, PACKETS, kind);
        measure(what, star(LEAVES, kind), STAR_TIME, &bare, args.time, report);
    }
    Exit::Ok
}

fn measure(what: &str, mut run: Run, step: Duration, bare: &dyn Fn() -> u64, time: Time, report: &Report) {
    run.run_until(Instant::ZERO + BEGUN);
    let before = run.usage().packet_hops;
    let (mut steps, mut bare_hops) = (0, 0);
    let [ours_time, bare_time] = take_turns(
        time,
        [
            &mut || {
                steps += 1;
                cpu_of(|| run.run_until(run.now() + step))
            },
            &mut || cpu_of(|| bare_hops = black_box(bare())),
        ],
    );
    let hops = (run.usage().packet_hops - before) as f64 / f64::from(steps);
    let bare = bare_hops as f64 / bare_time;
    report.row("netsim", &format!("{what}, bare loop"), bare, None);
    report.row("netsim", what, hops / ours_time, Some((BARE, bare)));
}

/// Processor time of this thread, so that other processes on the machine do not count.
fn cpu_of(work: impl FnOnce()) -> Time {
    let began = thread_cpu();
    work();
    thread_cpu().saturating_sub(began)
}

/// Prints rows of packet-hops, which are packets that crossed a link.
struct Report {
    json: bool,
}

impl Report {
    /// Prints a title and column heads, unless the output is JSON.
    fn title(&self, title: &str) {
        if !self.json {
            println!("{title}\n");
            println!("{:<46}{:>12}  {:>5}", "", "hops/s", "ratio");
        }
    }

    /// Prints a row; `bare` is the name and speed of the reference loop.
    fn row(&self, bench: &str, what: &str, hops_per_s: f64, bare: Option<(&str, f64)>) {
        #[derive(Serialize)]
        struct Row<'a> {
            bench: &'a str,
            what: &'a str,
            hops_per_s: f64,
            #[serde(skip_serializing_if = "Option::is_none")]
            bare: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            ratio: Option<f64>,
        }
        let ratio = bare.map(|(_, bare)| hops_per_s / bare);
        let bare = bare.map(|(name, _)| name);
        if self.json {
            let row = Row { bench, what, hops_per_s, bare, ratio };
            println!("{}", serde_json::to_string(&row).expect("numbers and strings"));
            return;
        }
        let ratio = ratio.zip(bare).map(|(ratio, bare)| format!("{ratio:5.2} of {bare}"));
        println!("{what:<46}{hops_per_s:>12.0}  {}", ratio.unwrap_or_default());
    }
}
