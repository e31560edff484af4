//! `superstep revert`: restores files that tools changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::successors,
    path::{Path, PathBuf},
};

use serde_json::json;
use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, State, ThreadId, agent::AgentState,
    checkpoint::CheckpointMeta, llm::snapshots::FileChanges, thread::AsNode, tools::RestoreError,
};

use crate::{
    args::command_line::RevertArgs,
    commands::thread_admin::allowed,
    config::{
        location::{self, Location},
        remembered::Remembered,
        trust::Decided,
    },
    output::{
        exit::{Exit, Failure},
        files::listed,
        table::{lines, print},
        text::{printable_line, quoted},
    },
    session::{snapshots, stored_graph::graph},
};

/// The key of the tools' folder in the metadata of a checkpoint.
const CWD: &str = "cwd";

/// Restores the files that tools changed after a checkpoint.
pub(crate) async fn revert(args: RevertArgs) -> Result<Exit, Failure> {
    let location = Location::new(args.thread.database.location)?;
    let name = args.thread.name.as_str();
    let store = location.change(&[name]).await?;
    let thread = ThreadId::from(name);
    let (remembered, decided) = location.remembered(&*store, &thread, None).await?;
    if remembered.is_foreign && !args.force {
        let message = format!(
            "thread `{name}` was not run by you on this machine, so its stored files may come from another \
             person; inspect the folder, and restore them anyway with `--force`"
        );
        return Err(Failure::new(Exit::Thread, message));
    }
    let graph = graph()?.with_checkpointer(store.clone());
    let to = CheckpointId(args.to);
    let asked = format!("restore the files of thread `{}` to checkpoint {to}", printable_line(name));
    if !allowed(&asked, args.yes)? {
        return Ok(Exit::Interrupted);
    }
    // No run may change files, or the thread, in between.
    let lease = store.lease(&thread).await?;
    let head = graph.thread(&thread).state().await?;
    if !head.next.is_empty() {
        let resume = location.command("resume", &[name]);
        let message = format!(
            "thread `{name}` is not finished, its tools may still change files; resume it with: {resume}"
        );
        return Err(Failure::new(Exit::Thread, message));
    }
    let rounds = rounds(&*store, &graph, &thread, to).await?;
    if rounds.is_empty() {
        return report(&args.thread.name, &FileChanges::default(), args.thread.database.json);
    }
    let cwd = folder_of(&rounds, &location, &remembered, &decided)?;
    let files = snapshots::open(&cwd)?;
    let is_kept =
        |round: &&Round| [&round.files.before, &round.files.after].iter().all(|tree| files.has(name, tree));
    if let Some(round) = rounds.iter().find(|round| !is_kept(round)) {
        let folder = match round.folder() {
            Some(folder) if Path::new(folder) == cwd => {
                let message = format!(
                    "nothing was done: `{}` has no stored files of the rounds to revert; an imported thread comes without them",
                    cwd.display()
                );
                return Err(Failure::new(Exit::Thread, message));
            }
            Some(folder) => format!("the folder `{}`", printable_line(folder)),
            None => "another folder".to_owned(),
        };
        return Err(elsewhere(&format!("{folder}, and its stored files are not in `{}`", cwd.display())));
    }
    let rounds: Vec<_> = rounds.into_iter().map(|round| round.files).collect();
    let (force, of) = (args.force, args.thread.name.clone());
    let restoring = files.clone();
    let restored = tokio::task::spawn_blocking(move || restoring.restore(&of, &rounds, force)).await;
    let changes = match restored.map_err(|error| Failure::caused(Exit::Internal, &error))? {
        Ok(changes) => changes,
        Err(error @ RestoreError::Changed(_)) => {
            let message = format!(
                "files of thread `{name}` were {error}; nothing was done, restore them anyway with `--force`"
            );
            return Err(Failure::new(Exit::Thread, message));
        }
        Err(error) => return Err(Failure::caused(Exit::Failed, &error)),
    };
    drop(lease);
    if !changes.changes.is_empty() {
        // The thread records the restored files, and its model is informed.
        let hint =
            format!("The user put these files back to what they were:\n{}", listed(&changes).join("\n"));
        let update = AgentState::update().files(changes.clone()).hints([hint]);
        let mut thread = graph.thread(name);
        if let Some(cwd) = cwd.to_str() {
            thread = thread.metadata(CWD, cwd);
        }
        thread.update_as(AsNode::End, update).await?;
    }
    files.recorded(name).map_err(|cause| Failure::caused(Exit::Failed, &cause))?;
    report(&args.thread.name, &changes, args.thread.database.json)
}

