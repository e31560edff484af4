//! The bodies that begin runs.
//!
//! Start at [`RunRequest`].

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use superstep_graph::erased::JsonGraph;

use crate::{
    error::ApiError,
    events::modes::Modes,
    rows::{
        assistant::AssistantVersion,
        run::{CommandPlan, DurabilityPlan, Plan, Strategy},
    },
    wire::{ids, messages},
};

/// The body of a request for a run. Unknown fields are ignored.
#[derive(Clone, Debug, JsonSchema, Deserialize)]
pub(crate) struct RunRequest {
    pub(crate) assistant_id: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    command: Option<CommandRequest>,
    #[serde(default)]
    checkpoint: Option<CheckpointRequest>,
    #[serde(default)]
    checkpoint_id: Option<String>,
    #[serde(default)]
    stream_mode: Value,
    #[serde(default)]
    stream_subgraphs: Option<bool>,
    #[serde(default)]
    stream_resumable: Option<bool>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    config: Option<Config>,
    #[serde(default)]
    context: Option<Map<String, Value>>,
    #[serde(default)]
    interrupt_before: Option<Names>,
    #[serde(default)]
    interrupt_after: Option<Names>,
    #[serde(default)]
    multitask_strategy: Option<Strategy>,
    #[serde(default)]
    pub(crate) if_not_exists: Option<IfNotExists>,
    #[serde(default)]
    pub(crate) on_disconnect: Option<OnDisconnect>,
    #[serde(default)]
    pub(crate) on_completion: Option<OnCompletion>,
    #[serde(default)]
    after_seconds: Option<f64>,
    #[serde(default)]
    strict_resume: Option<bool>,
    #[serde(default)]
    webhook: Option<String>,
    #[serde(default)]
    durability: Option<DurabilityPlan>,
    #[serde(default)]
    checkpoint_during: Option<bool>,
}

/// The treatment of a thread that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IfNotExists {
    Create,
    Reject,
}

/// The treatment of the run when its client hangs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnDisconnect {
    Cancel,
    Continue,
}

/// The treatment of the thread of a stateless run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnCompletion {
    Delete,
    Keep,
}

/// A checkpoint, as clients name it. Without an id it is the head.
#[derive(Clone, Debug, Default, JsonSchema, Deserialize)]
pub(crate) struct CheckpointRequest {
    #[serde(default)]
    pub(crate) checkpoint_id: Option<String>,
    #[serde(default)]
    pub(crate) checkpoint_ns: Option<String>,
}

#[derive(Clone, Debug, Default, JsonSchema, Deserialize)]
struct Config {
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    recursion_limit: Option<u32>,
    #[serde(default)]
    configurable: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, JsonSchema, Deserialize)]
struct CommandRequest {
    #[serde(default)]
    update: Value,
    // Null is no answer: clients send all three fields.
    #[serde(default)]
    resume: Value,
    #[serde(default)]
    goto: Option<Goto>,
}

#[derive(Clone, Debug, JsonSchema, Deserialize)]
#[serde(untagged)]
enum Goto {
    Name(String),
    Send {
        node: String,
        #[serde(default)]
        input: Value,
    },
    Several(Vec<Goto>),
}

/// Names of nodes, or `*` for all.
#[derive(Clone, Debug, JsonSchema, Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn list(names: Option<Self>) -> Vec<String> {
        match names {
            None => Vec::new(),
            Some(Self::One(name)) => vec![name],
            Some(Self::Several(names)) => names,
        }
    }
}

impl CheckpointRequest {
    /// Returns the number of the checkpoint; `None` for the head.
    ///
    /// # Errors
    /// 422 for an unknown id, and for a checkpoint of a subgraph.
    pub(crate) fn number(&self) -> Result<Option<u64>, ApiError> {
        if self.checkpoint_ns.as_deref().is_some_and(|namespace| !namespace.is_empty()) {
            return Err(ApiError::invalid("checkpoint_ns: checkpoints of subgraphs are not supported here"));
        }
        let id = self.checkpoint_id.as_deref().filter(|id| !id.is_empty());
        id.map(|id| ids::checkpoint(id).map(|id| id.0)).transpose()
    }
}

