//! What a run tells while it runs.
//!
//! Start at [`RunStream`].

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::{Stream, future::BoxFuture};
use serde_json::Value;
use superstep_engine::NodeName;
use tokio::sync::mpsc;

use crate::{CheckpointMeta, Interrupt, Outcome, RunError, State, cx::EmitCustom};

/// Something that happened in a run.
///
/// Within a superstep they come in this order: for each task its start, its custom events, its update and its end, as
/// they happen; then the new state, then the checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<S: State> {
    /// The state after the input or a superstep was applied. [`StreamMode::Values`].
    Values {
        /// The superstep; 0 is the input's.
        step: i64,
        /// The state.
        state: S,
    },
    /// A task finished. [`StreamMode::Updates`].
    Update {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// What it wrote.
        update: S::Update,
    },
    /// A node said something with [`Cx::emit`](crate::Cx::emit). [`StreamMode::Custom`].
    Custom {
        /// The node.
        node: NodeName,
        /// What kind of event it is.
        name: &'static str,
        /// What it tells.
        data: Value,
    },
    /// An attempt of a task begins. [`StreamMode::Tasks`].
    TaskStart {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// An attempt of a task is over. [`StreamMode::Tasks`].
    TaskEnd {
        /// The superstep.
        step: i64,
        /// The node.
        node: NodeName,
        /// Which attempt, from 1.
        attempt: u32,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// A checkpoint was stored. [`StreamMode::Checkpoints`].
    Checkpoint(CheckpointMeta),
    /// A node asks someone outside. Sent in every mode.
    Interrupt(Interrupt),
    /// A new input took the place of unfinished tasks. Sent in every mode.
    Discarded {
        /// The tasks that will not run.
        nodes: Vec<NodeName>,
    },
}

/// Which events to stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamMode {
    /// The state after each superstep.
    Values,
    /// What each task wrote.
    Updates,
    /// What nodes say themselves.
    Custom,
    /// When tasks begin and end.
    Tasks,
    /// Which checkpoints are stored.
    Checkpoints,
}

/// The events of a run, and at its end the outcome.
///
/// The run goes on while it is polled; dropping it cancels the run at once and leaves the thread resumable.
pub struct RunStream<S: State> {
    events: mpsc::UnboundedReceiver<Event<S>>,
    run: Option<BoxFuture<'static, Result<Outcome<S>, RunError>>>,
    outcome: Option<Result<Outcome<S>, RunError>>,
}

impl<S: State> RunStream<S> {
    pub(crate) fn new(
        events: mpsc::UnboundedReceiver<Event<S>>,
        run: BoxFuture<'static, Result<Outcome<S>, RunError>>,
    ) -> Self {
        Self { events, run: Some(run), outcome: None }
    }

    /// Runs to the end, dropping the events that were not taken, and tells how it ended.
    ///
    /// # Errors
    /// The run's error.
    pub async fn outcome(mut self) -> Result<Outcome<S>, RunError> {
        // Or they would pile up, each with its own state.
        self.events.close();
        while self.events.try_recv().is_ok() {}
        match (self.outcome.take(), self.run.take()) {
            (Some(outcome), _) => outcome,
            (None, Some(run)) => run.await,
            (None, None) => unreachable!("a run that is over has an outcome"),
        }
    }
}

impl<S: State> Unpin for RunStream<S> {}

impl<S: State> Stream for RunStream<S> {
    type Item = Event<S>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event<S>>> {
        let this = self.get_mut();
        if let Ok(event) = this.events.try_recv() {
            return Poll::Ready(Some(event));
        }
        if let Some(run) = &mut this.run
            && let Poll::Ready(outcome) = run.as_mut().poll(cx)
        {
            this.run = None;
            this.outcome = Some(outcome);
        }
        if this.run.is_none() {
            // Not for the senders: what a node left behind may hold one for ever.
            return Poll::Ready(this.events.try_recv().ok());
        }
        this.events.poll_recv(cx)
    }
}

/// The sending side: nothing is built for a mode that nobody asked for.
pub(crate) struct Events<S: State> {
    sender: mpsc::UnboundedSender<Event<S>>,
    modes: Vec<StreamMode>,
}

impl<S: State> Clone for Events<S> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), modes: self.modes.clone() }
    }
}

impl<S: State> Events<S> {
    pub(crate) fn new(modes: &[StreamMode]) -> (Self, mpsc::UnboundedReceiver<Event<S>>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender, modes: modes.to_vec() }, receiver)
    }

    pub(crate) fn wants(&self, mode: StreamMode) -> bool {
        self.modes.contains(&mode)
    }

    pub(crate) fn send(&self, event: Event<S>) {
        // Fails if the stream was dropped, and then nobody listens.
        let _ = self.sender.send(event);
    }
}

impl<S: State> EmitCustom for Events<S> {
    fn emit(&self, node: &NodeName, name: &'static str, data: Value) {
        if self.wants(StreamMode::Custom) {
            self.send(Event::Custom { node: node.clone(), name, data });
        }
    }
}
