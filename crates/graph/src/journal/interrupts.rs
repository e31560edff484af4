//! Interrupts: questions of nodes, answered in another run.
//!
//! Start at [`Cx::interrupt`](crate::Cx::interrupt).

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::Serialize;
use serde_json::Value;
use superstep_checkpoint::{Replaced, TaskRecord, Within, internal::SEPARATOR};
use superstep_engine::{NodeName, TaskId, Topology};
use superstep_state::{RawJson, internal::encode};

use crate::{
    Interrupt, Question, RunError,
    changed_question::ChangedQuestion,
    journal::{
        divergence::Deviation,
        interrupts::id::{QuestionName, is_other, marked},
        task_origin::QuestionContext,
    },
};

pub(crate) mod id;

/// Answers to interrupts, by the interrupt's id, or by its key if that is unique.
///
/// ```
/// # use superstep_graph::{Answers, CompiledGraph, RunError, State};
/// # async fn example<S: State>(graph: CompiledGraph<S>) -> Result<(), RunError> {
/// let answers = Answers::new().answer("approve_refund", true).answer("note", "by phone");
/// graph.thread("order-7").answers(answers).resume().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<String, Result<Value, String>>);

impl Answers {
    /// Creates an empty set of answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the answer to one interrupt: any serializable value. `null`, `false`, 0 and "" are answers like any other. A
    /// value that cannot be serialized is reported by the run that gets it.
    #[must_use]
    pub fn answer(mut self, interrupt: impl Into<String>, value: impl Serialize) -> Self {
        self.add(interrupt, value);
        self
    }

    /// Adds an answer in place.
    pub fn add(&mut self, interrupt: impl Into<String>, value: impl Serialize) {
        let value = encode::to_value(&value).map_err(|error| error.to_string());
        self.0.insert(interrupt.into(), value);
    }

    /// Returns the answer added under this name.
    pub fn get(&self, interrupt: &str) -> Option<&Value> {
        self.0.get(interrupt)?.as_ref().ok()
    }

    /// Adds the other answers and replaces those under the same names.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns whether there are no answers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the question of each answer: its task's slot and its key.
    ///
    /// # Errors
    /// [`RunError::UnknownInterrupt`], [`RunError::ChangedQuestion`] and [`RunError::AmbiguousAnswer`]; then
    /// no answer is accepted.
    pub(crate) fn resolve(&self, waiting: &[(u32, PendingQuestion)]) -> Result<Resolved, RunError> {
        let mut resolved = Resolved::new();
        for (name, value) in &self.0 {
            let value = value.as_ref().map_err(serde::ser::Error::custom);
            let value = value.and_then(|value| encode::check_depth(value).map(|()| value));
            let unstorable = |source| RunError::Unstorable { what: format!("the answer `{name}`"), source };
            let value = value.map_err(unstorable)?;
            let is_named = |interrupt: &Interrupt| interrupt.id == *name || interrupt.key == *name;
            let named = waiting.iter().filter(|(_, asking)| is_named(&asking.interrupt));
            let ids = |questions: Vec<&(u32, PendingQuestion)>| {
                questions.into_iter().map(|(_, asking)| asking.interrupt.id.clone()).collect()
            };
            let named: Vec<_> = named.collect();
            let (slot, PendingQuestion { key, interrupt, question, .. }) = match named[..] {
                [] => {
                    if let Some((_, asking)) =
                        waiting.iter().find(|(_, asking)| is_other(name, &asking.interrupt.id))
                    {
                        return Err(asking.is_changed(name));
                    }
                    let waiting = ids(waiting.iter().collect());
                    return Err(RunError::UnknownInterrupt { name: name.clone(), waiting, elsewhere: None });
                }
                [one] => one,
                _ => return Err(RunError::AmbiguousAnswer { name: name.clone(), meant: ids(named) }),
            };
            let answered = StoredAnswer { answer: value.clone(), question: Some(question.clone()) };
            if resolved.entry(*slot).or_default().insert(key.clone(), answered).is_some() {
                return Err(RunError::AmbiguousAnswer {
                    name: interrupt.key.clone(),
                    meant: vec![interrupt.id.clone()],
                });
            }
        }
        Ok(resolved)
    }
}

