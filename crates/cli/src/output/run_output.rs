//! The output of a run: text for people, or JSON.
//!
//! Start at [`Output`].

use std::{io, time::Duration};

use serde_json::Value;
use superstep::{
    agent::{AgentOutcome, AgentState, state::Metadata},
    node::NodeName,
};

/// Receives the events of a run in order. An error means that stdout cannot be written.
pub(crate) trait Output {
    fn event(&mut self, name: &str, data: &Value) -> io::Result<()>;

    /// Reports that a new input replaced these unfinished tasks.
    fn discarded(&mut self, nodes: &[NodeName]) -> io::Result<()>;

    /// Reports that this number of events was lost, because they arrived faster than they could be written.
    fn lagged(&mut self, skipped: u64) -> io::Result<()>;

    /// Shows a note for the user beside the reply.
    fn note(&mut self, text: &str);

    fn end(&mut self, end: &End<'_>) -> io::Result<()>;
}

pub(crate) struct End<'a> {
    pub(crate) thread: &'a str,
    pub(crate) state: &'a AgentState,
    pub(crate) outcome: AgentOutcome,
    pub(crate) took: Duration,
}

impl End<'_> {
    /// Returns the summary of the turn, even if it has not ended.
    pub(crate) fn metadata(&self) -> Metadata {
        match self.state.outcome {
            Some(_) => self.state.metadata.clone(),
            None => {
                Metadata { is_interrupted: self.outcome == AgentOutcome::Cancelled, ..self.state.summary() }
            }
        }
    }
}
