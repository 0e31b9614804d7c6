//! Timetable of a plan: rate changes, link failures and repairs, paused nodes, clock steps.

use headwater_proto::{Duration, Rate};

use super::problem;
use super::queue::{self, Loss, Sides};
use super::section::Section;
use super::topology::{self, Topology};
use super::tree::Value;

/// Maximum number of entries of a timetable.
const CHANGES_MAX: usize = 100_000;

const LINK_KEYS: &[&str] = &["time", "link", "direction", "rate", "state", "loss", "every", "rates"];
const NODE_KEYS: &[&str] = &["time", "node", "state", "clock-step"];

/// A change at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time of the change.
    pub time: Duration,
    /// Change at that time.
    pub what: What,
}

/// Kinds of changes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Changes a link's rate; the packet in transmission keeps the old rate.
    Rate {
        /// Index of the link.
        link: usize,
        /// Directions that change.
        sides: Sides,
        /// The new rate.
        rate: Rate,
    },
    /// Cuts or mends a link. Arrivals at a link that is down are lost.
    Up {
        /// Index of the link.
        link: usize,
        /// Directions that change.
        sides: Sides,
        /// Whether the link is up.
        up: bool,
    },
    /// A link loses packets in another way.
    Loss {
        /// Index of the link.
        link: usize,
        /// Directions that change.
        sides: Sides,
        /// The new loss.
        loss: Loss,
    },
    /// Pauses or resumes a node. A paused node receives nothing, and its timers are late.
    Running {
        /// Index of the node.
        node: usize,
        /// Whether the node runs.
        running: bool,
    },
    /// A node's clock steps forward.
    ClockStep {
        /// Index of the node.
        node: usize,
        /// Size of the step.
        step: Duration,
    },
}

/// Reads `[[at]]`, in order of time.
pub(crate) fn read(plan: &Section<'_>, topology: &Topology) -> Vec<Change> {
    let Some(node) = plan.node("at") else { return Vec::new() };
    let Value::Array(items) = &node.value else {
        plan.problem(&node.span, "write [[at]] for each change of the timetable");
        return Vec::new();
    };
    if items.len() > CHANGES_MAX {
        plan.problem(&node.span, format!("a timetable has at most {CHANGES_MAX} entries"));
        return Vec::new();
    }
    let mut changes: Vec<Change> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let is_node = matches!(&item.value, Value::Table(table) if table.entries.contains_key("node"));
        let keys = if is_node { NODE_KEYS } else { LINK_KEYS };
        let Some(section) = Section::of_node(plan.context, item, &item.span, format!("at.{index}"), keys)
        else {
            continue;
        };
        let Some(time) = section.need("time") else { continue };
        if !is_node && (section.node("every").is_some() || section.node("rates").is_some()) {
            changes.extend(repeated(plan, &section, topology, time));
            continue;
        }
        let whats = if is_node { node_changes(&section, topology) } else { link_changes(&section, topology) };
        changes.extend(whats.unwrap_or_default().into_iter().map(|what| Change { time, what }));
    }
    changes.sort_by_key(|change| change.time);
    changes
}

/// Reads a link whose rate cycles through `rates`, changing each `every` from `first` to the end of the run.
fn repeated(plan: &Section<'_>, section: &Section<'_>, topology: &Topology, first: Duration) -> Vec<Change> {
    let (Some(every), Some(end)) = (section.need::<Duration>("every"), plan.get::<Duration>("duration"))
    else {
        return Vec::new();
    };
    for key in ["rate", "state", "loss"] {
        if section.node(key).is_some() {
            section.problem_at(key, format!("'{key}' cannot stand beside 'every' and 'rates'"));
        }
    }
    let Some((link, sides)) = place(section, topology) else { return Vec::new() };
    let rates: Vec<Option<Rate>> = section
        .texts("rates")
        .into_iter()
        .map(|(text, span)| match text.parse() {
            Ok(rate) => Some(rate),
            Err(_) => {
                section.problem(&span, format!("'{text}' is no rate; write for example \"10M\""));
                None
            }
        })
        .collect();
    let count = end.as_nanos().saturating_sub(first.as_nanos()).div_ceil(every.as_nanos().max(1));
    if rates.is_empty() || every == Duration::ZERO || count > CHANGES_MAX as u64 {
        let message =
            format!("'rates' are taken in turn, one 'every' so much time, at most {CHANGES_MAX} times");
        section.problem(&section.span, message);
        return Vec::new();
    }
    let change = |(number, rate): (u64, &Option<Rate>)| {
        Some(Change {
            time: first + every.saturating_mul(number),
            what: What::Rate { link, sides, rate: (*rate)? },
        })
    };
    (0..count).zip(rates.iter().cycle()).filter_map(change).collect()
}

/// Returns the link of an entry, and the affected directions.
fn place(section: &Section<'_>, topology: &Topology) -> Option<(usize, Sides)> {
    section.need::<String>("link")?;
    let (name, span) = section.texts("link").into_iter().next()?;
    let Some(link) = topology.link(name) else {
        let hint = problem::hint(name, topology.links.iter().map(|link| link.name.as_str()));
        section.problem(&span, format!("there is no link '{name}'{hint}"));
        return None;
    };
    let sides = match section.node("direction") {
        None => [true, true],
        Some(_) => queue::sides(section),
    };
    Some((link, sides))
}

fn link_changes(section: &Section<'_>, topology: &Topology) -> Option<Vec<What>> {
    let (link, sides) = place(section, topology)?;
    let mut whats = Vec::new();
    whats.extend(section.get("rate").map(|rate| What::Rate { link, sides, rate }));
    if section.node("state").is_some() {
        let up = section.word("state", &["up", "down"])? == "up";
        whats.push(What::Up { link, sides, up });
    }
    whats.extend(queue::loss(section).map(|(loss, own)| {
        // The loss's own direction, if present, else the direction of the entry.
        let is_said = matches!(section.node("loss").map(|node| &node.value), Some(Value::Table(loss)) if loss.entries.contains_key("direction"));
        let sides = if is_said || section.node("direction").is_none() { own } else { sides };
        What::Loss { link, sides, loss }
    }));
    expect_some(section, whats, "'rate', 'state' (up, down) or 'loss'")
}

fn node_changes(section: &Section<'_>, topology: &Topology) -> Option<Vec<What>> {
    let (name, span) = section.texts("node").into_iter().next()?;
    let node = topology::node(section.context, topology, name, &span)?;
    let mut whats = Vec::new();
    if section.node("state").is_some() {
        let running = section.word("state", &["running", "paused"])? == "running";
        whats.push(What::Running { node, running });
    }
    whats.extend(section.get("clock-step").map(|step| What::ClockStep { node, step }));
    expect_some(section, whats, "'state' (running, paused) or 'clock-step'")
}

fn expect_some(section: &Section<'_>, whats: Vec<What>, wanted: &str) -> Option<Vec<What>> {
    if whats.is_empty() && section.context.problems.is_empty() {
        section.problem(&section.span, format!("nothing changes here; write {wanted}"));
    }
    Some(whats)
}
