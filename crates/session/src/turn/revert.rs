//! The restoration of files that tools changed.
//!
//! Start at [`Revert`].

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::successors,
    path::{Path, PathBuf},
    sync::Arc,
};

use superstep::{
    CheckpointId, Checkpointer, CompiledGraph, State, ThreadId,
    agent::AgentState,
    checkpoint::CheckpointMeta,
    llm::snapshots::FileChanges,
    thread::AsNode,
    tools::{RestoreError, Restored},
};

use crate::{
    config::{
        location::{self, Location},
        settings::StoredSettings,
        trust::Decided,
    },
    error::{ErrorKind, SessionError},
    text::{changed_files, printable_line, quoted},
    turn::{snapshots, stored_graph::graph},
};

/// The key of the tools' folder in the metadata of a checkpoint.
const CWD: &str = "cwd";

/// A thread whose files may be restored.
pub struct Revert<'a> {
    location: &'a Location,
    store: Arc<dyn Checkpointer>,
    thread: &'a ThreadId,
    remembered: StoredSettings,
    decided: Arc<Decided>,
    force: bool,
}

impl<'a> Revert<'a> {
    /// Checks the thread. With `force`, files are restored that someone else may have stored, or that have changed since.
    ///
    /// # Errors
    /// The user did not run the thread on this machine, and `force` is not set.
    pub async fn new(
        location: &'a Location,
        store: Arc<dyn Checkpointer>,
        thread: &'a ThreadId,
        force: bool,
    ) -> Result<Self, SessionError> {
        let (remembered, decided) = location.remembered(&*store, thread, None).await?;
        if remembered.is_foreign && !force {
            let message = format!(
                "thread `{thread}` was not run by you on this machine, so its stored files may come from another \
                 person; inspect the folder, and restore them anyway with `--force`"
            );
            return Err(SessionError::new(ErrorKind::Thread, message));
        }
        Ok(Self { location, store, thread, remembered, decided, force })
    }

    /// Restores the files as they were at a checkpoint, and records it.
    ///
    /// # Errors
    /// The turn is not finished, files have changed since, or they are not stored in this folder. Nothing is done then.
    pub async fn to(self, to: CheckpointId) -> Result<Restored, SessionError> {
        let Self { location, store, thread, remembered, decided, force } = self;
        let name = thread.as_str();
        let graph = graph()?.with_checkpointer(store.clone());
        // No run may change files, or the thread, in between.
        let lease = store.lease(thread).await?;
        let head = graph.thread(thread).state().await?;
        if !head.next.is_empty() {
            let resume = location.command("resume", &[name]);
            let message = format!(
                "thread `{name}` is not finished, its tools may still change files; resume it with: {resume}"
            );
            return Err(SessionError::new(ErrorKind::Thread, message));
        }
        let (rounds, unknown) = rounds(&*store, &graph, thread, to).await?;
        if rounds.is_empty() {
            let mut restored = Restored::default();
            restored.left.extend(unknown.iter().map(without_snapshot));
            return Ok(restored);
        }
        let cwd = folder_of(&rounds, location, &remembered, &decided)?;
        let files = snapshots::open(&cwd)?;
        let is_kept = |round: &&Round| {
            [&round.files.before, &round.files.after].iter().all(|tree| files.has(name, tree))
        };
        if let Some(round) = rounds.iter().find(|round| !is_kept(round)) {
            let folder = match round.folder() {
                Some(folder) if Path::new(folder) == cwd => {
                    let message = format!(
                        "nothing was done: `{}` has no stored files of the rounds to revert; an imported thread comes without them",
                        cwd.display()
                    );
                    return Err(SessionError::new(ErrorKind::Thread, message));
                }
                Some(folder) => format!("the folder `{}`", printable_line(folder)),
                None => "another folder".to_owned(),
            };
            return Err(elsewhere(&format!("{folder}, and its stored files are not in `{}`", cwd.display())));
        }
        let rounds: Vec<_> = rounds.into_iter().map(|round| round.files).collect();
        let of = name.to_owned();
        let restoring = files.clone();
        let restored = tokio::task::spawn_blocking(move || restoring.restore(&of, &rounds, force)).await;
        let mut restored = match restored
            .map_err(|error| SessionError::caused(ErrorKind::Internal, &error))?
        {
            Ok(restored) => restored,
            Err(error @ RestoreError::Changed(_)) => {
                let message = format!(
                    "files of thread `{name}` were {error}; nothing was done, restore them anyway with `--force`"
                );
                return Err(SessionError::new(ErrorKind::Thread, message));
            }
            Err(error) => return Err(SessionError::caused(ErrorKind::Failed, &error)),
        };
        drop(lease);
        restored.left.extend(unknown.iter().map(without_snapshot));
        let changes = &restored.changes;
        if !changes.changes.is_empty() {
            // The thread records the restored files, and its model is informed.
            let hint = format!(
                "The user put these files back to what they were:\n{}",
                changed_files(changes).join("\n")
            );
            let update = AgentState::update().files(changes.clone()).hints([hint]);
            let mut thread = graph.thread(name);
            if let Some(cwd) = cwd.to_str() {
                thread = thread.metadata(CWD, cwd);
            }
            thread.update_as(AsNode::End, update).await?;
        }
        files.recorded(name).map_err(|cause| SessionError::caused(ErrorKind::Failed, &cause))?;
        Ok(restored)
    }
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

/// The tools of the program that change files.
const CHANGING: [&str; 3] = ["edit_file", "write_file", "shell"];

/// Returns the entry of a round without a snapshot: snapshots were disabled, or one failed.
fn without_snapshot(id: &CheckpointId) -> (String, String) {
    (format!("checkpoint {id}"), "its tools ran without a snapshot, so their changes are unknown".to_owned())
}

/// The base of the comparison of a round: the files and the tools of the checkpoint before it.
#[derive(Clone)]
struct Known {
    files: Option<FileChanges>,
    tools: usize,
}

impl Known {
    fn of(state: &AgentState) -> Self {
        Self { files: state.files.clone(), tools: state.tools_used.len() }
    }

