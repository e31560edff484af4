//! The sending side: an event is only built if its mode is streamed.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use serde_json::Value;
use superstep_checkpoint::SubgraphPath;
use superstep_engine::{ChannelSet, NodeName};
use superstep_state::{Channel, internal::unpanicked};

use super::{
    message_events::{MessageEvent, Sent},
    patience::ConsumerWait,
};
use crate::{Event, RunError, State, StreamMode, Streaming};

/// A sink of events.
pub(crate) trait Sink<S: State>: Send + Sync {
    /// Returns whether a consumer may still take them.
    fn is_open(&self) -> bool;

    /// Sends an event without waiting.
    fn send(&self, event: Event<S>);

    /// Polls for space: ready if more events may come; otherwise so many wait that their consumer should go
    /// first.
    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<ConsumerWait>) -> Poll<()>;

    /// Returns the maximum number of waiting events.
    fn capacity(&self) -> usize;
}

/// The events of nodes, for any type of state.
pub(crate) trait NodeEvents: Send + Sync {
    fn wants(&self, mode: StreamMode) -> bool;

    /// See [`Sink::poll_room`].
    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<ConsumerWait>) -> Poll<()>;

    fn custom(&self, node: &NodeName, name: &'static str, data: Value);

    fn message(&self, said: MessageEvent<'_>);

    /// Returns the sink of called graphs' events, if they are streamed, and the prefix of their paths.
    fn below(&self) -> Option<(Arc<dyn NestedSink>, SubgraphPath)>;
}

/// A sink of called graphs' events at any depth, for any type of the outermost state.
pub(crate) trait NestedSink: Send + Sync {
    fn modes(&self) -> Arc<[StreamMode]>;

    fn is_open(&self) -> bool;

    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<ConsumerWait>) -> Poll<()>;

    fn capacity(&self) -> usize;

    fn emit_nested(&self, path: SubgraphPath, event: Value);
}

/// The sink of a called graph: it leads to that of the outermost graph.
struct ForwardingSink {
    below: Arc<dyn NestedSink>,
    path: SubgraphPath,
}

impl<T: State> Sink<T> for ForwardingSink {
    fn is_open(&self) -> bool {
        self.below.is_open()
    }

    fn send(&self, event: Event<T>) {
        // A graph without storage may have values without a JSON form.
        let event = unpanicked("Serialize", || serde_json::to_value(&event))
            .unwrap_or_else(|error| Value::String(format!("an event that has no JSON form: {error}")));
        self.below.emit_nested(self.path.clone(), event);
    }

    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<ConsumerWait>) -> Poll<()> {
        self.below.poll_room(context, patience)
    }

    fn capacity(&self) -> usize {
        self.below.capacity()
    }
}

impl<S: State> NestedSink for Events<S> {
    fn modes(&self) -> Arc<[StreamMode]> {
        self.modes.clone()
    }

    fn is_open(&self) -> bool {
        self.sink.is_open()
    }

    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<ConsumerWait>) -> Poll<()> {
        self.sink.poll_room(context, patience)
    }

    fn capacity(&self) -> usize {
        self.sink.capacity()
    }

    fn emit_nested(&self, path: SubgraphPath, event: Value) {
        self.sink.send(Event::Subgraph { path, event });
    }
}

/// The events of a run on their way to its stream. Cheap to clone.
pub(crate) struct Events<S: State> {
    sink: Arc<dyn Sink<S>>,
    /// The sink of called graphs' events, if a task called this one.
    below: Option<(Arc<dyn NestedSink>, SubgraphPath)>,
    modes: Arc<[StreamMode]>,
    /// The requested channels; `None` for all.
    keys: Option<Arc<[String]>>,
    /// `true` if events of called graphs are streamed as well.
    subgraphs: bool,
    sent: Arc<Mutex<Sent>>,
    /// The delayed events of the run; `None` most of the time.
    staged: Arc<Mutex<Option<Vec<Event<S>>>>>,
}

impl<S: State> Clone for Events<S> {
    fn clone(&self) -> Self {
        let Self { sink, below, modes, keys, subgraphs, sent, staged } = self;
        let (sink, below, modes, keys) = (sink.clone(), below.clone(), modes.clone(), keys.clone());
        Self { sink, below, modes, keys, subgraphs: *subgraphs, sent: sent.clone(), staged: staged.clone() }
    }
}

impl<S: State> Events<S> {
    pub(crate) fn new(streaming: Streaming, sink: Arc<dyn Sink<S>>) -> Self {
        let Streaming { modes, output_keys, subgraphs, .. } = streaming;
        let keys = output_keys.map(Into::into);
        let (sent, staged) = (Arc::default(), Arc::default());
        Self { sink, below: None, modes: modes.into(), keys, subgraphs, sent, staged }
    }

