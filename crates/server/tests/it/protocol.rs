//! The thread protocol: commands, the names and the order of events in each channel, replay, and clients that come and go.

use std::time::Duration;

use insta::assert_snapshot;
use reqwest::Method;
use serde_json::{Value, json};
use superstep_server::{Limits, Server};
use superstep_sqlite::{SqliteCheckpointer, SqliteStore};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    graphs,
    support::{Event, Reader, TestServer, redacted, serve, start},
};

const ALL: [&str; 9] =
    ["lifecycle", "input", "values", "checkpoints", "updates", "messages", "tools", "tasks", "custom"];

impl TestServer {
    async fn command(&self, thread: &str, method: &str, params: Value) -> Value {
        let command = json!({ "id": 7, "method": method, "params": params });
        self.post(&format!("/threads/{thread}/commands"), command).await
    }

    /// Executes a command that succeeds.
    async fn done(&self, thread: &str, method: &str, params: Value) -> Value {
        let reply = self.command(thread, method, params).await;
        assert_eq!((&reply["type"], &reply["id"]), (&json!("success"), &json!(7)), "{reply}");
        reply["result"].clone()
    }

    async fn run_start(&self, thread: &str, graph: &str, input: Value) -> String {
        let result = self.done(thread, "run.start", json!({ "assistant_id": graph, "input": input })).await;
        result["run_id"].as_str().unwrap().to_owned()
    }

    async fn follow(&self, thread: &str, filter: Value) -> Reader {
        let path = format!("/threads/{thread}/stream/events");
        Reader::new(self.send(Method::POST, &path, filter).await)
    }
}

/// Reads to the end of a run.
async fn to_end(reader: &mut Reader) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let event = timeout(Duration::from_secs(20), reader.next()).await.unwrap().unwrap();
        let (status, namespace) =
            (event.data["params"]["data"]["event"].clone(), &event.data["params"]["namespace"]);
        let is_end = event.name == "lifecycle" && *namespace == json!([]) && status != "running";
        events.push(event);
        if is_end {
            return events;
        }
    }
}

/// Returns events as text, one a line: namespace, method, node, data.
fn shown(events: &[Event]) -> String {
    let line = |event: &Event| {
        let params = &event.data["params"];
        let namespace = params["namespace"].as_array().unwrap();
        let namespace = namespace.iter().map(|level| format!("{} ", level.as_str().unwrap()));
        let node = params["node"].as_str().map(|node| format!(" @{node}")).unwrap_or_default();
        let text = format!("{}{}{node} {}", namespace.collect::<String>(), event.name, params["data"]);
        format!("{}\n", redacted(&text))
    };
    events.iter().map(line).collect()
}

async fn all_of(server: &TestServer, thread: &str) -> Vec<Event> {
    to_end(&mut server.follow(thread, json!({ "channels": ALL })).await).await
}

#[tokio::test]
async fn a_run_has_each_state_after_its_checkpoint_and_ends_last() {
    let server = start().await;
    let mut early = server.follow("new", json!({ "channels": ALL })).await;
    assert_eq!(server.refused(Method::GET, "/threads/new/state", json!({})).await.0, 404);
    let run = server.run_start("new", "counter", json!({ "n": 5 })).await;
    let live = to_end(&mut early).await;
    assert_snapshot!(shown(&live));
    // Final before the last event.
    assert_eq!(server.get(&format!("/threads/new/runs/{run}")).await["status"], "success");
    assert_eq!(all_of(&server, "new").await, live);
    let first = &live[0];
    assert_eq!(first.data["event_id"], format!("synth:{run}:lc||running"));
    let numbers: Vec<_> = live.iter().map(|event| event.data["seq"].as_u64().unwrap()).collect();
    let expected: Vec<_> = (numbers[0]..).take(live.len()).collect();
    assert_eq!(numbers, expected);
    assert!(live.iter().all(|event| event.id == Some(event.data["seq"].to_string())));
}

#[tokio::test]
async fn a_message_comes_in_blocks_and_its_call_as_a_tool() {
    let server = start().await;
    let input =
        json!({ "messages": [{ "type": "human", "content": "2+40?", "id": "h1", "additional_kwargs": {} }] });
    server.run_start("t", "chat", input).await;
    let filter = json!({ "channels": ["messages", "tools", "lifecycle"] });
    assert_snapshot!(shown(&to_end(&mut server.follow("t", filter).await).await));
}

