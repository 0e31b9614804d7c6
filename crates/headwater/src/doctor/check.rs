//! Checks: subject, verdict, advice.

use std::fmt;

use super::probes::Peer;
use super::sessions::FoundSession;

/// Verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No problem.
    Ok,
    /// The check was impossible or inconclusive.
    Unknown,
    /// Works, but not well, or not for every receiver.
    Warning,
    /// No packet arrives until this problem is solved.
    Problem,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Subject in a word or two; the same in every run.
    pub name: &'static str,
    /// Verdict.
    pub verdict: Verdict,
    /// Observation.
    pub seen: String,
    /// Advice, if any.
    pub advice: Option<String>,
    /// Received sessions, in the check `sessions`.
    pub sessions: Vec<FoundSession>,
    /// Peers that answered, in the check `peers`.
    pub peers: Vec<Peer>,
}

/// Results of all checks.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Checks in the order of the path of a packet.
    pub checks: Vec<Check>,
}

impl Verdict {
    /// Returns the verdict as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Check {
    pub(super) fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, seen.into(), None)
    }

    pub(super) fn unknown(name: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::Unknown, seen.into(), Some(advice.into()))
    }

    pub(super) fn warning(name: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::Warning, seen.into(), Some(advice.into()))
    }

    pub(super) fn problem(name: &'static str, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(name, Verdict::Problem, seen.into(), Some(advice.into()))
    }

    /// Adds advice to a check without a problem.
    pub(super) fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    fn new(name: &'static str, verdict: Verdict, seen: String, advice: Option<String>) -> Self {
        Self { name, verdict, seen, advice, sessions: Vec::new(), peers: Vec::new() }
    }
}

impl Report {
    /// Returns the number of checks with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }

    /// Returns the worst verdict.
    pub fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok)
    }
}