/// The answers by slot and [`PendingQuestion::key`].
pub(crate) type Resolved = BTreeMap<u32, BTreeMap<String, StoredAnswer>>;

/// An answer with its question.
#[derive(Clone, Debug)]
pub(crate) struct StoredAnswer {
    pub(crate) answer: Value,
    /// The question of the answer. `None` if an older program stored the answer without it; it then applies
    /// to any question under its key.
    pub(crate) question: Option<Question>,
}

impl StoredAnswer {
    /// Returns whether it answers this question, ignoring the order of map entries.
    fn is_for(&self, question: &str) -> bool {
        let parsed = |json: &str| serde_json::from_str::<Value>(json).ok();
        self.question
            .as_ref()
            .is_none_or(|before| before.question == question || parsed(&before.question) == parsed(question))
    }
}

/// Creates the question of a called graph.
pub(crate) fn question_within(interrupt: Interrupt, within: Within) -> Question {
    let Interrupt { key, question, schema, .. } = interrupt;
    let schema = schema.as_ref().map(RawJson::from);
    Question { key, question: RawJson::from(&question), schema, within: Some(within), replaces: None }
}

/// Returns the call that asks a question; `None` if the task itself does.
pub(crate) fn call_of(question: &Question) -> Option<&str> {
    question.within.as_ref().map(|within| within.call.as_str())
}

/// Returns the key under which the task stores the answer to a question.
pub(crate) fn answer_key(question: &Question) -> String {
    match &question.within {
        None => question.key.clone(),
        // With the superstep of the subgraph: the answer is stored with the outermost task first. Before a crash, the
        // subgraph may have used it, continued, and repeated the question.
        Some(Within { call, step, slot, key, .. }) => {
            format!("{}{step}{SEPARATOR}{slot}{SEPARATOR}{key}", called(call))
        }
    }
}

/// Converts a question of a task to its public form, with the key of its answer. `asks` is the name of its node when it began.
pub(crate) fn into_pending(
    stored: Question,
    began: QuestionContext<'_>,
    asks: &NodeName,
    topology: &Topology,
) -> PendingQuestion {
    let read = |json: &RawJson| serde_json::from_str(json).unwrap_or_else(|_| Value::from(json.as_str()));
    let question = read(&stored.question);
    let id = marked(QuestionName::of(&stored), &question, began, asks);
    let node = match &stored.within {
        Some(within) => within.node.clone(),
        None => topology.present_name(asks).clone(),
    };
    let (key, schema) = (stored.key.clone(), stored.schema.as_ref().map(read));
    let interrupt = Interrupt { id, node, key, question, schema };
    PendingQuestion { key: answer_key(&stored), interrupt, question: stored }
}

/// Converts a question to its public form.
pub(crate) fn into_interrupt(
    stored: Question,
    began: QuestionContext<'_>,
    asks: &NodeName,
    topology: &Topology,
) -> Interrupt {
    into_pending(stored, began, asks, topology).interrupt
}

/// Converts a question to the form that is stored with its answer.
fn answered(question: &Question) -> Question {
    Question { schema: None, replaces: None, ..question.clone() }
}

/// Records in a question the task's earlier question under the same key, if it differs.
pub(crate) fn replacing(
    question: &mut Question,
    before: &Question,
    began: QuestionContext<'_>,
    (asks, topology): (&NodeName, &Topology),
) {
    question.replaces = if before.question == question.question {
        before.replaces.clone()
    } else {
        let id = into_interrupt(before.clone(), began, asks, topology).id;
        Some(Replaced { id, question: before.question.clone() })
    };
}

/// Returns the common prefix of the answer keys of one call. Keys of calls cannot contain the separator.
fn called(call: &str) -> String {
    format!("{SEPARATOR}{call}{SEPARATOR}")
}

/// A pending question, with the key of its answer.
#[derive(Clone, Debug)]
pub(crate) struct PendingQuestion {
    pub(crate) key: String,
    pub(crate) interrupt: Interrupt,
    pub(crate) question: Question,
}

