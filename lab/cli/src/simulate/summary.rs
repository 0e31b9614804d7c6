//! Results as a table: for each cell, means over the cell's runs.

use std::collections::BTreeMap;
use std::fmt::Write;

use headwater_netsim::measure::{Confidence, estimate};
use serde::Deserialize;
use serde_json::Value;

use headwater_cli::exit::{Exit, Failure, OrExit};

/// Fields of a line that the table shows.
#[derive(Deserialize)]
struct Line {
    cell: BTreeMap<String, Value>,
    flows: Vec<Flow>,
    links: Vec<Link>,
    #[serde(default)]
    jain: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Flow {
    group: String,
    goodput: f64,
    loss: Option<f64>,
}

#[derive(Deserialize)]
struct Link {
    name: String,
    loss: Option<f64>,
    /// A testbed's queues are not looked into.
    mean_queue: Option<f64>,
    throughput: f64,
}

/// Results of many runs, in the order of the plan.
#[derive(Default)]
pub struct Summary {
    cells: Vec<Cell>,
}

#[derive(Default)]
struct Cell {
    title: String,
    runs: usize,
    rows: Vec<Row>,
}

/// A flow group or a direction of a link.
struct Row {
    name: String,
    /// Column -> a value for each run.
    columns: Vec<(&'static str, Vec<f64>)>,
}

/// Columns of the table, in order, each with its unit.
const COLUMNS: &[(&str, f64)] = &[
    ("goodput Mbit/s", 1e6),
    ("throughput Mbit/s", 1e6),
    ("loss %", 0.01),
    ("mean queue", 1.0),
    ("Jain", 1.0),
];
/// Rows that a cell shows.
const ROWS_MAX: usize = 24;

impl Summary {
    /// Adds a line of results.
    pub fn add(&mut self, text: &str) -> Result<(), Failure> {
        let line: Line = serde_json::from_str(text).or_exit(Exit::Disk, "cannot read a line of results")?;
        let title = cell_title(&line.cell);
        if self.cells.last().is_none_or(|cell| cell.title != title) {
            self.cells.push(Cell { title, ..Cell::default() });
        }
        if let Some(cell) = self.cells.last_mut() {
            cell.add(&line);
        }
        Ok(())
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for cell in &self.cells {
            cell.write(&mut text);
        }
        text
    }
}

impl Cell {
    fn add(&mut self, line: &Line) {
        self.runs += 1;
        let mut groups: Vec<&str> = line.flows.iter().map(|flow| flow.group.as_str()).collect();
        groups.dedup();
        for group in groups {
            let flows = || line.flows.iter().filter(|flow| flow.group == group);
            let name = match flows().count() {
                1 => group.to_owned(),
                count => format!("{group} ({count})"),
            };
            self.put(&name, "goodput Mbit/s", mean(flows().map(|flow| flow.goodput)));
            self.put(&name, "loss %", mean(flows().filter_map(|flow| flow.loss)));
            self.put(&name, "Jain", line.jain.get(group).copied());
        }
        for link in &line.links {
            self.put(&link.name, "throughput Mbit/s", Some(link.throughput));
            self.put(&link.name, "loss %", link.loss);
            self.put(&link.name, "mean queue", link.mean_queue);
        }
    }

    fn put(&mut self, name: &str, column: &'static str, value: Option<f64>) {
        let Some(value) = value else { return };
        let row = match self.rows.iter().position(|row| row.name == name) {
            Some(row) => row,
            None => {
                self.rows.push(Row { name: name.into(), columns: Vec::new() });
                self.rows.len() - 1
            }
        };
        let columns = &mut self.rows[row].columns;
        match columns.iter_mut().find(|(known, _)| *known == column) {
            Some((_, values)) => values.push(value),
            None => columns.push((column, vec![value])),
        }
    }

    fn write(&self, text: &mut String) {
        let runs = headwater_cli::screen::count(self.runs, "run");
        let title = if self.title.is_empty() { runs } else { format!("{}, {runs}", self.title) };
        // Writing to a string cannot fail.
        writeln!(text, "{title}").ok();
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        write!(text, "  {:<width$}", "").ok();
        for (column, _) in COLUMNS {
            write!(text, "{column:>19}").ok();
        }
        text.push('\n');
        for row in self.rows.iter().take(ROWS_MAX) {
            let cells = COLUMNS.iter().map(|(column, unit)| format!("{:>19}", row.cell(column, *unit)));
            let cells: String = cells.collect();
            writeln!(text, "  {:<width$}{}", row.name, cells.trim_end()).ok();
        }
        if self.rows.len() > ROWS_MAX {
            writeln!(text, "  and {} more: see the results", self.rows.len() - ROWS_MAX).ok();
        }
        text.push('\n');
    }
}

impl Row {
    /// The mean over the runs, and half of the 95 % interval.
    fn cell(&self, column: &str, unit: f64) -> String {
        let Some((_, values)) = self.columns.iter().find(|(known, _)| *known == column) else {
            return String::new();
        };
        let Some(estimate) = estimate(values, Confidence::P95) else { return String::new() };
        match estimate.half_width {
            Some(half) => format!("{} ± {}", digits(estimate.mean / unit), digits(half / unit)),
            None => digits(estimate.mean / unit),
        }
    }
}

/// Four digits or so.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        0.001.. => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// `flow.tcp.count = 2, link.bottleneck.rate = "1M"`; empty without sweeps.
pub fn cell_title(values: &BTreeMap<String, Value>) -> String {
    let pairs: Vec<String> = values.iter().map(|(path, value)| format!("{path} = {value}")).collect();
    pairs.join(", ")
}
