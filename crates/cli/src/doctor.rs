//! `headwater doctor`: a checklist of reasons why multicast does not start.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;

use headwater::doctor::{
    Answerer, Check, DoctorOptions, EcnPath, ProbeArrival, ReceivedProbe, Report, Verdict, examine,
};
use headwater::net::OpenError;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure, OrExit};
use crate::screen::{count, rate};
use crate::shutdown::Shutdown;

/// Assumed width of the terminal.
const COLUMNS: usize = 110;
/// Column of the text of a check, and of advice.
const INDENT: usize = 24;
const ADVICE_INDENT: usize = INDENT + 2;
/// Bytes read at the end of an event log: hundreds of records.
const LOG_BYTES: u64 = 256 * 1024;

/// Checks the network, or answers the probes of other machines.
pub fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let group = args.network.group.ip();
    let source = args.source.as_ref().map(|source| source.for_option("--source", group)).transpose()?;
    let options = DoctorOptions {
        interface: args.network.interface.clone(),
        source,
        ttl: args.ttl,
        wait: args.wait,
        ..DoctorOptions::new(args.network.group)
    };
    if args.answer { answer(args, &options) } else { look(args, &options) }
}

fn look(args: &DoctorArgs, options: &DoctorOptions) -> Result<Exit, Failure> {
    if !args.json && io::stderr().is_terminal() {
        let seconds = args.wait.as_secs_f64();
        eprintln!("looking at {}, listening for {seconds:.1} s of it", args.network.group);
    }
    let mut written = Ok(());
    let mut show = |check: &Check| {
        if written.is_ok() {
            written = if args.json { print_json(&check_json(check)) } else { print_check(check) };
        }
    };
    let log = args.events.as_deref().map(end_of_log).transpose()?;
    let mut report = examine(options, &mut show).or_exit(Exit::Usage, "cannot check the group")?;
    if let Some(log) = log {
        let check = transfer(&log);
        show(&check);
        report.checks.push(check);
    }
    let summed_up = written
        .and_then(|()| if args.json { print_json(&summary_json(&report)) } else { print_summary(&report) });
    said(summed_up)?;
    Ok(if report.verdict() == Verdict::Problem { Exit::Network } else { Exit::Ok })
}

fn answer(args: &DoctorArgs, options: &DoctorOptions) -> Result<Exit, Failure> {
    let group = args.network.group;
    let tried = || format!("cannot answer on {group}");
    let mut answerer = Answerer::open(options).map_err(|error: OpenError| {
        Failure::of(Exit::Network, anyhow::Error::from(error).context(tried()))
    })?;
    let shutdown = Shutdown::install(None)?;
    shutdown.watch(answerer.stop_handle());
    let interface = answerer.interface().name.clone();
    let mut written = if args.json {
        print_json(&json!({"event": "answering", "group": group.to_string(), "interface": interface}))
    } else {
        print_line(&format!("answering probes of {group} on {interface}, until interrupted"))
    };
    // Each asking machine is reported once: all probes of a run carry the same number.
    let mut last = None;
    let result = answerer.run(&mut |asked| {
        if written.is_ok() && (args.json || last != Some((asked.by, asked.request.nonce))) {
            last = Some((asked.by, asked.request.nonce));
            written = if args.json { print_json(&asked_json(asked)) } else { print_line(&asked_line(asked)) };
        }
    });
    said(written)?;
    result.or_exit(Exit::Network, tried())?;
    Ok(Exit::Interrupted)
}

/// Reads the end of an event log, with the last records at least.
fn end_of_log(path: &Path) -> Result<String, Failure> {
    let read = || {
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_BYTES)))?;
        let mut end = Vec::new();
        file.take(LOG_BYTES).read_to_end(&mut end)?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    };
    read().map_err(|error: io::Error| {
        let tried = format!("cannot read the event log '{}'", path.display());
        Failure::of(Exit::Disk, anyhow::Error::from(error).context(tried))
    })
}

/// Judges the last progress in an event log, of either form.
fn transfer(log: &str) -> Check {
    let progress = |line: &str| {
        let mut record: Value = serde_json::from_str(line.trim_start_matches('\u{1e}')).ok()?;
        let data = if record["data"].is_object() { record["data"].take() } else { record };
        let why = data["path"]["why"].as_str()?;
        Some(format!("{}: {why}", rate(data["rate"].as_u64()?)))
    };
    let found = log.lines().rev().find_map(progress);
    let verdict = if found.is_some() { Verdict::Ok } else { Verdict::Unknown };
    let advice = "name the log of a receiver whose control estimates its path: receive --events, m2c";
    Check {
        name: "transfer",
        verdict,
        advice: found.is_none().then(|| advice.to_owned()),
        seen: found.unwrap_or_else(|| "the end of the event log has no estimate of a path".to_owned()),
        sessions: Vec::new(),
        peers: Vec::new(),
    }
}

/// Prints a line. A reader that has closed standard output is no failure.
fn said(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).or_exit(Exit::Other, "cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn print_json(value: &Value) -> io::Result<()> {
    print_line(&value.to_string())
}

fn print_check(check: &Check) -> io::Result<()> {
    let verdict = match check.verdict {
        Verdict::Unknown => "?",
        Verdict::Problem => "PROBLEM",
        other => other.name(),
    };
    print_line(&format!("{verdict:>8}  {:<13} {}", check.name, wrapped(&check.seen, INDENT)))?;
    check
        .advice
        .as_deref()
        .map_or(Ok(()), |advice| print_line(&format!("{:INDENT$}> {}", "", wrapped(advice, ADVICE_INDENT))))
}

