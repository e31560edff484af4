//! The reference's workloads: the same nodes, edges, sizes and states as `peers/reference/workloads.py`,
//! streamed with updates in the same way.
//!
//! `cargo bench --bench workloads` prints one JSON line per workload and saver; `SUPERSTEP_BENCH_ONLY=react`
//! leaves out those without this word in their names. `peers/run.py` runs both sides and prints the ratios.
//!
//! Start at [`measure`].

#[cfg(feature = "agent")]
mod agent;
mod chain;
mod chat;
mod fan_out;
mod react;
mod subgraph;
mod wide;

use std::sync::Arc;

use futures::{StreamExt as _, future::BoxFuture};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use superstep::{
    Checkpointer, CompiledGraph, Durability, MemoryCheckpointer, RunOptions, State, Status, StreamMode,
    ThreadId,
};
use tempfile::TempDir;
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

/// The number of measurements of a workload. An odd number has a median.
const TIMES: usize = 11;
/// The minimum time of a measurement, in microseconds: short runs are repeated.
const LEAST: f64 = 3_000.0;

/// One run from its input to its end, on the thread of this name.
type Run = Arc<dyn Fn(ThreadId) -> BoxFuture<'static, ()> + Send + Sync>;

/// A function that builds a workload for a saver.
type Workload = fn(Saver) -> Run;

const WORKLOADS: &[(&str, Workload)] = &[
    ("sequential_10", |saver| chain::sequential(10, saver)),
    ("sequential_1000", |saver| chain::sequential(1_000, saver)),
    ("loop_1000", |saver| chain::looped(1_000, saver)),
    ("react_plain_10x", |saver| react::run(10, saver)),
    ("react_plain_100x", |saver| react::run(100, saver)),
    ("wide_state_25x300", |saver| wide::run(300, 5, 5, saver)),
    ("wide_state_15x600", |saver| wide::run(600, 3, 5, saver)),
    ("wide_state_9x1200", |saver| wide::run(1_200, 3, 3, saver)),
    ("fanout_to_subgraph_10x", |saver| subgraph::run(10, saver)),
    ("fanout_to_subgraph_100x", |saver| subgraph::run(100, saver)),
    ("send_flat_1000", |saver| fan_out::run(1_000, saver)),
    ("chat_200", |saver| chat::run(200, saver)),
    #[cfg(feature = "agent")]
    ("agent_10x", |saver| agent::run(10, 32, saver)),
    #[cfg(feature = "agent")]
    ("agent_100x", |saver| agent::run(100, 32, saver)),
    #[cfg(feature = "agent")]
    ("agent_text_100x", |saver| agent::run(100, 3_600, saver)),
];

/// The checkpointer and its durability.
#[derive(Clone)]
struct Saver {
    checkpointer: Option<Arc<dyn Checkpointer>>,
    durability: Durability,
}

impl Saver {
    fn keep<S: State>(&self, graph: CompiledGraph<S>) -> CompiledGraph<S> {
        match &self.checkpointer {
            Some(checkpointer) => graph.with_checkpointer(checkpointer.clone()),
            None => graph,
        }
    }

    fn options(&self, thread: ThreadId) -> RunOptions {
        RunOptions::new().thread(thread).step_limit(10_000).durability(self.durability)
    }
}

/// A saver, and the folder of its database if it has one.
struct Opened {
    name: &'static str,
    saver: Saver,
    folder: Option<TempDir>,
}

impl Opened {
    const NAMES: &[&str] = &["none", "memory", "sqlite", "sqlite-async"];

    fn open(name: &'static str) -> Option<Self> {
        let (checkpointer, folder): (Option<Arc<dyn Checkpointer>>, _) = match name {
            "none" => (None, None),
            "memory" => (Some(Arc::new(MemoryCheckpointer::new())), None),
            #[cfg(feature = "sqlite")]
            "sqlite" | "sqlite-async" => {
                let folder = tempfile::tempdir().expect("a folder can be made");
                let database = superstep::sqlite::SqliteCheckpointer::open(folder.path().join("bench.db"));
                (Some(Arc::new(database.expect("a database can be made"))), Some(folder))
            }
            _ => return None,
        };
        let durability = if name == "sqlite-async" { Durability::Async } else { Durability::Sync };
        Some(Self { name, saver: Saver { checkpointer, durability }, folder })
    }
}

/// Runs `graph` to its end on a new thread and consumes each update.
fn streamed<S: State>(graph: CompiledGraph<S>, saver: Saver, input: S::Update, check: fn(&S) -> bool) -> Run {
    let graph = saver.keep(graph);
    Arc::new(move |thread| {
        let (graph, input, options) = (graph.clone(), input.clone(), saver.options(thread));
        Box::pin(async move {
            let mut events = graph.configured(options).stream(input, [StreamMode::Updates]);
            while events.next().await.is_some() {}
            let outcome = events.outcome().await.expect("the run does not fail");
            assert!(outcome.status == Status::Completed && check(&outcome.state), "the run did its work");
        })
    })
}

/// A duration in microseconds: by the clock, and on all processors of this process.
#[derive(Clone, Copy)]
struct Taken {
    wall: f64,
    cpu: f64,
}

/// Runs `run` `count` times, on separate threads, inside a spawned task as a server would.
fn time(runtime: &Runtime, run: &Run, first: usize, count: usize) -> Taken {
    let run = run.clone();
    let work = async move {
        for number in first..first + count {
            run(format!("thread-{number:08}").into()).await;
        }
    };
    let (wall, cpu) = (Instant::now(), cpu_us());
    runtime.block_on(async { tokio::spawn(work).await.expect("the work does not panic") });
    Taken { wall: wall.elapsed().as_secs_f64() * 1e6 / count as f64, cpu: (cpu_us() - cpu) / count as f64 }
}

fn cpu_us() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3
}

/// Returns the medians of a workload, and the size of a run in the database, as one JSON line.
#[expect(clippy::print_stdout, reason = "the numbers are what was asked for")]
fn measure(runtime: &Runtime, name: &str, workload: Workload, opened: Opened) {
    let run = workload(opened.saver.clone());
    // The first run warms up; the second one gives the number of runs of a measurement.
    let _ = time(runtime, &run, 0, 1);
    let once = time(runtime, &run, 1, 1);
    let count = (LEAST / once.wall).ceil().max(1.0) as usize;
    let taken: Vec<_> = (0..TIMES).map(|nth| time(runtime, &run, 2 + nth * count, count)).collect();
    drop(run);
    let runs = 2 + TIMES * count;
    let mut line = json!({
        "engine": "superstep", "workload": name, "saver": opened.name, "runs": TIMES * count,
        "wall_us": median(taken.iter().map(|taken| taken.wall)),
        "cpu_us": median(taken.iter().map(|taken| taken.cpu)),
    });
    let Opened { saver, folder, .. } = opened;
    // Closes the database, so that it is one file.
    drop(saver);
    if let Some(folder) = folder {
        let database = std::fs::metadata(folder.path().join("bench.db")).expect("the database is there");
        line["db_bytes"] = json!(database.len() / runs as u64);
    }
    println!("{line}");
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    let only = std::env::var("SUPERSTEP_BENCH_ONLY").unwrap_or_default();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    for &(name, workload) in WORKLOADS {
        let wanted = |saver: &&&str| format!("{name}/{saver}").contains(&only);
        for opened in Opened::NAMES.iter().filter(wanted).filter_map(|saver| Opened::open(saver)) {
            measure(&runtime, name, workload, opened);
        }
    }
}
