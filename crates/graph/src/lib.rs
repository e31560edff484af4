//! State graphs: typed state, nodes, edges, checkpoints, and the tokio driver that runs them.

extern crate self as superstep_graph;

mod barrier;
mod by_id;
mod channel;
mod fixed;
mod flatten;
mod later;
mod log;
mod reducer;
mod state;

mod background;
mod builder;
mod cache;
mod call;
mod clock;
mod command;
mod cx;
mod flat_drop;
mod inbox;
mod interrupt;
mod into_option;
mod node;
mod once;
mod origin;
mod own_task;
mod owner;
mod packed;
mod retries;
mod route;
mod shared;
mod tape;

mod compiled;
mod config;
mod context;
mod discard;
mod drain;
mod draw;
mod error;
mod event;
mod failure;
mod fingerprint;
mod node_error;
mod replay;
mod stream;

mod checkpoint;
mod checkpoint_error;
mod history;
mod memories;
mod memory;
mod namespace;
pub mod store;

mod durability;
mod evolve;
mod hold;
mod json;
mod json_state;
mod load;
mod refused;
mod run;
mod subgraph;
mod task;
mod thread;
mod threads;
mod timeout;
mod timers;
mod update;
mod view;

pub use barrier::{Arrive, Arrived, Barrier};
pub use builder::{END, NodeRef, RoutingRef, START, StateGraph, WorkerRef};
pub use by_id::{Always, ById, HasId, IdOf, Merge, Merges, OwnId, UnknownId};
pub use cache::CachePolicy;
pub use call::{CallError, Persistence, Returned, Seen};
pub use channel::{Channel, Migrate, Stored};
pub use checkpoint::{
    AppliedTask, ChannelValue, CheckpointId, CheckpointMeta, Checkpointer, Commit, Lease, Loaded,
    RecordedTarget, Source, TaskKey, TaskRecord, ThreadId,
};
pub use checkpoint_error::CheckpointError;
pub use clock::{Clock, SystemClock, TokioClock};
pub use command::{Command, NoRoute, RoutingOutput};
pub use compiled::{CompiledGraph, Outcome, StateSnapshot, Status, TaskSnapshot};
pub use config::{Breakpoints, OnUnfinished, RunConfig};
pub use cx::Cx;
pub use discard::Discarded;
pub use drain::Drain;
pub use durability::Durability;
pub use error::{CompileError, RunError, chain};
pub use event::{DebugKind, Event};
pub use failure::{FailureKind, NodeFailure};
pub use fingerprint::fingerprint;
pub use flatten::Flattens;
pub use history::{History, Keep, Prune};
pub use inbox::Posted;
pub use interrupt::{Answers, ChangedQuestion, Interrupt, Question, Replaced, Within};
pub use into_option::IntoOption;
pub use json::MAX_DEPTH;
pub use json_state::{BadChannels, BadUpdate, JsonChannel, JsonChannels, JsonReducer, JsonState, JsonUpdate};
pub use log::Log;
pub use memory::MemoryCheckpointer;
pub use namespace::{Namespace, Segment};
pub use node::{NodeOptions, NodeOutput, Routes};
pub use node_error::{Fatal, NodeError, Panicked};
pub use owner::GraphId;
pub use reducer::{Append, Ephemeral, LastValue, Max, MergeById, ReduceError, Reducer, Sum, Topic, Union};
pub use replay::{At, Divergence, Replay, ReplayError, Replayed};
pub use retries::Retries;
pub use route::Route;
pub use shared::IntoShared;
pub use state::{FoldError, State, Update, WriteError, reduce};
pub use store::{MemoryStore, NoStore, Store, StoreError, StoreOptions};
pub use stream::{MessageKind, RunStream, StreamMode, Streaming};
pub use superstep_engine::{
    ArrowKind, ChannelSet, Control, Drawing, DrawnArrow, DrawnKind, DrawnNode, EngineError, Level, Lint,
    NodeName, OnCancel, Problem, ProblemKind, RetryPolicy, Topology,
};
pub use superstep_macros::{Input, Route, State, View};
pub use thread::{Thread, ThreadHistory};
pub use timeout::{TimedOut, TimeoutKind};
pub use timers::NoTimers;
pub use update::AsNode;
pub use view::View;

/// What the derives expand to. Not for other use.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use serde_json;
    pub use superstep_engine::ChannelSet;

    pub use crate::{
        fixed::{Comparable, First, Fixed, Incomparable, Pair, deserialize, read, serialize, write},
        flatten::{Problem, in_order, joined},
        later::Later,
        state::Cleared,
    };
}
