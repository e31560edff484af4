//! Works that grow: runs at the same time, checkpoints of a thread, levels of subgraphs, channels, a database.
//!
//! `cargo bench --bench growth -- runs_100 sqlite` runs one of them and prints one JSON line; without arguments it
//! lists all of them. `peers/run.py` runs each in a process of its own, because the peak of memory is of a process.
//!
//! Start at [`main`].

mod saver;

use std::{fs, sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
#[cfg(feature = "sqlite")]
use superstep::{
    Checkpointer as _,
    sqlite::{SqliteCheckpointer, SqliteOptions},
};
use superstep::{CompiledGraph, Cx, END, NodeError, Route, START, State, StateGraph};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Semaphore,
    time::Instant,
};

use saver::{Opened, Saver};

const WORKS: &[(&str, &[usize])] = &[
    ("runs", &[1, 10, 100, 1_000, 10_000]),
    ("thread", &[1_000, 10_000, 100_000]),
    ("levels", &[1, 10, 100]),
    ("channels", &[1, 10, 100]),
    ("exclusive", &[10_000]),
    ("database", &[1_000]),
];

/// Works on a database with options of their own.
const OF_SQLITE: &[&str] = &["exclusive", "database"];

/// The number of runs below which the memory of one is less than what the allocator has at hand.
const FEW_RUNS: usize = 100;

/// The supersteps of each of the runs at the same time, and of a run with many channels.
const STEPS: usize = 10;
const STEPS_OF_CHANNELS: usize = 1_000;

/// The length of the text that a superstep writes to a database.
const TEXT: usize = 100_000;

#[derive(State, Clone, Debug, Default)]
struct Counter {
    n: usize,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Enough,
}

#[expect(clippy::print_stdout, reason = "the numbers are the output")]
fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (Some(work), Some(saver)) = (arguments.next(), arguments.next()) else {
        for (work, sizes) in WORKS {
            let savers = ["none", "memory", "sqlite"];
            let savers = if OF_SQLITE.contains(work) { &savers[2..] } else { &savers };
            for (size, saver) in sizes.iter().flat_map(|size| savers.iter().map(move |saver| (size, saver))) {
                println!("{}", json!({"workload": format!("{work}_{size}"), "saver": saver}));
            }
        }
        return;
    };
    let (name, size) = work.rsplit_once('_').expect("a work has a name and a size");
    let size = size.parse().expect("the size is a number");
    let saver = Opened::NAMES.iter().find(|known| **known == saver).expect("the saver is known");
    let Opened { name: saved, saver, folder } = Opened::open(saver).expect("the saver can be opened");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let mut line = match name {
        "runs" => runs(&runtime, size, &saver),
        "thread" => thread(&runtime, size, &saver),
        "levels" => levels(&runtime, size, &saver),
        "channels" => channels(&runtime, size, &saver),
        #[cfg(feature = "sqlite")]
        "exclusive" => exclusive(&runtime, size, saver.clone()),
        #[cfg(feature = "sqlite")]
        "database" => database(&runtime, size),
        _ => panic!("the work is unknown"),
    };
    drop((saver, folder));
    line["engine"] = json!("superstep");
    line["workload"] = json!(work);
    line["saver"] = json!(saved);
    line["peak_kib"] = json!(memory("VmHWM"));
    println!("{line}");
}

/// Builds a node that counts and leads to itself, after a node that waits for a permit.
fn counting(steps: usize, gate: Arc<Semaphore>) -> CompiledGraph<Counter> {
    let mut graph = StateGraph::new("counting");
    let wait = graph.add_node_with("wait", gate, async |gate: Arc<Semaphore>, _: Counter, _: Cx| {
        drop(gate.acquire().await.expect("it is not closed"));
    });
    let count = graph.add_node("count", async |state: Counter, _: Cx| Counter::update().n(state.n + 1));
    graph.add_edge(START, wait);
    graph.add_edge(wait, count);
    let route = move |state: &Counter| if state.n < steps { Next::Again } else { Next::Enough };
    graph.add_conditional_edges(count, route, |route| match route {
        Next::Again => count,
        Next::Enough => END,
    });
    graph.compile().expect("the graph is whole")
}

