//! Asking someone outside, and hearing the answer in another run.
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

use serde::{Deserialize, Serialize};
use serde_json::Value;
use superstep_engine::{NodeName, TaskId};

use crate::{NodeError, RunError, json, namespace::SEPARATOR, tape::Astray};

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Names the question among all that were ever asked on this branch of the thread; the same when it is asked again.
    pub id: String,
    /// The node that asks.
    pub node: NodeName,
    /// The name under which it asks.
    pub key: String,
    /// What it asks.
    pub question: Value,
    /// The JSON Schema of an answer, if the node told it with [`Cx::ask`](crate::Cx::ask).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// Answers to interrupts, by the interrupt's id, or by its key if only one question has it.
///
/// ```
/// # use superstep_graph::{Answers, RunConfig};
/// let config = RunConfig { answers: Answers::new().answer("approve_refund", true), ..RunConfig::thread("order-7") };
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<String, Value>);

impl Answers {
    /// No answers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the answer to one interrupt. `null`, `false`, 0 and "" are answers like any other.
    #[must_use]
    pub fn answer(mut self, interrupt: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(interrupt.into(), value.into());
        self
    }

    /// Returns the answer that was added under this name.
    pub fn get(&self, interrupt: &str) -> Option<&Value> {
        self.0.get(interrupt)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the question of each answer: its task's slot and its key.
    ///
    /// # Errors
    /// [`RunError::UnknownInterrupt`] and [`RunError::AmbiguousAnswer`]; no answer is taken then.
    pub(crate) fn resolve(&self, waiting: &[(u32, Asking)]) -> Result<Resolved, RunError> {
        let mut resolved = Resolved::new();
        for (name, value) in &self.0 {
            let is_named = |asked: &Interrupt| asked.id == *name || asked.key == *name;
            let named = waiting.iter().filter(|(_, asking)| is_named(&asking.interrupt));
            let ids = |asked: Vec<&(u32, Asking)>| {
                asked.into_iter().map(|(_, asking)| asking.interrupt.id.clone()).collect()
            };
            let named: Vec<_> = named.collect();
            let (slot, Asking { key, interrupt }) = match named[..] {
                [] => {
                    let waiting = ids(waiting.iter().collect());
                    return Err(RunError::UnknownInterrupt { name: name.clone(), waiting });
                }
                [one] => one,
                _ => return Err(RunError::AmbiguousAnswer { name: name.clone(), meant: ids(named) }),
            };
            json::check_depth(value)
                .map_err(|source| RunError::Unstorable { what: format!("the answer `{name}`"), source })?;
            if resolved.entry(*slot).or_default().insert(key.clone(), value.clone()).is_some() {
                return Err(RunError::AmbiguousAnswer {
                    name: interrupt.key.clone(),
                    meant: vec![interrupt.id.clone()],
                });
            }
        }
        Ok(resolved)
    }
}

/// Answers by slot and [`Asking::key`].
pub(crate) type Resolved = BTreeMap<u32, BTreeMap<String, Value>>;

/// A question as it is stored with its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The name under which it is asked.
    pub key: String,
    /// What is asked, as JSON.
    pub question: String,
    /// The JSON Schema of an answer, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Who asks it, if the task does so for a graph that it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
}

/// Where in a called graph a question comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The key of the call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// The superstep of the called graph whose task asks. An answer is for that superstep, and for no later one in which
    /// the same is asked.
    pub step: i64,
    /// The slot of that task.
    pub slot: u32,
    /// The name under which that task keeps the answer.
    pub key: String,
    /// The id of the interrupt in the called graph.
    pub id: String,
    /// The node that asks.
    pub node: NodeName,
}

impl Question {
    /// A question that a called graph asks.
    pub(crate) fn within(asked: Interrupt, within: Within) -> Self {
        let Interrupt { key, question, schema, .. } = asked;
        let schema = schema.map(|schema| schema.to_string());
        Self { key, question: question.to_string(), schema, within: Some(within) }
    }

    /// The call that asks it; `None` if the task itself does.
    pub(crate) fn call(&self) -> Option<&str> {
        self.within.as_ref().map(|within| within.call.as_str())
    }

    /// The name under which the task keeps the answer.
    pub(crate) fn answer_key(&self) -> String {
        match &self.within {
            None => self.key.clone(),
            Some(Within { call, step, slot, key, .. }) => {
                format!("{}{step}{SEPARATOR}{slot}{SEPARATOR}{key}", called(call))
            }
        }
    }

    /// The question as it is shown: of a task that began in this superstep and slot.
    pub(crate) fn into_asking(self, task: TaskId, node: NodeName) -> Asking {
        let answer_key = self.answer_key();
        let Self { key, question, schema, within } = self;
        let read = |json: String| serde_json::from_str(&json).unwrap_or(Value::String(json));
        let (question, schema) = (read(question), schema.map(read));
        let TaskId { step, slot } = task;
        let (id, node) = match within {
            None => (format!("{node}:{step}.{slot}:{key}"), node),
            Some(Within { call, id, node: asks, .. }) => {
                let colon = if call.is_empty() { "" } else { ":" };
                (format!("{node}:{step}.{slot}{colon}{call}/{id}"), asks)
            }
        };
        Asking { key: answer_key, interrupt: Interrupt { id, node, key, question, schema } }
    }

    /// The question as it is shown.
    pub(crate) fn into_interrupt(self, task: TaskId, node: NodeName) -> Interrupt {
        self.into_asking(task, node).interrupt
    }
}

/// How the names of all answers begin that are for one of a task's calls. The separator stands in no key of a call.
fn called(call: &str) -> String {
    format!("{SEPARATOR}{call}{SEPARATOR}")
}

/// A question that waits, and the name under which its task keeps the answer.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) key: String,
    pub(crate) interrupt: Interrupt,
}

