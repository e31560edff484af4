//! The context of a node.

pub(crate) mod answers;
mod context;
mod messages;
mod observed;
mod once;
pub(crate) mod recorded;

use std::{
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::task::AtomicWaker;
use rand::{SeedableRng, rngs::StdRng};
use schemars::{JsonSchema, schema_for};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use superstep_checkpoint::{Clock, SubgraphPath, store::NoStore};
use superstep_engine::{NodeIndex, NodeName, TaskId, Topology};
use superstep_state::{RawJson, fingerprint, internal::encode};
use tokio_util::sync::CancellationToken;

use crate::{
    CheckpointId, Checkpointer, Durability, NodeFailure, Question, RunError, RunOptions, Store, StreamMode,
    ThreadId,
    journal::{
        divergence::Deviation,
        effects::EffectLog,
        interrupts::{InterruptQueue, Refusal, WaitReason},
        memories::Memories,
        outer_effects::OuterEffects,
        parent_recorder::ParentRecorder,
        recorder::{Recorder, ReplayMode, in_effect},
        replay_script::ReplayCursor,
        supply::RecordedSupply,
        task_origin::{Origin, name_at_begin},
    },
    node::{
        commit_barrier::CommitBarrier,
        cx::{answers::CallingTask, observed::ObservedStore},
        drain::Drain,
        nested_calls::{Calls, mix},
        spawned_work::Background,
        timeout::Heartbeat,
    },
    stream::{emitter::NodeEvents, patience::ConsumerWait},
    timers,
};

/// A node's interface to the run: its identity, time, randomness, ids, events.
///
/// A node that uses only these sources, and not the machine's, is deterministic in a replay.
#[derive(Clone)]
pub struct Cx(pub(crate) Arc<TaskCx>);

/// The part of [`Cx`] that belongs to one attempt of a task.
pub(crate) struct TaskCx {
    pub(crate) run: Arc<RunCx>,
    pub(crate) node: NodeIndex,
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    /// The number of supersteps that may run after this one.
    pub(crate) steps_left: u32,
    /// The item of a worker's task, as JSON.
    pub(crate) item: Option<Arc<str>>,
    /// The failure that an error handler receives.
    pub(crate) failure: Option<Arc<NodeFailure>>,
    /// `None` if no idle timeout applies.
    pub(crate) heartbeat: Option<Arc<Heartbeat>>,
    /// The origin of the task, if it was planned at an earlier checkpoint.
    pub(crate) origin: Option<Origin>,
    /// The name under which it was planned, if its node has another one now.
    pub(crate) planned: Option<NodeName>,
    /// The waker of its task, which then reads the queue.
    pub(crate) waker: AtomicWaker,
    /// The store shared by threads, if its calls are observed.
    pub(crate) observed_store: OnceLock<Arc<dyn Store>>,
}

/// The part of [`Cx`] that all tasks of a run share.
pub(crate) struct RunCx {
    pub(crate) topology: Arc<Topology>,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
    pub(crate) cancel: CancellationToken,
    pub(crate) drain: Drain,
    pub(crate) context: Value,
    pub(crate) scope: RunScope,
    pub(crate) calls: Calls,
    pub(crate) memories: Memories,
    pub(crate) events: Option<Box<dyn NodeEvents>>,
    pub(crate) interrupts: InterruptQueue,
    pub(crate) commit_barrier: CommitBarrier,
    /// The nonce that distinguishes the thread from deleted threads of its name, if needed.
    pub(crate) nonce: OnceLock<String>,
    /// The current checkpoint, 0 if there is none, and the time of its creation.
    pub(crate) checkpoint: AtomicU64,
    pub(crate) since_ms: AtomicI64,
    /// The effects of tasks.
    pub(crate) effects: Arc<EffectLog>,
    pub(crate) background: Background,
    /// The recorded inputs of tasks.
    pub(crate) recorder: Arc<Recorder>,
}

/// The position of a run among nested runs.
pub(crate) struct RunScope {
    /// The settings that nested runs inherit.
    pub(crate) config: Arc<RunOptions>,
    /// The storage of nested runs: threads below this run's own.
    pub(crate) place: Option<(Arc<dyn Checkpointer>, ThreadId)>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) path: SubgraphPath,
    /// The prefix of its tasks' ids.
    pub(crate) ids: String,
    /// The prefix of its tasks' keys; `None` for an outermost run, whose prefix is its place in the store.
    pub(crate) keys: Option<String>,
    /// The calling task; `None` for an outermost run.
    pub(crate) caller: Option<Arc<CallingTask>>,
    /// The drain request of the outermost run.
    pub(crate) drain: Drain,
    /// The heartbeat of the calling task; all activity of this run counts for it.
    pub(crate) heartbeat: Option<Arc<Heartbeat>>,
    /// The replayed thread, in a replay.
    pub(crate) cursor: Option<ReplayCursor>,
    /// The recorded inputs of the tasks of a thread that is recorded again.
    pub(crate) supply: Option<Arc<RecordedSupply>>,
    /// The parent's recorder, for nested runs without a checkpointer.
    pub(crate) parent: Option<ParentRecorder>,
    /// The effects of the innermost outer task with storage, or of the outermost one, for nested runs without a checkpointer.
    pub(crate) effects: Option<OuterEffects>,
    /// The effects of the outermost task, for nested runs with a checkpointer and those inside of them. That task's run
    /// may stop before a nested run has stored a result.
    pub(crate) outermost: Option<OuterEffects>,
}

