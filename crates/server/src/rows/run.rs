//! Rows of runs.
//!
//! Start at [`RunRow`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{rows::thread::RunFailure, wire::time};

/// A run: its request and its result. It is stored before it is acknowledged, with all that it needs to begin
/// after a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunRow {
    pub(crate) id: String,
    pub(crate) thread: String,
    pub(crate) assistant: String,
    pub(crate) graph: String,
    pub(crate) created_us: i64,
    pub(crate) updated_us: i64,
    pub(crate) status: RunStatus,
    pub(crate) failure: Option<RunFailure>,
    /// The order to stop it, stored before it is acknowledged, until the end of the run.
    #[serde(default)]
    pub(crate) stop: Option<Stop>,
    /// The reason why it is or was stopped before its end.
    #[serde(default)]
    pub(crate) cancel_reason: Option<String>,
    /// The head of the thread when the run began: a checkpoint's number, 0 for none. `None` before its beginning.
    pub(crate) head: Option<u64>,
    /// The size of its stored log in bytes, once it has ended and while it has one.
    #[serde(default)]
    pub(crate) log_bytes: Option<usize>,
    pub(crate) plan: Plan,
}

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunStatus {
    /// Queued or delayed.
    Pending,
    Running,
    Success,
    Error,
    /// Cancelled, or replaced by a later run.
    Interrupted,
}

impl RunStatus {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Error => "error",
            Self::Interrupted => "interrupted",
        }
    }

    /// Returns whether the run is still to end.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

/// The fate of a run that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stop {
    /// The run stays as it is.
    Interrupt,
    /// The run and its checkpoints are deleted.
    Rollback,
}

/// The work of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The input, in the stored form; null to continue the thread.
    pub(crate) input: Value,
    pub(crate) command: Option<CommandPlan>,
    /// The number of the checkpoint at which it begins, if that is not the head.
    pub(crate) checkpoint: Option<u64>,
    pub(crate) context: Value,
    pub(crate) config: Map<String, Value>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) step_limit: Option<u32>,
    pub(crate) break_before: Vec<String>,
    pub(crate) break_after: Vec<String>,
    pub(crate) durability: DurabilityPlan,
    pub(crate) stream_modes: Vec<String>,
    pub(crate) subgraphs: bool,
    pub(crate) resumable: bool,
    pub(crate) strategy: Strategy,
    pub(crate) after_ms: u64,
    /// `true` if its thread is deleted at its end.
    pub(crate) temporary: bool,
    /// The address to which its end is sent.
    #[serde(default)]
    pub(crate) webhook: Option<String>,
}

/// A command for a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CommandPlan {
    pub(crate) update: Option<Value>,
    /// The answer or answers.
    pub(crate) resume: Option<Value>,
    /// `true` if an answer to a question that does not wait is an error of its own.
    #[serde(default)]
    pub(crate) strict: bool,
    pub(crate) goto: Vec<String>,
    /// `true` if nothing is left to run.
    pub(crate) end: bool,
}

/// The time at which supersteps are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DurabilityPlan {
    Sync,
    #[default]
    Async,
    Exit,
}

/// The treatment of a run on a thread that has one already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Strategy {
    #[default]
    Enqueue,
    Reject,
    Interrupt,
    Rollback,
}

impl Strategy {
    /// Returns how the runs that a thread has already are stopped, if they are.
    pub(crate) fn stop(self) -> Option<Stop> {
        match self {
            Self::Enqueue | Self::Reject => None,
            Self::Interrupt => Some(Stop::Interrupt),
            Self::Rollback => Some(Stop::Rollback),
        }
    }
}

impl RunRow {
    /// Returns its wire form.
    pub(crate) fn to_wire(&self) -> Value {
        let Plan { input, command, config, context, metadata, .. } = &self.plan;
        let mut metadata = metadata.clone();
        metadata.insert("graph_id".to_owned(), self.graph.as_str().into());
        metadata.insert("assistant_id".to_owned(), self.assistant.as_str().into());
        let names = |names: &Vec<String>| (!names.is_empty()).then(|| names.clone());
        let command = command.as_ref().map(
            |command| json!({ "update": command.update, "resume": command.resume, "goto": command.goto }),
        );
        json!({
            "run_id": self.id,
            "thread_id": self.thread,
            "assistant_id": self.assistant,
            "metadata": metadata,
            "status": self.status,
            "cancel_reason": self.cancel_reason,
            "kwargs": {
                "input": input,
                "command": command,
                "config": config,
                "context": context.as_object().cloned().unwrap_or_default(),
                "stream_mode": self.plan.stream_modes,
                "interrupt_before": names(&self.plan.break_before),
                "interrupt_after": names(&self.plan.break_after),
                "webhook": self.plan.webhook,
                "temporary": self.plan.temporary,
                "subgraphs": self.plan.subgraphs,
                "resumable": self.plan.resumable,
                "durability": self.plan.durability,
            },
            "multitask_strategy": self.plan.strategy,
            "created_at": time::text(self.created_us),
            "updated_at": time::text(self.updated_us),
        })
    }
}
