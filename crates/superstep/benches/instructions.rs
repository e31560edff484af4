//! Runs one case on one thread, for a counter of instructions.
//!
//! `just instructions` runs each case under callgrind and compares the counts with the stored ones; see
//! `instructions.py`. `cargo bench --bench instructions` lists the cases as JSON lines;
//! `cargo bench --bench instructions -- loop/1000/none superstep` runs one.

mod cases;
mod floor;
mod ours;
mod saver;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stopwatch;
mod workloads;

use std::sync::Arc;

use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use cases::{Case, cases};
use saver::Opened;
use stopwatch::{Message, Stopwatch, on_worker};
use workloads::WORKLOADS;

/// Works that have a floor, each with the part of a run that the counts are of.
const BESIDE_FLOOR: &[(&str, &str)] = &[
    ("loop/1000", "superstep"),
    ("chain/10", "superstep"),
    ("appends/1000", "superstep"),
    ("appends/10000", "superstep"),
    ("fan-out/100", "run"),
];

/// Workloads of the reference, each with a part of a run and the number of these parts.
const OF_REFERENCE: &[(&str, &str, u64)] = &[
    ("react_plain_100x", "round", 100),
    ("wide_state_25x300", "run", 1),
    ("send_flat_1000", "task", 1_000),
    ("fanout_to_subgraph_10x", "subgraph", 10),
    ("chat_200", "turn", 200),
    ("agent_100x", "round", 100),
    ("agent_text_100x", "round", 100),
];

const SAVERS: &[&str] = &["none", "memory", "sqlite"];

/// The end of the name of a case whose spans and events are written to a sink. Without it nothing listens to them.
const TRACED: &str = "+spans";

/// The case that is also run with its spans, and its part of a run.
const WITH_SPANS: (&str, &str) = ("loop/1000/none", "superstep");

/// The first turn warms up. The counts are those of the last.
const TURNS: usize = 2;

/// Runs the case and the side that the arguments name and prints the number of its parts, or lists all cases.
#[expect(clippy::print_stdout, reason = "the numbers are the output")]
fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(case), Some(side)) = (arguments.next(), arguments.next()) else { return list() };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let runtime = Arc::new(runtime);
    let case = match case.strip_suffix(TRACED) {
        Some(untraced) => {
            tracing_subscriber::fmt().with_writer(std::io::sink).init();
            untraced.to_owned()
        }
        None => case,
    };
    let (name, saver) = case.rsplit_once('/').expect("a case is a work and a saver");
    let units = match OF_REFERENCE.iter().find(|(known, ..)| *known == name) {
        Some((.., units)) => {
            of_reference(&runtime, name, saver);
            *units
        }
        None => beside_floor(&runtime, &case, &side),
    };
    println!("{units}");
}

/// Runs a case with a floor; returns the number of its parts.
fn beside_floor(runtime: &Arc<Runtime>, case: &str, side: &str) -> u64 {
    let named = cases(runtime, case).into_iter().find(|known| known.name == case);
    let Case { steps, floor, superstep, .. } = named.expect("the case is known");
    let mut run = if side == "floor" { floor } else { superstep };
    for _ in 0..TURNS {
        run();
    }
    steps
}

/// Runs a workload of the reference, each turn on a new thread of the saver.
fn of_reference(runtime: &Runtime, name: &str, saver: &str) {
    let (_, workload) = WORKLOADS.iter().find(|(known, _)| *known == name).expect("the workload is known");
    let saver = Opened::NAMES.iter().find(|known| **known == saver).expect("the saver is known");
    let Opened { name, saver, folder } = Opened::open(saver).expect("the saver can be opened");
    let (run, stopwatch) = (workload(saver), Stopwatch::default());
    for turn in 0..TURNS {
        on_worker(runtime, run(format!("{name}-{turn:08}").into()), &stopwatch);
    }
    drop((run, folder));
}

#[expect(clippy::print_stdout, reason = "the list is the output")]
fn list() {
    let beside = BESIDE_FLOOR.iter().map(|(name, unit)| (name, unit, &["floor", "superstep"][..]));
    let reference = OF_REFERENCE.iter().map(|(name, unit, _)| (name, unit, &["superstep"][..]));
    for (name, unit, sides) in beside.chain(reference) {
        for saver in SAVERS {
            println!("{}", json!({"case": format!("{name}/{saver}"), "unit": unit, "sides": sides}));
        }
    }
    let (name, unit) = WITH_SPANS;
    println!("{}", json!({"case": format!("{name}{TRACED}"), "unit": unit, "sides": ["superstep"]}));
}
