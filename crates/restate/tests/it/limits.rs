//! Large writes, many waiting threads, and graphs that change under their runs.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use serde_json::json;
use superstep_graph::{CompiledGraph, Cx, END, Log, START, State, StateGraph};
use tokio::sync::Notify;

use crate::{node::shared, service::Service};

#[derive(State, Clone, Debug, Default)]
struct Parcel {
    #[channel(append)]
    log: Log<String>,
    content: String,
}

/// Fills the parcel with this number of bytes.
fn filling(bytes: usize) -> CompiledGraph<Parcel> {
    let mut graph = StateGraph::<Parcel>::new("parcels");
    let fill = graph.add_node_with("fill", bytes, async |bytes: usize, _: Parcel, _: Cx| {
        Parcel::update().content("x".repeat(bytes))
    });
    graph.add_edge(START, fill);
    graph.add_edge(fill, END);
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_write_that_is_too_large_is_refused_and_nothing_of_it_is_stored() {
    let Some(node) = shared() else { return };
    let service = Service::start(node, |endpoint| endpoint.graph(filling(34 << 20)));
    let thread = service.restate.thread("parcels", "p-1");
    let error = thread.run(Parcel::update()).await.unwrap_err().to_string();
    assert!(error.contains("SS303") && error.contains("at most 30 MiB"), "{error}");
    let stored = thread.stored(&filling(0)).unwrap();
    assert_eq!(stored.history().checkpoints().await.unwrap().len(), 2);
    assert_eq!(stored.state().await.unwrap().next.len(), 1);
    drop(service);
    let service = Service::start(node, |endpoint| endpoint.graph(filling(8 << 20)));
    let end = service.restate.thread("parcels", "p-2").run(Parcel::update()).await.unwrap();
    assert_eq!(end.values["content"].as_str().map(str::len), Some(8 << 20));
}

/// Waits at its first node for ever, in its first version.
fn waiting(began: &Arc<Notify>, version: &'static str) -> CompiledGraph<Parcel> {
    let mut graph = StateGraph::<Parcel>::new("parcels");
    let first = graph.add_node_with(
        "first",
        (began.clone(), version),
        async |(began, version): (Arc<Notify>, &'static str), _: Parcel, _: Cx| {
            if version == "one" {
                began.notify_one();
                std::future::pending::<()>().await;
            }
            Parcel::update().log([version])
        },
    );
    graph.add_edge(START, first);
    if version == "one" {
        graph.add_edge(first, END);
    } else {
        let second = graph.add_node("second", async |_: Parcel, _: Cx| Parcel::update().log(["second"]));
        graph.add_edge(first, second);
        graph.add_edge(second, END);
    }
    graph.compile().unwrap()
}

#[tokio::test]
async fn a_run_continues_with_the_code_and_the_nodes_of_a_new_version() {
    let Some(node) = shared() else { return };
    let began = Arc::new(Notify::new());
    let service = Service::start(node, |endpoint| endpoint.graph(waiting(&began, "one")));
    let thread = service.restate.thread("parcels", "p-1");
    let running = tokio::spawn({
        let thread = thread.clone();
        async move { thread.run(Parcel::update()).await.unwrap() }
    });
    began.notified().await;
    let again = service.crash_before(|endpoint| endpoint.graph(waiting(&began, "two")));
    let _service = again();
    assert_eq!(running.await.unwrap().values["log"], json!(["two", "second"]));
}

/// Asks, and adds the answer.
fn asking() -> CompiledGraph<Parcel> {
    let mut graph = StateGraph::<Parcel>::new("parcels");
    let ask = graph.add_node("ask", async |_: Parcel, cx: Cx| {
        let answer: String = cx.interrupt("to", "where to?").await;
        Parcel::update().log([answer])
    });
    graph.add_edge(START, ask);
    graph.add_edge(ask, END);
    graph.compile().unwrap()
}

/// The long form has 10,000 threads.
#[tokio::test]
async fn threads_wait_for_answers_without_a_worker() {
    let Some(node) = shared() else { return };
    let threads = std::env::var("SUPERSTEP_PARKED").map_or(50, |count| count.parse().unwrap());
    let service = Service::start(node, |endpoint| endpoint.graph(asking()));
    let restate = service.restate.clone();
    let thread = |nth: usize| restate.thread("parcels", format!("p-{nth}"));
    let begun = stream::iter(0..threads).map(|nth| {
        let thread = thread(nth);
        async move { thread.run(Parcel::update()).await.unwrap().interrupts[0].id.clone() }
    });
    let questions: Vec<String> = begun.buffered(64).collect().await;
    let again = service.crash_before(|endpoint| endpoint.graph(asking()));
    let threads: Vec<_> = (0..threads).map(thread).collect();
    let answered = stream::iter(threads.clone().into_iter().zip(questions)).enumerate().map(
        |(nth, (thread, question))| async move {
            thread.answer(&question, format!("street {nth}")).await.unwrap().values["log"].clone()
        },
    );
    // They are sent while no worker runs.
    let answered = tokio::spawn(answered.buffered(64).collect::<Vec<_>>());
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let _service = again();
    let expected: Vec<_> = (0..threads.len()).map(|nth| json!([format!("street {nth}")])).collect();
    assert_eq!(answered.await.unwrap(), expected);
}
