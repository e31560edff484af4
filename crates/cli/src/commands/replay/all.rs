//! Replays of all threads of a database, or of files.
//!
//! Start at [`Cases`].

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use superstep::{Checkpointer, History, MemoryCheckpointer, ThreadId, checkpoint::text, replay::Replayed};

use superstep_session::{
    config::location::Location,
    error::{ErrorKind, SessionError},
    text::printable_line,
};

use crate::{
    commands::export::open_text,
    inspect::report::line_of,
    output::{
        exit::Exit,
        table::{lines, print},
    },
};

pub(crate) enum Cases {
    Database(Arc<dyn Checkpointer>),
    /// The texts of threads.
    Files(Vec<PathBuf>),
}

/// A program's replay of one thread.
pub(crate) struct Replayer<'a> {
    /// Returns whether the program has the graph of this name.
    pub(crate) is_own: &'a dyn Fn(&str) -> bool,
    pub(crate) replay: Replay<'a>,
    pub(crate) rerecord: Rerecord<'a>,
    /// The remedy for divergences that are intended.
    pub(crate) accept: &'a str,
    pub(crate) json: bool,
    pub(crate) strict: bool,
}

/// A function that replays a thread of a store.
type Replay<'a> =
    &'a dyn Fn(Arc<dyn Checkpointer>, ThreadId) -> LocalBoxFuture<'a, Result<Replayed, SessionError>>;

/// A function that records a thread of the first store again in the second one.
type Rerecord<'a> = &'a dyn Fn(
    Arc<dyn Checkpointer>,
    ThreadId,
    Arc<dyn Checkpointer>,
) -> LocalBoxFuture<'a, Result<(), SessionError>>;

/// A thread that was replayed.
struct Case {
    thread: String,
    file: Option<PathBuf>,
    result: CaseResult,
}

enum CaseResult {
    Replayed(Box<Replayed>),
    /// The thread belongs to a graph that the program does not have.
    Skipped(String),
    Failed(SessionError),
}

/// The number of results of each kind.
#[derive(Default)]
struct Counts {
    same: usize,
    incomplete: usize,
    diverged: usize,
    failed: usize,
    skipped: usize,
}

impl Cases {
    /// Returns the texts at a path, or the threads of the database.
    ///
    /// # Errors
    /// There is no such folder or file, or no text in it, or no database.
    pub(crate) fn of(location: &Location, path: Option<&str>) -> Result<Self, SessionError> {
        let Some(path) = path else {
            return Ok(Self::Database(location.existing_database().map_err(|failure| SessionError {
                message: format!("{}, or a folder of texts: `--all FOLDER`", failure.message),
                ..failure
            })?));
        };
        let files = text::files(path)
            .map_err(|cause| SessionError::usage(format!("cannot read `{path}`: {cause}")))?;
        if files.is_empty() {
            let end = text::FILE_END;
            return Err(SessionError::usage(format!("the folder `{path}` has no files `*{end}`")));
        }
        Ok(Self::Files(files))
    }

    /// Replays them in order, and reports each and a summary.
    pub(crate) async fn replay(self, replayer: &Replayer<'_>) -> Result<Exit, SessionError> {
        let mut counts = Counts::default();
        match self {
            Self::Database(store) => {
                for (thread, head) in sorted(&*store).await? {
                    let other = head.filter(|graph| !(replayer.is_own)(graph));
                    let result = match other {
                        Some(graph) => CaseResult::Skipped(graph),
                        None => (replayer.replay)(store.clone(), thread.clone()).await.into(),
                    };
                    counts.report(Case { thread: thread.to_string(), file: None, result }, replayer)?;
                }
            }
            Self::Files(files) => {
                for file in files {
                    let (thread, result) = match load(&file).await {
                        Ok((store, thread)) => {
                            let result = (replayer.replay)(store, thread.clone()).await;
                            (thread.to_string(), result.into())
                        }
                        Err(failure) => (stem(&file), CaseResult::Failed(failure)),
                    };
                    counts.report(Case { thread, file: Some(file), result }, replayer)?;
                }
            }
        }
        counts.end(replayer)
    }
}

impl From<Result<Replayed, SessionError>> for CaseResult {
    fn from(result: Result<Replayed, SessionError>) -> Self {
        result.map_or_else(Self::Failed, |replayed| Self::Replayed(replayed.into()))
    }
}

