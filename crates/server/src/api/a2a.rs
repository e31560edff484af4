//! The endpoints of A2A 0.3: `/.well-known/agent-card.json`, and `/a2a/{assistant}` with the method `message/send`.
//!
//! A context is a thread, and a task is a run that has ended or waits for an answer.
//!
//! Start at [`call`].

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, header},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    assistants::assistant,
    extract::{Body, Query},
    rpc::{Failure, reply},
    runs::begin,
};
use crate::{
    access::User,
    error::ApiError,
    runs::{hub::Hub, request::RunRequest},
    wire::{ids, time},
};

/// A call by JSON-RPC 2.0.
#[derive(JsonSchema, Deserialize)]
pub(super) struct Call {
    #[serde(default)]
    id: Value,
    method: String,
    #[serde(default)]
    params: Value,
}

#[derive(Deserialize)]
struct Send {
    message: Message,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    #[serde(default)]
    context_id: Option<String>,
    /// The task that the message answers.
    #[serde(default)]
    task_id: Option<String>,
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    kind: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    data: Value,
}

/// Returns the card of an assistant; of the only graph, if none is named.
pub(super) async fn card(
    State(hub): State<Arc<Hub>>,
    user: User,
    query: Query,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    let only = || hub.graphs.keys().next().filter(|_| hub.graphs.len() == 1).map(String::as_str);
    let id = query.get("assistant_id").or_else(only);
    let id = id.ok_or_else(|| ApiError::invalid("assistant_id: this server has several graphs, name one"))?;
    let row = assistant(&hub, id)?;
    if !row.is_visible(&user) {
        return Err(ApiError::not_found("assistant", id));
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = text("x-forwarded-proto").filter(|scheme| *scheme == "https").unwrap_or("http");
    let host = text(header::HOST.as_str()).unwrap_or("localhost");
    let version = row.version();
    let description = version.description.clone().unwrap_or_else(|| format!("The graph `{}`", version.graph));
    let skill =
        json!({ "id": version.graph, "name": version.name, "description": description, "tags": ["graph"] });
    Ok(Json(json!({
        "protocolVersion": "0.3.0",
        "name": version.name,
        "description": description,
        "url": format!("{scheme}://{host}/a2a/{}", row.id),
        "preferredTransport": "JSONRPC",
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": { "streaming": false, "pushNotifications": false },
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [skill],
        "securitySchemes": { "key": { "type": "apiKey", "in": "header", "name": "x-api-key" } },
        "security": [{ "key": [] }],
    })))
}

/// Answers a call, when its run has ended.
pub(super) async fn call(
    State(hub): State<Arc<Hub>>,
    Path(assistant): Path<String>,
    user: User,
    Body(call): Body<Call>,
) -> Json<Value> {
    let Call { id, method, params } = call;
    let answered = match &*method {
        "message/send" => send(&hub, &user, assistant, params).await,
        _ => Err(Failure::unknown_method(&method)),
    };
    Json(reply(&id, answered))
}

async fn send(hub: &Arc<Hub>, user: &User, assistant: String, params: Value) -> Result<Value, Failure> {
    let Send { message } =
        serde_json::from_value(params).map_err(|error| Failure::invalid(error.to_string()))?;
    let Message { message_id, context_id, task_id, parts } = message;
    let context = context_id.unwrap_or_else(ids::new_ordered);
    let (mut texts, mut data) = (Vec::new(), None);
    for part in parts {
        match &*part.kind {
            "text" => texts.push(part.text),
            "data" => data = Some(part.data),
            kind => return Err(Failure::invalid(format!("parts of the kind `{kind}` are not supported"))),
        }
    }
    let text = texts.join("\n");
    let mut request = json!({ "assistant_id": assistant, "if_not_exists": "create" });
    if task_id.is_some() {
        request["command"] = json!({ "resume": data.unwrap_or_else(|| text.into()) });
    } else {
        let words = json!([{ "role": "user", "content": text, "id": message_id }]);
        request["input"] = data.unwrap_or_else(|| json!({ "messages": words }));
    }
    let request: RunRequest =
        serde_json::from_value(request).map_err(|error| Failure::invalid(error.to_string()))?;
    let live = begin(hub, user, &context, request).await?;
    let end = live.ended().await;
    let id = task_id.unwrap_or_else(|| live.about.run.clone());
    Ok(task(&id, &context, hub.result(&live, &end)))
}

/// Returns the task of a run with this result.
fn task(id: &str, context: &str, mut values: Value) -> Value {
    let said = |part: Value| json!({ "kind": "message", "messageId": format!("{id}.status"), "role": "agent", "parts": [part] });
    let mut task = json!({ "kind": "task", "id": id, "contextId": context });
    let status = if let Some(error) = values.get("__error__") {
        json!({ "state": "failed", "message": said(text_part(error["message"].as_str().unwrap_or_default())) })
    } else if let Some(asked) = values.get("__interrupt__") {
        let question = &asked[0]["value"];
        let part = question.as_str().map_or_else(|| data_part(question.clone()), text_part);
        json!({ "state": "input-required", "message": said(part) })
    } else {
        let part = match last_reply(&values) {
            Some(text) => text_part(text),
            None => data_part(values.take()),
        };
        task["artifacts"] = json!([{ "artifactId": format!("{id}.result"), "parts": [part] }]);
        json!({ "state": "completed" })
    };
    task["status"] = status;
    task["status"]["timestamp"] = time::text(time::now_us()).into();
    task
}

/// Returns the text of the last message of a model in a result.
pub(super) fn last_reply(values: &Value) -> Option<&str> {
    let messages = values.get("messages")?.as_array()?;
    messages.iter().rev().find(|message| message["type"] == "ai")?["content"].as_str()
}

fn text_part(text: &str) -> Value {
    json!({ "kind": "text", "text": text })
}

fn data_part(data: Value) -> Value {
    let data = if data.is_object() { data } else { Map::from_iter([("value".to_owned(), data)]).into() };
    json!({ "kind": "data", "data": data })
}
