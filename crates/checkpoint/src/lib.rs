//! The contract of checkpointers and stores: ids, commits, records and histories; [`Checkpointer`] and
//! [`Store`](store::Store), and in-memory implementations of both.
//!
//! It does not depend on how a graph runs.
//!
//! Start at [`Checkpointer`].

mod checkpointer;
mod checksum;
mod clock;
mod commit;
mod error;
mod head_state;
mod heads;
mod history;
mod ids;
mod memory;
mod record;
mod shared;
pub mod store;
mod stored;
mod subgraph_path;
pub mod text;
mod trace;

pub use checkpointer::{Checkpointer, Lease, Storage};
pub use clock::{Clock, SystemClock};
pub use commit::{AppliedTask, CheckpointMeta, Commit, GraphId, LazyFingerprints, Loaded, Source};
pub use error::CheckpointError;
pub use head_state::{HeadState, LoadedHead};
pub use history::{History, Prune, Retention};
pub use ids::{CheckpointId, ThreadId};
pub use memory::MemoryCheckpointer;
pub use record::{
    FailureKind, Interrupt, NodeFailure, Question, RecordedTarget, Replaced, TaskKey, TaskRecord, Within,
};
pub use shared::IntoShared;
pub use subgraph_path::{Segment, SubgraphPath};

/// Items shared with the other crates of superstep. Not for other use.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        checkpointer::leftovers,
        checksum::{Cell, add_cell, row_sum},
        commit::own,
        commit::{Fingerprints, Superstep, WrongTask},
        heads::Heads,
        history::{has_input, input_ids, input_metadata},
        ids::SEPARATOR,
        store::hybrid::{candidates, fused},
        store::meaning::{vector_bytes, vector_of},
        store::scan::{Scanned, scan},
        store::words::{Candidate, best, ranked},
        trace::in_span,
    };

    /// The JSON columns of databases.
    pub mod stored {
        pub use crate::stored::*;
    }
}