impl RunRequest {
    /// Streams subgraphs as well, if the client wants only some namespaces.
    pub(crate) fn with_namespaces(mut self, namespaces: &[Vec<String>]) -> Self {
        if !namespaces.is_empty() {
            self.stream_subgraphs = Some(true);
        }
        self
    }

    /// Returns what the run does on a graph, with the configuration of its assistant.
    ///
    /// # Errors
    /// 422 for an input that does not fit, or a field that is not valid or not supported.
    pub(crate) fn plan(self, graph: &dyn JsonGraph, assistant: &AssistantVersion) -> Result<Plan, ApiError> {
        let modes = Modes::read(&self.stream_mode)?;
        let checkpoint = match (&self.checkpoint, &self.checkpoint_id) {
            (Some(checkpoint), _) if checkpoint.checkpoint_id.is_some() => checkpoint.number()?,
            (_, Some(id)) => Some(ids::checkpoint(id)?.0),
            _ => None,
        };
        let mut command = self.command.map(|command| command.plan(graph)).transpose()?.flatten();
        if let Some(command) = &mut command {
            command.strict = self.strict_resume.unwrap_or(false);
        }
        let input = match self.input {
            // A command beats the input that some clients send beside it.
            _ if command.is_some() => Value::Null,
            input => read_input(graph, input)?,
        };
        let after = self.after_seconds.unwrap_or(0.0);
        if !(0.0..=31_536_000.0).contains(&after) {
            return Err(ApiError::invalid("after_seconds: expected 0 to 31536000"));
        }
        let Config { tags, recursion_limit, configurable } = self.config.unwrap_or_default();
        if recursion_limit == Some(0) {
            return Err(ApiError::invalid("config.recursion_limit: expected 1 or more"));
        }
        let context = context_of(assistant, configurable.as_ref(), self.context.as_ref());
        let mut config = assistant.config.clone();
        config.extend(tags.map(|tags| ("tags".to_owned(), tags.into())));
        config.extend(recursion_limit.map(|limit| ("recursion_limit".to_owned(), limit.into())));
        if !context.is_empty() {
            config.insert("configurable".to_owned(), context.clone().into());
        }
        let step_limit = config.get("recursion_limit").and_then(Value::as_u64);
        let mut metadata = assistant.metadata.clone();
        metadata.remove("created_by");
        metadata.extend(self.metadata.unwrap_or_default());
        let durability = match (self.durability, self.checkpoint_during) {
            (Some(durability), _) => durability,
            (None, Some(false)) => DurabilityPlan::Exit,
            (None, _) => DurabilityPlan::Async,
        };
        Ok(Plan {
            input,
            command,
            checkpoint,
            context: if context.is_empty() { Value::Null } else { context.into() },
            config,
            metadata,
            step_limit: step_limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
            break_before: Names::list(self.interrupt_before),
            break_after: Names::list(self.interrupt_after),
            durability,
            stream_modes: modes.names().into_iter().map(str::to_owned).collect(),
            subgraphs: self.stream_subgraphs.unwrap_or(false),
            resumable: self.stream_resumable.unwrap_or(false),
            strategy: self.multitask_strategy.unwrap_or_default(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to a year, checked above"
            )]
            after_ms: (after * 1_000.0) as u64,
            temporary: false,
            webhook: self.webhook,
        })
    }
}

/// Reads an input: unknown channels are left out, because some clients send their own; messages get the stored form.
///
/// # Errors
/// 422 if it does not fit the graph.
pub(crate) fn read_input(graph: &dyn JsonGraph, input: Value) -> Result<Value, ApiError> {
    let input = match input {
        Value::Null => return Ok(Value::Null),
        Value::Object(input) => known_channels(graph, input),
        other => return graph.check(&other).map(|()| other).map_err(ApiError::from),
    };
    let full = messages::written_out(&input).map(|full| messages::from_wire(full).map(Value::from));
    let given = Value::from(messages::from_wire(input)?);
    match (graph.check(&given), full) {
        // Without a type the messages of a log may be anything.
        (Ok(()), Some(Ok(full))) if has_untyped_log(graph) && graph.check(&full).is_ok() => Ok(full),
        // A graph whose messages are texts takes them as they are.
        (Ok(()), _) => Ok(given),
        (Err(error), Some(Ok(full))) => graph.check(&full).map(|()| full).map_err(|_| error.into()),
        (Err(_), Some(Err(error))) => Err(error),
        (Err(error), None) => Err(error.into()),
    }
}

