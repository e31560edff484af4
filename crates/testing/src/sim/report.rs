//! The result of a simulation.

use std::{collections::BTreeMap, fmt};

use super::{CrashPoint, SEED_VARIABLE};

/// The number of failures shown in full, and of crashes shown for each.
const SHOWN: usize = 5;

/// The result of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The graph's name.
    pub graph: String,
    /// The number of seeds.
    pub seeds: u64,
    /// The number of crashes.
    pub crashes: u64,
    /// The number of started attempts of tasks.
    pub executions: u64,
    /// The number of attempts in the plain run.
    pub plain_executions: u64,
    /// The places where the process could crash.
    pub places: BTreeMap<CrashPoint, Passes>,
    /// The seeds whose result differs from the plain run.
    pub failures: Vec<Failure>,
}

/// The number of passes of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// The number of all passes.
    pub passed: u64,
    /// The number of passes with a crash.
    pub crashed: u64,
}

/// A seed whose result differs from the plain run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The places of its crashes, in order.
    pub crashes: Vec<CrashPoint>,
    /// The difference.
    pub what: String,
}

impl Report {
    /// Returns the places at which no seed crashed: empty if there were enough seeds.
    pub fn never_crashed_at(&self) -> Vec<&CrashPoint> {
        self.places.iter().filter(|(_, passes)| passes.crashed == 0).map(|(place, _)| place).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { graph, seeds, crashes, failures, .. } = self;
        write!(f, "graph `{graph}`: {seeds} seeds with {crashes} crashes")?;
        let Some(Failure { seed, .. }) = failures.first() else {
            return write!(f, " ended as the plain run did");
        };
        write!(f, ", {} of them failed; run one alone with {SEED_VARIABLE}={seed}", failures.len())?;
        for failure in failures.iter().take(SHOWN) {
            write!(f, "\n  {failure}")?;
        }
        let more: Vec<String> = failures.iter().skip(SHOWN).map(|failure| failure.seed.to_string()).collect();
        if !more.is_empty() {
            write!(f, "\n  and seeds {}", more.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        for (nth, place) in self.crashes.iter().take(SHOWN).enumerate() {
            write!(f, "{} {place}", if nth == 0 { ", stopped" } else { ", then" })?;
        }
        if let more @ 1.. = self.crashes.len().saturating_sub(SHOWN) {
            write!(f, ", then {more} times more")?;
        }
        write!(f, ": {}", self.what)
    }
}
