//! Whole threads: versions of messages, cases, copies, subgraphs, and damage.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use futures::future::{BoxFuture, ready};
use reqwest::Method;
use serde_json::{Value, json};
use superstep_graph::{
    CheckpointId, Checkpointer, MemoryCheckpointer, ThreadId,
    checkpoint::{Retention, text},
};
use superstep_server::{Server, ThreadActions};
use superstep_sqlite::SqliteCheckpointer;

use super::{API, ask, begun, graphs::helper, settled, studio};
use crate::support::{TestServer, serve};

/// Returns the messages of a thread at a checkpoint with the checkpoints with which they came.
async fn arrivals(server: &TestServer, thread: &str, at: u64) -> Vec<Value> {
    let page = server.get(&format!("{API}/threads/{thread}/at/{at}/messages")).await;
    let line = |message: &Value| json!([message["role"], message["from"]]);
    page["messages"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test]
async fn messages_name_the_checkpoint_with_which_they_came() {
    let server = serve(studio(Server::new())).await;
    begun(&server, "rename", "helper", ask()).await;
    assert_eq!(arrivals(&server, "rename", 3).await, [json!(["user", 1]), json!(["assistant", 3])]);
    let question = server.get(&format!("{API}/threads/rename")).await["questions"][0]["id"].clone();
    let answers = json!({ "answers": { question.as_str().unwrap(): "approve" } });
    server.post(&format!("{API}/threads/rename/answers"), answers).await;
    let end = settled(&server, "rename").await["line"]["head"].as_u64().unwrap();
    // The same words once more, then another version of them.
    let say = |text: &str| json!({ "messages": [{ "role": "user", "content": text }] });
    let again = say("Rename the module parser to reader.");
    server.post(&format!("{API}/threads/rename/run"), json!({ "input": again })).await;
    let head = settled(&server, "rename").await["line"]["head"].as_u64().unwrap();
    let found = arrivals(&server, "rename", head).await;
    assert_eq!((&found[0], &found[4]), (&json!(["user", 1]), &json!(["user", end + 1])));
    let other = json!({ "values": say("Keep its name."), "as_node": "__start__", "at": end });
    let edited = server.post(&format!("{API}/threads/rename/update"), other).await["checkpoint"].clone();
    let found = arrivals(&server, "rename", edited.as_u64().unwrap()).await;
    assert_eq!(found.last(), Some(&json!(["user", edited])));
}

#[tokio::test]
async fn a_thread_is_a_case_whose_divergence_is_accepted() {
    let store = Arc::new(MemoryCheckpointer::new());
    let before = serve(studio(Server::new()).checkpointer(store.clone() as Arc<dyn Checkpointer>)).await;
    begun(&before, "a b", "helper", ask()).await;
    let case = before.get(&format!("{API}/threads/a%20b/case")).await;
    assert_eq!(case["name"], "a_b.thread.jsonl");
    let same = before.post(&format!("{API}/cases/replay"), json!({ "text": case["text"] })).await;
    assert_eq!((&same["thread"], &same["graph"]), (&json!("a b"), &json!("helper")));
    assert_eq!((&same["replay"]["divergence"], &same["replay"]["is_whole"]), (&Value::Null, &json!(true)));
    before.stop().await;

    let changed = || Server::new().graph("helper", helper("helper", "You are kind."));
    let server = serve(changed().checkpointer(store as Arc<dyn Checkpointer>)).await;
    let replay = async |text: &Value| {
        server.post(&format!("{API}/cases/replay"), json!({ "text": text })).await["replay"]["divergence"]
            .clone()
    };
    assert_eq!(replay(&case["text"]).await["place"], "/system");
    let of_case = server.post(&format!("{API}/cases/accept"), json!({ "text": case["text"] })).await;
    let of_thread = server.post(&format!("{API}/threads/a%20b/case"), json!({})).await;
    for accepted in [&of_case, &of_thread] {
        assert_eq!((&accepted["name"], &replay(&accepted["text"]).await), (&case["name"], &Value::Null));
    }
    // The thread itself is as it was, and the file is one that programs read.
    assert_eq!(server.get(&format!("{API}/threads/a%20b/case")).await, case);
    let elsewhere = MemoryCheckpointer::new();
    text::import(&elsewhere, &mut std::io::Cursor::new(of_case["text"].as_str().unwrap())).await.unwrap();
    let graph = helper("helper", "You are kind.").with_checkpointer(elsewhere);
    graph.thread("a b").replay().run().await.unwrap().assert_same();

    let (status, detail) =
        server.refused(Method::POST, &format!("{API}/cases/replay"), json!({ "text": "{}" })).await;
    assert_eq!(status, 422, "{detail}");
    let other = serve(Server::new().graph("wide", super::wide())).await;
    let (status, detail) =
        other.refused(Method::POST, &format!("{API}/cases/replay"), json!({ "text": case["text"] })).await;
    assert_eq!(status, 409, "{detail}");
    assert!(detail.contains("graph `helper`"), "{detail}");
}

#[tokio::test]
async fn a_thread_is_copied_pruned_and_deleted() {
    let server = serve(studio(Server::new())).await;
    begun(&server, "count", "counter", json!({ "n": 5 })).await;
    let head = settled(&server, "count").await["line"]["head"].as_u64().unwrap();
    let copy = json!({ "to": "copy" });
    server.post(&format!("{API}/threads/count/copy"), copy.clone()).await;
    assert_eq!(settled(&server, "copy").await["line"]["graph"], "counter");
    assert_eq!(server.refused(Method::POST, &format!("{API}/threads/count/copy"), copy).await.0, 409);
    let prune = |expected: u64| json!({ "last": 2, "expected": expected });
    let path = format!("{API}/threads/count/prune");
    assert_eq!(server.refused(Method::POST, &path, prune(head + 1)).await.0, 409);
    let pruned = server.post(&path, prune(head)).await;
    assert_eq!(pruned, json!({ "pruned": head - 2, "left": 2 }));
    server.post(&format!("{API}/threads/count/delete"), json!({})).await;
    assert_eq!(server.refused(Method::GET, &format!("{API}/threads/count"), Value::Null).await.0, 404);
    assert_eq!(settled(&server, "copy").await["line"]["head"], head);
    // Without the actions of a program nothing reads messages or stores files.
    for (action, body) in [("steer", json!({ "text": "hi" })), ("revert", json!({ "to": 1 }))] {
        let path = format!("{API}/threads/copy/{action}");
        assert_eq!(server.refused(Method::POST, &path, body).await.0, 409);
    }
}

/// Actions that only note their calls.
#[derive(Clone, Default)]
pub(super) struct Noted(Arc<Mutex<Vec<String>>>);

impl Noted {
    fn note<T: Send + 'static>(&self, call: String, answer: T) -> BoxFuture<'_, Result<T, String>> {
        self.0.lock().unwrap().push(call);
        Box::pin(ready(Ok(answer)))
    }
}

impl ThreadActions for Noted {
    fn steer(&self, thread: ThreadId, text: String) -> BoxFuture<'_, Result<(), String>> {
        self.note(format!("steer {thread} {text}"), ())
    }

    fn copy(&self, from: ThreadId, to: ThreadId) -> BoxFuture<'_, Result<(), String>> {
        self.note(format!("copy {from} {to}"), ())
    }

    fn prune(&self, thread: ThreadId, keep: Retention) -> BoxFuture<'_, Result<usize, String>> {
        self.note(format!("prune {thread} {keep:?}"), 7)
    }

    fn delete(&self, thread: ThreadId) -> BoxFuture<'_, Result<(), String>> {
        self.note(format!("delete {thread}"), ())
    }

    fn revert(&self, thread: ThreadId, to: CheckpointId) -> BoxFuture<'_, Result<Vec<String>, String>> {
        if to.0 == 2 {
            return Box::pin(ready(Err("a.txt changed since".to_owned())));
        }
        self.note(format!("revert {thread} {to}"), vec!["a.txt".to_owned()])
    }
}