impl PendingQuestion {
    /// Creates the error of an answer to `name`, which was the id of another question of the same task and
    /// key.
    fn is_changed(&self, name: &str) -> RunError {
        let replaced = self.question.replaces.as_ref().filter(|replaced| replaced.id == name);
        RunError::ChangedQuestion(Box::new(ChangedQuestion {
            name: name.to_owned(),
            node: self.interrupt.node.clone(),
            answered: replaced.map(|replaced| replaced.question.clone()),
            asks: self.question.question.clone(),
            id: self.interrupt.id.clone(),
        }))
    }
}

/// An answer for a task of a called graph.
pub(crate) struct PendingAnswer {
    pub(crate) step: i64,
    pub(crate) slot: u32,
    pub(crate) key: String,
    pub(crate) answered: StoredAnswer,
}

impl PendingAnswer {
    /// Parses the output of [`answer_key`] for a call.
    fn parse(key: &str, answered: &StoredAnswer) -> Option<Self> {
        let mut parts = key.splitn(3, SEPARATOR);
        let (step, slot) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { step, slot, key: parts.next()?.to_owned(), answered: answered.clone() })
    }
}

/// Creates the record of a task with questions or answers.
pub(crate) fn waiting_record(
    questions: Vec<Question>,
    answers: &BTreeMap<String, StoredAnswer>,
    attempts: u32,
    error: Option<String>,
    once: BTreeMap<String, RawJson>,
) -> TaskRecord {
    let answer = |(key, stored): (&String, &StoredAnswer)| (key.clone(), RawJson::from(&stored.answer));
    let question =
        |(key, stored): (&String, &StoredAnswer)| Some((key.clone(), answered(stored.question.as_ref()?)));
    TaskRecord::Interrupted {
        questions,
        answers: answers.iter().map(answer).collect(),
        asked: answers.iter().filter_map(question).collect(),
        attempts,
        error,
        once,
    }
}

/// The questions of a run's tasks, and their answers.
#[derive(Default)]
pub(crate) struct InterruptQueue {
    inner: Mutex<QueueState>,
    /// `true` if a task of the run had a question; a shortcut for most tasks.
    used: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    /// By superstep.
    answers: BTreeMap<i64, Resolved>,
    reasons: BTreeMap<TaskId, Vec<WaitReason>>,
}

/// A message of a task to the driver before it suspends.
pub(crate) enum WaitReason {
    /// A question without an answer.
    Question(Question),
    /// A question with an answer that is not valid.
    Refused { question: Question, why: Refusal },
    /// The node leaves the graph, with this command for the caller.
    Left(Box<dyn Any + Send + Sync>),
    /// A called graph reached a breakpoint.
    Breakpoint,
    /// A called graph stopped because the run is cancelled.
    Cancelled,
    /// A called graph stopped because the run is drained.
    Drained,
    /// A value cannot be stored, so that the task fails.
    Unstorable(RunError),
    /// A replay cannot continue with the task.
    Deviated(Deviation),
}

/// The reason why an answer is not accepted.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The answer has another type than the node requires.
    BadType(serde_json::Error),
    /// The answer is for another question.
    Changed,
}

/// Two questions of one task that would share an answer.
#[derive(Debug, thiserror::Error)]
#[error(
    "SS124: a task of node `{node}` asks two questions under the key `{key}` at the same time; give each of its questions \
     another key"
)]
pub(crate) struct RepeatedQuestion {
    node: NodeName,
    key: String,
}

impl RepeatedQuestion {
    /// Removes repeated questions, and rejects a different question under a pending key.
    pub(crate) fn check(node: &NodeName, reasons: Vec<WaitReason>) -> Result<Vec<WaitReason>, Self> {
        let mut seen = BTreeMap::new();
        let mut once = Vec::with_capacity(reasons.len());
        for reason in reasons {
            if let Some(question) = reason.question() {
                match seen.get(&answer_key(question)) {
                    None => {
                        seen.insert(answer_key(question), question.clone());
                    }
                    Some(before) if before == question => continue,
                    Some(_) => return Err(Self { node: node.clone(), key: question.key.clone() }),
                }
            }
            once.push(reason);
        }
        Ok(once)
    }
}

