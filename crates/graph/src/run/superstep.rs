//! A superstep at work: the ends of its tasks so far, and the reasons why it may not be committed.
//!
//! Start at [`Superstep`].

use std::{collections::BTreeMap, error::Error, mem, sync::Arc};

use superstep_checkpoint::{CheckpointError, TaskRecord, store::Operation};
use superstep_engine::{ChannelSet, NodeIndex, NodeName, Task, TaskId, Topology};
use superstep_state::{RawJson, StoredUpdate};

use crate::{
    NodeError, NodeFailure, Question, RunError, State,
    journal::{
        interrupts::{PendingQuestion, StoredAnswer, WaitReason, answer_key, waiting_record},
        task_origin::{CarriedOrigins, name_at_begin},
    },
    node::{
        cache::{Lookup, Missing},
        cx::RunCx,
        output::Written,
    },
};

/// The data of one superstep. The next one [replaces](Self::replace) all of it. Maps are by slot.
pub(super) struct Superstep<S: State> {
    /// The number of the superstep.
    pub(super) step: i64,
    /// The finished tasks, by slot.
    pub(super) done: Vec<Option<FinishedTask<S>>>,
    /// The slots of those whose records are due, if the superstep does not end first.
    pub(super) ended: Vec<u32>,
    /// The channels written so far.
    pub(super) written: ChannelSet,
    /// The items of workers, as JSON.
    pub(super) items: BTreeMap<u32, String>,
    /// The failures that error handlers receive.
    pub(super) failures: BTreeMap<u32, Arc<NodeFailure>>,
    /// The last failure, until it is known whether its task runs again.
    pub(super) failure: Option<(Task, Box<dyn Error + Send + Sync>)>,
    /// The pending questions.
    pub(super) waiting: BTreeMap<u32, Vec<PendingQuestion>>,
    /// The questions that were pending at the start of the run.
    pub(super) open_questions: BTreeMap<u32, Vec<Question>>,
    /// The origins of tasks that an external update left pending.
    pub(super) origins: CarriedOrigins,
    /// The names under which tasks of renamed nodes were planned.
    pub(super) planned: BTreeMap<u32, NodeName>,
    /// The stored records of running tasks, without the results of their effects.
    pub(super) started: BTreeMap<u32, TaskRecord>,
    /// The results that were found in the store.
    pub(super) fetched: BTreeMap<u32, Written<S>>,
    /// Cache entries, by slot, to insert once the results are accepted.
    pub(super) cache_inserts: Vec<(u32, NodeIndex, Missing, Written<S>)>,
    /// Accepted cache entries, to put into the store once the superstep is committed.
    pub(super) cache_puts: Vec<(NodeIndex, Operation)>,
}

impl<S: State> Superstep<S> {
    pub(super) fn new() -> Self {
        Self {
            step: 0,
            done: Vec::new(),
            ended: Vec::new(),
            written: ChannelSet::EMPTY,
            items: BTreeMap::new(),
            failures: BTreeMap::new(),
            failure: None,
            waiting: BTreeMap::new(),
            open_questions: BTreeMap::new(),
            origins: CarriedOrigins::new(),
            planned: BTreeMap::new(),
            started: BTreeMap::new(),
            fetched: BTreeMap::new(),
            cache_inserts: Vec::new(),
            cache_puts: Vec::new(),
        }
    }

    /// Replaces a committed superstep with the next one, whose workers get these items.
    pub(super) fn replace(&mut self, step: i64, items: BTreeMap<u32, String>) {
        debug_assert!(self.waiting.is_empty(), "a superstep with a task that asks is not over");
        // The allocations of these two serve the next one.
        let (mut done, mut ended) = (mem::take(&mut self.done), mem::take(&mut self.ended));
        done.clear();
        ended.clear();
        // The other parts are usually empty, and dropping so many empty maps has a cost.
        if !self.is_plain() || !items.is_empty() {
            *self = Self { items, ..Self::new() };
        }
        (self.step, self.done, self.ended, self.written) = (step, done, ended, ChannelSet::EMPTY);
    }

    /// Returns whether it has no more than finished tasks.
    fn is_plain(&self) -> bool {
        // Each field is named, so that none is forgotten.
        let Self {
            step: _,
            done: _,
            ended: _,
            written: _,
            items,
            failures,
            failure,
            waiting,
            open_questions,
            origins,
            planned,
            started,
            fetched,
            cache_inserts,
            cache_puts,
        } = self;
        items.is_empty()
            && failures.is_empty()
            && failure.is_none()
            && waiting.is_empty()
            && open_questions.is_empty()
            && origins.is_empty()
            && planned.is_empty()
            && started.is_empty()
            && fetched.is_empty()
            && cache_inserts.is_empty()
            && cache_puts.is_empty()
    }

