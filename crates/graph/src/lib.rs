//! State graphs: typed state, nodes, edges, checkpoints, and the tokio driver that runs them.

extern crate self as superstep_graph;

mod by_id;
mod checkpoint;
mod log;
mod memory;
mod reducer;
mod route;
mod state;

pub use by_id::{Always, ById, HasId, Merge, Merges, UnknownId};
pub use checkpoint::{
    AppliedTask, ChannelValue, CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Commit, History, Lease,
    Loaded, Source, TaskKey, TaskRecord, ThreadId,
};
pub use log::Log;
pub use memory::MemoryCheckpointer;
pub use reducer::{Append, Ephemeral, LastValue, Max, MergeById, ReduceError, Reducer, Sum, Union};
pub use route::Route;
pub use state::{Channel, FoldError, State, Update, reduce};
pub use superstep_engine::{Control, END, NodeName, OnCancel, RetryPolicy, START};
pub use superstep_macros::{Route, State};

/// What the derives expand to. Not for other use.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use serde_json;
    pub use superstep_engine::ChannelSet;

    pub use crate::state::{Cleared, some};
}
