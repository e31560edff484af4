use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use serde_json::json;
use superstep_checkpoint::{
    CheckpointId, CheckpointMeta, Checkpointer, MemoryCheckpointer, Retention, TaskKey, text,
};
use superstep_graph::{
    CompiledGraph, Cx, END, Log, NodeError, Route, RunOptions, START, State, StateGraph, error::chain,
};
use superstep_testing::sim::{self, Sim};

mod agent;

use super::*;
use crate::journaled::memory::{MemoryObject, MemoryObjects};

#[derive(State, Clone, Debug, Default)]
struct Words {
    #[channel(append)]
    log: Log<String>,
    n: u32,
}

#[derive(Route, Clone, Copy)]
enum Next {
    Again,
    Done,
}

/// The number of runs of each body and each effect.
type Ran = Arc<Mutex<BTreeMap<String, u32>>>;

/// Returns a graph that fans out to two nodes with an effect each, joins them, and does so three times.
fn looping(ran: &Ran) -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("words");
    let plan = graph.add_node("plan", async |words: Words, _| Words::update().n(words.n + 1));
    let mut sides = Vec::new();
    for name in ["left", "right"] {
        let ran = ran.clone();
        let side =
            graph.add_node_with(name, ran, async |ran: Ran, words: Words, cx: Cx| -> Result<_, NodeError> {
                let paid: String = cx
                    .once("pay", async |key: String| {
                        *ran.lock().unwrap().entry(key).or_default() += 1;
                        Ok::<_, NodeError>(format!("paid {}", words.n))
                    })
                    .await?;
                *ran.lock().unwrap().entry(format!("{} {}", cx.node(), words.n)).or_default() += 1;
                Ok(Words::update().log([format!("{} {paid}", cx.node())]))
            });
        graph.add_edge(plan, side);
        sides.push(side);
    }
    let join =
        graph.add_node("join", async |words: Words, _| Words::update().log([format!("joined {}", words.n)]));
    graph.add_edge(START, plan);
    graph.add_join(sides, join);
    graph.add_conditional_edges(
        join,
        |words: &Words| if words.n < 3 { Next::Again } else { Next::Done },
        move |next| match next {
            Next::Again => plan,
            Next::Done => END,
        },
    );
    graph.compile().unwrap()
}

#[derive(Debug)]
struct Still;

impl superstep_checkpoint::Clock for Still {
    fn now_ms(&self) -> i64 {
        0
    }
}

/// Runs the thread `t` once.
fn run(graph: CompiledGraph<Words>, threads: Arc<dyn Checkpointer>) -> BoxFuture<'static, Option<End>> {
    Box::pin(async move {
        let graph = graph.with_checkpointer(threads);
        let thread = graph.configured(RunOptions::new().thread("t").clock(Still)).input_id("in-1");
        let end = thread.run(Words::update()).await;
        Some(end.map(|end| json!(end.state.log)).map_err(|error| chain(&error)))
    })
}

/// Returns the history of a thread without its nonces, and those.
async fn history(
    threads: &dyn Checkpointer,
    thread: &str,
) -> (Vec<CheckpointMeta>, BTreeSet<Option<String>>) {
    let mut found = threads.history(&thread.into(), Default::default()).await.unwrap();
    let nonces = found.iter().map(|meta| meta.nonce().map(str::to_owned)).collect();
    for meta in &mut found {
        meta.metadata.remove("$nonce");
    }
    (found, nonces)
}

/// Runs attempts that end after these numbers of operations, and then one until the end.
async fn attempts(crashes: impl IntoIterator<Item = usize>, ran: &Ran) -> (MemoryObject, Value) {
    let mut object = MemoryObject::default();
    for crash in crashes.into_iter().map(Some).chain([None]) {
        object.restart(crash);
        let graph = looping(ran);
        let served = serve_run(&mut object, &"memory", |threads| run(graph, threads));
        let ended = tokio::time::timeout(Duration::from_millis(1), served).await;
        match (ended, crash) {
            (Ok(ended), _) => return (object, ended.unwrap().unwrap()),
            (Err(_), Some(_)) => assert!(object.is_crashed(), "the run waits for nothing else"),
            (Err(_), None) => panic!("the run hangs"),
        }
    }
    unreachable!("the last attempt ends")
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_at_any_operation_goes_on_as_if_it_had_not() {
    let threads = Arc::new(MemoryCheckpointer::new());
    run(looping(&Ran::default()), threads.clone()).await.unwrap().unwrap();
    let expected = history(&*threads, "t").await.0;
    let (object, outcome) = attempts([], &Ran::default()).await;
    let places = object.operations();
    assert!(places > 30, "{places}");
    for crashes in
        (1..places).map(|at| vec![at]).chain([(1..places).collect(), (1..places).step_by(3).collect()])
    {
        let (many, ran) = (crashes.len() > 1, Ran::default());
        let (object, ended) = attempts(crashes.clone(), &ran).await;
        assert_eq!(ended, outcome, "{crashes:?}");
        let objects = MemoryObjects::of("t", object);
        let (found, nonces) = history(&Requests(objects.clone()), "t").await;
        assert_eq!(found, expected, "{crashes:?}");
        assert_eq!(nonces.len(), 1, "{crashes:?}");
        let ran = ran.lock().unwrap().clone();
        assert_eq!(ran.len(), 12, "each body and each effect has one key: {ran:?}");
        // What ran when the process ended is repeated.
        assert!(many || ran.values().sum::<u32>() <= 16, "{crashes:?}: {ran:?}");
        text::export(&Requests(objects), &"t".into(), &Default::default()).await.unwrap();
    }
}

#[tokio::test]
async fn each_thread_and_each_that_took_its_place_has_a_nonce_of_its_own() {
    let threads: Arc<dyn Checkpointer> = Arc::new(Requests(Arc::<MemoryObjects>::default()));
    let graph = looping(&Ran::default()).with_checkpointer(threads.clone());
    let mut all = BTreeSet::new();
    for thread in ["one", "two", "one", "two"] {
        graph.thread(thread).run(Words::update()).await.unwrap();
        let (_, nonces) = history(&*threads, thread).await;
        assert_eq!(nonces.len(), 1, "{nonces:?}");
        all.extend(nonces);
        threads.delete(&thread.into()).await.unwrap();
    }
    assert_eq!(all.len(), 4, "{all:?}");
}

/// Reads a fixture, which is written if it is missing.
fn fixture(name: &str, make: impl FnOnce() -> String) -> String {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|_| {
        std::fs::write(&path, make()).unwrap();
        panic!("`{path}` was missing, and is written; check it, and store it in the repository")
    })
}

