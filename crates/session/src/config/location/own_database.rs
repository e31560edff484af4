//! The database of a program with graphs of its own.
//!
//! Its threads are inputs to the program's nodes: a database that someone else made could name any pending node with any
//! state, such as the node behind an approval. Nodes therefore run on stored threads only if the user's program created
//! the database on this machine, or the user trusts it. A thread that was imported from a file is trusted by itself.

use std::sync::Arc;

#[cfg(feature = "postgres")]
use superstep::postgres::PostgresOptions;
use superstep::{Checkpointer, ThreadId, checkpoint::CheckpointError};

#[cfg(feature = "postgres")]
use crate::config::encryption;
use crate::{
    config::{location::Location, notes::Note, settings::StoredSettings, trust::Decided},
    error::SessionError,
};

/// The name of the record about the whole database, which no thread has.
const WHOLE: &str = "";

/// The trust of the user in a thread and its database, which is not stored yet.
#[derive(Default)]
pub struct Trusted {
    decided: Vec<Arc<Decided>>,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

impl Trusted {
    fn of(decided: Vec<Arc<Decided>>) -> Self {
        Self { decided, notes: Vec::new() }
    }

    /// Stores it, because the run has begun. A refused run trusts nothing.
    ///
    /// # Errors
    /// The file is damaged, or writable by others.
    pub fn begins_run(&self) -> Result<(), SessionError> {
        self.decided.iter().try_for_each(|decided| decided.begins_run())
    }
}

impl Location {
    /// Opens the database to run nodes, and creates it if absent. With `trust` it is the user's own once the run has begun.
    ///
    /// # Errors
    /// Those of [`check_own`](Self::check_own) and [`check_anchor`](Self::check_anchor) for the thread to run.
    pub async fn open_to_run(
        &self,
        thread: Option<&ThreadId>,
        trust: bool,
    ) -> Result<(Arc<dyn Checkpointer>, Trusted), SessionError> {
        let (store, is_new) = self.open_or_create()?;
        if is_new {
            self.own()?.begins_run()?;
        }
        let trusted = match thread {
            Some(thread) => {
                let mut trusted = self.check_own(&*store, thread, trust).await?;
                trusted.notes.extend(self.check_anchor(&*store, thread, trust).await?);
                trusted
            }
            None if trust => Trusted::of(vec![self.own()?]),
            None => Trusted::default(),
        };
        Ok((store, trusted))
    }

    /// Opens the database like [`open_to_run`](Self::open_to_run), but with `trust` it is the user's own at once.
    ///
    /// # Errors
    /// Those of [`check_own`](Self::check_own) for the thread.
    pub async fn open_own(
        &self,
        thread: Option<&ThreadId>,
        trust: bool,
    ) -> Result<Arc<dyn Checkpointer>, SessionError> {
        let (store, trusted) = self.open_to_run(thread, trust).await?;
        trusted.begins_run()?;
        Ok(store)
    }

    /// Opens the database of a worker, which runs any of its threads, and creates it if absent.
    ///
    /// # Errors
    /// The database is not known to be the user's own, and not trusted.
    pub async fn open_to_work(&self, trust: bool) -> Result<Arc<dyn Checkpointer>, SessionError> {
        let store = self.open_own(None, trust).await?;
        if self.is_own()? {
            return Ok(store);
        }
        let db = self.db();
        Err(SessionError::usage(format!(
            "this program did not create the database `{db}` on this machine, so its jobs and threads may come from someone else; \
             repeat the command with `--trust` to run them"
        )))
    }

    /// Returns the options of the server that has the jobs.
    ///
    /// # Errors
    /// The database is a file.
    #[cfg(feature = "postgres")]
    pub fn queue(&self) -> Result<PostgresOptions, SessionError> {
        self.server_options().cloned().ok_or_else(|| {
            let named =
                if self.has_own_db() { format!(", and `{}` is a file", self.db()) } else { String::new() };
            SessionError::usage(format!(
                "jobs need a PostgreSQL database{named}; name its URL, `postgres://...`, with `--db` or the variable `SUPERSTEP_DB`"
            ))
        })
    }

