//! The arena's report: tables as text, and the same with a summary and bars as HTML.

use std::fmt::Write;

use headwater_netsim::measure::{Confidence, estimate};
use headwater_netsim::plan::flow::TOOLS;

use super::Cell;
use super::scene::Rival;
use super::{COLUMNS, Column, JAIN, LOSS, RIVAL, Score, TIME};

/// All cells, the contenders, and the machine.
pub struct ArenaReport<'a> {
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

impl ArenaReport<'_> {
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

const BAR_HEIGHT: f64 = 18.0;
const BARS_WIDTH: f64 = 300.0;
const NAMES_WIDTH: f64 = 92.0;
const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:76em;margin:2em auto;padding:0 1em;color:#222}h1{margin-bottom:.1em}\
                     h2{margin:2em 0 .3em;border-top:1px solid #ccc;padding-top:.8em}h3{margin:1.4em 0 .2em}p{max-width:58em}.small{color:#555;font-size:.88em}\
                     table{border-collapse:collapse;margin:.6em 0;font-variant-numeric:tabular-nums}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}\
                     th{font-weight:600;vertical-align:bottom;max-width:9em}td:first-child,th:first-child{text-align:left}\
                     .ours{color:#15618f;font-weight:600}.tcp{color:#555}.other{color:#96611c}.good{background:#dcf0dc}.fair{background:#fdf3cf}.bad{background:#f8d9d4}\
                     svg{margin:.3em 2.5em .3em 0;vertical-align:top}";

/// Grading of a number: good up to the first bound, fair up to the second.
struct Grade {
    bounds: [f64; 2],
    is_less_better: bool,
}

/// A table of all contenders by all bottlenecks.
struct Glance {
    title: &'static str,
    words: &'static str,
    value: fn(&Cell) -> Option<f64>,
    grade: Grade,
    /// Column in percent, shown after the value.
    behind: Option<usize>,
    /// Whether a contender that ran there and has no value has failed.
    is_due: bool,
}

const GLANCES: [Glance; 3] = [
    Glance {
        title: "Time",
        words: "As many times as the links need for the file, less what others have: one TCP half, short connections what they ask for; the mean over the receivers, of the runs that all ended; 'without' counts the others. Green up to 1.25, yellow up to 2.",
        value: |cell| Some(mean(&cell.scores, &COLUMNS[TIME])? / cell.ideal()),
        grade: Grade { bounds: [1.25, 2.0], is_less_better: true },
        behind: None,
        is_due: true,
    },
    Glance {
        title: "What TCP keeps",
        words: "Jain's index of the transfer and the TCP beside it: 1 is an equal share, 0.5 all for one. Green from 0.9, yellow from 0.75. Behind it \
                TCP's part of the link in percent.",
        // Short connections ask for little, so an even share is no goal for this rival.
        value: |cell| mean(&cell.scores, &COLUMNS[JAIN]).filter(|_| cell.scene.rival == Rival::Tcp),
        grade: Grade { bounds: [0.9, 0.75], is_less_better: false },
        behind: Some(RIVAL),
        is_due: false,
    },
    Glance {
        title: "Loss",
        words: "Percent of the packets that the bottleneck's queue dropped, whoever sent them. Green up to 2, yellow up to 5.",
        value: |cell| mean(&cell.scores, &COLUMNS[LOSS]),
        grade: Grade { bounds: [2.0, 5.0], is_less_better: true },
        behind: None,
        is_due: false,
    },
];

impl ArenaReport<'_> {
    pub fn html(&self) -> String {
        let groups = self.groups();
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>The arena</title><style>{STYLE}</style><h1>The arena</h1>\
             <p class=small>{}</p><p>The same file over the same bottleneck, by <span class=ours>Headwater's controls</span>, <span class=tcp>TCP \
             to each receiver by itself</span> and <span class=other>other tools</span>.</p>",
            escaped(self.machine)
        );
        for glance in &GLANCES {
            page.push_str(&glance.table(&groups, self.contenders));
        }
        write!(page, "<h2>Each bottleneck</h2><p class=small>{}</p>", explained()).ok();
        for group in &groups {
            page.push_str(&group.section());
        }
        page.push_str("</html>\n");
        page
    }
}

impl Glance {
    fn table(&self, groups: &[Group<'_>], contenders: &[&'static str]) -> String {
        let is_told = |group: &&Group<'_>| group.rows.iter().any(|cell| (self.value)(cell).is_some());
        let groups: Vec<&Group<'_>> = groups.iter().filter(is_told).collect();
        if groups.is_empty() {
            return String::new();
        }
        let mut table = format!("<h2>{}</h2><p class=small>{}</p><table><tr><th>", self.title, self.words);
        groups.iter().for_each(|group| table.push_str(&format!("<th>{}", group.title)));
        for by in contenders {
            write!(table, "<tr><td class={}>{by}", side(by)).ok();
            for group in &groups {
                let cell = group.rows.iter().find(|cell| cell.by == *by);
                table.push_str(&cell.map_or_else(|| "<td>".into(), |cell| self.cell(cell)));
            }
        }
        table.push_str("</table>");
        table
    }

