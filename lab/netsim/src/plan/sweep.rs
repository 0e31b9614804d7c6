//! Sweeps: the values that replace values of a plan, and the cells that result.
//!
//! Each `[[sweep]]` is a dimension. Paths of the same dimension change together (their lists are equally
//! long); dimensions are multiplied, and the last dimension changes fastest.

use super::problem;
use super::problem::{Problems, Span};
use super::section::{Context, Section};
use super::tree::{Entry, Node, Table, Value};

/// Maximum number of cells of a plan.
pub const CELLS_MAX: usize = 100_000;

/// Keys that cannot be swept, because they belong to the plan and not to a cell.
const NOT_SWEPT: &[&str] = &["name", "title", "runs", "seed", "sweep"];

/// A dimension: paths that change together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dimension {
    pub paths: Vec<Path>,
    pub len: usize,
}

/// A path and its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    pub path: String,
    pub key: Span,
    pub values: Vec<Node>,
}

/// Reads `[[sweep]]` and checks every path against `plan`.
pub(crate) fn read(context: &Context, plan: &Table) -> Vec<Dimension> {
    let Some(entry) = plan.entries.get("sweep") else { return Vec::new() };
    let problems = &context.problems;
    let Value::Array(items) = &entry.node.value else {
        problems.add(&entry.key, "write [[sweep]] for each dimension of the sweep");
        return Vec::new();
    };
    let mut dimensions: Vec<Dimension> = Vec::new();
    for item in items {
        let Value::Table(table) = &item.value else {
            problems.add(&item.span, "a sweep is a table of paths and their values");
            continue;
        };
        dimensions.extend(dimension(context, plan, table, &item.span));
    }
    check_paths(problems, &dimensions);
    let cells = dimensions.iter().try_fold(1_usize, |cells, dimension| cells.checked_mul(dimension.len));
    if cells.is_none_or(|cells| cells > CELLS_MAX) {
        problems.add(&entry.key, format!("the sweeps make more than {CELLS_MAX} cells"));
        return Vec::new();
    }
    dimensions
}

/// Cell `index` of the product: which value each dimension takes.
pub(crate) fn coordinates(dimensions: &[Dimension], mut index: usize) -> Vec<usize> {
    let mut coordinates = vec![0; dimensions.len()];
    for (coordinate, dimension) in coordinates.iter_mut().zip(dimensions).rev() {
        *coordinate = index % dimension.len;
        index /= dimension.len;
    }
    coordinates
}

/// Replaces the value under `path`, whose tables exist.
pub(crate) fn put(plan: &mut Table, path: &Path, value: &Node) {
    let segments: Vec<&str> = path.path.split('.').collect();
    if let Some((last, above)) = segments.split_last()
        && let Some(table) = table_mut(plan, above)
    {
        table.entries.insert((*last).into(), Entry { key: path.key.clone(), node: value.clone() });
    }
}

fn table_mut<'a>(table: &'a mut Table, segments: &[&str]) -> Option<&'a mut Table> {
    let Some((segment, rest)) = segments.split_first() else { return Some(table) };
    match &mut table.entries.get_mut(*segment)?.node.value {
        Value::Table(below) => table_mut(below, rest),
        Value::Array(items) => {
            let (index, rest) = rest.split_first()?;
            match &mut items.get_mut(index.parse::<usize>().ok()?)?.value {
                Value::Table(below) => table_mut(below, rest),
                _ => None,
            }
        }
        _ => None,
    }
}

fn dimension(context: &Context, plan: &Table, table: &Table, span: &Span) -> Option<Dimension> {
    let mut paths = Vec::new();
    for (path, entry) in table.in_order() {
        check_path(&context.problems, plan, path, &entry.key)?;
        let values = values(context, path, entry)?;
        paths.push(Path { path: path.into(), key: entry.key.clone(), values });
    }
    let Some(len) = paths.first().map(|path| path.values.len()) else {
        context
            .problems
            .add(span, "a sweep needs a path and its values: \"link.bottleneck.rate\" = [\"1M\", \"2M\"]");
        return None;
    };
    for path in &paths {
        if path.values.len() != len {
            let (first, own) = (&paths[0].path, path.values.len());
            let message = format!(
                "paths of one [[sweep]] change together: '{}' has {own} values, '{first}' has {len}; for all \
                 combinations write a [[sweep]] for each",
                path.path
            );
            context.problems.add(&path.key, message);
            return None;
        }
    }
    Some(Dimension { paths, len })
}

