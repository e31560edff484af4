//! The answer to a tool call, as it is stored.
//!
//! Start at [`Answer`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_llm::{
    Message, Usage,
    calls::{ToolAnswer, ToolQuestion},
    media::Media,
};

use crate::{
    config::{PermissionRule, prompts},
    context::finish::Finished,
    state::{HookFailure, Part},
};

/// The result of a call for the model.
pub(super) struct Answer {
    pub(super) call_id: String,
    pub(super) name: String,
    /// Marks the result that is the reply to the user.
    pub(super) is_final: bool,
    /// The call's state, if the agent records parts.
    pub(super) part: Option<Part>,
    pub(super) done: CallResult,
}

impl Answer {
    pub(super) fn message(&self, id: String) -> Message {
        let message = Message::tool(&self.call_id, &self.done.result).with_id(id);
        message.with(|message| message.media.clone_from(&self.done.media))
    }
}

/// The stored result of a call, which prevents a second execution when the node runs again.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct CallResult {
    pub(super) result: String,
    pub(super) executed: bool,
    /// The images and audio of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) media: Vec<Media>,
    /// The path of the full text, as the result states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kept_at: Option<String>,
    /// The arguments with which it ran, if they are not those that the model wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ran_with: Option<Value>,
    /// The tool returned a result, as opposed to an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) returned: bool,
    /// The tool failed, panicked or timed out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) failed: bool,
    /// The user denied the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) denied: bool,
    /// The rule that was granted permanently with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<PermissionRule>,
    /// The tool's update of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) update: Option<Value>,
    /// The failed hook, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hook_error: Option<HookFailure>,
    /// The usage of a sub-agent, in total and by model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) usage_by_model: BTreeMap<String, Usage>,
    /// The parsed reply, if the call is one of the finish tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) finish: Option<Finish>,
}

impl CallResult {
    /// Returns the result of a call that ran no tool.
    pub(super) fn not_executed(result: String) -> Self {
        Self { result, ..Self::default() }
    }

    /// Returns the result of a call that was stopped while its tool waited for an answer.
    pub(super) fn unanswered() -> Self {
        Self { executed: true, ..Self::not_executed(prompts::UNANSWERED.to_owned()) }
    }

    /// Replaces the result for the model. The effects of the call remain.
    pub(super) fn interrupted(self) -> Self {
        let result = prompts::INTERRUPTED.to_owned();
        Self { result, media: Vec::new(), returned: false, failed: false, finish: None, ..self }
    }

    /// Returns the result without the path of its full text, for comparisons.
    pub(super) fn compared(&self) -> String {
        match &self.kept_at {
            Some(path) => self.result.replace(path.as_str(), ""),
            None => self.result.clone(),
        }
    }
}

/// The parsed call of the finish tool.
pub(super) type Finish = Result<Finished, String>;

/// A question and its answer.
pub(super) type AnsweredQuestion = (ToolQuestion, ToolAnswer);
