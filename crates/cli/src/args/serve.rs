//! Arguments of `headwater serve`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::ViewArgs;

pub const EXAMPLES: &str = "\
Examples:
  headwater serve --config /etc/headwater/serve.toml            until SIGTERM; SIGHUP reads the file again
  headwater serve --config /etc/headwater/serve.toml --check    show the commands that would run

A configuration, with the options of the commands as keys:
  http = \"127.0.0.1:9720\"            # live page of all services, as --http

  [[carousel]]                       # headwater send, again after each change of the folder
  name = \"images\"
  path = \"/srv/images\"
  group = \"239.255.72.87:7287\"
  max-rate = \"200M\"
  hours = \"22:00-06:00\"              # local time; default: always
  settle = \"2s\"                      # time without a change before the next session

  [[receive]]                        # headwater receive --follow
  name = \"models\"
  out = \"/srv/models\"
  group = \"239.255.72.90:7287\"
  exec = \"/usr/local/bin/on-file\"

  [[get]]                            # headwater get URL --follow
  name = \"weather\"
  url = \"http://192.0.2.1:7280/\"
  out = \"/srv/weather\"
  delete = true";

/// `headwater serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration: carousels over folders, and receivers that follow senders
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    #[command(flatten)]
    pub view: ViewArgs,
    /// Check the configuration and show the commands; run nothing
    #[arg(long)]
    pub check: bool,
}
