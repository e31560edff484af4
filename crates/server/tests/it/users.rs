//! Users, roles and rates.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use superstep_graph::{MemoryStore, Store};
use superstep_server::{Keys, Limits, Role, Server, User};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    graphs,
    support::{TestServer, serve},
};

/// In everything that the first user stores.
const SECRET: &str = "of-alice";

/// A server of which every request names its user by the key.
fn server() -> Server {
    let users = [
        User::new("alice@example.org"),
        User::new("bob"),
        User::new("carol").role(Role::Read),
        User::new("root").role(Role::Admin),
    ];
    let keys = users.into_iter().fold(Keys::new(), |keys, user| {
        let key = user.id.split('@').next().unwrap().to_owned();
        keys.user(user, &key)
    });
    graphs::all(Server::new()).store(Arc::new(MemoryStore::new()) as Arc<dyn Store>).authenticate(keys)
}

async fn send(server: &TestServer, key: &str, method: &str, path: &str, body: Value) -> Response {
    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let request = server.request(method, path).header("x-api-key", key);
    let request = if body.is_null() { request } else { request.json(&body) };
    request.send().await.unwrap()
}

async fn answer(server: &TestServer, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let response = send(server, key, method, path, body).await;
    let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Returns all endpoints: the method, and the path with names of ids.
async fn endpoints(server: &TestServer, key: &str) -> Vec<(String, String)> {
    let (_, document) = answer(server, key, "get", "/openapi.json", Value::Null).await;
    let paths = document["paths"].as_object().unwrap();
    let methods = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone()))
    });
    let endpoints: Vec<_> = methods.collect();
    assert!(endpoints.len() > 50);
    endpoints
}

/// Data of a user.
struct Owned {
    thread: String,
    /// A run that waits at a gate.
    run: String,
    assistant: String,
}

async fn alices(server: &TestServer) -> Owned {
    let made = async |path: &str, body: Value| {
        let (status, made) = answer(server, "alice", "post", path, body).await;
        assert_eq!(status, 200, "{path}: {made}");
        made
    };
    let metadata = json!({ "note": SECRET });
    let assistant =
        made("/assistants", json!({ "graph_id": "gate", "name": SECRET, "metadata": metadata })).await;
    let assistant = assistant["assistant_id"].as_str().unwrap().to_owned();
    let thread =
        made("/threads", json!({ "metadata": metadata })).await["thread_id"].as_str().unwrap().to_owned();
    let body = json!({ "assistant_id": "gate", "input": { "gate": SECRET }, "metadata": metadata });
    let run = made(&format!("/threads/{thread}/runs"), body).await;
    let item = json!({ "namespace": [SECRET], "key": SECRET, "value": { "text": SECRET } });
    assert_eq!(send(server, "alice", "put", "/store/items", item).await.status(), 204);
    Owned { thread, run: run["run_id"].as_str().unwrap().to_owned(), assistant }
}

impl Owned {
    fn path(&self, path: &str) -> String {
        let ids = [("{thread}", &*self.thread), ("{run}", &self.run), ("{assistant}", &self.assistant)];
        let path = ids.iter().fold(path.to_owned(), |path, (name, id)| path.replace(name, id));
        path.replace("{checkpoint}", "1").replace("{namespace}", "n").replace("{graph}", "gate")
    }

