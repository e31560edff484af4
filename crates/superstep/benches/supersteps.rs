//! The cost of a superstep, compared with a baseline in the same run.
//!
//! `cargo bench --bench supersteps` measures both with criterion. With `SUPERSTEP_BENCH_TABLE=1` it prints
//! the table of `docs/BENCHMARKS.md` instead: both sides take turns, so that other load on the machine
//! affects both. `SUPERSTEP_BENCH_ONLY=appends` leaves out the cases without this word in their names.
//!
//! Start at [`cases`].

mod cases;
mod floor;
mod ours;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use criterion::{Criterion, Throughput};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use cases::cases;

/// A message of a conversation; about 190 bytes as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Message {
    role: String,
    content: String,
}

impl Message {
    fn numbered(number: i64) -> Self {
        const WORDS: &str = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt \
                             ut labore et dolore magna aliqua ut enim ad minim";
        Self { role: "assistant".into(), content: format!("message {number:06} {WORDS}") }
    }
}

/// Started with a run, and restarted by a node if the part before it is not measured.
#[derive(Clone, Debug, Default)]
struct Stopwatch(Arc<Mutex<Option<Instant>>>);

impl Stopwatch {
    fn start(&self) {
        *self.0.lock().expect("nobody panics while it is locked") = Some(Instant::now());
    }

    fn elapsed(&self) -> Duration {
        let started = self.0.lock().expect("nobody panics while it is locked");
        started.expect("it was started").elapsed()
    }
}

/// Builds the runtime of both sides.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime can be built")
}

/// Runs `work` on a worker thread, as a server would. Returns its result with its duration, or the duration
/// since it started the stopwatch.
fn on_worker<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
    stopwatch: &Stopwatch,
) -> (Duration, T) {
    let stopwatch = stopwatch.clone();
    let timed = async move {
        stopwatch.start();
        let made = work.await;
        (stopwatch.elapsed(), made)
    };
    runtime.block_on(async { tokio::spawn(timed).await.expect("the work does not panic") })
}

fn main() {
    let runtime = Arc::new(runtime());
    if std::env::var_os("SUPERSTEP_BENCH_TABLE").is_some() {
        return table::print(&runtime);
    }
    let mut criterion = Criterion::default().configure_from_args();
    for case in cases(&runtime, "") {
        let mut group = criterion.benchmark_group(&case.name);
        group.throughput(Throughput::Elements(case.steps));
        for (side, mut run) in [("floor", case.floor), ("superstep", case.superstep)] {
            group.bench_function(side, |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| run()).sum());
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
