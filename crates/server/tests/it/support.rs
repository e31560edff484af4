//! A server in this process, and a client for it.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use superstep_graph::{MemoryStore, Store};
use superstep_llm::http::client_builder;
use superstep_server::{Server, ServerError};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::graphs;

/// A server that stops when this is dropped.
pub(crate) struct TestServer {
    pub(crate) url: String,
    pub(crate) client: Client,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<Result<(), ServerError>>>,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: Value,
    pub(crate) id: Option<String>,
}

/// Starts a server with the graphs of the tests and everything in memory.
pub(crate) async fn start() -> TestServer {
    serve(graphs::all(Server::new()).store(Arc::new(MemoryStore::new()) as Arc<dyn Store>)).await
}

/// Starts a server.
pub(crate) async fn serve(server: Server) -> TestServer {
    serve_on(server, TcpListener::bind("127.0.0.1:0").await.unwrap())
}

/// Starts a server that listens already.
pub(crate) fn serve_on(server: Server, listener: TcpListener) -> TestServer {
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve_until(listener, async { drop(stopped.await) }));
    let client = client_builder().unwrap().no_proxy().build().unwrap();
    TestServer { url, client, stop: Some(stop), serving: Some(serving) }
}

impl TestServer {
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Value) -> Response {
        self.request(method, path).json(&body).send().await.unwrap()
    }

    /// Sends a request that succeeds, and returns the body.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        ok(self.send(Method::POST, path, body).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        ok(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> StatusCode {
        self.request(Method::DELETE, path).send().await.unwrap().status()
    }

    /// Sends a request that is refused, and returns the status and the detail.
    pub(crate) async fn refused(&self, method: Method, path: &str, body: Value) -> (u16, String) {
        let response = self.send(method, path, body).await;
        let status = response.status().as_u16();
        let body: Value = response.json().await.unwrap();
        assert!(status >= 400, "{path}: {status} {body}");
        (status, body["detail"].as_str().unwrap().to_owned())
    }

    /// Creates a thread and returns its id.
    pub(crate) async fn thread(&self) -> String {
        self.post("/threads", json!({})).await["thread_id"].as_str().unwrap().to_owned()
    }

    /// Runs a graph on a thread as a stream, and returns its events.
    pub(crate) async fn stream(&self, thread: &str, body: Value) -> Vec<Event> {
        let response = self.send(Method::POST, &format!("/threads/{thread}/runs/stream"), body).await;
        events(response).await
    }

    /// Waits until a run has this status.
    pub(crate) async fn until(&self, thread: &str, run: &str, status: &str) {
        for _ in 0..2_000 {
            if self.get(&format!("/threads/{thread}/runs/{run}")).await["status"] == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("run {run} is never {status}");
    }

    /// Stops the server as a signal does.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.take().unwrap().await.unwrap().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

async fn ok(response: Response) -> Value {
    let (status, url) = (response.status(), response.url().clone());
    let text = response.text().await.unwrap();
    assert!(status.is_success(), "{url}: {status} {text}");
    if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() }
}

/// Reads a stream to its end.
pub(crate) async fn events(response: Response) -> Vec<Event> {
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    text.split("\r\n\r\n").filter_map(event).collect()
}

/// Reads one event of a stream at a time.
pub(crate) struct Reader {
    body: futures::stream::BoxStream<'static, reqwest::Result<axum::body::Bytes>>,
    text: String,
}

impl Reader {
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        Self { body: response.bytes_stream().boxed(), text: String::new() }
    }

    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.read().await.map(Result::unwrap)
    }

    /// Returns the next event, or the loss of the connection; `None` at the end of the stream.
    pub(crate) async fn read(&mut self) -> Option<reqwest::Result<Event>> {
        loop {
            while let Some((frame, rest)) = self.text.split_once("\r\n\r\n") {
                let event = event(frame);
                self.text = rest.to_owned();
                if event.is_some() {
                    return event.map(Ok);
                }
            }
            match self.body.next().await? {
                Ok(chunk) => self.text.push_str(std::str::from_utf8(&chunk).unwrap()),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads up to an event of this name.
    pub(crate) async fn until(&mut self, name: &str) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended before `{name}`"));
            if event.name == name {
                return event;
            }
        }
    }
}

fn event(frame: &str) -> Option<Event> {
    let field = |name: &str| {
        let line = frame.split("\r\n").find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(": ").map(str::to_owned)
    };
    let (name, data) = (field("event")?, field("data")?);
    Some(Event { name, data: serde_json::from_str(&data).unwrap(), id: field("id") })
}

/// Returns the names of events, in order.
pub(crate) fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| &*event.name).collect()
}

/// Returns events as text, one a line, with ids and times replaced.
pub(crate) fn shown(events: &[Event]) -> String {
    let line = |event: &Event| format!("{} {}\n", redacted(&event.name), redacted(&event.data.to_string()));
    events.iter().map(line).collect()
}

/// Replaces what differs from run to run: ids, but for checkpoints and graphs, and times.
pub(crate) fn redacted(text: &str) -> String {
    let mut ids: Vec<String> = Vec::new();
    let mut shown = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(id) = rest.get(..36).filter(|id| is_id(id)) {
            if id.starts_with("00000000-0000-8000") {
                shown.push_str(&format!("K{}", u64::from_str_radix(&id[24..], 16).unwrap()));
            } else if id.as_bytes()[14] == b'7' {
                shown.push_str("ID");
            } else {
                let known = ids.iter().position(|known| known == id).unwrap_or_else(|| {
                    ids.push(id.to_owned());
                    ids.len() - 1
                });
                shown.push_str(&format!("U{known}"));
            }
            rest = &rest[36..];
        } else if rest.get(..32).is_some_and(|time| time.ends_with("+00:00") && time.as_bytes()[10] == b'T') {
            shown.push_str("TIME");
            rest = &rest[32..];
        } else if rest.starts_with('~')
            && rest.get(1..17).is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            shown.push_str("~HASH");
            rest = &rest[17..];
        } else {
            shown.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    shown
}

fn is_id(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}
