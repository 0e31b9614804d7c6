//! `headwater generate DIR`: shell completions and man pages, from the one definition of the command line.

use std::fs;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, GenerateArgs};
use crate::exit::{Exit, Failure, OrExit};

const NAME: &str = "headwater";

/// Writes `headwater.bash`, `_headwater`, `headwater.fish`, `headwater.1` and a page per subcommand.
pub fn run(args: &GenerateArgs) -> Result<Exit, Failure> {
    let dir = args.dir.as_path();
    let failed = || format!("cannot write completions and man pages to '{}'", dir.display());
    fs::create_dir_all(dir).or_exit(Exit::Disk, failed())?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), NAME, dir).or_exit(Exit::Disk, failed())?;
    }
    clap_mangen::generate_to(Cli::command(), dir).or_exit(Exit::Disk, failed())?;
    Ok(Exit::Ok)
}
