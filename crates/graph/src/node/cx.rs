//! What a node gets beside the state.

mod context;
mod inbox;
mod messages;
mod once;
mod recorded;

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
use superstep_engine::{NodeIndex, NodeName, TaskId, Topology};
use superstep_state::internal::encode;
use tokio_util::sync::CancellationToken;

use crate::{
    CheckpointId, Checkpointer, Clock, Drain, Durability, Namespace, NoStore, NodeFailure, Question,
    RunConfig, RunError, Store, StreamMode, ThreadId, fingerprint,
    journal::{
        divergence::Astray,
        effects::Ledger,
        interrupts::{Asked, Desk, Refusal},
        memories::Memories,
        recorder::{Given, Tape, in_effect},
        replay_cursor::Along,
        task_origin::Origin,
    },
    node::{
        commit_barrier::Settling,
        nested_calls::{Calls, mix},
        parent_recorder::Above,
        spawned_work::Background,
        timeout::Pulse,
    },
    stream::{emitter::NodeEvents, patience::Patience},
    timers,
};

/// A node's window to the run: who it is, time, chance, ids, events.
///
/// A node that takes these from here, and not from the machine, does the same again when it is replayed.
#[derive(Clone)]
pub struct Cx {
    pub(crate) run: Arc<RunCx>,
    pub(crate) node: NodeIndex,
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    /// How many supersteps may run after this one.
    pub(crate) steps_left: u32,
    /// The item of a worker's task, as JSON.
    pub(crate) item: Option<Arc<str>>,
    /// What an error handler is told.
    pub(crate) failure: Option<Arc<NodeFailure>>,
    /// `None` if nobody minds its silence.
    pub(crate) pulse: Option<Arc<Pulse>>,
    /// Where the task began, if it was at an earlier checkpoint.
    pub(crate) origin: Option<Origin>,
    /// Wakes its task, which looks at the desk then.
    pub(crate) bell: Arc<AtomicWaker>,
}

/// The part of [`Cx`] that all tasks of a run share.
pub(crate) struct RunCx {
    pub(crate) topology: Arc<Topology>,
    pub(crate) thread: Option<ThreadId>,
    /// What is remembered across threads.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seed: u64,
    pub(crate) cancel: CancellationToken,
    pub(crate) drain: Drain,
    pub(crate) context: Value,
    pub(crate) standing: Standing,
    pub(crate) calls: Calls,
    pub(crate) memories: Memories,
    pub(crate) events: Option<Box<dyn NodeEvents>>,
    pub(crate) desk: Desk,
    pub(crate) settling: Settling,
    /// What tells the thread from those that had its name before, if anything has to.
    pub(crate) nonce: OnceLock<String>,
    /// The checkpoint whose tasks run, 0 if there is none, and when it was made.
    pub(crate) checkpoint: AtomicU64,
    pub(crate) since_ms: AtomicI64,
    /// What tasks did once.
    pub(crate) ledger: Ledger,
    pub(crate) background: Background,
    /// What tasks learn.
    pub(crate) tape: Tape,
}

/// Where a run stands among those that call each other.
pub(crate) struct Standing {
    /// What graphs that tasks call take over.
    pub(crate) config: Arc<RunConfig>,
    /// Where they are kept: beside this run, on threads under its own.
    pub(crate) place: Option<(Arc<dyn Checkpointer>, ThreadId)>,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) namespace: Namespace,
    /// How the ids of its tasks begin.
    pub(crate) ids: String,
    /// How the keys of its tasks begin; `None` if nobody called it, and they begin with its place in the store.
    pub(crate) keys: Option<String>,
    /// What ends with the outermost run.
    pub(crate) drain: Drain,
    /// The pulse of the task that called, to which everything that happens here is a sign of life.
    pub(crate) pulse: Option<Arc<Pulse>>,
    /// The thread that it goes along, if it is a replay.
    pub(crate) along: Option<Along>,
    /// Where what its tasks learn goes, if it is kept nowhere and its caller is recorded.
    pub(crate) above: Option<Above>,
}

impl RunCx {
    /// Where nodes tell events of this mode, if anyone wants them.
    pub(crate) fn events(&self, mode: StreamMode) -> Option<&dyn NodeEvents> {
        self.events.as_deref().filter(|events| events.wants(mode))
    }

