//! Clients that mean no good, and bodies of any shape.

use std::{sync::Arc, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use reqwest::Method;
use serde_json::{Map, Value, json};
use superstep_graph::{MemoryStore, Store};
use superstep_server::{Limits, Server};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    graphs,
    support::{Reader, TestServer, serve, start},
};

/// All endpoints that take a body, and those that change something. `T`, `R`, `A`, `C` and `K` stand for ids.
const ENDPOINTS: [(&str, &[&str]); 5] = [
    (
        "GET",
        &[
            "/ok",
            "/info",
            "/assistants/A",
            "/assistants/A/graph",
            "/assistants/A/schemas",
            "/assistants/A/subgraphs",
            "/threads/T",
            "/threads/T/state",
            "/threads/T/state/K",
            "/threads/T/history",
            "/threads/T/runs",
            "/threads/T/runs/R",
            "/threads/T/runs/R/join",
            "/threads/T/runs/R/stream",
            "/store/items",
            "/runs/R/stream",
        ],
    ),
    (
        "POST",
        &[
            "/assistants",
            "/assistants/search",
            "/assistants/count",
            "/assistants/A/versions",
            "/assistants/A/latest",
            "/threads",
            "/threads/search",
            "/threads/count",
            "/threads/prune",
            "/threads/T/copy",
            "/threads/T/state",
            "/threads/T/state/checkpoint",
            "/threads/T/history",
            "/threads/T/runs",
            "/threads/T/runs/stream",
            "/threads/T/runs/wait",
            "/threads/T/runs/crons",
            "/threads/T/runs/R/cancel",
            "/runs",
            "/runs/stream",
            "/runs/wait",
            "/runs/batch",
            "/runs/cancel",
            "/runs/crons",
            "/runs/crons/search",
            "/runs/crons/count",
            "/store/items/search",
            "/store/namespaces",
            "/agui/counter",
        ],
    ),
    ("PUT", &["/store/items"]),
    ("PATCH", &["/assistants/A", "/threads/T", "/runs/crons/C"]),
    ("DELETE", &["/assistants/A", "/threads/T", "/threads/T/runs/R", "/store/items"]),
];

/// The names that bodies have.
const FIELDS: [&str; 53] = [
    "assistant_id",
    "graph_id",
    "thread_id",
    "run_id",
    "input",
    "command",
    "update",
    "resume",
    "goto",
    "node",
    "checkpoint",
    "checkpoint_id",
    "checkpoint_ns",
    "stream_mode",
    "stream_subgraphs",
    "stream_resumable",
    "metadata",
    "config",
    "configurable",
    "recursion_limit",
    "tags",
    "context",
    "interrupt_before",
    "interrupt_after",
    "multitask_strategy",
    "if_not_exists",
    "if_exists",
    "on_disconnect",
    "on_completion",
    "after_seconds",
    "durability",
    "values",
    "as_node",
    "before",
    "limit",
    "offset",
    "sort_by",
    "sort_order",
    "select",
    "status",
    "ids",
    "thread_ids",
    "strategy",
    "supersteps",
    "namespace",
    "key",
    "value",
    "namespace_prefix",
    "schedule",
    "timezone",
    "end_time",
    "enabled",
    "on_run_completed",
];

/// Texts that mean something somewhere.
const TEXTS: [&str; 22] = [
    "counter",
    "approve",
    "two",
    "chat",
    "fail",
    "parent",
    "nobody",
    "values",
    "messages-tuple",
    "interrupt",
    "rollback",
    "keep",
    "create",
    "sync",
    "exit",
    "0 9 * * *",
    "UTC",
    "",
    "\u{0}",
    "\u{1f}",
    "../../etc",
    "00000000-0000-8000-8000-ffffffffffff",
];

fn text(rng: &mut StdRng) -> String {
    TEXTS[rng.random_range(0..TEXTS.len())].to_owned()
}

