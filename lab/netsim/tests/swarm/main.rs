//! The swarm: many seeds, each a small network of its own with losses, reordering, duplication, partitions,
//! pauses and clock steps, over every protocol of the workspace. Whatever happened, once the faults stop:
//!
//! * every receiver that stays ends with the sender's content (their digests are the sender's);
//! * whoever has data to send is not silent;
//! * what is under way is bounded by what queues and wires can hold;
//! * and the same seed gives the same trace.
//!
//! `SWARM_SEEDS=1000` runs more, `SWARM_FIRST=17` begins elsewhere. What fails prints its plan, which
//! `headwater-lab simulate` runs as it is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod weather;

use headwater_netsim::plan::Plan;
use headwater_netsim::plan::run::Outcome;

const SEEDS: u64 = 16;

/// What a direction of a link can hold: 60 kB of acknowledgements wait, and 4 Mbit/s of them are under way
/// for 40 ms and 30 ms more when they are reordered.
const UNDER_WAY_PER_DIRECTION: usize = 60_000 / 40 + 4_000_000 / 8 * 70 / 1_000 / 40;

#[test]
#[expect(clippy::disallowed_methods, reason = "a person chooses how many seeds, by the environment")]
fn all_is_well_after_the_faults() {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', which is no number")),
        Err(_) => default,
    };
    let first = number("SWARM_FIRST", 1);
    for seed in first..first + number("SWARM_SEEDS", SEEDS) {
        let text = weather::plan(seed);
        let blame = |what: &str| -> ! {
            panic!(
                "seed {seed}: {what}\nagain: SWARM_FIRST={seed} SWARM_SEEDS=1 cargo test -p headwater-netsim --test \
                 swarm\nor save this as swarm.toml and run 'headwater-lab simulate swarm.toml':\n{text}"
            )
        };
        let plan = Plan::parse("swarm.toml", &text).unwrap_or_else(|error| blame(&error.to_string()));
        let outcome = plan.run(&plan.cell(0), 1, &mut ()).unwrap_or_else(|error| blame(&error.to_string()));
        if let Err(what) = check(&outcome) {
            blame(&what);
        }
        if seed == first && plan.run(&plan.cell(0), 1, &mut ()).unwrap().trace != outcome.trace {
            blame("the second run of it was another one");
        }
    }
}

fn check(outcome: &Outcome) -> Result<(), String> {
    if outcome.packets_peak > UNDER_WAY_PER_DIRECTION * outcome.links.len() {
        return Err(format!("{} packets were under way at once", outcome.packets_peak));
    }
    let series = outcome.series.as_ref().ok_or("the plan has no series")?;
    for (flow, over_time) in outcome.flows.iter().zip(&series.flows) {
        if let Some(session) = flow.session.filter(|_| flow.kind == "fixed") {
            if session.complete != Some(session.receivers) {
                return Err(format!("'{}' is not whole everywhere: {session:?}", flow.name));
            }
        } else if over_time.goodput.last().is_none_or(|goodput| *goodput <= 0.0) {
            return Err(format!("'{}' is silent at the end: {:?}", flow.name, over_time.goodput));
        }
    }
    Ok(())
}