/// An answer for a task of a called graph.
pub(crate) struct Given {
    pub(crate) step: i64,
    pub(crate) slot: u32,
    pub(crate) key: String,
    pub(crate) value: Value,
}

impl Given {
    /// Reads what [`Question::answer_key`] wrote for a call.
    fn parse(key: &str, value: &Value) -> Option<Self> {
        let mut parts = key.splitn(3, SEPARATOR);
        let (step, slot) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { step, slot, key: parts.next()?.to_owned(), value: value.clone() })
    }
}

/// The questions that the tasks of a run ask, and the answers they get.
#[derive(Default)]
pub(crate) struct Desk {
    inner: Mutex<Papers>,
    /// Whether anybody ever asked anything, so that most tasks need not look.
    used: AtomicBool,
}

#[derive(Default)]
struct Papers {
    /// By superstep.
    answers: BTreeMap<i64, Resolved>,
    asked: BTreeMap<TaskId, Vec<Asked>>,
}

/// What a task said at the desk before it went to sleep.
pub(crate) enum Asked {
    /// A question without an answer.
    Question(Question),
    /// An answer that is not of the type the node wants.
    BadAnswer { question: Question, error: serde_json::Error },
    /// Nothing: it leaves the graph, with this command for the caller.
    Left(Box<dyn Any + Send + Sync>),
    /// Nothing: a graph that it called came to a breakpoint.
    Breakpoint,
    /// Nothing: a graph that it called stopped, because the run is cancelled.
    Cancelled,
    /// Nothing: a graph that it called stopped, because the run is drained.
    Drained,
    /// Nothing: it cannot be stored, so that the task fails.
    Unstorable(NodeError),
    /// Nothing: a replay cannot go on with it.
    Astray(Astray),
}

/// Two questions of one task that one answer would be for.
#[derive(Debug, thiserror::Error)]
#[error(
    "SS124: a task of node `{node}` asks two questions under the key `{key}` at the same time; give each of its questions \
     another key"
)]
pub(crate) struct AskedTwice {
    node: NodeName,
    key: String,
}

impl AskedTwice {
    /// Leaves out what was asked again, and refuses another question under a key that waits.
    pub(crate) fn check(node: &NodeName, asked: Vec<Asked>) -> Result<Vec<Asked>, Self> {
        let mut seen = BTreeMap::new();
        let mut once = Vec::with_capacity(asked.len());
        for asked in asked {
            if let Some(question) = asked.question() {
                match seen.get(&question.answer_key()) {
                    None => {
                        seen.insert(question.answer_key(), question.clone());
                    }
                    Some(before) if before == question => continue,
                    Some(_) => return Err(Self { node: node.clone(), key: question.key.clone() }),
                }
            }
            once.push(asked);
        }
        Ok(once)
    }
}

impl Asked {
    fn question(&self) -> Option<&Question> {
        match self {
            Self::Question(question) | Self::BadAnswer { question, .. } => Some(question),
            _ => None,
        }
    }
}

impl Papers {
    fn of(&self, task: TaskId) -> Option<&BTreeMap<String, Value>> {
        self.answers.get(&task.step)?.get(&task.slot)
    }
}

impl Desk {
    fn papers(&self) -> MutexGuard<'_, Papers> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put_answers(&self, step: i64, answers: Resolved) {
        self.papers().answers.insert(step, answers);
    }

    /// Adds an answer for a superstep that is still to come.
    pub(crate) fn put_answer(&self, given: Given) {
        let Given { step, slot, key, value } = given;
        self.papers().answers.entry(step).or_default().entry(slot).or_default().insert(key, value);
    }

    pub(crate) fn answer(&self, task: TaskId, key: &str) -> Option<Value> {
        self.papers().of(task)?.get(key).cloned()
    }

    /// The answers of a task that are for a graph which it calls.
    pub(crate) fn given(&self, task: TaskId, call: &str) -> Vec<Given> {
        let (papers, called) = (self.papers(), called(call));
        let answers = papers.of(task).into_iter().flatten();
        answers.filter_map(|(key, value)| Given::parse(key.strip_prefix(&called)?, value)).collect()
    }

    /// Drops those of them that are for supersteps before `step`, which the called graph keeps itself.
    pub(crate) fn forget(&self, task: TaskId, call: &str, step: i64) {
        let (mut papers, called) = (self.papers(), called(call));
        let Some(answers) = papers.answers.get_mut(&task.step).and_then(|tasks| tasks.get_mut(&task.slot))
        else {
            return;
        };
        answers.retain(|key, value| {
            let given = key.strip_prefix(&called).and_then(|key| Given::parse(key, value));
            given.is_none_or(|given| given.step >= step)
        });
    }

    /// The answers of a task, as they are stored.
    pub(crate) fn answers_of(&self, task: TaskId) -> BTreeMap<String, String> {
        let papers = self.papers();
        papers.of(task).into_iter().flatten().map(|(key, value)| (key.clone(), value.to_string())).collect()
    }

    /// Forgets the answers of a task: what runs in its place now asks questions of its own.
    pub(crate) fn forget_all(&self, task: TaskId) {
        if let Some(tasks) = self.papers().answers.get_mut(&task.step) {
            tasks.remove(&task.slot);
        }
    }

    pub(crate) fn ask(&self, task: TaskId, asked: impl IntoIterator<Item = Asked>) {
        self.papers().asked.entry(task).or_default().extend(asked);
        self.used.store(true, Ordering::Release);
    }

    /// Takes what a task asked since it was looked at last.
    pub(crate) fn take(&self, task: TaskId) -> Option<Vec<Asked>> {
        self.used.load(Ordering::Acquire).then(|| self.papers().asked.remove(&task))?
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}