/// Returns the threads of a database by name, with the names of their graphs.
async fn sorted(store: &dyn Checkpointer) -> Result<Vec<(ThreadId, Option<String>)>, SessionError> {
    let mut names = store.names().await?;
    names.retain(|name| !name.is_child());
    names.sort_unstable();
    let mut threads = Vec::new();
    for name in names {
        let newest = History { limit: Some(1), ..History::default() };
        // The replay of a damaged thread reports the damage.
        let head = store.history(&name, newest).await.ok().and_then(|newest| newest.into_iter().next());
        threads.push((name, head.and_then(|head| head.graph().map(|graph| graph.name.to_string()))));
    }
    Ok(threads)
}

pub(super) fn incomplete_failure(n: usize) -> SessionError {
    let s = if n == 1 { "" } else { "s" };
    let message = format!("{n} thread{s} not replayed completely, which `--strict` requires");
    SessionError::new(ErrorKind::Failed, message)
}

/// Loads the text of a thread into memory.
pub(crate) async fn load(file: &Path) -> Result<(Arc<dyn Checkpointer>, ThreadId), SessionError> {
    let mut text = open_text(file)?;
    let store = Arc::new(MemoryCheckpointer::new());
    let imported = text::import(&*store, &mut text)
        .await
        .map_err(|error| SessionError::caused(ErrorKind::Invalid, &error))?;
    Ok((store, imported.thread))
}

fn stem(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(text::FILE_END).unwrap_or(&name).to_owned()
}

impl Case {
    fn status(&self) -> &'static str {
        match &self.result {
            CaseResult::Replayed(replayed) if replayed.divergence.is_some() => "diverged",
            CaseResult::Replayed(replayed) if replayed.is_whole() => "same",
            CaseResult::Replayed(_) => "incomplete",
            CaseResult::Skipped(_) => "skipped",
            CaseResult::Failed(_) => "failed",
        }
    }

    fn line(&self) -> Value {
        let mut line = match &self.result {
            CaseResult::Replayed(replayed) => line_of(&self.thread, replayed),
            CaseResult::Skipped(graph) => json!({ "thread": self.thread, "graph": graph }),
            CaseResult::Failed(failure) => json!({ "thread": self.thread, "error": failure.message }),
        };
        line["status"] = self.status().into();
        if let Some(file) = &self.file {
            line["file"] = file.display().to_string().into();
        }
        line
    }

    fn text(&self) -> String {
        let mut text = format!("{:<10} {}", self.status(), printable_line(&self.thread));
        if let Some(file) = &self.file {
            let _ = write!(text, "  {}", printable_line(&file.display().to_string()));
        }
        let more = match &self.result {
            CaseResult::Replayed(_) if self.status() == "same" => String::new(),
            CaseResult::Replayed(replayed) => replayed.to_string(),
            CaseResult::Skipped(graph) => format!("it belongs to graph `{graph}`"),
            CaseResult::Failed(failure) => failure.message.clone(),
        };
        for line in more.lines() {
            let _ = write!(text, "\n  {line}");
        }
        text + "\n"
    }
}

impl Counts {
    fn report(&mut self, case: Case, replayer: &Replayer<'_>) -> Result<(), SessionError> {
        *match case.status() {
            "same" => &mut self.same,
            "incomplete" => &mut self.incomplete,
            "diverged" => &mut self.diverged,
            "skipped" => &mut self.skipped,
            _ => &mut self.failed,
        } += 1;
        print(&if replayer.json { lines([case.line()]) } else { case.text() }).map(drop)
    }

    fn end(self, replayer: &Replayer<'_>) -> Result<Exit, SessionError> {
        let Self { same, incomplete, diverged, failed, skipped } = self;
        if !replayer.json {
            let parts = [
                (same, "same"),
                (incomplete, "incomplete"),
                (diverged, "diverged"),
                (failed, "failed"),
                (skipped, "skipped"),
            ];
            let parts = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
            let parts = parts.collect::<Vec<_>>().join(", ");
            let all = same + incomplete + diverged + failed + skipped;
            let s = if all == 1 { "" } else { "s" };
            print(&match all {
                0 => "no threads\n".to_owned(),
                _ => format!("{all} thread{s}: {parts}\n"),
            })?;
            if diverged > 0 {
                print(&format!("{}\n", replayer.accept))?;
            }
        }
        let s = |n: usize| if n == 1 { "" } else { "s" };
        match (diverged, failed, incomplete) {
            (0, 0, 0) => Ok(Exit::Ok),
            (0, 0, n) if replayer.strict => Err(incomplete_failure(n)),
            (0, 0, _) => Ok(Exit::Ok),
            (0, n, _) => {
                Err(SessionError::new(ErrorKind::Failed, format!("{n} thread{} cannot be replayed", s(n))))
            }
            _ => Ok(Exit::Diverged),
        }
    }
}
