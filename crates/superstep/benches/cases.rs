//! The measured cases.

use std::{sync::Arc, time::Duration};

use superstep::{CompiledGraph, MemoryCheckpointer, State as _};
use tokio::runtime::Runtime;

#[cfg(feature = "sqlite")]
use crate::sqlite;
use crate::{
    floor::{self, Graph, Memory},
    ours,
    stopwatch::{Message, Stopwatch, on_worker},
};

/// One run, which returns its duration.
pub(crate) type Run = Box<dyn FnMut() -> Duration>;

/// One case for both sides.
pub(crate) struct Case {
    /// The work, its size, and the checkpointer.
    pub(crate) name: String,
    /// The divisor of a time: the number of supersteps, or 1 for the whole run.
    pub(crate) steps: u64,
    pub(crate) floor: Run,
    pub(crate) superstep: Run,
}

/// The destination of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nowhere,
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl Kept {
    const ALL: &[Self] = &[
        Self::Nowhere,
        Self::Memory,
        #[cfg(feature = "sqlite")]
        Self::Sqlite,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Nowhere => "none",
            Self::Memory => "memory",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => "sqlite",
        }
    }
}

/// The kind and size of the work.
#[derive(Clone, Copy)]
enum Work {
    Loop(usize),
    Chain(usize),
    FanOut(usize),
    /// A fan-out, compared with bare tasks that do nothing.
    BareTasks(usize),
    /// The number of messages before a hundred further ones.
    Appends(usize),
}

impl Work {
    const ALL: [Self; 10] = [
        Self::Loop(1_000),
        Self::Chain(10),
        Self::Chain(100),
        Self::Chain(1_000),
        Self::FanOut(100),
        Self::BareTasks(100),
        Self::Appends(10),
        Self::Appends(100),
        Self::Appends(1_000),
        Self::Appends(10_000),
    ];
    const APPENDS: usize = 100;

    fn name(self) -> String {
        match self {
            Self::Loop(size) => format!("loop/{size}"),
            Self::Chain(size) => format!("chain/{size}"),
            Self::FanOut(size) => format!("fan-out/{size}"),
            Self::BareTasks(size) => format!("fan-out-beside-bare-tasks/{size}"),
            Self::Appends(size) => format!("appends/{size}"),
        }
    }

    fn steps(self) -> u64 {
        match self {
            Self::Loop(size) | Self::Chain(size) => size as u64,
            Self::FanOut(_) | Self::BareTasks(_) => 1,
            Self::Appends(_) => Self::APPENDS as u64,
        }
    }

    fn messages(self) -> impl Iterator<Item = Message> {
        let count = if let Self::Appends(size) = self { size } else { 0 };
        (0..count).map(|number| Message::numbered(number as i64))
    }

    fn floor(self, stopwatch: &Stopwatch) -> Graph {
        match self {
            Self::Loop(size) => floor::looped(size as i64),
            Self::Chain(size) => floor::chain(size),
            Self::FanOut(size) => floor::fan_out(size),
            Self::BareTasks(size) => floor::bare_tasks(size),
            Self::Appends(_) => floor::appends(Self::APPENDS as i64, stopwatch.clone()),
        }
    }

    fn superstep(self, stopwatch: &Stopwatch) -> CompiledGraph<ours::Work> {
        match self {
            Self::Loop(size) => ours::looped(size as i64),
            Self::Chain(size) => ours::chain(size),
            Self::FanOut(size) | Self::BareTasks(size) => ours::fan_out(size),
            Self::Appends(_) => ours::appends(Self::APPENDS as i64, stopwatch.clone()),
        }
    }
}

