//! Long threads and many threads.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use superstep_graph::{
    Checkpointer, CompiledGraph, Cx, END, MemoryCheckpointer, Route, START, State, StateGraph,
};
use superstep_server::Server;
use superstep_sqlite::SqliteCheckpointer;
use tokio::time::timeout;

use crate::support::{TestServer, serve, start};

/// The checkpoints of a run.
const MANY: u64 = 3_000;

#[derive(State, Clone, Debug, Default)]
struct Count {
    n: u64,
}

#[derive(Clone, Copy, Route)]
enum Next {
    Again,
    Done,
}

/// A node that runs again and again.
fn many() -> CompiledGraph<Count> {
    let mut graph = StateGraph::<Count>::new("many");
    let node = graph.add_node("node", async |state: Count, _: Cx| Count::update().n(state.n + 1));
    graph.add_edge(START, node);
    let next = |state: &Count| if state.n < MANY { Next::Again } else { Next::Done };
    graph.add_conditional_edges(node, next, move |next| match next {
        Next::Again => node,
        Next::Done => END,
    });
    graph.compile().unwrap()
}

async fn run(server: &TestServer, by: &str) {
    let body = json!({
        "assistant_id": "many", "input": { "n": 0 }, "metadata": { "by": by }, "if_not_exists": "create",
        "config": { "recursion_limit": MANY + 10 },
    });
    assert_eq!(server.post("/threads/t/runs/wait", body).await["n"], MANY);
}

/// Reads parts of the history, and returns the metadata `by` of all states.
async fn windows(server: &TestServer) -> Vec<Value> {
    let mut by = Vec::new();
    for part in 0..20 {
        let before = (MANY - part * MANY / 25).to_string();
        let window = json!({ "limit": 10, "before": before });
        let states = server.post("/threads/t/history", window).await;
        by.extend(states.as_array().unwrap().iter().map(|state| state["metadata"]["by"].clone()));
        by.push(server.get("/threads/t/state").await["metadata"]["by"].clone());
    }
    by
}

#[tokio::test]
async fn parts_of_a_long_history_are_read_without_the_rest_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteCheckpointer::open(folder.path().join("threads.db")).unwrap();
    let storages: [Arc<dyn Checkpointer>; 2] = [Arc::new(MemoryCheckpointer::new()), Arc::new(sqlite)];
    for storage in storages {
        let server = serve(Server::new().graph("many", many()).checkpointer(storage)).await;
        run(&server, "ada").await;
        let by = timeout(Duration::from_secs(5), windows(&server)).await.expect("it is slow");
        assert_eq!(by, vec![json!("ada"); 20 * 11]);
        // Another thread of the same name, and one more run on it.
        server.delete("/threads/t").await;
        run(&server, "bob").await;
        assert!(windows(&server).await.iter().all(|by| by == "bob"));
        run(&server, "eve").await;
        assert_eq!(server.get("/threads/t/state").await["metadata"]["by"], "eve");
        assert!(windows(&server).await.iter().step_by(11).all(|by| by == "bob"));
    }
}

#[tokio::test]
async fn many_threads_are_searched_by_status() {
    let server = start().await;
    for number in 0..1_000 {
        server.post("/threads", json!({ "metadata": { "number": number } })).await;
    }
    for _ in 0..20 {
        let page = json!({ "status": "idle", "limit": 10, "offset": 500 });
        let found = server.post("/threads/search", page).await;
        let numbers: Vec<_> =
            found.as_array().unwrap().iter().map(|thread| thread["metadata"]["number"].clone()).collect();
        assert_eq!(numbers, (490..500).rev().map(Value::from).collect::<Vec<_>>());
    }
    assert_eq!(server.post("/threads/count", json!({ "status": "busy" })).await, 0);
}
