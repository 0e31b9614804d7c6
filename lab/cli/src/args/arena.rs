//! `headwater-lab arena`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use headwater_cli::OutputArgs;

use super::ProgramsArgs;

pub const EXAMPLES: &str = "\
Examples:
  sudo headwater-lab arena --form short --out arena/           all against all: arena/arena.html";

/// `headwater-lab arena`.
#[derive(Debug, Args)]
pub struct ArenaArgs {
    /// Folder for results and the report; made if there is none. Runs whose results are there are not done
    /// again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// How much: `short` is some minutes for each contender at 4 Mbit/s, `full` takes about a day
    #[arg(long, value_enum, default_value_t = ArenaForm::Short)]
    pub form: ArenaForm,
    /// Only these take part: m2c,tcp,uftp
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Runs of each cell, in place of the form's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub runs: Option<u64>,
    /// Runs at the same time, each on a bed of its own; more than 1 where the machine has time to spare
    #[arg(long, value_name = "N", default_value = "1")]
    pub jobs: NonZeroUsize,
    /// Use this seed
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub programs: ProgramsArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Size of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ArenaForm {
    /// Small files at 4 Mbit/s, once
    Short,
    /// 1, 4 and 40 Mbit/s, 1, 2 and 5 receivers, five times
    Full,
}
