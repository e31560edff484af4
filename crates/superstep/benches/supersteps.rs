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
mod stopwatch;
mod table;

use std::sync::Arc;

use criterion::{Criterion, Throughput};
use tokio::runtime::{Builder, Runtime};

use cases::cases;
use stopwatch::{Message, Stopwatch};

/// Builds the runtime of both sides.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime can be built")
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
