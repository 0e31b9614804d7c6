//! `headwater-lab simulate`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use headwater_cli::OutputArgs;

use super::{Shard, key, shard};

pub const EXAMPLES: &str = "\
Examples:
  headwater-lab simulate plan.toml                            run a plan and print a table
  headwater-lab simulate plan.toml --jobs 4 --out results/    a line of JSON for each run; the same command resumes
  headwater-lab simulate plan.toml --shard 0/8 --out results/ every eighth run; a last call without --shard merges
  headwater-lab simulate plan.toml --list                     cells, and the keys of their runs
  headwater-lab simulate plan.toml --cell 3f9a --pcap x.pcap  one run again, with a capture of all links";

/// `headwater-lab simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// The plan: an experiment in TOML, as docs/reference/plans.md describes it
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: PathBuf,
    /// Runs at the same time; default: one for each processor
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Do the runs whose number leaves I when divided by N, I from 0
    #[arg(long, value_name = "I/N", value_parser = shard, requires = "out")]
    pub shard: Option<Shard>,
    /// Folder for results; made if there is none. Runs whose results are there are not done again
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "cell")]
    pub out: Option<PathBuf>,
    /// List the cells and the keys of their runs; run nothing
    #[arg(long, conflicts_with_all = ["dry_run", "cell"])]
    pub list: bool,
    /// Check the plan and tell how much there is to do; run nothing
    #[arg(long, conflicts_with = "cell")]
    pub dry_run: bool,
    /// Do only the run of this key, or of the only key that begins so
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub cell: Option<String>,
    /// Use this seed instead of the plan's
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    #[command(flatten)]
    pub output: OutputArgs,
}