    /// Returns whether a tool ran that changes files, and left no trace. After a round that changed nothing, another one leaves the
    /// same trace.
    fn misses_round(&self, now: &AgentState) -> bool {
        let ran = now.tools_used.iter().skip(self.tools);
        let is_clear = self.files.as_ref().is_none_or(|files| files.before != files.after);
        is_clear && self.files == now.files && ran.into_iter().any(|tool| CHANGING.contains(&tool.as_str()))
    }
}

/// Returns the rounds after a checkpoint, oldest first, of all branches: they changed the same files. Also returns the checkpoints
/// of rounds without snapshots.
async fn rounds(
    store: &dyn Checkpointer,
    graph: &CompiledGraph<AgentState>,
    thread: &ThreadId,
    to: CheckpointId,
) -> Result<(Vec<Round>, Vec<CheckpointId>), SessionError> {
    let then = Known::of(&graph.thread(thread).at(to).state().await?.values);
    let mut history = store.history(thread, Default::default()).await?;
    history.sort_unstable_by_key(|meta| meta.id);
    let by_id: BTreeMap<_, _> = history.iter().map(|meta| (meta.id, meta)).collect();
    let (mut rounds, mut unknown) = (Vec::new(), Vec::new());
    let mut seen = BTreeMap::from([(to, then.clone())]);
    for meta in history.iter().filter(|meta| meta.id > to) {
        let now = graph.thread(thread).at(meta.id).state().await?.values;
        // A state retains the changes of the last round until the next one: they are new where they differ
        // from the parent's.
        let known = match meta.parent.filter(|_| !meta.parent_pruned) {
            None => then.clone(),
            Some(parent) => match seen.get(&parent) {
                Some(known) => known.clone(),
                None => Known::of(&graph.thread(thread).at(parent).state().await?.values),
            },
        };
        if known.misses_round(&now) {
            unknown.push(meta.id);
        }
        if now.files != known.files {
            let mut line = successors(Some(meta), |meta| by_id.get(&meta.parent?).copied());
            let settings = line.find(|meta| folder_in(meta).is_some()).cloned();
            // The next checkpoint of a discarded round has its changes.
            let finished = now.files.clone().filter(|files| !files.is_unfinished());
            rounds.extend(finished.map(|files| Round { files, settings }));
        }
        seen.insert(meta.id, Known::of(&now));
    }
    Ok((rounds, unknown))
}

/// Returns the one folder of all these rounds.
///
/// # Errors
/// There are several; it is not the one that `--cwd` names; or only the database names it.
fn folder_of(
    rounds: &[Round],
    location: &Location,
    remembered: &StoredSettings,
    decided: &Decided,
) -> Result<PathBuf, SessionError> {
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
        |meta: &CheckpointMeta| StoredSettings::of(meta).is_ok_and(|settings| decided.knows(&settings));
    if !settings.filter(|meta| folder_in(meta) == Some(folder)).any(is_known) {
        return Err(location.unnamed_folder(folder));
    }
    location::folder(Path::new(folder))
}

/// Returns the error for rounds in another folder.
fn elsewhere(location: &str) -> SessionError {
    let message = format!("nothing was done: the rounds to revert worked in {location}");
    SessionError::new(ErrorKind::Thread, message)
}