/// The journals of earlier versions, which a newer one continues: the same entries must lead to the same operations. Nonces of the first
/// version were requested.
#[tokio::test(start_paused = true)]
async fn a_stored_journal_of_a_run_is_replayed() {
    let (object, _) = attempts([], &Ran::default()).await;
    for name in ["run-v1.jsonl", "run-v2.jsonl"] {
        let stored = fixture(name, || object.lines());
        let mut object = MemoryObject::of_lines(&stored);
        let end = serve_run(&mut object, &"memory", |_| panic!("the journal has the end of the run")).await;
        let end = end.unwrap().unwrap();
        assert_eq!(end.as_array().map(Vec::len), Some(9), "{end}");
        assert_eq!(object.lines(), stored);
    }
}

/// The requests of a program outside, each kind of them.
#[tokio::test]
async fn stored_requests_of_each_kind_make_the_same_writes() {
    let objects = Arc::<MemoryObjects>::default();
    let store = Requests(objects.clone());
    let threads: Arc<dyn Checkpointer> = Arc::new(Requests(objects.clone()));
    let thread = ThreadId::from("t");
    run(looping(&Ran::default()), threads.clone()).await.unwrap().unwrap();
    store.history(&thread, Default::default()).await.unwrap();
    let head = CheckpointId(store.count(&thread).await.unwrap() as u64);
    store.children(&thread).await.unwrap();
    store.read_commit(&thread, CheckpointId(2)).await.unwrap();
    let task = TaskKey { thread: thread.clone(), checkpoint: head, slot: 0 };
    let effect = serde_json::value::to_raw_value("paid").unwrap();
    store.add_effects(&task, [("more".to_owned(), effect.into())].into()).await.unwrap();
    let pruned = looping(&Ran::default()).with_checkpointer(threads);
    pruned.thread("t").prune(Retention::Last(2)).await.unwrap();
    store.delete(&thread).await.unwrap();
    let kinds = [
        "commit",
        "record",
        "effects",
        "prune",
        "delete",
        "load",
        "read_commit",
        "history",
        "count",
        "has_input",
        "children",
        "nonce",
    ];
    for (name, kinds) in [("requests-v1.jsonl", &kinds[..]), ("requests-v2.jsonl", &kinds[..11])] {
        let stored = fixture(name, || objects.lines("t"));
        for kind in kinds {
            assert!(stored.contains(&format!(r#"{{"entry":"{{\"{kind}\":"#)), "{name}: no request `{kind}`");
        }
        MemoryObjects::of("t", MemoryObject::of_lines(&stored)).replay();
    }
}

/// Returns the seeds of a simulation on journals: `count` of them, or as many as `SUPERSTEP_SIM_SEEDS` says.
fn on_journals(count: u64) -> sim::Options {
    let count = std::env::var("SUPERSTEP_SIM_SEEDS").map_or(count, |text| text.parse().unwrap());
    let objects = Arc::<MemoryObjects>::default();
    let store = Arc::new(move || {
        objects.replay();
        Arc::new(Requests(objects.clone())) as Arc<dyn Checkpointer>
    });
    sim::Options { store, ..sim::Options::seeds(0..count) }
}

#[test]
fn a_simulated_process_goes_on_from_the_journal() {
    let make = |sim: &Sim| {
        let mut graph = StateGraph::<Words>::new("words");
        for name in ["left", "right"] {
            let node = graph.add_node(name, async |_, cx: Cx| -> Result<_, NodeError> {
                let name: String =
                    cx.once("name", async |_| Ok::<_, NodeError>(cx.node().to_string())).await?;
                Ok(Words::update().log([name]))
            });
            graph.add_edge(START, node);
            graph.add_edge(node, END);
        }
        let _ = sim;
        graph.compile().unwrap()
    };
    let report = sim::check(on_journals(200), make, [Words::update(), Words::update()]);
    assert!(report.crashes > 0);
}
