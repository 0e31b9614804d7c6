//! Nodes and links: the shapes star, clusters, dumbbell and balanced tree, and nodes and links listed in the
//! plan.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::link::{self, Link, merged};
use super::problem::Span;
use super::problem::{self, NAME_RULE};
use super::section::{Context, Section};
use super::tree::{Entry, Table, Value};
use super::value::FromNode;

/// Maximum number of nodes of a plan.
pub const NODES_MAX: usize = 200_000;

/// Maximum number of packets named by loss scripts, over all links: scripts are held in memory, 8 bytes per
/// packet.
const SCRIPTED_MAX: usize = 4_000_000;

const KINDS: &[&str] = &["graph", "star", "clusters", "dumbbell", "tree"];

/// Nodes and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Links.
    pub links: Vec<Link>,
    /// Name -> index, of nodes.
    by_name: BTreeMap<String, usize>,
    /// Name -> index, of links.
    links_by_name: BTreeMap<String, usize>,
}

impl Topology {
    /// The index of the node called `name`.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The index of the link called `name`.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links_by_name.get(name).copied()
    }

    /// The first node that no links lead to from node 0.
    fn unreachable(&self) -> Option<usize> {
        let mut parents: Vec<usize> = (0..self.nodes.len()).collect();
        for link in &self.links {
            let [a, b] = link.ends.map(|end| root(&mut parents, end));
            parents[a.max(b)] = a.min(b);
        }
        (0..parents.len()).find(|node| root(&mut parents, *node) != 0)
    }

    fn add_node(&mut self, name: String) -> usize {
        let index = self.nodes.len();
        self.by_name.insert(name.clone(), index);
        self.nodes.push(name);
        index
    }
}

/// A link before its parameters are read: parameters come from the shape and from `[link.NAME]`.
struct Draft {
    name: String,
    ends: [usize; 2],
    /// Shared among the links of a part, of which there may be many.
    table: Rc<Table>,
    span: Span,
}

/// Reads `[topology]` and `[link.*]`.
pub(crate) fn read(plan: &Section<'_>) -> Option<Topology> {
    let mut topology = Topology::default();
    let mut drafts = shape(plan, &mut topology)?;
    links(plan, &topology, &mut drafts);
    let mut scripted = 0;
    for draft in drafts {
        let link = link::read(plan.context, &draft.name, draft.ends, &draft.table, &draft.span)?;
        scripted +=
            [&link.forward, &link.back].map(|direction| direction.loss.scripted()).iter().sum::<usize>();
        if scripted > SCRIPTED_MAX {
            let message = format!("the scripts of all links name at most {SCRIPTED_MAX} packets together");
            plan.problem(&draft.span, message);
            return None;
        }
        topology.links_by_name.insert(link.name.clone(), topology.links.len());
        topology.links.push(link);
    }
    if let Some(node) = topology.unreachable()
        && plan.context.problems.is_empty()
    {
        let message = format!(
            "node '{}' cannot be reached from '{}': no links lead there; write [link.NAME] with between = [\"a\", \"b\"]",
            topology.nodes[node], topology.nodes[0]
        );
        plan.problem(plan.table.entries.get("topology").map_or(&plan.span, |entry| &entry.key), message);
    }
    Some(topology)
}

fn shape(plan: &Section<'_>, topology: &mut Topology) -> Option<Vec<Draft>> {
    let Some(entry) = plan.table.entries.get("topology") else {
        let message = "the plan has no [topology]; its kind is graph, star, clusters, dumbbell or tree";
        plan.problem(&plan.span, message);
        return None;
    };
    let Value::Table(table) = &entry.node.value else {
        plan.problem(&entry.node.span, "'topology' must be a table");
        return None;
    };
    let kind = match table.entries.get("kind").map(|entry| &entry.node.value) {
        Some(Value::Text(kind)) => kind.as_str(),
        _ => "",
    };
    let keys: &[&'static str] = match kind {
        "star" => &["kind", "nodes", "leaves", "trunk", "leaf"],
        "clusters" => &["kind", "nodes", "leaves", "trunk", "branch", "leaf"],
        "dumbbell" => &["kind", "nodes", "pairs", "bottleneck", "access"],
        "tree" => &["kind", "nodes", "arity", "depth", "link"],
        "graph" => &["kind", "nodes"],
        _ => {
            let hint = problem::hint(kind, KINDS.iter().copied());
            let span = table.entries.get("kind").map_or(&entry.key, |written| &written.node.span);
            plan.problem(span, format!("[topology] needs a kind, and '{kind}' is none{hint}"));
            return None;
        }
    };
    let section = plan.section("topology", keys)?;
    let mut shape = Shape { topology, section: &section, drafts: Vec::new() };
    match kind {
        "star" => shape.star(),
        "clusters" => shape.clusters(),
        "dumbbell" => shape.dumbbell(),
        "tree" => shape.tree(),
        _ => Some(()),
    }?;
    shape.listed();
    Some(shape.drafts)
}

struct Shape<'a, 'b> {
    topology: &'a mut Topology,
    section: &'a Section<'b>,
    drafts: Vec<Draft>,
}

