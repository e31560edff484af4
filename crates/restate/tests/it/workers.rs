//! Runs whose worker ends, and what else reaches a thread during a run.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use superstep_graph::{
    CompiledGraph, Cx, END, Log, NodeError, Route, START, State, StateGraph, ThreadId,
    checkpoint::CheckpointError,
};
use superstep_restate::{Ended, EndpointBuilder, RestateError, RestateThread};

use crate::{node::shared, service::Service};

/// The effects of all runs: the thread, and the key of the effect.
static EFFECTS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

#[derive(State, Clone, Debug, Default)]
struct Words {
    #[channel(append)]
    log: Log<String>,
    count: u32,
    most: u32,
    /// The time of a step.
    ms: u64,
    /// The number of the last item of the inbox that was read.
    read: u64,
}

/// A loop of one step and two nodes beside each other, with an effect in each.
fn words() -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("words");
    let step = graph.add_node("step", async |words: Words, cx: Cx| -> Result<WordsUpdate, NodeError> {
        tokio::time::sleep(Duration::from_millis(words.ms)).await;
        let new = cx.inbox(words.read).await?;
        let mut update = Words::update().count(words.count + 1);
        if let Some(last) = new.last() {
            update = update.read(last.number);
        }
        let log: Vec<String> = new.iter().map(|posted| format!("read {}", posted.item)).collect();
        Ok(update.log(log))
    });
    let mut sides = Vec::new();
    for name in ["left", "right"] {
        let side = graph.add_node(name, async |words: Words, cx: Cx| -> Result<WordsUpdate, NodeError> {
            let thread = cx.thread().map_or_else(String::new, |thread| thread.to_string());
            let paid: String = cx
                .once("pay", async |key: String| {
                    EFFECTS.lock().unwrap_or_else(PoisonError::into_inner).push((thread, key));
                    Ok::<_, NodeError>(format!("paid {}", words.count))
                })
                .await?;
            Ok(Words::update().log([format!("{} {paid}", cx.node())]))
        });
        graph.add_edge(step, side);
        sides.push(side);
    }
    let join = graph
        .add_node("join", async |words: Words, _| Words::update().log([format!("joined {}", words.count)]));
    graph.add_edge(START, step);
    graph.add_join(sides, join);
    #[derive(Route, Clone, Copy)]
    enum Next {
        Again,
        Done,
    }
    let next = |words: &Words| if words.count < words.most { Next::Again } else { Next::Done };
    graph.add_conditional_edges(join, next, move |next| match next {
        Next::Again => step,
        Next::Done => END,
    });
    graph.compile().unwrap()
}

fn graphs(endpoint: EndpointBuilder) -> EndpointBuilder {
    endpoint.graph(words())
}

/// Returns the log of a run in memory.
async fn expected(most: u32) -> Value {
    let end = words().run(Words::update().most(most)).await.unwrap();
    json!(end.state.log)
}

/// Returns the effects of a thread.
fn effects(thread: &str) -> Vec<String> {
    let effects = EFFECTS.lock().unwrap_or_else(PoisonError::into_inner);
    effects.iter().filter(|(of, _)| of == thread).map(|(_, key)| key.clone()).collect()
}

/// Waits until a thread has checkpoints.
async fn reached(service: &Service, thread: &str, checkpoints: usize) {
    let stored = service.restate.checkpointer().unwrap();
    while stored.count(&thread.into()).await.unwrap() < checkpoints {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn spawned(thread: &RestateThread, input: Value) -> tokio::task::JoinHandle<Result<Ended, RestateError>> {
    let thread = thread.clone();
    tokio::spawn(async move { thread.run(input).await })
}

#[tokio::test]
async fn a_run_of_a_crashed_worker_continues_on_another_one() {
    let Some(node) = shared() else { return };
    let mut service = Service::start(node, graphs);
    let thread = service.restate.thread("words", "crashed");
    let run = spawned(&thread, json!({"most": 12, "ms": 20}));
    for checkpoints in [4, 11, 18] {
        reached(&service, "crashed", checkpoints).await;
        let next = service.again(graphs);
        service.crash();
        service = next;
    }
    let end = run.await.unwrap().unwrap();
    assert_eq!(end.values["log"], expected(12).await);
    let effects = effects("crashed");
    let distinct: std::collections::BTreeSet<_> = effects.iter().collect();
    assert_eq!(distinct.len(), 24, "one key for each effect");
    assert!(effects.len() <= 24 + 3 * 2, "only effects at work are repeated: {}", effects.len());
}

#[tokio::test]
async fn a_run_waits_for_a_worker() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, graphs);
    let run = spawned(&service.restate.thread("words", "waits"), json!({"most": 12, "ms": 20}));
    reached(&service, "waits", 5).await;
    let next = service.crash_before(graphs);
    // More attempts than a policy of the server has.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let next = next();
    assert_eq!(run.await.unwrap().unwrap().values["log"], expected(12).await);
    drop(next);
}

