//! `state`, `draw`, `schema` and `replay`: inspection of threads of one's own graphs.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::json;
use superstep::{CheckpointId, Checkpointer, ThreadId, erased::ReplayRange};
use superstep_session::{error::SessionError, text::printable_line};

use crate::{
    args::{
        own::{OwnDrawArgs, OwnReplayArgs, SchemaArgs},
        shared::{DbArgs, Locate, ReplayedArgs, StateArgs},
    },
    commands::{
        replay::{
            all::{Cases, Replayer},
            ended, named,
            review::review,
        },
        show::print_drawing,
    },
    graphs::graph_set::GraphSet,
    inspect::report::{accepting, line_of, text_of},
    output::{
        exit::Exit,
        table::{lines, print, time},
    },
    session::own_run::{pretty, question_text},
};

/// Shows a thread at a checkpoint.
pub(crate) async fn state(args: StateArgs<DbArgs>, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let (name, database) = (&args.thread.name, args.thread.database);
    let location = database.location.locate(&graphs.program)?;
    let at = args.at.map(CheckpointId);
    let owned = graphs.find_to_show(&location, name, at).await?;
    let snapshot = owned.open_at(at).state().await?;
    let Some(meta) = &snapshot.checkpoint else { return Err(location.unknown(name)) };
    let (values, next, tasks) = (snapshot.state.values()?, &snapshot.next, &snapshot.tasks);
    if database.json {
        let shown = json!({
            "thread": name,
            "graph": owned.graph.name(),
            "checkpoint": meta,
            "next": next,
            "tasks": tasks.iter().map(|task| json!({
                "node": task.node,
                "done": task.is_done,
                "error": task.error,
                "waits": task.interrupts,
            })).collect::<Vec<_>>(),
            "values": values,
        });
        return print(&lines([shown]));
    }
    let status = match next.iter().map(|node| printable_line(node.as_str())).collect::<Vec<_>>() {
        _ if snapshot.interrupts().next().is_some() => "waits for an answer".to_owned(),
        next if next.is_empty() => "finished".to_owned(),
        next => format!("stopped before {}", next.join(", ")),
    };
    let mut text = format!(
        "thread      {}\ngraph       {}\ncheckpoint  {} of superstep {}, {}\nstatus      {status}\n",
        printable_line(name),
        printable_line(owned.graph.name()),
        meta.id,
        meta.control.step,
        time(meta.created_ms),
    );
    for task in tasks {
        let node = printable_line(task.node.as_str());
        if let Some(error) = &task.error {
            text.push_str(&format!("error       {node}: {}\n", printable_line(error)));
        }
        for asked in &task.interrupts {
            let question = question_text(&asked.question).replace('\n', "\n            ");
            text.push_str(&format!("waits       `{}` of {node}: {question}\n", printable_line(&asked.key)));
        }
    }
    print(&format!("{text}\n{}\n", pretty(&values)))
}

/// Draws a graph, or the path of a thread.
pub(crate) async fn draw(args: OwnDrawArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let drawing = match &args.thread {
        None => graphs.named(args.graph.as_deref())?.topology().drawing(),
        Some(name) => {
            let location = args.location.locate(&graphs.program)?;
            let owned = graphs.find_to_show(&location, name, None).await?;
            owned.open().drawing().await?
        }
    };
    print_drawing(&drawing, args.format)
}

/// Prints the JSON Schema of a graph's inputs or states.
pub(crate) fn schema(args: &SchemaArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let graph = graphs.named(args.graph.as_deref())?;
    let schema = if args.output { graph.output_schema() } else { graph.input_schema() };
    print(&format!("{}\n", pretty(&schema)))
}

/// Replays one thread or many, and reports the results.
pub(crate) async fn replay(args: OwnReplayArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let OwnReplayArgs { cases, live, trust, database } = args;
    let ReplayedArgs { target, all, review: reviews, accept, from, to, strict } = cases;
    let location = database.location.locate(&graphs.program)?;
    if all || reviews || accept {
        let (is_own, is_text) = (|name: &str| graphs.has(name), target.is_some());
        if is_text && !trust {
            // The nodes run, and what they do besides their recorded effects is done again.
            return Err(SessionError::usage(
                "the files may come from someone else; inspect them, and repeat the command with `--trust` to run their threads",
            ));
        }
        let location = &location;
        let owned = async |store: Arc<dyn Checkpointer>, thread: &ThreadId| {
            graphs.find_in(location, store, thread, None).await
        };
        let owned = &owned;
        let replay = |store: Arc<dyn Checkpointer>, thread: ThreadId| {
            async move {
                let owned = owned(store, &thread).await?;
                if !is_text {
                    location.check_own(&*owned.store, &owned.name, trust).await?.begins_run()?;
                }
                Ok(owned.open().replay(ReplayRange::default()).await?)
            }
            .boxed_local()
        };
        let rerecord = |store: Arc<dyn Checkpointer>, thread: ThreadId, target: Arc<dyn Checkpointer>| {
            async move { Ok(owned(store, &thread).await?.open().rerecord(target).await?) }.boxed_local()
        };
        let json = database.json;
        let how = &accepting(location, target.as_deref(), "THREAD");
        let replayer =
            Replayer { is_own: &is_own, replay: &replay, rerecord: &rerecord, accept: how, json, strict };
        return if all {
            Cases::of(location, target.as_deref())?.replay(&replayer).await
        } else {
            review(location, target.as_deref(), accept, &replayer).await
        };
    }
    let name = &named(target)?;
    let mut owned = graphs.find_to_show(&location, name, None).await?;
    // The nodes run, and what they do besides their recorded effects is done again.
    location.check_own(&*owned.store, &owned.name, trust).await?.begins_run()?;
    if !live.is_empty() {
        owned.store = location.open()?;
    }
    let range = ReplayRange { from: from.map(CheckpointId), to: to.map(CheckpointId), live };
    let replayed = owned.open().replay(range).await?;
    print(&if database.json {
        lines([line_of(name, &replayed)])
    } else {
        text_of(&replayed, &accepting(&location, None, name))
    })?;
    ended(name, &replayed, strict)
}
