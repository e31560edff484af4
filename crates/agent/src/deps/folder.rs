//! The folder of a turn, if its input names one.
//!
//! Tools, file snapshots and long results are made for a folder. If the input names another one, they are
//! bound to it in each round, so that permission rules, approval questions and calls refer to one folder.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Map, Value};
use superstep_graph::{Cx, NodeError, error::chain};
use superstep_llm::snapshots::Snapshots;

use super::agent_deps::AgentDeps;
use crate::AgentState;

/// The key of the folder in the context of a run.
pub(crate) const KEY: &str = "cwd";

/// A folder that a turn cannot work in.
#[derive(Debug, thiserror::Error)]
#[error("cannot work in the folder `{}`; name another one as `cwd`", .folder.display())]
pub(crate) struct FolderError {
    /// The folder, as it was named.
    pub(crate) folder: PathBuf,
    pub(crate) source: io::Error,
}

/// Returns the folder without links in its path.
///
/// # Errors
/// It is missing, not a folder, or its path is not UTF-8 and could not be stored.
pub(crate) fn real(folder: &Path) -> Result<PathBuf, FolderError> {
    let failed = |source| FolderError { folder: folder.to_owned(), source };
    let real = folder.canonicalize().map_err(failed)?;
    if !real.is_dir() {
        return Err(failed(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder")));
    }
    match real.to_str() {
        Some(_) => Ok(real),
        None => Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8"))),
    }
}

/// Returns the folder in the context of a run.
pub(crate) fn named(context: &Value) -> Option<&Path> {
    context.get(KEY)?.as_str().map(Path::new)
}

// A tool does more than calls: it reports the subject of an argument, its approval question, and whether it changes files. With the folder
// as an argument of each, a tool that forgot it would match a rule in one folder and write in another.
/// Binds the dependencies to the folder of the turn.
///
/// # Errors
/// The folder is not usable, differs from the one of the run, or comes from an untrusted
/// thread.
pub(crate) fn in_folder_of(deps: AgentDeps, state: &AgentState, cx: &Cx) -> Result<AgentDeps, NodeError> {
    let Some(folder) = &state.cwd else { return Ok(deps) };
    let moved = moved(&deps, folder, cx);
    let problem = cx.noted(KEY, moved.as_ref().err().map(ToString::to_string));
    match (problem, moved) {
        // Another run may name another folder, and gives the answers again.
        (Some(problem), _) => Err(NodeError::new(Unusable(problem)).refusal()),
        (None, Ok(moved)) => Ok(moved),
        // The results of a replayed round are recorded: nothing runs, and the folder may not exist.
        (None, Err(_)) => Ok(deps),
    }
}

/// Returns the snapshots of the folder of a turn, if it is usable.
pub(crate) fn snapshots_in(deps: &AgentDeps, folder: Option<&Path>, cx: &Cx) -> Option<Arc<dyn Snapshots>> {
    match folder {
        Some(folder) => moved(deps, folder, cx).ok()?.snapshots,
        None => deps.snapshots.clone(),
    }
}

fn moved(deps: &AgentDeps, folder: &Path, cx: &Cx) -> Result<AgentDeps, Problem> {
    let context = cx.context::<Map<String, Value>>().map(Value::Object).unwrap_or_default();
    let named = named(&context).map(real).transpose()?;
    if let Some(named) = named.as_ref().filter(|named| *named != folder) {
        return Err(Problem::Another { folder: folder.to_owned(), named: named.clone() });
    }
    let is_untrusted = || deps.trust.as_ref().is_some_and(|trust| !trust.is_folder(cx.thread(), folder));
    if named.is_none() && is_untrusted() {
        return Err(Problem::Untrusted(folder.to_owned()));
    }
    let now = real(folder)?;
    if now != folder {
        return Err(Problem::Replaced { folder: folder.to_owned(), now });
    }
    let unusable = |source| FolderError { folder: folder.to_owned(), source };
    let tools = deps.tools.in_folder(folder).map_err(unusable)?;
    let snapshots = match &deps.snapshots {
        Some(snapshots) => snapshots.in_folder(folder).map_err(unusable)?,
        None => None,
    };
    let spill = match &deps.spill {
        Some(spill) => spill.in_folder(folder).map_err(unusable)?,
        None => None,
    };
    let instructions = match &deps.instructions {
        Some(instructions) => instructions.in_folder(folder).map_err(unusable)?,
        None => None,
    };
    Ok(AgentDeps {
        tools: Arc::new(tools),
        instructions: instructions.or_else(|| deps.instructions.clone()),
        snapshots: snapshots.or_else(|| deps.snapshots.clone()),
        spill: spill.or_else(|| deps.spill.clone()),
        ..deps.clone()
    })
}

/// The reason why the tools cannot work in the folder of a turn.
enum Problem {
    Unusable(FolderError),
    /// The run has another folder.
    Another {
        folder: PathBuf,
        named: PathBuf,
    },
    /// Only the untrusted thread has it.
    Untrusted(PathBuf),
    /// The path of the folder now contains a link.
    Replaced {
        folder: PathBuf,
        now: PathBuf,
    },
}

impl From<FolderError> for Problem {
    fn from(error: FolderError) -> Self {
        Self::Unusable(error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(error) => f.write_str(&chain(error)),
            Self::Another { folder, named } => write!(
                f,
                "the turn works in the folder `{}`, but this run names `{}` as `cwd`; name the same one, or none",
                folder.display(),
                named.display()
            ),
            Self::Untrusted(folder) => write!(
                f,
                "the folder `{0}` of this turn is named by the stored thread only; to work there, name \
                 `{0}` as `cwd` in the context of the run",
                folder.display()
            ),
            Self::Replaced { folder, now } => write!(
                f,
                "the folder `{}` of the turn leads to `{}` now; put it back, or begin the turn again",
                folder.display(),
                now.display()
            ),
        }
    }
}

/// The folder of a turn is not usable.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unusable(String);