    fn cell(&self, cell: &Cell) -> String {
        let Some(value) = (self.value)(cell) else {
            // A contender with runs but without a value has failed. Without a run, the cause may be the
            // machine, or a missing program.
            return match (self.is_due, cell.scores.is_empty(), cell.failures.is_empty()) {
                (true, false, _) => "<td class=bad>failed".into(),
                (true, true, false) => "<td>no run".into(),
                _ => "<td>–".into(),
            };
        };
        // The mean is over the complete runs.
        let without = cell.failures.len() + cell.scores.iter().filter(|score| score.time.is_none()).count();
        let without = if self.is_due { without } else { 0 };
        let Grade { bounds: [good, fair], is_less_better } = self.grade;
        let is_within = |bound: f64| if is_less_better { value <= bound } else { value >= bound };
        let class = if is_within(good) && without == 0 {
            "good"
        } else if is_within(fair) {
            "fair"
        } else {
            "bad"
        };
        let behind = self.behind.and_then(|column| mean(&cell.scores, &COLUMNS[column]));
        let behind =
            behind.map_or_else(String::new, |percent| format!(" <span class=small>({percent:.0} %)</span>"));
        let without = match without {
            0 => String::new(),
            runs => format!(" <span class=small>({runs} without)</span>"),
        };
        format!("<td class={class}>{}{behind}{without}", digits(value))
    }
}

impl Group<'_> {
    fn section(&self) -> String {
        let mut page = format!("<h3>{}</h3><table><tr><th>", self.title);
        COLUMNS.iter().for_each(|column| page.push_str(&format!("<th>{}", column.title)));
        for cell in &self.rows {
            write!(page, "<tr><td class={}>{}", side(cell.by), cell.by).ok();
            for column in COLUMNS {
                write!(page, "<td>{}", cell_text(&cell.scores, column)).ok();
            }
        }
        page.push_str("</table>");
        for (by, why) in self.troubles() {
            write!(page, "<p class=small><b>{by}</b>: {}</p>", escaped(&why)).ok();
        }
        page.push_str(&self.bars(&COLUMNS[TIME], Some((self.ideal, "fair"))));
        let is_greedy = self.rows.iter().any(|cell| cell.scene.rival == Rival::Tcp);
        page.push_str(&self.bars(&COLUMNS[RIVAL], is_greedy.then_some((50.0, "half"))));
        page
    }

    /// Draws a bar for each contender with a value, and a line at the target; empty if no contender has a
    /// value.
    fn bars(&self, column: &Column, line: Option<(f64, &str)>) -> String {
        let value = |cell: &&Cell| Some((cell.by, mean(&cell.scores, column)?));
        let rows: Vec<(&str, f64)> = self.rows.iter().filter_map(value).collect();
        let most = rows.iter().map(|(_, value)| *value).chain(line.map(|(at, _)| at)).fold(0.0, f64::max);
        if rows.is_empty() || most <= 0.0 {
            return String::new();
        }
        let (width, height) = (NAMES_WIDTH + BARS_WIDTH + 60.0, BAR_HEIGHT * (rows.len() as f64 + 2.4));
        let mut svg = format!(
            "<svg width=\"{width}\" height=\"{height:.0}\" font-size=\"12\" role=\"img\"><text y=\"14\" font-weight=\"bold\">{}</text>",
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
        if let Some((at, words)) = line {
            let (x, end) = (NAMES_WIDTH + BARS_WIDTH * at / most, BAR_HEIGHT * (rows.len() as f64 + 1.3));
            write!(
                svg,
                "<path d=\"M{x:.0} {BAR_HEIGHT}V{end:.0}\" stroke=\"#000\" stroke-dasharray=\"3 3\"/><text x=\"{x:.0}\" y=\"{:.0}\" \
                 text-anchor=\"middle\" fill=\"#555\">{words}</text>",
                end + 13.0
            )
            .ok();
        }
        svg.push_str("</svg>");
        svg
    }
}

/// Style class of a contender.
fn side(by: &str) -> &'static str {
    match by {
        "tcp" => "tcp",
        _ if TOOLS.contains(&by) => "other",
        _ => "ours",
    }
}

fn colour(by: &str) -> &'static str {
    match side(by) {
        "tcp" => "#999",
        "other" => "#c9924c",
        _ => "#3a86b7",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::Score;
    use super::super::scene;
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

    fn cell(by: &'static str, time: Option<f64>, jain: Option<f64>) -> Cell {
        let score = Score { time, slowest: time, jain, rival: jain.map(|_| 0.4), ..Score::default() };
        let cell = Cell::new(scene::SHORT[1], by, (4, 1), 4, 1);
        Cell { scores: vec![score], ..cell.unwrap() }
    }

    #[test]
    fn bars_are_as_long_as_their_values_and_the_line_stands_where_they_ought_to_end() {
        let cells = [cell("m2c", Some(10.0), None), cell("tcp", Some(20.0), None), cell("norm", None, None)];
        let group = Group { title: "x".into(), ideal: 5.0, rows: cells.iter().collect() };
        let svg = group.bars(&COLUMNS[TIME], Some((5.0, "ideal")));
        assert!(
            svg.contains("width=\"300\"") && svg.contains("width=\"150\"") && svg.contains("M167 "),
            "{svg}"
        );
        assert!(!svg.contains("norm"));
        assert_eq!(group.bars(&COLUMNS[RIVAL], None), "");
    }

    #[test]
    fn a_glance_tells_good_from_bad_and_who_failed() {
        let cells = [
            cell("m2c", Some(8.8), Some(0.95)),
            cell("tcp", Some(18.0), Some(0.6)),
            cell("norm", None, None),
        ];
        let report = ArenaReport { cells: &cells, contenders: &["m2c", "tcp", "norm"], machine: "a < b" };
        let page = report.html();
        for part in [
            "class=ours>m2c<td class=good>1.10",
            "class=tcp>tcp<td class=bad>2.25",
            "class=other>norm<td class=bad>failed",
            "<td class=good>0.95 <span class=small>(40 %)",
            "<td class=bad>0.60",
            "a &lt; b",
            "not all had the file in 1 run",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