impl Shape<'_, '_> {
    /// `source` - `hub` - `leaf-1`, `leaf-2`, ...; the links are `trunk` and a link named after each leaf.
    fn star(&mut self) -> Option<()> {
        let leaves = self.number("leaves", NODES_MAX as u64 - 2)?;
        let (trunk, leaf) = (self.part("trunk")?, self.part("leaf")?);
        let source = self.topology.add_node("source".into());
        let hub = self.topology.add_node("hub".into());
        self.draft("trunk", [source, hub], &trunk);
        for number in 1..=leaves {
            let name = format!("leaf-{number}");
            let node = self.topology.add_node(name.clone());
            self.draft(&name, [hub, node], &leaf);
        }
        Some(())
    }

    /// `source` - `hub` - `hub-1`, `hub-2`, ..., each with its share of `leaf-1`, `leaf-2`, ...; the links
    /// are `trunk` and links named after their lower node.
    fn clusters(&mut self) -> Option<()> {
        let sizes = self.sizes("leaves")?;
        let parts = ["trunk", "branch", "leaf"].map(|key| self.part(key));
        let [Some(trunk), Some(branch), Some(leaf)] = parts else { return None };
        let source = self.topology.add_node("source".into());
        let hub = self.topology.add_node("hub".into());
        self.draft("trunk", [source, hub], &trunk);
        let mut leaves = 0;
        for (number, size) in (1..).zip(sizes) {
            let name = format!("hub-{number}");
            let below = self.topology.add_node(name.clone());
            self.draft(&name, [hub, below], &branch);
            for _ in 0..size {
                leaves += 1;
                let name = format!("leaf-{leaves}");
                let node = self.topology.add_node(name.clone());
                self.draft(&name, [below, node], &leaf);
            }
        }
        Some(())
    }

    /// The numbers in the list under `key`, which are few enough nodes together.
    fn sizes(&self, key: &'static str) -> Option<Vec<u64>> {
        let Some(Value::Array(items)) = self.section.node(key).map(|node| &node.value) else {
            let message =
                format!("'{key}' is a list of how many there are in each cluster: {key} = [10, 90]");
            self.section.problem_at(key, message);
            return None;
        };
        let read = |item| u64::read(self.section.context, item, &format!("topology.{key}"));
        let sizes: Vec<u64> = items.iter().map(read).collect::<Option<_>>()?;
        let nodes = sizes.iter().fold(2_u64, |sum, size| sum.saturating_add(1).saturating_add(*size));
        if sizes.is_empty() || nodes > NODES_MAX as u64 {
            self.section.problem_at(
                key,
                format!("'{key}' names at least one cluster, and at most {NODES_MAX} nodes in all"),
            );
            return None;
        }
        Some(sizes)
    }

    /// `source-1`, ... - `left` - `right` - `sink-1`, ...; the links are `bottleneck` and links named after
    /// their outer node.
    fn dumbbell(&mut self) -> Option<()> {
        let pairs = match self.section.node("pairs") {
            Some(_) => self.number("pairs", NODES_MAX as u64 / 2 - 1)?,
            None => 1,
        };
        let (bottleneck, access) = (self.part("bottleneck")?, self.part("access")?);
        let left = self.topology.add_node("left".into());
        let right = self.topology.add_node("right".into());
        self.draft("bottleneck", [left, right], &bottleneck);
        for number in 1..=pairs {
            let name = format!("source-{number}");
            let source = self.topology.add_node(name.clone());
            self.draft(&name, [source, left], &access);
            let name = format!("sink-{number}");
            let sink = self.topology.add_node(name.clone());
            self.draft(&name, [right, sink], &access);
        }
        Some(())
    }

    /// `n0` is the root; the children of k are `n(arity k + 1)` onwards. A link is named after its lower
    /// node.
    fn tree(&mut self) -> Option<()> {
        let arity = self.number("arity", 1_000)?;
        let depth = self.number("depth", 32)?;
        let link = self.part("link")?;
        let mut nodes = 1_u64;
        let mut level = 1_u64;
        for _ in 0..depth {
            level = level.saturating_mul(arity);
            nodes = nodes.saturating_add(level);
        }
        if nodes > NODES_MAX as u64 {
            let message =
                format!("a tree of arity {arity} and depth {depth} has more than {NODES_MAX} nodes");
            self.section.problem_at("depth", message);
            return None;
        }
        self.topology.add_node("n0".into());
        for number in 1..nodes {
            let name = format!("n{number}");
            let node = self.topology.add_node(name.clone());
            let parent = usize::try_from((number - 1) / arity).ok()?;
            self.draft(&name, [parent, node], &link);
        }
        Some(())
    }

