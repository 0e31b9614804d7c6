//! What was looked at, how it is, and what to do.

use std::fmt;

use super::probes::Peer;
use super::sessions::Session;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing stands in the way.
    Ok,
    /// It could not be looked at, or there was nothing to see. Says neither yes nor no.
    Unknown,
    /// It works, but not well, or not for everybody.
    Warning,
    /// Nothing will arrive until this is changed.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What, in a word or two; the same in every run.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do, where there is something to do.
    pub advice: Option<String>,
    /// The sessions that were heard, for the check of that name.
    pub sessions: Vec<Session>,
    /// The peers that answered, for the check of that name.
    pub peers: Vec<Peer>,
}

/// All that was looked at.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which a packet meets them.
    pub checks: Vec<Check>,
}

impl Verdict {
    /// One word.
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

    /// Something worth saying where nothing is wrong.
    pub(super) fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    fn new(name: &'static str, verdict: Verdict, seen: String, advice: Option<String>) -> Self {
        Self { name, verdict, seen, advice, sessions: Vec::new(), peers: Vec::new() }
    }
}

impl Report {
    /// How many checks came out so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }

    /// The worst of all.
    pub fn verdict(&self) -> Verdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok)
    }
}
