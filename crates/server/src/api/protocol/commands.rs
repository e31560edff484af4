//! The commands of the thread protocol.
//!
//! Start at [`execute`].

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use superstep_graph::{CheckpointId, RunError, RunOptions, erased::JsonSnapshot};

use super::super::runs::begin_with;
use crate::{
    access::User,
    error::ApiError,
    events::modes::Modes,
    rows::thread::ThreadKey,
    rows::{
        run::{RunRow, RunStatus},
        thread::ThreadStatus,
    },
    runs::{hub::Hub, request::RunRequest},
    wire::{ids, state},
};

/// A command of a client.
pub(super) struct Command {
    pub(super) id: u64,
    pub(super) method: String,
    pub(super) params: Value,
}

/// The reason why a command is not executed.
pub(super) struct Refusal {
    code: Code,
    message: String,
}

/// The code of a refusal, which clients read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    InvalidArgument,
    UnknownCommand,
    UnknownError,
    NoSuchRun,
    NoSuchSubscription,
    NoSuchNamespace,
    NoSuchInterrupt,
    NoSuchCheckpoint,
    NotSupported,
}

impl Code {
    fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::UnknownCommand => "unknown_command",
            Self::UnknownError => "unknown_error",
            Self::NoSuchRun => "no_such_run",
            Self::NoSuchSubscription => "no_such_subscription",
            Self::NoSuchNamespace => "no_such_namespace",
            Self::NoSuchInterrupt => "no_such_interrupt",
            Self::NoSuchCheckpoint => "no_such_checkpoint",
            Self::NotSupported => "not_supported",
        }
    }
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Returns the reply to a command, whose id is unknown if it could not be read.
    pub(super) fn reply(&self, id: Option<u64>) -> Value {
        json!({ "type": "error", "id": id, "error": self.code.as_str(), "message": self.message })
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let code = if error.status.is_server_error() { Code::UnknownError } else { Code::InvalidArgument };
        Self::new(code, error.detail)
    }
}

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Self {
        let is_unknown = matches!(error, RunError::UnknownCheckpoint { .. });
        let refusal = Self::from(ApiError::from(error));
        if is_unknown { Self { code: Code::NoSuchCheckpoint, ..refusal } } else { refusal }
    }
}

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    /// The `id` is not a number from 0, or there is no `method`.
    pub(super) fn read(json: Value) -> Result<Self, Refusal> {
        let id = json["id"].as_u64().ok_or_else(|| Refusal::invalid("id: expected a number from 0"))?;
        let method = json["method"].as_str().ok_or_else(|| Refusal::invalid("method: expected a text"))?;
        let (method, params) = (method.to_owned(), json["params"].clone());
        let params = if params.is_null() { json!({}) } else { params };
        Ok(Self { id, method, params })
    }
}

/// Returns the reply to a command.
pub(super) fn reply(id: u64, result: Result<Value, Refusal>) -> Value {
    match result {
        // Clients skip events up to `applied_through_seq`, also those that they have not received.
        Ok(result) => {
            json!({ "type": "success", "id": id, "result": result, "meta": { "applied_through_seq": 0 } })
        }
        Err(refusal) => refusal.reply(Some(id)),
    }
}

/// Executes a command on a thread, and returns its result.
///
/// # Errors
/// The refusal, of which nothing was done.
pub(super) async fn execute(
    hub: &Arc<Hub>,
    user: &User,
    thread: &str,
    command: Command,
) -> Result<Value, Refusal> {
    let Command { method, params, .. } = command;
    // Another user may have created the thread since a connection was opened.
    let key = hub.thread_key(user, thread)?;
    let result = match &*method {
        "run.start" => start(hub, user, &key, read(params)?).await,
        "input.respond" => respond(hub, user, &key, read(params)?).await,
        "agent.getTree" => tree(hub, &key, read(params)?),
        "state.get" => get_state(hub, &key, read(params)?).await,
        "subscription.subscribe" | "subscription.unsubscribe" => Err(Refusal::new(
            Code::NotSupported,
            format!(
                "{method}: subscriptions are for WebSockets; POST /threads/{thread}/stream/events instead"
            ),
        )),
        "subscription.reconnect" => {
            Err(Refusal::new(Code::NotSupported, "subscription.reconnect: subscribe again with `since`"))
        }
        _ => Err(Refusal::new(Code::UnknownCommand, format!("unknown command `{method}`"))),
    };
    if result.is_err() {
        // A command on a thread that does not exist leaves nothing behind.
        hub.release_log(&key);
    }
    result
}

fn read<'de, T: Deserialize<'de>>(params: Value) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(params).map_err(|error| {
        let place = error.path().to_string();
        let reason = error.into_inner();
        Refusal::invalid(if place == "." { reason.to_string() } else { format!("params.{place}: {reason}") })
    })
}

