//! Runs and measures a scenario.

mod assemble;
mod deploy;
mod outcome;
mod pgm;
mod rainbow;
mod series;
mod session;

use headwater_proto::{Duration, Instant};

use super::flow::Flow;
use super::{Cell, Plan, PlanError, Scenario};
use crate::engine::Run;
use crate::measure::converged_at;
use crate::measure::variation;
use crate::network::{BuildError, LinkId};
use crate::trace::Observer;

use assemble::Assembly;
use series::{Reading, Recorder};

pub use outcome::{
    Criteria, EndResults, FlowOutcome, LinkOutcome, MEMBERS_MAX, MemberOutcome, Outcome, SessionOutcome,
    Shared, Which, Window, fairness,
};
pub use series::Series;

/// Minimum number of pauses of a run, at each of which the run can be aborted.
const PAUSES_MIN: u64 = 100;

/// Interval between checks for the end of a run, if the end depends on transfers.
const UNTIL_STEP: Duration = Duration::from_secs(1);

/// Reason why a run has no outcome.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The plan is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The network cannot be built; plans are checked so that this does not happen.
    #[error("the network cannot be built: {0}")]
    Build(#[from] BuildError),
    /// The parameters of a session are invalid.
    #[error("flow '{flow}' cannot be set up: {reason}")]
    Flow {
        /// Name of the flow.
        flow: String,
        /// Reason.
        reason: String,
    },
    /// More packets wait and travel than there is room for.
    #[error(
        "more than {} packets wait or travel {after} after the start; give queues smaller limits, or links with long delays \
         lower rates",
        Run::COPIES_MAX
    )]
    Overfull {
        /// Time since the start.
        after: Duration,
    },
    /// The watcher aborted the run.
    #[error("the run was given up before its end")]
    GivenUp,
}

impl RunError {
    fn flow(flow: &Flow, reason: &dyn ToString) -> Self {
        Self::Flow { flow: flow.name.clone(), reason: reason.to_string() }
    }
}

/// Observer of a run in progress.
pub trait Watch {
    /// Observers of all that happens in the run, for traces; `links` are the directions of the links that are
    /// reported.
    fn observers(&mut self, _run: &Run, _links: &[LinkId]) -> Vec<Box<dyn Observer>> {
        Vec::new()
    }

    /// The observers again, when the run has ended.
    fn finish(&mut self, _observers: Vec<Box<dyn Observer>>) {}

    /// Asked now and then: whether to go on.
    fn go_on(&mut self) -> bool {
        true
    }
}

/// No observation.
impl Watch for () {}

impl Plan {
    /// Runs `cell` for the `run`th time, counted from 1. The outcome depends on the plan, the cell, the seed
    /// and the number of the run only.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub fn run(&self, cell: &Cell, run: u64, watch: &mut dyn Watch) -> Result<Outcome, RunError> {
        let scenario = self.scenario(cell, run)?;
        let mut outcome = simulate(&scenario, watch)?;
        outcome.which.key = self.key(cell, run).to_string();
        outcome.which.plan = self.name().into();
        outcome.which.cell = cell.values.clone();
        Ok(outcome)
    }
}

/// Runs a scenario to the end.
///
/// # Errors
///
/// See [`RunError`].
pub fn simulate(scenario: &Scenario, watch: &mut dyn Watch) -> Result<Outcome, RunError> {
    let mut assembly = Assembly::new(scenario)?;
    assembly.run.watch_digest();
    let links: Vec<LinkId> = assembly.links.iter().flat_map(|(_, link)| [*link, link.reverse()]).collect();
    for observer in watch.observers(&assembly.run, &links) {
        assembly.run.observe(observer);
    }
    let measured = measure(scenario, &mut assembly, watch);
    watch.finish(assembly.run.take_observers());
    let Measured { before, after, series, shares } = measured?;
    let convergence = scenario.measure.convergence.as_ref().and_then(|wanted| {
        let rates: Vec<&[f64]> = shares.iter().map(Vec::as_slice).collect();
        let hold = wanted.hold.as_nanos().div_ceil(wanted.bin.as_nanos().max(1));
        let at = converged_at(&rates, wanted.delta, usize::try_from(hold).unwrap_or(usize::MAX));
        at.map(|bin| bin as f64 * wanted.bin.as_secs_f64())
    });
    let mut outcome = outcome::outcome(scenario, &assembly, &before, &after);
    outcome.convergence = convergence;
    if let Some(series) = &series {
        let warm = scenario.warm_up.as_secs_f64();
        for (flow, over_time) in outcome.flows.iter_mut().zip(&series.flows) {
            let bins = over_time.throughput.iter().enumerate();
            let measured = bins.filter(|(bin, _)| *bin as f64 * series.bin >= warm).map(|(_, rate)| *rate);
            flow.variation = variation(&measured.collect::<Vec<_>>());
        }
    }
    outcome.series = series;
    Ok(outcome)
}

struct Measured {
    before: Reading,
    after: Reading,
    series: Option<Series>,
    /// Rates of the flows for which convergence is measured.
    shares: Vec<Vec<f64>>,
}

/// Whether all that the plan waits for is complete, and something has been measured.
fn is_over(scenario: &Scenario, assembly: &Assembly) -> bool {
    let until = &scenario.measure.until;
    !until.is_empty()
        && assembly.run.now() > Instant::ZERO + scenario.warm_up
        && until.iter().all(|flow| assembly.flows[*flow].is_complete(&assembly.run))
}

/// Advances the run from reading to reading. A reading changes nothing in the run.
fn measure(
    scenario: &Scenario,
    assembly: &mut Assembly,
    watch: &mut dyn Watch,
) -> Result<Measured, RunError> {
    let end = Instant::ZERO + scenario.duration;
    let warm = Instant::ZERO + scenario.warm_up;
    let mut series = scenario.measure.bin.map(|bin| Recorder::new(bin, Instant::ZERO));
    let wanted = scenario.measure.convergence.as_ref();
    let mut shares = wanted.map(|wanted| Recorder::new(wanted.bin, Instant::ZERO + wanted.from));
    let pause = Duration::from_nanos((scenario.duration.as_nanos() / PAUSES_MIN).max(1));
    let mut before = None;
    loop {
        let now = assembly.run.now();
        if now >= warm && before.is_none() {
            before = Some(Reading::take(assembly));
        }
        if let Some(recorder) = &mut series {
            recorder.record(now, assembly);
        }
        if let Some(recorder) = &mut shares {
            recorder.record(now, assembly);
        }
        if now >= end || is_over(scenario, assembly) {
            break;
        }
        if !watch.go_on() {
            return Err(RunError::GivenUp);
        }
        let mut next = (now + pause).min(end);
        if !scenario.measure.until.is_empty() {
            next = next.min(now + UNTIL_STEP);
        }
        if before.is_none() {
            next = next.min(warm);
        }
        for recorder in [&series, &shares].into_iter().flatten() {
            next = next.min(recorder.next());
        }
        assembly.run.run_until(next);
        if assembly.run.is_overfull() {
            return Err(RunError::Overfull { after: assembly.run.now().since(Instant::ZERO) });
        }
    }
    let after = Reading::take(assembly);
    let shares = match (shares, wanted) {
        (Some(recorder), Some(wanted)) => recorder.shares(&wanted.flows),
        _ => Vec::new(),
    };
    let series = series.map(|recorder| recorder.finish(scenario, assembly));
    Ok(Measured { before: before.unwrap_or_else(|| Reading::take(assembly)), after, series, shares })
}