    /// Ready unless so many events wait that their consumer should go first.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>, patience: &mut Option<Patience>) -> Poll<()> {
        self.events.as_ref().map_or(Poll::Ready(()), |events| events.poll_room(context, patience))
    }

    /// Lets go of what nodes left behind.
    pub(crate) fn end(&self) {
        self.ledger.close();
        self.background.end();
    }
}

impl Cx {
    /// The node's name.
    pub fn node(&self) -> &NodeName {
        self.run.topology.name(self.node)
    }

    /// The graphs that called each other down to this one; empty if nobody called it.
    pub fn namespace(&self) -> &Namespace {
        &self.run.standing.namespace
    }

    /// The thread the run was begun on, which is also that of the graphs that it calls.
    pub fn thread(&self) -> Option<&ThreadId> {
        self.run.thread.as_ref()
    }

    /// What is remembered across threads: the store that the graph was given with
    /// [`with_store`](crate::CompiledGraph::with_store). Nested runs have the same one.
    ///
    /// # Errors
    /// [`NoStore`] if it was given none.
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
        self.run.standing.store.as_deref().ok_or_else(|| NoStore { node: self.node().clone() })
    }

    /// The same store, to be handed to work that does not have the node's `Cx`.
    ///
    /// # Errors
    /// [`NoStore`] if the graph was given none.
    pub fn shared_store(&self) -> Result<Arc<dyn Store>, NoStore> {
        self.run.standing.store.clone().ok_or_else(|| NoStore { node: self.node().clone() })
    }

    /// The superstep, counted from 0 on each thread; the first node runs in superstep 1.
    pub fn step(&self) -> i64 {
        self.task.step
    }

    /// Which attempt of the task this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many supersteps the run may still make after this one: 0 in the last that its
    /// [`step_limit`](crate::RunConfig::step_limit) allows. A node that counts can come to an end in time.
    pub fn remaining_steps(&self) -> u32 {
        self.needs_records();
        if self.run.tape.records {
            self.run.tape.learn(self.task, |learned| learned.steps_left = Some(self.steps_left));
        }
        self.steps_left
    }

    /// UTC milliseconds since 1970, by the clock of the run.
    pub fn now_ms(&self) -> i64 {
        self.needs_records();
        let clock = || self.run.clock.now_ms();
        self.run
            .tape
            .now_ms(self.task, self.run.since_ms.load(Ordering::Relaxed), clock)
            .unwrap_or_else(clock)
    }

    /// Waits, but in a replay.
    pub async fn sleep(&self, duration: Duration) {
        if self.is_for_real() {
            timers::sleep_in_node(duration).await;
        }
    }

    /// Chance: the same for every attempt of this task, different for any other task, on this thread or on another.
    ///
    /// It follows from [`RunConfig::seed`](crate::RunConfig::seed), the thread and the task: it is nothing to keep secrets with.
    pub fn rng(&self) -> StdRng {
        self.needs_records();
        let task = (self.task.step as u64).rotate_left(32) ^ u64::from(self.task.slot);
        // An error handler has the task of the node that failed, and is to throw other dice.
        let task = match self.handler().as_str() {
            "" => task,
            handler => mix(task, handler.bytes()),
        };
        StdRng::seed_from_u64(self.seed() ^ task.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Where chance begins for the run, or began.
    pub(crate) fn seed(&self) -> u64 {
        let seed = match self.run.tape.given(self.task) {
            Given::Recorded(recorded) | Given::Live(recorded) if self.namespace().is_root() => recorded.seed,
            _ => self.run.seed,
        };
        if self.namespace().is_root() {
            self.run.tape.learn(self.task, |learned| learned.seed = seed);
        }
        seed
    }

    /// Whether what is done here is to be done: in a replay it is not, but for live nodes and inside of what they do. For
    /// what a node does otherwise than through its `Cx`, which a replay does not keep from happening again.
    pub fn is_for_real(&self) -> bool {
        !self.run.tape.replays || in_effect() || matches!(self.run.tape.given(self.task), Given::Live(_))
    }

    /// An id for something this task makes: the same for every attempt of this task, different for any other task on
    /// its branch of the thread. `name` tells apart what one task makes.
    ///
    /// Forks of one checkpoint count their supersteps alike, so their tasks may make the same ids.
    pub fn id(&self, name: impl std::fmt::Display) -> String {
        format!("{}{}.{}{}.{name}", self.run.standing.ids, self.task.step, self.task.slot, self.handler())
    }

    /// What tells an error handler from the node whose task it has over; nothing for any other node.
    pub(crate) fn handler(&self) -> String {
        self.failure.as_ref().map_or_else(String::new, |_| format!("!{}", self.node()))
    }

    /// Names this task and no other, wherever else the name is used: the same for every attempt and after a crash,
    /// different on another branch, on another thread, and on one that was deleted and begun again, whatever the clock says
    /// ([`Checkpointer::nonce`]). For services that take an idempotency key.
    ///
    /// A fork has the nonce of the thread that it is on, and a replay that of the thread that it goes along. A copy of a thread
    /// has one of its own.
    ///
    /// Unless the run is [`Durability::Sync`], a crash may cost the superstep before this one, and with it the key.
    /// [`once`](Self::once) and [`call`](Self::call) wait until that is stored.
    pub fn key(&self) -> String {
        let handler = self.handler();
        let Origin { checkpoint, since_ms, step, slot } = self.origin();
        if let Some(caller) = &self.run.standing.keys {
            return format!("{caller}/{step}.{slot}{handler}");
        }
        let thread = self.thread().map_or("", ThreadId::as_str);
        let nonce = self.run.nonce.get().map_or_else(String::new, |nonce| format!(".{nonce}"));
        format!("{thread}/{checkpoint}@{since_ms}{nonce}/{step}.{slot}{handler}")
    }

    /// Where the task began.
    pub(crate) fn origin(&self) -> Origin {
        let TaskId { step, slot } = self.task;
        self.origin.unwrap_or_else(|| Origin {
            checkpoint: CheckpointId(self.run.checkpoint.load(Ordering::Relaxed)),
            since_ms: self.run.since_ms.load(Ordering::Relaxed),
            step,
            slot,
        })
    }

    /// Fires when the run is cancelled. Only nodes with [`OnCancel::Finish`](crate::OnCancel::Finish) live to see it.
    pub fn cancel(&self) -> &CancellationToken {
        &self.run.cancel
    }

    /// Asks the run to end after this superstep, as [`RunConfig::drain`](crate::RunConfig::drain) does. The first reason
    /// stands. A replay goes on, as the thread did with another run.
    pub fn drain(&self, reason: impl Into<String>) {
        if !self.run.tape.replays {
            self.run.drain.request(reason);
        }
    }

    /// Asks someone outside and waits for the answer, which comes with another run: with
    /// [`RunConfig::answers`](crate::RunConfig::answers).
    ///
    /// Until then the node is dropped here and the run ends with [`Status::Interrupted`](crate::Status::Interrupted).
    /// When the answer is there the node runs again from its beginning, and this returns at once. `key` tells apart the
    /// questions of one task: two different ones under one key at the same time fail it. An answer of another type than `A` is
    /// refused, and the question still waits; nothing in the node sees it. So is an answer to another question: what is asked
    /// has to be the same when the node runs again, so take it from the state, and times and random numbers from
    /// [`once`](Self::once). The answer is kept with the update, for a [`Replay`](crate::Replay), unless the run does not record.
    /// A question that cannot be stored as JSON fails the task.
    pub async fn interrupt<A: DeserializeOwned>(&self, key: &str, question: impl Serialize) -> A {
        self.question(key, question, None).await
    }

    /// Like [`interrupt`](Self::interrupt), and whoever is asked sees what an answer has to look like:
    /// [`Interrupt::schema`](crate::Interrupt::schema) is the JSON Schema of `A`.
    pub async fn ask<A: DeserializeOwned + JsonSchema>(&self, key: &str, question: impl Serialize) -> A {
        self.question(key, question, Some(schema_for!(A).to_value().to_string())).await
    }

    /// Whether there is an answer under this key, with which [`interrupt`](Self::interrupt) returns if it is asked the same as
    /// when the answer was given.
    pub fn is_answered(&self, key: &str) -> bool {
        let recorded = match self.run.tape.given(self.task) {
            Given::Recorded(recorded) | Given::Live(recorded) => recorded.answers.contains_key(key),
            Given::Nothing | Given::Unknown => false,
        };
        recorded || self.run.desk.answers_of(self.task).contains_key(key)
    }

    /// The question that was asked when the answer under this key was given, if there is one that can be read as a `Q`.
    ///
    /// For a question with a part that may read otherwise when the node runs again although nothing that matters has
    /// changed: take that part from here.
    pub fn answered_question<Q: DeserializeOwned>(&self, key: &str) -> Option<Q> {
        serde_json::from_str(&self.run.desk.answered(self.task, key)?).ok()
    }

    /// Waits until the checkpoint is stored that has this task to run: what is named after that is to be found again after
    /// a crash, and by nobody else.
    pub(crate) async fn settle(&self) {
        let Standing { place, config, .. } = &self.run.standing;
        if place.is_some() && config.durability != Durability::Sync {
            self.run.settling.settle().await;
        }
    }

    /// Says at the desk what the task goes no further for. All of it at once: the task may be taken away right after.
    pub(crate) fn say_at_desk(&self, asked: impl IntoIterator<Item = Asked>) {
        self.run.desk.ask(self.task, asked);
        self.bell.wake();
    }

    /// Fails the task for something that it would store: the node goes no further, and nothing in it sees the error.
    pub(crate) async fn unstorable<T>(&self, what: &str, source: serde_json::Error) -> T {
        let error = RunError::Unstorable { what: what.to_owned(), source };
        self.say_at_desk([Asked::Unstorable(error)]);
        std::future::pending().await
    }

    /// Returns whether a question can wait for its answer: the run is stored, and can be resumed.
    pub fn can_interrupt(&self) -> bool {
        self.run.standing.place.is_some()
    }

    async fn question<A: DeserializeOwned>(
        &self,
        key: &str,
        question: impl Serialize,
        schema: Option<String>,
    ) -> A {
        let written = encode::to_string(&question).and_then(|json| Ok((fingerprint(&question)?, json)));
        let (print, question) = match written {
            Ok(written) => written,
            Err(error) => return self.unstorable(&format!("the question `{key}`"), error).await,
        };
        let mut answer = self.run.desk.answer(self.task, key, &question);
        match self.run.tape.given(self.task) {
            Given::Nothing => {}
            Given::Unknown => return self.astray(Astray::Unknown).await,
            Given::Recorded(recorded) | Given::Live(recorded) => match recorded.answers.get(key) {
                Some((asked, recorded)) if *asked == print => answer = Ok(Some(recorded.clone())),
                _ => {
                    let question = serde_json::from_str(&question).expect("it was just written");
                    return self.astray(Astray::Question { key: key.to_owned(), question }).await;
                }
            },
        }
        let question = Question { key: key.to_owned(), question, schema, within: None, replaces: None };
        let asked = match answer {
            Ok(Some(answer)) => match A::deserialize(&answer) {
                Ok(read) => {
                    self.run.tape.learn(self.task, |learned| {
                        learned.answers.insert(key.to_owned(), (print, answer));
                    });
                    return read;
                }
                Err(error) => Asked::Refused { question, why: Refusal::BadType(error) },
            },
            Ok(None) => Asked::Question(question),
            Err(why) => Asked::Refused { question, why },
        };
        self.say_at_desk([asked]);
        // An interrupt is an outcome, not an error: there is nothing that the node could catch.
        std::future::pending().await
    }

    /// Says that the node is still at work, for its [`idle_timeout`](crate::NodeOptions::idle_timeout), and so are those
    /// that called the graph it is in. Events say so too.
    pub fn heartbeat(&self) {
        if let Some(pulse) = &self.pulse {
            pulse.beat();
        }
    }

    /// Leaves work running beside the graph. The state cannot see it; the run ends only when it is over, so bound it.
    ///
    /// It survives neither a crash nor the run, which takes it along when it is dropped: use it for what may be lost, or for
    /// what someone else will do again. Once the run is over nothing more is begun. A replay begins nothing.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if !self.is_for_real() {
            return;
        }
        self.run.background.spawn(work);
    }

    /// Sends a custom event to whoever streams the run. Does nothing, at no cost, if nobody does.
    ///
    /// # Panics
    /// If `data` has no JSON form.
    pub fn emit(&self, name: &'static str, data: impl Serialize) {
        self.heartbeat();
        if let Some(events) = self.run.events(StreamMode::Custom) {
            let data = serde_json::to_value(data).expect("event data has a JSON form");
            events.custom(self.node(), name, data);
        }
    }
}

impl std::fmt::Debug for Cx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cx")
            .field("node", self.node())
            .field("step", &self.task.step)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
