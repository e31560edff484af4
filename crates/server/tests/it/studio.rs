//! The API of the studio, and its page in a browser, where there is one.

mod graphs;
mod manage;
mod page;

use std::{sync::Arc, time::Duration};

use reqwest::{Method, header};
use serde_json::{Value, json};
use superstep_graph::{Checkpointer, JsonUpdate, MemoryCheckpointer, RunOptions, State as _};
use superstep_server::Server;

use self::graphs::{helper, long, wide};
use crate::{
    graphs::{Gated, all, gate, open},
    support::{Reader, TestServer, serve, start},
};

pub(crate) const API: &str = "/studio/api";

fn studio(server: Server) -> Server {
    let server = server.defaults(RunOptions::new().step_limit(20_000));
    all(server)
        .graph("helper", helper("helper", "You are terse."))
        .graph("long", long())
        .graph("wide", wide())
}

pub(crate) async fn begun(server: &TestServer, thread: &str, graph: &str, input: Value) {
    let body = json!({ "graph": graph, "input": input, "thread": thread });
    server.post(&format!("{API}/threads"), body).await;
    settled(server, thread).await;
}

/// Waits until no run is under way, and returns the thread.
pub(crate) async fn settled(server: &TestServer, thread: &str) -> Value {
    for _ in 0..4_000 {
        let view = server.get(&format!("{API}/threads/{thread}")).await;
        if view["line"]["status"] != "running" && view["line"]["status"] != "empty" {
            return view;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("thread {thread} does not settle");
}

fn ask() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Rename the module parser to reader." }] })
}

#[tokio::test]
async fn threads_are_listed_with_their_status_and_their_first_input() {
    let server = serve(studio(Server::new())).await;
    begun(&server, "rename", "helper", ask()).await;
    begun(&server, "sum", "fail", json!({ "n": 3 })).await;
    begun(&server, "count", "counter", json!({ "n": 5 })).await;
    let list = server.get(&format!("{API}/threads")).await;
    let mut lines: Vec<_> = list["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| json!([line["id"], line["status"], line["title"], line["waits"]]))
        .collect();
    lines.sort_by_key(ToString::to_string);
    assert_eq!(
        lines,
        [
            json!(["count", "done", "{\"n\":5}", 0]),
            json!(["rename", "waits", "Rename the module parser to reader.", 1]),
            json!(["sum", "failed", "{\"n\":3}", 0]),
        ]
    );
    assert_eq!((&list["total"], &list["waiting"]), (&json!(3), &json!(1)));
    let ids = async |query: &str| {
        let list = server.get(&format!("{API}/threads?{query}")).await;
        list["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("status=waits").await, ["rename"]);
    assert_eq!(ids("q=PARSER").await, ["rename"]);
    assert_eq!(ids("graph=counter").await, ["count"]);
    assert_eq!(ids("node=boom").await, ["sum"]);
    let inbox = server.get(&format!("{API}/inbox")).await;
    assert_eq!(inbox["threads"][0]["questions"][0]["question"]["tool"], "edit_file");
}

#[tokio::test]
async fn a_thread_of_another_program_is_listed_and_continued() {
    let store = Arc::new(MemoryCheckpointer::new());
    let other = helper("helper", "You are terse.").with_checkpointer(store.clone());
    let input: JsonUpdate = serde_json::from_value(ask()).unwrap();
    other.thread("rename").run(input).await.unwrap();
    let server = serve(studio(Server::new()).checkpointer(store as Arc<dyn Checkpointer>)).await;
    let view = server.get(&format!("{API}/threads/rename")).await;
    assert_eq!((&view["line"]["graph"], &view["line"]["status"]), (&json!("helper"), &json!("waits")));
    let question = view["questions"][0]["id"].as_str().unwrap();
    let answers = json!({ "answers": { question: "approve" }, "expected": view["line"]["head"] });
    server.post(&format!("{API}/threads/rename/answers"), answers).await;
    assert_eq!(settled(&server, "rename").await["line"]["status"], "done");
}

#[tokio::test]
async fn a_checkpoint_is_read_in_outline_and_in_parts() {
    let server = serve(studio(Server::new())).await;
    begun(&server, "rename", "helper", ask()).await;
    let overview = server.get(&format!("{API}/threads/rename/overview")).await;
    assert_eq!(overview["sources"], json!(["loop", "loop", "input"]));
    assert_eq!(overview["parents"], json!([1, 1, 0]));
    let newer = server.get(&format!("{API}/threads/rename/overview?after=2")).await;
    assert_eq!(newer["ids"], json!([3]));
    let rows = server.get(&format!("{API}/threads/rename/checkpoints?from=1&to=50")).await["rows"].clone();
    assert_eq!(rows[0]["title"], "Rename the module parser to reader.");
    assert_eq!(rows[2]["wrote"], json!(["messages", "steps", "usage"]));
    assert_eq!(rows[2]["tokens"], json!({ "input": 800, "output": 100 }));
    let head = server.get(&format!("{API}/threads/rename/at/3")).await;
    assert_eq!((&head["tasks"][0]["status"], &head["has_messages"]), (&json!("waits"), &json!(true)));
    let messages =
        head["channels"].as_array().unwrap().iter().find(|entry| entry["key"] == "messages").unwrap();
    assert_eq!((&messages["kind"], &messages["count"]), (&json!("list"), &json!(2)));
    let part =
        server.get(&format!("{API}/threads/rename/at/3/value?channel=messages&pointer=/1/content")).await;
    assert!(part["text"].as_str().unwrap().starts_with("Two places"), "{part}");
    let changes = server.get(&format!("{API}/threads/rename/at/3/changes")).await;
    assert_eq!(changes["channels"][0]["summary"], "+1 of 2");
    let page = server.get(&format!("{API}/threads/rename/at/3/messages?limit=1")).await;
    assert_eq!(
        (&page["total"], &page["first"], &page["messages"][0]["calls"][0]["name"]),
        (&json!(2), &json!(1), &json!("edit_file"))
    );
    let (status, _) = server.refused(Method::GET, &format!("{API}/threads/rename/at/99"), Value::Null).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn answers_are_accepted_one_by_one_and_for_the_head_only() {
    let server = serve(studio(Server::new())).await;
    begun(&server, "both", "two", json!({})).await;
    let view = server.get(&format!("{API}/threads/both")).await;
    let ids: Vec<_> = view["questions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|question| question["id"].as_str().unwrap().to_owned())
        .collect();
    let answer = async |id: &str, expected: u64| {
        let body = json!({ "answers": { id: "yes" }, "expected": expected });
        server.send(Method::POST, &format!("{API}/threads/both/answers"), body).await.status().as_u16()
    };
    let head = view["line"]["head"].as_u64().unwrap();
    assert_eq!(answer(&ids[0], head + 1).await, 409);
    assert_eq!(answer(&ids[0], head).await, 200);
    let view = settled(&server, "both").await;
    assert_eq!((&view["line"]["status"], &view["line"]["waits"]), (&json!("waits"), &json!(1)));
    assert_eq!(answer(&ids[0], head).await, 409);
    assert_eq!(answer(&ids[1], head).await, 200);
    assert_eq!(settled(&server, "both").await["line"]["status"], "done");
}

#[tokio::test]
async fn a_dry_run_shows_what_an_update_stores_and_stores_nothing() {
    let server = serve(studio(Server::new())).await;
    begun(&server, "count", "counter", json!({ "n": 5 })).await;
    let head = settled(&server, "count").await["line"]["head"].as_u64().unwrap();
    let update = |dry_run: bool| json!({ "values": { "n": 10 }, "as_node": "one", "at": 2, "expected": head, "dry_run": dry_run });
    let dry = server.post(&format!("{API}/threads/count/update"), update(true)).await;
    assert_eq!(settled(&server, "count").await["line"]["head"], head);
    let stored = server.post(&format!("{API}/threads/count/update"), update(false)).await;
    let at = stored["checkpoint"].as_u64().unwrap();
    let changes = server.get(&format!("{API}/threads/count/at/{at}/changes?against=2")).await;
    assert_eq!(dry["changes"]["channels"], changes["channels"]);
    assert_eq!(dry["next"], json!(["two"]));
    assert_eq!(server.get(&format!("{API}/threads/count")).await["line"]["next"], json!(["two"]));
    // The line that was there stays.
    assert_eq!(server.get(&format!("{API}/threads/count/at/{head}")).await["next"], json!([]));
    let (status, detail) = server
        .refused(
            Method::POST,
            &format!("{API}/threads/count/update"),
            json!({ "values": { "n": "ten" }, "as_node": "one", "dry_run": true }),
        )
        .await;
    assert_eq!(status, 422);
    assert!(detail.contains("expected i64") && detail.contains('n'), "{detail}");
}

#[tokio::test]
async fn a_replay_names_the_first_difference_and_paths_are_compared() {
    let store = Arc::new(MemoryCheckpointer::new());
    let before = serve(studio(Server::new()).checkpointer(store.clone() as Arc<dyn Checkpointer>)).await;
    begun(&before, "rename", "helper", ask()).await;
    let same = before.post(&format!("{API}/threads/rename/replay"), json!({})).await;
    assert_eq!(same["divergence"], Value::Null);
    before.stop().await;
    let server = Server::new()
        .graph("helper", helper("helper", "You are kind."))
        .checkpointer(store as Arc<dyn Checkpointer>);
    let server = serve(server).await;
    let found = server.post(&format!("{API}/threads/rename/replay"), json!({})).await["divergence"].clone();
    assert_eq!(
        (&found["node"], &found["checkpoint"], &found["place"]),
        (&json!("agent"), &json!(2), &json!("/system")),
        "{found}"
    );
    server.post(&format!("{API}/threads/rename/fork"), json!({ "at": 2 })).await;
    let compared = server.get(&format!("{API}/compare?a=rename@3&b=rename@4")).await;
    assert_eq!(compared["common"], 2);
    assert_eq!(
        (&compared["one"][0]["ran"], &compared["other"][0]["source"]),
        (&json!(["agent"]), &json!("fork"))
    );
}

#[tokio::test]
async fn a_page_follows_runs_of_this_server_and_of_other_programs() {
    let store = Arc::new(MemoryCheckpointer::new());
    let server = serve(studio(Server::new()).checkpointer(store.clone() as Arc<dyn Checkpointer>)).await;
    let body = json!({ "graph": "gate", "input": { "gate": "studio" }, "thread": "gated" });
    server.post(&format!("{API}/threads"), body).await;
    let stream = server.request(Method::GET, &format!("{API}/events?thread=gated")).send().await.unwrap();
    let mut events = Reader::new(stream);
    let mut head = async |fits: &dyn Fn(&Value) -> bool| loop {
        let event = events.next().await.unwrap();
        if event.name == "head" && fits(&event.data) {
            return event.data;
        }
    };
    head(&|data| data["status"] == "running" && data["next"] == json!(["wait"])).await;
    open("studio");
    let end = head(&|data| data["status"] == "done").await["head"].as_u64().unwrap();
    // Another program with the same store.
    let other = gate().with_checkpointer(store);
    open("studio");
    other.thread("gated").run(Gated::update()).await.unwrap();
    assert!(head(&|data| data["status"] == "done").await["head"].as_u64().unwrap() > end);
    let stream = server.request(Method::GET, &format!("{API}/events?thread=rename")).send().await.unwrap();
    server
        .post(&format!("{API}/threads"), json!({ "graph": "helper", "input": ask(), "thread": "rename" }))
        .await;
    let mut events = Reader::new(stream);
    let mut text = String::new();
    loop {
        let event = events.next().await.unwrap();
        match &*event.name {
            "message" => text += event.data["text"].as_str().unwrap(),
            "head" if event.data["status"] == "waits" => break,
            _ => {}
        }
    }
    assert!(text.starts_with("Two places name it:") && text.ends_with("```"), "{text}");
}

#[tokio::test]
async fn a_studio_for_reading_changes_nothing() {
    let server = serve(studio(Server::new()).read_only()).await;
    assert_eq!(server.get(&format!("{API}/info")).await["read_only"], true);
    for path in [
        "threads",
        "threads/t/run",
        "threads/t/answers",
        "threads/t/cancel",
        "threads/t/fork",
        "threads/t/update",
        "threads/t/replay",
        "threads/t/steer",
        "threads/t/copy",
        "threads/t/prune",
        "threads/t/revert",
        "threads/t/delete",
        "threads/t/case",
        "cases/replay",
        "cases/accept",
        "other",
    ] {
        let (status, _) = server.refused(Method::POST, &format!("{API}/{path}"), json!({})).await;
        assert_eq!(status, 403, "{path}");
    }
}

#[tokio::test]
async fn the_page_needs_no_token_and_its_api_does() {
    let server = serve(studio(Server::new()).token("secret")).await;
    let get = async |path: &str| server.request(Method::GET, path).send().await.unwrap();
    let page = get("/studio").await;
    assert_eq!(page.status(), 200);
    let policy = page.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
    let tag = page.headers()[header::ETAG].clone();
    assert!(page.text().await.unwrap().contains("/studio/app.js"));
    let again =
        server.request(Method::GET, "/studio").header(header::IF_NONE_MATCH, tag).send().await.unwrap();
    assert_eq!(again.status(), 304);
    assert_eq!(get("/studio/t/any").await.status(), 200);
    assert_eq!(get("/studio/app.js").await.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
    assert_eq!(get(&format!("{API}/info")).await.status(), 401);
    // A form of another page sends no JSON.
    let server = start().await;
    let form = server.request(Method::POST, &format!("{API}/threads")).body("{}").send().await.unwrap();
    assert_eq!(form.status(), 415);
    let foreign =
        server.request(Method::GET, "/studio").header(header::HOST, "evil.example.org").send().await.unwrap();
    assert_eq!(foreign.status(), 403);
}
