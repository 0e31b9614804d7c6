//! `headwater-lab testbed` and `headwater-lab arena`: plans on this machine's kernel.

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod standing;
#[cfg(target_os = "linux")]
mod trials;

#[cfg(target_os = "linux")]
use std::path::PathBuf;

use crate::args::{ArenaArgs, ProgramsArgs, TestbedArgs};
use headwater_cli::exit::{Exit, Failure, OrExit};

#[cfg(target_os = "linux")]
pub fn run(args: &TestbedArgs) -> Result<Exit, Failure> {
    standing::run(args)
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
pub fn arena(_: &ArenaArgs) -> Result<Exit, Failure> {
    Err(elsewhere())
}

#[cfg(not(target_os = "linux"))]
fn elsewhere() -> Failure {
    Failure::new(
        Exit::Usage,
        "a testbed is made of Linux's network namespaces: run it on Linux; 'headwater-lab simulate' runs everywhere",
    )
}

/// Path of the command `headwater` that the nodes run.
#[cfg(target_os = "linux")]
fn product(programs: &ProgramsArgs) -> Result<PathBuf, Failure> {
    if let Some(program) = &programs.headwater {
        return Ok(program.clone());
    }
    let this = std::env::current_exe().or_exit(Exit::Other, "cannot find the program that runs")?;
    let program = this.with_file_name("headwater");
    if program.is_file() {
        return Ok(program);
    }
    let message = format!(
        "there is no 'headwater' beside '{}': build it with 'cargo build --release -p headwater-cli', or name one with --headwater",
        this.display()
    );
    Err(Failure::new(Exit::Usage, message))
}

/// Converts a bed's error to a failure with the exit code of the error's kind.
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
