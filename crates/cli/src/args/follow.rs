//! Arguments about following a sender from session to session.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Following a sender.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Following a sender")]
pub struct FollowArgs {
    /// After a session, wait for the sender's next session, and receive new files, until interrupted. Files
    /// that are there with the same content stay
    #[arg(long)]
    pub follow: bool,
    /// With --follow: delete files that an earlier session brought into the folder and the present session
    /// lacks, and folders that become empty; never other files
    #[arg(long, requires = "follow")]
    pub delete: bool,
    /// Run this program for each file that was received and verified, in turn, with the path of the file as
    /// the argument; no shell
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::CommandName)]
    pub exec: Option<PathBuf>,
}

/// `headwater run-for-files`: the process that starts the program of `--exec`, outside of the confinement.
#[derive(Debug, Args)]
pub struct RunForFilesArgs {
    /// Program to run
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// User to become
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
}

/// `headwater run-tied`, which `stream send` starts.
#[derive(Debug, Args)]
pub struct RunTiedArgs {
    /// User to become
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Program to run
    #[arg(value_name = "PROGRAM")]
    pub program: PathBuf,
    /// Arguments of the program
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}