fn value(rng: &mut StdRng, depth: u32) -> Value {
    let kinds = if depth == 0 { 6 } else { 9 };
    match rng.random_range(0..kinds) {
        0 => Value::Null,
        1 => rng.random_bool(0.5).into(),
        2 => [-1, 0, 1, 7, 1_001, i64::MAX, i64::MIN][rng.random_range(0..7)].into(),
        3 => [0.5, -1e300, 1e300][rng.random_range(0..3)].into(),
        4 | 5 => text(rng).into(),
        6 => (0..rng.random_range(0..4)).map(|_| value(rng, depth - 1)).collect(),
        _ => object(rng, depth - 1),
    }
}

fn object(rng: &mut StdRng, depth: u32) -> Value {
    let fields = (0..rng.random_range(0..6)).map(|_| FIELDS[rng.random_range(0..FIELDS.len())].to_owned());
    fields.collect::<Vec<_>>().into_iter().map(|name| (name, value(rng, depth))).collect::<Map<_, _>>().into()
}

/// Returns a body that is right in some fields, so that it comes further.
fn body(rng: &mut StdRng) -> Value {
    let mut body = object(rng, 3);
    if rng.random_bool(0.7) {
        let graph = ["counter", "approve", "two", "chat", "fail", "parent"][rng.random_range(0..6)];
        body["assistant_id"] = graph.into();
        body["graph_id"] = graph.into();
        body["schedule"] = "@daily".into();
        body["on_disconnect"] = "cancel".into();
        if rng.random_bool(0.5) {
            body["input"] = json!({});
        }
        body.as_object_mut().unwrap().remove("after_seconds");
    }
    match rng.random_range(0..20) {
        0 => Value::Array(vec![body; 2]),
        1 => value(rng, 2),
        _ => body,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_body_is_answered_with_an_error_of_the_server() {
    let seed = std::env::var("SUPERSTEP_SERVER_FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
    let requests = std::env::var("SUPERSTEP_SERVER_FUZZ").map_or(1_500, |count| count.parse().unwrap());
    let mut rng = StdRng::seed_from_u64(seed);
    #[cfg(not(feature = "crons"))]
    let server = start().await;
    #[cfg(feature = "crons")]
    let server = serve(graphs::all(Server::new()).store(MemoryStore::new()).crons()).await;
    let mut ids = json!({ "T": "nothing", "R": "nothing", "A": "counter", "C": "nothing", "K": "1" });
    for nth in 0..requests {
        if nth % 50 == 0 {
            let thread = server.thread().await;
            let run = json!({ "assistant_id": "approve", "input": { "euros": 1 } });
            let run = server.post(&format!("/threads/{thread}/runs"), run).await;
            (ids["T"], ids["R"]) = (thread.into(), run["run_id"].clone());
            let cron = json!({ "assistant_id": "counter", "schedule": "@daily" });
            let cron: Value = server.send(Method::POST, "/runs/crons", cron).await.json().await.unwrap();
            ids["C"] = cron["cron_id"].as_str().unwrap_or("nothing").into();
        }
        let (method, paths) = ENDPOINTS[[0, 1, 1, 1, 1, 1, 2, 3, 3, 4][rng.random_range(0..10)]];
        let mut path = paths[rng.random_range(0..paths.len())].to_owned();
        for name in ["T", "R", "A", "C", "K"] {
            let wild =
                ["%00", "%FF", "..%2F..", "-1", "99999999999999999999", "a%1Fb"][rng.random_range(0..6)];
            let id = if rng.random_bool(0.1) { wild } else { ids[name].as_str().unwrap() };
            path = path.replace(&format!("/{name}"), &format!("/{id}"));
        }
        let body = body(&mut rng);
        let request = server.request(Method::from_bytes(method.as_bytes()).unwrap(), &path).json(&body);
        let response = timeout(Duration::from_secs(20), request.send()).await;
        let response = response.unwrap_or_else(|_| panic!("no answer: {method} {path} {body}")).unwrap();
        let status = response.status();
        assert!(
            !status.is_server_error(),
            "{status}: {method} {path} {body}: {}",
            response.text().await.unwrap()
        );
    }
}

#[tokio::test]
async fn bodies_that_are_no_json_or_too_large_are_refused() {
    let server = serve(graphs::all(Server::new()).limits(Limits { body: 10_000, ..Limits::default() })).await;
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(4_000));
    let huge = format!("{{\"metadata\": {{\"a\": \"{}\"}}}}", "x".repeat(20_000));
    for (body, status) in [("{", 422), ("\u{0}", 422), ("{} {}", 422), (&deep, 422), (&huge, 413)] {
        let response = server.request(Method::POST, "/threads").body(body.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), status, "{}", response.text().await.unwrap());
    }
    let nested = json!({ "assistant_id": "counter", "command": { "goto": [[[[["one"]]]]] } });
    let mut goto = json!("one");
    for _ in 0..60 {
        goto = json!([goto]);
    }
    for command in [nested, json!({ "assistant_id": "counter", "command": { "goto": goto } })] {
        let response = server.send(Method::POST, "/runs/wait", command).await;
        assert!(!response.status().is_server_error());
    }
}

/// Returns what a server sends until it closes the connection.
async fn answer(server: &TestServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "the connection stays: {request}");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_request_that_does_not_arrive_ends_its_connection() {
    let limits = Limits { arrival: Duration::from_millis(300), ..Limits::default() };
    let server = serve(graphs::all(Server::new()).limits(limits)).await;
    let head = answer(&server, "POST /threads HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "{head}");
    let body =
        "POST /threads HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{";
    assert!(answer(&server, body).await.starts_with("HTTP/1.1 408"));
    assert_eq!(answer(&server, "").await, "");
    assert!(answer(&server, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    server.thread().await;
}

#[tokio::test]
async fn more_connections_than_the_limit_wait_for_their_turn() {
    let limits = Limits { connections: 2, arrival: Duration::from_millis(400), ..Limits::default() };
    let server = serve(graphs::all(Server::new()).limits(limits)).await;
    let address = server.url.strip_prefix("http://").unwrap();
    let idle = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
    // Those without a request end.
    server.thread().await;
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stands_still_stops_nobody() {
    let limits = Limits { log: 200_000, drain: Duration::from_millis(300), ..Limits::default() };
    let items: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let server =
        serve(graphs::all(Server::new()).graph("loud", graphs::loud()).store(items).limits(limits)).await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "loud", "input": {}, "stream_mode": ["custom"] });
    let stuck = server.send(Method::POST, &format!("/threads/{thread}/runs/stream"), body.clone()).await;
    let again = server.post(&format!("/threads/{thread}/runs/wait"), body).await;
    assert_eq!(again["n"], 2);
    // Ten megabytes do not fit into the buffers on the way, and the log is short.
    let mut reader = Reader::new(stuck);
    let lost = reader.until("error").await;
    assert_eq!(lost.data["error"], "StreamLagged");
    // One that never reads does not keep the server from its end.
    let body = json!({ "assistant_id": "loud", "input": {}, "stream_mode": ["custom"] });
    let stuck = server.send(Method::POST, "/runs/stream", body).await;
    timeout(Duration::from_secs(10), server.stop()).await.unwrap();
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_streams_see_the_same_end() {
    let server = start().await;
    let thread = server.thread().await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "hundreds" }, "stream_mode": ["updates"] });
    let run = server.post(&format!("/threads/{thread}/runs"), body).await;
    let path = format!("/threads/{thread}/runs/{}/stream", run["run_id"].as_str().unwrap());
    let mut streams = Vec::new();
    for _ in 0..400 {
        streams.push(Reader::new(server.request(Method::GET, &path).send().await.unwrap()));
    }
    graphs::open("hundreds");
    for mut stream in streams {
        let mut last = None;
        while let Some(event) = stream.next().await {
            last = Some(event);
        }
        assert_eq!(last.unwrap().data, json!({ "after": { "log": ["after"] } }));
    }
}