/// A round of tools with snapshots.
struct Round {
    files: FileChanges,
    /// The newest checkpoint up to it that records the tools' folder.
    settings: Option<CheckpointMeta>,
}

impl Round {
    fn folder(&self) -> Option<&str> {
        self.settings.as_ref().and_then(folder_in)
    }
}

/// Returns the tools' folder that a checkpoint records.
fn folder_in(meta: &CheckpointMeta) -> Option<&str> {
    meta.metadata.get(CWD)?.as_str()
}

/// Returns the rounds after a checkpoint, oldest first, of all branches: they changed the same files.
async fn rounds(
    store: &dyn Checkpointer,
    graph: &CompiledGraph<AgentState>,
    thread: &ThreadId,
    to: CheckpointId,
) -> Result<Vec<Round>, Failure> {
    let then = graph.thread(thread).at(to).state().await?.values.files;
    let mut history = store.history(thread, Default::default()).await?;
    history.sort_unstable_by_key(|meta| meta.id);
    let by_id: BTreeMap<_, _> = history.iter().map(|meta| (meta.id, meta)).collect();
    let (mut seen, mut rounds) = (BTreeMap::from([(to, then.clone())]), Vec::new());
    for meta in history.iter().filter(|meta| meta.id > to) {
        let files = graph.thread(thread).at(meta.id).state().await?.values.files;
        // A state retains the changes of the last round until the next one: they are new where they differ
        // from the parent's.
        let known = match meta.parent.filter(|_| !meta.parent_pruned) {
            None => then.clone(),
            Some(parent) => match seen.get(&parent) {
                Some(known) => known.clone(),
                None => graph.thread(thread).at(parent).state().await?.values.files,
            },
        };
        if files != known {
            let mut line = successors(Some(meta), |meta| by_id.get(&meta.parent?).copied());
            let settings = line.find(|meta| folder_in(meta).is_some()).cloned();
            // The next checkpoint of a discarded round has its changes.
            let finished = files.clone().filter(|files| !files.is_unfinished());
            rounds.extend(finished.map(|files| Round { files, settings }));
        }
        seen.insert(meta.id, files);
    }
    Ok(rounds)
}

/// Returns the one folder of all these rounds.
///
/// # Errors    There are several; it is not the one that `--cwd` names; or only the database names it.
fn folder_of(
    rounds: &[Round],
    location: &Location,
    remembered: &Remembered,
    decided: &Decided,
) -> Result<PathBuf, Failure> {
    let folders: BTreeSet<&str> = rounds.iter().filter_map(Round::folder).collect();
    let folder = match folders.iter().collect::<Vec<_>>()[..] {
        // A database moves with its folder, whose path was different then.
        _ if !location.has_own_db() => return Ok(location.cwd.clone()),
        [] => return location.cwd_of(remembered),
        [folder] => *folder,
        [one, other, ..] => {
            return Err(elsewhere(&format!(
                "several folders, `{}` and `{}` among them; name a later checkpoint with `--to`",
                printable_line(one),
                printable_line(other)
            )));
        }
    };
    if Path::new(folder) == location.cwd {
        return Ok(location.cwd.clone());
    }
    if location.has_own_cwd() {
        return Err(elsewhere(&format!(
            "the folder `{}`; name it with `--cwd {}`",
            printable_line(folder),
            quoted(folder)
        )));
    }
    let settings = rounds.iter().filter_map(|round| round.settings.as_ref());
    let is_known =
        |meta: &CheckpointMeta| Remembered::of(meta).is_ok_and(|settings| decided.knows(&settings));
    if !settings.filter(|meta| folder_in(meta) == Some(folder)).any(is_known) {
        return Err(location.unnamed_folder(folder));
    }
    location::folder(Path::new(folder))
}

/// Returns the error for rounds in another folder.
fn elsewhere(location: &str) -> Failure {
    let message = format!("nothing was done: the rounds to revert worked in {location}");
    Failure::new(Exit::Thread, message)
}

fn report(thread: &str, changes: &FileChanges, as_json: bool) -> Result<Exit, Failure> {
    if as_json {
        return print(&lines([json!({ "thread": thread, "files": changes })]));
    }
    match listed(changes) {
        none if none.is_empty() => print("no file had to be restored\n"),
        listed => print(&format!("{}\n", listed.join("\n"))),
    }
}
