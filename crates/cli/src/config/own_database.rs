//! The database of a program with graphs of its own.
//!
//! Its threads are inputs to the program's nodes: a database that someone else made could name any pending node with any
//! state, such as the node behind an approval. Nodes therefore run on stored threads only if the user's program created
//! the database on this machine, or the user trusts it.

use std::sync::Arc;

use superstep::{Checkpointer, ThreadId};

use crate::{
    config::{location::Location, remembered::Remembered, trust::Decided},
    output::exit::Failure,
};

/// The name of the record about the whole database, which no thread has.
const WHOLE: &str = "";

impl Location {
    /// Opens the database to run nodes, and creates it if absent. With `trust` it is the user's own from then on.
    ///
    /// # Errors    Those of [`check_own`](Self::check_own) for the thread to run.
    pub(crate) async fn open_to_run(
        &self,
        thread: Option<&ThreadId>,
        trust: bool,
    ) -> Result<Arc<dyn Checkpointer>, Failure> {
        let is_new = !self.db().exists();
        let store = self.open()?;
        match thread {
            Some(thread) => self.check_own(&*store, thread, is_new || trust).await?,
            None if is_new || trust => self.record_own()?,
            None => {}
        }
        Ok(store)
    }

    /// Rejects a stored thread of a database that is not known to be the user's own. With `trust` it is from then on.
    ///
    /// # Errors    The database is not known, and has the thread.
    pub(crate) async fn check_own(
        &self,
        store: &dyn Checkpointer,
        thread: &ThreadId,
        trust: bool,
    ) -> Result<(), Failure> {
        if trust {
            return self.record_own();
        }
        let is_own = Decided::about(self.db(), WHOLE)?.knows(&Remembered::default());
        if is_own || store.load(thread, None).await?.is_none() {
            return Ok(());
        }
        let (db, state) = (self.db().display(), self.command("state", &[thread.as_str()]));
        Err(Failure::usage(format!(
            "this program did not create the database `{db}` on this machine, so thread `{thread}` may come from \
             someone else; inspect it with `{state}`, and repeat the command with `--trust` to run it"
        )))
    }

    fn record_own(&self) -> Result<(), Failure> {
        Decided::about(self.db(), WHOLE)?.runs_with(&Remembered::default())
    }
}
