//! Threads: creation, changes, searches, copies.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::start;

#[tokio::test]
async fn a_thread_is_created_once() {
    let server = start().await;
    let id = "01a2253b-d2c0-7302-824b-0e04139d54bc";
    let new = json!({ "thread_id": id, "metadata": { "by": "ada" } });
    let thread = server.post("/threads", new.clone()).await;
    assert_eq!(
        (&thread["thread_id"], &thread["status"], &thread["values"]),
        (&json!(id), &json!("idle"), &Value::Null)
    );
    assert_eq!(server.refused(Method::POST, "/threads", new.clone()).await.0, 409);
    let mut again = new;
    again["if_exists"] = "do_nothing".into();
    assert_eq!(server.post("/threads", again).await["created_at"], thread["created_at"]);
    let changed = server
        .send(Method::PATCH, &format!("/threads/{id}"), json!({ "metadata": { "topic": "tea" } }))
        .await;
    assert_eq!(changed.json::<Value>().await.unwrap()["metadata"], json!({ "by": "ada", "topic": "tea" }));
    assert_eq!(server.delete(&format!("/threads/{id}")).await, 204);
    assert_eq!(server.refused(Method::GET, &format!("/threads/{id}"), json!({})).await.0, 404);
    assert_eq!(server.delete(&format!("/threads/{id}")).await, 404);
    assert_eq!(server.refused(Method::POST, "/threads", json!({ "ttl": { "ttl": 5 } })).await.0, 422);
}

#[tokio::test]
async fn threads_are_found_by_metadata_status_and_values() {
    let server = start().await;
    for n in 0..3 {
        let thread = server.post("/threads", json!({ "metadata": { "n": n, "graph_id": "counter" } })).await;
        let path = format!("/threads/{}/runs/wait", thread["thread_id"].as_str().unwrap());
        server.post(&path, json!({ "assistant_id": "counter", "input": { "n": n } })).await;
    }
    let asks = server.thread().await;
    server
        .post(&format!("/threads/{asks}/runs/wait"), json!({ "assistant_id": "approve", "input": {} }))
        .await;
    let search = async |body: Value| server.post("/threads/search", body).await;
    let by_graph = search(json!({ "metadata": { "graph_id": "counter" }, "limit": 2 })).await;
    assert_eq!((&by_graph[0]["metadata"]["n"], &by_graph[1]["metadata"]["n"]), (&json!(2), &json!(1)));
    assert_eq!(by_graph.as_array().unwrap().len(), 2);
    let response = server.send(Method::POST, "/threads/search", json!({ "limit": 2, "offset": 1 })).await;
    assert_eq!(
        (&response.headers()["x-pagination-total"], &response.headers()["x-pagination-next"]),
        (&"4".parse().unwrap(), &"3".parse().unwrap())
    );
    let waiting = search(json!({ "status": "interrupted", "select": ["thread_id"] })).await;
    assert_eq!(waiting, json!([{ "thread_id": asks }]));
    let by_values = search(json!({ "values": { "n": 3 } })).await;
    assert_eq!((by_values.as_array().unwrap().len(), &by_values[0]["metadata"]["n"]), (1, &json!(1)));
    assert_eq!(server.post("/threads/count", json!({ "metadata": { "graph_id": "counter" } })).await, 3);
    let oldest = search(json!({ "sort_by": "created_at", "sort_order": "asc", "limit": 1 })).await;
    assert_eq!(oldest[0]["metadata"]["n"], 0);
    assert_eq!(server.refused(Method::POST, "/threads/search", json!({ "limit": 0 })).await.0, 422);
    assert_eq!(server.refused(Method::POST, "/threads/search", json!({ "sort_by": "size" })).await.0, 422);
}

#[tokio::test]
async fn a_copy_continues_on_its_own() {
    let server = start().await;
    let thread = server.thread().await;
    server
        .post(
            &format!("/threads/{thread}/runs/wait"),
            json!({ "assistant_id": "approve", "input": { "euros": 20 } }),
        )
        .await;
    let copy = server.request(Method::POST, &format!("/threads/{thread}/copy")).send().await.unwrap();
    let copy: Value = copy.json().await.unwrap();
    let id = copy["thread_id"].as_str().unwrap();
    assert_eq!((&copy["values"]["euros"], &copy["status"]), (&json!(20), &json!("interrupted")));
    let answer = json!({ "assistant_id": "approve", "command": { "resume": "yes" } });
    assert_eq!(server.post(&format!("/threads/{id}/runs/wait"), answer).await["verdict"], "yes");
    assert_eq!(server.get(&format!("/threads/{thread}")).await["values"]["verdict"], "");
}

