//! Runs on threads, a run per thread: a run itself is sequential.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use headwater_netsim::plan::Plan;
use headwater_netsim::plan::run::{RunError, Watch};

use headwater_cli::exit::Failure;
use headwater_cli::shutdown::Shutdown;

/// A run to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Index of the cell.
    pub cell: usize,
    /// Number of the run, from 1.
    pub run: u64,
    /// Key of the run.
    pub key: String,
}

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Results as a line of JSON.
    Result(String),
    /// The run failed.
    Failed(String),
}

/// Function that executes a run; `None` if a signal aborted the run.
pub type Doing<'a> = dyn Fn(&Job, &Shutdown) -> Option<Done> + Sync + 'a;

/// Executes `pending` by `doing`, `jobs` at a time, and passes each result with its index to `take`, in order
/// of completion. Stops at the first signal, or when `take` fails, and then aborts runs in progress.
pub fn run(
    doing: &Doing<'_>,
    pending: &[&Job],
    jobs: Option<NonZeroUsize>,
    shutdown: &Shutdown,
    take: &mut dyn FnMut(usize, Done) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let jobs = jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::sync_channel(jobs);
    thread::scope(|scope| {
        for _ in 0..jobs.min(pending.len()) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while !shutdown.is_asked() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = pending.get(index) else { return };
                    let Some(done) = doing(job, shutdown) else { return };
                    if send.send((index, done)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        // On an error, dropping the receiver ends the workers at their next result.
        receive.into_iter().try_for_each(|(index, done)| take(index, done))
    })
}

/// A run in the simulator, until a signal comes.
pub fn simulate(plan: &Plan, job: &Job, shutdown: &Shutdown) -> Option<Done> {
    do_job(plan, job, &mut UntilAsked(shutdown))
}

/// Executes a run; `None` if the run was aborted.
pub fn do_job(plan: &Plan, job: &Job, watch: &mut dyn Watch) -> Option<Done> {
    let cell = plan.cell(job.cell);
    let run = catch_unwind(AssertUnwindSafe(|| plan.run(&cell, job.run, watch)));
    match run {
        Ok(Ok(outcome)) => Some(match serde_json::to_string(&outcome) {
            Ok(line) => Done::Result(line),
            Err(error) => Done::Failed(format!("its results cannot be written: {error}")),
        }),
        Ok(Err(RunError::GivenUp)) => None,
        Ok(Err(error)) => Some(Done::Failed(error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Some(Done::Failed(format!("the simulator panicked, which is a fault of ours: {text}")))
        }
    }
}

/// Goes on until a signal comes.
struct UntilAsked<'a>(&'a Shutdown);

impl Watch for UntilAsked<'_> {
    fn go_on(&mut self) -> bool {
        !self.0.is_asked()
    }
}
