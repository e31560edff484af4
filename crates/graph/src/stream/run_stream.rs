//! A run with a stream of its events.
//!
//! ```text
//!                 nodes ── Cx::emit ─┐
//! the run, its own task ─────────────┴─▶ Events ─▶ Buffer ─▶ RunStream ─▶ the consumer
//!           ▲                        (which modes)  (bounded)    │
//!           └───────────── dropped at once, if it is ────────────┘
//! ```
//!
//! Start at [`RunStream`].

use std::{
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::{FutureExt as _, Stream, future::BoxFuture};
use tokio::task::coop::consume_budget;

use super::{
    buffer::{Buffer, End},
    emitter::Events,
    modes::Streaming,
};
use crate::{Event, Outcome, RunError, State, own_task::OwnTask};

/// The events of a run, and at its end the outcome.
///
/// The run starts at the first poll, as a separate task on the current tokio runtime: it continues whether or
/// not its events are taken. Unread events wait in a buffer of [`Streaming::buffer`] events. If it is full,
/// the oldest event is dropped for each new one, and [`Event::Lagged`] replaces the dropped ones with their
/// number. Interrupts, discarded tasks and the outcome are never dropped. While its buffer is more than half
/// full, the run waits for the consumer, as long as that takes events. Events are therefore only lost if the
/// consumer takes none for ten seconds, or if a node emits more than half a buffer without waiting.
///
/// Dropping the stream cancels the run immediately and leaves the thread resumable. If the run is being
/// polled on another thread, the drop waits for up to ten seconds; after that the run ends by itself after the
/// poll.
///
/// # Panics
/// Polling it for the first time panics outside a tokio runtime.
///
/// # Example: events, and then the outcome
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use futures::StreamExt;
/// use superstep_graph::{END, Event, START, State, StateGraph, StreamMode};
///
/// #[derive(State, Clone, Debug, Default)]
/// struct Count {
///     n: u32,
/// }
///
/// let mut graph = StateGraph::<Count>::new("count");
/// let more = graph.add_node("more", async |state: Count, _| Count::update().n(state.n + 1));
/// graph.add_edge(START, more);
/// graph.add_edge(more, END);
/// let graph = graph.compile()?;
///
/// let mut run = graph.stream(Count::update().n(1), &[StreamMode::Updates]);
/// while let Some(event) = run.next().await {
///     let Event::Update { node, update, .. } = event else { continue };
///     assert_eq!((node.as_str(), update.n), ("more", Some(2)));
/// }
/// assert_eq!(run.outcome().await?.state.n, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the run begins when the stream is polled first: take its events, or its `outcome`"]
pub struct RunStream<S: State> {
    pub(super) buffer: Arc<Buffer<S>>,
    /// The run before its start.
    waiting: Option<BoxFuture<'static, ()>>,
    /// The run after its start; it ends when this is dropped.
    _begun: Option<OwnTask>,
}

impl<S: State> fmt::Debug for RunStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream").field("has_started", &self.waiting.is_none()).finish_non_exhaustive()
    }
}

impl<S: State> RunStream<S> {
    /// Creates the stream of the run that `run` makes from its event sink.
    pub(crate) fn new<R>(streaming: Streaming, run: impl FnOnce(Events<S>) -> R) -> Self
    where
        R: Future<Output = Result<Outcome<S>, RunError>> + Send + 'static,
    {
        let buffer = Arc::new(Buffer::new(streaming.buffer));
        let run = run(Events::new(streaming, buffer.clone()));
        let unfinished = Unfinished(buffer.clone());
        let ending = async move {
            let Unfinished(buffer) = &unfinished;
            // The run is dropped before its end is emitted, so that the consumer finds the thread free.
            let end = AssertUnwindSafe(run).catch_unwind().await;
            buffer.finish(end);
        };
        Self { buffer, waiting: Some(Box::pin(ending)), _begun: None }
    }

    /// Runs to the end, dropping unread events, and returns the outcome.
    ///
    /// # Errors
    /// The run's error.
    ///
    /// # Panics
    /// If the run panicked outside its nodes: in a checkpointer, or in an implementation of [`State`].
    pub async fn outcome(mut self) -> Result<Outcome<S>, RunError> {
        // Otherwise they would accumulate, each with a state.
        self.buffer.close();
        self.begin();
        match poll_fn(|context| self.buffer.poll_end(context)).await {
            Ok(outcome) => outcome,
            Err(panic) => resume_unwind(panic),
        }
    }

    pub(super) fn begin(&mut self) {
        if let Some(run) = self.waiting.take() {
            self._begun = Some(OwnTask::spawn(run));
        }
    }
}

impl<S: State> Unpin for RunStream<S> {}

impl<S: State> Stream for RunStream<S> {
    type Item = Event<S>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event<S>>> {
        let this = self.get_mut();
        // A consumer that always finds an event must not block other tasks of its thread.
        ready!(pin!(consume_budget()).poll(context));
        this.begin();
        this.buffer.poll_next(context)
    }
}

/// Ends the stream of a run that is dropped before its end. It has no effect if the [`RunStream`] itself was
/// dropped.
struct Unfinished<S: State>(Arc<Buffer<S>>);

impl<S: State> Drop for Unfinished<S> {
    fn drop(&mut self) {
        self.0.finish(End::<S>::Ok(Err(RunError::RuntimeGone)));
    }
}
