//! Runs of graphs on a server.

use serde_json::json;
use superstep_graph::{CompiledGraph, END, Log, START, State, StateGraph};

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
    let run = async |id: &str| service.restate.run("w-1", "words", id, json!({"count": 1})).await.unwrap();
    let end = run("in-1").await;
    assert_eq!(end["values"], json!({"log": ["one", "two 2"], "count": 3}));
    assert_eq!((&end["status"], &end["checkpoint"]), (&json!("completed"), &json!(4)));
    assert_eq!(run("in-1").await, end);
    let stored = words().with_checkpointer(service.restate.checkpointer().unwrap());
    let thread = stored.thread("w-1");
    assert_eq!(thread.state().await.unwrap().values.count, 3);
    assert_eq!(thread.history().checkpoints().await.unwrap().len(), 4);
}
