//! Where the whole of a tool result goes that is too long for the conversation.

mod files;

use std::{future::Future, io, path::Path, pin::Pin, sync::Arc};

use superstep_graph::Cx;

use crate::{AgentDeps, events};

pub use files::SpillFiles;

/// Keeps texts that were cut, where the agent can read them.
///
/// A text that was kept stays as it is: a call that is made again after a crash does not change what another one left.
pub trait Spill: Send + Sync {
    /// Keeps a text, and says where, in words that the model can use: the path for a tool that reads files.
    fn keep<'a>(&'a self, text: SpillText<'a>) -> SpillFuture<'a>;

    /// The same for another folder, which takes the place of this one in a turn that works there; `None` if it uses no folder.
    ///
    /// # Errors    The folder cannot be used; then no call of the round runs.
    fn in_folder(&self, folder: &Path) -> io::Result<Option<Arc<dyn Spill>>> {
        let _ = folder;
        Ok(None)
    }
}

/// A text that is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillText<'a> {
    /// The thread of the run; `None` without a checkpointer.
    pub thread: Option<&'a str>,
    /// The id of the call whose result it is, as the provider wrote it: any text, and not unique.
    pub call_id: &'a str,
    /// The whole result.
    pub text: &'a str,
}

/// The future of [`Spill::keep`].
pub type SpillFuture<'a> = Pin<Box<dyn Future<Output = Result<String, SpillError>> + Send + 'a>>;

/// A text that could not be kept. Never ends a run: the result is cut all the same, and an event says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpillError(pub String);

/// A tool result as the model reads it: cut if it is too long, and then kept as a whole if the configuration says so; and where.
pub(crate) async fn shorten(
    deps: &AgentDeps,
    cx: &Cx,
    call_id: &str,
    result: String,
) -> (String, Option<String>) {
    let Some(truncate) = &deps.config.truncate else { return (result, None) };
    let Some(cut) = truncate.cut(&result) else { return (result, None) };
    let (Some(spill), Some(marker)) = (&deps.spill, &truncate.spill) else {
        return (cut.apply(&result, &truncate.marker), None);
    };
    let thread = cx.thread().map(|thread| thread.as_str());
    match spill.keep(SpillText { thread, call_id, text: &result }).await {
        Ok(path) => {
            events::spilled(cx, call_id, &path, result.chars().count());
            (cut.apply(&result, &marker.replace("{path}", &path)), Some(path))
        }
        Err(error) => {
            events::spill_failed(cx, call_id, &error.to_string());
            (cut.apply(&result, &truncate.marker), None)
        }
    }
}