/// The parameters of `run.start`. The fields that the runs API has too are read there.
#[derive(Deserialize)]
struct Start {
    assistant_id: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    multitask_strategy: Value,
    #[serde(default, rename = "multitaskStrategy")]
    multitask_strategy_js: Value,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    interrupt_before: Value,
    #[serde(default)]
    interrupt_after: Value,
    #[serde(default)]
    durability: Value,
}

async fn start(hub: &Arc<Hub>, user: &User, key: &ThreadKey, params: Start) -> Result<Value, Refusal> {
    let log = hub.thread_log(key).await?;
    let _ordered = log.commands.lock().await;
    let checkpoint = params.config["configurable"]["checkpoint_id"].as_str().filter(|id| !id.is_empty());
    let snapshot = snapshot_at(hub, key, checkpoint).await?;
    let mut request = request(&params.assistant_id, params.config.clone(), params.metadata.as_ref());
    let waiting = match (&snapshot, checkpoint) {
        // A fork begins elsewhere, and a run under way may be what answers.
        (Some(snapshot), None) if !hub.is_busy(&key.thread) => waiting(hub, &key.thread, snapshot),
        _ => Vec::new(),
    };
    if waiting.is_empty() || params.input.is_null() {
        request["input"] = params.input;
    } else {
        request["command"] = json!({ "resume": answers(params.input, &waiting)? });
    }
    let strategy = [params.multitask_strategy, params.multitask_strategy_js];
    request["multitask_strategy"] = strategy.into_iter().find(|name| !name.is_null()).unwrap_or_default();
    for (name, value) in [
        ("checkpoint_id", json!(checkpoint)),
        ("context", params.context),
        ("interrupt_before", params.interrupt_before),
        ("interrupt_after", params.interrupt_after),
    ] {
        request[name] = value;
    }
    if !params.durability.is_null() {
        request["durability"] = params.durability;
    }
    Ok(json!({ "run_id": run(hub, user, key, request, params.metadata).await? }))
}

/// The parameters of `input.respond`.
#[derive(Deserialize)]
struct Respond {
    #[serde(default)]
    responses: Vec<Answer>,
    #[serde(flatten)]
    single: Option<Answer>,
    #[serde(default)]
    update: Value,
    #[serde(default)]
    goto: Value,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

/// An answer. The id names the question; the namespace is not needed.
#[derive(Deserialize)]
struct Answer {
    interrupt_id: String,
    #[serde(default)]
    response: Value,
}

async fn respond(hub: &Arc<Hub>, user: &User, key: &ThreadKey, params: Respond) -> Result<Value, Refusal> {
    let answers: Vec<Answer> = params.responses.into_iter().chain(params.single).collect();
    if answers.is_empty() {
        return Err(Refusal::invalid("expected `interrupt_id` and `response`, or `responses`"));
    }
    let log = hub.thread_log(key).await?;
    let _ordered = log.commands.lock().await;
    let snapshot = snapshot_at(hub, key, None).await?;
    let waiting = snapshot.map(|snapshot| waiting(hub, &key.thread, &snapshot)).unwrap_or_default();
    let mut resume = Map::new();
    for Answer { interrupt_id: id, response } in answers {
        if !waiting.contains(&id) {
            let message = format!("Unknown or already-consumed interrupt: {id}");
            return Err(Refusal::new(Code::NoSuchInterrupt, message));
        }
        resume.insert(id, response);
    }
    let row = hub.row_of(key).ok_or_else(|| ApiError::not_found("thread", &key.thread))?;
    let assistant = row.metadata.get("assistant_id").and_then(Value::as_str).or(row.graph());
    let mut request = request(assistant.unwrap_or_default(), params.config, params.metadata.as_ref());
    request["command"] = json!({ "resume": resume, "update": params.update, "goto": params.goto });
    run(hub, user, key, request, None).await?;
    Ok(json!({}))
}

#[derive(Deserialize)]
struct GetTree {
    #[serde(default)]
    run_id: Option<String>,
}

fn tree(hub: &Hub, key: &ThreadKey, params: GetTree) -> Result<Value, Refusal> {
    let thread = &*key.thread;
    let run = match &params.run_id {
        Some(run) => hub.run_row(thread, run).ok(),
        None => hub.runs_of(thread).pop(),
    };
    let run = run.ok_or_else(|| {
        let which = params.run_id.as_ref().map_or("no run".to_owned(), |run| format!("no run `{run}`"));
        Refusal::new(Code::NoSuchRun, format!("thread `{thread}` has {which}"))
    })?;
    let known = hub.thread_logs.get(key).and_then(|log| log.tree(Some(&run.id)));
    let root = || json!({ "namespace": [], "status": status(hub, thread, &run), "graph_name": run.graph });
    Ok(json!({ "tree": known.unwrap_or_else(root) }))
}

/// Returns the status of the graph of a run that no client followed.
fn status(hub: &Hub, thread: &str, run: &RunRow) -> &'static str {
    let waits = || hub.threads.get(thread).is_some_and(|row| row.status == ThreadStatus::Interrupted);
    match run.status {
        RunStatus::Pending => "started",
        RunStatus::Running => "running",
        RunStatus::Error => "failed",
        RunStatus::Interrupted => "interrupted",
        RunStatus::Success if waits() => "interrupted",
        RunStatus::Success => "completed",
    }
}

