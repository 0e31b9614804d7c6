//! Arguments about the receivers of a sender.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use headwater::RosterEnd;

use super::values;

/// Receivers that a sender counts and waits for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Receivers")]
pub struct RosterArgs {
    /// Ask receivers for no reports of their progress
    #[arg(long, conflicts_with_all = ["until", "expect", "receipts", "start_when", "report_rate", "roster_key"])]
    pub no_roster: bool,
    /// Stop once N receivers have everything, or once no receiver is under way and none has reported for 30s
    /// or another time, at least 4s: 40, idle, idle:2m
    #[arg(long, value_name = "N|idle[:TIME]", value_parser = values::until, conflicts_with = "expect")]
    pub until: Option<RosterEnd>,
    /// Stop once the receivers in this file have everything, or have failed: one name or address a line. Exit
    /// code 5 if a receiver lacks something
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub expect: Option<PathBuf>,
    /// Append a line of JSON for each receiver that has everything
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub receipts: Option<PathBuf>,
    /// Begin the content once N receivers have reported, or after 60s or another time: 40, 40:5m
    #[arg(long, value_name = "N[:TIME]", value_parser = values::start_when)]
    pub start_when: Option<(u64, Duration)>,
    /// Reports a second of all receivers together [default: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub report_rate: Option<u32>,
    /// Count reports by holders of a key of this file alone (headwater keygen --group), so that no stranger
    /// can end the session or write a receipt; receivers have the same --roster-key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub roster_key: Option<PathBuf>,
}
