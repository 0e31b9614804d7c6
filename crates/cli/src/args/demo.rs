//! Arguments of `headwater demo`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use headwater_proto::{Rate, Size};

use super::{DemoVideoArgs, OutputArgs, ViewArgs, values};

pub const EXAMPLES: &str = "\
Examples:
  headwater demo                     20 MB of made-up content to three receivers
  headwater demo --http              the same in a browser, at three rates: http://127.0.0.1:9720/
  headwater demo --video             live video to three receivers, in a browser
  headwater demo image.iso           a file of yours; the copies are compared with the file, then deleted";

/// `headwater demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// File to send; default: generated content
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Length of the generated content: 64MiB; default: 20MB, with --http 40MB
    #[arg(long, value_name = "BYTES", conflicts_with = "file", value_parser = values::size)]
    pub size: Option<Size>,
    /// Sending rate of UDP payload in bit/s; default: a rate that takes about 6 s. With --http: the highest
    /// rate of a receiver, 16M by default
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub rate: Option<Rate>,
    /// Seed of the generated content and of the dropped packets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Keep the files and print the folder
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub view: ViewArgs,
    #[command(flatten)]
    pub video: DemoVideoArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
