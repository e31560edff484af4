//! Restarts: accepted runs continue.

use reqwest::Method;
use serde_json::json;
use superstep_server::{Limits, Server};
use superstep_sqlite::{SqliteCheckpointer, SqliteStore};

use crate::{
    graphs,
    support::{TestServer, serve},
};

async fn on(folder: &tempfile::TempDir) -> TestServer {
    let (threads, rows) = (folder.path().join("threads.db"), folder.path().join("rows.db"));
    let server = graphs::all(Server::new())
        .checkpointer(SqliteCheckpointer::open(threads).unwrap())
        .rows(SqliteStore::open(rows).unwrap())
        .limits(Limits { drain: std::time::Duration::from_millis(200), ..Limits::default() });
    serve(server).await
}

#[tokio::test]
async fn runs_continue_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = on(&folder).await;
    let thread = server.post("/threads", json!({ "metadata": { "by": "ada" } })).await;
    let thread = thread["thread_id"].as_str().unwrap();
    let path = format!("/threads/{thread}/runs");
    let body = json!({ "assistant_id": "gate", "input": { "gate": "restart" }, "durability": "sync" });
    let first = server.post(&path, body.clone()).await["run_id"].as_str().unwrap().to_owned();
    let second = server.post(&path, body).await["run_id"].as_str().unwrap().to_owned();
    server.until(thread, &first, "running").await;
    let stream = server.request(Method::GET, &format!("{path}/{first}/stream")).send().await.unwrap();
    let join = server.request(Method::GET, &format!("{path}/{second}/join")).send().await.unwrap();
    server.stop().await;
    // No result, so that the client asks again.
    assert!(join.text().await.is_err());
    // Its end is no error, so that clients reconnect.
    assert!(crate::support::events(stream).await.iter().all(|event| event.name != "error"));

    let server = on(&folder).await;
    assert_eq!(server.get(&format!("/threads/{thread}")).await["metadata"]["by"], "ada");
    graphs::open("restart");
    graphs::open("restart");
    let end = server.get(&format!("{path}/{second}/join")).await;
    assert_eq!(end["log"], json!(["before", "passed", "after", "before", "passed", "after"]));
    for run in [first, second] {
        assert_eq!(server.get(&format!("{path}/{run}")).await["status"], "success");
    }
}

#[tokio::test]
async fn assistants_and_threads_are_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = on(&folder).await;
    let assistant = server.post("/assistants", json!({ "graph_id": "counter", "name": "Careful" })).await;
    let thread = server.thread().await;
    server
        .post(
            &format!("/threads/{thread}/runs/wait"),
            json!({ "assistant_id": "approve", "input": { "euros": 20 } }),
        )
        .await;
    let before = server.get(&format!("/threads/{thread}")).await;
    server.stop().await;
    let server = on(&folder).await;
    let path = format!("/assistants/{}", assistant["assistant_id"].as_str().unwrap());
    assert_eq!(server.get(&path).await, assistant);
    assert_eq!(server.get(&format!("/threads/{thread}")).await, before);
    let answer = json!({ "assistant_id": "approve", "command": { "resume": "yes" } });
    assert_eq!(server.post(&format!("/threads/{thread}/runs/wait"), answer).await["verdict"], "yes");
}
