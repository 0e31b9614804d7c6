//! `headwater bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueHint};
use headwater_proto::Size;

use super::values;

pub const EXAMPLES: &str = "\
Examples:
  headwater bench net                   a sender and a receiver over loopback, beside bare loops of system calls
  headwater bench disk --dir incoming   a receiver's writes, beside a plain sequential write to the same folder
  headwater bench fec --json            erasure codes, beside BLAKE3 in the same run";

/// `headwater bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Part to measure
    #[command(subcommand)]
    pub part: BenchPart,
}

/// Part of Headwater to measure.
#[derive(Debug, Subcommand)]
pub enum BenchPart {
    /// Sender and receiver on one interface, beside bare loops of sendmmsg, recvmmsg, UDP_SEGMENT and UDP_GRO
    Net(MeasureArgs),
    /// Encoding, repair symbols and decoding, beside BLAKE3
    Fec(MeasureArgs),
    /// A receiver's writes, beside a plain sequential write
    Disk(MeasureArgs),
}

/// Options of a measurement.
#[derive(Debug, Args)]
pub struct MeasureArgs {
    /// Print one JSON object per row
    #[arg(long)]
    pub json: bool,
    /// Time for each row, all rounds together: 500ms, 3s
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = values::duration)]
    pub time: Duration,
    /// Length of the content of `net` and `disk`: 64MB, 1GiB
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = values::size)]
    pub size: Size,
    /// Network interface of `net`, by name or address
    #[arg(long, value_name = "IF", default_value = "lo", value_parser = NonEmptyStringValueParser::new())]
    pub interface: String,
    /// Folder to write in; default: /dev/shm (memory) for `net`, the current folder for `disk`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Send the datagrams of `net` one by one, not in runs that the kernel segments
    #[arg(long)]
    pub no_offload: bool,
}