    /// Reads `nodes`: nodes in addition to those of the shape.
    fn listed(&mut self) {
        let listed = self.section.texts("nodes");
        if listed.is_empty() && self.topology.nodes.is_empty() {
            self.section.problem_at("nodes", "a graph lists its nodes: nodes = [\"a\", \"b\"]");
        }
        for (name, span) in listed {
            if !problem::is_name(name) {
                self.section.problem(&span, format!("'{name}' cannot be a name: {NAME_RULE}"));
            } else if self.topology.node(name).is_some() {
                self.section.problem(&span, format!("there is a node '{name}' already; choose another name"));
            } else if self.topology.nodes.len() < NODES_MAX {
                self.topology.add_node(name.into());
            } else {
                self.section.problem(&span, format!("a plan has at most {NODES_MAX} nodes"));
                return;
            }
        }
    }

    fn number(&self, key: &'static str, max: u64) -> Option<u64> {
        self.section.need::<u64>(key)?;
        self.section.within(key, &(1..=max))
    }

    /// Returns the parameters shared by the links of a part.
    fn part(&self, key: &'static str) -> Option<(Rc<Table>, Span)> {
        let Some(entry) = self.section.table.entries.get(key) else {
            let message = format!("'{key}' is missing; write {key} = {{ rate = \"10M\", delay = \"5ms\" }}");
            self.section.problem(&self.section.span, message);
            return None;
        };
        match &entry.node.value {
            Value::Table(table) => Some((Rc::new(table.clone()), entry.key.clone())),
            other => {
                let message = format!("'topology.{key}' must be a table, not {}", other.kind());
                self.section.problem(&entry.node.span, message);
                None
            }
        }
    }

    fn draft(&mut self, name: &str, ends: [usize; 2], (table, span): &(Rc<Table>, Span)) {
        self.drafts.push(Draft { name: name.into(), ends, table: Rc::clone(table), span: span.clone() });
    }
}

/// Reads `[link.NAME]`: an additional link if `between` is present, else parameters for a link of the shape.
fn links(plan: &Section<'_>, topology: &Topology, drafts: &mut Vec<Draft>) {
    let indices: BTreeMap<String, usize> =
        drafts.iter().enumerate().map(|(index, draft)| (draft.name.clone(), index)).collect();
    for (name, entry) in named(plan, "link") {
        let Value::Table(table) = &entry.node.value else {
            plan.problem(
                &entry.node.span,
                format!("'link.{name}' must be a table, not {}", entry.node.value.kind()),
            );
            continue;
        };
        match (table.entries.get("between"), indices.get(name)) {
            (Some(between), Some(_)) => {
                let message = format!(
                    "the topology has a link '{name}' already; choose another name, or leave 'between' out"
                );
                plan.problem(&between.key, message);
            }
            (Some(between), None) => {
                if let Some(ends) = ends(plan.context, between, topology) {
                    drafts.push(Draft {
                        name: name.into(),
                        ends,
                        table: Rc::new(table.clone()),
                        span: entry.key.clone(),
                    });
                }
            }
            (None, Some(index)) => {
                let draft = &mut drafts[*index];
                draft.table = Rc::new(merged(&draft.table, Some(table)));
            }
            (None, None) => {
                let hint = problem::hint(name, indices.keys().map(String::as_str));
                let message = format!(
                    "the topology has no link '{name}'; a new one needs between = [\"a\", \"b\"]{hint}"
                );
                plan.problem(&entry.key, message);
            }
        }
    }
}

/// The two nodes of `between`.
fn ends(context: &Context, between: &Entry, topology: &Topology) -> Option<[usize; 2]> {
    let wrong =
        || context.problems.add(&between.node.span, "'between' names two different nodes: [\"a\", \"b\"]");
    let Value::Array(items) = &between.node.value else {
        wrong();
        return None;
    };
    let mut ends = Vec::new();
    for item in items {
        match &item.value {
            Value::Text(name) => ends.push(node(context, topology, name, &item.span)?),
            _ => {
                wrong();
                return None;
            }
        }
    }
    match ends[..] {
        [a, b] if a != b => Some([a, b]),
        _ => {
            wrong();
            None
        }
    }
}

/// Returns the node called `name`, which is written at `span`.
pub(crate) fn node(context: &Context, topology: &Topology, name: &str, span: &Span) -> Option<usize> {
    let found = topology.node(name);
    if found.is_none() {
        let hint = problem::hint(name, topology.nodes.iter().map(String::as_str));
        context.problems.add(span, format!("there is no node '{name}'{hint}"));
    }
    found
}

/// Returns the entries of a table of names, such as `[link.*]`, in the order of the text.
pub(crate) fn named<'a>(plan: &Section<'a>, key: &'static str) -> Vec<(&'a str, &'a Entry)> {
    let Some(node) = plan.node(key) else { return Vec::new() };
    let Value::Table(table) = &node.value else {
        plan.problem(&node.span, format!("write [{key}.NAME] for each {key}"));
        return Vec::new();
    };
    let mut entries = table.in_order();
    entries.retain(|(name, entry)| {
        let is_name = problem::is_name(name);
        if !is_name {
            plan.problem(&entry.key, format!("'{name}' cannot be a name: {NAME_RULE}"));
        }
        is_name
    });
    entries
}

/// The representative of a component, with paths halved on the way.
fn root(parents: &mut [usize], mut node: usize) -> usize {
    while parents[node] != node {
        parents[node] = parents[parents[node]];
        node = parents[node];
    }
    node
}
