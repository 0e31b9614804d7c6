//! Pages of `docs/` beside the code: generated pages are up to date, and commands in the guide parse.
//!
//! `HEADWATER_WRITE_PAGES=1 cargo test -p headwater-cli --test it pages` writes the generated pages anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use headwater_cli::Cli;
use headwater_proto::control::Rules;
use headwater_proto::controls::{CONTROLS, Network, Parameter, Unit};
use headwater_web::{ENDS_MAX, METRICS, Metric, MetricKind};

const EVENTS: &str = concat!(
    include_str!("../../../proto/src/eventlog.rs"),
    include_str!("../../../proto/src/eventlog/records.rs")
);
const SAMPLES: &str = include_str!("../../../web/src/view/sample.rs");
const FDT: &str = include_str!("../../../wire/src/fdt/xml.rs");

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares a generated page with the repository's, or writes the page if the environment says so.
fn assert_page(name: &str, title: &str, body: &str) {
    let page = format!(
        "<!-- Generated: HEADWATER_WRITE_PAGES=1 cargo test -p headwater-cli --test it pages -->\n# {title}\n\n{}\n",
        body.trim_end()
    );
    let path = docs().join("reference").join(name);
    if env::var_os("HEADWATER_WRITE_PAGES").is_some() {
        fs::write(path, page).unwrap();
    } else {
        let there = fs::read_to_string(path).unwrap();
        assert!(
            there == page,
            "docs/reference/{name} is out of date: HEADWATER_WRITE_PAGES=1 writes the page anew"
        );
    }
}

#[test]
fn options_are_those_of_the_command_line() {
    let mut body = "All commands with all options, as `--help` prints them. Meaning and context: [command.md](command.md).\n".to_owned();
    let mut command = Cli::command();
    command.build();
    write_help(&mut body, &mut command);
    assert_page("options.md", "Options", &body);
}

/// Writes the help of a command and of all commands below.
fn write_help(body: &mut String, command: &mut clap::Command) {
    let name = command.get_display_name().unwrap_or(command.get_name()).replace('-', " ");
    let name = command.get_bin_name().map_or(name, str::to_owned);
    let mut plain = command.clone().term_width(100).after_help("").after_long_help("");
    let help = plain.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    write!(body, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()).unwrap();
    for below in
        command.get_subcommands_mut().filter(|below| below.get_name() != "help" && !below.is_hide_set())
    {
        write_help(body, below);
    }
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let help = Cli::command().render_long_help().to_string();
    let codes = help.split_once("Exit codes:\n").unwrap().1;
    let mut body = "Exit codes of `headwater`; `headwater-lab` has the same.\n\nTable: exit codes.\n\n| code | meaning |\n|---|---|\n".to_owned();
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let (code, meaning) = line.trim().split_once(' ').unwrap();
        writeln!(body, "| {code} | {} |", meaning.trim()).unwrap();
    }
    body += "\nCode 9 takes precedence over 130. After code 5, a receiver with the same `--out` continues the transfer, but refuses again what it refused: names are in its messages. After code 7 on a full disk, the receiver keeps the content that has arrived.\n";
    assert_page("exit-codes.md", "Exit codes", &body);
}

#[test]
fn controls_are_those_of_the_table() {
    let mut body = "Controls of `send --congestion-control`, from `crates/proto/src/controls/mod.rs`. Choosing: [guide](../guide/choosing-a-control.md).\n\nTable: controls.\n\n| control | network | effect |\n|---|---|---|\n".to_owned();
    for control in CONTROLS {
        let network = match control.network {
            Network::Group => "one multicast group",
            Network::GroupAndNaks => "one multicast group, NAKs by unicast",
            Network::Groups => "a multicast group for each channel",
            Network::GroupsAndReports => "a multicast group for each channel, reports by unicast",
            Network::Requests => "unicast",
        };
        writeln!(body, "| `{}` | {network} | {} |", control.name, control.help).unwrap();
    }
    for control in CONTROLS.iter().filter(|control| !control.parameters.is_empty()) {
        write!(body, "\n## Parameters of {}\n\nTable: parameters that the FDT attribute `hw:Congestion-Control` carries for `{0}`; all are required.\n\n| parameter | unit | least | most | default |\n|---|---|---|---|---|\n", control.name).unwrap();
        for parameter in control.parameters {
            write_parameter(&mut body, parameter);
        }
        if control.receiver_parameters.is_empty() {
            continue;
        }
        write!(body, "\nTable: parameters that each receiver of `{}` chooses, as options of `receive`.\n\n| parameter | unit | least | most | default |\n|---|---|---|---|---|\n", control.name).unwrap();
        for parameter in control.receiver_parameters {
            write_parameter(&mut body, parameter);
        }
    }
    body += "\nControls have closer bounds of their own: [wire/fdt.md](wire/fdt.md#of-the-root-hwcongestion-control).\n";
    assert_page("controls.md", "Controls", &body);
}