    /// Returns a body that names the data, and the answer of a user who must not find it, for an endpoint without ids in its path.
    fn attempt(&self, endpoint: &str) -> (Value, (u16, Value)) {
        let Self { thread, run, assistant } = self;
        let runs = json!({ "assistant_id": assistant, "input": {} });
        let unknown = (404, json!({ "detail": format!("assistant `{assistant}` not found") }));
        let item = json!({ "namespace": [SECRET], "key": SECRET, "value": { "text": "of bob" } });
        match endpoint {
            "post /assistants" => {
                let taken = json!({ "detail": format!("assistant `{assistant}` exists already") });
                let body =
                    json!({ "graph_id": "gate", "assistant_id": assistant, "if_exists": "do_nothing" });
                (body, (409, taken))
            }
            "post /assistants/count" => (json!({ "graph_id": "gate" }), (200, json!(1))),
            "post /threads" => {
                let taken = json!({ "detail": format!("thread `{thread}` exists already") });
                (json!({ "thread_id": thread, "if_exists": "do_nothing" }), (409, taken))
            }
            "post /threads/search" => (json!({ "ids": [thread] }), (200, json!([]))),
            "post /threads/count" => (json!({ "metadata": { "note": SECRET } }), (200, json!(0))),
            "post /threads/prune" => (json!({ "thread_ids": [thread] }), (200, json!({ "pruned_count": 0 }))),
            "post /runs" | "post /runs/stream" | "post /runs/wait" => (runs, unknown),
            "post /runs/batch" => (json!([runs]), unknown),
            "post /runs/cancel" => (json!({ "thread_id": thread, "run_ids": [run] }), (204, json!(""))),
            "get /.well-known/agent-card.json" => (Value::Null, unknown),
            "post /agui/{graph}" => {
                let missing = json!({ "detail": format!("thread `{thread}` not found") });
                (json!({ "threadId": thread, "runId": "r", "messages": [] }), (404, missing))
            }
            // Calls run on threads of their own.
            "post /mcp" => (
                json!({ "id": 1, "method": "ping" }),
                (200, json!({ "jsonrpc": "2.0", "id": 1, "result": {} })),
            ),
            "delete /store/items" => (json!({ "namespace": [SECRET], "key": SECRET }), (204, json!(""))),
            "get /store/items" => (Value::Null, (200, Value::Null)),
            "put /store/items" => (item, (204, json!(""))),
            "post /store/items/search" => {
                (json!({ "namespace_prefix": ["other"] }), (200, json!({ "items": [] })))
            }
            "post /store/namespaces" => (json!({ "prefix": ["other"] }), (200, json!({ "namespaces": [] }))),
            endpoint if endpoint.contains("/crons") => {
                (json!({}), (422, json!({ "detail": "crons are not supported" })))
            }
            endpoint => panic!("`{endpoint}` is new: what does it answer about the data of another user?"),
        }
    }
}

#[tokio::test]
async fn the_data_of_another_user_does_not_exist_at_any_endpoint() {
    let server = serve(server()).await;
    let owned = alices(&server).await;
    for (method, path) in endpoints(&server, "bob").await {
        if ["/ok", "/info", "/metrics", "/openapi.json", "/assistants/search"].contains(&&*path) {
            let (status, seen) = answer(&server, "bob", &method, &path, Value::Null).await;
            assert!(status == 200 && !seen.to_string().contains(SECRET), "{path}: {seen}");
            continue;
        }
        let is_named = ["{thread}", "{run}", "{assistant}"].iter().any(|id| path.contains(id));
        if is_named {
            let body = json!({ "assistant_id": "gate", "if_not_exists": "create" });
            let body = if method == "get" { Value::Null } else { body };
            let (status, seen) = answer(&server, "bob", &method, &owned.path(&path), body).await;
            let detail = seen["detail"].as_str().unwrap_or_default();
            assert!(status == 404 && detail.ends_with("not found"), "{method} {path}: {status} {seen}");
            continue;
        }
        let (body, expected) = owned.attempt(&format!("{method} {path}"));
        let query = match &*path {
            "/store/items" => format!("?namespace={SECRET}&key={SECRET}"),
            "/.well-known/agent-card.json" => format!("?assistant_id={}", owned.assistant),
            _ => String::new(),
        };
        let seen = answer(&server, "bob", &method, &format!("{}{query}", owned.path(&path)), body).await;
        assert_eq!(seen, expected, "{method} {path}");
    }

    // An id in the body of an endpoint for a graph that is for everyone.
    let message = json!({ "messageId": "m", "contextId": owned.thread, "parts": [] });
    let body = json!({ "id": 1, "method": "message/send", "params": { "message": message } });
    let (_, seen) = answer(&server, "bob", "post", "/a2a/gate", body).await;
    assert_eq!(seen["error"]["message"], format!("thread `{}` not found", owned.thread));

    for method in ["tasks/get", "tasks/cancel"] {
        let body = json!({ "id": 1, "method": method, "params": { "id": owned.run } });
        let (_, seen) = answer(&server, "bob", "post", "/a2a/gate", body).await;
        assert_eq!(seen["error"]["message"], format!("task `{}` not found", owned.run));
    }

    // Nothing of it has changed, and its owner finds it at the same endpoints.
    let Owned { thread, run, assistant } = &owned;
    for path in ["/threads/{thread}", "/threads/{thread}/runs/{run}", "/assistants/{assistant}"] {
        let (status, seen) = answer(&server, "alice", "get", &owned.path(path), Value::Null).await;
        assert!(status == 200 && seen.to_string().contains(SECRET), "{path}: {seen}");
    }
    let (_, found) =
        answer(&server, "alice", "post", "/assistants/count", json!({ "graph_id": "gate" })).await;
    assert_eq!(found, 2, "{assistant}");
    let (_, items) = answer(&server, "alice", "post", "/store/items/search", json!({})).await;
    let expected = (&json!([SECRET]), &json!({ "text": SECRET }));
    assert_eq!((&items["items"][0]["namespace"], &items["items"][0]["value"]), expected);
    let (_, namespaces) =
        answer(&server, "alice", "post", "/store/namespaces", json!({ "max_depth": 1 })).await;
    assert_eq!(namespaces, json!({ "namespaces": [[SECRET]] }));
    let (_, all) = answer(&server, "root", "post", "/store/namespaces", json!({})).await;
    assert_eq!(all, json!({ "namespaces": [["user:alice@example%2Eorg", SECRET], ["user:bob", SECRET]] }));
    graphs::open(SECRET);
    let join = format!("/threads/{thread}/runs/{run}/join");
    let (_, end) = answer(&server, "alice", "get", &join, Value::Null).await;
    assert_eq!(end["log"], json!(["before", "passed", "after"]));
    let (_, shown) =
        answer(&server, "root", "get", &format!("/threads/{thread}/runs/{run}"), Value::Null).await;
    assert_eq!(shown["metadata"]["owner"], "alice@example.org");
}

