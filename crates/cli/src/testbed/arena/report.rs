//! The arena's report: tables as text, and the same with bars as HTML.

use std::fmt::Write;

use headwater_netsim::measure::statistics::{Confidence, estimate};

use super::Cell;
use super::score::{COLUMNS, Column, Score};

/// Columns that are drawn, too: the time, and what is left for TCP.
const DRAWN: [usize; 2] = [0, 3];
const BAR_HEIGHT: f64 = 18.0;
const BARS_WIDTH: f64 = 420.0;
const NAMES_WIDTH: f64 = 110.0;
const STYLE: &str = "body{font:15px system-ui,sans-serif;max-width:70em;margin:2em auto;color:#222}table{border-collapse:collapse;margin:1em 0}\
                     td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
                     svg{margin:0 2em 1em 0}";

/// All cells, and who takes part.
pub struct Report<'a> {
    pub cells: &'a [Cell],
    pub contenders: &'a [&'static str],
}

/// The cells of one bottleneck, by contender.
struct Group<'a> {
    title: String,
    rows: Vec<(&'static str, &'a [Score])>,
}

impl Report<'_> {
    fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for cell in self.cells {
            let receivers = crate::screen::count(cell.receivers, "receiver");
            let title = format!("{}: {} Mbit/s, {receivers}", cell.scene.title, cell.rate);
            if groups.last().is_none_or(|group| group.title != title) {
                groups.push(Group { title, rows: Vec::new() });
            }
            if let Some(group) = groups.last_mut() {
                group.rows.push((cell.by, &cell.scores));
            }
        }
        groups
    }

    /// Tables.
    pub fn text(&self) -> String {
        let mut text = format!("The arena: {}\n\n{}\n", self.contenders.join(", "), explained());
        for group in self.groups() {
            writeln!(text, "\n{}", group.title).ok();
            write!(text, "  {:<14}", "").ok();
            for column in COLUMNS {
                write!(text, "{:>18}", column.title).ok();
            }
            for (by, scores) in &group.rows {
                write!(text, "\n  {by:<14}").ok();
                for column in COLUMNS {
                    write!(text, "{:>18}", cell_text(scores, column)).ok();
                }
            }
            text.push('\n');
        }
        text
    }

    /// One page that needs nothing else.
    pub fn html(&self) -> String {
        let mut page = format!(
            "<!doctype html><meta charset=\"utf-8\"><title>The arena</title><style>{STYLE}</style><h1>The arena</h1><p>{}</p><p>{}</p>",
            self.contenders.join(", "),
            explained()
        );
        for group in self.groups() {
            write!(page, "<h2>{}</h2><table><tr><th>", group.title).ok();
            COLUMNS.iter().for_each(|column| page.push_str(&format!("<th>{}", column.title)));
            for (by, scores) in &group.rows {
                write!(page, "<tr><td>{by}").ok();
                COLUMNS
                    .iter()
                    .for_each(|column| page.push_str(&format!("<td>{}", cell_text(scores, column))));
            }
            page.push_str("</table>");
            for column in DRAWN.map(|index| &COLUMNS[index]) {
                page.push_str(&bars(&group, column));
            }
        }
        page.push('\n');
        page
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

/// A bar for each contender that has a value; nothing where none has.
fn bars(group: &Group<'_>, column: &Column) -> String {
    let mean =
        |scores: &[Score]| estimate(&values(scores, column), Confidence::P95).map(|estimate| estimate.mean);
    let rows: Vec<(&str, f64)> =
        group.rows.iter().filter_map(|(by, scores)| Some((*by, mean(scores)?))).collect();
    let most = rows.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let (width, height) = (NAMES_WIDTH + BARS_WIDTH + 60.0, BAR_HEIGHT * (rows.len() as f64 + 1.5));
    let mut svg = format!(
        "<svg width=\"{width}\" height=\"{height}\" font-size=\"12\" role=\"img\"><text y=\"14\" font-weight=\"bold\">{}</text>",
        column.title
    );
    for (place, (by, value)) in rows.iter().enumerate() {
        let (y, long) = (BAR_HEIGHT * (place as f64 + 1.2), BARS_WIDTH * value / most);
        let base = y + 12.0;
        write!(
            svg,
            "<text x=\"0\" y=\"{base:.0}\">{by}</text><rect x=\"{NAMES_WIDTH}\" y=\"{y:.0}\" width=\"{long:.0}\" height=\"14\" \
             fill=\"{}\"/><text x=\"{:.0}\" y=\"{base:.0}\">{}</text>",
            colour(by),
            NAMES_WIDTH + long + 4.0,
            digits(*value)
        )
        .ok();
    }
    svg.push_str("</svg>");
    svg
}

/// Ours, TCP, others.
fn colour(by: &str) -> &'static str {
    match by {
        "tcp" => "#888",
        "uftp" | "udpcast" | "norm" | "openpgm" => "#c96",
        _ => "#37a",
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

    #[test]
    fn bars_are_as_long_as_their_values() {
        let (slow, fast) = ([score(20.0)], [score(10.0)]);
        let group =
            Group { title: "x".into(), rows: vec![("m2c", &fast[..]), ("tcp", &slow[..]), ("norm", &[])] };
        let svg = bars(&group, &COLUMNS[0]);
        assert!(
            svg.contains("width=\"420\"") && svg.contains("width=\"210\"") && !svg.contains("norm"),
            "{svg}"
        );
        assert_eq!(bars(&group, &COLUMNS[3]), "");
    }
}
