//! The reference's workloads, measured.
//!
//! `cargo bench --bench reference` prints one JSON line per workload and saver; `SUPERSTEP_BENCH_ONLY=react`
//! leaves out those without this word in their names. `peers/run.py` runs both sides and prints the ratios.
//!
//! Start at [`measure`].

mod saver;
mod workloads;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};

use saver::Opened;
use workloads::{Run, WORKLOADS, Workload};

/// The number of measurements of a workload. An odd number has a median.
const TIMES: usize = 11;
/// The minimum time of a measurement, in microseconds: short runs are repeated.
const LEAST: f64 = 3_000.0;

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
#[expect(clippy::print_stdout, reason = "the numbers are the output")]
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