impl RunScope {
    /// The scope of a run that no graph called.
    pub(crate) fn root(
        config: Arc<RunOptions>,
        place: Option<(Arc<dyn Checkpointer>, ThreadId)>,
        store: Option<Arc<dyn Store>>,
    ) -> Self {
        Self {
            place,
            store,
            drain: config.drain.clone(),
            config,
            path: SubgraphPath::default(),
            ids: String::new(),
            keys: None,
            caller: None,
            heartbeat: None,
            cursor: None,
            supply: None,
            parent: None,
            effects: None,
            outermost: None,
        }
    }

    /// Returns whether the inputs of the run's tasks are recorded.
    pub(crate) fn records(&self) -> bool {
        self.config.recording && (self.place.is_some() || self.parent.is_some())
    }
}

impl RunCx {
    /// Returns the sink for nodes' events of this mode, if it is streamed.
    pub(crate) fn events(&self, mode: StreamMode) -> Option<&dyn NodeEvents> {
        self.events.as_deref().filter(|events| events.wants(mode))
    }

    /// Returns ready, unless so many events wait that their consumer should go first.
    pub(crate) fn poll_room(
        &self,
        context: &mut Context<'_>,
        patience: &mut Option<ConsumerWait>,
    ) -> Poll<()> {
        self.events.as_ref().map_or(Poll::Ready(()), |events| events.poll_room(context, patience))
    }

    /// Drops the work that nodes left behind.
    pub(crate) fn end(&self) {
        self.effects.close();
        self.background.end();
    }
}

impl Cx {
    /// Returns the node's name.
    pub fn node(&self) -> &NodeName {
        self.0.run.topology.name(self.0.node)
    }

    /// Returns the name that the node had when the task began: keys, ids and threads of the task contain it.
    // The control record keeps that name until the task ends, also across external updates, so that ids that people
    // have remain valid after a rename. No control record names an error handler, so its keys contain its first name.
    pub(crate) fn node_at_begin(&self) -> &NodeName {
        name_at_begin(&self.0.run.topology, self.0.planned.as_ref(), self.0.node)
    }

    /// Returns the calling graphs down to this one; empty for an outermost run.
    pub fn path(&self) -> &SubgraphPath {
        &self.0.run.scope.path
    }

    /// Returns the thread of the outermost run, which called graphs share.
    pub fn thread(&self) -> Option<&ThreadId> {
        self.0.run.thread.as_ref()
    }

