//! Both sides of every case as a Markdown table.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Runtime;

use crate::cases::cases;

/// The number of runs of each side. An odd number has a median.
const TIMES: usize = 15;

/// Measures and prints.
#[expect(clippy::print_stdout, reason = "the table is the output")]
pub(crate) fn print(runtime: &Arc<Runtime>) {
    let only = std::env::var("SUPERSTEP_BENCH_ONLY").unwrap_or_default();
    println!("| work / size / checkpoints | floor µs | superstep µs | ratio | ratio of the fastest |");
    println!("|---|---|---|---|---|");
    for mut case in cases(runtime, &only) {
        let (mut floor, mut superstep) = (Vec::new(), Vec::new());
        // The first turn only warms up.
        for turn in 0..=TIMES {
            let (a, b) = ((case.floor)(), (case.superstep)());
            if turn > 0 {
                floor.push(a);
                superstep.push(b);
            }
        }
        let per_step = |time: Duration| time.as_secs_f64() * 1e6 / case.steps as f64;
        let [floor, superstep] = [floor, superstep].map(|mut times| {
            times.sort_unstable();
            (per_step(times[TIMES / 2]), per_step(times[0]))
        });
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            case.name,
            floor.0,
            superstep.0,
            superstep.0 / floor.0,
            superstep.1 / floor.1,
        );
    }
}