/// A list, or a range of numbers.
fn values(context: &Context, path: &str, entry: &Entry) -> Option<Vec<Node>> {
    match &entry.node.value {
        Value::Array(items) if !items.is_empty() => Some(items.clone()),
        Value::Table(table) if table.entries.contains_key("steps") => {
            let section = Section::new(
                context,
                table,
                entry.key.clone(),
                format!("sweep.{path}"),
                &["from", "to", "steps", "scale"],
            );
            range(&section, &entry.node.span)
        }
        Value::Table(_) => {
            let message =
                "a path is written in quotes, \"a.b.c\" = [..]; a range is { from = 1, to = 9, steps = 5 }";
            context.problems.add(&entry.key, message);
            None
        }
        _ => {
            context
                .problems
                .add(&entry.node.span, "a sweep has a list of values, or a range with from, to and steps");
            None
        }
    }
}

fn range(section: &Section<'_>, span: &Span) -> Option<Vec<Node>> {
    let (from, to): (f64, f64) = (section.need("from")?, section.need("to")?);
    let steps = section.within("steps", &(2..=10_000))?;
    let is_log = section.node("scale").and_then(|_| section.word("scale", &["linear", "log"])) == Some("log");
    if is_log && (from <= 0.0 || to <= 0.0) {
        section.problem(span, "a range on a logarithmic scale lies above 0");
        return None;
    }
    let is_whole = ["from", "to"].iter().all(|key| {
        matches!(section.table.entries.get(*key).map(|entry| &entry.node.value), Some(Value::Integer(_)))
    });
    let steps = u32::try_from(steps).ok()?;
    let at = |step: u32| {
        let share = f64::from(step) / f64::from(steps - 1);
        let value = if is_log { from * libm::pow(to / from, share) } else { from + (to - from) * share };
        Node { span: span.clone(), value: number(value, is_whole) }
    };
    let mut values: Vec<Node> = (0..steps).map(at).collect();
    values.dedup();
    Some(values)
}

/// Six significant digits are enough for a parameter, and read well in results.
fn number(value: f64, is_whole: bool) -> Value {
    if is_whole {
        #[expect(clippy::cast_possible_truncation, reason = "both ends are integers of 32 bits")]
        return Value::Integer(value.round() as i64);
    }
    Value::Float(format!("{value:.5e}").parse().unwrap_or(value))
}

/// Checks that every table of the path is in the plan; the last key may be absent if it has a default.
fn check_path(problems: &Problems, plan: &Table, path: &str, span: &Span) -> Option<()> {
    let mut segments: Vec<&str> = path.split('.').collect();
    if NOT_SWEPT.contains(&segments[0]) {
        problems.add(span, format!("'{}' is of the whole plan and cannot be swept", segments[0]));
        return None;
    }
    segments.pop();
    let mut table = plan;
    let mut segments = segments.into_iter();
    while let Some(segment) = segments.next() {
        let Some(entry) = table.entries.get(segment) else {
            let hint = problem::hint(segment, table.entries.keys().map(String::as_str));
            problems.add(span, format!("the plan has no '{segment}' of the path '{path}'{hint}"));
            return None;
        };
        let mut node = &entry.node;
        if let Value::Array(items) = &node.value {
            let index = segments.next().and_then(|segment| segment.parse::<usize>().ok());
            let Some(item) = index.and_then(|index| items.get(index)) else {
                let message =
                    format!("'{segment}' is a list of {}: '{path}' must number one, from 0", items.len());
                problems.add(span, message);
                return None;
            };
            node = item;
        }
        let Value::Table(below) = &node.value else {
            problems
                .add(span, format!("'{segment}' of the path '{path}' is {}, not a table", node.value.kind()));
            return None;
        };
        table = below;
    }
    Some(())
}

/// Checks that no path is swept twice, and that no path lies inside another path.
fn check_paths(problems: &Problems, dimensions: &[Dimension]) {
    let mut seen: Vec<&Path> = Vec::new();
    for path in dimensions.iter().flat_map(|dimension| &dimension.paths) {
        let inside = |a: &str, b: &str| a == b || b.strip_prefix(a).is_some_and(|rest| rest.starts_with('.'));
        if let Some(other) =
            seen.iter().find(|one| inside(&one.path, &path.path) || inside(&path.path, &one.path))
        {
            problems.add(&path.key, format!("'{}' is swept already, by '{}'", path.path, other.path));
        }
        seen.push(path);
    }
}
