//! Threads of graphs that do not belong to the program.

use std::sync::Arc;

use serde_json::json;
use superstep::{CompiledGraph, END, Log, START, State, StateGraph, sqlite::SqliteCheckpointer};

use crate::{
    listed::{assert_all_tried, commands},
    support::Place,
};

#[derive(State, Clone, Debug, Default)]
struct Order {
    #[channel(append)]
    items: Log<String>,
}

/// Creates a place whose agent has the thread `mine`, next to the thread `order` of another graph.
async fn with_an_order() -> (Place, CompiledGraph<Order>) {
    let place = Place::new();
    place.run(&["run", "-q", "1 + 1", "--thread", "mine"]).await.ok();
    let mut graph = StateGraph::<Order>::new("orders");
    graph = graph.version("3");
    let node = graph.add_node("buy", async |_: Order, _| Order::update().items(["tea".to_owned()]));
    graph.add_edge(START, node);
    graph.add_edge(node, END);
    let store = Arc::new(SqliteCheckpointer::open(place.database()).unwrap());
    let graph = graph.compile().unwrap().with_checkpointer(store);
    graph.thread("order").run(Order::update()).await.unwrap();
    (place, graph)
}

#[tokio::test]
async fn a_thread_of_another_graph_is_refused_by_every_command_and_stays_as_it_is() {
    let (place, graph) = with_an_order().await;
    let before = graph.thread("order").history().checkpoints().await.unwrap();
    let refused = "SS176: thread `order` belongs to graph `orders`, version `3`, and this is graph `react`";
    let tried = [
        &["run", "what now", "--thread", "order"][..],
        &["run", "what now", "--thread", "order", "--discard"],
        &["run", "what now", "--thread", "order", "--from", "1"],
        &["resume", "order"],
        &["steer", "order", "hello"],
        &["pin", "order", "hello"],
        &["state", "order"],
        &["state", "order", "--at", "1"],
        &["history", "order"],
        &["diff", "order", "mine"],
        &["watch", "order"],
        &["draw", "--thread", "order"],
        &["replay", "order"],
        &["prune", "order", "--yes", "--keep-last", "1"],
        &["revert", "order", "--to", "1", "--force"],
    ];
    for args in tried {
        let ran = place.run(args).await;
        assert_eq!(ran.code, Some(5), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(refused), "{args:?}: {ran:?}");
    }
    assert_eq!(graph.thread("order").history().checkpoints().await.unwrap(), before, "nothing was added");

    let listed = place.run(&["threads"]).await.ok().stdout;
    assert!(listed.contains("belongs to graph `orders`, version `3`"), "{listed}");
    let lines = place.run(&["threads", "--json"]).await.ok().lines();
    assert_eq!(lines[0]["graph"], json!({"name": "orders", "version": "3"}));
    assert_eq!((&lines[1]["thread"], &lines[1]["graph"]), (&json!("mine"), &json!({"name": "react"})));
    // Commands that need no graph work with any, and those of a whole database as well.
    place.run(&["copy", "order", "more"]).await.ok();
    place.run(&["delete", "more", "--yes"]).await.ok();
    let without_graph = ["copy", "delete", "export", "import", "memory", "threads", "usage"];
    let whole =
        ["db check", "db migrate", "db prune", "db rekey", "db stats", "db vacuum", "doctor", "dream"];
    let elsewhere = ["acp", "adopt", "chat", "jobs", "serve", "worker"];
    let commands = commands(&place).await;
    let with_database = commands.iter().filter(|command| command.has_database());
    assert_all_tried(with_database, tried, &[&without_graph[..], &whole, &elsewhere].concat());
}

#[tokio::test]
async fn an_adopted_thread_is_the_agents() {
    let (place, graph) = with_an_order().await;
    let unknown = place.run(&["adopt", "nobody"]).await;
    assert!(
        unknown.code == Some(5) && unknown.stderr.contains("thread `nobody` does not exist"),
        "{unknown:?}"
    );
    let told = place.run(&["adopt", "order"]).await.ok().stdout;
    assert_eq!(told, "thread `order` belongs to the agent now\n");
    assert!(graph.thread("order").state().await.is_err());
    place.run(&["run", "-q", "1 + 1", "--thread", "order"]).await.ok();
    let told = place.run(&["adopt", "order", "--json"]).await.ok().lines();
    assert_eq!(told, [json!({"thread": "order", "graph": "react"})]);
}
