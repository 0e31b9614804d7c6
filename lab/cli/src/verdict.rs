//! `headwater-lab verdict`: runs the checkout's verdict.py on this program.

use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_cli::exit::{Exit, Failure, OrExit};

use crate::args::VerdictArgs;

const SCRIPT: &str = "lab/experiments/verdict.py";

pub fn run(args: &VerdictArgs) -> Result<Exit, Failure> {
    let here = std::env::current_dir().or_exit(Exit::Other, "cannot find the current folder")?;
    let script = script(&here).ok_or_else(|| {
        let message = format!("there is no {SCRIPT} here or above; run this in a checkout of Headwater");
        Failure::new(Exit::Usage, message)
    })?;
    let program = std::env::current_exe().or_exit(Exit::Other, "cannot find the program that runs")?;
    let status = Command::new("python3")
        .arg(script)
        .arg("--lab")
        .arg(program)
        .args(&args.arguments)
        .status()
        .or_exit(Exit::Other, "cannot run python3, which holds results against the published ones")?;
    // A signal reaches both programs, because both belong to the same process group.
    std::process::exit(status.code().unwrap_or(Exit::Interrupted as i32));
}

/// The script of the checkout that a folder is in.
fn script(folder: &Path) -> Option<PathBuf> {
    folder.ancestors().map(|folder| folder.join(SCRIPT)).find(|script| script.is_file())
}
