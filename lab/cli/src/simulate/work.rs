//! Runs on threads, a run per thread: a run itself is sequential.

use std::any::Any;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::{fs, thread};

use headwater_cli::exit::{Exit, Failure, OrExit};
use headwater_cli::shutdown::Shutdown;
use headwater_netsim::engine::Run;
use headwater_netsim::network::LinkId;
use headwater_netsim::plan::Plan;
use headwater_netsim::plan::run::{RunError, Watch};
use headwater_netsim::trace::{EventLog, Observer, Pcap};

use crate::args::SimulateArgs;

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

type Out = BufWriter<File>;

/// Files that a run is written down in.
pub struct Traces {
    pcap: Option<(PathBuf, Option<Out>)>,
    events: Option<(PathBuf, Option<Out>)>,
    title: String,
    /// The first write that failed.
    failed: Option<Failure>,
}

impl Traces {
    /// Opens the files that the options request.
    pub fn open(args: &SimulateArgs, title: &str) -> Result<Self, Failure> {
        let create = |path: &Option<PathBuf>, what: &str| match path {
            None => Ok(None),
            Some(path) => {
                refuse_plan(path, &args.plan)?;
                let file = File::create(path)
                    .or_exit(Exit::Disk, format!("cannot write the {what} '{}'", path.display()))?;
                Ok(Some((path.clone(), Some(BufWriter::new(file)))))
            }
        };
        let (pcap, events) =
            (create(&args.output.pcap, "capture")?, create(&args.output.events, "event log")?);
        Ok(Self { pcap, events, title: title.into(), failed: None })
    }

    /// Whether all was written.
    pub fn result(self) -> Result<(), Failure> {
        self.failed.map_or(Ok(()), Err)
    }

    fn close(&mut self, observer: Box<dyn Any>) -> anyhow::Result<()> {
        match observer.downcast::<Pcap<Out>>() {
            Ok(pcap) => pcap.finish()?.flush()?,
            Err(other) => {
                if let Ok(log) = other.downcast::<EventLog<Out>>() {
                    log.finish()?.flush()?;
                }
            }
        }
        Ok(())
    }
}

impl Watch for Traces {
    fn observers(&mut self, run: &Run, links: &[LinkId]) -> Vec<Box<dyn Observer>> {
        let mut observers: Vec<Box<dyn Observer>> = Vec::new();
        if let Some(out) = self.pcap.as_mut().and_then(|(_, out)| out.take()) {
            observers.push(Box::new(Pcap::new(run, links.to_vec(), out)));
        }
        if let Some(out) = self.events.as_mut().and_then(|(_, out)| out.take()) {
            observers.push(Box::new(EventLog::new(run, &self.title, out)));
        }
        observers
    }

    fn finish(&mut self, observers: Vec<Box<dyn Observer>>) {
        for observer in observers {
            if let Err(error) = self.close(observer) {
                let paths = [&self.pcap, &self.events].into_iter().flatten();
                let paths: Vec<String> = paths.map(|(path, _)| format!("'{}'", path.display())).collect();
                let tried = format!("cannot write {}", paths.join(" and "));
                self.failed.get_or_insert(Failure { exit: Exit::Disk, error: error.context(tried) });
            }
        }
    }
}

/// A trace must not overwrite the plan.
fn refuse_plan(path: &Path, plan: &Path) -> Result<(), Failure> {
    let is_plan =
        fs::canonicalize(path).is_ok_and(|path| fs::canonicalize(plan).is_ok_and(|plan| path == plan));
    if is_plan {
        return Err(Failure::new(
            Exit::Usage,
            format!("'{}' is the plan; choose another file", path.display()),
        ));
    }
    Ok(())
}