/// Measures `size` runs at the same time: the memory of one that waits, and the time of a superstep.
fn runs(runtime: &Runtime, size: usize, saver: &Saver) -> Value {
    // The first run warms up.
    step(runtime, &counting(STEPS, Arc::new(Semaphore::new(1))), saver, STEPS);
    let gate = Arc::new(Semaphore::new(0));
    let graph = saver.keep(counting(STEPS, gate.clone()));
    let before = memory("VmRSS");
    let runs = (0..size).map(|run| {
        let (graph, options) = (graph.clone(), saver.options(format!("run-{run:08}").into()));
        runtime.spawn(async move { graph.configured(options).run(Counter::update().n(0)).await })
    });
    let runs: Vec<_> = runs.collect();
    runtime.block_on(async {
        // All runs reach the gate, which has no queue to read, so the count of used memory comes to rest.
        let mut last = 0;
        while last != memory("VmRSS") {
            last = memory("VmRSS");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let waiting = last.saturating_sub(before);
        let start = Instant::now();
        gate.add_permits(size);
        for run in join_all(runs).await {
            let outcome = run.expect("the run does not panic").expect("the run does not fail");
            assert_eq!(outcome.state.n, STEPS);
        }
        let step_us = start.elapsed().as_secs_f64() * 1e6 / (size * (STEPS + 1)) as f64;
        match size < FEW_RUNS {
            true => json!({"step_us": step_us}),
            false => json!({"step_us": step_us, "run_kib": waiting as f64 / size as f64}),
        }
    })
}

/// Measures a thread of `size` checkpoints: the time of a superstep, and of reading the state at the end.
fn thread(runtime: &Runtime, size: usize, saver: &Saver) -> Value {
    let graph = counting(size, Arc::new(Semaphore::new(1)));
    let step_us = step(runtime, &graph, saver, size);
    if saver.checkpointer.is_none() {
        return json!({"step_us": step_us});
    }
    let thread = saver.keep(graph).thread("thread");
    let start = Instant::now();
    let read = runtime.block_on(thread.state()).expect("the thread can be read");
    assert_eq!(read.values.n, size);
    json!({"step_us": step_us, "load_us": start.elapsed().as_secs_f64() * 1e6})
}

/// Measures a thread of `size` checkpoints in a database that no other connection may open.
#[cfg(feature = "sqlite")]
fn exclusive(runtime: &Runtime, size: usize, mut saver: Saver) -> Value {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let options = SqliteOptions::new().exclusive();
    let opened = SqliteCheckpointer::open_with(folder.path().join("bench.db"), options);
    saver.checkpointer = Some(Arc::new(opened.expect("a database can be made")));
    thread(runtime, size, &saver)
}

/// A state with a text, which each superstep replaces.
#[cfg(feature = "sqlite")]
#[derive(State, Clone, Debug, Default)]
struct Texts {
    n: usize,
    text: String,
}

/// Measures a database of `size` MB, in threads of ten texts each: a superstep, opening the file, reading the newest state of
/// a thread, and listing all threads.
#[cfg(feature = "sqlite")]
fn database(runtime: &Runtime, size: usize) -> Value {
    let mut graph = StateGraph::new("texts");
    let write = graph.add_node("write", async |state: Texts, _: Cx| {
        let n = state.n + 1;
        Texts::update().n(n).text(format!("{n:08}").repeat(TEXT / 8))
    });
    graph.add_edge(START, write);
    let route = |state: &Texts| if state.n < STEPS { Next::Again } else { Next::Enough };
    graph.add_conditional_edges(write, route, |route| match route {
        Next::Again => write,
        Next::Enough => END,
    });
    let graph = graph.compile().expect("the graph is whole");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("bench.db");
    let open = || Arc::new(SqliteCheckpointer::open(&file).expect("the database can be opened"));
    let start = Instant::now();
    let filled = graph.clone().with_checkpointer(open());
    for nth in 0..size {
        let run = filled.thread(format!("thread-{nth:08}")).run(Texts::update().n(0));
        runtime.block_on(run).expect("the run does not fail");
    }
    drop(filled);
    let step_us = start.elapsed().as_secs_f64() * 1e6 / (size * STEPS) as f64;
    let start = Instant::now();
    let database = open();
    let open_us = start.elapsed().as_secs_f64() * 1e6;
    let start = Instant::now();
    let thread = graph.with_checkpointer(database.clone()).thread(format!("thread-{:08}", size / 2));
    let read = runtime.block_on(thread.state()).expect("the thread can be read");
    assert_eq!(read.values.n, STEPS);
    let load_us = start.elapsed().as_secs_f64() * 1e6;
    let start = Instant::now();
    assert_eq!(runtime.block_on(database.threads()).expect("the threads can be listed").len(), size);
    let list_us = start.elapsed().as_secs_f64() * 1e6;
    let bytes = fs::metadata(&file).expect("the database has a file").len();
    json!({"step_us": step_us, "load_us": load_us, "open_us": open_us, "list_us": list_us, "db_bytes": bytes})
}

/// Measures `size` levels of subgraphs with one node each: the time of a level.
fn levels(runtime: &Runtime, size: usize, saver: &Saver) -> Value {
    let mut graph = StateGraph::new("level-0");
    let count = graph.add_node("count", async |state: Counter, _: Cx| Counter::update().n(state.n + 1));
    graph.add_edge(START, count);
    graph.add_edge(count, END);
    let mut below = graph.compile().expect("the graph is whole");
    for level in 1..size {
        let mut graph = StateGraph::new(format!("level-{level}"));
        let call = graph.add_node("call", move |state: Counter, cx: Cx| {
            let below = below.clone();
            async move {
                let made = cx.call(&below, Counter::update().n(state.n)).await?;
                Ok::<_, NodeError>(Counter::update().n(made.n))
            }
        });
        graph.add_edge(START, call);
        graph.add_edge(call, END);
        below = graph.compile().expect("the graph is whole");
    }
    json!({"step_us": step(runtime, &below, saver, size)})
}

/// Declares a state with these channels, and its graph: a node that counts in the first one.
macro_rules! wide {
    ($run:ident, $state:ident: $first:ident $($channel:ident)*) => {
        #[derive(State, Clone, Debug, Default)]
        struct $state {
            $first: usize,
            $($channel: usize,)*
        }

        fn $run(runtime: &Runtime, saver: &Saver) -> f64 {
            let mut graph = StateGraph::new("channels");
            let count =
                graph.add_node("count", async |state: $state, _: Cx| $state::update().$first(state.$first + 1));
            graph.add_edge(START, count);
            let route =
                |state: &$state| if state.$first < STEPS_OF_CHANNELS { Next::Again } else { Next::Enough };
            graph.add_conditional_edges(count, route, |route| match route {
                Next::Again => count,
                Next::Enough => END,
            });
            step(runtime, &graph.compile().expect("the graph is whole"), saver, STEPS_OF_CHANNELS)
        }
    };
}

wide!(one_channel, One: c0);
wide!(ten_channels, Ten: c0 c1 c2 c3 c4 c5 c6 c7 c8 c9);
wide!(hundred_channels, Hundred:
    c00 c01 c02 c03 c04 c05 c06 c07 c08 c09 c10 c11 c12 c13 c14 c15 c16 c17 c18 c19 c20 c21 c22 c23 c24 c25 c26 c27 c28 c29
    c30 c31 c32 c33 c34 c35 c36 c37 c38 c39 c40 c41 c42 c43 c44 c45 c46 c47 c48 c49 c50 c51 c52 c53 c54 c55 c56 c57 c58 c59
    c60 c61 c62 c63 c64 c65 c66 c67 c68 c69 c70 c71 c72 c73 c74 c75 c76 c77 c78 c79 c80 c81 c82 c83 c84 c85 c86 c87 c88 c89
    c90 c91 c92 c93 c94 c95 c96 c97 c98 c99);

/// Measures a graph whose state has `size` channels, of which each superstep writes one.
fn channels(runtime: &Runtime, size: usize, saver: &Saver) -> Value {
    let run = match size {
        1 => one_channel,
        10 => ten_channels,
        100 => hundred_channels,
        _ => panic!("there is no state of this size"),
    };
    json!({"step_us": run(runtime, saver)})
}

/// Runs a graph on the thread `thread`; returns the microseconds of one of its `parts`.
fn step<S: State>(runtime: &Runtime, graph: &CompiledGraph<S>, saver: &Saver, parts: usize) -> f64 {
    let (graph, options) = (saver.keep(graph.clone()), saver.options("thread".into()).step_limit(1_000_000));
    let run = async move {
        let start = Instant::now();
        graph.configured(options).run(S::Update::default()).await.expect("the run does not fail");
        start.elapsed()
    };
    let taken = runtime.block_on(async { tokio::spawn(run).await.expect("the run does not panic") });
    taken.as_secs_f64() * 1e6 / parts as f64
}

/// Returns a size of this process in KiB, by its name in `/proc/self/status`.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the process has a status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let size = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    size.expect("the status has the size")
}
