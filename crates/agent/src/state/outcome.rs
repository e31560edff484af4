//! The outcome of a turn, and the reason of its end.
//!
//! Start at [`AgentOutcome`] and [`StopReason`].

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::value};

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentOutcome {
    /// The model completed its reply.
    Completed,
    /// The step limit was reached.
    Limit,
    /// The model repeated itself.
    LoopDetected,
    /// The turn was cancelled.
    Cancelled,
    /// The model was unavailable.
    LlmError,
    /// A hook of the program failed.
    #[serde(rename = "hook_error", alias = "hook_failed")]
    HookFailed,
    /// The model returned only empty responses.
    #[serde(rename = "empty_response", alias = "empty")]
    Empty,
    /// The output limit truncated the responses.
    #[serde(rename = "length_limit", alias = "length")]
    Length,
    /// The model refused; the reply is its text.
    #[serde(rename = "refusal")]
    Refused,
    /// The provider's content filter withheld the response, or the rest of it.
    ContentFilter,
    /// The budget was used up.
    Budget,
    /// The reply does not match its schema.
    #[serde(rename = "structured_output_invalid", alias = "invalid_output")]
    InvalidOutput,
    /// The user denied a tool call, which ends the turn by configuration.
    Denied,
    /// A tool failed, which ends the turn by configuration.
    #[serde(rename = "tool_error")]
    ToolFailed,
    /// A guard blocked the input or the answer; see [`guards`](crate::guards).
    Guarded,
    /// The turn has not ended: calls wait for approval.
    AwaitingApproval,
    /// The turn has not ended: a node of your own waits for an answer.
    AwaitingAnswer,
    /// The turn was stopped before its end, and can be resumed.
    Stopped,
}

// Not an `AgentOutcome`, because it also names the limit of the budget, and may be a text of another node.
/// The reason why a turn ended before the model was done.
///
/// # JSON
/// A string, which is a promise: empty for [`Done`](Self::Done), the name of the outcome, `max_steps` for the step limit, or the
/// name of the limit of the budget; `guardrail:` and the name of the guard that blocked. Every other string is [`Custom`](Self::Custom), so that the reason of another program or of
/// a newer version is read and written back as it is.
///
/// ```
/// # use superstep_agent::{AgentOutcome, state::{BudgetLimit, StopReason}};
/// let reason: StopReason = serde_json::from_str(r#""budget_tokens""#)?;
/// assert_eq!((&reason, reason.outcome()), (&StopReason::Budget(BudgetLimit::Tokens), AgentOutcome::Budget));
/// assert_eq!(StopReason::from(AgentOutcome::Denied).as_str(), "denied");
/// assert_eq!(StopReason::from("too_long"), StopReason::Custom("too_long".into()));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model was done.
    #[default]
    Done,
    /// The turn ended with this outcome.
    Outcome(AgentOutcome),
    /// The budget was used up: this limit was reached.
    Budget(BudgetLimit),
    /// Another reason: of a guard, of a node of your own, or of another version.
    Custom(String),
}

/// A limit of the [`Budget`](crate::config::Budget).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum BudgetLimit {
    /// [`Budget::tokens`](crate::config::Budget::tokens).
    #[serde(rename = "budget_tokens")]
    Tokens,
    /// [`Budget::tool_calls`](crate::config::Budget::tool_calls).
    #[serde(rename = "budget_tool_calls")]
    ToolCalls,
    /// [`Budget::wall`](crate::config::Budget::wall).
    #[serde(rename = "budget_wall")]
    Wall,
    /// [`Budget::cost`](crate::config::Budget::cost).
    #[serde(rename = "budget_cost")]
    Cost,
}

/// The beginning of the stop reason of a turn that a guard blocked.
const GUARDRAIL: &str = "guardrail:";

/// The stop reason of a turn that reached the step limit.
const MAX_STEPS: &str = "max_steps";

impl AgentOutcome {
    /// Returns whether the turn broke off: resuming it calls the model again.
    pub fn is_unanswered(self) -> bool {
        matches!(self, Self::Cancelled | Self::LlmError | Self::HookFailed)
    }

    /// Returns the name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Limit => "limit",
            Self::LoopDetected => "loop_detected",
            Self::Cancelled => "cancelled",
            Self::LlmError => "llm_error",
            Self::HookFailed => "hook_error",
            Self::Empty => "empty_response",
            Self::Length => "length_limit",
            Self::Refused => "refusal",
            Self::ContentFilter => "content_filter",
            Self::Budget => "budget",
            Self::InvalidOutput => "structured_output_invalid",
            Self::Denied => "denied",
            Self::ToolFailed => "tool_error",
            Self::Guarded => "guarded",
            Self::AwaitingApproval => "awaiting_approval",
            Self::AwaitingAnswer => "awaiting_answer",
            Self::Stopped => "stopped",
        }
    }
}

impl fmt::Display for AgentOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl BudgetLimit {
    /// Returns the name that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "budget_tokens",
            Self::ToolCalls => "budget_tool_calls",
            Self::Wall => "budget_wall",
            Self::Cost => "budget_cost",
        }
    }
}

