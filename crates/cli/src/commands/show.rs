//! `superstep state`, `history`, `draw` and `completions`: inspection without changes.

use std::io;

use serde::Serialize;
use serde_json::json;
use superstep::{
    CheckpointId, History, ThreadId, checkpoint::CheckpointMeta, drawing::Drawing, erased::values,
};
use superstep_session::{
    error::SessionError,
    turn::{dream_thread, stored_graph::default_graph},
};

use crate::{
    args::{
        command_line::{self, DrawArgs},
        shared::{AGENT, DatabaseArgs, Format, HistoryArgs, Locate, LocationArgs, StateArgs, ThreadArgs},
    },
    commands::{
        history_tree::tree,
        writes::{InitialState, TaskWrites, Writes, writes},
    },
    graphs::{
        agent_graphs::agent_graphs,
        graph_set::{GraphSet, Owned},
    },
    inspect::{
        drawing,
        state::{self, conversation, position},
    },
    output::{
        exit::Exit,
        note::print_new,
        picture::png,
        table::{lines, print, print_bytes, written},
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
    let snapshot = state::load(store, &thread, args.at.map(CheckpointId)).await?;
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
    print(&format!("{}{}", position(&thread, meta, &snapshot), conversation(&snapshot.values)))
}

/// Draws the agent's graph.
pub(crate) async fn draw(args: DrawArgs) -> Result<Exit, SessionError> {
    let drawing = match &args.thread {
        None => default_graph()?.drawing(),
        Some(name) => {
            let location = args.location.locate(AGENT)?;
            let graphs = agent_graphs(AGENT)?;
            drawing::of_thread(&location, graphs.find_to_show(&location, name, None).await?).await?
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
