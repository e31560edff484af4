//! Restarts: accepted runs continue.

use reqwest::Method;
use serde_json::json;
use superstep_server::{Limits, Server, ServerError};
use superstep_sqlite::{SqliteCheckpointer, SqliteStore};
use tokio::net::TcpListener;

use crate::{
    graphs,
    support::{Reader, TestServer, serve},
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

#[tokio::test]
async fn a_resumable_stream_is_read_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = on(&folder).await;
    let thread = server.thread().await;
    let body = json!({
        "assistant_id": "approve", "input": { "euros": 20 }, "stream_mode": ["updates", "values", "debug"],
        "stream_resumable": true, "durability": "sync",
    });
    let seen = server.stream(&thread, body).await;
    let asked = server.get(&format!("/threads/{thread}/runs")).await[0]["run_id"].clone();
    let gate = json!({ "assistant_id": "gate", "input": { "gate": "again" }, "stream_resumable": true, "durability": "sync" });
    let waiting = server.thread().await;
    let run = server.post(&format!("/threads/{waiting}/runs"), gate).await["run_id"].clone();
    server.until(&waiting, run.as_str().unwrap(), "running").await;
    server.stop().await;

    let server = on(&folder).await;
    let read = async |thread: &str, run: &serde_json::Value, after: &str| {
        let place = format!("/threads/{thread}/runs/{}/stream", run.as_str().unwrap());
        let request = server.request(Method::GET, &place).header("last-event-id", after);
        crate::support::events(request.send().await.unwrap()).await
    };
    assert_eq!(read(&thread, &asked, "-1").await, seen);
    assert_eq!(read(&thread, &asked, seen[2].id.as_ref().unwrap()).await, seen[3..]);
    let of_thread = server.request(Method::GET, &format!("/threads/{thread}/stream"));
    let mut of_thread = Reader::new(of_thread.header("last-event-id", "-1").send().await.unwrap());
    assert_eq!(of_thread.next().await.unwrap(), seen[0]);

    graphs::open("again");
    let all = read(&waiting, &run, "-1").await;
    let attempts: Vec<_> = all.iter().filter_map(|event| event.data["attempt"].as_u64()).collect();
    assert_eq!(attempts, [1, 2]);
    let values: Vec<_> = all.iter().filter(|event| event.name == "values").collect();
    let lengths: Vec<_> = values.iter().map(|event| event.data["log"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [0, 1, 2, 3]);

    server.delete(&format!("/threads/{thread}")).await;
    let gone = format!("/threads/{thread}/runs/{}/stream", asked.as_str().unwrap());
    assert_eq!(server.request(Method::GET, &gone).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn a_second_server_on_the_same_rows_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let open = |rows: &str| {
        graphs::all(Server::new())
            .checkpointer(SqliteCheckpointer::open(folder.path().join("threads.db")).unwrap())
            .rows(SqliteStore::open(folder.path().join(rows)).unwrap())
    };
    let first = on(&folder).await;
    first.thread().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = open("rows.db").serve(listener).await.unwrap_err();
    assert!(matches!(error, ServerError::RowsInUse), "{error}");
    assert!(error.to_string().contains("another server uses these rows"), "{error}");
    serve(open("rows.db").read_only()).await.get("/ok").await;
    let other = serve(open("others.db")).await;
    other.thread().await;
    first.stop().await;
    // The rows are free again.
    on(&folder).await.thread().await;
}