#[tokio::test]
async fn a_program_has_its_own_actions_on_threads() {
    let noted = Noted::default();
    let server = serve(studio(Server::new()).thread_actions("helper", noted.clone())).await;
    begun(&server, "rename", "helper", ask()).await;
    let post =
        async |action: &str, body: Value| server.post(&format!("{API}/threads/rename/{action}"), body).await;
    post("steer", json!({ "text": "Only in src." })).await;
    post("copy", json!({ "to": "copy" })).await;
    assert_eq!(post("prune", json!({})).await["pruned"], 7);
    assert_eq!(post("revert", json!({ "to": 1 })).await["files"], json!(["a.txt"]));
    let path = format!("{API}/threads/rename/revert");
    let refused = server.refused(Method::POST, &path, json!({ "to": 2 })).await;
    assert_eq!(refused, (409, "a.txt changed since".to_owned()));
    post("delete", json!({})).await;
    let calls = [
        "steer rename Only in src.",
        "copy rename copy",
        "prune rename Leaves",
        "revert rename 1",
        "delete rename",
    ];
    assert_eq!(*noted.0.lock().unwrap(), calls);
    assert_eq!(server.get(&format!("{API}/graphs/helper")).await["has_actions"], true);
    assert_eq!(server.get(&format!("{API}/graphs/two")).await["has_actions"], false);
}

