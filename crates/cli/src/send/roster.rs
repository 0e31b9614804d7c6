//! Receivers of a sender: expected receivers, receipts, the table, and the end.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use headwater::{
    ContestedName, MissingReceiver, PeerOptions, RosterEnd, RosterOptions, RosterProgress, RosterSummary,
    SendUpdate,
};
use headwater_proto::delivery::{Digest, hex};
use headwater_proto::eventlog::ReceiverReport;
use headwater_proto::roster::{RosterCounts, RosterRow, RowState};
use headwater_wire::roster::is_name;
use serde::Serialize;

use crate::args::SendArgs;
use crate::args::values::NAME_RULE;
use crate::exit::{Exit, Failure, OrExit, meaning};
use crate::keys;
use crate::screen::{Bar, Screen, count, rate, time};
use crate::system::FileExt;

/// Most missing receivers that a message names.
const MISSING_NAMED_MAX: usize = 40;

/// Returns the options of the roster, with the names of `--expect`.
pub fn options(args: &SendArgs) -> Result<Option<RosterOptions>, Failure> {
    let roster = &args.roster;
    if roster.no_roster {
        return Ok(None);
    }
    let expected = roster.expect.as_deref().map(expected).transpose()?;
    let default = RosterOptions::default();
    Ok(Some(RosterOptions {
        report_rate: roster.report_rate.unwrap_or(default.report_rate),
        until: expected.map(RosterEnd::Expected).or_else(|| roster.until.clone()),
        start_when: roster.start_when,
        records_ends: roster.receipts.is_some(),
        keys: keys::group_key(roster.roster_key.as_deref())?,
        peers: PeerOptions {
            most: args.repair.repair_peers,
            offset: args.repair.repair_offset_time,
            random: args.repair.repair_random_time,
        },
    }))
}

/// Reads the names or addresses of a file, one a line. Empty lines and lines with # are left out. An address
/// is a name, too.
fn expected(path: &Path) -> Result<Vec<String>, Failure> {
    let attempt = || format!("cannot read the expected receivers of '{}'", path.display());
    let text = fs::read_to_string(path).or_exit(Exit::Usage, attempt())?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names: Vec<String> = lines.map(str::to_owned).collect();
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        let name = name.escape_debug();
        return Err(Failure::new(Exit::Usage, format!("{}: '{name}' is no name: {NAME_RULE}", attempt())));
    }
    if names.is_empty() {
        return Err(Failure::new(Exit::Usage, format!("{}: the file names no receiver", attempt())));
    }
    Ok(names)
}

/// Returns the word of a state in events.
pub const fn word(state: RowState) -> &'static str {
    match state {
        RowState::UnderWay => "under-way",
        RowState::Done => "done",
        RowState::Outdated => "outdated",
        RowState::Left(_) => "left",
        RowState::Silent(_) => "silent",
    }
}

/// Returns the event of a report.
pub fn report(row: &RosterRow, state: RowState) -> ReceiverReport<'_> {
    let told = &row.state;
    let share = |ppm: u32| f64::from(ppm) / 1e6;
    ReceiverReport {
        receiver: format!("{:016x}", row.receiver),
        name: row.name.as_deref(),
        address: row.address.to_string(),
        state: word(state),
        result: if let RowState::Left(result) = state { Some(result) } else { None },
        content: format!("{:08x}", told.content),
        done: share(told.done_ppm),
        bytes: told.useful_bytes,
        rate: 1_000 * u64::from(told.rate_kbits),
        fair_rate: Some(1_000 * u64::from(told.fair_kbits)).filter(|rate| *rate > 0),
        lost: share(told.lost_ppm),
        files_whole: told.files_whole,
        files: told.files,
        repair_port: told.repair_port,
    }
}

/// File of receipts.
pub struct Receipts {
    path: PathBuf,
    file: File,
    /// Number of receipts that could not be written.
    missing: usize,
}

/// Receipt of a receiver. Time and rate begin with the first report, and are absent in a receipt of the first
/// report.
#[derive(Serialize)]
struct Receipt<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    address: String,
    id: String,
    digest: String,
    /// Files that the receiver has. A receiver with `--include` or `--exclude` may have fewer than `files`.
    files_whole: u32,
    /// Files of the session; a bundle counts as one.
    files: u32,
    bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u64>,
}

/// Bytes by path.
#[derive(Serialize)]
struct Bytes {
    multicast: u64,
}

impl Receipts {
    /// Opens the file, before the process is confined. Receipts of earlier sessions stay.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let attempt = || format!("cannot write the receipts '{}'", path.display());
        let mut file = File::options().append(true).create(true).open(path).or_exit(Exit::Disk, attempt())?;
        // The last line of a sender that was killed may have no end.
        if has_open_line(path).or_exit(Exit::Disk, attempt())? {
            file.write_all(b"\n").or_exit(Exit::Disk, attempt())?;
        }
        Ok(Self { path: path.to_owned(), file, missing: 0 })
    }

    /// Writes the receipt of a receiver that has everything now.
    pub fn on_update(&mut self, update: &SendUpdate) {
        let SendUpdate::ReceiverReported { update, content: Some(content) } = update else { return };
        if update.state != RowState::Done || !update.has_changed {
            return;
        }
        let line = serde_json::to_vec(&receipt(&update.row, content)).map_err(std::io::Error::from);
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)
        });
        if let Err(error) = written {
            self.missing += 1;
            tracing::error!(
                "cannot write the receipt of {} to '{}': {error}",
                update.row.address,
                self.path.display()
            );
        }
    }

    /// Returns the failure of receipts that could not be written.
    pub fn failure(&self) -> Option<Failure> {
        let receipts = count(self.missing, "receipt");
        (self.missing > 0).then(|| {
            let to = self.path.display();
            let why = format!(
                "{receipts} could not be written to '{to}'; the lines above say why, and name the receivers"
            );
            Failure::new(Exit::Disk, why)
        })
    }
}

