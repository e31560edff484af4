//! Ids of the API, and those of superstep that they stand for.
//!
//! | on the wire | in superstep |
//! |---|---|
//! | thread, run: UUID version 7 | the thread's name; the id of a run's input |
//! | thread of a stateless run: UUID version 5 of the run | the thread's name |
//! | assistant of a graph: UUID version 5 of its name | the graph |
//! | checkpoint: a UUID whose last 12 digits are the number | its number |
//! | task: UUID version 5 of its checkpoint and slot | the two |

use superstep_graph::{
    CheckpointId, ThreadId,
    checkpoint::{Segment, SubgraphPath},
};
use uuid::{Uuid, uuid};

use crate::error::ApiError;

/// The namespace of the assistants that graphs have from the start; that of the reference.
const ASSISTANTS: Uuid = uuid!("6ba7b821-9dad-11d1-80b4-00c04fd430c8");

/// The namespace of tasks.
const TASKS: Uuid = uuid!("3f0a4f0e-6d1b-5b0a-8a39-1c4d1d9f6a52");

/// The namespace of the threads of stateless runs.
const THREADS: Uuid = uuid!("8c2d7a56-0b7e-4f0c-9a53-5d1b6c8f3e17");

/// The beginning of every checkpoint's id.
const CHECKPOINT: &str = "00000000-0000-8000-8000-";

/// Returns a new id whose text is ordered by time.
pub(crate) fn new_ordered() -> String {
    Uuid::now_v7().to_string()
}

/// Returns a new random id.
pub(crate) fn new_random() -> String {
    Uuid::new_v4().to_string()
}

/// Returns whether text is a UUID.
pub(crate) fn is_uuid(text: &str) -> bool {
    Uuid::try_parse(text).is_ok()
}

/// Returns the id of the own thread of a stateless run, which is the same if the run is stored again.
pub(crate) fn of_own_thread(run: &str) -> String {
    Uuid::new_v5(&THREADS, run.as_bytes()).to_string()
}

/// Returns the id of the assistant that a graph has from the start.
pub(crate) fn of_graph(name: &str) -> String {
    Uuid::new_v5(&ASSISTANTS, name.as_bytes()).to_string()
}

/// Checks the id of a thread that a client chose.
///
/// # Errors
/// 422 for text that no thread can have as its name.
pub(crate) fn check_thread(id: &str) -> Result<(), ApiError> {
    let is_printable = id.chars().all(|char| !char.is_control() && char != '/');
    if id.is_empty() || id.len() > 200 || !is_printable {
        return Err(ApiError::invalid(
            "thread_id: expected a UUID, or 1 to 200 printable characters without `/`",
        ));
    }
    Ok(())
}

/// Returns the wire form of a checkpoint's number, whose texts are ordered as the numbers are.
pub(crate) fn of_checkpoint(id: CheckpointId) -> String {
    format!("{CHECKPOINT}{:012x}", id.0)
}

/// Reads a checkpoint's id, or its bare number.
///
/// # Errors
/// 422 for other text.
pub(crate) fn checkpoint(text: &str) -> Result<CheckpointId, ApiError> {
    let number = match text.strip_prefix(CHECKPOINT) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let number =
        number.ok_or_else(|| ApiError::invalid(format!("checkpoint_id: `{text}` is not one of this server")));
    number.map(CheckpointId)
}

/// Returns the id of the task in a slot of a checkpoint.
pub(crate) fn of_task(checkpoint: CheckpointId, slot: u32) -> String {
    Uuid::new_v5(&TASKS, format!("{}.{slot}", checkpoint.0).as_bytes()).to_string()
}

/// Returns the namespace of a subgraph: `child:TASK`, deeper levels joined by `|`.
pub(crate) fn namespace(path: &SubgraphPath) -> String {
    levels(path).join("|")
}

/// Returns the levels of the namespace of a subgraph, outermost first.
pub(crate) fn levels(path: &SubgraphPath) -> Vec<String> {
    let level = |segment: &Segment| {
        // A subgraph with one thread for all calling tasks has no task of its own.
        let (slot, checkpoint) = segment.task.unwrap_or((0, CheckpointId(0)));
        format!("{}:{}", segment.node, of_task(checkpoint, slot))
    };
    path.0.iter().map(level).collect()
}

/// Returns whether a namespace begins with wanted levels, each of which may be the name of a node without its task.
pub(crate) fn is_within(namespace: &[String], wanted: &[String]) -> bool {
    let is_level = |(wanted, level): (&String, &String)| {
        wanted == level || (!wanted.contains(':') && level.split(':').next() == Some(&**wanted))
    };
    wanted.len() <= namespace.len() && wanted.iter().zip(namespace).all(is_level)
}

/// Returns the namespace of the thread of a subgraph.
pub(crate) fn namespace_of(thread: &ThreadId) -> String {
    namespace(&thread.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_the_id_that_the_reference_gives_it() {
        assert_eq!(of_graph("counter"), "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45");
    }

    #[test]
    fn ids_of_checkpoints_are_ordered_and_read_back() {
        let text = of_checkpoint(CheckpointId(258));
        assert_eq!(text, "00000000-0000-8000-8000-000000000102");
        assert_eq!(checkpoint(&text), Ok(CheckpointId(258)));
        assert_eq!(checkpoint("258"), Ok(CheckpointId(258)));
        assert!(of_checkpoint(CheckpointId(9)) < of_checkpoint(CheckpointId(10)));
        assert_eq!(checkpoint("1f1e-other").unwrap_err().status, 422);
    }

    #[test]
    fn the_namespace_of_a_subgraph_names_its_calling_tasks() {
        let thread = ThreadId::from("t\u{1f}child:0@2\u{1f}inner:1@3");
        let expected = format!("child:{}|inner:{}", of_task(CheckpointId(2), 0), of_task(CheckpointId(3), 1));
        assert_eq!(namespace_of(&thread), expected);
        assert_eq!(namespace_of(&"t".into()), "");
    }

    #[test]
    fn the_name_of_a_thread_is_printable() {
        assert!(check_thread("support-17").is_ok());
        for wrong in ["", "a/b", "a\u{1f}b", &"x".repeat(201)] {
            assert_eq!(check_thread(wrong).unwrap_err().status, 422, "{wrong:?}");
        }
    }
}
