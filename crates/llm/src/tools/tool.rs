//! The tools that a model may call.

mod instructions;
mod snapshots;
mod specs;
mod spill;

use std::{future::Future, io, path::Path, pin::Pin, sync::Arc, time::Duration};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Subject, ToolCx, ToolError, messages::media::Media, shared::into_shared};

pub use self::{
    instructions::{
        FileProblem, InstructionFile, Instructions, InstructionsFuture, Loaded, Skill, SkillError, SkillText,
    },
    snapshots::{FileChange, FileChangeKind, FileChanges, SnapshotError, SnapshotFuture, Snapshots},
    specs::ToolSpecs,
    spill::{Spill, SpillError, SpillFuture, SpillText},
};

/// The description of a [`Tool`] for a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name it is called by.
    pub name: String,
    /// The purpose of the tool and when to use it.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
}

impl ToolSpec {
    /// Creates the spec of a tool whose arguments are `Args`, a struct with named fields.
    ///
    /// The schema is inlined and names no dialect: every provider can read it.
    pub fn of<Args: JsonSchema>(name: impl Into<String>, description: impl Into<String>) -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<Args>();
        // The title is the name of a Rust type; the spec has the description.
        schema.remove("title");
        schema.remove("description");
        Self { name: name.into(), description: description.into(), parameters: schema.to_value() }
    }
}

/// The maximum number of characters of a tool's name.
pub(crate) const MAX_TOOL_NAME_LENGTH: usize = 64;

/// Returns whether every provider accepts it as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let fits = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    !name.is_empty() && name.len() <= MAX_TOOL_NAME_LENGTH && name.chars().all(fits)
}

/// The execution requirements of a [`Tool`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// `true` if its calls run alone: after the calls before them in the answer, and before those after them.
    pub exclusive: bool,
    /// `true` if the model polls it: repeated equal calls do not count as a loop.
    pub poll: bool,
    /// `true` if its result is the answer to the user: the model is not called again, unless the result is
    /// empty.
    pub answers: bool,
    /// `true` if a repetition with one idempotency key is harmless, so that a call with an unknown result may
    /// be repeated.
    pub idempotent: bool,
    /// The time limit of a call; the agent's default if `None`.
    pub timeout: Option<Duration>,
}

/// A sequence in which the calls of one answer retain the model's order, such as the calls to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence<'a> {
    /// The name of the sequence. Tools that return the same name share it.
    pub name: &'a str,
    /// `true` if a call may overlap with neighbours that also overlap, after those before it were sent. Every
    /// other call runs after all calls before it, and before all calls after it.
    pub overlaps: bool,
}

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolReply {
    /// The text for the model.
    pub text: String,
    /// The images and audio for models that accept them. The text describes them for the others, for example
    /// by the `Display` of a [`Media`].
    pub media: Vec<Media>,
    /// The tool's update of the agent's state, in its JSON form.
    pub update: Option<Value>,
}

impl ToolReply {
    /// Creates a text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Sets images and audio.
    #[must_use]
    pub fn with_media(self, media: impl IntoIterator<Item = Media>) -> Self {
        Self { media: media.into_iter().collect(), ..self }
    }

    /// Adds writes to channels of the agent's state: `update` is an update of that state.
    ///
    /// The writes of one round are folded in call order. The agent rejects writes that do not fit its state,
    /// and writes to its own channels, such as the conversation; the model then reads an error.
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

/// The future of one tool call.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<ToolReply, ToolError>> + Send + 'a>>;

/// The future of [`Tool::reconcile`].
pub type ReconcileFuture<'a> = Pin<Box<dyn Future<Output = Option<Result<String, ToolError>>> + Send + 'a>>;

/// A tool that a model may call.
pub trait Tool: Send + Sync {
    /// Returns the name, description and argument schema.
    fn spec(&self) -> &ToolSpec;

    /// Returns the execution requirements.
    fn behaviour(&self) -> Behaviour {
        Behaviour::default()
    }

    /// Returns the sequence that its calls belong to; `None` if their order does not matter.
    fn sequence(&self) -> Option<Sequence<'_>> {
        None
    }

    /// Returns the question to a person before this call runs, a few lines of text; `None` if no approval is
    /// needed.
    ///
    /// Called only with arguments that match the schema. The executor asks the person; the tool does not.
    fn approval(&self, args: &Value) -> Option<String> {
        let _ = args;
        None
    }

    /// Returns whether its calls may change files of the agent's folder. [Snapshots](crate::snapshots::Snapshots) are taken around such calls,
    /// and around those of a tool that returns `None`, which means unknown.
    fn changes_files(&self) -> Option<bool> {
        None
    }

    /// Returns the subject of an argument, so that rules are compared with the real target of the call. Also
    /// called for an argument that is missing if the tool has a default for it. `None` if the tool does not
    /// define it: then its name, its value and the rule's pattern decide, and doubtful cases are not allowed.
    fn subject(&self, argument: &str, args: &Value) -> Option<Subject> {
        let _ = (argument, args);
        None
    }

    /// Returns the same tool, with the same spec, bound to another folder: it replaces this one in a turn
    /// that works there. `None` if the tool does not work in a folder. A wrapper returns itself around the
    /// result of the wrapped tool.
    ///
    /// # Errors
    /// If the folder cannot be used; then no call of the round runs.
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Tool>>> {
        let _ = folder;
        Ok(None)
    }

    /// Returns the result of the call with this idempotency key, if the tool can determine it. The call was
    /// started, and the process stopped before its result was stored. `None` if unknown; the model then reads
    /// that the result is unknown, as it does if this panics or exceeds the time limit of a call.
    fn reconcile<'a>(&'a self, idempotency_key: &'a str) -> ReconcileFuture<'a> {
        let _ = idempotency_key;
        Box::pin(std::future::ready(None))
    }

    /// Runs one call. `args` match the schema of [`Tool::spec`].
    fn call(&self, args: Value, cx: ToolCx) -> ToolFuture<'_>;
}

into_shared!(Tool, Spill, Snapshots);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Not for the model.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Trip {
        /// The target folder.
        to: Place,
        nights: Option<u32>,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
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
                        "description": "The target folder.",
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