    /// Returns the options of the server for jobs with inputs or answers.
    ///
    /// # Errors
    /// The database is a file, or encryption is required.
    #[cfg(feature = "postgres")]
    pub fn queue_of_inputs(&self) -> Result<PostgresOptions, SessionError> {
        let queue = self.queue()?;
        encryption::refuse_readable("the inputs and answers of jobs are", "run the thread without a job")?;
        Ok(queue)
    }

    /// Rejects a stored thread that was imported, or of a database that is not known to be the user's own. With `trust` both are
    /// once the result is stored.
    ///
    /// # Errors
    /// The thread is there, and either is not known to be the user's own.
    pub async fn check_own(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        trust: bool,
    ) -> Result<Trusted, SessionError> {
        let decided = self.decided(thread)?;
        if trust {
            decided.trust();
            return Ok(Trusted::of(vec![decided, self.own()?]));
        }
        match store.load(thread, None).await? {
            Some(_) => self.check_stored(&decided, thread),
            None if store.is_stored(thread).await? => {
                let children = store.children(thread).await?;
                Err(CheckpointError::Leftovers { thread: thread.clone(), children }.into())
            }
            // An import that failed may have left its mark.
            None => {
                decided.trust();
                return Ok(Trusted::of(vec![decided]));
            }
        }?;
        Ok(Trusted::default())
    }

    /// Rejects the thread of a job like [`check_own`](Self::check_own), but decides nothing: the thread may be about to be imported.
    ///
    /// # Errors
    /// The thread is not known to be the user's own.
    pub fn check_job(&self, thread: &ThreadId) -> Result<(), SessionError> {
        self.check_stored(&*self.decided(thread)?, thread)
    }

    fn check_stored(&self, decided: &Decided, thread: &ThreadId) -> Result<(), SessionError> {
        let why = if decided.is_imported() {
            format!("thread `{thread}` was imported from a file, so it")
        } else if !self.is_own()? {
            let db = self.db();
            format!("this program did not create the database `{db}` on this machine, so thread `{thread}`")
        } else {
            return Ok(());
        };
        let state = self.command("state", &[thread.as_str()]);
        Err(SessionError::usage(format!(
            "{why} may come from someone else; inspect it with `{state}`, and repeat the command with `--trust` to run it"
        )))
    }

    /// Records that a thread that is about to be stored is from a file.
    ///
    /// # Errors
    /// It cannot be stored, and the database is the user's own, whose threads run otherwise.
    pub fn mark_imported(&self, thread: &ThreadId) -> Result<(), SessionError> {
        match self.decided(thread)?.imported() {
            Err(failure) if self.is_own()? => Err(failure),
            _ => Ok(()),
        }
    }

    /// Records that the copy that is about to be made of an imported thread is imported.
    ///
    /// # Errors
    /// Those of [`mark_imported`](Self::mark_imported).
    pub async fn mark_copy(
        &self,
        store: &dyn Checkpointer,
        from: &ThreadId,
        to: &ThreadId,
    ) -> Result<(), SessionError> {
        if self.decided(from)?.is_imported() && !store.is_stored(to).await? {
            self.mark_imported(to)?;
        }
        Ok(())
    }

    fn is_own(&self) -> Result<bool, SessionError> {
        Ok(Decided::about(self.db(), WHOLE)?.knows(&StoredSettings::default()))
    }

    /// Returns the record that the database is the user's own, which is not stored yet.
    fn own(&self) -> Result<Arc<Decided>, SessionError> {
        let whole = Decided::about(self.db(), WHOLE)?;
        whole.runs_with(&StoredSettings::default());
        Ok(whole)
    }
}
