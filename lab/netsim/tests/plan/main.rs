//! Plans: what they mean, and what is said of those that are wrong.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod baselines;
mod errors;
mod hostile;
mod le_sbcc;
mod meaning;
mod rainbow;
mod rules;
mod running;
mod sessions;
mod sim;

use headwater_netsim::plan::run::Outcome;
use headwater_netsim::plan::{Plan, PlanError};

/// Two TCPs over a bottleneck: right, and short enough to be spoilt.
pub const DUMBBELL: &str = r#"
name = "two"
seed = 7
runs = 3
duration = "60s"
warm-up = "10s"

[tcp]
profile = "ns2005"

[topology]
kind = "dumbbell"
pairs = 2
access = { rate = "10M", delay = "1ms" }
bottleneck = { rate = "1M", delay = "20ms", queue = { packets = 25 }, loss = { kind = "bernoulli", p = 0.01, filter = "data" } }

[flow.tcp]
kind = "tcp"
count = 2
from = "source-{i}"
to = "sink-{i}"
start = { uniform = ["0s", "5s"] }

[[at]]
time = "30s"
link = "bottleneck"
rate = "500k"
"#;

/// A source and leaves of a star.
pub const STAR: &str = r#"
name = "star"
duration = "10s"

[topology]
kind = "star"
leaves = 5
trunk = { rate = "10M", delay = "5ms" }
leaf = { rate = "2M", delay = { uniform = ["5ms", "50ms"] } }

[link.leaf-2]
rate = "1M"

[flow.file]
kind = "fixed"
from = "source"
receivers = "leaf-*"
rate = "1M"
size = "100kB"
join = { uniform = ["0s", "2s"] }

[flow.file.member.leaf-3]
join = "4s"
leave = "5s"
"#;

/// Parses a plan called `p.toml`.
pub fn parse(text: &str) -> Result<Plan, PlanError> {
    Plan::parse("p.toml", text)
}

/// The first run of a plan.
pub fn outcome(text: &str) -> Outcome {
    let plan = parse(text).unwrap();
    plan.run(&plan.cell(0), 1, &mut ()).unwrap()
}

/// `text` with `from` replaced by `to`, which must change it.
pub fn spoilt(text: &str, from: &str, to: &str) -> String {
    let spoilt = text.replacen(from, to, 1);
    assert_ne!(spoilt, text, "'{from}' is not in the plan");
    spoilt
}
