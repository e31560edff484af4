//! State graphs: typed state, nodes, edges, checkpoints, and the tokio driver that runs them.

extern crate self as superstep_graph;

mod background;
mod barrier;
mod builder;
mod by_id;
mod cache;
mod call;
mod changed_question;
mod channel;
mod checkpoint;
mod checkpoint_error;
mod clock;
mod command;
mod commit;
mod compiled;
mod config;
mod context;
mod cx;
mod discard;
mod drain;
mod draw;
mod durability;
mod error;
mod event;
mod evolve;
mod failure;
mod fingerprint;
mod fixed;
mod flat_drop;
mod flatten;
mod history;
mod hold;
mod ids;
mod inbox;
mod interrupt;
mod json;
mod json_state;
mod later;
mod load;
mod log;
mod memories;
mod memory;
mod namespace;
mod node;
mod node_error;
mod once;
mod origin;
mod own_task;
mod owner;
mod packed;
mod panicked;
mod reducer;
mod refused;
mod replay;
mod retries;
mod route;
mod run;
mod state;
pub mod store;
mod stream;
mod subgraph;
mod tape;
mod task;
mod threads;
mod timeout;
mod timers;
mod tokio_clock;
mod update;
mod view;

pub use barrier::{Arrive, Arrived, Barrier};
pub use builder::{END, NodeRef, RoutingRef, START, StateGraph, WorkerRef};
pub use by_id::{Always, ById, HasId, IdOf, Merge, Merges, OwnId, UnknownId};
pub use cache::CachePolicy;
pub use call::{CallError, Persistence, Returned, Seen};
pub use channel::{Channel, ChannelValue, Migrate, Stored};
pub use checkpoint::{Checkpointer, Lease};
pub use checkpoint_error::CheckpointError;
pub use clock::{Clock, SystemClock};
pub use command::{Command, NoRoute, RoutingOutput};
pub use commit::{AppliedTask, CheckpointMeta, Commit, GraphId, Loaded, Source};
pub use compiled::{CompiledGraph, Outcome, StateSnapshot, Status, TaskSnapshot};
pub use config::{Breakpoints, OnUnfinished, RunConfig};
pub use cx::Cx;
pub use discard::Discarded;
pub use drain::Drain;
pub use durability::Durability;
pub use error::{CompileError, RunError, chain};
pub use event::{DebugKind, Event};
pub use failure::{
    FailureKind, Interrupt, NodeFailure, Question, RecordedTarget, Replaced, TaskKey, TaskRecord, Within,
};
pub use fingerprint::fingerprint;
pub use flatten::Flattens;
pub use history::{History, Keep, Prune};
pub use ids::{CheckpointId, ThreadId};
pub use inbox::Posted;
pub use interrupt::{Answers, ChangedQuestion};
pub use json::MAX_DEPTH;
pub use json_state::{BadChannels, BadUpdate, JsonChannel, JsonChannels, JsonReducer, JsonState, JsonUpdate};
pub use log::Log;
pub use memory::MemoryCheckpointer;
pub use namespace::{Namespace, Segment};
pub use node::{NodeOptions, NodeOutput, Routes};
pub use node_error::{Fatal, NodeError};
pub use panicked::Panicked;
pub use reducer::{Append, Ephemeral, LastValue, Max, MergeById, ReduceError, Reducer, Sum, Topic, Union};
pub use replay::{At, Divergence, Replay, ReplayError, Replayed};
pub use retries::Retries;
pub use route::Route;
pub use state::{FoldError, State, Update, WriteError, reduce};
pub use store::{MemoryStore, NoStore, Store, StoreError, StoreOptions};
pub use stream::{MessageKind, RunStream, StreamMode, Streaming};
pub use superstep_engine::{
    ArrowKind, ChannelSet, Control, Drawing, DrawnArrow, DrawnKind, DrawnNode, EngineError, Level, Lint,
    NodeName, OnCancel, Problem, ProblemKind, RetryPolicy, Topology,
};
pub use superstep_macros::{Input, Route, State, View};
pub use timeout::{TimedOut, TimeoutKind};
pub use timers::NoTimers;
pub use tokio_clock::TokioClock;
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