fn write_parameter(body: &mut String, parameter: &Parameter) {
    let unit = match parameter.unit {
        Unit::Bytes => "byte",
        Unit::BitsPerSecond => "bit/s",
        Unit::Millionths => "10⁻⁶",
        Unit::Nanoseconds => "ns",
        Unit::Number => "1",
        Unit::Rules => "word",
    };
    let value = |value: u64| match (parameter.unit, value) {
        (Unit::Rules, index) => format!("`{}`", Rules::NAMES[usize::try_from(index).unwrap()].0),
        (_, u64::MAX) => "2⁶⁴-1".to_owned(),
        (_, number) => number.to_string(),
    };
    let (least, most) = (value(parameter.least), value(parameter.most));
    writeln!(body, "| `{}` | {unit} | {least} | {most} | {} |", parameter.name, value(parameter.default))
        .unwrap();
}

#[test]
fn events_are_those_of_the_log() {
    let mut body = "Events of `--json` (one object per line) and `--events` (qlog, JSON-SEQ), from `crates/proto/src/eventlog.rs`. Every object also has `time`, in milliseconds since the \
start, and `event`. Rates are bit/s of UDP payload, lengths are bytes, durations are milliseconds. A field without a value is left out.\n\nTable: events and their own fields. A name in italics stands for \
the fields of a table below, or of the structure of that name in the Rust documentation.\n\n| event | meaning | fields |\n|---|---|---|\n"
        .to_owned();
    let (_, variants) = EVENTS.split_once("pub enum Event<'a> {\n").unwrap();
    let variants = variants.split_once("\n}\n").unwrap().0;
    let mut text = String::new();
    let mut fields: Vec<String> = Vec::new();
    let mut attributes = String::new();
    for line in variants.lines() {
        if let Some(more) = line.strip_prefix("    /// ") {
            text = format!("{text} {more}");
        } else if let Some(item) = line.strip_prefix("        ") {
            if item.starts_with('#') {
                attributes += item;
            } else if let Some(field) = item.split_once(": ").filter(|_| !item.starts_with('/')) {
                fields.push(field_name(&attributes, field));
                attributes.clear();
            }
        } else if line.starts_with("    ") && !line.trim_start().starts_with('#') {
            if let Some((_, payload)) = line.split_once('(') {
                fields.push(format!("*{}*", payload.trim_end_matches([')', ',']).replace("<'a>", "")));
            }
            if line.ends_with(',') && !text.is_empty() {
                let (name, meaning) = text.trim().split_once(": ").unwrap();
                writeln!(body, "| {name} | {meaning} | {} |", fields.join(", ")).unwrap();
                (text, fields) = (String::new(), Vec::new());
            }
        }
    }
    for name in [
        "ControlState",
        "ReceiverReport",
        "Progress",
        "Reception",
        "PathBytes",
        "PathEstimate",
        "Messages",
        "Repair",
        "RelayProgress",
        "SimRelayProgress",
        "AmtRelayProgress",
        "Plan",
    ] {
        write_fields(&mut body, EVENTS, name);
    }
    assert_page("events.md", "Events", &body);
}

