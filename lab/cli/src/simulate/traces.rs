//! A capture and an event log of a run.

use std::any::Any;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use headwater_netsim::engine::Run;
use headwater_netsim::network::LinkId;
use headwater_netsim::plan::run::Watch;
use headwater_netsim::trace::{EventLog, Observer, Pcap};

use crate::args::SimulateArgs;
use headwater_cli::exit::{Exit, Failure, OrExit};

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
