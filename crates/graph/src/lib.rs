//! State graphs: typed state, nodes, edges, checkpoints, and the tokio driver that runs them.

extern crate self as superstep_graph;

mod background;
mod barrier;
mod builder;
mod cache;
mod call;
mod changed_question;
mod command;
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
mod flat_drop;
mod hold;
mod inbox;
mod interrupt;
mod load;
mod memories;
mod node;
mod node_error;
mod once;
mod origin;
mod own_task;
mod owner;
mod packed;
mod refused;
mod replay;
mod retries;
mod route;
mod run;
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
pub use cache::CachePolicy;
pub use call::{CallError, Persistence, Returned, Seen};
pub use command::{Command, NoRoute, RoutingOutput};
pub use compiled::{CompiledGraph, Outcome, StateSnapshot, Status, TaskSnapshot};
pub use config::{Breakpoints, OnUnfinished, RunConfig};
pub use cx::Cx;
pub use discard::Discarded;
pub use drain::Drain;
pub use durability::Durability;
pub use error::{CompileError, RunError, chain};
pub use event::{DebugKind, Event};
pub use inbox::Posted;
pub use interrupt::{Answers, ChangedQuestion};
pub use node::{NodeOptions, NodeOutput, Routes};
pub use node_error::{Fatal, NodeError};
pub use replay::{At, Divergence, Replay, ReplayError, Replayed};
pub use retries::Retries;
pub use route::Route;
pub use stream::{MessageKind, RunStream, StreamMode, Streaming};
pub use superstep_checkpoint::store;
pub use superstep_checkpoint::{
    AppliedTask, CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Clock, Commit, FailureKind,
    GraphId, History, Interrupt, Keep, Lease, Loaded, MemoryCheckpointer, MemoryStore, Namespace, NoStore,
    NodeFailure, Prune, Question, RecordedTarget, Replaced, Segment, Source, Store, StoreError, StoreOptions,
    SystemClock, TaskKey, TaskRecord, ThreadId, Within,
};
pub use superstep_engine::{
    ArrowKind, ChannelSet, Control, Drawing, DrawnArrow, DrawnKind, DrawnNode, EngineError, Level, Lint,
    NodeName, OnCancel, Problem, ProblemKind, RetryPolicy, Topology,
};
pub use superstep_macros::{Input, Route, State, View};
pub use superstep_state::{
    Always, Append, BadChannels, BadUpdate, ById, Channel, ChannelValue, Ephemeral, Flattens, FoldError,
    HasId, IdOf, IntoUpdate, JsonChannel, JsonChannels, JsonReducer, JsonState, JsonUpdate, LastValue, Log,
    MAX_DEPTH, Max, Merge, MergeById, Merges, Migrate, OwnId, Panicked, ReduceError, Reducer, State, Stored,
    Sum, Topic, Union, UnknownId, Update, View, WriteError, fingerprint, reduce,
};
pub use timeout::{TimedOut, TimeoutKind};
pub use timers::NoTimers;
pub use tokio_clock::TokioClock;
pub use update::AsNode;

/// What the derives expand to. Not for other use.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use serde_json;
    pub use superstep_engine::ChannelSet;

    pub use superstep_state::__private::{
        Cleared, Comparable, First, Fixed, Incomparable, Later, Pair, Problem, deserialize, in_order, joined,
        read, serialize, write,
    };
}