#[tokio::test]
async fn a_question_is_followed_by_the_state_and_its_answer_begins_a_run() {
    let server = start().await;
    server.run_start("t", "approve", json!({ "euros": 20 })).await;
    let channels = json!({ "channels": ["lifecycle", "input", "values"] });
    let mut reader = server.follow("t", channels).await;
    let asked = to_end(&mut reader).await;
    let id = asked.iter().find(|event| event.name == "input.requested").unwrap();
    let id = id.data["params"]["data"]["interrupt_id"].as_str().unwrap().to_owned();
    let unknown = json!({ "responses": [{ "interrupt_id": id, "response": 1 }, { "interrupt_id": "x", "response": 1 }] });
    let refused = server.command("t", "input.respond", unknown).await;
    assert_eq!(refused["error"], "no_such_interrupt");
    assert_eq!(refused["message"], "Unknown or already-consumed interrupt: x");
    assert_eq!(server.command("t", "input.respond", json!({})).await["error"], "invalid_argument");
    let answer = json!({ "namespace": [], "interrupt_id": id, "response": "yes" });
    assert_eq!(server.done("t", "input.respond", answer.clone()).await, json!({}));
    let again = server.command("t", "input.respond", answer).await;
    assert_eq!(again["error"], "no_such_interrupt");
    let answered = to_end(&mut reader).await;
    assert_snapshot!(format!("{}--\n{}", shown(&asked), shown(&answered)));
}

#[tokio::test]
async fn an_input_on_a_thread_that_waits_is_the_answer() {
    let server = start().await;
    server.run_start("t", "approve", json!({ "euros": 20 })).await;
    let mut reader = server.follow("t", json!({ "channels": ["lifecycle", "values"] })).await;
    to_end(&mut reader).await;
    server.run_start("t", "approve", json!("yes")).await;
    let answered = to_end(&mut reader).await;
    assert_eq!(answered[answered.len() - 2].data["params"]["data"]["verdict"], "yes");
    // Two questions need answers by their ids, of which one may come alone.
    server.run_start("two", "two", json!({})).await;
    let mut reader = server.follow("two", json!({ "channels": ["lifecycle", "input"] })).await;
    let asked = to_end(&mut reader).await;
    let ids: Vec<_> = asked.iter().filter(|event| event.name == "input.requested").collect();
    assert_eq!(ids.len(), 2);
    let both = server.command("two", "run.start", json!({ "assistant_id": "two", "input": "both" })).await;
    assert_eq!(both["error"], "invalid_argument", "{both}");
    let first = ids[0].data["params"]["data"]["interrupt_id"].as_str().unwrap();
    server.run_start("two", "two", json!({ first: "one" })).await;
    let rest = to_end(&mut reader).await;
    assert_eq!(rest[1].name, "input.answered");
    let left: Vec<_> = rest.iter().filter(|event| event.name == "input.requested").collect();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].data["params"]["data"], ids[1].data["params"]["data"]);
    assert_ne!(left[0].data["event_id"], ids[1].data["event_id"]);
}

#[tokio::test]
async fn a_subgraph_begins_and_ends_in_its_namespace() {
    let server = start().await;
    server.run_start("t", "parent", json!({ "euros": 20 })).await;
    let events = all_of(&server, "t").await;
    let of_channels = |channels: &[&str]| {
        let wanted = events.iter().filter(|event| channels.contains(&&*event.name)).cloned();
        shown(&wanted.collect::<Vec<_>>())
    };
    assert_snapshot!(of_channels(&["lifecycle", "input.requested", "values"]));
    let mut child = server
        .follow("t", json!({ "channels": ["values", "lifecycle"], "namespaces": [["child"]], "depth": 0 }))
        .await;
    let begin = child.next().await.unwrap();
    assert_eq!(begin.data["params"]["data"]["event"], "started");
    let tree = server.done("t", "agent.getTree", json!({})).await["tree"].clone();
    assert_eq!(
        (&tree["status"], &tree["children"][0]["graph_name"]),
        (&json!("interrupted"), &json!("child"))
    );
}

