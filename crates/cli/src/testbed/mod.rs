//! `headwater testbed`, `headwater bench testbed` and `headwater bench arena`: plans on this machine's kernel.

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod standing;
#[cfg(target_os = "linux")]
mod trials;

use crate::args::{ArenaArgs, BenchTestbedArgs, TestbedArgs};
use crate::exit::{Exit, Failure};

#[cfg(target_os = "linux")]
pub fn run(args: &TestbedArgs) -> Result<Exit, Failure> {
    standing::run(args)
}

#[cfg(target_os = "linux")]
pub fn bench(args: &BenchTestbedArgs) -> Result<Exit, Failure> {
    trials::run(args)
}

#[cfg(target_os = "linux")]
pub fn arena(args: &ArenaArgs) -> Result<Exit, Failure> {
    arena::run(args)
}

#[cfg(not(target_os = "linux"))]
pub fn run(_: &TestbedArgs) -> Result<Exit, Failure> {
    Err(elsewhere())
}

#[cfg(not(target_os = "linux"))]
pub fn bench(_: &BenchTestbedArgs) -> Result<Exit, Failure> {
    Err(elsewhere())
}

#[cfg(not(target_os = "linux"))]
pub fn arena(_: &ArenaArgs) -> Result<Exit, Failure> {
    Err(elsewhere())
}

#[cfg(not(target_os = "linux"))]
fn elsewhere() -> Failure {
    Failure::new(
        Exit::Usage,
        "a testbed is made of Linux's network namespaces: run it on Linux; 'headwater simulate' runs everywhere",
    )
}

/// A bed's error, with the exit code of its kind.
#[cfg(target_os = "linux")]
fn failure(error: headwater_testbed::Error) -> Failure {
    use headwater_testbed::Kind;
    let exit = match error.kind {
        Kind::Plan => Exit::Usage,
        Kind::Missing => Exit::Network,
        Kind::GivenUp => Exit::Interrupted,
        Kind::Failed => Exit::Other,
    };
    Failure::of(exit, error)
}

#[cfg(target_os = "linux")]
impl From<crate::args::RoutingName> for Option<headwater_testbed::Routing> {
    fn from(name: crate::args::RoutingName) -> Self {
        use crate::args::RoutingName;
        use headwater_testbed::Routing;
        match name {
            RoutingName::Auto => None,
            RoutingName::Bridge => Some(Routing::Bridge),
            RoutingName::Frr => Some(Routing::Frr),
            RoutingName::Static => Some(Routing::Static),
        }
    }
}