#[tokio::test]
async fn assistants_of_administrators_are_for_everyone_and_only_they_change_them() {
    let server = serve(server()).await;
    let (_, shared) = answer(&server, "root", "post", "/assistants", json!({ "graph_id": "counter" })).await;
    let shared = shared["assistant_id"].as_str().unwrap();
    let body = json!({ "assistant_id": shared, "input": {} });
    assert_eq!(answer(&server, "bob", "post", "/runs/wait", body).await.1["n"], 2);
    for id in [shared, "counter"] {
        let path = format!("/assistants/{id}");
        assert_eq!(send(&server, "bob", "get", &path, Value::Null).await.status(), 200);
        for (method, path, body) in [
            ("patch", path.clone(), json!({ "name": "mine" })),
            ("post", format!("{path}/latest"), json!({ "version": 1 })),
            ("delete", path.clone(), Value::Null),
        ] {
            assert_eq!(send(&server, "bob", method, &path, body).await.status(), 403, "{method} {path}");
        }
        assert_eq!(send(&server, "root", "patch", &path, json!({ "name": "ours" })).await.status(), 200);
    }
}

/// The endpoints whose method is `POST`, and which only read.
const READS: [&str; 12] = [
    "/assistants/search",
    "/assistants/count",
    "/assistants/{assistant}/versions",
    "/threads/search",
    "/threads/count",
    "/threads/{thread}/state/checkpoint",
    "/threads/{thread}/history",
    "/threads/{thread}/stream/events",
    "/runs/crons/search",
    "/runs/crons/count",
    "/store/items/search",
    "/store/namespaces",
];

#[tokio::test]
async fn a_key_that_reads_and_a_server_that_reads_refuse_every_write() {
    let (users, reads) = (serve(server()).await, serve(server().read_only()).await);
    for (server, key, detail) in
        [(&users, "carol", "your key reads only"), (&reads, "root", "this server is read-only")]
    {
        let mut writes = 0;
        for (method, path) in endpoints(server, key).await {
            let path = path.as_str();
            let (status, seen) = answer(server, key, &method, path, json!({})).await;
            if method == "get" || READS.contains(&path) {
                assert_ne!(status, 403, "{method} {path}: {seen}");
            } else {
                assert_eq!((status, &seen), (403, &json!({ "detail": detail })), "{method} {path}");
                writes += 1;
            }
        }
        assert!(writes > 20);
        // A client that hangs up would stop the run.
        let path = "/threads/t/runs/r/join?cancel_on_disconnect=";
        assert_eq!(send(server, key, "get", &format!("{path}1"), Value::Null).await.status(), 403);
        assert_eq!(send(server, key, "get", &format!("{path}0"), Value::Null).await.status(), 404);
    }
}

