//! Simulated runs in which siblings end in any order and the process crashes anywhere, compared with a plain
//! run.
//!
//! ```text
//! seed ─▶ process ─▶ crash ─▶ process ─▶ crash ─▶ … ─▶ the thread is finished
//!            └── waits of nodes and of the store ──┘        │
//! plain run: no waits, no crashes ─────────────────────── equal?
//! ```
//!
//! Start at [`check`].

mod course;
mod faults;
mod ledger;
mod life;
mod process;
mod report;
mod store;

use std::{ops::Range, sync::Arc};

use serde_json::Value;
use superstep_graph::{Checkpointer, CompiledGraph, Interrupt, MemoryCheckpointer, RunOptions, State};

use self::life::Simulation;
pub use self::{
    process::{CrashPoint, Sim},
    report::{Failure, Passes, Report},
};

/// The environment variable that makes [`check`] run one seed alone.
pub const SEED_VARIABLE: &str = "SUPERSTEP_SIM_SEED";

/// The settings of a simulation.
#[derive(Clone)]
pub struct Options {
    /// The seeds. A quarter of them have no crashes, a quarter one crash, the others many.
    pub seeds: Range<u64>,
    /// Opens the store for each process; it must have the same threads each time. Its requests complete at
    /// one instant of the simulated clock, so it must not wait for that clock.
    pub store: Arc<dyn Fn() -> Arc<dyn Checkpointer>>,
    /// The answer to an interrupt; `None` for no answer. The seed decides the order of the answers, and how
    /// many are given at the same time.
    pub answer: fn(&Interrupt) -> Option<Value>,
    /// The options of every run. The simulator sets thread, clock and answers.
    pub run: RunOptions,
}

impl Options {
    /// Creates settings with these seeds, in memory, without answers and with default settings.
    pub fn seeds(seeds: Range<u64>) -> Self {
        let store: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
        Self { seeds, store: Arc::new(move || store.clone()), answer: |_| None, run: RunOptions::new() }
    }
}

impl Default for Options {
    /// Returns 2,000 seeds, otherwise like [`Options::seeds`].
    fn default() -> Self {
        Self::seeds(0..2_000)
    }
}

/// Runs a graph under every seed and compares each result with that of a plain run.
///
/// `make` builds the graph without a checkpointer, once for every simulated process. Each of the `inputs` is
/// passed when the run of the previous one is finished.
///
/// Under a seed, nodes wait for a random time at their beginning, at their end, and at each call of `Cx` that waits, and so
/// does the store before and after each write. The process may crash at each of these places: the run is dropped with all its
/// tasks, and a new graph on a reopened store continues. At a call that does not wait, such as
/// [`Cx::emit`](superstep_graph::Cx::emit), the process stops at the next place where the node waits. A write of the store may
/// also fail, before or after it was written; the process ends with its error. Models and tools fail with [`Sim::model`] and
/// [`Sim::tool`]. The result must equal the plain run byte by byte: the state, the
/// checkpoints (source, superstep, pending nodes), and the stored updates in fold order. In addition, the ids
/// of checkpoints must ascend, each parent must be the previous checkpoint, a dropped run must release its
/// thread, and no finished task may run again.
///
/// With `SUPERSTEP_SIM_SEED=17` in the environment, only seed 17 runs. Use [`explore`] to inspect failures.
///
/// # Determinism
/// Depends on its arguments and that variable only, if the graph does. A graph with other clocks, random
/// numbers or threads may fail without a defect. The graph's clock, [`Cx::now_ms`], is fixed; timers fire as
/// soon as no other work is left.
///
/// # Panics
/// If the result of a seed differs; lists the seeds and differences. Inside a tokio runtime, because it
/// creates one for each process.
///
/// # Example
/// ```
/// use superstep_graph::{Cx, END, Log, START, State, StateGraph};
/// use superstep_testing::sim::{self, Options};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Words {
///     #[channel(append)]
///     log: Log<String>,
/// }
///
/// let two_at_once = |_: &_| {
///     let mut graph = StateGraph::<Words>::new("two_at_once");
///     for name in ["left", "right"] {
///         let node = graph.add_node(name, async |_, cx: Cx| Words::update().log([cx.node().to_string()]));
///         graph.add_edge(START, node);
///         graph.add_edge(node, END);
///     }
///     graph.compile().expect("the graph is complete")
/// };
/// let report = sim::check(Options::seeds(0..50), two_at_once, [Words::update()]);
/// assert!(report.crashes > 0);
/// ```
///
/// [`Cx::now_ms`]: superstep_graph::Cx::now_ms
pub fn check<S: State>(
    options: Options,
    make: impl Fn(&Sim) -> CompiledGraph<S>,
    inputs: impl IntoIterator<Item = S::Update>,
) -> Report {
    let seeds = match std::env::var(SEED_VARIABLE) {
        Ok(seed) => one_seed(&seed),
        Err(_) => options.seeds.clone(),
    };
    let report = explore(Options { seeds, ..options }, make, inputs);
    assert!(report.failures.is_empty(), "{report}");
    report
}

/// Like [`check`], but returns the failing seeds, and ignores the environment.
///
/// # Panics
/// If the plain run fails. Inside a tokio runtime.
pub fn explore<S: State>(
    options: Options,
    make: impl Fn(&Sim) -> CompiledGraph<S>,
    inputs: impl IntoIterator<Item = S::Update>,
) -> Report {
    Simulation { options, make: &make, inputs: inputs.into_iter().collect() }.run()
}

fn one_seed(text: &str) -> Range<u64> {
    match text.trim().parse::<u64>() {
        Ok(seed) if seed < u64::MAX => seed..seed + 1,
        _ => panic!("{SEED_VARIABLE} is `{text}`, which is not a valid seed; use a number, or unset it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_taken_from_the_environment() {
        assert_eq!(one_seed("17"), 17..18);
        assert_eq!(one_seed(" 0\n"), 0..1);
    }

    #[test]
    #[should_panic(expected = "SUPERSTEP_SIM_SEED is `all`, which is not a valid seed; use a number, or \
        unset it")]
    fn an_invalid_seed_is_rejected() {
        one_seed("all");
    }
}
