//! `headwater bench netsim`: packet-hops of the simulator per processor second, beside a bare loop.

use std::hint::black_box;
use std::time::Duration as Time;

use headwater_netsim::engine::Run;
use headwater_netsim::speed::{Leaves, bare_dumbbell, bare_star, dumbbell, star};
use headwater_proto::{Duration, Instant};

use super::report::Report;
use super::{take_turns, thread_cpu};
use crate::args::MeasureArgs;
use crate::exit::Failure;

const LEAVES: u32 = 10_000;
/// Packets of a star in one turn, one each 8 ms.
const PACKETS: u64 = 10;
const STAR_TIME: Duration = Duration::from_millis(8 * PACKETS);
/// What a turn of the dumbbell simulates.
const DUMBBELL_TIME: Duration = Duration::from_secs(1);
/// A load is past its start by then.
const BEGUN: Duration = Duration::from_secs(1);
const BARE: &str = "bare loop";

/// Measures each load beside its bare loop.
pub fn run(args: &MeasureArgs, report: &Report) -> Result<(), Failure> {
    report.hops_title("packet-hops per second on one core");
    let bare = || bare_dumbbell(DUMBBELL_TIME);
    measure("17 TCPs over one bottleneck", dumbbell(), DUMBBELL_TIME, &bare, args.time, report);
    for (what, kind) in
        [("star of 10000 leaves", Leaves::Level), ("star of 10000 unequal leaves", Leaves::Staggered)]
    {
        let bare = || bare_star(LEAVES, PACKETS, kind);
        measure(what, star(LEAVES, kind), STAR_TIME, &bare, args.time, report);
    }
    Ok(())
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
    report.hops_row("netsim", &format!("{what}, bare loop"), bare, None);
    report.hops_row("netsim", what, hops / ours_time, Some((BARE, bare)));
}

/// Processor time of this thread, so that others on the machine do not count.
fn cpu_of(work: impl FnOnce()) -> Time {
    let began = thread_cpu();
    work();
    thread_cpu().saturating_sub(began)
}
