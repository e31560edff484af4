//! What a model may call.

mod snapshots;
mod spill;

use std::{borrow::Cow, future::Future, io, path::Path, pin::Pin, sync::Arc, time::Duration};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Media, Subject, ToolCx};

pub use self::{
    snapshots::{FileChange, FileChangeKind, FileChanges, SnapshotError, SnapshotFuture, Snapshots},
    spill::{Spill, SpillError, SpillFuture, SpillText},
};

/// What a model is told of a [`Tool`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name it is called by.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
}

impl ToolSpec {
    /// The spec of a tool whose arguments are `Args`, a struct with named fields.
    ///
    /// The schema has its parts in place and says nothing of dialects: every provider reads it.
    pub fn of<Args: JsonSchema>(name: impl Into<String>, description: impl Into<String>) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<Args>();
        // The title is the name of a Rust type; the description stands in the spec.
        schema.remove("title");
        schema.remove("description");
        Self { name: name.into(), description: description.into(), parameters: schema.to_value() }
    }
}

/// The most characters of a tool's name.
pub(crate) const LONGEST_TOOL_NAME: usize = 64;

/// Whether every provider takes it as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    !name.is_empty() && name.len() <= LONGEST_TOOL_NAME && name.chars().all(fits)
}

/// How a [`Tool`] wants to be treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// Its calls run alone, whatever else the model called at the same time: after the calls before it, and before those behind it.
    pub exclusive: bool,
    /// It is asked the same again and again until something changes: repeating it is no loop.
    pub poll: bool,
    /// Its result is the answer to the user: the model is not asked again, unless there is none.
    pub answers: bool,
    /// Calling it twice with one idempotency key does no harm, so that a call whose outcome is unknown may be repeated.
    pub idempotent: bool,
    /// How long a call may take, in place of what the agent grants otherwise.
    pub timeout: Option<Duration>,
}

/// A sequence in which the calls of one answer keep the order that the model gave them, such as the calls to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence<'a> {
    /// The name of the sequence. Tools that return the same name share it.
    pub name: &'a str,
    /// Whether a call may run beside its neighbours that overlap as well, once those before it were sent. Every other call
    /// runs after all calls before it, and before all calls after it.
    pub overlaps: bool,
}

/// What became of a tool call that failed: the text is what the model reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The arguments are valid JSON but not what the tool takes.
    #[error("{0}")]
    InvalidArguments(String),
    /// A rule or a person forbids the call.
    #[error("{0}")]
    Denied(String),
    /// The tool tried and failed.
    #[error("{0}")]
    Failed(String),
}

impl ToolError {
    /// A failure with any message.
    pub fn failed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Failed(message.into().into_owned())
    }
}

/// What a tool gives back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolReply {
    /// What the model reads.
    pub text: String,
    /// The images and audio for models that take them. The text describes them for the others, such as by what a [`Media`]
    /// displays.
    pub media: Vec<Media>,
    /// What the tool changes beside the conversation: the JSON form of an update of the state that its agent has.
    pub update: Option<Value>,
}

impl ToolReply {
    /// A text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The same reply with images and audio.
    #[must_use]
    pub fn with_media(self, media: impl IntoIterator<Item = Media>) -> Self {
        Self { media: media.into_iter().collect(), ..self }
    }

    /// The same reply, which also writes channels of the agent's state: `update` is an update of that state.
    ///
    /// The writes of one round are folded in call order. The agent refuses those that do not fit its state, and those to
    /// channels that are its own business, such as the conversation; the model reads that then.
    ///
    /// # Panics
    /// If `update` has no JSON form.
    #[must_use]
    pub fn with_update(self, update: impl Serialize) -> Self {
        let update = serde_json::to_value(update).expect("an update has a JSON form");
        Self { update: Some(update), ..self }
    }
}

impl From<String> for ToolReply {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolReply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// The future of one tool call: what the model reads, or why there is nothing.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<ToolReply, ToolError>> + Send + 'a>>;

/// The future of [`Tool::reconcile`].
pub type ReconcileFuture<'a> = Pin<Box<dyn Future<Output = Option<Result<String, ToolError>>> + Send + 'a>>;

/// Something a model may call.
pub trait Tool: Send + Sync {
    /// Name, description and argument schema.
    fn spec(&self) -> &ToolSpec;

    /// How it wants to be treated.
    fn behaviour(&self) -> Behaviour {
        Behaviour::default()
    }

    /// The sequence that its calls belong to; `None` if their order does not matter.
    fn sequence(&self) -> Option<Sequence<'_>> {
        None
    }

    /// What a person is asked before this call runs, a few lines of text; `None` if nobody needs to be asked.
    ///
    /// Asked only for arguments that pass the schema. The executor asks; the tool does not.
    fn approval(&self, args: &Value) -> Option<String> {
        let _ = args;
        None
    }

    /// Whether its calls may change files of the folder that the agent works in, which are kept around such calls; `None` if the tool
    /// does not say.
    fn changes_files(&self) -> Option<bool> {
        None
    }

    /// What an argument of a call stands for, so that a rule about it is compared with what the call really touches; also if the
    /// call leaves that argument out and the tool takes something in its place. `None` if the tool does not say: then its name, its
    /// value and the rule's pattern have to tell, and what is doubtful is not allowed.
    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        let _ = (argument, args);
        None
    }

    /// The same tool, with the same spec, bound to another folder: it takes the place of this one in a turn that works there.
    /// `None` if the tool does not work in a folder. A tool that wraps another one returns itself around what that one returns.
    ///
    /// # Errors    The folder cannot be used; then no call of the round runs.
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        let _ = folder;
        Ok(None)
    }

    /// What came of the call with this idempotency key, if the tool can tell: it was begun, and the process stopped before
    /// its result was stored. `None` if not; then the model is told that nobody knows.
    fn reconcile<'a>(&'a self, idempotency_key: &'a str) -> ReconcileFuture<'a> {
        let _ = idempotency_key;
        Box::pin(std::future::ready(None))
    }

    /// Runs one call. `args` has been checked against the schema of [`Tool::spec`].
    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Not for the model.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Trip {
        /// Where to.
        to: Place,
        nights: Option<u32>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Place {
        city: String,
    }

    #[test]
    fn a_schema_is_inlined_and_free_of_noise() {
        assert_eq!(
            ToolSpec::of::<Trip>("book", "Books a trip.").parameters,
            json!({
                "type": "object",
                "properties": {
                    "to": {
                        "description": "Where to.",
                        "type": "object",
                        "properties": {"city": {"type": "string"}},
                        "required": ["city"],
                    },
                    "nights": {"type": ["integer", "null"], "format": "uint32", "minimum": 0},
                },
                "required": ["to"],
            })
        );
    }
}