#[tokio::test]
async fn a_cancelled_run_ends_over_crashes() {
    let Some(node) = shared() else { return };
    let mut service = Service::start(node, graphs);
    for nth in 0..12_u64 {
        let thread = service.restate.thread("words", format!("both-{nth}"));
        let run = spawned(&thread, json!({"most": 1000, "ms": 3}));
        reached(&service, &format!("both-{nth}"), 3).await;
        tokio::time::sleep(Duration::from_millis(nth)).await;
        assert!(thread.cancel().await.unwrap());
        tokio::time::sleep(Duration::from_millis(nth % 4)).await;
        let next = service.again(graphs);
        service.crash();
        service = next;
        let end = tokio::time::timeout(Duration::from_secs(30), run).await.unwrap().unwrap().unwrap();
        assert_eq!(end.status, "cancelled");
        assert_eq!(thread.stored(&words()).unwrap().state().await.unwrap().values.count, end.values["count"]);
    }
}

#[tokio::test]
async fn a_run_of_a_stopped_worker_continues_on_another_one() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, graphs);
    let thread = service.restate.thread("words", "stopped");
    let run = spawned(&thread, json!({"most": 12, "ms": 20}));
    reached(&service, "stopped", 5).await;
    let next = service.again(graphs);
    service.stop();
    let end = run.await.unwrap().unwrap();
    assert_eq!(end.values["log"], expected(12).await);
    assert_eq!(effects("stopped").len(), 24, "a drained run drops no task");
    drop(next);
}

#[tokio::test]
async fn a_cancelled_run_can_be_resumed() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, graphs);
    let thread = service.restate.thread("words", "cancelled");
    assert!(!thread.cancel().await.unwrap());
    let run = spawned(&thread, json!({"most": 12, "ms": 100}));
    reached(&service, "cancelled", 5).await;
    assert!(thread.cancel().await.unwrap());
    let end = run.await.unwrap().unwrap();
    assert_eq!(end.status, "cancelled");
    assert!(end.values["count"].as_u64().unwrap() < 12);
    let end = thread.resume().await.unwrap();
    assert_eq!((&*end.status, &end.values["log"]), ("completed", &expected(12).await));
    let update = thread.update(json!({"ms": 0}), None).await.unwrap();
    assert_eq!(json!(update.0), json!(end.checkpoint.unwrap().0 + 1));
}

#[tokio::test]
async fn an_item_is_posted_during_a_run() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, graphs);
    let thread = service.restate.thread("words", "inbox");
    let run = spawned(&thread, json!({"most": 10, "ms": 50}));
    reached(&service, "inbox", 3).await;
    let stored = words().with_checkpointer(service.restate.checkpointer().unwrap());
    assert_eq!(stored.thread("inbox").post("hello").await.unwrap(), 1);
    let end = run.await.unwrap().unwrap();
    let log = end.values["log"].as_array().unwrap();
    assert!(log.contains(&json!("read \"hello\"")), "{log:?}");
    let copied = stored.thread("inbox").copy_to("copy").await.unwrap();
    assert_eq!(copied.state().await.unwrap().values.read, 1);
    let checkpointer = service.restate.checkpointer().unwrap();
    let children = async |thread: &str| checkpointer.children(&ThreadId::from(thread)).await.unwrap().len();
    assert_eq!((children("inbox").await, children("copy").await), (1, 1));
    copied.delete().await.unwrap();
    assert_eq!((children("inbox").await, children("copy").await), (1, 0));
}

#[tokio::test]
async fn a_leased_thread_does_not_run() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, graphs);
    let stored = service.restate.checkpointer().unwrap();
    let thread = service.restate.thread("words", "leased");
    let lease = stored.lease(&"leased".into()).await.unwrap();
    let run = spawned(&thread, json!({"most": 1}));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!run.is_finished());
    assert_eq!(stored.count(&"leased".into()).await.unwrap(), 0);
    drop(lease);
    assert_eq!(run.await.unwrap().unwrap().status, "completed");
    let run = spawned(&thread, json!({"most": 5, "ms": 1000}));
    reached(&service, "leased", 6).await;
    assert!(stored.has_writer(&"leased".into()).await.unwrap());
    let busy = stored.lease(&"leased".into()).await.unwrap_err();
    assert!(matches!(busy, CheckpointError::Busy { .. }), "{busy}");
    assert_eq!(run.await.unwrap().unwrap().status, "completed");
    assert!(!stored.has_writer(&"leased".into()).await.unwrap());
}

#[tokio::test]
async fn a_thread_may_have_any_name() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, graphs);
    let stored = service.restate.checkpointer().unwrap();
    let mut names =
        ["", ".", "..", "#", "a/b", "?x=1", "%2F", "ü", "\t\n", "'; --"].map(ThreadId::from).to_vec();
    names.push("long ".repeat(1000).into());
    for name in &names {
        let end = service.restate.thread("words", name).run(json!({"most": 1})).await.unwrap();
        assert_eq!(end.values["log"], expected(1).await, "{name:?}");
        assert!(stored.load(name, None).await.unwrap().is_some(), "{name:?}");
    }
    names.sort_unstable();
    assert_eq!(stored.names().await.unwrap(), names);
    for name in &names {
        stored.delete(name).await.unwrap();
    }
    assert_eq!(stored.names().await.unwrap(), []);
}