#[tokio::test]
async fn threads_are_pruned_or_deleted() {
    let server = start().await;
    let thread = server.thread().await;
    server
        .post(&format!("/threads/{thread}/runs/wait"), json!({ "assistant_id": "counter", "input": {} }))
        .await;
    let prune = |strategy: &str| json!({ "thread_ids": [thread, "none"], "strategy": strategy });
    assert_eq!(server.post("/threads/prune", prune("keep_latest")).await, json!({ "pruned_count": 1 }));
    let history = server.get(&format!("/threads/{thread}/history")).await;
    assert_eq!((history.as_array().unwrap().len(), &history[0]["values"]["n"]), (1, &json!(2)));
    assert_eq!(server.post("/threads/prune", prune("delete")).await, json!({ "pruned_count": 1 }));
    assert_eq!(server.post("/threads/count", json!({})).await, 0);
}

#[tokio::test]
async fn a_thread_begins_with_supersteps_all_or_none() {
    let server = start().await;
    let update = |node: &str| json!({ "updates": [{ "values": { "n": 2 }, "as_node": node }] });
    let new = |last: &str| {
        let supersteps = [update("__start__"), update("one"), update(last)];
        json!({ "metadata": { "graph_id": "counter" }, "supersteps": supersteps })
    };
    let thread = server.post("/threads", new("two")).await;
    assert_eq!(thread["values"]["n"], 6);
    let (status, _) = server.refused(Method::POST, "/threads", new("three")).await;
    assert_eq!(status, 400);
    assert_eq!(server.post("/threads/count", json!({})).await, 1);
}

#[tokio::test]
async fn a_thread_of_another_graph_is_refused_and_does_not_hide_the_others() {
    let server = start().await;
    let thread = server.thread().await;
    let path = format!("/threads/{thread}");
    let run = |graph: &str| json!({ "assistant_id": graph, "input": {} });
    server.post(&format!("{path}/runs/wait"), run("counter")).await;
    let (status, detail) = server.refused(Method::POST, &format!("{path}/runs/wait"), run("chat")).await;
    assert!(status == 400 && detail.contains("belongs to graph `counter`"), "{status} {detail}");
    assert_eq!(server.get(&path).await["metadata"]["graph_id"], "counter");
    // A client may write the metadata, too.
    let other = server.thread().await;
    server.post(&format!("/threads/{other}/runs/wait"), run("counter")).await;
    server.send(Method::PATCH, &path, json!({ "metadata": { "graph_id": "chat" } })).await;
    let found = server.post("/threads/search", json!({ "sort_order": "asc" })).await;
    assert_eq!((&found[0]["values"], &found[1]["values"]["n"]), (&Value::Null, &json!(2)));
    let of_values = server.post("/threads/search", json!({ "values": { "n": 2 } })).await;
    assert_eq!(of_values[0]["thread_id"], other);
    // Before the first run has ended there is no state.
    let busy = server.thread().await;
    let runs = format!("/threads/{busy}/runs");
    let first = server.post(&runs, json!({ "assistant_id": "gate", "input": { "gate": "busy" } })).await;
    let (status, detail) = server.refused(Method::POST, &runs, run("chat")).await;
    assert_eq!((status, detail), (409, format!("thread `{busy}` is busy with a run of graph `gate`")));
    let cancel = format!("{runs}/{}/cancel?wait=true", first["run_id"].as_str().unwrap());
    assert_eq!(server.send(Method::POST, &cancel, json!({})).await.status(), 200);
}

#[tokio::test]
async fn a_run_has_the_metadata_of_its_thread_except_what_the_server_sets() {
    let server = start().await;
    let metadata = json!({ "team": "tea", "by": "ada", "owner": "bob", "run_id": "r" });
    let thread = server.post("/threads", json!({ "metadata": metadata })).await;
    let runs = format!("/threads/{}/runs", thread["thread_id"].as_str().unwrap());
    let run = json!({ "assistant_id": "counter", "input": {}, "metadata": { "by": "grace" } });
    let metadata = server.post(&runs, run).await["metadata"].clone();
    assert_eq!((&metadata["team"], &metadata["by"]), (&json!("tea"), &json!("grace")));
    assert_eq!(metadata.get("owner"), None);
    assert_ne!(metadata["run_id"], "r");
}