    /// Creates the events of a called graph.
    pub(crate) fn inside(below: Arc<dyn NestedSink>, path: SubgraphPath) -> Self {
        let sink = Arc::new(ForwardingSink { below: below.clone(), path: path.clone() });
        let (modes, below) = (below.modes(), Some((below, path)));
        Self { sink, below, modes, keys: None, subgraphs: true, sent: Arc::default(), staged: Arc::default() }
    }

    /// # Errors
    /// [`RunError::UnknownOutputKey`].
    pub(crate) fn check(&self, state: &S) -> Result<(), RunError> {
        let channels = state.channels();
        let known = |key: &&String| channels.iter().any(|channel| channel.name == **key);
        match self.keys.iter().flat_map(|keys| keys.iter()).find(|key| !known(key)) {
            None => Ok(()),
            Some(key) => {
                let channels = channels.iter().map(|channel| channel.name.to_string()).collect();
                Err(RunError::UnknownOutputKey { key: key.clone(), channels })
            }
        }
    }

    /// Returns the requested channels.
    fn channels(&self, state: &S) -> ChannelSet {
        let channels = (0..).zip(state.channels());
        let wanted = |channel: &Channel| match &self.keys {
            None => true,
            Some(keys) => keys.iter().any(|key| channel.name == *key),
        };
        channels.filter(|(_, channel)| wanted(channel)).map(|(position, _)| position).collect()
    }

    pub(crate) fn wants(&self, mode: StreamMode) -> bool {
        self.modes.contains(&mode) && self.sink.is_open()
    }

    /// Sends an event of the run itself. Events of its nodes go to the sink immediately.
    pub(crate) fn send(&self, event: Event<S>) {
        if let Some(staged) = &mut *self.staged() {
            return staged.push(event);
        }
        self.sink.send(event);
    }

    /// Delays further events until their data is stored.
    ///
    /// A consumer that receives an update and stops then leaves a thread with that update.
    pub(crate) fn stage(&self) {
        self.staged().get_or_insert_default();
    }

    /// Sends the events delayed since [`stage`](Self::stage), after their data is stored, or never will be.
    pub(crate) fn release(&self) {
        let staged = self.staged().take();
        staged.into_iter().flatten().for_each(|event| self.sink.send(event));
    }

    fn staged(&self) -> MutexGuard<'_, Option<Vec<Event<S>>>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn values(&self, step: i64, state: &S) {
        if self.wants(StreamMode::Values) {
            let (mut state, channels) = (state.clone(), self.channels(state));
            if self.keys.is_some() {
                state.retain(channels);
            }
            self.send(Event::Values { step, state, channels });
        }
    }

    /// Sends the update of a task that started with `state`.
    pub(crate) fn update(&self, step: i64, node: &NodeName, state: &S, update: &S::Update, cached: bool) {
        if self.wants(StreamMode::Updates) {
            let mut update = state.stored(update).into_owned();
            if self.keys.is_some() {
                state.restrict(&mut update, self.channels(state));
            }
            self.send(Event::Update { step, node: node.clone(), update, cached });
        }
    }

    /// Lets the consumer take waiting events, as long as it continues to take some.
    pub(crate) async fn give_way(&self) {
        let mut patience = None;
        poll_fn(|context| self.sink.poll_room(context, &mut patience)).await;
    }

    /// Returns the number of tasks that may start before the consumer must go first: each emits two events at
    /// most.
    pub(crate) fn batch(&self) -> usize {
        (self.sink.capacity() / 4).max(1)
    }
}

impl<S: State> NodeEvents for Events<S> {
    fn wants(&self, mode: StreamMode) -> bool {
        self.wants(mode)
    }

    fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<ConsumerWait>) -> Poll<()> {
        self.sink.poll_room(context, patience)
    }

    fn custom(&self, node: &NodeName, name: &'static str, data: Value) {
        self.sink.send(Event::Custom { node: node.clone(), name, data });
    }

    fn message(&self, said: MessageEvent<'_>) {
        if !self.sent.lock().unwrap_or_else(PoisonError::into_inner).is_news(&said) {
            return;
        }
        let MessageEvent { task, attempt, node, checkpoint, id, kind, data } = said;
        let (step, slot) = (task.step, task.slot);
        let (node, id) = (node.clone(), id.to_owned());
        self.sink.send(Event::Message { step, node, slot, attempt, checkpoint, id, kind, data });
    }

    fn below(&self) -> Option<(Arc<dyn NestedSink>, SubgraphPath)> {
        let wanted = self.subgraphs && self.sink.is_open();
        wanted.then(|| match &self.below {
            Some(below) => below.clone(),
            None => (Arc::new(self.clone()) as Arc<dyn NestedSink>, SubgraphPath::default()),
        })
    }
}
