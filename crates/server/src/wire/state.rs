//! States, their tasks, and interrupts.
//!
//! Start at [`state`].

use serde_json::{Map, Value, json};
use superstep_graph::{
    CheckpointId, Interrupt, RunError,
    checkpoint::CheckpointMeta,
    erased::{JsonSnapshot, JsonTask, SubgraphValues},
};

use crate::wire::{ids, messages, time};

/// Returns the state of a thread at a checkpoint. `metadata` is that of its run.
///
/// # Errors
/// [`RunError::Unstorable`].
pub(crate) fn state(
    thread: &str,
    snapshot: &JsonSnapshot,
    metadata: Map<String, Value>,
) -> Result<Value, RunError> {
    let Some(checkpoint) = &snapshot.checkpoint else { return Ok(empty()) };
    let values = values(snapshot)?;
    let tasks = tasks(thread, checkpoint.id, &snapshot.tasks);
    let interrupts: Vec<Value> = snapshot.interrupts().map(interrupt).collect();
    let parent = checkpoint.parent.filter(|_| !checkpoint.parent_pruned);
    Ok(json!({
        "values": values,
        "next": snapshot.next,
        "tasks": tasks,
        "metadata": full_metadata(thread, checkpoint, metadata),
        "created_at": time::of_ms(checkpoint.created_ms),
        "checkpoint": checkpoint_of(thread, checkpoint.id),
        "parent_checkpoint": parent.map(|parent| checkpoint_of(thread, parent)),
        "interrupts": interrupts,
        "checkpoint_id": ids::of_checkpoint(checkpoint.id),
        "parent_checkpoint_id": parent.map(ids::of_checkpoint),
    }))
}

/// Returns the state of a thread that never ran.
pub(crate) fn empty() -> Value {
    json!({
        "values": {}, "next": [], "tasks": [], "metadata": null, "created_at": null, "checkpoint": null,
        "parent_checkpoint": null, "interrupts": [], "checkpoint_id": null, "parent_checkpoint_id": null,
    })
}

/// Returns the values of a state. Channels with no value are left out.
///
/// # Errors
/// [`RunError::Unstorable`].
pub(crate) fn values(snapshot: &JsonSnapshot) -> Result<Value, RunError> {
    Ok(shown_values(snapshot.state.values()?).into())
}

/// Returns the values of a state in the form of the API.
pub(crate) fn shown_values(mut values: Map<String, Value>) -> Map<String, Value> {
    values.retain(|_, value| !value.is_null());
    messages::to_wire(values)
}

/// Returns the writes of a task, or its input, in the form of the API.
pub(crate) fn shown_writes(writes: &Value) -> Value {
    match writes {
        Value::Object(writes) => messages::to_wire(writes.clone()).into(),
        other => other.clone(),
    }
}

/// Returns a checkpoint of the root graph with all three keys.
pub(crate) fn checkpoint_of(thread: &str, id: CheckpointId) -> Value {
    json!({ "checkpoint_id": ids::of_checkpoint(id), "thread_id": thread, "checkpoint_ns": "" })
}

/// Returns an interrupt as states have it.
pub(crate) fn interrupt(interrupt: &Interrupt) -> Value {
    match &interrupt.schema {
        None => json!({ "id": interrupt.id, "value": interrupt.question }),
        Some(schema) => json!({ "id": interrupt.id, "value": interrupt.question, "response_schema": schema }),
    }
}

/// Returns an interrupt as streams and results have it: always with the schema.
pub(crate) fn interrupt_with_schema(interrupt: &Interrupt) -> Value {
    json!({ "value": interrupt.question, "id": interrupt.id, "response_schema": interrupt.schema })
}

