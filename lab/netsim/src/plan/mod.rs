//! Plans: an experiment as text (TOML), checked before anything runs. The format is described in
//! `docs/reference/plans.md`.
//!
//! [`Plan::parse`] reads a plan, multiplies its sweeps into cells, and checks each cell. [`Plan::scenario`]
//! returns the scenario of a run of a cell. [`Plan::key`] returns the run's permanent name, under which
//! results are stored.
//!
//! ```
//! use headwater_netsim::plan::Plan;
//!
//! let plan = Plan::parse(
//!     "two.toml",
//!     r#"
//!     name = "two"
//!     duration = "60s"
//!     topology.kind = "dumbbell"
//!     topology.pairs = 2
//!     topology.bottleneck = { rate = "1M", delay = "20ms" }
//!     topology.access = { rate = "10M", delay = "1ms" }
//!     [flow.tcp]
//!     kind = "tcp"
//!     count = 2
//!     from = "source-{i}"
//!     to = "sink-{i}"
//!     [[sweep]]
//!     "topology.bottleneck.rate" = ["1M", "2M"]
//!     "#,
//! )?;
//! assert_eq!(plan.cells(), 2);
//! assert_eq!(plan.scenario(&plan.cell(1), 1)?.flows[1].name, "tcp-2");
//! # Ok::<(), headwater_netsim::plan::PlanError>(())
//! ```

pub mod control;
pub mod flow;
mod host;
pub mod link;
mod problem;
pub mod queue;
pub mod run;
pub mod scenario;
mod section;
mod sweep;
pub mod timetable;
pub mod topology;
mod tree;
mod value;
pub mod wanted;

use std::collections::BTreeMap;
use std::fmt;

use headwater_proto::Seed;
use serde_json::Value as Json;

pub use problem::PlanError;
pub use scenario::Scenario;
pub use sweep::CELLS_MAX;

use problem::{Problem, Problems};
use scenario::PLAN_KEYS;
use section::{Context, Section};
use sweep::{Dimension, coordinates};
use tree::Table;

/// Maximum size of a plan in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// Maximum number of runs of a plan, over all cells: a list of runs takes some 100 bytes each.
const RUNS_MAX: u64 = 1_000_000;

/// Keys of a plan that do not change a run's behaviour, and are not part of a run's key.
const NOT_KEYED: &[&str] = &["title", "runs", "sweep", "seed"];

/// A plan with every cell checked.
#[derive(Clone, Debug)]
pub struct Plan {
    file: String,
    text: String,
    tree: Table,
    dimensions: Vec<Dimension>,
    name: String,
    title: Option<String>,
    seed: Seed,
    runs: u64,
}

/// A cell: a plan with a value for each swept path.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Number of the cell, from 0: the last sweep of the plan changes fastest.
    pub index: usize,
    /// Swept paths and their values in this cell.
    pub values: BTreeMap<String, Json>,
    tree: Table,
}

