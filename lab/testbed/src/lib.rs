//! Plans on a single Linux machine: the experiments of `headwater-lab simulate`, run by this machine's
//! kernel.
//!
//! A [`Bed`] is the topology of a plan as network namespaces joined by veth pairs: token buckets in front of
//! queues counted in packets, multicast by bridges that snoop IGMP or MLD, or by FRR's PIM-SSM routers, and,
//! where a link delays, loses or marks, a wire in user space that runs the simulator's own link. [`run`]
//! executes a run of a plan on a bed of its own: Headwater's sessions as processes, the kernel's TCP, other
//! file tools.
//! Results have the form of the simulator's, so that the same program judges both.
//!
//! All resources carry the bed's name, and each bed has a folder below [`ROOT`]. The remains of a killed run
//! are recognised by the lock and removed by the next run ([`remove_abandoned`]).
//!
//! | module | content |
//! |---|---|
//! | `shape` | a plan's topology as hosts, routers, cables and addresses; no system calls |
//! | `bed`, `network`, `routing` | the namespaces, their links, multicast forwarding |
//! | `wire` | links that delay, lose and mark |
//! | `traffic` | sessions, the kernel's TCP, other tools |
//! | `trial`, `results` | a run and its results |

#![cfg(target_os = "linux")]

mod bed;
mod network;
mod program;
mod results;
mod routing;
mod shape;
mod sys;
mod traffic;
mod trial;
mod wire;

pub use bed::{Bed, ROOT, Standing, remove_abandoned, require_root, standing};
pub use results::{BedReport, LinkOutcome, Outcome, ProgramReport};
pub use routing::{GroupProtocol, Routing};
pub use shape::Shape;
pub use trial::{Setting, check, run};
pub use wire::{LATENESS_MAX, Lateness, LatenessReport};

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The machine lacks something: rights, a program, a part of the kernel.
    Missing,
    /// The plan asks for a feature that the testbed lacks.
    Plan,
    /// The run was aborted on request.
    GivenUp,
    /// Anything else: a command or a program failed.
    Failed,
}

/// Reason why a bed or a result is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Kind of the error.
    pub kind: Kind,
    /// The attempted action, the problem, and the remedy.
    pub message: String,
}

impl Error {
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self { kind: Kind::Missing, message: message.into() }
    }

    pub(crate) fn plan(message: impl Into<String>) -> Self {
        Self { kind: Kind::Plan, message: message.into() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, message: message.into() }
    }
}

/// Adds the attempted action to an error.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T, E: std::fmt::Display> Tried<T> for Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|error| Error::failed(format!("cannot {}: {error}", what())))
    }
}
