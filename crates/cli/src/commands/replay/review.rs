//! `replay --review`: decides on each divergence of stored cases, and records accepted changes.
//!
//! Start at [`review`].

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use superstep::{
    Checkpointer, MemoryCheckpointer, ThreadId,
    checkpoint::text::{self, ExportOptions},
    replay::Replayed,
};

use super::all::{Cases, Replayer, incomplete_failure, load};
use superstep_session::{
    config::location::Location,
    error::{ErrorKind, SessionError},
    text::printable_line,
};

use crate::{
    output::{exit::Exit, note::print_note, table::print},
    session::typed::answer,
};

/// A decision on a changed case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    Accept,
    Reject,
    Skip,
}

/// The number of cases by result.
#[derive(Default)]
struct Counts {
    same: usize,
    incomplete: usize,
    accepted: usize,
    rejected: usize,
    skipped: usize,
    failed: usize,
}

/// Replays the texts at a path, and asks about each that diverges; with `accepts_all` each is accepted.
///
/// # Errors
/// There is no path, or no terminal to ask on.
pub(crate) async fn review(
    location: &Location,
    path: Option<&str>,
    accepts_all: bool,
    replayer: &Replayer<'_>,
) -> Result<Exit, SessionError> {
    let files = match path.map(|path| Cases::of(location, Some(path))).transpose()? {
        Some(Cases::Files(files)) => files,
        _ => {
            return Err(SessionError::usage(format!(
                "name the folder or the file of the cases to review; a thread of a database is never replaced: export it with \
                 `{} > NAME{}`",
                location.command("export", &["THREAD"]),
                text::FILE_END
            )));
        }
    };
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !accepts_all && !can_ask {
        return Err(SessionError::usage(
            "`--review` asks questions and needs a terminal; `--all` lists the divergences, and `--accept` accepts all of them",
        ));
    }
    let folder = path.map(Path::new).filter(|path| path.is_dir());
    let mut counts = Counts::default();
    for file in files {
        let case = FileCase { file: &file, folder };
        if let Err(failure) = case.review(accepts_all, replayer, &mut counts).await {
            counts.failed += 1;
            print_note(&format!("{}: {}", printable_line(&file.display().to_string()), failure.message));
        }
    }
    counts.end(replayer.strict)
}

/// A case in a file, and the folder that was named.
struct FileCase<'a> {
    file: &'a Path,
    folder: Option<&'a Path>,
}

impl FileCase<'_> {
    async fn review(
        &self,
        accepts_all: bool,
        replayer: &Replayer<'_>,
        counts: &mut Counts,
    ) -> Result<(), SessionError> {
        let (store, thread) = load(self.file).await?;
        let replayed = (replayer.replay)(store.clone(), thread.clone()).await?;
        if replayed.divergence.is_none() && replayed.is_whole() {
            counts.same += 1;
            return Ok(());
        }
        print(&format!("{}\n{replayed}\n", printable_line(&self.file.display().to_string())))?;
        if replayed.divergence.is_none() {
            counts.incomplete += 1;
            return Ok(());
        }
        let decision = if accepts_all { Decision::Accept } else { ask()? };
        match decision {
            Decision::Accept => self.accept(store, &thread, replayer).await.map(|()| counts.accepted += 1),
            Decision::Reject => {
                counts.rejected += 1;
                Ok(())
            }
            Decision::Skip => {
                counts.skipped += 1;
                Ok(())
            }
        }
    }

    /// Records the thread of the file again, and replaces the file by it. The file is unchanged if that fails.
    async fn accept(
        &self,
        store: Arc<dyn Checkpointer>,
        thread: &ThreadId,
        replayer: &Replayer<'_>,
    ) -> Result<(), SessionError> {
        let file = self.target()?;
        let target: Arc<dyn Checkpointer> = Arc::new(MemoryCheckpointer::new());
        (replayer.rerecord)(store, thread.clone(), target.clone()).await?;
        let text = text::export(&*target, thread, &ExportOptions::default()).await;
        let text = text.map_err(|error| SessionError::caused(ErrorKind::Failed, &error))?;
        let again: Replayed = (replayer.replay)(target, thread.clone()).await?;
        if let Some(divergence) = &again.divergence {
            let message =
                format!("the new result does not replay, so that it cannot be a case\n{divergence}");
            return Err(SessionError::new(ErrorKind::Diverged, message));
        }
        if !again.is_whole() {
            let message =
                format!("the new result does not replay completely, so that it cannot be a case\n{again}");
            return Err(SessionError::new(ErrorKind::Failed, message));
        }
        replace(&file, &text).map_err(|error| self.irreplaceable(&error))
    }

    /// Returns the file to replace: a link stays one, and must not lead out of the folder that was named.
    fn target(&self) -> Result<PathBuf, SessionError> {
        let canonical = |path: &Path| path.canonicalize().map_err(|error| self.irreplaceable(&error));
        let file = canonical(self.file)?;
        match self.folder.map(canonical).transpose()? {
            Some(folder) if !file.starts_with(&folder) => {
                let place = file.display();
                Err(SessionError::usage(format!(
                    "it is a link to `{place}`, out of the folder; name that file to replace it"
                )))
            }
            _ => Ok(file),
        }
    }

    fn irreplaceable(&self, error: &io::Error) -> SessionError {
        SessionError::new(ErrorKind::Failed, format!("`{}` cannot be replaced: {error}", self.file.display()))
    }
}

/// Asks until the answer is a decision; the end of the input skips.
fn ask() -> Result<Decision, SessionError> {
    let failed = |error: io::Error| {
        SessionError::new(ErrorKind::Failed, format!("the terminal cannot be read: {error}"))
    };
    loop {
        let question = "Accept the new result as the case? [a]ccept, [r]eject, [s]kip";
        let typed = answer(question, &mut io::stdin().lock(), &mut anstream::stderr()).map_err(failed)?;
        match typed.map(|typed| typed.to_lowercase()).as_deref() {
            Some("a" | "accept") => return Ok(Decision::Accept),
            Some("r" | "reject") => return Ok(Decision::Reject),
            Some("s" | "skip") | None => return Ok(Decision::Skip),
            Some(_) => {}
        }
    }
}

/// Replaces a file in one step, with its permissions.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(fs::metadata(file)?.permissions())?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

impl Counts {
    fn end(self, strict: bool) -> Result<Exit, SessionError> {
        let Self { same, incomplete, accepted, rejected, skipped, failed } = self;
        let parts = [
            (same, "same"),
            (incomplete, "incomplete"),
            (accepted, "accepted"),
            (rejected, "rejected"),
            (skipped, "skipped"),
            (failed, "failed"),
        ];
        let all: usize = parts.iter().map(|(n, _)| n).sum();
        let parts = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let s = if all == 1 { "" } else { "s" };
        print(&format!("{all} thread{s}: {}\n", parts.collect::<Vec<_>>().join(", ")))?;
        match (rejected + skipped, failed) {
            (0, 0) if strict && incomplete > 0 => Err(incomplete_failure(incomplete)),
            (0, 0) => Ok(Exit::Ok),
            (0, _) => Ok(Exit::Failed),
            _ => Ok(Exit::Diverged),
        }
    }
}
