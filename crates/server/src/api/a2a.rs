//! The endpoints of A2A 1.0 and 0.3: `/.well-known/agent-card.json`, and `/a2a/{assistant}`.
//!
//! | 1.0 | 0.3 |
//! |---|---|
//! | `SendMessage` | `message/send` |
//! | `GetTask` | `tasks/get` |
//! | `CancelTask` | `tasks/cancel` |
//!
//! A context is a thread, and a task is a run of it with the runs that answer its questions.
//!
//! Start at [`call`].

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, header},
};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    assistants::assistant,
    extract::{Body, Query},
    rpc::{Failure, reply},
    runs::{begin, result_of},
};
use crate::{
    access::User,
    error::ApiError,
    rows::run::{RunRow, RunStatus, Stop},
    runs::{
        hub::{Hub, lanes::Cancelled, run_key},
        request::RunRequest,
    },
    wire::{ids, time},
};

/// The name of the task in the metadata of a run that answers it.
const TASK: &str = "a2a_task";

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
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    data: Option<Value>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

/// A task of a user.
struct Task {
    id: String,
    /// The newest of its runs.
    row: RunRow,
    /// `true` if no later run of the context has begun, so that the question that waits is its own.
    is_last: bool,
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
    describe(&hub, &user, id, &headers).map(Json)
}

/// Returns the card of an assistant, where clients that know the address of its calls look for it.
pub(super) async fn card_of(
    State(hub): State<Arc<Hub>>,
    Path(assistant): Path<String>,
    user: User,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    describe(&hub, &user, &assistant, &headers).map(Json)
}

