//! Files as they were: kept around rounds of tools, and put back by `superstep revert`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::json;
use superstep::{
    AsNode, CheckpointId, Checkpointer, CompiledGraph, RunConfig, State, ThreadId,
    agent::{
        AgentState, FileChangeKind, FileChanges,
        workspace::{FileSnapshots, RestoreError, Workspace},
    },
};

use crate::{
    approve::confirm,
    args::RevertArgs,
    exit::{Exit, Failure},
    output::printable_line,
    place::Place,
    show::{graph, lines, print},
};

/// Under which name a configuration says whether files are kept.
pub(crate) const KEY: &str = "snapshots";

/// What keeps the files of a folder.
pub(crate) fn kept(cwd: &Path) -> Result<FileSnapshots, Failure> {
    Workspace::open(cwd)
        .and_then(|workspace| FileSnapshots::new(&workspace))
        .map_err(|cause| Failure::usage(format!("cannot work in `{}`: {cause}", cwd.display())))
}

/// Deletes the files that were kept of a thread.
pub(crate) fn forget(cwd: &Path, thread: &str) -> Result<(), Failure> {
    kept(cwd)?.forget(thread).map_err(|cause| {
        let message = format!("the files kept of thread `{thread}` in `{}` are left: {cause}", cwd.display());
        Failure::new(Exit::Failed, message)
    })
}

/// Keeps the files that were kept of a thread for its copy as well.
pub(crate) fn copy(cwd: &Path, from: &str, to: &str) -> Result<(), Failure> {
    kept(cwd)?.copy(from, to).map_err(|cause| {
        let message = format!(
            "the thread was copied, but not the files kept of `{from}` in `{}`: {cause}",
            cwd.display()
        );
        Failure::new(Exit::Failed, message)
    })
}

/// Deletes the files that were kept of a thread and that none of its checkpoints knows, and says how many.
pub(crate) async fn prune(
    cwd: &Path,
    store: &dyn Checkpointer,
    graph: &CompiledGraph<AgentState>,
    thread: &ThreadId,
) -> Result<usize, Failure> {
    // No run may keep files in between.
    let _lease = store.lease(thread).await?;
    // A round that has begun and is not over has kept files that no state knows yet. Another branch begins its rounds anew.
    if !graph.get_state(thread, None).await?.next.is_empty() {
        return Ok(0);
    }
    let mut trees = BTreeSet::new();
    for meta in store.history(thread, Default::default()).await? {
        let state = graph.get_state(thread, Some(meta.id)).await?;
        trees.extend(state.values.files.into_iter().flat_map(|files| [files.before, files.after]));
    }
    kept(cwd)?.prune(thread.as_str(), &trees).map_err(|cause| {
        let message =
            format!("the thread was pruned, but not the files kept of it in `{}`: {cause}", cwd.display());
        Failure::new(Exit::Failed, message)
    })
}

/// Changed files, a line each.
pub(crate) fn listed(changes: &FileChanges) -> Vec<String> {
    let mut lines: Vec<_> = changes
        .changes
        .iter()
        .map(|change| {
            let kind = match change.kind {
                FileChangeKind::Made => "made",
                FileChangeKind::Changed => "changed",
                FileChangeKind::Removed => "removed",
            };
            format!("{kind} {}", printable_line(&change.path))
        })
        .collect();
    if changes.more > 0 {
        lines.push(format!("and {} more", changes.more));
    }
    lines
}

