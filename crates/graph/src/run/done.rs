//! The finished tasks of a superstep that is not over.
//!
//! Start at [`FinishedTask`].

use superstep_engine::NodeIndex;
use superstep_state::{RawJson, StoredUpdate};

use crate::State;

/// A finished task of an incomplete superstep.
pub(super) struct FinishedTask<S: State> {
    pub(super) node: NodeIndex,
    /// `None` when it is folded, which happens early for a task that is alone in its superstep.
    pub(super) update: Option<S::Update>,
    /// The update as it is stored; `None` without a checkpointer.
    pub(super) stored: Option<StoredUpdate>,
    /// The items that it sends to workers.
    pub(super) items: Vec<RawJson>,
    pub(super) recorded: bool,
}
