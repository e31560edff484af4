//! Runs of graphs on a server.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use superstep_graph::{CheckpointId, CompiledGraph, Cx, END, Log, START, State, StateGraph, Status};
use tokio::sync::Notify;

use crate::{node::shared, service::Service};

#[derive(State, Clone, Debug, Default)]
struct Words {
    #[channel(append)]
    log: Log<String>,
    count: u32,
}

/// Two nodes, one after the other.
fn words() -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("words");
    let first =
        graph.add_node("first", async |words: Words, _| Words::update().count(words.count + 1).log(["one"]));
    let second = graph.add_node("second", async |words: Words, _| {
        Words::update().count(words.count + 1).log([format!("two {}", words.count)])
    });
    graph.add_edge(START, first);
    graph.add_edge(first, second);
    graph.add_edge(second, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_run_ends_with_the_state_and_is_stored() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(words()));
    let thread = service.restate.thread("words", "w-1").input_id("in-1");
    let end = thread.run(Words::update().count(1)).await.unwrap();
    assert_eq!(json!(end.values), json!({"log": ["one", "two 2"], "count": 3}));
    assert_eq!((&*end.status, end.checkpoint), ("completed", Some(CheckpointId(4))));
    assert_eq!(thread.run(Words::update().count(1)).await.unwrap(), end);
    let stored = thread.stored(&words()).unwrap();
    assert_eq!(stored.state().await.unwrap().values.count, 3);
    assert_eq!(stored.history().checkpoints().await.unwrap().len(), 4);
    let outcome = end.outcome(&words()).unwrap();
    assert_eq!((outcome.state.count, outcome.status), (3, Status::Completed));
}

/// Asks, then adds the answer.
fn asking() -> CompiledGraph<Words> {
    let mut graph = StateGraph::<Words>::new("asking");
    let ask = graph.add_node("ask", async |_: Words, cx: Cx| {
        let answer: String = cx.interrupt("name", "who?").await;
        Words::update().log([answer])
    });
    graph.add_edge(START, ask);
    graph.add_edge(ask, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_question_is_answered_once_and_the_thread_can_be_changed() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(asking()));
    let thread = service.restate.thread("asking", "a-1");
    let end = thread.run(Words::update()).await.unwrap();
    assert_eq!((&*end.status, end.interrupts.len()), ("interrupted", 1));
    let id = end.interrupts[0].id.clone();
    let answered = thread.answer(&id, "Ada").await.unwrap();
    assert_eq!(answered.values["log"], json!(["Ada"]));
    assert_eq!(thread.answer(&id, "Eve").await.unwrap(), answered);
    let error = thread.answer("nobody", 1).await.unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
    let head = thread.update(Words::update().count(7), None).await.unwrap();
    assert_eq!(Some(head.0), answered.checkpoint.map(|id| id.0 + 1));
    let forked = thread.fork(CheckpointId(1)).await.unwrap();
    assert_eq!(forked.0, head.0 + 1);
    let resumed = thread.resume().await.unwrap();
    assert_eq!((&*resumed.status, &resumed.values["count"]), ("interrupted", &json!(0)));
    assert!(!thread.cancel().await.unwrap());
    let error = service.restate.thread("nothing", "a-2").run(Words::update()).await.unwrap_err();
    assert_eq!(error.to_string(), "this service has no graph `nothing`; it has `asking`");
    let error = service.restate.thread("asking", "a-2").run(json!({"counts": 1})).await.unwrap_err();
    assert!(error.to_string().contains("counts"), "{error}");
}

#[tokio::test]
async fn an_input_is_sent_without_waiting_for_its_run() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(words()));
    let thread = service.restate.thread("words", "later").input_id("in-1");
    let begun = tokio::time::Instant::now();
    thread.send(Words::update(), Duration::from_millis(700)).await.unwrap();
    let stored = thread.stored(&words()).unwrap();
    while stored.history().checkpoints().await.unwrap().len() < 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(700));
}

/// Each run of a node is a task of the process that serves it.
#[tokio::test]
async fn a_cancelled_run_can_be_resumed() {
    let Some(node) = shared() else { return };
    let began = Arc::new(Notify::new());
    let slow = |began: Arc<Notify>| {
        let mut graph = StateGraph::<Words>::new("slow");
        let wait = graph.add_node_with("wait", began, async |began: Arc<Notify>, words: Words, _: Cx| {
            if words.count == 0 {
                began.notify_one();
                std::future::pending::<()>().await;
            }
            Words::update().log(["done"])
        });
        graph.add_edge(START, wait);
        graph.add_edge(wait, END);
        graph.compile().unwrap()
    };
    let service = Service::start(node, |endpoint| endpoint.graph(slow(began.clone())));
    let thread = service.restate.thread("slow", "s-1");
    let running = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Words::update()).await.unwrap() }
    });
    began.notified().await;
    assert!(thread.cancel().await.unwrap());
    let end = running.await.unwrap();
    assert_eq!(end.status, "cancelled");
    thread.update(Words::update().count(1), Some("wait")).await.unwrap();
    thread.fork(CheckpointId(2)).await.unwrap();
    let stored = thread.stored(&slow(began)).unwrap();
    assert_eq!(stored.state().await.unwrap().next.len(), 1);
}
