//! Exchanges that were recorded with the reference server of LangGraph (`tests/recorded`), repeated with ours and compared: statuses,
//! headers, names and order of events, and JSON.

use std::{path::Path, sync::Arc, time::Duration};

use futures::future::join_all;
use reqwest::{Method, Response, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};
use superstep_graph::{MemoryStore, Store};
use superstep_server::Server;
use tokio::time::timeout;

use crate::support::{Event, Reader, TestServer, serve};

mod allowed;
mod compare;
mod graphs;
use allowed::{ALLOWED, is_of};
use compare::Comparison;

/// The headers that clients read.
const HEADERS: [&str; 6] = [
    "content-type",
    "content-location",
    "location",
    "x-pagination-total",
    "x-pagination-next",
    "cache-control",
];

/// A line of a recording.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Until { until: String, contains: Value },
    Exchange(Exchange),
}

/// A request, and the response of the reference server.
#[derive(Deserialize)]
struct Exchange {
    method: String,
    path: String,
    /// The body; for GET, the last event of a stream that the client has.
    body: String,
    status: u16,
    headers: Value,
    json: Option<Value>,
    events: Option<Vec<Value>>,
    /// The number of ends after which a stream of events that does not end by itself is read no further.
    ends: Option<usize>,
    text: Option<String>,
}

impl Exchange {
    async fn send(&self, server: &TestServer, ids: &mut Comparison) -> Response {
        let method: Method = self.method.parse().unwrap();
        let request = server.request(method.clone(), &ids.shown(&self.path));
        let request = match &*self.body {
            "" => request,
            last if method == Method::GET => request.header("last-event-id", last),
            body => request.header(CONTENT_TYPE, "application/json").body(ids.shown(body)),
        };
        request.send().await.unwrap()
    }

    async fn compare(&self, response: Response, comparison: &mut Comparison) {
        comparison.status(self.status, response.status().as_u16());
        let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
        let headers = HEADERS.iter().filter_map(|name| Some(((*name).to_owned(), header(name)?.into())));
        let headers = headers.collect();
        comparison.json("headers", &self.headers, &Value::Object(headers));
        if response.status().as_u16() != self.status {
            // Nothing of the rest would be alike.
        } else if let Some(recorded) = &self.events {
            comparison.events(recorded, &self.events_of(response).await);
        } else if let Some(recorded) = &self.text {
            comparison.json("text", &json!(recorded), &json!(response.text().await.unwrap()));
        } else {
            // `null` is read as no value.
            let recorded = self.json.clone().unwrap_or_default();
            comparison.json("json", &recorded, &response.json().await.unwrap());
        }
    }

    /// Reads a stream to its end, or one of the events of a thread until its root has ended as often as when it was recorded.
    async fn events_of(&self, response: Response) -> Vec<Value> {
        let (mut reader, mut events, mut ends) = (Reader::new(response), Vec::new(), 0);
        let wanted = self.ends.unwrap();
        while wanted == 0 || ends < wanted {
            let Event { name, data, id } = match timeout(Duration::from_secs(20), reader.next()).await {
                Ok(None) => break,
                Ok(Some(event)) => event,
                Err(_) => {
                    events.push(json!({ "event": "too late", "data": null }));
                    break;
                }
            };
            let params = &data["params"];
            let level = params["namespace"].as_array().map_or(0, Vec::len);
            let end = ["completed", "failed", "interrupted"].map(Value::from);
            ends += usize::from(level == self.level() && end.contains(&params["data"]["event"]));
            let mut shown = json!({ "event": name, "data": data });
            if id.is_some() {
                shown["id"] = true.into();
            }
            events.push(shown);
        }
        events
    }

    /// Returns the level of the graph whose end ends the reading.
    fn level(&self) -> usize {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["namespaces"][0].as_array().map_or(0, Vec::len)
    }
}

fn contains(value: &Value, part: &Value) -> bool {
    match part {
        Value::Object(part) => part.iter().all(|(key, item)| contains(&value[key], item)),
        _ => value == part,
    }
}

/// Returns the lines of a recording.
fn recording(topic: &str) -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/{topic}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn until(server: &TestServer, path: &str, part: &Value) {
    for _ in 0..2_000 {
        if contains(&server.get(path).await, part) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{path} never contains {part}");
}

/// Repeats the exchanges of a topic, and returns how the responses differ.
async fn differences(topic: &str) -> Vec<String> {
    let server =
        serve(graphs::all(Server::new()).store(Arc::new(MemoryStore::new()) as Arc<dyn Store>)).await;
    let mut comparison = Comparison::new(topic);
    for line in recording(topic) {
        match line {
            Line::Until { until: path, contains } => {
                until(&server, &comparison.shown(&path), &contains).await;
            }
            Line::Exchange(exchange) => {
                comparison.begin(&exchange.method, &exchange.path);
                let response = exchange.send(&server, &mut comparison).await;
                exchange.compare(response, &mut comparison).await;
            }
        }
    }
    comparison.differences
}

const TOPICS: [&str; 10] = [
    "assistants",
    "threads",
    "state",
    "modes",
    "messages",
    "questions",
    "failures",
    "background",
    "protocol",
    "store",
];

#[tokio::test]
async fn responses_differ_from_those_of_the_reference_only_as_they_may() {
    let found = join_all(TOPICS.map(differences)).await.concat();
    let is_allowed = |found: &&String| ALLOWED.iter().any(|(pattern, _)| is_of(pattern, found));
    let faults = found.iter().filter(|found| !is_allowed(found)).map(|fault| format!("{fault}\n"));
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "{} differences:\n{}", faults.len(), faults.concat());
    let unused = ALLOWED.iter().filter(|(pattern, _)| !found.iter().any(|found| is_of(pattern, found)));
    let unused: Vec<_> = unused.map(|(pattern, why)| format!("{pattern}: {why}\n")).collect();
    assert!(unused.is_empty(), "nothing differs as these allow:\n{}", unused.concat());
}

#[test]
fn the_recordings_have_the_requests_of_the_list() {
    let mut recorded = String::new();
    for topic in TOPICS {
        recorded.push_str(&format!("\n[{topic}]\n"));
        for line in recording(topic) {
            let line = match line {
                Line::Until { until, contains } => {
                    format!("until {until} {}", contains.to_string().replace(':', ": "))
                }
                Line::Exchange(Exchange { method, path, body, ends, .. }) => {
                    let ends = ends.filter(|ends| *ends > 0).map(|ends| format!(" ends {ends}"));
                    format!("{method} {path} {body}{}", ends.unwrap_or_default())
                }
            };
            recorded.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    let list = include_str!("../recorded/exchanges.txt");
    let list = list.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n"));
    assert_eq!(recorded, list.collect::<String>());
}