fn has_untyped_log(graph: &dyn JsonGraph) -> bool {
    let is_log =
        graph.channels().iter().any(|channel| channel.name == messages::CHANNEL && !channel.exclusive);
    is_log && graph.input_schema()["properties"][messages::CHANNEL].is_boolean()
}

fn known_channels(graph: &dyn JsonGraph, mut input: Map<String, Value>) -> Map<String, Value> {
    let schema = graph.input_schema();
    // A graph with inputs of its own type knows them itself.
    if let Some(properties) = schema["properties"].as_object() {
        let has_former_name = |name: &str| graph.channels().iter().any(|channel| channel.name == name);
        input.retain(|name, _| properties.contains_key(name) || has_former_name(name));
    }
    input
}

/// Merges the context of an assistant and of a run: `configurable` and `context` are two names of one thing.
fn context_of(
    assistant: &AssistantVersion,
    configurable: Option<&Map<String, Value>>,
    context: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let of_assistant = assistant.config.get("configurable").and_then(Value::as_object);
    let all = [of_assistant, Some(&assistant.context), configurable, context];
    let mut merged = Map::new();
    for part in all.into_iter().flatten() {
        merged.extend(part.clone());
    }
    // They name the thread and the run, and are no settings.
    merged.retain(|name, _| {
        !["thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "run_id"].contains(&&**name)
            && !name.starts_with("__")
    });
    merged
}

impl CommandRequest {
    /// Returns the plan; `None` for a command that says nothing.
    fn plan(self, graph: &dyn JsonGraph) -> Result<Option<CommandPlan>, ApiError> {
        let mut command =
            CommandPlan { update: None, resume: None, strict: false, goto: Vec::new(), end: false };
        if !self.update.is_null() {
            command.update = Some(read_update(graph, self.update)?);
        }
        command.resume = Some(self.resume).filter(|resume| !resume.is_null());
        let mut inputs = Vec::new();
        if let Some(goto) = self.goto {
            goto.into_plan(&mut command, &mut inputs);
        }
        for input in inputs {
            if command.update.is_some() {
                return Err(ApiError::invalid("command.goto: inputs beside an update are not supported"));
            }
            command.update = Some(read_update(graph, input)?);
        }
        if command.end && !command.goto.is_empty() {
            return Err(ApiError::invalid("command.goto: `__end__` excludes other nodes"));
        }
        let says_nothing = command.update.is_none() && command.resume.is_none() && command.goto.is_empty();
        Ok((!says_nothing || command.end).then_some(command))
    }
}

/// Reads an update of a command: an object, or a list of pairs of a channel and its write.
fn read_update(graph: &dyn JsonGraph, update: Value) -> Result<Value, ApiError> {
    let update = match update {
        Value::Array(pairs) => {
            let pairs: Result<Map<String, Value>, _> =
                pairs.into_iter().map(serde_json::from_value::<(String, Value)>).collect();
            pairs
                .map(Value::from)
                .map_err(|_| ApiError::invalid("command.update: expected pairs of a channel and its write"))?
        }
        other => other,
    };
    read_input(graph, update)
}

impl Goto {
    fn into_plan(self, command: &mut CommandPlan, inputs: &mut Vec<Value>) {
        match self {
            Self::Name(name) if name == "__end__" => command.end = true,
            Self::Name(name) => command.goto.push(name),
            Self::Send { node, input } => {
                command.goto.push(node);
                if !input.is_null() {
                    inputs.push(input);
                }
            }
            Self::Several(several) => several.into_iter().for_each(|goto| goto.into_plan(command, inputs)),
        }
    }
}
