//! The inbox of a thread, which accepts items during a run.
//!
//! Start at [`Thread::post`](crate::Thread::post).

use serde_json::Value;
use superstep_checkpoint::CheckpointError;
pub(crate) use superstep_checkpoint::internal::own::{ITEM, inbox_of};

use crate::{CheckpointId, Checkpointer, History, ThreadId};

/// An item of a thread's inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Posted {
    /// The number of the item: the first of a thread is 1, and later ones have greater numbers.
    pub number: u64,
    /// The item.
    pub item: Value,
}

/// The maximum number of attempts of a post after conflicts with others.
pub(crate) const MAX_ATTEMPTS: usize = 100;

/// The number of items per read.
const PAGE: usize = 50;

pub(crate) async fn read(
    checkpointer: &dyn Checkpointer,
    inbox: &ThreadId,
    after: u64,
) -> Result<Vec<Posted>, CheckpointError> {
    let (mut found, mut before): (Vec<Posted>, Option<CheckpointId>) = (Vec::new(), None);
    loop {
        let page = History { limit: Some(PAGE), before, ..History::default() };
        let page = checkpointer.history(inbox, page).await?;
        before = page.last().map(|meta| meta.id);
        let is_last = page.len() < PAGE || before.is_none_or(|oldest| oldest.0 <= after);
        let new = page.into_iter().filter(|meta| meta.id.0 > after);
        found.extend(new.map(|mut meta| Posted {
            number: meta.id.0,
            item: meta.metadata.remove(ITEM).unwrap_or_default(),
        }));
        if is_last {
            found.reverse();
            return Ok(found);
        }
    }
}