/// Breaks a long text between words, indented.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && indent + width + 1 + length > COLUMNS {
            lines.push_str(&format!("\n{:indent$}", ""));
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}

fn print_summary(report: &Report) -> io::Result<()> {
    let number = |verdict| report.count(verdict);
    let counted = |verdict, thing| match number(verdict) {
        0 => None,
        some => Some(count(some, thing)),
    };
    let found = [counted(Verdict::Problem, "problem"), counted(Verdict::Warning, "warning")];
    let found = found.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let unknown = number(Verdict::Unknown);
    let unseen =
        if unknown == 0 { String::new() } else { format!("; {unknown} could not be determined (?)") };
    print_line("")?;
    print_line(&match report.verdict() {
        Verdict::Problem if number(Verdict::Problem) == 1 => {
            format!("{found}{unseen}. Multicast does not start before the problem is solved.")
        }
        Verdict::Problem => format!("{found}{unseen}. Start with the first problem."),
        Verdict::Warning => format!("{found}{unseen}. Nothing here keeps multicast from starting."),
        Verdict::Unknown => {
            format!("No problem found{unseen}. Nothing here keeps multicast from starting.")
        }
        Verdict::Ok => "All well. Nothing here keeps multicast from starting.".to_owned(),
    })
}

fn check_json(check: &Check) -> Value {
    let mut value = json!({
        "check": check.name.to_lowercase().replace(' ', "-"),
        "verdict": check.verdict.name(),
        "seen": check.seen,
        "advice": check.advice,
    });
    if !check.sessions.is_empty() {
        value["sessions"] = check
            .sessions
            .iter()
            .map(|session| {
                json!({
                    "source": session.source.to_string(), "tsi": session.tsi, "packets": session.packets,
                    "bytes": session.bytes, "rate": session.rate_bits,
                })
            })
            .collect();
    }
    if !check.peers.is_empty() {
        value["peers"] = check
            .peers
            .iter()
            .map(|peer| {
                json!({
                    "address": peer.address.to_string(), "here": peer.is_here, "probes": peer.probes,
                    "answers": peer.answers, "routers": peer.routers, "dscp": peer.dscp,
                    "ecn": ecn_path(peer.ecn_path()),
                })
            })
            .collect();
    }
    value
}

fn summary_json(report: &Report) -> Value {
    json!({"summary": {
        "verdict": report.verdict().name(),
        "checks": report.checks.len(),
        "problems": report.count(Verdict::Problem),
        "warnings": report.count(Verdict::Warning),
        "unknown": report.count(Verdict::Unknown),
    }})
}

fn asked_json(asked: &ReceivedProbe) -> Value {
    json!({
        "event": "asked",
        "by": asked.by.to_string(),
        "probe": asked.request.sequence,
        "answered": asked.is_answered,
        "sent": {"ttl": asked.request.ttl, "traffic_class": asked.request.traffic_class},
        "seen": {"ttl": asked.seen.ttl, "traffic_class": asked.seen.traffic_class},
    })
}

fn asked_line(asked: &ReceivedProbe) -> String {
    let ReceivedProbe { by, request, seen: ProbeArrival { ttl, .. }, is_answered } = asked;
    let arrived = ttl.map_or_else(String::new, |ttl| format!(" and arrived with {ttl}"));
    let answered = if *is_answered { "answered" } else { "not answered" };
    format!("asked by {}: sent with TTL {}{arrived}; {answered}", by.ip(), request.ttl)
}

const fn ecn_path(path: EcnPath) -> &'static str {
    match path {
        EcnPath::Kept => "kept",
        EcnPath::Untold => "untold",
        EcnPath::Bleached => "bleached",
        EcnPath::Dropped => "dropped",
        EcnPath::Marked => "marked",
        EcnPath::Mangled => "mangled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_estimate_in_a_log_says_why_a_transfer_is_as_fast_as_it_is() {
        let line = |rate: u64, why: &str| json!({"event": "p", "rate": rate, "path": {"why": why}});
        let record = json!({"name": "p", "data": line(9_600_000, "alone on a path of 9.94 Mbit/s")});
        let log = format!("cut off\n\u{1e}{}\n\u{1e}{record}\n{{\"rate\":5}}\n", line(1, "old"));
        let check = transfer(&log);
        assert_eq!(check.seen, "9.6 Mbit/s: alone on a path of 9.94 Mbit/s");
        assert_eq!((check.verdict, check.advice), (Verdict::Ok, None));
        assert_eq!(transfer(&line(1_000_000, "x").to_string()).seen, "1 Mbit/s: x");
        assert_eq!(transfer("").verdict, Verdict::Unknown);
    }

    #[test]
    fn long_texts_break_between_words() {
        let text = "word ".repeat(40);
        let lines = wrapped(text.trim_end(), INDENT);
        assert!(lines.lines().count() > 1);
        assert!(lines.lines().all(|line| line.len() <= COLUMNS && !line.ends_with(' ')), "{lines}");
        assert_eq!(lines.split_whitespace().count(), 40);
        assert_eq!(wrapped("short", INDENT), "short");
    }
}