#[derive(Deserialize)]
struct GetState {
    #[serde(default)]
    namespace: Vec<String>,
    #[serde(default)]
    keys: Option<Vec<String>>,
}

async fn get_state(hub: &Hub, key: &ThreadKey, params: GetState) -> Result<Value, Refusal> {
    if !params.namespace.is_empty() {
        let namespace = params.namespace.join("|");
        let message =
            format!("the state of `{namespace}` cannot be read here; that of the thread can, as `[]`");
        return Err(Refusal::new(Code::NoSuchNamespace, message));
    }
    let snapshot = snapshot_at(hub, key, None).await?;
    let Some((snapshot, head)) =
        snapshot.as_ref().and_then(|snapshot| Some((snapshot, snapshot.checkpoint.as_ref()?)))
    else {
        return Ok(json!({ "values": {}, "checkpoint": null }));
    };
    let mut values = state::shown_values(snapshot.state.values()?);
    if let Some(keys) = params.keys {
        values.retain(|name, _| keys.contains(name));
    }
    Ok(json!({ "values": values, "checkpoint": { "id": ids::of_checkpoint(head.id), "ns": "" } }))
}

/// Returns the request of the runs API that a command is.
fn request(assistant: &str, config: Value, metadata: Option<&Map<String, Value>>) -> Value {
    json!({
        "assistant_id": assistant,
        "if_not_exists": "create",
        "config": config,
        "metadata": metadata,
        "stream_mode": Modes::of_threads().names(),
        "stream_subgraphs": true,
        "stream_resumable": true,
        "durability": "sync",
    })
}

/// Queues a run on a thread, which is created if it does not exist. Returns the id of the run.
async fn run(
    hub: &Arc<Hub>,
    user: &User,
    key: &ThreadKey,
    request: Value,
    metadata: Option<Map<String, Value>>,
) -> Result<String, Refusal> {
    let request = read::<RunRequest>(request)?;
    let live = begin_with(hub, user, &key.thread, request, metadata.unwrap_or_default()).await?;
    Ok(live.about.run.clone())
}

/// Returns the state of a thread; `None` if it never ran.
async fn snapshot_at(
    hub: &Hub,
    key: &ThreadKey,
    checkpoint: Option<&str>,
) -> Result<Option<JsonSnapshot>, Refusal> {
    let Some(row) = hub.row_of(key).filter(|row| row.graph().is_some()) else { return Ok(None) };
    let at: Option<CheckpointId> = checkpoint.map(ids::checkpoint).transpose()?;
    let snapshot = hub.thread(&row, RunOptions::new().at(at))?.state().await?;
    Ok(Some(snapshot).filter(|snapshot| snapshot.checkpoint.is_some()))
}

/// Returns the ids of the questions that wait, and that no accepted run answers.
fn waiting(hub: &Hub, thread: &str, snapshot: &JsonSnapshot) -> Vec<String> {
    let open = hub.runs_of(thread).into_iter().filter(|run| run.status.is_open());
    let answers: Vec<Value> =
        open.filter_map(|run| run.plan.command).filter_map(|command| command.resume).collect();
    let is_answered = |id: &str| answers.iter().any(|answers| answers.get(id).is_some());
    snapshot.interrupts().map(|asked| asked.id.to_string()).filter(|id| !is_answered(id)).collect()
}

/// Returns the answers in an input by the ids of the questions.
fn answers(input: Value, waiting: &[String]) -> Result<Value, Refusal> {
    if let Value::Object(by_id) = &input
        && !by_id.is_empty()
        && by_id.keys().all(|id| waiting.contains(id))
    {
        return Ok(input);
    }
    match waiting {
        [only] => Ok(json!({ only.as_str(): input })),
        several => Err(Refusal::invalid(format!(
            "{} questions wait, so the input has to be an object of answers by their ids, or null",
            several.len()
        ))),
    }
}