    /// Adds a finished task.
    pub(super) fn put(&mut self, slot: u32, done: FinishedTask<S>) {
        let slot = slot as usize;
        if self.done.len() < slot {
            self.done.resize_with(slot, || None);
        }
        match self.done.get_mut(slot) {
            Some(place) => *place = Some(done),
            None => self.done.push(Some(done)),
        }
    }

    /// Returns the failure that a task's error handler receives.
    pub(super) fn failure_of(&self, slot: u32) -> Option<&NodeFailure> {
        self.failures.get(&slot).map(Arc::as_ref)
    }

    /// Returns the name that the questions of a task have: that of its node when it began.
    pub(super) fn name_at_begin(&self, topology: &Topology, slot: u32, node: NodeIndex) -> NodeName {
        name_at_begin(topology, self.planned.get(&slot), node).clone()
    }

    /// Returns whether a task has answers, or waited for one in an earlier run. It remains so in its records, even if its questions
    /// are withdrawn.
    pub(super) fn has_waited(&self, cx: &RunCx, task: TaskId) -> bool {
        self.open_questions.contains_key(&task.slot) || !cx.interrupts.answers_of(task).is_empty()
    }

    /// Returns the questions of a task that were pending at the start of the run and have no answer, and all
    /// its answers.
    fn questions_of(&self, cx: &RunCx, task: TaskId) -> (Vec<Question>, BTreeMap<String, StoredAnswer>) {
        let answers = cx.interrupts.answers_of(task);
        let open = self.open_questions.get(&task.slot).into_iter().flatten();
        let open = open.filter(|question| !answers.contains_key(&answer_key(question))).cloned().collect();
        (open, answers)
    }

    /// Creates the record of a failure, with the questions and answers of the task.
    pub(super) fn failed_record(&self, cx: &RunCx, task: TaskId, attempts: u32, error: String) -> TaskRecord {
        let once = cx.effects.results(task);
        let record = if self.has_waited(cx, task) {
            let (questions, answers) = self.questions_of(cx, task);
            waiting_record(questions, &answers, attempts, Some(error), once)
        } else {
            TaskRecord::Failed { attempts, error, once }
        };
        record.handled(self.failure_of(task.slot))
    }

    /// Creates the record of a running task, with its questions and answers.
    pub(super) fn started_record(
        &self,
        cx: &RunCx,
        task: TaskId,
        attempts: u32,
        once: BTreeMap<String, RawJson>,
    ) -> TaskRecord {
        let record = if self.has_waited(cx, task) {
            let (questions, answers) = self.questions_of(cx, task);
            waiting_record(questions, &answers, attempts, None, once)
        } else {
            TaskRecord::Started { attempts, once }
        };
        record.handled(self.failure_of(task.slot))
    }
}

/// A finished task of an incomplete superstep.
pub(super) struct FinishedTask<S: State> {
    pub(super) node: NodeIndex,
    /// `None` when it is folded, which happens early for a task that is alone in its superstep.
    pub(super) update: Option<S::Update>,
    /// The update as it is stored; `None` without a checkpointer.
    pub(super) stored: Option<StoredUpdate>,
    /// The items that it sends to workers.
    pub(super) items: Vec<RawJson>,
    pub(super) recorded: bool,
}

/// The end of a task's attempt.
pub(crate) struct TaskEnd<S: State> {
    pub(crate) task: Task,
    pub(crate) result: TaskResult<S>,
}

/// The result of an attempt.
pub(crate) enum TaskResult<S: State> {
    Finished(Written<S>, Lookup),
    Failed(NodeError),
    Interrupted(Vec<WaitReason>),
}

/// A superstep that cannot be committed, and the tasks at fault, by slot.
pub(super) struct Refused {
    pub(super) error: RunError,
    pub(super) blamed: Vec<u32>,
}

/// The reason why a run does not continue.
pub(super) enum Stop {
    /// An error. Boxed, because each step of the driver can return one, and few do.
    Refused(Box<Refused>),
    /// The observer of the run ends it.
    Halted,
}

impl Stop {
    /// The error of a run whose observer ends none.
    pub(super) fn into_error(self) -> RunError {
        match self {
            Self::Refused(refused) => refused.error,
            Self::Halted => unreachable!("an observer that records does not end the run"),
        }
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Self {
        Refused::from(error).into()
    }
}

impl From<CheckpointError> for Stop {
    fn from(error: CheckpointError) -> Self {
        RunError::from(error).into()
    }
}

impl From<RunError> for Refused {
    fn from(error: RunError) -> Self {
        Self { error, blamed: Vec::new() }
    }
}