/// Puts the files that tools changed back to what they were at a checkpoint.
pub(crate) async fn revert(args: RevertArgs) -> Result<Exit, Failure> {
    let place = Place::new(args.place)?;
    let name = args.thread.as_str();
    let store = place.change(&[name]).await?;
    let thread = ThreadId::from(name);
    let (remembered, _) = place.remembered(&*store, &thread, None).await?;
    let cwd = place.cwd_of(&remembered)?;
    if remembered.is_foreign && !args.force {
        let message = format!(
            "thread `{name}` was not run by you on this machine, so that what it would put back may be anybody's; look at \
             the folder, and put it back all the same with `--force`"
        );
        return Err(Failure::new(Exit::Thread, message));
    }
    let graph = graph()?.with_checkpointer(store.clone());
    let to = CheckpointId(args.to);
    let asked = format!("put the files of thread `{}` back to checkpoint {to}", printable_line(name));
    let sure = confirm(&format!("This will {asked}."), args.yes);
    if !sure.map_err(|cause| {
        Failure::new(Exit::Failed, format!("cannot ask at the terminal: {cause}; use `--yes`"))
    })? {
        return Ok(Exit::Interrupted);
    }
    // No run may change files, or the thread, in between.
    let lease = store.lease(&thread).await?;
    let head = graph.get_state(&thread, None).await?;
    if !head.next.is_empty() {
        let resume = place.command("resume", &[name]);
        let message = format!(
            "thread `{name}` is not finished, its tools may still change files; go on with: {resume}"
        );
        return Err(Failure::new(Exit::Thread, message));
    }
    let rounds = rounds(&*store, &graph, &thread, to).await?;
    if rounds.is_empty() {
        return told(&args.thread, &FileChanges::default(), args.json);
    }
    let files = kept(&cwd)?;
    let (force, of) = (args.force, args.thread.clone());
    let restoring = files.clone();
    let restored = tokio::task::spawn_blocking(move || restoring.restore(&of, &rounds, force)).await;
    let changes = match restored.map_err(|error| Failure::caused(Exit::Internal, &error))? {
        Ok(changes) => changes,
        Err(error @ RestoreError::Changed(_)) => {
            let message = format!(
                "files of thread `{name}` were {error}; nothing was done, put them back all the same with `--force`"
            );
            return Err(Failure::new(Exit::Thread, message));
        }
        Err(error) => return Err(Failure::caused(Exit::Failed, &error)),
    };
    drop(lease);
    if !changes.changes.is_empty() {
        // The thread knows what its files are now, and so does its model.
        let hint =
            format!("The user put these files back to what they were:\n{}", listed(&changes).join("\n"));
        let update = AgentState::update().files(changes.clone()).hints([hint]);
        graph.update_state(RunConfig::thread(name), update, AsNode::End).await?;
    }
    files.recorded(name).map_err(|cause| Failure::caused(Exit::Failed, &cause))?;
    told(&args.thread, &changes, args.json)
}

/// What the rounds after a checkpoint did that were watched, oldest first. Those of all branches: they worked on the same files.
async fn rounds(
    store: &dyn Checkpointer,
    graph: &CompiledGraph<AgentState>,
    thread: &ThreadId,
    to: CheckpointId,
) -> Result<Vec<FileChanges>, Failure> {
    let then = graph.get_state(thread, Some(to)).await?.values.files;
    let mut history = store.history(thread, Default::default()).await?;
    history.sort_unstable_by_key(|meta| meta.id);
    let (mut seen, mut rounds) = (BTreeMap::from([(to, then.clone())]), Vec::new());
    for meta in history.iter().filter(|meta| meta.id > to) {
        let files = graph.get_state(thread, Some(meta.id)).await?.values.files;
        // A state has what the last round did until the next one: it is news where the parent's is another.
        let known = match meta.parent.filter(|_| !meta.parent_pruned) {
            None => then.clone(),
            Some(parent) => match seen.get(&parent) {
                Some(known) => known.clone(),
                None => graph.get_state(thread, Some(parent)).await?.values.files,
            },
        };
        if files != known {
            rounds.extend(files.clone());
        }
        seen.insert(meta.id, files);
    }
    Ok(rounds)
}

fn told(thread: &str, changes: &FileChanges, as_json: bool) -> Result<Exit, Failure> {
    if as_json {
        return print(&lines([json!({ "thread": thread, "files": changes })]));
    }
    match listed(changes) {
        none if none.is_empty() => print("no file had to be put back\n"),
        listed => print(&format!("{}\n", listed.join("\n"))),
    }
}
