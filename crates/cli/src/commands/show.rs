//! `superstep state`, `history`, `draw` and `completions`: inspection without changes.

use std::{collections::BTreeSet, io};

use serde_json::{Map, Value, json};
use superstep::{
    CheckpointId, History, State, ThreadId,
    agent::AgentState,
    checkpoint::CheckpointMeta,
    llm::Role,
    memory::{DreamState, Dreams},
    node::NodeName,
    thread::{StateSnapshot, TaskSnapshot},
};

use crate::{
    args::command_line::{self, DrawArgs, Format, HistoryArgs, StateArgs},
    commands::threads::Standing,
    config::{location::Location, remembered::Remembered},
    output::{
        exit::{Exit, Failure},
        files::listed,
        table::{lines, new_table, print, time, written},
        text::{brief, printable_line},
    },
    session::{
        dream_thread,
        stored_graph::{graph, graph_of},
        waiting::Waiting,
    },
};

/// Lists the checkpoints of a thread.
pub(crate) async fn history(args: HistoryArgs) -> Result<Exit, Failure> {
    let location = Location::new(args.thread.database.location)?;
    let Some(store) = location.look()? else { return Err(location.unknown(&args.thread.name)) };
    let range = History { limit: args.limit, ..History::default() };
    let thread = ThreadId::from(args.thread.name.as_str());
    if store.load(&thread, None).await?.is_none() {
        return Err(location.unknown(&args.thread.name));
    }
    let checkpoints = store.history(&thread, range.clone()).await?;
    // Threads of another graph are rejected.
    match Dreams::is_thread(&thread) {
        true => drop(
            Dreams::inspection_graph()
                .with_checkpointer(store)
                .thread(&thread)
                .history()
                .range(range)
                .checkpoints()
                .await?,
        ),
        false => drop(
            graph()?.with_checkpointer(store).thread(&thread).history().range(range).checkpoints().await?,
        ),
    }
    if args.thread.database.json {
        return print(&lines(checkpoints));
    }
    let mut table = new_table(&["CHECKPOINT", "PARENT", "STEP", "SOURCE", "CREATED", "NEXT"]);
    for meta in &checkpoints {
        table.add_row([
            meta.id.to_string(),
            parent(meta),
            meta.control.step.to_string(),
            meta.source.as_str().to_owned(),
            time(meta.created_ms),
            next(&meta.control.next),
        ]);
    }
    print(&format!("{}\n", table.trim_fmt()))
}

/// Formats the parent of a checkpoint, existing or not.
fn parent(meta: &CheckpointMeta) -> String {
    match meta.parent {
        None => "-".to_owned(),
        Some(parent) if meta.parent_pruned => format!("{parent} (pruned)"),
        Some(parent) => parent.to_string(),
    }
}

/// Shows a thread at a checkpoint.
pub(crate) async fn state(args: StateArgs) -> Result<Exit, Failure> {
    let location = Location::new(args.thread.database.location)?;
    let Some(store) = location.look()? else { return Err(location.unknown(&args.thread.name)) };
    let thread = ThreadId::from(args.thread.name.as_str());
    let at = args.at.map(CheckpointId);
    let snapshot = match Dreams::is_thread(&thread) {
        true => of_agent(
            Dreams::inspection_graph().with_checkpointer(store).thread(&thread).at(at).state().await?,
        ),
        false => graph()?.with_checkpointer(store).thread(&thread).at(at).state().await?,
    };
    let Some(meta) = &snapshot.checkpoint else { return Err(location.unknown(&args.thread.name)) };
    if snapshot.graph.is_none() {
        // An older version stored it without its graph.
        dream_thread::refuse(&location, &thread)?;
    }
    if args.thread.database.json {
        let shown = json!({
            "thread": thread,
            "checkpoint": meta,
            "next": snapshot.next,
            "tasks": snapshot.tasks.iter().map(|task| json!({
                "node": task.node,
                "done": task.result.is_some(),
                "error": task.error,
                "waits": task.interrupts,
            })).collect::<Vec<_>>(),
            "values": values(&snapshot.values)?,
        });
        return print(&lines([shown]));
    }
    print(&described(&thread, meta, &snapshot))
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

/// Draws the agent's graph.
pub(crate) async fn draw(args: DrawArgs) -> Result<Exit, Failure> {
    let drawing = match &args.thread {
        None => graph()?.drawing(),
        Some(thread) => {
            let location = Location::new(args.location)?;
            let Some(store) = location.look()? else { return Err(location.unknown(thread)) };
            let id = ThreadId::from(thread.as_str());
            if store.load(&id, None).await?.is_none() {
                return Err(location.unknown(thread));
            }
            let drawing = match Dreams::is_thread(&id) {
                true => Dreams::inspection_graph().with_checkpointer(store).thread(&id).drawing().await,
                false => {
                    let graph = graph_of(&Remembered::load(&*store, &id, None).await?, &location)?;
                    graph.with_checkpointer(store).thread(&id).drawing().await
                }
            };
            drawing?
        }
    };
    print(&match args.format {
        Format::Text => drawing.text(),
        Format::Mermaid => drawing.mermaid(),
        Format::Dot => drawing.dot(),
        Format::Svg => drawing.svg(),
    })
}

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    written(command_line::completions(shell, &mut io::stdout()))
}

/// Returns the channels with their values.
fn values(state: &AgentState) -> Result<Map<String, Value>, Failure> {
    let channels = state.channels().iter().enumerate();
    let value = |(position, channel): (usize, &superstep::state::Channel)| {
        let json = serde_json::from_slice(&state.encode(position)?)?;
        Ok((channel.name.to_string(), json))
    };
    let values: Result<_, serde_json::Error> = channels.map(value).collect();
    values.map_err(|error| Failure::caused(Exit::Failed, &error))
}

/// Formats a state for people: its position, then the conversation.
fn described(thread: &ThreadId, meta: &CheckpointMeta, snapshot: &StateSnapshot<AgentState>) -> String {
    let state = &snapshot.values;
    let mut text = format!(
        "thread      {}\ncheckpoint  {} of superstep {}, {}\nstatus      {}\n",
        printable_line(thread.as_str()),
        meta.id,
        meta.control.step,
        time(meta.created_ms),
        Standing::of(snapshot).status()
    );
    if let Some(outcome) = state.outcome {
        text.push_str(&format!("outcome     {}\n", outcome.as_str()));
    }
    text.push_str(&format!("steps       {} of {}\n", state.current_step, state.max_steps));
    for task in &snapshot.tasks {
        if let Some(error) = &task.error {
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
    let files = state.files.iter().flat_map(listed).collect::<Vec<_>>();
    if !files.is_empty() {
        text.push_str(&format!("files       {}\n", files.join("\n            ")));
    }
    // Synthetic messages are not part of the dialogue.
    for message in state.messages.iter().filter(|message| !message.synthetic) {
        let who = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
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

fn next(nodes: &[NodeName]) -> String {
    if nodes.is_empty() {
        return "-".to_owned();
    }
    nodes.iter().map(|node| printable_line(node.as_str())).collect::<Vec<_>>().join(", ")
}
