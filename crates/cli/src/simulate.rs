//! `headwater simulate`: passes the arguments to `headwater-lab`, which is installed beside this program or
//! in PATH.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::SimulateArgs;
use crate::exit::{Exit, Failure, OrExit};

const LAB: &str = "headwater-lab";

/// Runs `headwater-lab simulate` and exits with the same code.
pub fn run(args: &SimulateArgs) -> Result<Exit, Failure> {
    let mut command = Command::new(lab());
    command.arg("simulate").args(&args.arguments);
    let tried = format!("cannot run '{LAB}', which simulates");
    let status = match command.status() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::new(Exit::Usage, missing()));
        }
        status => status.or_exit(Exit::Other, tried)?,
    };
    // A signal reaches both programs of the process group. A killed child counts as an interruption.
    std::process::exit(status.code().unwrap_or(Exit::Interrupted as i32));
}

/// Returns the path of `headwater-lab` beside this program, or the bare name for a search in PATH.
fn lab() -> PathBuf {
    let name = format!("{LAB}{}", std::env::consts::EXE_SUFFIX);
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(&name));
    beside.filter(|path| path.exists()).unwrap_or_else(|| Path::new(&name).to_owned())
}

fn missing() -> String {
    format!(
        "the simulator is in '{LAB}', which is neither beside this program nor in PATH; \
         build it in a checkout of Headwater with 'cargo build --release -p {LAB}'"
    )
}
