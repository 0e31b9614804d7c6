//! Arguments of `headwater get`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueHint};
use headwater_proto::Rate;

use super::{
    AppliedMetadataArgs, ConfineArgs, FollowArgs, OutputArgs, SelectArgs, TrustArgs, ViewArgs, values,
};

pub const EXAMPLES: &str = "\
Examples:
  headwater get http://192.0.2.1:7280/ --out incoming/          the server of `headwater send --http`
  headwater get https://example.org/pub/session.sdp --out in/   a description on any server
  headwater get 'http://192.0.2.1:7280/#key=AAAAC3Nz...' --out in/   from the holder of this key alone";

/// `headwater get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// URL of a session's description (SDP), or of a folder with session.sdp; #key=KEY behind the URL is
    /// --trust
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub url: String,
    /// Folder for the files; created if missing. A file of the same name is replaced
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub metadata: AppliedMetadataArgs,
    /// Network interface for multicast, by name or address; default: the interface of the route to the group
    #[arg(long, value_name = "IF", value_parser = NonEmptyStringValueParser::new())]
    pub interface: Option<String>,
    /// Stop if no needed data comes by any path for this time; `headwater receive` waits without end by
    /// default
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "60s")]
    pub timeout: Duration,
    /// Maximum rate to receive by multicast, in bit/s; default: the fair rate of the path
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<Rate>,
    /// Send no reports: a sender without --demand off sends little, and no sender counts this receiver
    #[arg(long)]
    pub no_reports: bool,
    #[command(flatten)]
    pub follow: FollowArgs,
    #[command(flatten)]
    pub view: ViewArgs,
    #[command(flatten)]
    pub keys: TrustArgs,
    #[command(flatten)]
    pub confine: ConfineArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}