#[tokio::test]
async fn a_failure_and_a_cancelled_run_are_the_last_events() {
    let server = start().await;
    server.run_start("t", "fail", json!({})).await;
    let mut reader = server.follow("t", json!({ "channels": ["lifecycle"] })).await;
    let failed = to_end(&mut reader).await;
    let data = &failed.last().unwrap().data["params"]["data"];
    assert_eq!((&data["event"], data["error"].as_str().unwrap().contains("boom")), (&json!("failed"), true));
    let run = server.run_start("g", "gate", json!({ "gate": "cancelled by a thread" })).await;
    let mut reader = server.follow("g", json!({ "channels": ["lifecycle"] })).await;
    server.until("g", &run, "running").await;
    server.request(Method::POST, &format!("/threads/g/runs/{run}/cancel")).send().await.unwrap();
    let ended = to_end(&mut reader).await;
    assert_eq!(ended.last().unwrap().data["params"]["data"]["event"], "interrupted");
    // Its input is no answer.
    server.run_start("g", "gate", json!({ "gate": "cancelled by a thread" })).await;
    graphs::open("cancelled by a thread");
    assert_eq!(to_end(&mut reader).await.last().unwrap().data["params"]["data"]["event"], "completed");
}

#[tokio::test]
async fn a_client_that_comes_in_the_middle_has_each_text_once() {
    let server = start().await;
    let gate = "the middle of a message";
    let input = json!({ "messages": [{ "role": "user", "content": gate, "id": "h1" }] });
    server.run_start("t", "write", input).await;
    let filter = json!({ "channels": ["messages", "lifecycle"] });
    let mut first = server.follow("t", filter.clone()).await;
    let mut before = Vec::new();
    while !before.last().is_some_and(|event: &Event| event.data["params"]["data"]["delta"]["text"] == "one ")
    {
        before.push(first.next().await.unwrap());
    }
    let state = server.get("/threads/t/state").await;
    assert_eq!(state["next"], json!(["model"]));
    let mut second = server.follow("t", filter.clone()).await;
    let since = before.last().unwrap().data["seq"].clone();
    let mut third =
        server.follow("t", json!({ "channels": ["messages", "lifecycle"], "since": since })).await;
    graphs::open(gate);
    let rest = to_end(&mut first).await;
    assert_eq!(to_end(&mut third).await, rest);
    let all: Vec<_> = before.into_iter().chain(rest).collect();
    assert_eq!(to_end(&mut second).await, all);
    assert_snapshot!(shown(&all));
}

#[tokio::test]
async fn runs_of_the_other_api_are_in_the_log_and_a_new_run_begins_it_anew() {
    let server = start().await;
    let thread = server.thread().await;
    let mut reader = server.follow(&thread, json!({ "channels": ["lifecycle", "updates"] })).await;
    let body = json!({ "assistant_id": "counter", "input": {} });
    server.post(&format!("/threads/{thread}/runs/wait"), body.clone()).await;
    let names = |events: &[Event]| events.iter().map(|event| event.name.clone()).collect::<Vec<_>>();
    let first = to_end(&mut reader).await;
    assert_eq!(names(&first), ["lifecycle", "updates", "updates", "lifecycle"]);
    let run = server.run_start(&thread, "counter", json!({})).await;
    let second = to_end(&mut reader).await;
    // A client that asks for the end of its run finds no other one.
    let late =
        to_end(&mut server.follow(&thread, json!({ "channels": ["lifecycle", "updates"] })).await).await;
    assert_eq!(late, second);
    assert_eq!(late.last().unwrap().data["event_id"], format!("synth:{run}:lc||completed"));
    let since = first.last().unwrap().data["seq"].clone();
    let filter = json!({ "channels": ["lifecycle", "updates"], "since": since });
    assert_eq!(to_end(&mut server.follow(&thread, filter).await).await, second);
}

#[tokio::test]
async fn a_thread_that_waits_asks_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let on = async || {
        let (threads, rows) = (folder.path().join("threads.db"), folder.path().join("rows.db"));
        let server = graphs::all(Server::new());
        let server = server.checkpointer(SqliteCheckpointer::open(threads).unwrap());
        serve(server.rows(SqliteStore::open(rows).unwrap())).await
    };
    let server = on().await;
    server.run_start("t", "parent", json!({ "euros": 20 })).await;
    let channels = json!({ "channels": ["lifecycle", "input"], "namespaces": [[]], "depth": 1 });
    let before = to_end(&mut server.follow("t", channels.clone()).await).await;
    server.stop().await;
    let server = on().await;
    let mut reader = server.follow("t", channels).await;
    let after = to_end(&mut reader).await;
    let ids =
        |events: &[Event]| events.iter().map(|event| event.data["event_id"].clone()).collect::<Vec<_>>();
    let of_root = before
        .iter()
        .filter(|event| event.name != "lifecycle" || event.data["params"]["namespace"] == json!([]));
    assert_eq!(ids(&after), ids(&of_root.cloned().collect::<Vec<_>>()));
    assert!(after[0].data["seq"].as_u64() > before.last().unwrap().data["seq"].as_u64());
    let asked = &after[1].data["params"];
    let answer = json!({ "interrupt_id": asked["data"]["interrupt_id"], "namespace": asked["namespace"], "response": "yes" });
    server.done("t", "input.respond", answer).await;
    assert_eq!(to_end(&mut reader).await.last().unwrap().data["params"]["data"]["event"], "completed");
    assert_eq!(server.get("/threads/t/state").await["values"]["verdict"], "yes");
}

