//! What is measured.

use std::{sync::Arc, time::Duration};

use superstep::{Checkpointer, CompiledGraph, MemoryCheckpointer, RunConfig, State};
use tokio::runtime::Runtime;

use crate::{
    Message, Stopwatch,
    floor::{self, Graph, Memory},
    on_worker,
    ours::{self, Work},
};

/// One run; how long it took.
pub(crate) type Run = Box<dyn FnMut() -> Duration>;

/// The same work for both sides.
pub(crate) struct Case {
    /// What is done, with which size, and where checkpoints go.
    pub(crate) name: String,
    /// By how many supersteps a time is divided; 1 if the whole run counts.
    pub(crate) steps: u64,
    pub(crate) floor: Run,
    pub(crate) superstep: Run,
}

/// Where checkpoints go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nowhere,
    Memory,
}

impl Kept {
    const ALL: [Self; 2] = [Self::Nowhere, Self::Memory];

    fn name(self) -> &'static str {
        match self {
            Self::Nowhere => "none",
            Self::Memory => "memory",
        }
    }
}

/// All cases.
pub(crate) fn cases(runtime: &Arc<Runtime>) -> Vec<Case> {
    let mut cases = Vec::new();
    for kept in Kept::ALL {
        let bench = Bench { runtime: runtime.clone(), kept };
        cases.push(bench.case("loop", 1_000, 1_000, floor::looped(1_000), ours::looped(1_000)));
        for size in [10, 100, 1_000] {
            cases.push(bench.case("chain", size, size, floor::chain(size), ours::chain(size)));
        }
        cases.push(bench.case("fan-out", 100, 1, floor::fan_out(100), ours::fan_out(100)));
        for size in [10, 100, 1_000, 10_000] {
            cases.push(bench.appends(size, 100));
        }
    }
    cases
}

/// One way of keeping checkpoints.
struct Bench {
    runtime: Arc<Runtime>,
    kept: Kept,
}

impl Bench {
    fn case(
        &self,
        work: &str,
        size: usize,
        steps: usize,
        floor: Graph,
        superstep: CompiledGraph<Work>,
    ) -> Case {
        Case {
            name: self.name(work, size),
            steps: steps as u64,
            floor: self.floor(floor, 0, None),
            superstep: self.superstep(superstep, 0, None),
        }
    }

    /// Appends one message per step to a list of `size` messages.
    fn appends(&self, size: usize, steps: u64) -> Case {
        let stopwatch = Stopwatch::default();
        let floor = floor::appends(steps as i64, stopwatch.clone());
        let superstep = ours::appends(steps as i64, stopwatch.clone());
        Case {
            name: self.name("appends", size),
            steps,
            floor: self.floor(floor, size, Some(stopwatch.clone())),
            superstep: self.superstep(superstep, size, Some(stopwatch)),
        }
    }

    fn name(&self, work: &str, size: usize) -> String {
        format!("{work}/{size}/{}", self.kept.name())
    }

    fn floor(&self, graph: Graph, messages: usize, stopwatch: Option<Stopwatch>) -> Run {
        let (runtime, kept, graph) = (self.runtime.clone(), self.kept, Arc::new(graph));
        Box::new(move || {
            let memory = (kept == Kept::Memory).then(Arc::<Memory>::default);
            let state = floor::State { messages: history(messages).collect(), ..floor::State::default() };
            let run = floor::run(graph.clone(), Arc::new(state), memory.clone());
            // What the run made is dropped after the time was taken.
            let (elapsed, _made) = on_worker(&runtime, run, stopwatch.clone());
            elapsed
        })
    }

    fn superstep(&self, graph: CompiledGraph<Work>, messages: usize, stopwatch: Option<Stopwatch>) -> Run {
        let (runtime, kept) = (self.runtime.clone(), self.kept);
        Box::new(move || {
            let checkpointer: Option<Arc<dyn Checkpointer>> = match kept {
                Kept::Nowhere => None,
                Kept::Memory => Some(Arc::new(MemoryCheckpointer::new())),
            };
            let graph = match &checkpointer {
                Some(checkpointer) => graph.clone().with_checkpointer(checkpointer.clone()),
                None => graph.clone(),
            };
            let input = Work::update().messages(history(messages).collect::<Vec<_>>());
            let config = RunConfig { step_limit: 2_000, ..RunConfig::thread("bench") };
            let run = async move { graph.invoke(input, config).await.expect("the run completes") };
            let (elapsed, _made) = on_worker(&runtime, run, stopwatch.clone());
            elapsed
        })
    }
}

fn history(messages: usize) -> impl Iterator<Item = Message> {
    (0..messages).map(|number| Message::numbered(number as i64))
}
