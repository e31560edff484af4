//! The endpoint `/mcp` of the Model Context Protocol, on which each graph is a tool.
//!
//! There are no sessions: a call is a run on a thread of its own, which is deleted at its end.
//!
//! Start at [`message`].

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use futures::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use superstep_graph::erased::JsonGraph;
use tokio::time::timeout;

use super::{
    a2a::last_reply,
    extract::Body,
    rpc::{Failure, reply},
    runs::begin_stateless,
    streams::{Hangup, events},
};
use crate::{
    access::User,
    events::sse::{Frame, HEARTBEAT},
    runs::{
        hub::Hub,
        live::{LiveRun, RunEnd},
        request::RunRequest,
    },
    wire::messages::CHANNEL,
};

/// The versions of the protocol, newest first.
const VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// A message of a client: a request, or one without an id or a method, which has no answer.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "McpMessage")]
pub(super) struct Message {
    #[serde(default)]
    id: Value,
    method: Option<String>,
    #[serde(default)]
    params: Value,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

/// The result of a request, or its error.
type Answer = Result<Value, Failure>;

/// Answers a message; a call of a tool by a stream, which ends with the result.
pub(super) async fn message(
    State(hub): State<Arc<Hub>>,
    user: User,
    Body(message): Body<Message>,
) -> Response {
    let Message { id, method, params } = message;
    let Some(method) = method.filter(|_| !id.is_null()) else { return StatusCode::ACCEPTED.into_response() };
    let answer = match &*method {
        "initialize" => Ok(initialized(&params)),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": tools(&hub) })),
        "tools/call" => match begin(&hub, &user, params).await {
            Ok(live) => return called(&hub, id, live),
            Err(refused) => refused,
        },
        _ => Err(Failure::unknown_method(&method)),
    };
    Json(reply(&id, answer)).into_response()
}

fn initialized(params: &Value) -> Value {
    let known = VERSIONS.into_iter().find(|version| params["protocolVersion"] == *version);
    json!({
        "protocolVersion": known.unwrap_or(VERSIONS[0]),
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "superstep", "version": env!("CARGO_PKG_VERSION") },
    })
}

fn tools(hub: &Hub) -> Vec<Value> {
    let tool = |(name, graph): (&String, &Arc<dyn JsonGraph>)| {
        let described = hub.assistant(name).and_then(|row| row.version().description.clone());
        let description = described.unwrap_or_else(|| format!("Runs the graph `{name}`"));
        json!({ "name": name, "description": description, "inputSchema": input_schema(&**graph) })
    };
    hub.graphs.iter().map(tool).collect()
}

/// Returns the schema of a graph's inputs. One that converts its inputs has none; if it has messages, it is an agent.
fn input_schema(graph: &dyn JsonGraph) -> Value {
    let mut schema = graph.input_schema();
    if !schema.is_object() {
        let has_messages = graph.channels().iter().any(|channel| channel.name == CHANNEL);
        schema = if has_messages {
            json!({ "type": "object", "properties": { CHANNEL: true }, "required": [CHANNEL] })
        } else {
            json!({ "type": "object" })
        };
    }
    // Clients want an object for each property, and models a hint.
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if property.is_boolean() {
            *property = if name == CHANNEL { messages() } else { json!({}) };
        }
    }
    schema
}

fn messages() -> Value {
    let text = json!({ "type": "string" });
    let properties = json!({ "role": text, "content": text });
    let message = json!({ "type": "object", "properties": properties, "required": ["role", "content"] });
    json!({ "type": "array", "items": message })
}

/// Begins the run of a call. The error is its answer: an input that does not fit is the result of a tool, which a model reads.
async fn begin(hub: &Arc<Hub>, user: &User, params: Value) -> Result<Arc<LiveRun>, Answer> {
    let ToolCall { name, arguments } =
        serde_json::from_value(params).map_err(|error| Err(Failure::invalid(error.to_string())))?;
    if !hub.graphs.contains_key(&name) {
        return Err(Err(Failure::invalid(format!("unknown tool `{name}`"))));
    }
    let input = if arguments.is_null() { json!({}) } else { arguments };
    let request = json!({ "assistant_id": name, "input": input });
    let request: RunRequest = serde_json::from_value(request).expect("a request with an input is valid");
    begin_stateless(hub, user, request).await.map_err(|error| {
        if error.status == StatusCode::UNPROCESSABLE_ENTITY {
            Ok(failed(&error.detail))
        } else {
            Err(error.into())
        }
    })
}

/// Returns the stream of a call. Its end cancels the run.
fn called(hub: &Arc<Hub>, id: Value, live: Arc<LiveRun>) -> Response {
    let hangup = Hangup::new(hub, &live);
    let hub = hub.clone();
    events(stream::unfold(Some((hub, id, live, hangup)), |waiting| async move {
        let (hub, id, live, hangup) = waiting?;
        let Ok(end) = timeout(hub.limits.heartbeat, live.ended()).await else {
            return Some((HEARTBEAT, Some((hub, id, live, hangup))));
        };
        let answer = reply(&id, result(&hub, &live, &end));
        Some((Frame::new("message", answer).encode(None), None))
    }))
}

fn result(hub: &Hub, live: &LiveRun, end: &RunEnd) -> Answer {
    if end.is_left {
        return Err(Failure::internal("the server stops; call again"));
    }
    let values = hub.result(live, end);
    Ok(if let Some(error) = values.get("__error__") {
        failed(error["message"].as_str().unwrap_or_default())
    } else if let Some(questions) = values.get("__interrupt__") {
        let question = &questions[0]["value"];
        failed(&format!("the graph waits for an answer, which a call cannot give: {question}"))
    } else if let Some(text) = last_reply(&values) {
        json!({ "content": [text_of(text)], "isError": false })
    } else {
        let content = [text_of(&values.to_string())];
        json!({ "content": content, "structuredContent": values, "isError": false })
    })
}

fn failed(text: &str) -> Value {
    json!({ "content": [text_of(text)], "isError": true })
}

fn text_of(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}