#[tokio::test]
async fn a_user_has_a_rate_and_so_has_an_address_that_tries_keys() {
    let limits = Limits { rate: NonZeroU32::new(1), ..Limits::default() };
    let server = serve(server().limits(limits)).await;
    let burst = async |key: &str| {
        let mut statuses = Vec::new();
        for _ in 0..12 {
            let response = send(&server, key, "get", "/info", Value::Null).await;
            statuses.push(response.status().as_u16());
            if response.status() == 429 {
                assert_eq!(response.headers()["retry-after"], "1");
            }
        }
        statuses
    };
    for (key, status) in [("alice", 200), ("bob", 200), ("guess", 403)] {
        let statuses = burst(key).await;
        assert!(statuses[..10].iter().all(|seen| *seen == status), "{statuses:?}");
        assert!(statuses[10..].contains(&429), "{statuses:?}");
    }
    assert_eq!(send(&server, "", "get", "/ok", Value::Null).await.status(), 200);
}

#[tokio::test]
async fn a_token_beside_users_is_that_of_an_administrator() {
    let server = serve(server().token("shared")).await;
    let (_, thread) = answer(&server, "alice", "post", "/threads", json!({})).await;
    let path = format!("/threads/{}", thread["thread_id"].as_str().unwrap());
    for (key, status) in [("shared", 200), ("bob", 404), ("wrong", 403), ("", 401)] {
        assert_eq!(send(&server, key, "get", &path, Value::Null).await.status(), status, "{key}");
    }
}

#[tokio::test]
async fn metrics_count_requests_runs_and_streams() {
    let server = serve(server()).await;
    for _ in 0..2 {
        answer(&server, "alice", "post", "/runs/wait", json!({ "assistant_id": "counter", "input": {} }))
            .await;
    }
    answer(&server, "alice", "post", "/runs/wait", json!({ "assistant_id": "fail", "input": {} })).await;
    answer(&server, "alice", "get", "/no/such/place", Value::Null).await;
    let body = json!({ "assistant_id": "gate", "input": { "gate": "metrics" } });
    let stream = send(&server, "alice", "post", "/runs/stream", body).await;
    assert_eq!(answer(&server, "", "get", "/metrics", Value::Null).await.0, 401);
    let (_, text) = answer(&server, "bob", "get", "/metrics", Value::Null).await;
    for line in [
        "superstep_requests_total{method=\"POST\",route=\"/runs/wait\",status=\"200\"} 3",
        "superstep_requests_total{method=\"GET\",route=\"unknown\",status=\"404\"} 1",
        "superstep_requests_total{method=\"GET\",route=\"/metrics\",status=\"401\"} 1",
        "superstep_request_duration_seconds_count{route=\"/runs/wait\"} 3",
        "superstep_runs_total{graph=\"counter\",status=\"success\"} 2",
        "superstep_runs_total{graph=\"fail\",status=\"error\"} 1",
        "superstep_run_duration_seconds_count{graph=\"counter\"} 2",
        "superstep_runs_running 1",
        "superstep_runs_queued 0",
        "superstep_streams 1",
        "# EOF",
    ] {
        assert!(text.as_str().unwrap().lines().any(|seen| seen == line), "{line} in\n{text}");
    }
    graphs::open("metrics");
    stream.text().await.unwrap();
}

#[tokio::test]
async fn metrics_are_open_if_the_server_says_so() {
    let server = serve(server().open_metrics()).await;
    assert_eq!(send(&server, "", "get", "/metrics", Value::Null).await.status(), 200);
    assert_eq!(send(&server, "", "get", "/info", Value::Null).await.status(), 401);
}

/// A WebSocket of the thread protocol.
struct Socket(reqwest::Upgraded);

impl Socket {
    async fn open(server: &TestServer, key: &str, thread: &str) -> Self {
        let request = server
            .request(Method::GET, &format!("/threads/{thread}/stream/events"))
            .header("x-api-key", key)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let mut socket = Self(request.send().await.unwrap().upgrade().await.unwrap());
        let all = json!({ "id": 1, "method": "subscription.subscribe", "params": { "channels": CHANNELS } });
        socket.send(&all).await;
        let reply = socket.read().await;
        assert!(reply.contains("subscription_id"), "{reply}");
        socket
    }

