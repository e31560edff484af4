//! The parts of a response, and the state of each tool call.
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
use superstep_graph::state::{ById, HasId};

/// A part of a model's response. Its text is that of the message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// A unique id within its thread: the message's id, then the part.
    pub id: String,
    /// The thread; empty if it has none.
    pub session_id: String,
    /// The message.
    pub message_id: String,
    /// The kind.
    #[serde(rename = "type")]
    pub kind: PartKind,
    /// The name of the called tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The state of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ToolState>,
}

/// The kind of a [`Part`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PartKind {
    /// The model's text.
    Text,
    /// A tool call.
    Tool,
    /// The model's reasoning.
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

/// The state of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolState {
    /// The status.
    pub status: ToolStatus,
    /// The complete arguments; a text if they are not valid JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The result for the model, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// The status of a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// The model has named the tool.
    #[default]
    Pending,
    /// The arguments are complete.
    Running,
    /// The tool returned.
    Completed,
    /// The call failed, was refused or stopped, or its arguments stayed incomplete.
    Error,
}

/// An event of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEvent {
    /// The arguments of the call are complete.
    Called(Value),
    /// The tool returned this.
    Returned(String),
    /// The error that the model receives instead of a result.
    Failed(String),
}

/// An event that is not allowed in the call's current state.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tool call that is {} cannot become {}", from.as_str(), to.as_str())]
pub struct IllegalTransition {
    /// The current status.
    pub from: ToolStatus,
    /// The requested status.
    pub to: ToolStatus,
}

superstep_graph::__private::debug_by_chain!(IllegalTransition);

impl ToolStatus {
    /// Returns the name that is stored and shown.
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
    /// Returns the state after an event.
    ///
    /// ```
    /// # use superstep_agent::state::{ToolEvent, ToolState, ToolStatus};
    /// let running = ToolState::default().after(ToolEvent::Called("{}".into()))?;
    /// let done = running.after(ToolEvent::Returned("5".into()))?;
    /// assert_eq!(done.status, ToolStatus::Completed);
    /// assert!(done.after(ToolEvent::Called("{}".into())).is_err());
    /// # Ok::<(), superstep_agent::state::IllegalTransition>(())
    /// ```
    ///
    /// # Errors
    /// [`IllegalTransition`] if the event is not allowed.
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
    fn the_status_of_a_call_only_advances() {
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