fn describe(hub: &Hub, user: &User, id: &str, headers: &HeaderMap) -> Result<Value, ApiError> {
    let row = assistant(hub, id)?;
    if !row.is_visible(user) {
        return Err(ApiError::not_found("assistant", id));
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = text("x-forwarded-proto").filter(|scheme| *scheme == "https").unwrap_or("http");
    let host = text(header::HOST.as_str()).unwrap_or("localhost");
    let version = row.version();
    let description = version.description.clone().unwrap_or_else(|| format!("The graph `{}`", version.graph));
    let skill =
        json!({ "id": version.graph, "name": version.name, "description": description, "tags": ["graph"] });
    let url = format!("{scheme}://{host}/a2a/{}", row.id);
    let interface =
        |version: &str| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": version });
    Ok(json!({
        "protocolVersion": "0.3.0",
        "supportedInterfaces": [interface("1.0"), interface("0.3")],
        "name": version.name,
        "description": description,
        "url": url,
        "preferredTransport": "JSONRPC",
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": { "streaming": false, "pushNotifications": false },
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [skill],
        "securitySchemes": { "key": {
            "type": "apiKey", "in": "header", "name": "x-api-key",
            "apiKeySecurityScheme": { "location": "header", "name": "x-api-key" },
        } },
        "security": [{ "key": [] }],
        "securityRequirements": [{ "schemes": { "key": { "list": [] } } }],
    }))
}

/// Answers a call; a message, when its run has ended.
pub(super) async fn call(
    State(hub): State<Arc<Hub>>,
    Path(assistant): Path<String>,
    user: User,
    Body(call): Body<Call>,
) -> Json<Value> {
    let Call { id, method, params } = call;
    let answered = match &*method {
        "message/send" | "SendMessage" => send(&hub, &user, assistant, params).await,
        "tasks/get" | "GetTask" => read(&hub, &user, params).await,
        "tasks/cancel" | "CancelTask" => cancel(&hub, &user, params).await,
        _ => Err(Failure::unknown_method(&method)),
    };
    let answered = answered.map(|task| match &*method {
        "SendMessage" => json!({ "task": renamed(task) }),
        "GetTask" | "CancelTask" => renamed(task),
        _ => task,
    });
    Json(reply(&id, answered))
}

async fn send(hub: &Arc<Hub>, user: &User, assistant: String, params: Value) -> Result<Value, Failure> {
    let Send { message } = arguments(params)?;
    let Message { message_id, context_id, task_id, parts } = message;
    // Clients of 1.0 may send empty ids.
    let given = |id: Option<String>| id.filter(|id| !id.is_empty());
    let (context, task_id) = (given(context_id), given(task_id));
    let (mut texts, mut data) = (Vec::new(), None);
    for part in parts {
        match part {
            Part { text: Some(text), .. } => texts.push(text),
            Part { data: Some(given), .. } => data = Some(with_integers(given)),
            Part { .. } => return Err(Failure::invalid("only parts with `text` or `data` are supported")),
        }
    }
    let text = texts.join("\n");
    let (context, request) = if let Some(id) = &task_id {
        let thread = task_of(hub, user, id)?.row.thread;
        if context.is_some_and(|context| context != thread) {
            return Err(Failure::invalid(format!("contextId: task `{id}` belongs to another context")));
        }
        let answer = data.unwrap_or_else(|| text.into());
        let command = json!({ "resume": answer });
        (thread, json!({ "assistant_id": assistant, "command": command, "metadata": { TASK: id } }))
    } else {
        let words = || json!({ "messages": [{ "role": "user", "content": text, "id": message_id }] });
        let input = data.unwrap_or_else(words);
        let request = json!({ "assistant_id": assistant, "if_not_exists": "create", "input": input });
        (context.unwrap_or_else(ids::new_ordered), request)
    };
    let request: RunRequest = arguments(request)?;
    let live = begin(hub, user, &context, request).await?;
    let end = live.ended().await;
    let id = task_id.unwrap_or_else(|| live.about.run.clone());
    if end.is_left {
        return Err(Failure::internal(format!(
            "the server stops; task `{id}` continues when it starts again"
        )));
    }
    if end.is_stopped {
        return Ok(in_state(&id, &context, "canceled"));
    }
    Ok(ended(&id, &context, hub.result(&live, &end)))
}

async fn read(hub: &Hub, user: &User, params: Value) -> Result<Value, Failure> {
    let Named { id } = arguments(params)?;
    shown(hub, task_of(hub, user, &id)?).await
}

async fn cancel(hub: &Arc<Hub>, user: &User, params: Value) -> Result<Value, Failure> {
    let Named { id } = arguments(params)?;
    let task = task_of(hub, user, &id)?;
    let (thread, run) = (&task.row.thread, &task.row.id);
    match hub.cancel_run(thread, run, Stop::Interrupt, "the client cancelled the task").await? {
        Cancelled::Nothing => return Err(Failure::ended_task(&id)),
        Cancelled::Stopping(live) => drop(live.ended().await),
        Cancelled::AtNextStart => {}
    }
    match hub.runs.get(&run_key(thread, run)) {
        Some(row) => shown(hub, Task { row, ..task }).await,
        // It was deleted at its end.
        None => Ok(in_state(&id, thread, "canceled")),
    }
}

/// Returns a task by its id, which is that of its first run.
fn task_of(hub: &Hub, user: &User, id: &str) -> Result<Task, Failure> {
    let live = hub.live(id).map(|live| live.about.thread.clone());
    let thread = live.or_else(|| Some(hub.runs.list(|row| row.id == id).pop()?.thread));
    let is_theirs =
        |thread: &String| hub.threads.get(thread).is_some_and(|row| user.owns(row.owner.as_ref()));
    let runs = thread.filter(is_theirs).map(|thread| hub.runs_of(&thread)).unwrap_or_default();
    let mut is_last = true;
    for row in runs.into_iter().rev() {
        if row.id == id || row.plan.metadata.get(TASK).is_some_and(|task| task == id) {
            return Ok(Task { id: id.to_owned(), row, is_last });
        }
        is_last &= row.head.is_none();
    }
    Err(Failure::unknown_task(id))
}

/// Returns a task for clients. One that has ended has the values that its thread has now.
async fn shown(hub: &Hub, Task { id, row, is_last }: Task) -> Result<Value, Failure> {
    let state = match row.status {
        RunStatus::Success | RunStatus::Error => {
            let mut values = result_of(hub, &row).await?;
            if let Some(values) = values.as_object_mut().filter(|_| !is_last) {
                values.remove("__interrupt__");
            }
            return Ok(ended(&id, &row.thread, values));
        }
        RunStatus::Interrupted => "canceled",
        // It ends at its turn, or when the server starts again.
        _ if row.stop.is_some() => "canceled",
        RunStatus::Pending => "submitted",
        RunStatus::Running => "working",
    };
    Ok(in_state(&id, &row.thread, state))
}

fn arguments<T: DeserializeOwned>(params: Value) -> Result<T, Failure> {
    serde_json::from_value(params).map_err(|error| Failure::invalid(error.to_string()))
}

fn task(id: &str, context: &str, mut status: Value) -> Value {
    status["timestamp"] = time::text(time::now_us()).into();
    json!({ "kind": "task", "id": id, "contextId": context, "status": status })
}

fn in_state(id: &str, context: &str, state: &str) -> Value {
    task(id, context, json!({ "state": state }))
}

/// Returns the task of a run with this result.
fn ended(id: &str, context: &str, mut values: Value) -> Value {
    let said = |part: Value| json!({ "kind": "message", "messageId": format!("{id}.status"), "role": "agent", "parts": [part] });
    if let Some(error) = values.get("__error__") {
        let part = text_part(error["message"].as_str().unwrap_or_default());
        return task(id, context, json!({ "state": "failed", "message": said(part) }));
    }
    if let Some(asked) = values.get("__interrupt__") {
        let question = &asked[0]["value"];
        let part = question.as_str().map_or_else(|| data_part(question.clone()), text_part);
        return task(id, context, json!({ "state": "input-required", "message": said(part) }));
    }
    let part = match last_reply(&values) {
        Some(text) => text_part(text),
        None => data_part(values.take()),
    };
    let mut task = in_state(id, context, "completed");
    task["artifacts"] = json!([{ "artifactId": format!("{id}.result"), "parts": [part] }]);
    task
}

/// Makes integers of the numbers without a fraction, because clients of version 1.0 send 5 as 5.0.
fn with_integers(value: Value) -> Value {
    /// The greatest number below which each integer has a number of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "an integer, checked before")]
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(with_integers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, with_integers(value))).collect()
        }
        other => other,
    }
}

/// Gives a task the names of version 1.0.
fn renamed(mut task: Value) -> Value {
    let without_kind =
        |value: &mut Value| drop(value.as_object_mut().and_then(|fields| fields.remove("kind")));
    let of_parts =
        |value: &mut Value| value["parts"].as_array_mut().into_iter().flatten().for_each(without_kind);
    without_kind(&mut task);
    let state = task["status"]["state"].as_str().unwrap_or_default().to_uppercase().replace('-', "_");
    task["status"]["state"] = format!("TASK_STATE_{state}").into();
    if let Some(message) = task["status"].get_mut("message") {
        without_kind(message);
        message["role"] = "ROLE_AGENT".into();
        of_parts(message);
    }
    if let Some(artifacts) = task.get_mut("artifacts").and_then(Value::as_array_mut) {
        artifacts.iter_mut().for_each(of_parts);
    }
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
