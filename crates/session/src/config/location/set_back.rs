//! Threads that were set back since the user's last run: their comparison with their [`Anchor`].
//!
//! Start at [`Location::check_anchor`].

use superstep::{
    CheckpointId, Checkpointer, History, ThreadId,
    checkpoint::{CheckpointError, CheckpointMeta},
};

use crate::{
    config::notes::Note,
    config::{
        anchor::{Anchor, Compared},
        location::{Location, is_unreadable},
        trust::Decided,
    },
    error::{ErrorKind, SessionError},
};

impl Location {
    /// Rejects a thread that is neither as the user's last run left it nor newer. With `trust` it is accepted as it is; the note says
    /// that this cannot be stored.
    ///
    /// # Errors
    /// The thread was set back, replaced or deleted by another program.
    pub(crate) async fn check_anchor(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        trust: bool,
    ) -> Result<Option<Note>, SessionError> {
        let decided = self.decided(thread)?;
        match self.set_back(store, thread, &decided).await? {
            None => Ok(None),
            Some(_) if trust => match anchor(store, thread, &decided).await {
                Err(SessionError { kind: ErrorKind::Failed, message }) => Ok(Some(Note::always(message))),
                accepted => accepted.map(|()| None),
            },
            Some(what) => {
                let message =
                    format!("{what}; restore it, or repeat the command with `--trust` to accept it as it is");
                Err(SessionError::new(ErrorKind::Database, message))
            }
        }
    }

    /// Returns a note if the thread is neither as the user's last run left it nor newer.
    pub async fn set_back_note(&self, store: &dyn Checkpointer, thread: &ThreadId) -> Option<Note> {
        let found = match self.decided(thread) {
            Ok(decided) => self.set_back(store, thread, &decided).await,
            Err(failure) => Err(failure),
        };
        let text = match found {
            Ok(None) => return None,
            Ok(Some(what)) => {
                format!("{what}; accept it as it is with `{}`", self.command("db", &["check", "--trust"]))
            }
            Err(failure) => failure.message,
        };
        Some(Note::always(text))
    }

    /// Stores the anchor of a thread at the end of a run, unless the run was refused. The run does not fail if it cannot be stored.
    pub async fn anchor<T>(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        ended: &Result<T, SessionError>,
    ) {
        if let Err(SessionError {
            kind: ErrorKind::Thread | ErrorKind::Unknown | ErrorKind::Invalid, ..
        }) = ended
        {
            return;
        }
        let stored = match self.decided(thread) {
            Ok(decided) => anchor(store, thread, &decided).await,
            Err(failure) => Err(failure),
        };
        if let Err(SessionError { message, .. }) = stored {
            tracing::warn!(%thread, error = message, "the newest checkpoint of the thread cannot be recorded");
        }
    }

    /// Returns the threads that are not as the user's last runs left them or newer, with a description of each. With `trust` they
    /// are accepted as they are.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn all_set_back(
        &self,
        store: &dyn Checkpointer,
        trust: bool,
    ) -> Result<Vec<(ThreadId, String)>, SessionError> {
        let mut found = Vec::new();
        for thread in Decided::anchored(self.db())? {
            let decided = self.decided(&thread)?;
            if let Some(what) = self.set_back(store, &thread, &decided).await? {
                if trust {
                    anchor(store, &thread, &decided).await?;
                }
                found.push((thread, what));
            }
        }
        Ok(found)
    }

    /// Describes the difference of a thread from its anchor, if there is one that no run, update, prune or fork makes.
    async fn set_back(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        decided: &Decided,
    ) -> Result<Option<String>, SessionError> {
        let Some((anchor, is_same_file)) = decided.anchor() else { return Ok(None) };
        let at = anchor.checkpoint;
        let head = newest(store, thread, None).await;
        let found = newest(store, thread, Some(CheckpointId(at.0.saturating_add(1)))).await;
        let compared = match (head, found) {
            // Damage is reported by what reads the thread.
            (Err(error), _) | (_, Err(error)) if is_unreadable(&error) => return Ok(None),
            (head, found) => anchor.compare(head?.as_ref(), found?.as_ref()),
        };
        let what = match compared {
            Compared::Same => return Ok(None),
            // The user has begun anew with another file.
            Compared::Missing | Compared::Other if !is_same_file => return Ok(None),
            Compared::Missing => {
                "is missing: another program deleted it, or the database was set back".to_owned()
            }
            Compared::Other => "was replaced: another program deleted it, and began another one".to_owned(),
            Compared::Shorter(head) => format!("was set back: its newest checkpoint is {head}"),
            Compared::Changed => "was changed: that checkpoint is another one now".to_owned(),
        };
        let db = self.db();
        Ok(Some(format!("thread `{thread}`, which your last run left at checkpoint {at} in `{db}`, {what}")))
    }
}

/// Stores the anchor of a thread; none if the thread is not there.
async fn anchor(store: &dyn Checkpointer, thread: &ThreadId, decided: &Decided) -> Result<(), SessionError> {
    let mut head = newest(store, thread, None).await?;
    let known =
        decided.anchor().map_or(Some(None), |(known, is_same_file)| is_same_file.then_some(Some(known)));
    if known == Some(head.as_ref().map(Anchor::of)) {
        return Ok(());
    }
    store.sync().await?;
    loop {
        let known = head.as_ref().map(Anchor::of);
        decided.set_anchor(known.clone())?;
        // A thread that was deleted meanwhile has none.
        head = newest(store, thread, None).await?;
        let is_same =
            |known: &Anchor| head.as_ref().is_some_and(|head| Anchor::of(head).thread == known.thread);
        if known.as_ref().is_none_or(is_same) {
            return Ok(());
        }
    }
}

async fn newest(
    store: &dyn Checkpointer,
    thread: &ThreadId,
    before: Option<CheckpointId>,
) -> Result<Option<CheckpointMeta>, CheckpointError> {
    let range = History { limit: Some(1), before, ..History::default() };
    Ok(store.history(thread, range).await?.into_iter().next())
}
