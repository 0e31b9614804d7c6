//! Measurements that a plan requests in addition to the totals of each flow.

use headwater_proto::Duration;

use super::flow::Flow;
use super::problem;
use super::section::Section;
use super::topology::Topology;

/// Number of links up to which all links are reported by default.
const LINKS_DEFAULT_MAX: usize = 32;
/// Maximum number of bins of a series, so that a result stays readable.
const BINS_MAX: u64 = 100_000;
/// Maximum number of readings in a series, over all flows and links: each takes some 400 bytes during a run.
const READINGS_MAX: u64 = 2_000_000;

/// Requested measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Links reported, as indices into the scenario's links.
    pub links: Vec<usize>,
    /// Width of the bins of series over time; no series if absent.
    pub bin: Option<Duration>,
    /// Convergence to an even share.
    pub convergence: Option<Convergence>,
    /// Flows whose completion ends the run early, as indices into the scenario's flows; if empty, the run
    /// ends with its time.
    pub until: Vec<usize>,
}

/// Measurement of convergence to an even share, as defined by [`crate::measure::converged_at`].
#[derive(Clone, Debug, PartialEq)]
pub struct Convergence {
    /// The flows that share, as indices into the scenario's flows.
    pub flows: Vec<usize>,
    /// The time counts from here.
    pub from: Duration,
    /// Maximum relative deviation from the even share.
    pub delta: f64,
    /// Time over which a rate is averaged.
    pub bin: Duration,
    /// Time for which the even share must hold.
    pub hold: Duration,
}

/// Reads `[measure]`.
pub(crate) fn read(plan: &Section<'_>, topology: &Topology, flows: &[Flow], duration: Duration) -> Measure {
    const KEYS: &[&str] = &["links", "bin", "convergence", "until"];
    let all = || {
        if topology.links.len() <= LINKS_DEFAULT_MAX {
            (0..topology.links.len()).collect()
        } else {
            Vec::new()
        }
    };
    let Some(section) = plan.section("measure", KEYS) else {
        return Measure { links: all(), bin: None, convergence: None, until: Vec::new() };
    };
    let links = if section.node("links").is_some() { links(&section, topology) } else { all() };
    let members = flows.iter().map(Flow::members_read).sum::<usize>();
    let series = Bins { duration, read: flows.len() + members + links.len() };
    let bin = section.get("bin").filter(|bin| series.check(&section, *bin));
    let convergence = convergence(&section, flows, &series);
    let until = until(&section, flows);
    Measure { links, bin, convergence, until }
}

fn links(section: &Section<'_>, topology: &Topology) -> Vec<usize> {
    let mut chosen = Vec::new();
    for (pattern, span) in section.texts("links") {
        let before = chosen.len();
        let links = topology.links.iter().enumerate();
        chosen
            .extend(links.filter(|(_, link)| problem::matches(pattern, &link.name)).map(|(index, _)| index));
        if chosen.len() == before {
            let hint = problem::hint(pattern, topology.links.iter().map(|link| link.name.as_str()));
            section.problem(&span, format!("there is no link '{pattern}'{hint}"));
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Size of a series.
struct Bins {
    duration: Duration,
    /// Flows and links that are read at the edge of each bin.
    read: usize,
}

impl Bins {
    /// Whether bins of this width are few enough.
    fn check(&self, section: &Section<'_>, bin: Duration) -> bool {
        let most = BINS_MAX.min(READINGS_MAX / self.read.max(1) as u64);
        let is_right = bin > Duration::ZERO && self.duration.as_nanos() / bin.as_nanos().max(1) <= most;
        if !is_right {
            let message = format!(
                "bins must be longer than 0, and at most {most} in a run with {} flows and links",
                self.read
            );
            section.problem_at("bin", message);
        }
        is_right
    }
}

/// Returns the flows whose names or groups match the patterns under `key`.
fn chosen(section: &Section<'_>, key: &'static str, flows: &[Flow]) -> Vec<usize> {
    let mut chosen = Vec::new();
    for (pattern, span) in section.texts(key) {
        let before = chosen.len();
        let found = flows
            .iter()
            .enumerate()
            .filter(|(_, flow)| problem::matches(pattern, &flow.name) || flow.group == pattern);
        chosen.extend(found.map(|(index, _)| index));
        if chosen.len() == before {
            let hint = problem::hint(pattern, flows.iter().map(|flow| flow.name.as_str()));
            section.problem(&span, format!("there is no flow '{pattern}'{hint}"));
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

fn until(section: &Section<'_>, flows: &[Flow]) -> Vec<usize> {
    let until = chosen(section, "until", flows);
    for flow in until.iter().map(|flow| &flows[*flow]).filter(|flow| !flow.kind.ends()) {
        let message = format!(
            "'{}' sends without end, and the run would wait for it in vain; give a tcp 'bytes', a session a 'size'",
            flow.name
        );
        section.problem_at("until", message);
    }
    until
}

fn convergence(measure: &Section<'_>, flows: &[Flow], bins: &Bins) -> Option<Convergence> {
    let section = measure.section("convergence", &["flows", "from", "delta", "bin", "hold"])?;
    let chosen = chosen(&section, "flows", flows);
    if chosen.is_empty() {
        section.problem_at("flows", "name the flows that share: flows = [\"tcp\"]");
    }
    let delta = section.or("delta", 0.1);
    if !(0.0..1.0).contains(&delta) || delta == 0.0 {
        section.problem_at("delta", "'delta' must be above 0 and below 1");
    }
    let bin = section.or("bin", Duration::from_secs(1));
    bins.check(&section, bin);
    let hold = section.or("hold", Duration::from_secs(5));
    let from = section.or("from", Duration::ZERO);
    Some(Convergence { flows: chosen, from, delta, bin, hold })
}
