//! The checkpoints that brought the messages of a thread, so that a page finds the other versions of a message.
//!
//! Start at [`Studio::arrivals`].

use serde_json::Value;
use superstep_graph::{
    CheckpointId, ThreadId,
    checkpoint::{Source, TaskRecord},
};

use super::Studio;
use crate::wire::messages::CHANNEL;

/// The maximum number of checkpoints that are searched.
const MAX: usize = 400;

/// The node of inputs.
const START: &str = "__start__";

/// The key of updates that are applied one after the other.
const THEN: &str = "$then";

/// The messages whose checkpoints are searched, and what was found.
struct Arrivals<'a> {
    messages: &'a [Value],
    found: Vec<Option<u64>>,
}

impl Studio {
    /// Returns the checkpoint that brought each message to the state at a checkpoint; `None` for those that are older than the
    /// searched ones. A message of an input has the checkpoint of the input.
    pub(super) async fn arrivals(
        &self,
        thread: &ThreadId,
        at: CheckpointId,
        messages: &[Value],
    ) -> Vec<Option<u64>> {
        let mut arrivals = Arrivals { messages, found: vec![None; messages.len()] };
        let mut here = Some(at);
        for _ in 0..MAX {
            let Some(id) = here.filter(|_| arrivals.found.contains(&None)) else { break };
            // An error is reported where the checkpoint is shown.
            let Ok(Some(commit)) = self.hub.checkpointer.read_commit(thread, id).await else { break };
            if id == at && commit.source != Source::Input {
                for (_, record) in &commit.records {
                    if let TaskRecord::Finished { update, .. } = record
                        && let Ok(json) = update.json()
                    {
                        arrivals.add(json.as_str(), Some(id));
                    }
                }
            }
            for task in &commit.applied {
                let is_input = commit.source == Source::Loop && task.node.as_str() == START;
                if let Ok(json) = task.update.json() {
                    arrivals.add(json.as_str(), if is_input { commit.parent } else { Some(id) });
                }
            }
            here = commit.parent;
        }
        arrivals.found
    }
}

impl Arrivals<'_> {
    /// Marks the messages of an update that no newer one has.
    fn add(&mut self, update: &str, from: Option<CheckpointId>) {
        let Ok(update) = serde_json::from_str::<Value>(update) else { return };
        let parts = update[THEN].as_array().into_iter().flatten().chain([&update]);
        for written in parts.filter_map(|part| part[CHANNEL].as_array()).flatten() {
            let unknown = (0..self.messages.len()).rev().filter(|at| self.found[*at].is_none());
            let same = unknown.into_iter().find(|at| is_same(&self.messages[*at], written));
            if let Some(at) = same {
                self.found[at] = from.map(|from| from.0);
            }
        }
    }
}

/// Returns whether two values are one message: they have one id, or, without ids, one author and content.
fn is_same(one: &Value, other: &Value) -> bool {
    let id = |message: &Value| message["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
    match (id(one), id(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one["role"] == other["role"] && one["content"] == other["content"] && one["content"].is_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_found_by_their_ids_or_contents_newest_first() {
        let messages = [
            json!({ "role": "user", "content": "hi" }),
            json!({ "role": "user", "content": "hi" }),
            json!({ "role": "assistant", "id": "a", "content": "x" }),
        ];
        let mut arrivals = Arrivals { messages: &messages, found: vec![None; 3] };
        let newer = json!({ "messages": [{ "role": "user", "content": "hi" }] });
        let older = json!({ "$then": [{ "messages": [{ "role": "user", "content": "hi" }] }] });
        arrivals.add(&newer.to_string(), Some(CheckpointId(7)));
        arrivals.add(&older.to_string(), Some(CheckpointId(2)));
        arrivals
            .add(&json!({ "messages": [{ "id": "a", "content": "y" }] }).to_string(), Some(CheckpointId(8)));
        assert_eq!(arrivals.found, [Some(2), Some(7), Some(8)]);
    }
}
