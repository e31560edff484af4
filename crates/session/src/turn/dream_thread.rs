//! Threads of dreams: what the commands refuse and report about them.

use std::{fs, path::Path};

use superstep::{
    ThreadId,
    memory::{DreamError, Dreams, HistoryFiles},
};

use crate::{
    config::location::Location,
    config::notes::Note,
    error::{ErrorKind, SessionError, kind_of},
};

/// The folder of earlier versions' histories, under the tools' folder. It may have come with that folder from
/// an untrusted source.
const EARLIER_HISTORY: &str = ".superstep/history";

/// Returns a history for graphs that are only inspected.
pub(crate) fn placeholder_history(cwd: &Path) -> Result<HistoryFiles, SessionError> {
    HistoryFiles::new(cwd, EARLIER_HISTORY).map_err(|cause| SessionError::unusable_folder(cwd, &cause))
}

/// Returns the note that turns stored by an earlier version in this folder are not consolidated, if there are any.
pub fn note_earlier(cwd: &Path) -> Option<Note> {
    fs::symlink_metadata(cwd.join(EARLIER_HISTORY)).ok().map(|_| {
        let note = format!(
            "`{EARLIER_HISTORY}` of this folder is not read, because it may come from someone else; turns are now stored in your state \
             folder: move the folders of its users there if you wrote them, or remove it"
        );
        Note::hint(&["history", &cwd.to_string_lossy()], note)
    })
}

/// Rejects threads of dreams for the agent, which has more tools than a dream may use.
pub fn refuse(location: &Location, thread: &ThreadId) -> Result<(), SessionError> {
    if !Dreams::is_thread(thread) {
        return Ok(());
    }
    let user = Dreams::user_of(thread);
    let dream = location.command("dream", &["--user", user.as_deref().unwrap_or("NAME")]);
    Err(SessionError::new(
        ErrorKind::Thread,
        format!("thread `{thread}` belongs to dreams; resume it with `{dream}`"),
    ))
}

pub fn failed(error: DreamError) -> SessionError {
    let exit = match &error {
        DreamError::Agent(error) => kind_of(error),
        DreamError::Files { .. } => ErrorKind::Database,
        DreamError::OneFolder => ErrorKind::Invalid,
        _ => ErrorKind::Failed,
    };
    match error {
        DreamError::Run(error) => error.into(),
        error => SessionError::caused(exit, &error),
    }
}
