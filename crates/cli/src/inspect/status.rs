//! The status of a thread.
//!
//! Start at [`ThreadStatus`].

use superstep::{
    agent::{AgentOutcome, AgentState},
    checkpoint::GraphId,
    node::NodeName,
    thread::StateSnapshot,
};
use superstep_session::text::printable_line;

/// The status of a thread of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadStatus {
    pub(crate) next: Vec<NodeName>,
    /// The outcome of its last turn, if it ended.
    pub(crate) outcome: Option<AgentOutcome>,
    /// The calls that wait for a decision.
    pub(crate) waits: Vec<String>,
    /// The graph of the thread, if it is not one of the program's.
    pub(crate) other: Option<GraphId>,
}

impl ThreadStatus {
    pub(crate) fn of(snapshot: &StateSnapshot<AgentState>) -> Self {
        let asked = snapshot.tasks.iter().flat_map(|task| &task.interrupts);
        Self {
            next: snapshot.next.clone(),
            outcome: snapshot.values.outcome.filter(|_| snapshot.next.is_empty()),
            waits: asked.map(|asked| asked.key.clone()).collect(),
            other: None,
        }
    }

    pub(crate) fn status(&self) -> String {
        if let Some(other) = &self.other {
            return format!("belongs to graph {}", printable_line(&other.to_string()));
        }
        match self.outcome {
            _ if !self.waits.is_empty() => "waits for a decision".to_owned(),
            _ if !self.next.is_empty() => {
                let next: Vec<_> = self.next.iter().map(|node| printable_line(node.as_str())).collect();
                format!("stopped before {}", next.join(", "))
            }
            Some(AgentOutcome::Cancelled) => "cancelled".to_owned(),
            Some(AgentOutcome::LlmError) => "no model".to_owned(),
            Some(outcome) if outcome.is_unanswered() => outcome.as_str().to_owned(),
            _ => "finished".to_owned(),
        }
    }
}
