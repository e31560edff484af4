//! State graphs: typed state, nodes, edges, checkpoints, and the tokio driver that runs them.

extern crate self as superstep_graph;

mod api;
mod builder;
mod changed_question;
mod compiled;
mod error;
mod flat_drop;
mod journal;
mod node;
mod own_task;
mod run;
mod stream;
mod timers;

pub use api::replay::{Replay, ReplayError, Replayed};
pub use api::state::{StateSnapshot, TaskSnapshot};
pub use api::thread::{Thread, ThreadHistory};
pub use builder::error::CompileError;
pub use builder::state_graph::StateGraph;
pub use changed_question::ChangedQuestion;
pub use compiled::graph::CompiledGraph;
pub use error::RunError;
pub use journal::divergence::{At, Divergence};
pub use journal::inbox::Posted;
pub use journal::interrupts::Answers;
pub use node::barrier::{Arrive, Arrived, Barrier};
pub use node::cache::CachePolicy;
pub use node::clock::TokioClock;
pub use node::command::{Command, NoRoute, RoutingOutput};
pub use node::cx::Cx;
pub use node::discarded::Discarded;
pub use node::drain::Drain;
pub use node::error::{Fatal, NodeError};
pub use node::options::{NodeOptions, Persistence};
pub use node::output::NodeOutput;
pub use node::refs::{END, NodeRef, RoutingRef, START, WorkerRef};
pub use node::retries::Retries;
pub use node::route::Route;
pub use node::routing::Routes;
pub use node::run_config::{Breakpoints, Durability, OnUnfinished, RunConfig};
pub use node::timeout::{TimedOut, TimeoutKind};
pub use run::external_update::AsNode;
pub use run::nested_run::{CallError, Returned, Seen};
pub use stream::event::{DebugKind, Event};
pub use stream::message_events::MessageKind;
pub use stream::modes::{StreamMode, Streaming};
pub use stream::outcome::{Outcome, Status};
pub use stream::run_stream::RunStream;
pub use superstep_checkpoint::store;
pub use superstep_checkpoint::{
    AppliedTask, CheckpointError, CheckpointId, CheckpointMeta, Checkpointer, Clock, Commit, FailureKind,
    GraphId, History, Interrupt, IntoShared, Keep, Lease, Loaded, MemoryCheckpointer, MemoryStore, Namespace,
    NoStore, NodeFailure, Prune, Question, RecordedTarget, Replaced, Segment, Source, Store, StoreError,
    StoreOptions, SystemClock, TaskKey, TaskRecord, ThreadId, Within, chain,
};
pub use superstep_engine::{
    ArrowKind, ChannelSet, Control, Drawing, DrawnArrow, DrawnKind, DrawnNode, EngineError, Level, Lint,
    NodeName, OnCancel, Problem, ProblemKind, RetryPolicy, Topology,
};
pub use superstep_macros::{Input, Route, State, View};
pub use superstep_state::{
    Always, Append, BadChannels, BadUpdate, ById, Channel, ChannelValue, Ephemeral, Flattens, FoldError,
    HasId, IdOf, IntoOption, IntoUpdate, JsonChannel, JsonChannels, JsonReducer, JsonState, JsonUpdate,
    LastValue, Log, MAX_DEPTH, Max, Merge, MergeById, Merges, Migrate, OwnId, Panicked, ReduceError, Reducer,
    State, Stored, Sum, Topic, Union, UnknownId, Update, View, WriteError, fingerprint, reduce,
};
pub use timers::NoTimers;

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