    async fn send(&mut self, command: &Value) {
        let text = command.to_string();
        let size = u16::try_from(text.len()).unwrap().to_be_bytes();
        // A text, its size in two bytes, and a mask of zeros.
        let frame = [&[0x81, 0x80 | 126], &size[..], &[0; 4], text.as_bytes()].concat();
        self.0.write_all(&frame).await.unwrap();
    }

    /// Returns what comes until nothing comes for a while.
    async fn read(&mut self) -> String {
        let mut bytes = Vec::new();
        while let Ok(read) = timeout(QUIET, self.0.read_buf(&mut bytes)).await {
            assert!(read.unwrap() > 0, "the socket was closed");
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The time after which nothing more comes.
const QUIET: Duration = Duration::from_millis(300);

const CHANNELS: [&str; 3] = ["lifecycle", "values", "updates"];

/// In every event of the thread protocol.
const EVENT: &str = r#""type":"event""#;

/// Returns what comes in a stream until nothing comes for a while.
async fn read(stream: &mut Response) -> String {
    let mut text = String::new();
    while let Ok(chunk) = timeout(QUIET, stream.chunk()).await {
        text += std::str::from_utf8(&chunk.unwrap().expect("the stream ended")).unwrap();
    }
    text
}

#[tokio::test]
async fn a_client_that_waits_for_a_thread_receives_nothing_of_another_users() {
    let server = serve(server()).await;
    let filter = json!({ "channels": CHANNELS });
    let stream =
        async |key: &str| send(&server, key, "post", "/threads/t/stream/events", filter.clone()).await;
    let command = async |key: &str, method: &str, params: Value| {
        let command = json!({ "id": 1, "method": method, "params": params });
        answer(&server, key, "post", "/threads/t/commands", command).await.1
    };
    let start = json!({ "assistant_id": "counter", "input": { "n": 1 } });
    for (owner, other) in [("alice", "bob"), ("bob", "alice")] {
        let (mut own, mut foreign) = (stream(owner).await, stream(other).await);
        let mut own_socket = Socket::open(&server, owner, "t").await;
        let mut foreign_socket = Socket::open(&server, other, "t").await;
        // Its head arrives before there is a thread, its body later.
        let mut late = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
        let body = r#"{"limit":1}"#;
        let head = format!(
            "POST /threads/t/history HTTP/1.1\r\nhost: localhost\r\nx-api-key: {other}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        late.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read(&mut foreign).await, "");

        let reply = command(owner, "run.start", start.clone()).await;
        assert_eq!(reply["type"], "success", "{reply}");
        assert!(read(&mut own).await.contains(EVENT));
        assert!(own_socket.read().await.contains(EVENT));
        assert_eq!(read(&mut foreign).await, "");
        assert_eq!(foreign_socket.read().await, "");
        for (method, params) in [
            ("run.start", start.clone()),
            ("input.respond", json!({ "interrupt_id": "x", "response": 1 })),
            ("state.get", json!({})),
            ("agent.getTree", json!({})),
        ] {
            foreign_socket.send(&json!({ "id": 2, "method": method, "params": params })).await;
            let reply = foreign_socket.read().await;
            assert!(reply.contains(r#""type":"error""#) && reply.contains("not found"), "{method}: {reply}");
        }
        late.write_all(body.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        late.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 404");
        let mut joined = send(&server, owner, "get", "/threads/t/stream", Value::Null).await;
        let runs = answer(&server, owner, "get", "/threads/t/runs", Value::Null).await.1;
        assert_eq!(runs.as_array().unwrap().len(), 1);
        read(&mut own).await;

        // Now the other one has it.
        assert_eq!(answer(&server, owner, "delete", "/threads/t", Value::Null).await.0, 204);
        let reply = command(other, "run.start", start.clone()).await;
        assert_eq!(reply["type"], "success", "{reply}");
        assert!(read(&mut foreign).await.contains(EVENT));
        assert!(foreign_socket.read().await.contains(EVENT));
        assert_eq!(read(&mut own).await, "");
        assert_eq!(own_socket.read().await, "");
        assert_eq!(read(&mut joined).await, "");
        assert_eq!(answer(&server, other, "delete", "/threads/t", Value::Null).await.0, 204);
    }
}