impl fmt::Display for BudgetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl StopReason {
    /// Returns whether the model was done.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done | Self::Outcome(AgentOutcome::Completed))
    }

    /// Returns the outcome of a turn that ended for this reason.
    ///
    /// For a custom reason it is [`AgentOutcome::Completed`], unless it begins with `guardrail:` or `budget_`, or is an earlier name of an
    /// outcome.
    pub fn outcome(&self) -> AgentOutcome {
        match self {
            Self::Done => AgentOutcome::Completed,
            Self::Outcome(outcome) => *outcome,
            Self::Budget(_) => AgentOutcome::Budget,
            Self::Custom(name) if name.starts_with("budget_") => AgentOutcome::Budget,
            Self::Custom(name) if name.starts_with(GUARDRAIL) => AgentOutcome::Guarded,
            Self::Custom(name) => named(name).unwrap_or(AgentOutcome::Completed),
        }
    }

    /// Returns the reason of a turn that this guard blocked.
    pub(crate) fn guardrail(guard: &str) -> Self {
        Self::Custom(format!("{GUARDRAIL}{guard}"))
    }

    /// Returns the name of the guard that blocked the turn.
    pub fn blocked_by(&self) -> Option<&str> {
        self.as_str().strip_prefix(GUARDRAIL)
    }

    /// Returns the name that is stored and shown; empty if the model was done.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Done => "",
            Self::Outcome(AgentOutcome::Limit) => MAX_STEPS,
            Self::Outcome(outcome) => outcome.as_str(),
            Self::Budget(limit) => limit.as_str(),
            Self::Custom(name) => name,
        }
    }
}

/// Reads a value from its name.
fn named<'de, T: Deserialize<'de>>(name: &'de str) -> Option<T> {
    let name: value::BorrowedStrDeserializer<'de, value::Error> = value::BorrowedStrDeserializer::new(name);
    T::deserialize(name).ok()
}

impl From<AgentOutcome> for StopReason {
    fn from(outcome: AgentOutcome) -> Self {
        match outcome {
            AgentOutcome::Completed => Self::Done,
            outcome => Self::Outcome(outcome),
        }
    }
}

impl From<BudgetLimit> for StopReason {
    fn from(limit: BudgetLimit) -> Self {
        Self::Budget(limit)
    }
}

impl From<&str> for StopReason {
    fn from(name: &str) -> Self {
        let known = match name {
            "" => return Self::Done,
            MAX_STEPS => Self::Outcome(AgentOutcome::Limit),
            _ => match (named(name).map(Self::Budget), named(name).map(Self::Outcome)) {
                (Some(known), _) | (None, Some(known)) => known,
                (None, None) => return Self::Custom(name.to_owned()),
            },
        };
        // An earlier name of an outcome is written back as it was read.
        if known.as_str() == name { known } else { Self::Custom(name.to_owned()) }
    }
}

impl From<String> for StopReason {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for StopReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for StopReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_has_one_name_and_is_read_by_its_older_ones() {
        use AgentOutcome::*;
        let all = [
            Completed,
            Limit,
            LoopDetected,
            Cancelled,
            LlmError,
            HookFailed,
            Empty,
            Length,
            Refused,
            ContentFilter,
            Budget,
            InvalidOutput,
            Denied,
            ToolFailed,
            Guarded,
            AwaitingApproval,
        ];
        for outcome in all {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
        }
        let older = [
            ("hook_failed", HookFailed),
            ("empty", Empty),
            ("length", Length),
            ("invalid_output", InvalidOutput),
        ];
        for (name, outcome) in older {
            assert_eq!(serde_json::from_value::<AgentOutcome>(name.into()).unwrap(), outcome);
        }
    }

    #[test]
    fn a_stop_reason_is_the_name_of_an_outcome_or_of_a_limit() {
        use AgentOutcome::*;
        for outcome in [
            LoopDetected,
            Cancelled,
            LlmError,
            HookFailed,
            Empty,
            Length,
            Refused,
            ContentFilter,
            InvalidOutput,
            Denied,
            ToolFailed,
        ] {
            let reason = StopReason::from(outcome);
            assert_eq!((reason.as_str(), reason.outcome()), (outcome.as_str(), outcome));
            assert_eq!(StopReason::from(outcome.as_str()), reason);
        }
        assert_eq!(StopReason::from(MAX_STEPS), StopReason::from(Limit));
        assert_eq!(StopReason::from(Limit).outcome(), Limit);
        use BudgetLimit::*;
        for (name, limit) in [
            ("budget_tokens", Tokens),
            ("budget_tool_calls", ToolCalls),
            ("budget_wall", Wall),
            ("budget_cost", Cost),
        ] {
            assert_eq!((StopReason::from(name), limit.as_str()), (StopReason::Budget(limit), name));
            assert_eq!(StopReason::from(name).outcome(), Budget);
            assert_eq!(serde_json::to_value(limit).unwrap(), name);
        }
        assert_eq!(["", "unknown"].map(|name| StopReason::from(name).outcome()), [Completed, Completed]);
    }

    #[test]
    fn every_stored_reason_is_read_and_written_back_as_it_was() {
        let known = ["", "max_steps", "budget_cost", "hook_error", "structured_output_invalid", "budget"];
        for reason in known {
            assert!(!matches!(StopReason::from(reason), StopReason::Custom(_)), "{reason}");
        }
        let earlier_and_unknown =
            ["empty", "length", "limit", "completed", "budget_lines", "too_long", "Denied "];
        for reason in known.into_iter().chain(earlier_and_unknown) {
            let json = serde_json::to_string(reason).unwrap();
            let read: StopReason = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
            assert_eq!(read, StopReason::from(reason));
        }
        let outcome = |reason: &str| StopReason::from(reason).outcome();
        assert_eq!(outcome("empty"), AgentOutcome::Empty);
        assert_eq!(outcome("limit"), AgentOutcome::Limit);
        assert_eq!(outcome("budget_lines"), AgentOutcome::Budget);
        assert_eq!(outcome("guardrail:secrets"), AgentOutcome::Guarded);
        assert_eq!(StopReason::guardrail("secrets").blocked_by(), Some("secrets"));
        assert!(serde_json::from_str::<StopReason>("7").is_err());
    }
}