impl WaitReason {
    fn question(&self) -> Option<&Question> {
        match self {
            Self::Question(question) | Self::Refused { question, .. } => Some(question),
            _ => None,
        }
    }
}

impl QueueState {
    fn of(&self, task: TaskId) -> Option<&BTreeMap<String, StoredAnswer>> {
        self.answers.get(&task.step)?.get(&task.slot)
    }
}

impl InterruptQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put_answers(&self, step: i64, answers: Resolved) {
        self.state().answers.insert(step, answers);
    }

    /// Adds an answer for a later superstep.
    pub(crate) fn put_answer(&self, answer: PendingAnswer) {
        let PendingAnswer { step, slot, key, answered } = answer;
        self.state().answers.entry(step).or_default().entry(slot).or_default().insert(key, answered);
    }

    /// Returns the answer to this question of a task, if there is one under the key.
    ///
    /// # Errors
    /// [`Refusal::Changed`] if the answer under the key is for another question.
    pub(crate) fn answer(&self, task: TaskId, key: &str, question: &str) -> Result<Option<Value>, Refusal> {
        match self.state().of(task).and_then(|answers| answers.get(key)) {
            None => Ok(None),
            Some(answered) if answered.is_for(question) => Ok(Some(answered.answer.clone())),
            Some(_) => Err(Refusal::Changed),
        }
    }

    /// Returns the question of the answer under this key.
    pub(crate) fn answered(&self, task: TaskId, key: &str) -> Option<RawJson> {
        Some(self.state().of(task)?.get(key)?.question.as_ref()?.question.clone())
    }

    /// Returns the answers of a task for a called graph.
    pub(crate) fn pending_answers(&self, task: TaskId, call: &str) -> Vec<PendingAnswer> {
        let (state, called) = (self.state(), called(call));
        let answers = state.of(task).into_iter().flatten();
        answers
            .filter_map(|(key, answered)| PendingAnswer::parse(key.strip_prefix(&called)?, answered))
            .collect()
    }

    /// Drops the answers for supersteps before `step`, which the called graph stores itself.
    pub(crate) fn drop_before(&self, task: TaskId, call: &str, step: i64) {
        let (mut state, called) = (self.state(), called(call));
        let Some(answers) = state.answers.get_mut(&task.step).and_then(|tasks| tasks.get_mut(&task.slot))
        else {
            return;
        };
        answers.retain(|key, value| {
            let answer = key.strip_prefix(&called).and_then(|key| PendingAnswer::parse(key, value));
            answer.is_none_or(|answer| answer.step >= step)
        });
    }

    /// Returns the answers of a task.
    pub(crate) fn answers_of(&self, task: TaskId) -> BTreeMap<String, StoredAnswer> {
        self.state().of(task).cloned().unwrap_or_default()
    }

    /// Drops the answers of a task under these keys, because it refuses the run that gave them.
    pub(crate) fn withdraw(&self, task: TaskId, keys: impl Iterator<Item = String>) {
        let mut state = self.state();
        if let Some(answers) = state.answers.get_mut(&task.step).and_then(|tasks| tasks.get_mut(&task.slot)) {
            keys.for_each(|key| drop(answers.remove(&key)));
        }
    }

    /// Drops the answers of a task: its error handler has its own questions.
    pub(crate) fn drop_answers(&self, task: TaskId) {
        if let Some(tasks) = self.state().answers.get_mut(&task.step) {
            tasks.remove(&task.slot);
        }
    }

    pub(crate) fn ask(&self, task: TaskId, reasons: impl IntoIterator<Item = WaitReason>) {
        self.state().reasons.entry(task).or_default().extend(reasons);
        self.used.store(true, Ordering::Release);
    }

    /// Takes the messages of a task since the last call.
    #[inline]
    pub(crate) fn take(&self, task: TaskId) -> Option<Vec<WaitReason>> {
        if self.used.load(Ordering::Acquire) { self.state().reasons.remove(&task) } else { None }
    }
}

impl fmt::Debug for InterruptQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InterruptQueue")
    }
}