/// Returns the pending interrupts of a snapshot by task.
pub(crate) fn interrupts_by_task(snapshot: &JsonSnapshot) -> Map<String, Value> {
    let Some(checkpoint) = &snapshot.checkpoint else { return Map::new() };
    let tasks = (0u32..).zip(&snapshot.tasks).filter(|(_, task)| !task.interrupts.is_empty());
    let entry = |(slot, task): (u32, &JsonTask)| {
        let interrupts: Vec<Value> = task.interrupts.iter().map(interrupt).collect();
        (ids::of_task(checkpoint.id, slot), interrupts.into())
    };
    tasks.map(entry).collect()
}

/// Returns the metadata of a checkpoint: that of its run, and what describes the checkpoint itself.
pub(crate) fn full_metadata(
    thread: &str,
    checkpoint: &CheckpointMeta,
    mut metadata: Map<String, Value>,
) -> Map<String, Value> {
    metadata.insert("thread_id".to_owned(), thread.into());
    metadata.insert("source".to_owned(), checkpoint.source.as_str().into());
    metadata.insert("step".to_owned(), checkpoint.control.step.into());
    metadata.insert("parents".to_owned(), json!({}));
    metadata
}

/// Returns the state of the subgraph that a waiting task of a checkpoint called. `metadata` is that of its run.
pub(crate) fn of_subgraph(
    thread: &str,
    (parent, task): (CheckpointId, &JsonTask),
    subgraph: SubgraphValues,
    metadata: Map<String, Value>,
) -> Value {
    let SubgraphValues { thread: child, checkpoint, values } = subgraph;
    let namespace = ids::namespace_of(&child);
    let place = |id| json!({ "checkpoint_id": ids::of_checkpoint(id), "thread_id": thread, "checkpoint_ns": namespace });
    let next = &checkpoint.control.next;
    let inner = (0u32..).zip(next).map(|(slot, node)| {
        let asked = task.interrupts.iter().filter(|asked| next.len() == 1 || asked.node == *node);
        json!({
            "id": ids::of_task(checkpoint.id, slot),
            "name": node,
            "path": ["__pregel_pull", node],
            "error": null,
            "interrupts": asked.map(interrupt).collect::<Vec<_>>(),
            "checkpoint": null,
            "state": null,
            "result": null,
        })
    });
    let inner: Vec<_> = inner.collect();
    let mut metadata = full_metadata(thread, &checkpoint, metadata);
    metadata.insert("parents".to_owned(), json!({ "": ids::of_checkpoint(parent) }));
    let before = checkpoint.parent.filter(|_| !checkpoint.parent_pruned);
    json!({
        "values": shown_values(values),
        "next": next,
        "tasks": inner,
        "metadata": metadata,
        "created_at": time::of_ms(checkpoint.created_ms),
        "checkpoint": place(checkpoint.id),
        "parent_checkpoint": before.map(place),
        "interrupts": task.interrupts.iter().map(interrupt).collect::<Vec<_>>(),
        "checkpoint_id": ids::of_checkpoint(checkpoint.id),
        "parent_checkpoint_id": before.map(ids::of_checkpoint),
    })
}

fn tasks(thread: &str, checkpoint: CheckpointId, tasks: &[JsonTask]) -> Vec<Value> {
    let task = |(slot, task): (u32, &JsonTask)| {
        let subgraph = task
            .subgraphs
            .first()
            .map(|subgraph| json!({ "thread_id": thread, "checkpoint_ns": ids::namespace_of(subgraph) }));
        let result = task.result.clone().map(|result| match result {
            Value::Object(writes) => messages::to_wire(writes).into(),
            other => other,
        });
        json!({
            "id": ids::of_task(checkpoint, slot),
            "name": task.node,
            "path": ["__pregel_pull", task.node],
            // A task that was stopped did not fail, and chat pages show the error of the last one.
            "error": task.error.as_deref().filter(|error| *error != "cancelled"),
            "interrupts": task.interrupts.iter().map(interrupt).collect::<Vec<_>>(),
            "checkpoint": subgraph,
            "state": null,
            "result": result,
        })
    };
    (0u32..).zip(tasks).map(task).collect()
}
