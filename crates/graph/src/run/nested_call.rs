//! The call of a graph by a task of another one, and how it ends.
//!
//! Start at [`Call`].

use std::{any::Any, sync::Arc};

use superstep_checkpoint::SubgraphPath;
use superstep_state::internal::Made;

use crate::{
    RunError, State,
    compiled::graph::Inner,
    journal::{
        interrupts::{PendingAnswer, PendingQuestion, Refusal},
        memories::SubgraphPosition,
    },
    node::cx::RunScope,
    stream::emitter::NestedSink,
};

/// A progress report of a called graph, see [`GraphCall::watch`](crate::call::GraphCall::watch).
#[derive(Debug)]
#[non_exhaustive]
pub enum Seen<'a, T> {
    /// The state of the called graph: after each superstep, of which the first is its input, and on a resume after
    /// an interrupt or a crash.
    State(&'a T),
    /// The called graph does nothing more in this run: it waits for an external answer, or the run stops.
    Waits,
}

/// The observer of a called graph.
pub(crate) type Watch<T> = Arc<dyn Fn(Seen<'_, T>) + Send + Sync>;

/// A graph call of a task.
pub(crate) struct Call<T: State> {
    pub(crate) graph: Arc<Inner<T>>,
    /// The thread, if it outlives the calling tasks.
    pub(crate) own: Option<OwnThread>,
    pub(crate) input: T::Update,
    /// The state before the input.
    pub(crate) seed: Option<T>,
    /// All that was answered so far.
    pub(crate) answers: Vec<PendingAnswer>,
    /// The sink of its events, and its path there.
    pub(crate) events: Option<(Arc<dyn NestedSink>, SubgraphPath)>,
    /// The scope of the called graph's run, with its own position; `None` there if it is not stored.
    pub(crate) scope: RunScope,
    /// The observer of its progress.
    pub(crate) watch: Option<Watch<T>>,
}

/// A thread that outlives the task that calls.
pub(crate) enum OwnThread {
    /// The thread is found from the position of the caller.
    At(SubgraphPosition),
    /// The thread takes the input at its head.
    Head,
}

/// The end of a called graph.
pub(crate) enum Called<T: State> {
    Completed {
        state: T,
        /// The updates made in it, if it had a seed.
        made: Vec<T::Update>,
    },
    Failed {
        error: RunError,
        fatal: bool,
        /// The failure refuses the run.
        refusal: bool,
    },
    /// The observer ended the run.
    Halted,
    /// The graph waits for answers.
    Asks {
        /// The superstep of the interrupted tasks.
        step: i64,
        /// By slot.
        pending: Vec<(u32, PendingQuestion)>,
        /// The interrupt whose answer was rejected, and the reason.
        refused: Option<(String, Refusal)>,
    },
    /// The graph reached a breakpoint.
    Suspended,
    Cancelled,
    Drained,
    /// A node left it with this command for the caller.
    Left(Box<dyn Any + Send + Sync>),
}

/// Additional data of a nested run.
pub(super) struct NestedContext<S: State> {
    pub(super) answers: Vec<PendingAnswer>,
    /// The updates made so far, if it began with the caller's state.
    pub(super) made: Option<Made<S>>,
    pub(super) watch: Option<Watch<S>>,
    /// The command with which a node left the graph.
    pub(super) exit_command: Option<Box<dyn Any + Send + Sync>>,
    /// The interrupt whose answer was rejected.
    pub(super) rejected: Option<String>,
    /// `true` if no retry can help after the last failure of a task.
    pub(super) fatal: bool,
    /// `true` if the last failure refuses the run.
    pub(super) refusal: bool,
}

impl<S: State> NestedContext<S> {
    pub(super) fn new(answers: Vec<PendingAnswer>, made: Option<Made<S>>, watch: Option<Watch<S>>) -> Self {
        Self { answers, made, watch, exit_command: None, rejected: None, fatal: false, refusal: false }
    }
}
