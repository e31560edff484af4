//! `fork` and `edit`: changes of threads of one's own graphs, without a run.

use serde_json::json;
use superstep::{CheckpointId, RunError, ThreadId, node::NodeName, thread::AsNode};
use superstep_session::{error::SessionError, suggest::closest, text::printable_line};

use crate::{
    args::{
        own::{EditArgs, ForkArgs},
        shared::Locate,
    },
    graphs::{
        graph_set::GraphSet,
        input::{check, unfit},
    },
    output::{
        exit::Exit,
        note::print_new,
        table::{lines, print},
    },
    session::stdin::read_json,
};

/// Makes a copy of a checkpoint the newest one, of the thread or of a copy of it.
pub(crate) async fn fork(args: ForkArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let ForkArgs { at, new, thread } = args;
    let (name, at) = (&thread.name, CheckpointId(at));
    let location = thread.database.location.locate(&graphs.program)?;
    let mut owned = graphs.find(&location, name, None).await?;
    // Nothing is copied for a checkpoint that does not exist.
    if owned.store.load(&owned.name, Some(at)).await?.is_none() {
        return Err(RunError::UnknownCheckpoint { thread: owned.name, checkpoint: at }.into());
    }
    let set_back = location.set_back_note(&*owned.store, &owned.name).await;
    let is_set_back = set_back.is_some();
    print_new(set_back, false);
    owned.store = location.open()?;
    let forked = match &new {
        None => owned.open().fork(Some(at)).await?,
        Some(new) => {
            let copy = ThreadId::from(new.as_str());
            location.mark_copy(&*owned.store, &owned.name, &copy).await?;
            owned.open().copy_to(copy.clone()).await?;
            owned.options = owned.options.thread(copy.clone());
            match owned.open().fork(Some(at)).await {
                Ok(forked) => forked,
                Err(error) => {
                    owned.store.delete(&copy).await?;
                    return Err(error.into());
                }
            }
        }
    };
    if new.is_none() && !is_set_back {
        location.anchor(&*owned.store, &owned.name, &Ok(Exit::Ok)).await;
    }
    let target = new.as_ref().unwrap_or(name);
    if thread.database.json {
        return print(&lines([json!({ "thread": target, "from": name, "at": at, "checkpoint": forked })]));
    }
    print(&format!(
        "checkpoint {forked} of thread `{}` is a fork of {at}; continue with: {}\n",
        printable_line(target),
        location.command("resume", &[target])
    ))
}

/// Stores an update of the state.
pub(crate) async fn edit(args: EditArgs, graphs: &GraphSet) -> Result<Exit, SessionError> {
    let EditArgs { update, node, thread } = args;
    let update = read_json("update", &update)?;
    let name = &thread.name;
    let location = thread.database.location.locate(&graphs.program)?;
    let mut owned = graphs.find(&location, name, None).await?;
    check(&**owned.graph, "update", &update)?;
    if let Some(node) = node.as_deref().filter(|node| !node.starts_with("__")) {
        let known: Vec<&str> = owned.graph.topology().names().map(NodeName::as_str).collect();
        if !known.contains(&node) {
            let hint = match closest(node, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("its nodes are `{}`", known.join("`, `")),
            };
            return Err(SessionError::usage(format!(
                "graph `{}` has no node `{node}`; {hint}",
                owned.graph.name()
            )));
        }
    }
    let set_back = location.set_back_note(&*owned.store, &owned.name).await;
    let is_set_back = set_back.is_some();
    print_new(set_back, false);
    owned.store = location.open()?;
    let opened = owned.open();
    let updated = opened.update(AsNode::from(node.as_deref()), &update);
    let checkpoint = updated.map_err(|error| unfit("update", &error))?.await?;
    if !is_set_back {
        location.anchor(&*owned.store, &owned.name, &Ok(Exit::Ok)).await;
    }
    let next = opened.state().await?.next;
    if thread.database.json {
        return print(&lines([json!({ "thread": name, "checkpoint": checkpoint, "next": next })]));
    }
    let shown = printable_line(name);
    if next.is_empty() {
        return print(&format!("stored as checkpoint {checkpoint} of thread `{shown}`, which is finished\n"));
    }
    let next: Vec<_> = next.iter().map(|node| printable_line(node.as_str())).collect();
    let resume = location.command("resume", &[name]);
    print(&format!(
        "stored as checkpoint {checkpoint} of thread `{shown}`; next: {}; continue with: {resume}\n",
        next.join(", ")
    ))
}