/// Name of a run of a cell: 16 bytes of BLAKE3 over the version of the simulator, the cell, the seed and the
/// number of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 16]);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Plan {
    /// Reads and checks the text of a plan; `file` is the file name in error messages.
    ///
    /// # Errors
    ///
    /// The mistakes of the plan, each with its place and a correction.
    pub fn parse(file: &str, text: &str) -> Result<Self, PlanError> {
        let error = |problems| PlanError::new(file, text, problems);
        if text.len() > TEXT_BYTES_MAX {
            let message = format!("a plan has at most {TEXT_BYTES_MAX} bytes");
            return Err(error(vec![Problem { span: 0..0, message }]));
        }
        let tree = Table::parse(text).map_err(|problem| error(vec![problem]))?;
        let plan = Self::read(file, text, tree).map_err(error)?;
        for index in 0..plan.cells() {
            plan.scenario(&plan.cell(index), 1)?;
        }
        Ok(plan)
    }

    /// Reads the parts of the plan that do not depend on a cell.
    fn read(file: &str, text: &str, mut tree: Table) -> Result<Self, Vec<Problem>> {
        let context = Context { problems: Problems::default(), seed: Seed(1), run: 1 };
        let plan = Section::new(&context, &tree, 0..0, "", PLAN_KEYS);
        let name: String = plan.need("name").unwrap_or_default();
        if plan.node("name").is_some() && !problem::is_name(&name) {
            plan.problem_at("name", format!("'{name}' cannot name a plan: {}", problem::NAME_RULE));
        }
        let title = plan.get("title");
        let seed = Seed(plan.or("seed", 1));
        let runs = match plan.node("runs") {
            None => 1,
            Some(_) => plan.within("runs", &(1..=RUNS_MAX)).unwrap_or(1),
        };
        let dimensions = sweep::read(&context, &tree);
        let cells: usize = dimensions.iter().map(|dimension| dimension.len).product();
        if runs.saturating_mul(cells as u64) > RUNS_MAX {
            plan.problem_at("runs", format!("{cells} cells of {runs} runs are more than {RUNS_MAX} in all"));
        }
        context.problems.into_result(())?;
        tree.entries.remove("sweep");
        Ok(Self { file: file.into(), text: text.into(), tree, dimensions, name, title, seed, runs })
    }

    /// Replaces the seed.
    #[must_use]
    pub fn with_seed(self, seed: Seed) -> Self {
        Self { seed, ..self }
    }

    /// Name of the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Title for readers; default the name.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// Seed of the plan.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Runs of each cell.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Number of cells; 1 without sweeps.
    pub fn cells(&self) -> usize {
        self.dimensions.iter().map(|dimension| dimension.len).product()
    }

    /// The paths that are swept, in the order of the plan.
    pub fn swept(&self) -> Vec<&str> {
        self.dimensions.iter().flat_map(|one| &one.paths).map(|path| path.path.as_str()).collect()
    }

    /// Cell `index`, which is below [`Plan::cells`].
    pub fn cell(&self, index: usize) -> Cell {
        let mut tree = self.tree.clone();
        let mut values = BTreeMap::new();
        for (dimension, coordinate) in self.dimensions.iter().zip(coordinates(&self.dimensions, index)) {
            for path in &dimension.paths {
                let value = &path.values[coordinate];
                sweep::put(&mut tree, path, value);
                values.insert(path.path.clone(), value.value.to_json());
            }
        }
        Cell { index, values, tree }
    }

    /// Returns the scenario of `cell` in run `run`, counted from 1.
    ///
    /// # Errors
    ///
    /// Never in run 1 of a cell of this plan, because [`Plan::parse`] has checked all cells. In a later run,
    /// if two randomly drawn values contradict each other: a stop before its start.
    pub fn scenario(&self, cell: &Cell, run: u64) -> Result<Scenario, PlanError> {
        let context = Context { problems: Problems::default(), seed: self.seed, run };
        let plan = Section::new(&context, &cell.tree, 0..0, "", PLAN_KEYS);
        let scenario = scenario::read(&plan);
        let Context { problems, .. } = context;
        match (problems.into_result(()), scenario) {
            (Ok(()), Some(scenario)) => Ok(scenario),
            (Err(problems), _) => Err(self.error(problems)),
            (Ok(()), None) => {
                let message = "this plan cannot be read, and no reason was found".into();
                Err(self.error(vec![Problem { span: 0..0, message }]))
            }
        }
    }

    /// The name of run `run` of `cell`.
    pub fn key(&self, cell: &Cell, run: u64) -> Key {
        let mut hasher = blake3::Hasher::new_derive_key("headwater 2026 simulated run");
        let version = env!("CARGO_PKG_VERSION");
        hasher.update(&(version.len() as u64).to_le_bytes()).update(version.as_bytes());
        hasher.update(&self.seed.0.to_le_bytes()).update(&run.to_le_bytes());
        hasher.update(keyed(&cell.tree).to_string().as_bytes());
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Key(key)
    }

    /// Digest of the plan's content, independent of its layout.
    pub fn digest(&self) -> Key {
        let mut hasher = blake3::Hasher::new_derive_key("headwater 2026 plan");
        for index in 0..self.cells() {
            hasher.update(keyed(&self.cell(index).tree).to_string().as_bytes());
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Key(key)
    }

    /// The whole plan without its sweeps, as results quote the plan.
    pub fn parameters(&self) -> Json {
        self.tree.to_json()
    }

    fn error(&self, problems: Vec<Problem>) -> PlanError {
        PlanError::new(&self.file, &self.text, problems)
    }
}

fn keyed(tree: &Table) -> Json {
    let mut json = tree.to_json();
    if let Json::Object(object) = &mut json {
        object.retain(|key, _| !NOT_KEYED.contains(&key.as_str()));
    }
    json
}
