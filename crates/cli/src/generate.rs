//! `headwater generate DIR`: shell completions and man pages, from the one definition of the command line.

use std::fs;

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::{Cli, GenerateArgs};
use crate::exit::{Exit, Failure, OrExit};

pub(crate) fn run(args: &GenerateArgs) -> Result<Exit, Failure> {
    write(&Cli::command(), &args.dir)
}

/// Writes completions for three shells, a man page of the command and of each subcommand into a folder, which
/// is created if missing.
///
/// # Errors
/// If a file cannot be written.
pub fn write(command: &Command, dir: &Path) -> Result<Exit, Failure> {
    let failed = || format!("cannot write completions and man pages to '{}'", dir.display());
    fs::create_dir_all(dir).or_exit(Exit::Disk, failed())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), command.get_name(), dir)
            .or_exit(Exit::Disk, failed())?;
    }
    clap_mangen::generate_to(command.clone(), dir).or_exit(Exit::Disk, failed())?;
    Ok(Exit::Ok)
}
