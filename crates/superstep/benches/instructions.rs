//! Runs one case on one thread, for a counter of instructions.
//!
//! `just instructions` runs each case under callgrind and compares the counts with the stored ones; see
//! `instructions.py`. `cargo bench --bench instructions` lists the cases as JSON lines;
//! `cargo bench --bench instructions -- loop/1000/none superstep` runs one.

mod cases;
mod floor;
mod ours;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stopwatch;
mod workloads;

use std::sync::Arc;

use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use cases::{Case, cases};
use stopwatch::{Message, Stopwatch, on_worker};
use workloads::{Opened, WORKLOADS};

/// Works that have a floor.
const BESIDE_FLOOR: &[&str] = &["loop/1000", "chain/10", "appends/1000", "appends/10000", "fan-out/100"];

/// Workloads of the reference, each with a part of it and the number of these parts in a run.
const OF_REFERENCE: &[(&str, &str, usize)] = &[
    ("react_plain_100x", "round", 100),
    ("wide_state_25x300", "run", 1),
    ("send_flat_1000", "task", 1_000),
    ("fanout_to_subgraph_10x", "subgraph", 10),
    ("chat_200", "turn", 200),
    ("agent_100x", "round", 100),
    ("agent_text_100x", "round", 100),
];

/// The counter needs no other thread, so that all counts are of one thread as far as the saver has none.
fn runtime() -> Arc<Runtime> {
    Arc::new(Builder::new_current_thread().enable_all().build().expect("a runtime can be built"))
}

/// Runs the case and the side that the arguments name, or lists all cases.
fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(case), Some(side)) = (arguments.next(), arguments.next()) else { return list() };
    // The first turn warms up. The counts are those of the last.
    let turns = 2;
    if let Some(Case { mut floor, mut superstep, .. }) = beside_floor(&case).pop() {
        let run = if side == "floor" { &mut floor } else { &mut superstep };
        (0..turns).for_each(|_| drop(run()));
    } else {
        of_reference(&case, turns);
    }
}

/// Returns the cases with a floor whose name contains `only`.
fn beside_floor(only: &str) -> Vec<Case> {
    let mut all = cases(&runtime(), only);
    all.retain(|case| case.name.rsplit_once('/').is_some_and(|(work, _)| BESIDE_FLOOR.contains(&work)));
    all
}

/// Runs a workload of the reference, each turn on its own thread of the saver.
fn of_reference(case: &str, turns: usize) {
    let (name, saver) = case.split_once('/').expect("a case is a workload and a saver");
    let (_, workload) = WORKLOADS.iter().find(|(known, _)| *known == name).expect("the workload is known");
    let saver = Opened::NAMES.iter().find(|known| **known == saver).expect("the saver is known");
    let opened = Opened::open(saver).expect("the saver can be opened");
    let (runtime, run, stopwatch) = (runtime(), workload(opened.saver.clone()), Stopwatch::default());
    for turn in 0..turns {
        on_worker(&runtime, run(format!("thread-{turn:08}").into()), &stopwatch);
    }
}

#[expect(clippy::print_stdout, reason = "the list is what was asked for")]
fn list() {
    for Case { name, steps, .. } in beside_floor("") {
        let unit = if name.starts_with("fan-out") { "run" } else { "superstep" };
        println!("{}", json!({"case": name, "unit": unit, "units": steps, "sides": ["floor", "superstep"]}));
    }
    for (name, unit, units) in OF_REFERENCE {
        for saver in ["none", "memory", "sqlite"] {
            let case = format!("{name}/{saver}");
            println!("{}", json!({"case": case, "unit": unit, "units": units, "sides": ["superstep"]}));
        }
    }
}
