//! What an answer is made of, piece by piece, and how far each tool call has come.
//!
//! ```text
//!             arguments        result
//! pending ──────────────▶ running ─────▶ completed
//!    │                       │
//!    └───────── failure ─────┴─────────▶ error
//! ```
//!
//! Start at [`Part`].

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_graph::{ById, HasId};

/// A piece of an answer of the model. Its text is that of the message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Unique within its thread: the message's id, then which part of it.
    pub id: String,
    /// The thread; empty if it has none.
    pub session_id: String,
    /// The message.
    pub message_id: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: PartKind,
    /// The name of the tool that is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// How far the call has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ToolState>,
}

/// What a [`Part`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PartKind {
    /// What the model said.
    Text,
    /// A tool call.
    Tool,
    /// What the model thought.
    Reasoning,
}

/// The parts of a thread, in order.
pub type Parts = ById<Part>;

impl HasId for Part {
    fn id(&self) -> &str {
        &self.id
    }

    fn set_id(&mut self, id: String) {
        self.id = id;
    }
}

/// How far a tool call has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolState {
    /// In one word.
    pub status: ToolStatus,
    /// The arguments, once they are whole; a text if they are no JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What the model reads of it, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// How far a tool call has come, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The model has named the tool.
    #[default]
    Pending,
    /// The arguments are whole.
    Running,
    /// The tool returned.
    Completed,
    /// It did not: it failed, or was refused, or stopped, or its arguments never became whole.
    Error,
}

/// What happens to a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEvent {
    /// Its arguments are whole.
    Called(Value),
    /// The tool returned this.
    Returned(String),
    /// This is what the model reads instead of a result.
    Failed(String),
}

/// Something that cannot happen to a tool call where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool call that is {} cannot become {}", from.as_str(), to.as_str())]
pub struct IllegalTransition {
    /// Where it stands.
    pub from: ToolStatus,
    /// What it was to become.
    pub to: ToolStatus,
}

impl ToolStatus {
    /// The name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}

impl ToolState {
    /// Where a call stands after an event.
    ///
    /// ```
    /// # use superstep_agent::{ToolEvent, ToolState, ToolStatus};
    /// let running = ToolState::default().after(ToolEvent::Called("{}".into()))?;
    /// let done = running.after(ToolEvent::Returned("5".into()))?;
    /// assert_eq!(done.status, ToolStatus::Completed);
    /// assert!(done.after(ToolEvent::Called("{}".into())).is_err());
    /// # Ok::<(), superstep_agent::IllegalTransition>(())
    /// ```
    ///
    /// # Errors
    /// [`IllegalTransition`] if it cannot happen there.
    pub fn after(self, event: ToolEvent) -> Result<Self, IllegalTransition> {
        use ToolEvent::{Called, Failed, Returned};
        use ToolStatus::{Completed, Error, Pending, Running};
        let Self { status, input, .. } = self;
        Ok(match (status, event) {
            (Pending, Called(input)) => {
                Self { status: Running, input: Some(input).filter(|input| !input.is_null()), output: None }
            }
            (Running, Returned(output)) => Self { status: Completed, input, output: Some(output) },
            (Pending | Running, Failed(output)) => Self { status: Error, input, output: Some(output) },
            (from, Called(_)) => return Err(IllegalTransition { from, to: Running }),
            (from, Returned(_)) => return Err(IllegalTransition { from, to: Completed }),
            (from, Failed(_)) => return Err(IllegalTransition { from, to: Error }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x9_a_call_goes_only_forward() {
        use ToolStatus::{Completed, Error, Pending, Running};
        let events =
            [ToolEvent::Called("{}".into()), ToolEvent::Returned("r".into()), ToolEvent::Failed("e".into())];
        let to = [Running, Completed, Error];
        let legal = [(Pending, Running), (Pending, Error), (Running, Completed), (Running, Error)];
        for from in [Pending, Running, Completed, Error] {
            for (event, to) in events.iter().zip(to) {
                let state = ToolState { status: from, ..ToolState::default() };
                match state.after(event.clone()) {
                    Ok(after) => assert_eq!((after.status, legal.contains(&(from, to))), (to, true)),
                    Err(error) => {
                        assert_eq!(error, IllegalTransition { from, to });
                        assert!(!legal.contains(&(from, to)), "{error}");
                    }
                }
            }
        }
        let error = IllegalTransition { from: Completed, to: Running };
        assert_eq!(error.to_string(), "a tool call that is completed cannot become running");
    }
}
