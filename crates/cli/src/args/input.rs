//! Arguments about standard input as the content of a session.

use clap::Args;
use headwater_proto::Size;
use headwater_proto::delivery::RelativePath;

use super::values;

/// Standard input as content.
#[derive(Debug, Args)]
#[command(next_help_heading = "Standard input")]
pub struct InputArgs {
    /// With PATH -: bytes of the input that are kept in --temp-dir for receivers that begin late or are slow;
    /// receivers that begin later miss the beginning [default: 4GiB, at most a quarter of the free space]
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    pub keep: Option<Size>,
    /// With PATH -: name of the content at the receivers
    #[arg(long = "name", value_name = "NAME", value_parser = name, default_value = "stdin")]
    pub input_name: RelativePath,
}

fn name(text: &str) -> Result<RelativePath, String> {
    RelativePath::new(text).map_err(|error| error.to_string())
}