/// Returns whether the last line of a regular file lacks its end.
fn has_open_line(path: &Path) -> std::io::Result<bool> {
    let metadata = fs::metadata(path)?;
    let mut last = [b'\n'];
    if metadata.is_file() && metadata.len() > 0 {
        File::open(path)?.read_exact_at(&mut last, metadata.len() - 1)?;
    }
    Ok(last != [b'\n'])
}

fn receipt<'a>(row: &'a RosterRow, content: &Digest) -> Receipt<'a> {
    let millis = row.last.since(row.first).as_nanos() / 1_000_000;
    let bytes = row.state.useful_bytes.saturating_sub(row.first_bytes);
    let rate = u128::from(bytes) * 8_000 / u128::from(millis.max(1));
    Receipt {
        name: row.name.as_deref(),
        address: row.address.to_string(),
        id: format!("{:016x}", row.receiver),
        digest: hex(content),
        files_whole: row.state.files_whole,
        files: row.state.files,
        bytes: Bytes { multicast: row.state.useful_bytes },
        seconds: (millis > 0).then(|| std::time::Duration::from_millis(millis).as_secs_f64()),
        rate: u64::try_from(rate).ok().filter(|_| millis > 0),
    }
}

/// Warns of a name that two receivers claim.
pub fn contested(contested: &ContestedName) {
    let ContestedName { name, first, second } = contested;
    let (first, second) = (first.address.ip(), second.address.ip());
    tracing::warn!(
        "receivers at {first} and at {second} claim the name '{name}': the first counts until it has failed or fallen silent; if both are \
         yours, give one of them another --name"
    );
}

/// Lines of the slowest receivers on a terminal.
#[derive(Default)]
pub struct Table {
    lines: Vec<Bar>,
}

impl Table {
    /// Shows the receivers below the line of the sender.
    pub fn show(&mut self, screen: &Screen, roster: &RosterProgress) {
        if !screen.is_live() {
            return;
        }
        while self.lines.len() < roster.slowest.len() {
            self.lines.push(screen.line(""));
        }
        for line in self.lines.drain(roster.slowest.len()..) {
            line.finish_and_clear();
        }
        for (line, (row, state)) in self.lines.iter_mut().zip(&roster.slowest) {
            let name = row.name.clone();
            line.rename(&name.unwrap_or_else(|| row.address.ip().to_string()));
            let told = &row.state;
            let silent = if let RowState::Silent(lasted) = state {
                Some(format!("silent for {}", time((*lasted).into())))
            } else {
                None
            };
            let mut parts = vec![format!("{:.1} %", f64::from(told.done_ppm) / 1e4)];
            parts.extend(silent);
            parts.push(rate(1_000 * u64::from(told.rate_kbits)));
            parts.push(format!("{:.1} % lost", f64::from(told.lost_ppm) / 1e4));
            line.show(&parts);
        }
    }
}

/// Returns `12 done, 27 under way, 1 silent`; `None` without receivers.
pub fn counted(counts: &RosterCounts) -> Option<String> {
    let RosterCounts { under_way, done, outdated, left, silent, standard_error } = *counts;
    let of = [
        (done, "done"),
        (under_way, "under way"),
        (left, "failed"),
        (silent, "silent"),
        (outdated, "with other content"),
    ];
    let parts: Vec<_> = of
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    let about =
        standard_error.map_or(String::new(), |error| format!(" (by a sample, ± {:.1} %)", 100.0 * error));
    (!parts.is_empty()).then(|| parts.join(", ") + &about)
}

/// Returns the failure of a session that its receivers should have ended, if it ended otherwise or receivers
/// are missing.
pub fn failure(options: Option<&RosterOptions>, summary: Option<&RosterSummary>) -> Option<Failure> {
    let (until, summary) = (options?.until.as_ref()?, summary?);
    let message = match until {
        RosterEnd::Expected(_) if summary.missing.is_empty() => return None,
        RosterEnd::Expected(all) => {
            let missing = &summary.missing;
            let named: Vec<_> = missing.iter().take(MISSING_NAMED_MAX).map(reason).collect();
            let more = missing.len().saturating_sub(MISSING_NAMED_MAX);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            format!(
                "{} of {} lack files: {}{more}",
                missing.len(),
                count(all.len(), "expected receiver"),
                named.join("; ")
            )
        }
        RosterEnd::Done(wanted) if !summary.is_met => {
            format!("{} of {} have everything", summary.counts.done, count(usize_of(*wanted), "receiver"))
        }
        RosterEnd::Done(_) | RosterEnd::Idle(_) => return None,
    };
    Some(Failure::new(Exit::Incomplete, message))
}

/// Returns why a receiver is missing.
fn reason(missing: &MissingReceiver) -> String {
    let MissingReceiver { expected, last } = missing;
    let Some((row, state)) = last else { return format!("{expected} has never reported") };
    let done = format!("{:.1} %", f64::from(row.state.done_ppm) / 1e4);
    match state {
        RowState::Done => format!("{expected} has everything"),
        RowState::Outdated => format!("{expected} has an earlier content of the session"),
        RowState::Left(result) => {
            format!("{expected} ended at {done} with exit code {result} ({})", meaning(*result))
        }
        RowState::Silent(lasted) => {
            format!("{expected} fell silent at {done}, {} ago", time((*lasted).into()))
        }
        RowState::UnderWay => format!("{expected} is at {done}"),
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