#[test]
fn metrics_are_those_of_the_list() {
    let mut body = format!(
        "Metrics of `/metrics` and samples of `/events`, of every command with `--http`. How to watch: [guide](../guide/watching.md).\n\n\
         `/metrics` is OpenMetrics 1.0 text. Each metric but `headwater_build_info` has the label `session`: the name of an end where a process has several, else group \
         and port; at most {ENDS_MAX}. `path` has at most 4 values, `reason` at most 24; no label names a file or a receiver. Counters begin \
         anew with each session.\n\n\
         Table: metrics.\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n"
    );
    for Metric { name, kind, label, help, .. } in METRICS {
        let session = if *kind == MetricKind::Info { None } else { Some("session") };
        let labels: Vec<_> = session.into_iter().chain(*label).map(|label| format!("`{label}`")).collect();
        writeln!(body, "| `{name}` | {} | {} | {help} |", kind.name(), labels.join(", ")).unwrap();
    }
    body += "\n`/events` is a stream of server-sent events, at most ten a second. The event `state` has the state at some instant, under \
             `state`; each message after it has the members that have changed since, with null for members that are gone. The last 600 messages \
             are kept for clients that come later. The state has `ends`, *EndSample* by name, and `rows`, *RowSample* by identifier: receivers that \
             report to a sender, and ends beyond the first 64, which `ends` then shows as quantiles.\n";
    for name in ["EndSample", "FileSample", "RowSample"] {
        write_fields(&mut body, SAMPLES, name);
    }
    assert_page("metrics.md", "Metrics and samples", &body);
}

/// Writes a table of the fields of a structure of the event log.
fn write_fields(body: &mut String, source: &str, name: &str) {
    let begin = [format!("pub struct {name} {{\n"), format!("pub struct {name}<'a> {{\n")];
    let fields = begin.iter().find_map(|begin| source.split_once(begin.as_str())).unwrap().1;
    write!(body, "\n## {name}\n\nTable: fields of *{name}*.\n\n| field | meaning |\n|---|---|\n").unwrap();
    let mut attributes = String::new();
    let mut text = String::new();
    for line in fields.lines().take_while(|line| *line != "}") {
        let line = line.trim();
        if let Some(more) = line.strip_prefix("/// ") {
            text = format!("{text} {more}");
        } else if line.starts_with('#') {
            attributes += line;
        } else if let Some(field) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) {
            let meaning = text.trim().split("](").next().unwrap().replace("[`", "`");
            writeln!(body, "| {} | {meaning} |", field_name(&attributes, field)).unwrap();
            (text, attributes) = (String::new(), String::new());
        }
    }
}

/// Returns a field as it stands in the log: the name, or in italics the structure whose fields stand there.
fn field_name(attributes: &str, (name, kind): (&str, &str)) -> String {
    let renamed = attributes.split_once("rename = \"").and_then(|(_, name)| name.split_once('"'));
    if attributes.contains("flatten") {
        let kind = kind.trim_end_matches(',').trim_start_matches("Option<").trim_end_matches('>');
        format!("*{}*", kind.rsplit("::").next().unwrap_or(kind))
    } else {
        format!("`{}`", renamed.map_or(name, |(name, _)| name))
    }
}

#[test]
fn the_fdt_page_has_every_attribute_that_is_written() {
    let page = fs::read_to_string(docs().join("reference/wire/fdt.md")).unwrap();
    let names = FDT.split('"').filter(|name| name.starts_with("hw:"));
    let missing: Vec<&str> = names.filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/wire/fdt.md lacks {missing:?}");
}

#[test]
fn commands_in_the_guide_parse() {
    let root = docs().join("..");
    let guide = fs::read_dir(docs().join("guide")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = guide.collect();
    let others =
        ["README.md", "docs/reference/rainbow-files.md", "docs/reference/relay.md", "docs/reference/pgm.md"];
    pages.extend(others.map(|name| root.join(name)));
    let mut commands = 0;
    for page in pages {
        for line in shell_lines(&fs::read_to_string(&page).unwrap()) {
            for words in headwater_commands(&line) {
                commands += 1;
                let Err(error) = Cli::try_parse_from(&words) else { continue };
                let is_fine = matches!(error.kind(), ErrorKind::DisplayVersion | ErrorKind::DisplayHelp);
                assert!(is_fine, "{}: {line}\n{error}", page.display());
            }
        }
    }
    assert!(commands >= 40, "only {commands} commands were found");
}

/// Lines of the blocks of a page that are marked `sh`.
fn shell_lines(page: &str) -> Vec<String> {
    let mut is_shell = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_shell = language == "sh";
        } else if is_shell {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Words of each call of `headwater` in a line, without comments, redirections and other programs.
fn headwater_commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap();
    let calls = line.split(" | ").filter_map(|part| {
        let words = part.split(" > ").next().unwrap().split_whitespace();
        let words: Vec<String> = words.skip_while(|word| *word == "sudo").map(str::to_owned).collect();
        words.first().is_some_and(|word| word == "headwater").then_some(words)
    });
    calls.collect()
}