    /// Returns the store shared by threads, set with [`with_store`](crate::CompiledGraph::with_store). Nested
    /// runs have the same one.
    ///
    /// # Errors
    /// [`NoStore`] if the graph has none.
    ///
    /// # Example
    /// ```
    /// # use superstep_graph::{Cx, NodeError, store::Namespace};
    /// # use serde_json::json;
    /// async fn remember(cx: &Cx) -> Result<(), NodeError> {
    ///     let facts = Namespace::new(["users", "ada", "facts"])?;
    ///     cx.store()?.put(&facts, "tea", json!("likes green tea")).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn store(&self) -> Result<&dyn Store, NoStore> {
        self.any_store().map(|store| &**store)
    }

    /// Returns the same store, for work that does not have the node's `Cx`.
    ///
    /// # Errors
    /// [`NoStore`] if the graph has none.
    pub fn shared_store(&self) -> Result<Arc<dyn Store>, NoStore> {
        self.any_store().cloned()
    }

    fn any_store(&self) -> Result<&Arc<dyn Store>, NoStore> {
        let store = self.0.run.scope.store.as_ref().ok_or_else(|| NoStore { node: self.node().clone() })?;
        Ok(match &self.0.run.scope.config.call_observer {
            None => store,
            Some(observer) => {
                self.0.observed_store.get_or_init(|| ObservedStore::shared(self, store, observer))
            }
        })
    }

    /// Returns the superstep, counted from 0 on each thread; the first node runs in superstep 1.
    pub fn step(&self) -> i64 {
        self.0.task.step
    }

    /// Returns the attempt of the task, from 1.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Returns the number of supersteps that the run may make after this one: 0 in the last that its
    /// [`step_limit`](crate::Thread::step_limit) allows. A node can use it to finish in time.
    pub fn remaining_steps(&self) -> u32 {
        self.needs_records();
        if let ReplayMode::Adopted(recorded) = self.0.run.recorder.mode(self.0.task)
            && recorded.steps_left.is_none()
        {
            // The limit of a run that records a thread again is not that of the recorded one.
            self.wait_for([WaitReason::Deviated(Deviation::Steps)]);
        }
        if self.0.run.recorder.records {
            self.0
                .run
                .recorder
                .record_inputs(self.0.task, |inputs| inputs.steps_left = Some(self.0.steps_left));
        }
        self.0.steps_left
    }

    /// Returns the UTC time in milliseconds since 1970, by the clock of the run.
    pub fn now_ms(&self) -> i64 {
        self.passes("now_ms", "");
        self.needs_records();
        let clock = || self.0.run.clock.now_ms();
        self.0
            .run
            .recorder
            .now_ms(self.0.task, self.0.run.since_ms.load(Ordering::Relaxed), clock)
            .unwrap_or_else(clock)
    }

    /// Waits for a duration; returns immediately in a replay.
    pub async fn sleep(&self, duration: Duration) {
        if self.is_live() {
            self.waits("before sleep", "").await;
            timers::sleep_in_node(duration).await;
            self.waits("after sleep", "").await;
        }
    }

    /// Returns a random number generator: the same for every attempt of this task, also after an external update that leaves it
    /// pending, different for any other task, on this thread or another.
    ///
    /// It derives from [`Thread::seed`](crate::Thread::seed), the thread and the task: do not use it
    /// for secrets.
    pub fn rng(&self) -> StdRng {
        self.passes("rng", "");
        self.needs_records();
        let TaskId { step, slot } = self.first_task();
        let task = (step as u64).rotate_left(32) ^ u64::from(slot);
        // An error handler runs in the task of the failed node, and needs other random numbers.
        let task = match self.handler().as_str() {
            "" => task,
            handler => mix(task, handler.bytes()),
        };
        StdRng::seed_from_u64(self.seed() ^ task.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Returns the base RNG seed of the run, recorded in a replay.
    pub(crate) fn seed(&self) -> u64 {
        let seed = match self.0.run.recorder.mode(self.0.task) {
            ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) | ReplayMode::Adopted(recorded)
                if self.path().is_root() =>
            {
                recorded.seed
            }
            _ => self.0.run.seed,
        };
        if self.path().is_root() {
            self.0.run.recorder.record_inputs(self.0.task, |inputs| inputs.seed = seed);
        }
        seed
    }

    /// Returns whether effects are live: `false` in a replay, except for live nodes and inside of effects.
    /// Use it for effects outside of `Cx`, which a replay cannot prevent.
    pub fn is_live(&self) -> bool {
        !self.0.run.recorder.replays
            || in_effect()
            || matches!(self.0.run.recorder.mode(self.0.task), ReplayMode::Live(_))
    }

    /// Returns an id for data of this task: the same for every attempt, also after an external update that leaves it pending,
    /// different for any other task on its branch of the thread. `name` distinguishes several ids of one task.
    ///
    /// Forks of one checkpoint have equal superstep numbers, so that their tasks may create equal ids.
    pub fn id(&self, name: impl std::fmt::Display) -> String {
        let TaskId { step, slot } = self.first_task();
        format!("{}{step}.{slot}{}.{name}", self.0.run.scope.ids, self.handler())
    }

    /// Returns the name that distinguishes an error handler from the node whose task it runs; empty for any
    /// other node.
    pub(crate) fn handler(&self) -> String {
        self.0.failure.as_ref().map_or_else(String::new, |_| format!("!{}", self.node_at_begin()))
    }

    /// Returns a globally unique name of this task, for services with idempotency keys. It is the same for
    /// every attempt and after a crash. It differs on another branch, on another thread, and on a thread that
    /// was deleted and created again, independent of the clock ([`Checkpointer::nonce`]).
    ///
    /// A fork has the nonce of its thread, and a replay that of the replayed thread. A copy of a thread has
    /// one of its own.
    ///
    /// Unless the run is [`Durability::Sync`], a crash may lose the superstep before this one, and with it
    /// the key. [`once`](Self::once) and [`call`](Self::call) wait until that is stored.
    pub fn key(&self) -> String {
        let handler = self.handler();
        let Origin { checkpoint, since_ms, step, slot } = self.origin();
        if let Some(caller) = &self.0.run.scope.keys {
            return format!("{caller}/{step}.{slot}{handler}");
        }
        let thread = self.thread().map_or("", ThreadId::as_str);
        // The name of a copy is not sufficient: the copy may be deleted, and another one of that name may have
        // waiting tasks at the same checkpoints.
        let nonce = self.0.run.nonce.get().map_or_else(String::new, |nonce| format!(".{nonce}"));
        format!("{thread}/{checkpoint}@{since_ms}{nonce}/{step}.{slot}{handler}")
    }

    /// Returns the origin of the task.
    pub(crate) fn origin(&self) -> Origin {
        let TaskId { step, slot } = self.0.task;
        self.0.origin.unwrap_or_else(|| Origin {
            checkpoint: CheckpointId(self.0.run.checkpoint.load(Ordering::Relaxed)),
            since_ms: self.0.run.since_ms.load(Ordering::Relaxed),
            step,
            slot,
        })
    }

    /// Returns the superstep and the slot of the origin of the task.
    pub(crate) fn first_task(&self) -> TaskId {
        self.0.origin.map_or(self.0.task, |Origin { step, slot, .. }| TaskId { step, slot })
    }

    /// Returns the token that fires when the run is cancelled. Only nodes with
    /// [`OnCancel::Finish`](crate::node::OnCancel::Finish) can observe it.
    pub fn cancel(&self) -> &CancellationToken {
        &self.0.run.cancel
    }

    /// Requests the run to end after this superstep, like [`Thread::drain`](crate::Thread::drain). The
    /// first reason is retained. A replay continues, as the thread did in another run.
    pub fn drain(&self, reason: impl Into<String>) {
        self.passes("drain", "");
        if !self.0.run.recorder.replays {
            self.0.run.drain.request(reason);
        }
    }

    /// Interrupts the node with a question and waits for the answer, which is given to another run: with
    /// [`Thread::answers`](crate::Thread::answers).
    ///
    /// Until then the node is dropped here and the run ends with
    /// [`Status::Interrupted`](crate::Status::Interrupted). With the answer, the node runs again from its
    /// beginning, and this returns immediately. `key` distinguishes the questions of one task: two different
    /// ones under one key at the same time fail it.
    ///
    /// An answer of another type than `A` is rejected, and the question remains pending, without an effect on
    /// the node. The same applies to an answer to a changed question. The question must therefore be the same
    /// when the node runs again: build it from the state, and take times and random numbers from
    /// [`once`](Self::once). The answer is stored with the update, for a [`Replay`](crate::replay::Replay), unless
    /// the run does not record. A question that cannot be stored as JSON fails the task.
    pub async fn interrupt<A: DeserializeOwned>(&self, key: &str, question: impl Serialize) -> A {
        self.question(key, question, None).await
    }

    /// Like [`interrupt`](Self::interrupt), with a schema of the answer:
    /// [`Interrupt::schema`](crate::Interrupt::schema) is the JSON Schema of `A`.
    pub async fn ask<A: DeserializeOwned + JsonSchema>(&self, key: &str, question: impl Serialize) -> A {
        self.question(key, question, Some(RawJson::from(&schema_for!(A).to_value()))).await
    }

    /// Waits until this task's checkpoint is stored, so that names derived from it are found again after a
    /// crash, and are unique.
    pub(crate) async fn settle(&self) {
        let RunScope { place, config, .. } = &self.0.run.scope;
        if place.is_some() && config.durability != Durability::Sync {
            self.0.run.commit_barrier.settle().await;
        }
    }

    /// Sends messages to the driver and suspends the task. They are sent together, because the task may be
    /// dropped right after.
    pub(crate) fn wait_for(&self, reasons: impl IntoIterator<Item = WaitReason>) {
        self.0.run.interrupts.ask(self.0.task, reasons);
        self.0.waker.wake();
    }

    /// Fails the task because of a value that cannot be stored: the node does not continue and does not see
    /// the error.
    pub(crate) async fn unstorable<T>(&self, what: &str, source: serde_json::Error) -> T {
        let error = RunError::Unstorable { what: what.to_owned(), source };
        self.wait_for([WaitReason::Unstorable(error)]);
        std::future::pending().await
    }

    /// Returns whether a question can be answered later: the run is stored, and can be resumed.
    pub fn can_interrupt(&self) -> bool {
        self.0.run.scope.place.is_some()
    }

    async fn question<A: DeserializeOwned>(
        &self,
        key: &str,
        question: impl Serialize,
        schema: Option<RawJson>,
    ) -> A {
        self.waits("before the question", key).await;
        let written = encode::to_string(&question).and_then(|json| Ok((fingerprint(&question)?, json)));
        let (question_print, question) = match written {
            Ok(written) => written,
            Err(error) => return self.unstorable(&format!("the question `{key}`"), error).await,
        };
        let mut answer = self.0.run.interrupts.answer(self.0.task, key, &question);
        match self.0.run.recorder.mode(self.0.task) {
            ReplayMode::Nothing => {}
            ReplayMode::Unknown => return self.deviate(Deviation::Unknown).await,
            // The answer to another question under this key is the one that a changed node gets.
            ReplayMode::Adopted(recorded) => {
                if let Some((_, recorded)) = recorded.answers.get(key) {
                    answer = Ok(Some(recorded.clone()));
                }
            }
            ReplayMode::Recorded(recorded) | ReplayMode::Live(recorded) => match recorded.answers.get(key) {
                Some((print, recorded)) if *print == question_print => answer = Ok(Some(recorded.clone())),
                _ => {
                    let question =
                        serde_json::from_str(&question).expect("a question is stored as valid JSON");
                    return self.deviate(Deviation::Question { key: key.to_owned(), question }).await;
                }
            },
        }
        let question = Question { key: key.to_owned(), question, schema, within: None, replaces: None };
        let reason = match answer {
            Ok(Some(answer)) => match A::deserialize(&answer) {
                Ok(read) => {
                    self.0.run.recorder.record_inputs(self.0.task, |inputs| {
                        inputs.answers.insert(key.to_owned(), (question_print, answer));
                    });
                    self.waits("after the answer", key).await;
                    return read;
                }
                Err(error) => WaitReason::Refused { question, why: Refusal::BadType(error) },
            },
            Ok(None) => WaitReason::Question(question),
            Err(why) => WaitReason::Refused { question, why },
        };
        self.wait_for([reason]);
        // An interrupt is an outcome, not an error: the node cannot catch it.
        std::future::pending().await
    }

    /// Reports activity of the node for its [`idle_timeout`](crate::NodeOptions::idle_timeout), and of the
    /// nodes that called its graph. Events count as activity too.
    pub fn heartbeat(&self) {
        if let Some(heartbeat) = &self.0.heartbeat {
            heartbeat.beat();
        }
    }

    /// Spawns work that runs in parallel to the graph. It does not affect the state; the run ends only after
    /// the work has ended, so limit its duration.
    ///
    /// It does not survive a crash or a dropped run: use it for work that may be lost or is repeated
    /// elsewhere. After the end of the run no work is started. A replay starts none.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.is_live() {
            return;
        }
        self.passes("spawn", "");
        self.0.run.background.spawn(work);
    }

    /// Emits a custom event to the stream of the run. Does nothing, at no cost, if the mode is not streamed.
    ///
    /// # Panics
    /// If `data` has no JSON form.
    pub fn emit(&self, name: &'static str, data: impl Serialize) {
        self.emit_with(|| (name, serde_json::to_value(data).expect("event data has a JSON form")));
    }

    /// Emits the custom event that `event` returns: its name and its data. Calls `event` only if the mode is streamed.
    pub fn emit_with(&self, event: impl FnOnce() -> (&'static str, Value)) {
        self.heartbeat();
        self.passes("emit", "");
        if let Some(events) = self.0.run.events(StreamMode::Custom) {
            let (name, data) = event();
            events.custom(self.node(), name, data);
        }
    }
}

impl std::fmt::Debug for Cx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cx")
            .field("node", self.node())
            .field("step", &self.0.task.step)
            .field("attempt", &self.0.attempt)
            .finish_non_exhaustive()
    }
}
