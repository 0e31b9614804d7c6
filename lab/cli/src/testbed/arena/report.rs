//! The arena's report: tables as text, and the same with a summary and bars as HTML.

mod page;

use std::fmt::Write;

use headwater_netsim::measure::statistics::{Confidence, estimate};

use super::Cell;
use super::score::{COLUMNS, Column, Score};

/// All cells, the contenders, and the machine.
pub struct Report<'a> {
    pub cells: &'a [Cell],
    pub contenders: &'a [&'static str],
    /// The machine and the build, in words.
    pub machine: &'a str,
}

/// The cells of a bottleneck, by contender.
struct Group<'a> {
    title: String,
    /// Seconds that the file takes at the rate that is fair.
    ideal: f64,
    rows: Vec<&'a Cell>,
}

impl Report<'_> {
    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for cell in self.cells {
            let receivers = headwater_cli::screen::count(cell.receivers, "receiver");
            let title = format!("{}: {} Mbit/s, {receivers}", cell.scene.title, cell.rate);
            if groups.last().is_none_or(|group| group.title != title) {
                groups.push(Group { title, ideal: cell.ideal(), rows: Vec::new() });
            }
            if let Some(group) = groups.last_mut() {
                group.rows.push(cell);
            }
        }
        groups
    }

    /// Tables.
    pub fn text(&self) -> String {
        let mut text =
            format!("The arena: {}\n{}\n\n{}\n", self.contenders.join(", "), self.machine, explained());
        for group in self.groups() {
            writeln!(text, "\n{}; the file takes {:.1} s at the rate that is fair", group.title, group.ideal)
                .ok();
            write!(text, "  {:<14}", "").ok();
            for column in COLUMNS {
                write!(text, "{:>18}", column.title).ok();
            }
            for cell in &group.rows {
                write!(text, "\n  {:<14}", cell.by).ok();
                for column in COLUMNS {
                    write!(text, "{:>18}", cell_text(&cell.scores, column)).ok();
                }
            }
            text.push('\n');
            for (by, why) in group.troubles() {
                writeln!(text, "  {by}: {why}").ok();
            }
        }
        text
    }
}

impl Group<'_> {
    /// Contenders with failed runs, or with receivers without the file, and the known reasons.
    fn troubles(&self) -> Vec<(&'static str, String)> {
        let of = |cell: &&Cell| {
            let short = cell.scores.iter().filter(|score| score.time.is_none()).count();
            let short = (short > 0)
                .then(|| format!("not all had the file in {}", headwater_cli::screen::count(short, "run")));
            let all: Vec<String> = cell.failures.iter().cloned().chain(short).collect();
            (!all.is_empty()).then(|| (cell.by, all.join("; ")))
        };
        self.rows.iter().filter_map(of).collect()
    }
}

fn explained() -> &'static str {
    "Means over the runs and half of their 95 % intervals. time: seconds from a receiver's coming until it has the whole file, the mean over \
     the receivers; slowest: of the last. net: bytes on a receiver's link over those of the file, less 1. TCP's share: of the bottleneck, while \
     the transfer lasts. Jain: of the two. loss: of the packets at the bottleneck's queue. CPU: of all programs, for each GB that a receiver \
     gets. memory: of the largest program. A dash: not all receivers got the file, or it does not apply."
}

fn values(scores: &[Score], column: &Column) -> Vec<f64> {
    scores.iter().filter_map(column.value).collect()
}

fn mean(scores: &[Score], column: &Column) -> Option<f64> {
    estimate(&values(scores, column), Confidence::P95).map(|estimate| estimate.mean)
}

fn cell_text(scores: &[Score], column: &Column) -> String {
    match estimate(&values(scores, column), Confidence::P95) {
        None => "-".into(),
        Some(estimate) => match estimate.half_width {
            Some(half) => format!("{} ± {}", digits(estimate.mean), digits(half)),
            None => digits(estimate.mean),
        },
    }
}

/// Three digits or so.
fn digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(time: f64) -> Score {
        Score { time: Some(time), ..Score::default() }
    }

    #[test]
    fn cells_tell_means_and_what_is_missing() {
        assert_eq!(cell_text(&[], &COLUMNS[0]), "-");
        assert_eq!(cell_text(&[Score::default()], &COLUMNS[0]), "-");
        assert_eq!(cell_text(&[score(8.0)], &COLUMNS[0]), "8.00");
        // t = 12.706 for one degree of freedom; half of the width is that times 1.
        assert_eq!(cell_text(&[score(9.0), score(11.0)], &COLUMNS[0]), "10.0 ± 12.7");
    }
}