#[tokio::test]
async fn hostile_commands_and_streams_are_refused() {
    let server = start().await;
    let path = "/threads/t/commands";
    for (body, id) in [
        (json!({}), Value::Null),
        (json!({ "id": -1, "method": "x" }), Value::Null),
        (json!([]), Value::Null),
    ] {
        let response = server.send(Method::POST, path, body).await;
        assert_eq!(response.status(), 400);
        let reply: Value = response.json().await.unwrap();
        assert_eq!(
            (&reply["type"], &reply["id"], &reply["error"]),
            (&json!("error"), &id, &json!("invalid_argument"))
        );
    }
    let response = server.request(Method::POST, path).body("{").send().await.unwrap();
    assert_eq!(response.status(), 400);
    assert!(response.json::<Value>().await.unwrap()["detail"].is_string());
    for (method, params, code) in [
        ("run.begin", json!({}), "unknown_command"),
        ("state.fork", json!({}), "unknown_command"),
        ("subscription.subscribe", json!({ "channels": ["values"] }), "not_supported"),
        ("subscription.reconnect", json!({}), "not_supported"),
        ("agent.getTree", json!({}), "no_such_run"),
        ("agent.getTree", json!({ "run_id": "x" }), "no_such_run"),
        ("state.get", json!({ "namespace": ["child:1"] }), "no_such_namespace"),
        ("run.start", json!({}), "invalid_argument"),
        ("run.start", json!([1]), "invalid_argument"),
        ("run.start", json!({ "assistant_id": "nobody", "input": {} }), "invalid_argument"),
        ("run.start", json!({ "assistant_id": "counter", "input": { "n": "x" } }), "invalid_argument"),
        ("input.respond", json!({ "interrupt_id": "x", "response": 1 }), "no_such_interrupt"),
    ] {
        assert_eq!(server.command("t", method, params).await["error"], code, "{method}");
    }
    assert_eq!(server.refused(Method::GET, "/threads/t/state", json!({})).await.0, 404);
    let events = "/threads/t/stream/events";
    for filter in [json!({}), json!({ "channels": [] }), json!({ "channels": ["nothing"] })] {
        assert_eq!(server.refused(Method::POST, events, filter).await.0, 400);
    }
    assert_eq!(
        server
            .refused(Method::POST, "/threads/a%2Fb/stream/events", json!({ "channels": ["values"] }))
            .await
            .0,
        422
    );
    assert_eq!(server.refused(Method::GET, events, json!({})).await.0, 400);
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_no_connection() {
    let server = start().await;
    let address = server.url.strip_prefix("http://").unwrap();
    let body = json!({ "channels": ["lifecycle"] }).to_string();
    let head = format!(
        "POST /threads/t/stream/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..100 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(head.as_bytes()).await.unwrap();
        let mut begin = [0; 15];
        client.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200 OK");
        client.shutdown().await.unwrap();
        // The server closes its side too.
        let mut rest = Vec::new();
        timeout(Duration::from_secs(10), client.read_to_end(&mut rest)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_loses_its_stream_and_the_run_ends() {
    let limits = Limits { log: 20_000, ..Limits::default() };
    let server = serve(graphs::all(Server::new()).limits(limits)).await;
    let mut slow = server.follow("t", json!({ "channels": ALL })).await;
    let run = server.run_start("t", "counter", json!({ "log": vec!["x".repeat(100_000); 60] })).await;
    server.until("t", &run, "success").await;
    // It has what was sent before, and then its end.
    while timeout(Duration::from_secs(20), slow.next()).await.unwrap().is_some() {}
    let mut next = server.follow("t", json!({ "channels": ["lifecycle"] })).await;
    assert_eq!(next.next().await.unwrap().data["params"]["data"]["event"], "completed");
}
