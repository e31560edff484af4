//! The state of a thread of the agent as text.
//!
//! Start at [`load`].

use std::{collections::BTreeSet, sync::Arc};

use superstep::{
    CheckpointId, Checkpointer, State, ThreadId,
    agent::AgentState,
    checkpoint::CheckpointMeta,
    llm::Role,
    memory::{DreamState, Dreams},
    thread::{StateSnapshot, TaskSnapshot},
};
use superstep_session::{
    error::SessionError,
    text::{brief, changed_files, printable_line},
    turn::{stored_graph::graph, waiting::Waiting},
};

use crate::{
    inspect::status::ThreadStatus,
    output::{cost::EstimatedCost, table::time},
};

/// Loads the state of a thread, or of the agent in a dream, at a checkpoint or at the newest one.
///
/// # Errors
/// The thread cannot be read.
pub(crate) async fn load(
    store: Arc<dyn Checkpointer>,
    thread: &ThreadId,
    at: Option<CheckpointId>,
) -> Result<StateSnapshot<AgentState>, SessionError> {
    if Dreams::is_thread(thread) {
        let graph = Dreams::inspection_graph().with_checkpointer(store);
        return Ok(of_agent(graph.thread(thread).at(at).state().await?));
    }
    Ok(graph()?.with_checkpointer(store).thread(thread).at(at).state().await?)
}

/// Returns the inner agent's part of a dream's state.
fn of_agent(snapshot: StateSnapshot<DreamState>) -> StateSnapshot<AgentState> {
    let StateSnapshot { values, next, tasks, checkpoint, graph, unknown } = snapshot;
    let tasks = tasks.into_iter().map(|task| {
        let TaskSnapshot { node, result, error, interrupts, subgraphs } = task;
        TaskSnapshot { node, result: result.map(|_| AgentState::update()), error, interrupts, subgraphs }
    });
    StateSnapshot { values: values.agent, next, tasks: tasks.collect(), checkpoint, graph, unknown }
}

/// Formats the position of a thread for people: its checkpoint, status, open questions and changed files.
pub(crate) fn position(
    thread: &ThreadId,
    meta: &CheckpointMeta,
    snapshot: &StateSnapshot<AgentState>,
) -> String {
    let state = &snapshot.values;
    let mut text = format!(
        "thread      {}\ncheckpoint  {} of superstep {}, {}\nstatus      {}\n",
        printable_line(thread.as_str()),
        meta.id,
        meta.control.step,
        time(meta.created_ms),
        ThreadStatus::of(snapshot).status()
    );
    if let Some(outcome) = state.outcome {
        text.push_str(&format!("outcome     {}\n", outcome.as_str()));
    }
    text.push_str(&format!("steps       {} of {}\n", state.current_step, state.max_steps));
    if let Some(cost) = EstimatedCost::of(state) {
        text.push_str(&format!("cost        {cost}\n"));
    }
    for task in &snapshot.tasks {
        if let Some(error) = &task.error {
            let error = error.replace('\n', "\n            ");
            text.push_str(&format!("error       {}: {error}\n", printable_line(task.node.as_str())));
        }
    }
    let waiting = Waiting::of(snapshot.tasks.iter().flat_map(|task| &task.interrupts)).unwrap_or_default();
    for call in waiting {
        let (id, tool) = (printable_line(&call.id), printable_line(&call.request.tool));
        text.push_str(&format!("waits       call `{id}` of {tool}: {}\n", brief(&call.request.question, 80)));
        call.whole().lines().for_each(|line| text.push_str(&format!("            {line}\n")));
    }
    if let Some(list) = to_do(state) {
        let lines: Vec<_> = list.lines().collect();
        text.push_str(&format!("to do       {}\n", lines.join("\n            ")));
    }
    for (nth, pin) in state.pins.iter().enumerate() {
        let label = if nth == 0 { "pins" } else { "" };
        text.push_str(&format!("{label:<12}{}: {}\n", pin.kind.as_str(), brief(&pin.text, 80)));
    }
    let files = state.files.iter().flat_map(changed_files).collect::<Vec<_>>();
    if !files.is_empty() {
        text.push_str(&format!("files       {}\n", files.join("\n            ")));
    }
    text
}

/// Formats a conversation for people.
pub(crate) fn conversation(state: &AgentState) -> String {
    let mut text = String::new();
    // Synthetic messages are not part of the dialogue.
    for message in state.messages.iter().filter(|message| !message.synthetic) {
        let who = message.role;
        let content = message.content.as_str();
        match message.role {
            Role::Tool => text.push_str(&format!("\n{who}: {}\n", brief(content, 100))),
            _ if content.is_empty() => text.push_str(&format!("\n{who}:\n")),
            _ => text.push_str(&format!("\n{who}: {content}\n")),
        }
        for call in &message.tool_calls {
            text.push_str(&format!("  → {} {}\n", printable_line(&call.name), brief(&call.arguments, 100)));
        }
    }
    text
}

/// Returns the newest list of the tool `todo`: the result of its last successful call.
fn to_do(state: &AgentState) -> Option<&str> {
    let messages: Vec<_> = state.messages.iter().collect();
    let calls = messages.iter().flat_map(|message| &message.tool_calls);
    let listed: BTreeSet<&str> =
        calls.filter(|call| call.name == "todo").map(|call| call.id.as_str()).collect();
    let results = messages.iter().rev().filter(|message| message.role == Role::Tool);
    results
        .filter(|result| listed.contains(result.tool_call_id.as_str()))
        .map(|result| result.content.as_str())
        .find(|list| !list.starts_with("Error"))
}