#[tokio::test]
async fn the_state_of_a_subgraph_is_shown_while_its_task_is_pending() {
    let server = serve(studio(Server::new())).await;
    begun(&server, "nested", "parent", json!({ "euros": 20 })).await;
    let head = settled(&server, "nested").await["line"]["head"].as_u64().unwrap();
    let tasks = server.get(&format!("{API}/threads/nested/at/{head}")).await["tasks"].clone();
    let path = tasks[0]["subgraphs"][0].as_str().unwrap();
    let query = format!("path={}", path.replace('@', "%40"));
    let child = server.get(&format!("{API}/threads/nested/subgraph?{query}")).await;
    let euros = child["channels"].as_array().unwrap().iter().find(|entry| entry["key"] == "euros").unwrap();
    assert_eq!(euros["preview"], "20");
    assert_eq!(child["next"].as_array().unwrap().len(), 1);
    let value = format!("{API}/threads/nested/subgraph/value?{query}&channel=euros");
    assert_eq!(server.get(&value).await["text"], "20");
    let missing = format!("{API}/threads/nested/subgraph?path=other");
    assert_eq!(server.refused(Method::GET, &missing, Value::Null).await.0, 404);
}

/// Stores a thread in a database, and damages its newest checkpoints.
pub(super) async fn damaged(file: &std::path::Path) {
    let store: Arc<dyn Checkpointer> = Arc::new(SqliteCheckpointer::open(file).unwrap());
    let server = serve(studio(Server::new()).checkpointer(store.clone())).await;
    begun(&server, "whole", "counter", json!({ "n": 5 })).await;
    begun(&server, "rename", "helper", ask()).await;
    let question = server.get(&format!("{API}/threads/rename")).await["questions"][0]["id"].clone();
    let answers = json!({ "answers": { question.as_str().unwrap(): "approve" } });
    server.post(&format!("{API}/threads/rename/answers"), answers).await;
    settled(&server, "rename").await;
    let back = json!({ "messages": [{ "role": "user", "content": "And rename it back." }] });
    server.post(&format!("{API}/threads/rename/run"), json!({ "input": back })).await;
    settled(&server, "rename").await;
    server.stop().await;
    drop(store);
    let mut bytes = fs::read(file).unwrap();
    let text = b"And rename it back.";
    let at: Vec<usize> = (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!at.is_empty());
    at.iter().for_each(|at| bytes[*at] ^= 1);
    fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_thread_is_shown_as_far_as_it_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("threads.db");
    damaged(&file).await;
    let store: Arc<dyn Checkpointer> = Arc::new(SqliteCheckpointer::open(&file).unwrap());
    let server = serve(studio(Server::new()).checkpointer(store)).await;
    let inbox = server.get(&format!("{API}/inbox")).await;
    assert_eq!(inbox["threads"][0]["line"]["status"], "damaged");
    let view = server.get(&format!("{API}/threads/rename")).await;
    assert_eq!(
        (&view["line"]["status"], &view["line"]["graph"]),
        (&json!("damaged"), &json!("helper")),
        "{view}"
    );
    assert!(view["line"]["error"].as_str().unwrap().contains("SS304"), "{view}");
    let readable = view["line"]["head"].as_u64().unwrap();
    assert_eq!(readable, 5);
    let before = server.get(&format!("{API}/threads/rename/at/{readable}")).await;
    assert_eq!((&before["id"], &before["has_messages"]), (&json!(readable), &json!(true)));
    server.post(&format!("{API}/threads/rename/delete"), json!({})).await;
    assert_eq!(settled(&server, "whole").await["line"]["status"], "done");
}
