//! The answer to a tool call, as it is stored.
//!
//! Start at [`Answer`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::Cx;
use superstep_llm::{Message, Usage, media::Media, spill::SpillText};

use crate::{
    AgentEvent,
    config::{PermissionRule, prompts},
    context::finish::Finished,
    deps::AgentDeps,
    events::emit,
    nodes::attempts::Spending,
    state::{HookFailure, ModelCost, Part, ToolEvent},
};

/// The result of a call for the model.
pub(super) struct Answer {
    /// The position of the call in its response.
    pub(super) position: usize,
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
        self.done.message(&self.call_id).with_id(id)
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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) estimated_cost: BTreeMap<String, ModelCost>,
    /// The parsed reply, if the call is one of the finish tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) finish: Option<Finish>,
    /// The agent to which it transfers the conversation; empty for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) transfer: Option<String>,
}

impl CallResult {
    /// Returns the result of a call that ran no tool.
    pub(super) fn not_executed(result: impl Into<String>) -> Self {
        Self { result: result.into(), ..Self::default() }
    }

    /// Returns the result of a call that began before the process stopped, and may have had effects.
    pub(super) fn in_doubt() -> Self {
        Self { executed: true, ..Self::not_executed(prompts::IN_DOUBT) }
    }

    /// Returns the result of a call that was stopped while its tool waited for an answer.
    pub(super) fn unanswered() -> Self {
        Self { executed: true, ..Self::not_executed(prompts::UNANSWERED) }
    }

    /// Returns the tokens of a sub-agent by model, and their cost.
    pub(super) fn spending(&self) -> impl Iterator<Item = Spending> {
        let spent = self.usage_by_model.iter().filter(|(_, usage)| **usage != Usage::default());
        spent.map(|(model, usage)| Spending {
            model: model.clone(),
            usage: *usage,
            cost: self.estimated_cost.get(model).cloned(),
        })
    }

    /// Replaces the result for the model. The effects of the call remain.
    pub(super) fn interrupted(self) -> Self {
        let result = prompts::INTERRUPTED.to_owned();
        Self { result, media: Vec::new(), returned: false, failed: false, finish: None, ..self }
    }

    /// Returns the result as a message.
    pub(super) fn message(&self, call_id: &str) -> Message {
        Message::tool(call_id, &self.result).with(|message| {
            message.failed = !self.returned;
            message.media.clone_from(&self.media);
        })
    }

    /// Returns the end of the call's part.
    pub(super) fn end(&self) -> ToolEvent {
        let result = self.result.clone();
        if self.returned { ToolEvent::Returned(result) } else { ToolEvent::Failed(result) }
    }

    /// Returns the result as the model receives it: a long one truncated, with the full text stored if configured.
    pub(super) async fn shortened(mut self, deps: &AgentDeps, call_id: &str, cx: &Cx) -> Self {
        let (media, left_out) = deps.config.media.of_result(self.media);
        self.media = media;
        (self.result, self.kept_at) = shorten(deps, cx, call_id, self.result).await;
        if let Some(note) = left_out {
            self.result = format!("{}\n{note}", self.result);
        }
        self
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

/// Returns a tool result for the model: truncated if too long, with the full text stored if configured; and
/// its location.
async fn shorten(deps: &AgentDeps, cx: &Cx, call_id: &str, result: String) -> (String, Option<String>) {
    let Some(truncate) = &deps.config.truncate else { return (result, None) };
    let Some(cut) = truncate.cut(&result) else { return (result, None) };
    let (Some(spill), Some(marker)) = (&deps.spill, &truncate.spill) else {
        return (cut.apply(&result, &truncate.marker), None);
    };
    let thread = cx.thread().map(|thread| thread.as_str());
    match spill.keep(SpillText { thread, call_id, text: &result }).await {
        Ok(path) => {
            emit(cx, || AgentEvent::Spilled {
                id: call_id.to_owned(),
                path: path.clone(),
                chars: result.chars().count(),
            });
            (cut.apply(&result, &marker.replace("{path}", &path)), Some(path))
        }
        Err(error) => {
            emit(cx, || AgentEvent::SpillFailed { id: call_id.to_owned(), reason: error.to_string() });
            (cut.apply(&result, &truncate.marker), None)
        }
    }
}
