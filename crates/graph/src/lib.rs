//! State graphs: typed state, nodes, edges, checkpoints, and the tokio driver that runs them.
//!
//! The root exports what most programs name; a module exports the rest of its subject.

extern crate self as superstep_graph;

mod api;
mod builder;
mod changed_question;
mod compiled;
mod flat_drop;
mod journal;
pub mod node;
mod own_task;
mod run;
mod run_error;
pub mod stream;
mod timers;

pub use api::thread::Thread;
pub use builder::error::CompileError;
pub use builder::state_graph::StateGraph;
pub use compiled::graph::CompiledGraph;
pub use journal::interrupts::Answers;
pub use node::command::Command;
pub use node::cx::Cx;
pub use node::error::{Fatal, NodeError};
pub use node::options::NodeOptions;
pub use node::refs::{END, NodeRef, RoutingRef, START, WorkerRef};
pub use node::retries::Retries;
pub use node::routing::Route;
pub use node::run_options::{Durability, OnExisting, OnUnfinished, RunOptions};
pub use run_error::RunError;
pub use stream::event::Event;
pub use stream::modes::{StreamMode, Streaming};
pub use stream::outcome::{Outcome, Status};
pub use stream::run_stream::RunStream;
pub use superstep_checkpoint::{
    CheckpointId, Checkpointer, FailureKind, History, Interrupt, MemoryCheckpointer, NodeFailure, Question,
    ThreadId,
    store::{MemoryStore, Store},
};
pub use superstep_engine::RetryPolicy;
pub use superstep_macros::{Input, Route, State, View};
pub use superstep_state::{JsonChannels, JsonState, JsonUpdate, Log, ReduceError, Reducer, State, View};

/// Channels, the built-in reducers, updates, and states that are JSON.
pub mod state {
    pub use superstep_engine::ChannelSet;
    pub use superstep_state::{
        Always, AnyValue, Append, BadChannels, BadUpdate, ById, Channel, ChannelValue, Ephemeral,
        Fingerprint, Flattens, FoldError, HasId, IdOf, Items, JsonChannel, JsonReducer, LastValue, MAX_DEPTH,
        Max, Merge, MergeById, Merges, Migrate, OwnId, RawJson, Snapshot, Stored, StoredUpdate, Sum, Topic,
        Union, UnknownId, Update, WriteError, fingerprint, reduce,
    };

    pub use crate::node::barrier::{Arrive, Arrived, Barrier};
}

/// Graphs that a node calls, and their results.
pub mod call {
    pub use crate::run::{
        nested_call::Seen,
        nested_run::{CallError, GraphCall, Returned},
    };
}

/// Workflows that are one function.
pub mod functional {
    pub use crate::api::functional::{Workflow, WorkflowThread};
}

/// The contract of [checkpointers](crate::Checkpointer): commits, records of tasks, and the pruning of threads.
pub mod checkpoint {
    pub use superstep_checkpoint::{
        AppliedTask, CheckpointError, CheckpointMeta, Commit, GraphId, HeadState, LazyFingerprints, Lease,
        Loaded, LoadedHead, Prune, RecordedTarget, Replaced, Retention, Segment, Source, Storage,
        SubgraphPath, TaskKey, TaskRecord, Within, text,
    };
}

/// Items that outlive their threads: namespaces, searches, and the contract of [stores](crate::Store).
pub mod store {
    pub use superstep_checkpoint::store::{
        Answer, Batch, Compare, Embed, EmbedError, Filter, Found, Index, Item, ListNamespaces,
        MAX_CANDIDATES, Namespace, NewItem, NoStore, Operation, PutOptions, QUERY_WORDS, Query,
        RESERVED_LABEL, ReadyQuery, Scope, Search, Step, StoreError, StoreOptions, Ttl, Vector, Words, bm25,
        finding, having, terms, words,
    };
}

/// The state, history and external updates of a thread between its runs.
pub mod thread {
    pub use crate::api::{
        history::ThreadHistory,
        state::{StateSnapshot, TaskSnapshot},
        subgraph::SubgraphThread,
    };
    pub use crate::{
        node::drain::Drain,
        run::{external_update::AsNode, folded_states::StateMismatch},
    };
}

/// Runs that begin at one node with a given state, and report what each task did; and observers of the calls of nodes. Node tests
/// and simulators are made of them.
pub mod probe {
    pub use crate::node::call_observer::{CxCall, CxObserver};
    pub use crate::run::probe::{AfterFailure, Probe, Probed, ProbedTask};
}

/// Replays of stored threads, and their first divergence.
pub mod replay {
    pub use crate::{
        api::replay::{Replay, ReplayError, Replayed},
        journal::divergence::{At, Change, Divergence, DivergenceKind, text_diff},
        node::cx::recorded::ComparedTask,
    };
}

/// The clocks of runs.
pub mod clock {
    pub use superstep_checkpoint::{Clock, SystemClock};

    pub use crate::timers::{NoTimers, TokioClock};
}

/// A compiled graph as data: its topology, its problems and lints, and the control record of a run.
pub mod topology {
    pub use superstep_engine::{Control, Level, Lint, Problem, ProblemKind, Topology, Withheld};
}

/// Drawings of graphs.
pub mod drawing {
    pub use superstep_engine::petgraph;
    pub use superstep_engine::{ArrowKind, Drawing, DrawnArrow, DrawnKind, DrawnNode};
}

/// Causes of errors, and the text of an error with its causes.
pub mod error {
    pub use superstep_engine::EngineError;
    pub use superstep_state::{Panicked, chain};

    pub use crate::{
        changed_question::ChangedQuestion,
        node::{
            command::NoRoute,
            timeout::{TimedOut, TimeoutKind},
        },
    };
}

/// Conversions of arguments.
pub mod convert {
    pub use superstep_checkpoint::IntoShared;
    pub use superstep_state::{IntoOption, IntoUpdate};
}

/// Support for code generated by the derives, and names shared with the other crates of superstep. Not for other use.
#[doc(hidden)]
pub mod __private {
    pub use serde;
    pub use serde_json;
    pub use superstep_engine::{ChannelSet, START};
    pub use superstep_state::{debug_by_chain, internal::keys};

    pub use superstep_state::__private::{
        Cleared, Comparable, Described, First, Fixed, Incomparable, Later, Pair, Problem, Schema,
        SchemaGenerator, Shape, Undescribed, deserialize, in_order, joined, read, serialize, write,
    };
}
