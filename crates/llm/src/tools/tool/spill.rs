//! Storage of the full text of tool results too long for the conversation.

use std::{future::Future, io, path::Path, pin::Pin, sync::Arc};

/// Stores the full text of truncated results where the agent can read them.
///
/// A stored text never changes: a call repeated after a crash does not change the text of another one.
pub trait Spill: Send + Sync {
    /// Stores a text and returns its location in a form that the model can use: the path for a tool that
    /// reads files.
    fn keep<'a>(&'a self, text: SpillText<'a>) -> SpillFuture<'a>;

    /// Returns the same for another folder, used in a turn that works there; `None` if it has no folder.
    ///
    /// # Errors
    /// The folder is not usable; then no call of the round runs.
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Spill>>> {
        let _ = folder;
        Ok(None)
    }
}

/// A text to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillText<'a> {
    /// The thread of the run; `None` without a checkpointer.
    pub thread: Option<&'a str>,
    /// The id of the call with this result, as the provider wrote it: any text, and not unique.
    pub call_id: &'a str,
    /// The whole result.
    pub text: &'a str,
}

/// The future of [`Spill::keep`].
pub type SpillFuture<'a> = Pin<Box<dyn Future<Output = Result<String, SpillError>> + Send + 'a>>;

/// A text could not be stored. Never ends a run: the result is truncated anyway, and an event has the reason.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpillError(pub String);

crate::debug_by_chain!(SpillError);
