//! `superstep state`, `history`, `draw` and `completions`: inspection without changes.

use std::{collections::BTreeSet, io};

use serde::Serialize;
use serde_json::json;
use superstep::{
    CheckpointId, History, State, ThreadId,
    agent::AgentState,
    checkpoint::CheckpointMeta,
    drawing::Drawing,
    erased::values,
    llm::Role,
    memory::{DreamState, Dreams},
    thread::{StateSnapshot, TaskSnapshot},
};
use superstep_session::{
    config::settings::StoredSettings,
    error::SessionError,
    text::{brief, changed_files, printable_line},
    turn::{
        dream_thread,
        stored_graph::{default_graph, graph, graph_of},
        waiting::Waiting,
    },
};

use crate::{
    args::{
        command_line::{self, DrawArgs},
        shared::{AGENT, DatabaseArgs, Format, HistoryArgs, Locate, LocationArgs, StateArgs, ThreadArgs},
    },
    commands::{
        history_tree::tree,
        threads::ThreadStatus,
        writes::{InitialState, TaskWrites, Writes, writes},
    },
    graphs::{
        agent_graphs::agent_graphs,
        graph_set::{GraphSet, Owned},
    },
    output::{
        cost::EstimatedCost,
        exit::Exit,
        note::print_new,
        picture::png,
        table::{lines, print, print_bytes, time, written},
    },
};

/// Shows the checkpoints of a thread: as a tree, or newest first as JSON.
pub(crate) async fn history<L: Locate>(
    args: HistoryArgs<L>,
    graphs: &GraphSet,
) -> Result<Exit, SessionError> {
    let HistoryArgs { limit, thread: ThreadArgs { name, database: DatabaseArgs { location, json } } } = args;
    let found = graphs.find_to_show(&location.locate(&graphs.program)?, &name, None).await?;
    found.open().check_owner().await?;
    let Owned { graph, store, name: thread, .. } = &found;
    let checkpoints = store.history(thread, History { limit, ..History::default() }).await?;
    let at = |id: CheckpointId| found.open_at(Some(id));
    if !json {
        return print(&tree(&**store, thread, &checkpoints, &InitialState::of(&***graph)?, at).await?);
    }
    for meta in checkpoints {
        let Writes { tasks, .. } = writes(&**store, thread, &meta, &at).await?;
        // One line at a time, because the writes are the whole content of the thread.
        print(&lines([WithWrites { meta, writes: tasks }]))?;
    }
    Ok(Exit::Ok)
}

/// A checkpoint in the JSON form of a history.
#[derive(Serialize)]
struct WithWrites {
    #[serde(flatten)]
    meta: CheckpointMeta,
    writes: Vec<TaskWrites>,
}

/// Shows a thread at a checkpoint.
pub(crate) async fn state(args: StateArgs<LocationArgs>) -> Result<Exit, SessionError> {
    let location = args.thread.database.location.locate(AGENT)?;
    let store = location.existing(&args.thread.name)?;
    let thread = ThreadId::from(args.thread.name.as_str());
    print_new(location.set_back_note(&*store, &thread).await, false);
    let at = args.at.map(CheckpointId);
    let snapshot = if Dreams::is_thread(&thread) {
        let graph = Dreams::inspection_graph().with_checkpointer(store);
        of_agent(graph.thread(&thread).at(at).state().await?)
    } else {
        graph()?.with_checkpointer(store).thread(&thread).at(at).state().await?
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
pub(crate) async fn draw(args: DrawArgs) -> Result<Exit, SessionError> {
    let drawing = match &args.thread {
        None => default_graph()?.drawing(),
        Some(name) => {
            let location = args.location.locate(AGENT)?;
            let graphs = agent_graphs(AGENT)?;
            let Owned { graph, store, name, options } = graphs.find_to_show(&location, name, None).await?;
            if Dreams::is_thread(&name) {
                graph.with_checkpointer(store).thread(options).drawing().await?
            } else {
                let graph = graph_of(&StoredSettings::load(&*store, &name, None).await?, &location)?;
                graph.with_checkpointer(store).thread(&name).drawing().await?
            }
        }
    };
    print_drawing(&drawing, args.format)
}

pub(crate) fn print_drawing(drawing: &Drawing, format: Format) -> Result<Exit, SessionError> {
    match format {
        Format::Text => print(&drawing.text()),
        Format::Mermaid => print(&drawing.mermaid()),
        Format::Dot => print(&drawing.dot()),
        Format::Svg => print(&drawing.svg()),
        Format::Png => print_bytes(&png(&drawing.svg())?, "a PNG picture"),
    }
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<Exit, SessionError> {
    written(command_line::completions(shell, &mut io::stdout()))
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
    let files = state.files.iter().flat_map(changed_files).collect::<Vec<_>>();
    if !files.is_empty() {
        text.push_str(&format!("files       {}\n", files.join("\n            ")));
    }
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