/// Returns the cases whose name contains `only`.
pub(crate) fn cases(runtime: &Arc<Runtime>, only: &str) -> Vec<Case> {
    let all = Kept::ALL.iter().flat_map(|&kept| Work::ALL.map(|work| (kept, work)));
    // Bare tasks store nothing.
    let all = all.filter(|(kept, work)| *kept == Kept::Nowhere || !matches!(work, Work::BareTasks(_)));
    let named = all.map(|(kept, work)| (kept, work, format!("{}/{}", work.name(), kept.name())));
    let wanted = named.filter(|(.., name)| name.contains(only));
    let case = |(kept, work, name)| {
        let floor = match kept {
            #[cfg(feature = "sqlite")]
            Kept::Sqlite => sqlite_floor(runtime, work),
            Kept::Nowhere | Kept::Memory => floor_run(runtime, kept, work),
        };
        Case { name, steps: work.steps(), floor, superstep: superstep_run(runtime, kept, work) }
    };
    wanted.map(case).collect()
}

fn floor_run(runtime: &Arc<Runtime>, kept: Kept, work: Work) -> Run {
    let (runtime, stopwatch) = (runtime.clone(), Stopwatch::default());
    let graph = Arc::new(work.floor(&stopwatch));
    Box::new(move || {
        let memory = (kept == Kept::Memory).then(Arc::<Memory>::default);
        let state = floor::State { messages: work.messages().collect(), ..floor::State::default() };
        let run = floor::run(graph.clone(), Arc::new(state), memory.clone());
        // The run's results are dropped after the time is measured.
        let (elapsed, _made) = on_worker(&runtime, run, &stopwatch);
        elapsed
    })
}

fn superstep_run(runtime: &Arc<Runtime>, kept: Kept, work: Work) -> Run {
    let (runtime, stopwatch) = (runtime.clone(), Stopwatch::default());
    let graph = work.superstep(&stopwatch);
    Box::new(move || match kept {
        Kept::Nowhere => invoke(&runtime, &graph, work, &stopwatch),
        Kept::Memory => {
            let graph = graph.clone().with_checkpointer(Arc::new(MemoryCheckpointer::new()));
            invoke(&runtime, &graph, work, &stopwatch)
        }
        #[cfg(feature = "sqlite")]
        Kept::Sqlite => {
            let folder = tempfile::tempdir().expect("a folder can be made");
            let checkpointer = sqlite::open(&folder.path().join("bench.db"));
            // The statement of the baseline is prepared before the measurement too.
            let first = Work::FanOut(2);
            let other = first.superstep(&stopwatch).with_checkpointer(checkpointer.clone());
            invoke(&runtime, &other, first, &stopwatch);
            invoke(&runtime, &graph.clone().with_checkpointer(checkpointer), work, &stopwatch)
        }
    })
}

fn invoke(
    runtime: &Runtime,
    graph: &CompiledGraph<ours::Work>,
    work: Work,
    stopwatch: &Stopwatch,
) -> Duration {
    let input = ours::Work::update().messages(work.messages().collect::<Vec<_>>());
    let run = {
        let graph = graph.clone();
        async move { graph.thread(work.name()).step_limit(2_000).run(input).await.expect("the run completes") }
    };
    let (elapsed, _made) = on_worker(runtime, run, stopwatch);
    elapsed
}

/// Inserts the data that a run of superstep stored.
#[cfg(feature = "sqlite")]
fn sqlite_floor(runtime: &Arc<Runtime>, work: Work) -> Run {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (path, stopwatch) = (folder.path().join("rows.db"), Stopwatch::default());
    let graph = work.superstep(&stopwatch).with_checkpointer(sqlite::open(&path));
    invoke(runtime, &graph, work, &stopwatch);
    drop(graph);
    // The input and its update are stored before the stopwatch starts.
    let skipped = if let Work::Appends(_) = work { 2 } else { 0 };
    let rows = Arc::new(sqlite::Rows::read(&path, skipped).expect("the run stored its rows"));
    let runtime = runtime.clone();
    Box::new(move || {
        let folder = tempfile::tempdir().expect("a folder can be made");
        sqlite::time(&runtime, &rows, &folder.path().join("floor.db"), &stopwatch)
    })
}
